"""The table of pods: those that run now, what the inventory says they ask for and the newest samples say they use."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.base.usage.usage import Signal
from cotenant.pipeline import stored_history, tables
from cotenant.pipeline.analysis import History
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL, pods_now
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    fill(store, SyntheticSpec(nodes=4, workloads=30, days=2, seed=11), Silent())
    return stored_history.load(store, Settings())


def table(history: History) -> Table:
    return tables.pods(history.inventory, {r: pods_now(history.usage[signal]) for r, signal in POD_SIGNAL.items()})


def test_there_is_a_row_for_each_running_pod_and_none_for_a_gone_one(history: History) -> None:
    rows = list(table(history).rows())
    running = {(p.namespace, p.name): p for p in history.inventory.pods if p.running}
    assert len(running) < len(history.inventory.pods)
    assert {(r["namespace"], r["pod"]) for r in rows} == running.keys()
    for row in rows:
        pod = running[row["namespace"], row["pod"]]
        assert (row["kind"], row["workload"], row["node"]) == (pod.workload.kind, pod.workload.name, pod.node)
        assert (row["qos"], row["priority"], row["start"]) == (pod.qos.value, pod.priority.value, pod.start_seconds)
        assert (row["cpu_request"], row["memory_request"]) == tuple(pod.requests.get(r) for r in Resource)
    counts = Counter(p.node for p in running.values())
    assert Counter(r["node"] for r in rows) == counts


def test_usage_is_the_sum_of_the_containers_newest_samples(history: History) -> None:
    usage = history.usage[Signal.CPU_USAGE_MEAN].dense()
    expected: dict[tuple[str, str], float] = {}
    for ref, values in zip(usage.refs, usage.values[:, -2:], strict=True):
        measured = values[np.isfinite(values)]
        if len(measured):  # the newest sample of the last ten minutes
            expected[ref.namespace, ref.pod] = expected.get((ref.namespace, ref.pod), 0.0) + float(measured[-1])
    rows = {(r["namespace"], r["pod"]): r for r in table(history).rows()}
    used = {name: row["cpu_usage"] for name, row in rows.items() if row["cpu_usage"] is not None}
    assert used and used == {name: round(v) for name, v in expected.items() if name in rows}
    some = next(r for r in rows.values() if r["cpu_request"] and r["cpu_usage"])
    pod_usage = expected[some["namespace"], some["pod"]]
    assert math.isclose(some["cpu_used_ratio"], pod_usage / some["cpu_request"], rel_tol=1e-6)


def test_what_is_not_known_is_empty_and_not_zero(history: History) -> None:
    first = next(p for p in history.inventory.pods if p.running)
    bare = replace(first, name="waits", node="", requests={})
    inventory = replace(history.inventory, pods=(bare,))
    (row,) = table(replace(history, inventory=inventory)).rows()
    assert (row["node"], row["cpu_request"], row["cpu_usage"], row["cpu_used_ratio"]) == ("", None, None, None)
