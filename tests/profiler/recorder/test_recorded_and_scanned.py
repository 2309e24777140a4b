"""One cluster, once recorded from its kubelets' answers and once scanned from a real Prometheus that scraped the same.

Both read the same counters and gauges at the same minutes: what is stored and proposed must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.resource import MIB, Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.cli.cluster.probes import metrics
from cotenant.cli.cluster.probes.outcome import ProbeState
from cotenant.pipeline.containers import assess
from cotenant.pipeline.stored_history import load
from cotenant.profiler.recorder.exposition import THROTTLED, parse_resource_metrics, parse_throttled_time
from cotenant.profiler.recorder.kubelets import KubeletRules
from cotenant.profiler.recorder.service import GRACE_SECONDS, Recorder
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus, coming_results
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.settings import Settings
from tests.support import kube_series
from tests.support.api_server import ApiServer
from tests.support.kube_series import END, NODE, START, Line, PodSpec

MINUTE = 60
READ = ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes")


@dataclass(frozen=True)
class Wave:
    """Use of a container: a mean in millicores and its swing over two hours, with peaks of a minute; MiB likewise."""

    millicores: float
    mib: float
    swing: float = 0.5

    def cpu_seconds(self, at: int) -> float:
        """Its counter: the integral of the wave, and of a double minute each twenty."""
        turn = 2 * math.pi / 7200
        waved = at + self.swing * (1 - math.cos(at * turn)) / turn
        peaks = (at // 1200) * 60 + min(at % 1200, 60)
        return (waved + peaks) * self.millicores / 1000

    def bytes(self, at: int) -> float:
        return float(round(self.mib * MIB * (1 + self.swing * math.sin(at * 2 * math.pi / 7200) ** 2)))


WAVES: Mapping[str, Wave] = {
    "web-1-a": Wave(300, 200),
    "web-1-b": Wave(250, 220),
    "db-0": Wave(900, 3000, 0.2),
    "quiet-1-a": Wave(4, 30, 0.0),
}
REFUSED_SHARE = 0.3
"""Of what db-0 uses, refused by its quota."""
OWNERS = {"web-1": "web", "quiet-1": "quiet"}


def pods() -> list[PodSpec]:
    asks = {"web": (1000.0, 1024.0), "db": (4000.0, 8192.0), "quiet": (500.0, 512.0)}
    return [
        PodSpec(
            name, ("StatefulSet", "db") if name == "db-0" else ("ReplicaSet", name[:-2]), asks=asks[name.split("-")[0]]
        )
        for name in WAVES
    ]


def lines() -> list[Line]:
    """What the exporters and kubelets say, all of it each minute, CPU and memory along the waves."""
    all_lines = [*kube_series.node(), *(line for pod in pods() for line in pod.lines())]
    all_lines += [kube_series.link("ReplicaSet", name, ("Deployment", of)) for name, of in OWNERS.items()]
    shapes: dict[str, Callable[[Wave], Callable[[int], float]]] = {
        READ[0]: lambda wave: wave.cpu_seconds,
        READ[1]: lambda wave: wave.bytes,
    }
    for i, line in enumerate(all_lines):
        wave = WAVES.get(line.labels.get("pod", ""))
        shape = shapes[line.metric](wave) if wave and line.metric in READ else line.shape
        all_lines[i] = replace(line, every=MINUTE, shape=shape)
    labels = {"namespace": "shop", "pod": "db-0", "container": "main", "id": "/kubepods/db", "image": "i", "name": "db"}
    refused = Line(THROTTLED, labels, every=MINUTE, shape=lambda at: WAVES["db-0"].cpu_seconds(at) * REFUSED_SHARE)
    return [*all_lines, refused]


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def objects() -> dict[str, Any]:
    """The same cluster as its API server has it."""

    def meta(name: str, owner: tuple[str, str] | None = None) -> dict[str, Any]:
        references = (
            [{"kind": owner[0], "name": owner[1], "controller": True, "apiVersion": "apps/v1"}] if owner else []
        )
        own = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": moment(START)}
        return own | {"ownerReferences": references}

    def containers(pod: PodSpec) -> list[dict[str, Any]]:
        assert pod.asks
        cpu, memory = pod.asks
        amounts = {"requests": {"cpu": f"{cpu:g}m", "memory": f"{memory:g}Mi"}, "limits": {"memory": f"{memory:g}Mi"}}
        return [{"name": "main", "image": "i", "resources": amounts}]

    def template(pod: PodSpec) -> dict[str, Any]:
        labels = {"matchLabels": {"app": pod.name}}
        return {"replicas": 1, "selector": labels, "template": {"spec": {"containers": containers(pod)}}}

    by_owner = {pod.owner: pod for pod in pods()}
    sizes = {"cpu": "16", "memory": "64Gi"}
    apps = "/apis/apps/v1"
    return {
        "/api/v1/pods": [
            {
                "metadata": meta(pod.name, pod.owner),
                "spec": {"nodeName": NODE, "containers": containers(pod)},
                "status": {"phase": "Running", "startTime": moment(START)},
            }
            for pod in pods()
        ],
        "/api/v1/nodes": [{"metadata": {"name": NODE}, "status": {"capacity": sizes, "allocatable": sizes}}],
        f"{apps}/replicasets": [
            {"metadata": meta(name, ("Deployment", of)), "spec": template(by_owner["ReplicaSet", name])}
            for name, of in OWNERS.items()
        ],
        f"{apps}/deployments": [
            {"metadata": meta(of), "spec": template(by_owner["ReplicaSet", name])} for name, of in OWNERS.items()
        ],
        f"{apps}/statefulsets": [{"metadata": meta("db"), "spec": template(by_owner["StatefulSet", "db"])}],
        **{
            path: []
            for path in (
                f"{apps}/daemonsets",
                "/apis/batch/v1/jobs",
                "/apis/batch/v1/cronjobs",
                "/api/v1/replicationcontrollers",
                "/api/v1/limitranges",
                "/api/v1/resourcequotas",
                "/apis/autoscaling/v2/horizontalpodautoscalers",
            )
        },
        "/version": {"major": "1", "minor": "33"},
    }


def cadvisor_page(page_lines: Sequence[Line], at: int) -> bytes:
    """The same kubelet's answer of what quotas refused."""
    rows = []
    for line in page_lines:
        if line.metric == THROTTLED and at >= line.since:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(line.labels.items()))
            rows.append(f"{line.metric}{{{labels}}} {line.sample(at)!r} {at * 1000}\n")
    return "".join(rows).encode()


def kubelet_text(text_lines: Sequence[Line], at: int) -> bytes:
    """A kubelet's answer at a moment."""
    rows = []
    for line in text_lines:
        if line.metric in READ and at >= line.since:
            own = line.labels.get("id") == "/"
            name = line.metric.replace("container_", "node_", 1) if own else line.metric
            labels = ",".join(f'{key}="{line.labels[key]}"' for key in ("container", "namespace", "pod") if not own)
            rows.append(
                f"{name}{{{labels}}} {line.sample(at)!r} {at * 1000}"
                if labels
                else f"{name} {line.sample(at)!r} {at * 1000}"
            )
    return ("\n".join(rows) + "\n").encode()


class HandClock:
    """A clock that is set by hand."""

    seconds = float(START)

    def now_seconds(self) -> float:
        return self.seconds


def record(
    store: Store, since: int = START, until: int = END, away: tuple[int, int] = (0, 0), interval: int = MINUTE
) -> None:
    """Record the cluster minute by minute, as the loop does; but for a time in which its kubelet is away."""
    api, clock, all_lines = ApiServer(None, None), HandClock(), lines()
    api.objects |= objects()
    clock.seconds = since
    client = KubeClient(Access("c", api.url, lambda: None), KubeSettings(retries=0))
    recorder = Recorder(client, Settings(), store, AlwaysLeads(), clock, KubeletRules(interval))
    recorder.watch.start()
    try:
        assert recorder.watch.wait_synced(30)
        for at in range(since, until + 1, interval):
            clock.seconds = at + 1
            if away[0] <= at < away[1]:
                continue
            exposition = parse_resource_metrics(kubelet_text(all_lines, at))
            recorder.term.containers.add(
                NODE,
                exposition.container_cpu,
                exposition.container_memory,
                exposition.container_starts,
                received_seconds=at + 1,
            )
            refused = parse_throttled_time(cadvisor_page(all_lines, at))
            recorder.term.containers.add_throttled(NODE, refused, received_seconds=at + 1)
            recorder.term.nodes.add(NODE, exposition.node_cpu, exposition.node_memory, received_seconds=at + 1)
            assert recorder.store_closed(at - interval - 30), recorder.term.error
        assert recorder.store_closed(until), recorder.term.error
    finally:
        recorder.watch.stop()
        client.close()
        api.stop()


@dataclass(frozen=True)
class Both:
    """What both ways left."""

    recorded: Store
    scanned: Store
    recorded_rows: Mapping[str, Recommendation]
    scanned_rows: Mapping[str, Recommendation]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    recorded = Store((folder / "recorded").as_uri(), "c")
    record(recorded)
    with kube_series.served(folder, {"same": lines()}) as url:
        scan = kube_series.scanned(url, "same", folder / "scanned")
    history = load(recorded, kube_series.settings())
    rows = {
        str(recommendation.container): recommendation
        for recommendation in assess(history, kube_series.settings()).recommendations
    }
    yield Both(recorded, Store((folder / "scanned").as_uri(), "c"), rows, scan.recommendations)


def values(store: Store, signal: Signal) -> dict[str, np.ndarray[Any, Any]]:
    """By container, each slot of the window."""
    usage = store.read(signal, TimeGrid.from_span(START, END, FIVE_MINUTES_SECONDS))
    return {str(ref): usage.values[row] for ref, row in usage.row_of.items()}


@pytest.mark.slow
def test_the_mean_of_each_slot_is_the_same(both: Both) -> None:
    recorded, scanned = (values(store, Signal.CPU_USAGE_MEAN) for store in (both.recorded, both.scanned))

    # Both are the growth of one counter from the first to the last moment of the slot, over its length.
    assert recorded.keys() == scanned.keys()
    assert len(recorded) == len(WAVES)
    for name, ours in recorded.items():
        assert np.isfinite(ours).all()
        assert ours == pytest.approx(scanned[name], rel=1e-5), name


def test_what_quotas_refused_is_the_same(both: Both) -> None:
    recorded, scanned = (values(store, Signal.CPU_THROTTLED_MEAN) for store in (both.recorded, both.scanned))

    assert recorded.keys() == scanned.keys() == {"shop/db-0/main"}
    assert recorded["shop/db-0/main"] == pytest.approx(scanned["shop/db-0/main"], rel=1e-5)
    assert np.nanmean(recorded["shop/db-0/main"]) > REFUSED_SHARE * WAVES["db-0"].millicores


def test_a_recorded_peak_is_the_finer_one(both: Both) -> None:
    recorded, scanned = (values(store, Signal.CPU_USAGE_MAX) for store in (both.recorded, both.scanned))

    # Scraped each minute, a rate of Prometheus reaches over two of them: the double minute of each twenty counts half.
    for name, wave in WAVES.items():
        ours, theirs = (peaks[f"shop/{name}/main"] for peaks in (recorded, scanned))
        assert ours.max() > theirs.max() + 0.4 * wave.millicores
        quiet = np.arange(len(ours)) % 4 != 0  # slots without such a minute
        assert ours[quiet] == pytest.approx(theirs[quiet], rel=0.03)


def test_the_highest_memory_is_the_same(both: Both) -> None:
    recorded, scanned = (values(store, Signal.MEMORY_WORKING_SET_MAX) for store in (both.recorded, both.scanned))

    for name, ours in recorded.items():
        # A sample at the very border of two slots is the next one's first here, and the last one's last there.
        assert ours.max() == scanned[name].max()
        assert ours == pytest.approx(scanned[name], rel=0.03)


def test_recommendations_are_the_same_but_for_the_finer_peak(both: Both) -> None:
    assert both.recorded_rows.keys() == both.scanned_rows.keys()
    assert len(both.recorded_rows) == 3
    for name, ours in both.recorded_rows.items():
        theirs = both.scanned_rows[name]
        for recorded_value, other in zip(ours.values, theirs.values, strict=True):
            peaks = [float(value.inputs["observed_max"]) for value in (recorded_value, other)]
            finer = recorded_value.resource is Resource.CPU
            assert peaks[0] > peaks[1] if finer else peaks[0] == peaks[1], (name, recorded_value)
            inputs = {**other.inputs, "observed_max": peaks[0]}
            if finer:  # the estimate of what throttling refused begins with the highest value
                inputs["demand_max"] = recorded_value.inputs["demand_max"]
            same = replace(other, inputs=inputs)
            assert (
                recorded_value.amount,
                recorded_value.reason,
                recorded_value.action,
                recorded_value.now,
                recorded_value.formula,
                recorded_value.clamps,
            ) == ((same.amount, same.reason, same.action, same.now, same.formula, same.clamps))
            assert recorded_value.inputs == pytest.approx(same.inputs)
        assert (ours.notes, ours.replicas, ours.trust) == (theirs.notes, theirs.replicas, theirs.trust)


HOUR = 3600


def amounts_after(folder: Path, begin: int, seconds: int) -> dict[str, int | None]:
    """Recommended CPU by container of a recording that began then, with what was stored so many seconds later."""
    store, interval = Store(folder.as_uri(), "c"), 100  # the longest: what is told has to hold for it too
    record(store, begin, begin + seconds - interval - round(GRACE_SECONDS), interval=interval)
    recommendations = assess(load(store, Settings()), Settings()).recommendations
    values = {str(row.container): row.value(Resource.CPU, Field.REQUEST) for row in recommendations}
    return {name: value.amount for name, value in values.items() if value and value.action is Action.SET}


@pytest.mark.slow
def test_the_first_recommendation_is_there_at_the_moment_that_is_told_at_the_beginning(tmp_path: Path) -> None:
    begin = START + 270  # its first slot has half a minute, which is no value
    (coming_result,) = (coming for coming in coming_results(begin, begin) if coming.what == "first recommendations")

    # A day lies between the first sample and the last once the slot that begins a day after the first one is over.
    last_slot_ends = START + DAY_SECONDS + 2 * FIVE_MINUTES_SECONDS
    at_once = amounts_after(tmp_path / "told", begin, int(coming_result.at_seconds) - begin)
    too_soon = amounts_after(tmp_path / "before", begin, last_slot_ends - 1 - begin)

    assert len(at_once) == 3
    assert too_soon == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "scrape_seconds"), [(60, 60), (60, 15), (100, 15)], ids=["coarser", "as fine", "finer"]
)
def test_a_slot_of_a_recorded_and_scanned_store_is_read_from_the_finer_and_complete_source(
    tmp_path: Path, interval: int, scrape_seconds: int
) -> None:
    """Prometheus says twice the CPU, so that each value names its source; it knows four hours more and no gap."""
    store, away = Store((tmp_path / "store").as_uri(), "c"), (START + 6 * HOUR, START + 6 * HOUR + 900)
    record(store, START + 4 * HOUR, away=away, interval=interval)
    single = values(store, Signal.CPU_USAGE_MEAN)
    doubled = [
        replace(line, every=scrape_seconds, shape=doubled_of(line.shape))
        if line.metric == READ[0] and line.shape
        else replace(line, every=scrape_seconds)
        for line in lines()
    ]
    with kube_series.served(tmp_path, {"twice": doubled}) as url:
        scan = kube_series.scanned(url, "twice", tmp_path / "store")
    both = values(store, Signal.CPU_USAGE_MEAN)

    times = np.arange(START, END, FIVE_MINUTES_SECONDS)
    recorded = (times >= START + 4 * HOUR) & ((times + FIVE_MINUTES_SECONDS <= away[0]) | (times >= away[1]))
    for name, of_wave in ((f"shop/{name}/main", wave) for name, wave in WAVES.items()):
        true = np.array(
            [(of_wave.cpu_seconds(at + 300) - of_wave.cpu_seconds(at)) / 300 * 1000 for at in (times - START).tolist()]
        )
        share = both[name] / true
        assert np.isfinite(single[name][recorded]).all()
        assert np.isfinite(both[name]).all(), "Prometheus fills what the recorder lacks"
        # A peak is one of a rate over 150 s where scrapes are a minute apart, and over 60 s where they are 15 s apart.
        # The slot in which the kubelet went away and the one in which it came back are half recorded.
        stands = recorded if interval <= 60 else np.zeros_like(recorded)
        assert ((share > 1.9) == ~stands).all(), (name, share)
    assert ("usage is the recorder's" in scan.notes) is (interval <= 60)


@pytest.mark.slow
def test_a_sum_of_pods_stands_for_no_use_of_a_node_that_was_recorded(tmp_path: Path) -> None:
    """A Prometheus without the root cgroup, with finer rates than the recorder's: its peaks count, a sum does not."""
    store, begin = Store((tmp_path / "store").as_uri(), "c"), START + 4 * HOUR
    record(store, begin, interval=100)
    scraped = [replace(line, every=15) for line in lines() if line.labels.get("id") != "/"]
    with kube_series.served(tmp_path, {"pods": scraped}) as url:
        scan = kube_series.scanned(url, "pods", tmp_path / "store")
    assert "so the sum of their pods' usage is used" in scan.notes

    times = np.arange(START, END, FIVE_MINUTES_SECONDS)
    (use,) = values(store, Signal.NODE_CPU_USAGE_MEAN).values()
    # The node's own counter grows by half a core. Its four pods together use 1,454 m and their swing, so that each sum
    # is one, or nearly so, of another amount: at least one is off by a tenth.
    assert use[times >= begin] == pytest.approx(500, rel=1e-4)
    assert np.isfinite(use[times < begin]).all()
    assert abs(use[times < begin] - 500).max() > 50


def doubled_of(shape: Callable[[int], float]) -> Callable[[int], float]:
    return lambda at: 2 * shape(at)


def twice_the_cpu(line: Line) -> Line:
    """The same series, at twice the CPU where it is a container's: its values name their source."""
    if line.metric != READ[0] or line.shape is None:
        return line
    return replace(line, shape=doubled_of(line.shape))


@pytest.mark.slow
def test_a_prometheus_with_short_retention_and_a_recorder_give_the_whole_window(tmp_path: Path) -> None:
    """Prometheus has forgotten all but two of the eight hours; the recorder was away for a quarter of an hour then."""
    away, kept_since = (END - HOUR, END - HOUR + 900), END - 2 * HOUR
    store = Store((tmp_path / "store").as_uri(), "c")
    record(store, away=away)
    short = [replace(twice_the_cpu(line), since=max(line.since, kept_since)) for line in lines()]
    with kube_series.served(tmp_path, {"short": short}) as url:
        scan = kube_series.scanned(url, "short", tmp_path / "store")

    # The window is the recording's: all but the slot in which it began.
    assert scan.history.window.size >= (END - START) // FIVE_MINUTES_SECONDS - 1
    times = np.arange(START, END, FIVE_MINUTES_SECONDS)
    in_gap = (times + FIVE_MINUTES_SECONDS > away[0]) & (times < away[1])
    for name, of_slots in values(store, Signal.CPU_USAGE_MEAN).items():
        wave = WAVES[name.split("/")[1]]
        true = np.array(
            [(wave.cpu_seconds(at + 300) - wave.cpu_seconds(at)) / 300 * 1000 for at in (times - START).tolist()]
        )
        assert np.isfinite(of_slots).all(), name
        assert ((of_slots / true > 1.9) == in_gap).all(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("doubled", "state", "phrase"),
    [
        # CPU and memory of four containers are eight rows, of twelve slots each.
        ("", ProbeState.OK, "8 rows and 96 slots compared between recorder and Prometheus, none differs"),
        ("db-0", ProbeState.WARNING, "1 differ: shop/db-0/main CPU"),
    ],
    ids=["the same", "one doubled"],
)
def test_doctor_compares_both_sources_row_by_row(tmp_path: Path, doubled: str, state: ProbeState, phrase: str) -> None:
    store = Store((tmp_path / "store").as_uri(), "c")
    record(store, END - 3 * HOUR)
    status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    assert status is not None
    scraped = [twice_the_cpu(line) if line.labels.get("pod") == doubled else line for line in lines()]
    with kube_series.served(tmp_path, {"v": scraped}) as url:
        own = PrometheusSettings(url=url, labels={kube_series.LABEL: "v"}, backoff_seconds=0.01)
        finding = metrics.probe_recorder(store.url, {"c": status}, ProfilerSettings(prometheus=own), None)

    assert finding.state is state, finding.found
    assert phrase in finding.found
    if doubled:
        assert "recorded" in finding.found and "scraped (50.0 % apart, 12 slots)" in finding.found


def test_doctor_compares_nothing_where_it_does_not_know_the_cluster(tmp_path: Path) -> None:
    several = {"a": RecorderStatus(0.0), "b": RecorderStatus(0.0)}

    finding = metrics.probe_recorder(tmp_path.as_uri(), several, ProfilerSettings(), "another")

    assert finding.state is ProbeState.SKIPPED and "several clusters are recorded: a, b" in finding.found
