from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from cotenant.base.cluster import EventKind
from cotenant.base.errors import SourceUnfit
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.history import STATE_DOCUMENT
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.pull_state import PullState
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.profiler.conftest import DAYS, Served, inventory_in, profiler_settings, pulled, serve, store_in
from tests.support.faultproxy import FaultProxy
from tests.support.openmetrics import Dress
from tests.support.prometheus import Server, blocks_from

pytestmark = pytest.mark.prometheus

CONTAINERS = 'container!="",container!="POD"'
EXPRESSIONS = {
    Signal.CPU_USAGE_MEAN: (f"rate(container_cpu_usage_seconds_total{{{CONTAINERS}}}[5m])", 1000.0),
    Signal.CPU_USAGE_MAX: (
        f"max_over_time(rate(container_cpu_usage_seconds_total{{{CONTAINERS}}}[160s])[299s:100s])",
        1000.0,
    ),
    Signal.CPU_THROTTLED_MEAN: (f"rate(container_cpu_cfs_throttled_seconds_total{{{CONTAINERS}}}[5m])", 1000.0),
    Signal.MEMORY_WORKING_SET_MAX: (f"max_over_time(container_memory_working_set_bytes{{{CONTAINERS}}}[5m])", 1.0),
    Signal.NODE_CPU_USAGE_MEAN: ('rate(container_cpu_usage_seconds_total{id="/"}[5m])', 1000.0),
    # Sidecars' amounts have metrics of init containers; no container here only starts its pod.
    Signal.CPU_REQUEST: (
        'last_over_time({__name__=~"kube_pod_(init_)?container_resource_requests",resource="cpu"}[3599s:15m])',
        1000.0,
    ),
    Signal.MEMORY_LIMIT: (
        'last_over_time({__name__=~"kube_pod_(init_)?container_resource_limits",resource="memory"}[3599s:15m])',
        1.0,
    ),
}


def grid_of(signal: Signal, end: int, days: float = DAYS) -> TimeGrid:
    return TimeGrid.from_span(end - int(days * DAY_SECONDS), end, signal.spec.step_seconds)


def server_values(url: str, expression: str, grid: TimeGrid) -> dict[tuple[str, ...], np.ndarray]:
    """The server's own answer, read with the plainest means: values at the slots' ends, one row per container."""
    params: dict[str, Any] = {
        "query": expression,
        "start": grid.start_seconds + grid.step_seconds,
        "end": grid.end_seconds,
    }
    body = requests.get(f"{url}/api/v1/query_range", {**params, "step": grid.step_seconds}, timeout=60).json()
    assert body["status"] == "success", body
    out: dict[tuple[str, ...], np.ndarray] = {}
    for series in body["data"]["result"]:
        m = series["metric"]
        key = (m["namespace"], m["pod"], m["container"]) if "pod" in m else (m["node"],)
        row = out.setdefault(key, np.full(grid.size, np.nan))
        for moment, value in series["values"]:
            slot = (moment - grid.start_seconds) // grid.step_seconds - 1
            row[int(slot)] = np.fmax(row[int(slot)], float(value))
    return out


def key(ref: object) -> tuple[str, ...]:
    return (ref.name,) if isinstance(ref, NodeRef) else (ref.namespace, ref.pod, ref.container)  # type: ignore[attr-defined]


def rows(usage: Usage) -> dict[tuple[str, ...], np.ndarray]:
    return {key(ref): values for ref, values in zip(usage.refs, usage.values, strict=True)}


@pytest.fixture(scope="module")
def scanned(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store after one cold pull of everything."""
    store = store_in(tmp_path_factory.mktemp("scanned"))
    record = pulled(store, served.end, profiler_settings(served.server.url))
    assert record.defects == {}
    return store


@pytest.mark.parametrize("signal", EXPRESSIONS)
def test_what_is_stored_is_the_servers_own_answer(served: Served, scanned: Store, signal: Signal) -> None:
    grid = grid_of(signal, served.end)
    expression, scale = EXPRESSIONS[signal]
    theirs, ours = server_values(served.server.url, expression, grid), rows(scanned.read(signal, grid))
    assert set(ours) == set(theirs)
    assert ours
    for ref, values in ours.items():
        np.testing.assert_array_equal(values, (theirs[ref] * scale).astype(np.float32))


def test_restarts_and_kills_are_those_that_happened(served: Served, scanned: Store) -> None:
    for kind, signal in ((EventKind.RESTART, Signal.RESTARTS), (EventKind.OOM_KILL, Signal.OOM_KILLS)):
        happened = [e for e in served.cluster.inventory.events if e.kind is kind]
        usage = scanned.read(signal, grid_of(signal, served.end))
        assert np.nansum(usage.values) == len(happened)
    events = {(e.kind, e.subject) for e in inventory_in(scanned).events}
    kinds = (EventKind.RESTART, EventKind.OOM_KILL)
    assert events == {(e.kind, e.subject) for e in served.cluster.inventory.events if e.kind in kinds}


def test_the_inventory_is_the_clusters_with_its_gone_pods(served: Served, scanned: Store) -> None:
    truth, inventory = served.cluster.inventory, inventory_in(scanned)
    nodes = [[(n.name, n.capacity, n.allocatable) for n in i.nodes] for i in (inventory, truth)]
    assert nodes[0] == nodes[1]
    assert inventory.owners() == truth.owners()
    assert {w.ref: w.replicas for w in inventory.workloads} == {w.ref: w.replicas for w in truth.workloads}
    amounts = [
        {(w.ref, c.name): (c.requests, c.limits) for w in i.workloads if w.replicas for c in w.containers}
        for i in (inventory, truth)
    ]
    assert amounts[0] == amounts[1]
    assert {w.ref: w.autoscaler for w in inventory.workloads} == {w.ref: w.autoscaler for w in truth.workloads}
    classes = set(QosClass) - {QosClass.NONE}
    assert {p.name: p.qos for p in inventory.pods if p.running} == {p.name: p.qos for p in truth.pods if p.running}
    assert any(p.qos in classes for p in inventory.pods)
    assert {p.priority for p in inventory.pods if p.running} >= {PriorityClass.PROD}


def test_gone_pods_end_with_their_usage(served: Served, scanned: Store) -> None:
    truth = {(p.namespace, p.name): p for p in served.cluster.inventory.pods if not p.running}
    pods = {(p.namespace, p.name): p for p in inventory_in(scanned).pods if not p.running}
    assert truth
    assert set(pods) == set(truth)
    for name, pod in pods.items():
        # A rate looks back five minutes, so the last slot with a value may be the one after the pod's end.
        ended, really = pod.end_seconds, truth[name].end_seconds
        assert ended is not None and really is not None
        assert abs(ended - really) <= 2 * FIVE_MINUTES_SECONDS


def test_dirt_is_handled_as_documented(tmp_path: Path) -> None:
    # Two scrapers for every container, one scrape in ten lost, further counter resets, restarts under new ids.
    cluster = generate(SyntheticSpec(nodes=2, workloads=6, days=1, seed=11))
    end = cluster.spec.grid.end_seconds
    dress = Dress(60, ({"prometheus": "a"}, {"prometheus": "b"}), lost=0.1, resets=3, new_ids=True)
    with serve(cluster, tmp_path, dress) as server:
        store = store_in(tmp_path / "store")
        record = pulled(store, end, profiler_settings(server.url))
    grid = grid_of(Signal.CPU_USAGE_MEAN, end, 1)
    truth, stored = rows(cluster.usage[Signal.CPU_USAGE_MEAN]), rows(store.read(Signal.CPU_USAGE_MEAN, grid))
    long_lived = {name for name, v in truth.items() if (~np.isnan(v[-grid.size :])).sum() > 20}
    assert long_lived <= set(stored)
    assert record.defects[Defect.DUPLICATE_SERIES] >= len(long_lived)
    total = sum(np.nansum(v) for v in stored.values())
    # Max, not sum: the total is the truth's within a few percent (lost scrapes, windows), far from twice.
    assert total == pytest.approx(sum(np.nansum(v[-grid.size :]) for v in truth.values()), rel=0.05)
    # A counter reset never makes a negative or absurd rate.
    top = max(np.nanmax(v) for v in truth.values())
    assert max(np.nanmax(v) for v in stored.values()) <= 1.5 * top


def test_a_second_pull_asks_little_and_gives_what_one_cold_pull_gives(
    served: Served, scanned: Store, tmp_path: Path
) -> None:
    store, earlier = store_in(tmp_path), served.end - 5 * 3600 - 1234
    pulled(store, earlier, profiler_settings(served.server.url))
    with FaultProxy(served.server.url) as proxy:
        record = pulled(store, served.end, profiler_settings(proxy.url))
    assert proxy.count == record.queries <= 12
    for signal in Signal:
        grid = grid_of(signal, served.end)
        first, second = rows(scanned.read(signal, grid)), rows(store.read(signal, grid))
        assert set(first) <= set(second)
        for name, values in second.items():
            expected = first.get(name, np.full(grid.size, np.nan))
            late = slice(grid.size // 2, None)
            np.testing.assert_array_equal(values[late], expected[late])
    assert inventory_in(store).owners() == inventory_in(scanned).owners()


def test_a_pull_without_anything_new_asks_no_usage(served: Served, tmp_path: Path) -> None:
    store, settings = store_in(tmp_path), profiler_settings(served.server.url)
    pulled(store, served.end, settings)
    assert pulled(store, served.end, settings).samples == 0


def test_an_interrupted_pull_leaves_what_came_and_the_next_one_resumes(
    served: Served, scanned: Store, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    append = store.append
    appended: list[Signal] = []

    def breaking(signal: Signal, usage: Usage) -> None:
        if len(appended) == 12:
            raise KeyboardInterrupt
        appended.append(signal)
        append(signal, usage)

    # Small answers, so that the pull consists of many.
    settings = profiler_settings(served.server.url, max_points_per_query=5_000)
    store.append = breaking  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pulled(store, served.end, settings)
    store.append = append  # type: ignore[method-assign]
    state = store.read_document(STATE_DOCUMENT, PullState)
    assert state is not None and state.until[Signal.CPU_USAGE_MEAN] < served.end
    assert store.span(Signal.CPU_USAGE_MEAN) is not None
    record = pulled(store, served.end, settings)
    assert record.samples > 0
    for signal in EXPRESSIONS:
        grid = grid_of(signal, served.end)
        first, second = rows(scanned.read(signal, grid)), rows(store.read(signal, grid))
        assert set(first) == set(second)
        for name, values in second.items():
            np.testing.assert_array_equal(values, first[name])


@pytest.fixture
def stingy(served: Served, tmp_path: Path) -> Iterator[Server]:
    """The same data behind a server that loads few samples per query."""
    blocks = shutil.copytree(
        served.server.data, tmp_path / "data", ignore=shutil.ignore_patterns("lock", "wal", "*.active")
    )
    with Server(blocks, ("--query.max-samples=4000",)) as server:
        yield server


def test_queries_above_the_servers_limit_are_split_and_complete(
    served: Served, scanned: Store, stingy: Server, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    record = pulled(store, served.end, profiler_settings(stingy.url))
    assert record.defects[Defect.QUERY_SPLIT] > 0
    assert Defect.QUERY_FAILED not in record.defects
    for signal in EXPRESSIONS:
        grid = grid_of(signal, served.end)
        first, second = rows(scanned.read(signal, grid)), rows(store.read(signal, grid))
        assert set(first) == set(second)
        for name, values in second.items():
            np.testing.assert_array_equal(values, first[name])


def test_an_answer_above_the_cap_is_split_and_complete(served: Served, scanned: Store, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    record = pulled(store, served.end, profiler_settings(served.server.url, max_answer_bytes=100_000))
    assert record.defects[Defect.QUERY_SPLIT] > 3
    assert inventory_in(store) == inventory_in(scanned)
    grid = grid_of(Signal.CPU_USAGE_MEAN, served.end)
    first, second = (rows(s.read(Signal.CPU_USAGE_MEAN, grid)) for s in (scanned, store))
    for name, values in second.items():
        np.testing.assert_array_equal(values, first[name])


def test_labels_choose_one_cluster_of_several(tmp_path: Path) -> None:
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    start = 1_795_046_400
    for cluster, rate in (("prod", 0.5), ("lab", 0.1)):
        own = f'cluster="{cluster}",namespace="a",pod="p",container="c"'
        lines += [f"container_cpu_usage_seconds_total{{{own}}} {k * 60 * rate} {start + 60 * k}" for k in range(120)]
    text = tmp_path / "two.om"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    blocks_from(text, tmp_path / "data")
    with Server(tmp_path / "data") as server:
        store = store_in(tmp_path / "store")
        settings = profiler_settings(server.url, labels={"cluster": "prod"})
        record = pulled(store, start + 7200, settings)
        assert PrometheusSource(settings.prometheus).describe().endswith('{cluster="prod"}')
    usage = store.read(Signal.CPU_USAGE_MEAN, TimeGrid(start, 300, 24))
    assert usage.refs == (PodContainerRef("a", "p", "c"),)
    # Half a core all the time.
    np.testing.assert_allclose(usage.values[0, 1:], 500, rtol=1e-3)
    assert any("kube-state-metrics" in note for note in record.notes)


def test_without_node_series_the_sum_of_the_pods_stands_in_and_a_note_says_so(tmp_path: Path) -> None:
    start = 1_795_046_400
    cpu, info = "container_cpu_usage_seconds_total", "kube_pod_info"
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for pod, rate in (("p", 0.5), ("q", 0.25)):
        own = f'namespace="a",pod="{pod}",container="c"'
        lines += [f"{cpu}{{{own}}} {k * 60 * rate} {start + 60 * k}" for k in range(120)]
    lines.append(f"# TYPE {info} gauge")
    for pod in "pq":
        lines += [f'{info}{{namespace="a",pod="{pod}",node="n1"}} 1 {start + 60 * k}' for k in range(120)]
    text = tmp_path / "bare.om"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    blocks_from(text, tmp_path / "data")
    with Server(tmp_path / "data") as server:
        store = store_in(tmp_path / "store")
        record = pulled(store, start + 7200, profiler_settings(server.url))
    usage = store.read(Signal.NODE_CPU_USAGE_MEAN, TimeGrid(start, 300, 24))
    assert usage.refs == (NodeRef("n1"),)
    # 500 m + 250 m of the two pods.
    np.testing.assert_allclose(usage.values[0, 1:], 750, rtol=1e-3)
    assert any("sum of their pods" in note for note in record.notes)
    # Both pods have no owner anywhere: shown as bare pods, and counted.
    assert record.defects[Defect.UNKNOWN_OWNER] == 2
    assert {w.ref.kind for w in inventory_in(store).workloads} == {"Pod"}


def test_old_container_labels_are_refused_with_the_relabelling_that_helps(tmp_path: Path) -> None:
    start = 1_795_046_400
    own = 'namespace="a",pod_name="p",container_name="c"'
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    lines += [f"container_cpu_usage_seconds_total{{{own}}} {k} {start + 60 * k}" for k in range(120)]
    text = tmp_path / "old.om"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    blocks_from(text, tmp_path / "data")
    with (
        Server(tmp_path / "data") as server,
        pytest.raises(SourceUnfit, match="pod_name and container_name") as refused,
    ):
        pulled(store_in(tmp_path / "store"), start + 7190, profiler_settings(server.url))
    assert "source_labels: [pod_name], target_label: pod" in refused.value.fix


def test_a_new_pod_of_kube_state_metrics_restarts_and_kills_nobody(tmp_path: Path) -> None:
    start = 1_795_046_400
    cpu, restarts = "container_cpu_usage_seconds_total", "kube_pod_container_status_restarts_total"
    reason = "kube_pod_container_status_last_terminated_reason"
    own, other = 'namespace="a",pod="p",uid="1",container="c"', 'namespace="a",pod="q",uid="2",container="c"'
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    lines += [f"{cpu}{{{own}}} {k * 30} {start + 60 * k}" for k in range(480)]
    # killed seven times long ago and once after 100 minutes; kube-state-metrics is replaced after 200 minutes
    lines.append("# TYPE kube_pod_container_status_restarts counter")
    by_instance = {"10.0.0.1:8080": range(200), "10.0.0.9:8080": range(200, 480)}
    for instance, minutes in by_instance.items():
        for labels, grown in ((own, 100), (other, 480)):
            lines += [
                f'{restarts}{{{labels},instance="{instance}"}} {7 + (k >= grown)} {start + 60 * k}' for k in minutes
            ]
    lines.append(f"# TYPE {reason} gauge")
    for instance, minutes in by_instance.items():
        for labels in (own, other):
            series = f'{reason}{{{labels},reason="OOMKilled",instance="{instance}"}}'
            lines += [f"{series} 1 {start + 60 * k}" for k in minutes]
    text = tmp_path / "replaced.om"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    blocks_from(text, tmp_path / "data")
    with Server(tmp_path / "data") as server:
        store = store_in(tmp_path / "store")
        pulled(store, start + 480 * 60, profiler_settings(server.url))
    hours = TimeGrid(start, 3600, 8)
    for signal in (Signal.RESTARTS, Signal.OOM_KILLS):
        usage = store.read(signal, hours)
        counted = {ref.pod: np.nan_to_num(row).tolist() for ref, row in zip(usage.refs, usage.values, strict=True)}
        # minute 100 lies in the second hour; the first one has no evaluation before it
        assert counted == {"p": [0, 1, 0, 0, 0, 0, 0, 0], "q": [0] * 8}
    assert [(e.kind, e.subject.pod) for e in inventory_in(store).events] == [
        (EventKind.OOM_KILL, "p"),
        (EventKind.RESTART, "p"),
    ]
