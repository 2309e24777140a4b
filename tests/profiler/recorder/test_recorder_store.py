"""What a recorder writes beside an API server: after another process, of pods that have ended, and without kubelets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import Container, Inventory, Node, Pod, Workload
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.recorder.exposition import parse_resource_metrics
from cotenant.profiler.recorder.kubelets import KubeletRules
from cotenant.profiler.recorder.service import Recorder
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.profiler.recorder.writing import write_inventory
from cotenant.profiler.settings import ProfilerSettings
from cotenant.settings import Settings
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.support.api_server import ApiServer

BEGUN = 500_000 * HOUR_SECONDS
MIB = 2**20


@dataclass
class HandClock:
    """A clock that is set by hand."""

    seconds: float

    def now_seconds(self) -> float:
        return self.seconds


class NeverLeads:
    """Leadership of a process that waits for the Lease."""

    is_leading = False
    standing = "Another process leads."
    error = None
    transitions = 0

    def require(self) -> None:
        raise AssertionError("it writes nothing")


class Leads(AlwaysLeads):
    """Leadership whose number of former holders is set by hand."""

    transitions = 1


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer(None, None)
    server.objects |= {"/api/v1/pods": [], "/api/v1/nodes": []}
    yield server
    server.stop()


@contextlib.contextmanager
def recorder_of(
    api: ApiServer, store: Store, clock: HandClock, leads: Any = None, interval_seconds: float = 60
) -> Iterator[Recorder]:
    client = KubeClient(Access("c", api.url, lambda: None), KubeSettings(retries=0))
    with contextlib.closing(client):
        yield Recorder(client, Settings(), store, leads or AlwaysLeads(), clock, KubeletRules(interval_seconds))


def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}", "creationTimestamp": moment(BEGUN + 1)},
        "spec": {
            "nodeName": "n",
            "initContainers": [{"name": "init"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": phase, **status},
    }


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def killed(container: str, seconds: float, restarts: int, *, shown_in: str) -> dict[str, Any]:
    end = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": moment(seconds), "containerID": f"c://{container}"}
    return {"name": container, "restartCount": restarts, shown_in: {"terminated": end}}


def read(recorder: Recorder, seconds: float, cpu_seconds: float, mib: float) -> None:
    """Take in an answer of a kubelet about one container."""
    labels = 'container="main",namespace="shop",pod="web"'
    text = f"container_cpu_usage_seconds_total{{{labels}}} {cpu_seconds}\n"
    text += f"container_memory_working_set_bytes{{{labels}}} {mib * MIB}\n"
    exposition = parse_resource_metrics(text.encode())
    recorder.term.containers.add("n", exposition.container_cpu, exposition.container_memory, received_seconds=seconds)


def values(store: Store, signal: Signal, *of: str, slots: int = 2) -> list[float | None]:
    """A container's values from the beginning on, None for a gap."""
    usage = store.read(signal, TimeGrid(BEGUN, signal.spec.step_seconds, slots))
    row = usage.row_of.get(PodContainerRef("shop", *of))
    slot_values = np.full(slots, np.nan) if row is None else usage.values[row]
    return [None if np.isnan(value) else float(value) for value in slot_values]


def test_a_slot_that_an_earlier_process_stored_stays_with_its_peak(api: ApiServer, tmp_path: Path) -> None:
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    with recorder_of(api, store, clock) as first:
        for k in range(4):  # a whole core for three minutes, at most 900 MiB
            read(first, BEGUN + 60 * k, 60.0 * k, 900 if k == 2 else 100)
        clock.seconds += 190
        assert first.store_closed(float("inf"))
    with recorder_of(api, store, clock) as second:
        for k in range(7):  # a tenth of a core and 100 MiB, in the rest of the slot and in the next one
            read(second, BEGUN + 200 + 60 * k, 6.0 * k, 100)
        clock.seconds = BEGUN + 2 * FIVE_MINUTES_SECONDS + 100
        assert second.store_closed(float("inf"))

    assert values(store, Signal.CPU_USAGE_MEAN, "web", "main") == pytest.approx([1000, 100])
    assert values(store, Signal.CPU_USAGE_MAX, "web", "main") == pytest.approx([1000, 100])
    assert values(store, Signal.MEMORY_WORKING_SET_MAX, "web", "main") == [900 * MIB, 100 * MIB]


def test_a_clock_that_jumps_far_ahead_costs_no_history(api: ApiServer, tmp_path: Path) -> None:
    """More than profiler.keep_days, as a machine's clock that begins wrong: what is stored then would be the newest."""
    api.objects["/api/v1/pods"] = [pod("web", "Running"), pod("gone", "Running")]
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    with recorder_of(api, store, clock) as recorder:
        recorder.watch.start()
        try:
            assert recorder.watch.wait_synced(30)
            for slot, jump in enumerate((0, 400 * DAY_SECONDS, 0)):
                for k in range(5):
                    clock.seconds = BEGUN + FIVE_MINUTES_SECONDS * slot + 60 * k
                    read(recorder, clock.seconds, clock.seconds - BEGUN, 100)
                clock.seconds += jump + 100
                assert recorder.store_closed(BEGUN + FIVE_MINUTES_SECONDS * (slot + 1))
        finally:
            recorder.watch.stop()
    assert values(store, Signal.CPU_USAGE_MEAN, "web", "main", slots=3) == pytest.approx([1000, 1000, 1000])
    # Requests are of the present hour: that of the newest sample, not that of the clock.
    assert store.span(Signal.CPU_REQUEST) == (BEGUN, BEGUN + HOUR_SECONDS)
    inventory = store.read_inventory()
    assert inventory is not None and inventory.time_seconds < BEGUN + HOUR_SECONDS


def test_a_kill_counts_once_as_long_as_the_pod_shows_it(api: ApiServer, tmp_path: Path) -> None:
    # A Job's pod that failed and is kept, an init container that started its pod at the second try, and a pod whose
    # requests cannot be read: none of them has amounts that are stored.
    init = killed("init", BEGUN + 60, 1, shown_in="lastState")
    odd = pod("odd", "Running", containerStatuses=[killed("main", BEGUN + 60, 1, shown_in="lastState")])
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    api.objects["/api/v1/pods"] = [
        pod("job", "Failed", containerStatuses=[killed("main", BEGUN + 60, 0, shown_in="state")]),
        pod("web", "Running", initContainerStatuses=[init]),
        odd,
    ]
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    with recorder_of(api, store, clock) as recorder:
        recorder.watch.start()
        try:
            assert recorder.watch.wait_synced(30)
            for hour in range(6):
                for k in range(3):
                    clock.seconds = BEGUN + HOUR_SECONDS * hour + 100 + 60 * k
                    read(recorder, clock.seconds, clock.seconds - BEGUN, 100)
                assert recorder.store_closed(float("inf"))
        finally:
            recorder.watch.stop()

    for of in (("job", "main"), ("web", "init"), ("odd", "main")):
        counts = values(store, Signal.OOM_KILLS, *of, slots=6)
        assert [count for count in counts if count] == [1], of
    assert values(store, Signal.RESTARTS, "web", "init", slots=6)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("apart_seconds", "kills", "restarts"),
    [
        (600, [3], [3]),  # all in the first hour
        # At 0:50, 1:40 and 2:30. The third process finds counts of two hours, of which the older one is over for it.
        (3000, [1, 1, 1], [1, 1, 1]),
        # A minute before 2:00, 4:00 and 6:00, when the processes begin and see that nothing restarted in that hour yet.
        (7200, [None, 1, None, 1, None, 1], [None, 1, 0, 1, 0, 1]),
    ],
)
def test_a_process_goes_on_counting_where_an_earlier_one_was_and_leaves_its_counts(
    apart_seconds: int, kills: list[float | None], restarts: list[float | None], api: ApiServer, tmp_path: Path
) -> None:
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    for count in (1, 2, 3):  # killed once before each of three processes
        status = killed("main", BEGUN + apart_seconds * count - 60, count, shown_in="lastState")
        api.objects["/api/v1/pods"] = [pod("web", "Running", containerStatuses=[status])]
        with recorder_of(api, store, clock) as recorder:
            recorder.watch.start()
            try:
                assert recorder.watch.wait_synced(30)
                for k in range(3):
                    clock.seconds = BEGUN + apart_seconds * count + 60 * k
                    read(recorder, clock.seconds, clock.seconds - BEGUN, 100)
                assert recorder.store_closed(float("inf")), recorder.term.error
            finally:
                recorder.watch.stop()

    assert values(store, Signal.OOM_KILLS, "web", "main", slots=len(kills)) == kills
    assert values(store, Signal.RESTARTS, "web", "main", slots=len(restarts)) == restarts


def test_the_hour_in_which_the_recording_began_has_no_zero_kills(api: ApiServer, tmp_path: Path) -> None:
    # A pod that was killed ten minutes before the beginning, in its hour: that is not counted, and no zero.
    old = pod("web", "Running", containerStatuses=[killed("main", BEGUN + 60, 1, shown_in="lastState")])
    api.objects["/api/v1/pods"] = [old]
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN + 660)
    with recorder_of(api, store, clock) as recorder:
        recorder.watch.start()
        try:
            assert recorder.watch.wait_synced(30)
            for hour in range(3):
                for k in range(3):
                    clock.seconds = BEGUN + HOUR_SECONDS * hour + 700 + 60 * k
                    read(recorder, clock.seconds, clock.seconds - BEGUN, 100)
                assert recorder.store_closed(float("inf"))
        finally:
            recorder.watch.stop()

    assert values(store, Signal.OOM_KILLS, "web", "main", slots=3) == [None, 0, None]


def test_a_process_that_waits_for_the_lease_keeps_no_versions_of_pods(api: ApiServer, tmp_path: Path) -> None:
    api.objects["/api/v1/pods"] = [pod("web", "Running")]
    with recorder_of(api, Store(tmp_path.as_uri(), "c"), HandClock(BEGUN), NeverLeads()) as waiting:
        stopping = threading.Event()
        thread = threading.Thread(target=waiting.run, args=(stopping,))
        thread.start()
        try:
            assert waiting.watch.wait_synced(30)
        finally:
            stopping.set()
            thread.join(30)

        assert [recorded_pod.key for recorded_pod in waiting.watch.pods()] == [("shop", "web")]
        assert waiting.watch.take() == []


@pytest.mark.parametrize(("transitions", "stored"), [(1, True), (3, False)], ids=["ours", "another's meanwhile"])
def test_what_was_read_before_another_process_had_the_lease_is_not_stored(
    api: ApiServer, tmp_path: Path, transitions: int, stored: bool
) -> None:
    store, clock, right = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN), Leads()
    with recorder_of(api, store, clock, right) as recorder, ThreadPoolExecutor(1) as pool:
        stopping = threading.Event()
        running = pool.submit(recorder.run, stopping)
        try:
            wait_for("the first round", lambda: store.read_document(STATUS_DOCUMENT, RecorderStatus) is not None, 60)
            for k in range(3):  # while it waits a minute for the next round
                read(recorder, BEGUN + 60 * k, 60.0 * k, 100)
            clock.seconds += 190
            # Two others had the Lease, which is ours again when the process ends and would store what is open.
            right.transitions = transitions
        finally:
            stopping.set()
        running.result(30)

    assert (store.span(Signal.CPU_USAGE_MEAN) is not None) is stored


NODE = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}


def test_without_any_kubelet_that_answers_it_goes_on_asking_and_says_why(api: ApiServer, tmp_path: Path) -> None:
    status = NODE | {"daemonEndpoints": {"kubeletEndpoint": {"Port": free_port()}}}
    api.objects["/api/v1/nodes"] = [{"metadata": {"name": "n"}, "status": status}]
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    with recorder_of(api, store, clock, interval_seconds=0.5) as recorder, ThreadPoolExecutor(1) as pool:
        stopping = threading.Event()
        running = pool.submit(recorder.run, stopping)
        try:
            wait_for("two rounds", lambda: running.done() or recorder.term.rounds >= 2, 60)
            assert not running.done() or running.result()
            assert "no node was read: the kubelet of node n" in recorder.wrong()
            assert "cannot be reached" in recorder.wrong()
        finally:
            stopping.set()
        running.result(30)
    recorder_status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    assert recorder_status is not None and recorder_status.present is None and recorder_status.until_seconds == 0
    assert "cannot be reached" in recorder_status.troubles["n"]
    assert store.span(Signal.CPU_USAGE_MEAN) is None


def test_a_request_that_was_taken_away_is_not_set_and_not_unknown(tmp_path: Path) -> None:
    """The API server tells every amount, where kube-state-metrics may lack a series."""
    store, ref, node = Store(tmp_path.as_uri(), "c"), WorkloadRef("shop", "Deployment", "web"), Node("n1", {}, {})
    asking_pod = Pod("shop", "web-old", ref, "n1", HOUR_SECONDS, requests={Resource.CPU: 500})
    before = Workload(ref, 1, (Container("app", {Resource.CPU: 500}),))
    write_inventory(store, Inventory("c", 2 * HOUR_SECONDS, (node,), (before,), (asking_pod,)), [], ProfilerSettings())
    now, bare = Pod("shop", "web-new", ref, "n1", 2 * HOUR_SECONDS), Workload(ref, 1, (Container("app"),))
    inventory = write_inventory(
        store, Inventory("c", 3 * HOUR_SECONDS, (node,), (bare,), (now,)), [], ProfilerSettings()
    )
    assert {p.name for p in inventory.pods} == {"web-old", "web-new"}
    assert [(w.ref, w.gaps) for w in inventory.workloads] == [(ref, ())]


def test_pods_that_cannot_be_counted_are_named_and_all_others_are_stored(api: ApiServer, tmp_path: Path) -> None:
    store, clock = Store(tmp_path.as_uri(), "c"), HandClock(BEGUN)
    ended = [killed("main", BEGUN + 9, 1, shown_in="lastState")]
    api.objects["/api/v1/pods"] = [pod(name, "Running", containerStatuses=ended) for name in ("web", "ends", "amounts")]
    with recorder_of(api, store, clock) as recorder:
        recorder.watch.start()
        assert recorder.watch.wait_synced(30)
        items = recorder.watch._pods._state.items
        for name in ("ends", "amounts"):
            pod_value: Any = items["shop", name].value
            bad = {"restarted": (None,)} if name == "ends" else {"shape": replace(pod_value.shape, containers=(None,))}
            items["shop", name] = items["shop", name]._replace(value=replace(pod_value, **bad))
        recorder.watch._pods._copy = None
        for k in range(6):
            read(recorder, BEGUN + 60 * k, 6.0 * k, 100)
        clock.seconds = BEGUN + FIVE_MINUTES_SECONDS + 100
        assert recorder.store_closed(float("inf"))
        assert set(recorder.watch.left_out()) == {"pods/shop/ends", "pods/shop/amounts"}
        recorder.watch.stop()
    assert values(store, Signal.CPU_REQUEST, "web", "main", slots=1) == [1000]
    assert values(store, Signal.RESTARTS, "web", "main", slots=1) == [1]
