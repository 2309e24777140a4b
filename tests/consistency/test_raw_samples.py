"""Headline numbers again from the raw samples of the generated cluster, each by a few lines that share no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.recommender.model.views import COVERAGE, RECLAIMABLE, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant_lab.synthetic import SyntheticCluster, generate
from tests.consistency.settings import SETTINGS, SPEC, Scene, analysed_cluster

HOUR_SLOTS = 12
USED = {"cpu": Signal.CPU_USAGE_MEAN, "memory": Signal.MEMORY_WORKING_SET_MAX}
ON_NODE = {"cpu": Signal.NODE_CPU_USAGE_MEAN, "memory": Signal.NODE_MEMORY_WORKING_SET_MAX}
RESOURCES = pytest.mark.parametrize("name", ["cpu", "memory"])
Key = tuple[str, str, str]


@pytest.fixture(scope="module")
def raw() -> SyntheticCluster:
    return generate(SPEC)


@pytest.fixture(scope="module")
def defaults(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder: Path = tmp_path_factory.mktemp("raw")
    return analysed_cluster(SETTINGS[0], folder)


@pytest.fixture(scope="module")
def overview(defaults: Scene) -> Overview:
    document = defaults.store.read_document("overview", Overview)
    assert document is not None
    return document


@pytest.fixture(scope="module")
def workloads(defaults: Scene) -> dict[Key, dict[str, Any]]:
    rows = defaults.store.read_table(WORKLOADS).rows()
    return {(row["namespace"], row["kind"], row["workload"]): row for row in rows}


def proposals(defaults: Scene) -> list[dict[str, Any]]:
    return list(defaults.store.read_table(RECOMMENDATIONS).rows())


def key(ref: WorkloadRef) -> Key:
    return ref.namespace, ref.kind, ref.name


def owners(raw: SyntheticCluster) -> dict[tuple[str, str], Key]:
    return {
        (pod.namespace, pod.name): (pod.workload.namespace, pod.workload.kind, pod.workload.name)
        for pod in raw.inventory.pods
    }


def by_workload(raw: SyntheticCluster, signal: Signal) -> dict[Key, np.ndarray[Any, Any]]:
    """Sum over the containers of a workload's pods in each slot; NaN where none has a sample."""
    usage, of = raw.usage[signal], owners(raw)
    rows: dict[Key, list[np.ndarray[Any, Any]]] = {}
    for ref, values in zip(usage.refs, usage.values.astype(float), strict=True):
        rows.setdefault(of[ref.namespace, ref.pod], []).append(values)
    return {key: np.where(np.isnan(v).all(axis=0), np.nan, np.nansum(v, axis=0)) for key, v in rows.items()}


def allocatable(raw: SyntheticCluster, name: str) -> int:
    return sum(node.allocatable[Resource(name)] for node in raw.inventory.nodes)


def test_nodes_workloads_and_running_pods_are_those_of_the_inventory(raw: SyntheticCluster, overview: Overview) -> None:
    running = [pod for pod in raw.inventory.pods if pod.end_seconds is None and pod.phase == "Running"]
    assert overview.pods == len(running)
    assert (overview.nodes, overview.workloads) == (SPEC.nodes, len(raw.inventory.workloads))


@RESOURCES
def test_the_commitment_is_the_requests_of_running_pods(raw: SyntheticCluster, overview: Overview, name: str) -> None:
    """What the scheduler counts for each pod, as on the nodes."""
    want = sum(pod.requests.get(Resource(name), 0) for pod in raw.inventory.pods if pod.end_seconds is None)
    got = getattr(overview.headline, f"{name}_requests_commitment")
    assert got == pytest.approx(want / allocatable(raw, name), rel=1e-4)


@RESOURCES
def test_the_utilisation_is_the_newest_hour_of_the_nodes_own_usage(
    raw: SyntheticCluster, overview: Overview, name: str
) -> None:
    total = np.nansum(raw.usage[ON_NODE[name]].values.astype(float), axis=0)[-HOUR_SLOTS:]
    want = float(total.mean()) / allocatable(raw, name)
    assert getattr(overview.headline, f"{name}_utilisation") == pytest.approx(want, rel=1e-4)


@RESOURCES
def test_the_highest_of_a_workload_is_the_highest_sum_of_its_pods(
    raw: SyntheticCluster, workloads: dict[Key, dict[str, Any]], name: str
) -> None:
    sums = by_workload(raw, USED[name])
    assert len(sums) > 30
    for key, values in sums.items():
        assert workloads[key][f"{name}_max"] == pytest.approx(np.nanmax(values), rel=1e-4, abs=1), key


def test_the_mean_of_a_workload_is_that_of_its_slots_with_samples(
    raw: SyntheticCluster, workloads: dict[Key, dict[str, Any]]
) -> None:
    for key, values in by_workload(raw, Signal.CPU_USAGE_MEAN).items():
        if key[1] not in ("Job", "CronJob"):  # of these the time without a pod counts as 0
            assert workloads[key]["cpu_mean"] == pytest.approx(np.nanmean(values), rel=1e-3, abs=1), key


def test_the_highest_memory_of_a_pod_is_its_container_s_highest_sample(raw: SyntheticCluster, defaults: Scene) -> None:
    usage, of = raw.usage[Signal.MEMORY_WORKING_SET_MAX], owners(raw)
    highest: dict[tuple[str, ...], float] = {}
    for ref, values in zip(usage.refs, usage.values, strict=True):
        key = (*of[ref.namespace, ref.pod], ref.container)
        highest[key] = max(highest.get(key, 0.0), float(np.nanmax(values)))
    rows = list(defaults.store.read_table(RECOMMENDATIONS).rows())
    measured = [row for row in rows if row["memory_observed_max"] is not None]
    assert len(measured) > 30
    for row in measured:
        key = (row["namespace"], row["kind"], row["workload"], row["container"])
        assert row["memory_observed_max"] == pytest.approx(highest[key], rel=1e-4), key


@RESOURCES
def test_batch_of_a_node_is_60_or_65_percent_less_what_others_use(
    raw: SyntheticCluster, defaults: Scene, name: str
) -> None:
    """Koordinator's usage formula: capacity x threshold - system usage - usage of pods of higher priority.

    System usage is at least what the node keeps for itself: capacity - allocatable.
    """
    share = {"cpu": 0.60, "memory": 0.65}[name]
    lent = {
        row["node"]: row["amount"]
        for row in defaults.store.read_table(RECLAIMABLE).rows()
        if (row["band"], row["resource"]) == ("batch", name)
    }
    pods = {(pod.namespace, pod.name): pod for pod in raw.inventory.pods}
    usage, totals = raw.usage[USED[name]], raw.usage[ON_NODE[name]]
    for node, of_node in zip(totals.refs, totals.values[:, -1].astype(float), strict=True):
        here = [i for i, ref in enumerate(usage.refs) if pods[ref.namespace, ref.pod].node == node.name]
        newest = np.nan_to_num(usage.values[here, -1].astype(float))
        high = [
            pods[usage.refs[i].namespace, usage.refs[i].pod].priority.value not in ("koord-batch", "koord-free")
            for i in here
        ]
        own = next(n for n in raw.inventory.nodes if n.name == node.name)
        capacity = own.capacity[Resource(name)]
        system = max(of_node - newest.sum(), capacity - own.allocatable[Resource(name)])
        want = max(0.0, capacity * share - system - newest[high].sum())
        assert lent[node.name] == pytest.approx(want, rel=0.01, abs=20), node.name


def requested(containers: Sequence[tuple[ContainerRole, int]]) -> int:
    """What a pod requests: all that stays, or an init container beside the sidecars that start before it."""
    most = beside = 0
    for role, amount in containers:
        if role is ContainerRole.SIDECAR:
            beside += amount
        elif role is ContainerRole.INIT:
            most = max(most, beside + amount)
    return max(most, sum(amount for role, amount in containers if role is not ContainerRole.INIT))


def test_what_is_saved_is_the_difference_of_the_pods_requests_times_the_pods(
    raw: SyntheticCluster, defaults: Scene, overview: Overview
) -> None:
    """Requests of now are the inventory's; a missing request is counted as the limit, else as nothing."""
    rows = {(row["namespace"], row["kind"], row["workload"], row["container"]): row for row in proposals(defaults)}
    for workload in raw.inventory.workloads:
        own = [rows.get((*key(workload.ref), c.name), {}) for c in workload.containers]
        if workload.ref.kind not in ("Deployment", "StatefulSet", "DaemonSet") or not any(own):
            continue
        now = [(c.role, c.requests.get(Resource.CPU, c.limits.get(Resource.CPU, 0))) for c in workload.containers]
        requests_by_role = zip(now, own, strict=True)
        then = [
            (role, before if row.get("cpu_request") is None else row["cpu_request"])
            for (role, before), row in requests_by_role
        ]
        replicas = next(row["replicas"] for row in own if row)
        change = sum(row.get("cpu_delta_total") or 0 for row in own)
        assert change == (requested(then) - requested(now)) * replicas, workload.ref
    changes = [row["cpu_delta_total"] or 0 for row in rows.values()]
    freed, raised = -sum(min(0, change) for change in changes), sum(max(0, change) for change in changes)
    assert overview.savings is not None
    of_all = overview.savings.all_steps
    assert (of_all.frees.millicores, of_all.raises.millicores) == (freed, raised)


def test_the_share_of_samples_is_that_of_the_slots_in_which_pods_were_alive(
    raw: SyntheticCluster, defaults: Scene
) -> None:
    usage = raw.usage[Signal.CPU_USAGE_MEAN]
    present: dict[str, list[int]] = {}
    for ref, values in zip(usage.refs, usage.values, strict=True):
        slots = np.flatnonzero(~np.isnan(values))
        counts = present.setdefault(ref.namespace, [0, 0])
        counts[0] += slots.size
        counts[1] += int(slots[-1] - slots[0] + 1)
    rows = {row["namespace"]: row["coverage"] for row in defaults.store.read_table(COVERAGE).rows()}
    assert rows.keys() == present.keys()
    for namespace, (some, alive) in present.items():
        # Alive by the inventory, not by the samples: a slot at either end may lack its sample.
        assert rows[namespace] == pytest.approx(some / alive, abs=0.01), namespace
