"""Throttled time is read from cAdvisor's page where a quota may throttle; what nobody tells is named, and no zero."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import math
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.identity import PodContainerRef
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.profiler.recorder.exposition import THROTTLED, container_ref, parse_throttled_time
from cotenant.profiler.recorder.kubelets import KubeletRules, unpack
from cotenant.profiler.recorder.service import Recorder
from cotenant.profiler.recorder.slots import UsageSlots
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from cotenant.settings import Settings
from tests.profiler.recorder.test_slots import LONGEST, MINUTE, REF, add, columns, ref_of
from tests.support.api_server import ApiServer
from tests.support.fast_clock import FastClock
from tests.support.kubelets import (
    CORES,
    REFUSED_CORES,
    TOKEN,
    KubeletServers,
    Manner,
    cadvisor_answer,
    cadvisor_text,
    containers_of,
    node_name,
)

TEXT = b"""# HELP container_cpu_cfs_throttled_periods_total Number of throttled period intervals.
# TYPE container_cpu_cfs_throttled_periods_total counter
container_cpu_cfs_throttled_periods_total{container="app",id="/k/a",image="i",name="a",namespace="shop",pod="web-1"} 18 1395066363000
# HELP container_cpu_cfs_throttled_seconds_total Total time duration the container has been throttled.
# TYPE container_cpu_cfs_throttled_seconds_total counter
container_cpu_cfs_throttled_seconds_total{container="",id="/k",image="",name="",namespace="shop",pod="web-1"} 9.5 1395066363000
container_cpu_cfs_throttled_seconds_total{container="POD",id="/k/p",image="pause",name="p",namespace="shop",pod="web-1"} 7 1395066363000
container_cpu_cfs_throttled_seconds_total{container="app",id="/k/a",image="i",name="a",namespace="shop",pod="web-1"} 1.724314 1395066363500
container_cpu_cfs_throttled_seconds_total{pod="web-1",name="b",namespace="shop",container="side"} 3
# HELP container_cpu_load_average_10s Value of container cpu load average over the last 10 seconds.
"""  # noqa: E501


OF_KUBELET = b"""# HELP container_cpu_cfs_periods_total Number of elapsed enforcement period intervals.
# TYPE container_cpu_cfs_periods_total counter
container_cpu_cfs_periods_total{container="",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a",image="",name="",namespace="recorded-1ef09a",pod="burner"} 2119 1795828582490
container_cpu_cfs_periods_total{container="main",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a/c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",image="localhost/busybox:1",name="c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",namespace="recorded-1ef09a",pod="burner"} 2116 1795828582643
# HELP container_cpu_cfs_throttled_periods_total Number of throttled period intervals.
# TYPE container_cpu_cfs_throttled_periods_total counter
container_cpu_cfs_throttled_periods_total{container="",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a",image="",name="",namespace="recorded-1ef09a",pod="burner"} 1003 1795828582490
container_cpu_cfs_throttled_periods_total{container="main",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a/c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",image="localhost/busybox:1",name="c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",namespace="recorded-1ef09a",pod="burner"} 851 1795828582643
# HELP container_cpu_cfs_throttled_seconds_total Total time duration the container has been throttled.
# TYPE container_cpu_cfs_throttled_seconds_total counter
container_cpu_cfs_throttled_seconds_total{container="",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a",image="",name="",namespace="recorded-1ef09a",pod="burner"} 12.011849579 1795828582490
container_cpu_cfs_throttled_seconds_total{container="main",id="/cotenant-d9c05a7e/kubepods/burstable/pode04e6add-043b-43a5-b9fa-94ac0770ce8a/c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",image="localhost/busybox:1",name="c859e1c920e0f372216298069d5fcce7686cddf09c621aeb9b1ab7d579330efb",namespace="recorded-1ef09a",pod="burner"} 5.051689635 1795828582643
# HELP container_cpu_load_average_10s Value of container cpu load average over the last 10 seconds.
# TYPE container_cpu_load_average_10s gauge
container_cpu_load_average_10s{container="",id="/",image="",name="",namespace="",pod=""} 0 1795828577076
"""  # noqa: E501
"""From a kubelet v1.35.4 with containerd: a pod with a quota, its group and its container."""


def test_containers_are_read_by_the_names_of_the_other_page_and_groups_are_passed_over() -> None:
    read = parse_throttled_time(TEXT)

    assert read.labels == [
        b'container="app",namespace="shop",pod="web-1"',
        b'container="side",namespace="shop",pod="web-1"',
    ]
    assert read.values.tolist() == [1.724314, 3.0]
    assert read.times[0] == 1395066363.5
    assert math.isnan(read.times[1])
    assert parse_throttled_time(b"").labels == []


def test_a_whole_page_of_a_kubelet_gives_each_container_with_a_quota_once() -> None:
    page = cadvisor_answer(cadvisor_text(20), 7, Manner.WHOLE, "", 1000.0)

    read = parse_throttled_time(page or b"")

    refs = [container_ref(labels) for labels in read.labels]
    assert refs == [PodContainerRef(*names) for names in containers_of(7, 20) if names[2] == "main"]
    assert read.values.tolist() == [1000.0 * REFUSED_CORES] * 20


def test_an_answer_of_a_kubelet_is_read_packed_and_not() -> None:
    for text in (OF_KUBELET, unpack(gzip.compress(OF_KUBELET), THROTTLED)):
        read = parse_throttled_time(text)

        assert [container_ref(labels) for labels in read.labels] == [
            PodContainerRef("recorded-1ef09a", "burner", "main")
        ]
        assert (read.values.tolist(), read.times.tolist()) == ([5.051689635], [1795828582.643])


LINES = st.lists(st.sampled_from([b"# TYPE a counter", b'a{pod="p"} 1', b"", b"b 2 1000"]), max_size=40)


@given(LINES, st.integers(0, 3), LINES, st.binary(max_size=300_000))
def test_of_a_packed_page_as_much_is_unpacked_as_holds_the_metric(
    before: list[bytes], samples: int, after: list[bytes], rest: bytes
) -> None:
    metric = [b"%s{container=%d} 1" % (THROTTLED.encode(), i) for i in range(samples)]
    page = b"\n".join([b"# TYPE first counter", *before, *metric, b"# HELP next Else.", *after, rest.hex().encode()])

    text = unpack(gzip.compress(page, 1), THROTTLED)

    assert page.startswith(text)
    assert [line for line in text.split(b"\n") if line in metric] == metric
    assert text == page if not samples else b"# HELP next" not in text


@given(st.binary(min_size=40, max_size=400), st.data())
def test_a_packed_page_that_was_cut_or_damaged_is_refused(page: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(page)

    with pytest.raises(ValueError, match="incomplete"):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 9))], THROTTLED)
    with pytest.raises(zlib.error):
        unpack(b"\n" + packed, THROTTLED)


def test_a_packed_page_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    packed = gzip.compress(bytes(65 * 1024**2), 9)

    with pytest.raises(ValueError, match="more than 64 MiB"):
        unpack(packed, THROTTLED)


def throttle(slots: UsageSlots[PodContainerRef], at: float, seconds: float) -> None:
    slots.add_throttled("node", columns((b"p", seconds, at)), received_seconds=at)


def test_refused_time_becomes_means_of_slots_beside_what_was_used() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for at in range(0, 601, MINUTE):
        add(slots, at, at * 0.5, memory=1000.0)
        throttle(slots, at + 7, at * (0.2 if at <= 300 else 0.0) + (60 if at > 300 else 0))

    first, second = slots.close(600)

    # Between the readings at 7, 67 ... 307 a fifth of a core was refused; after that nothing, which is measured.
    assert (first.refs, second.refs) == ((REF,), (REF,))
    assert first.throttled_mean[0] == pytest.approx(200)
    assert second.throttled_mean[0] == pytest.approx(200 * 7 / 300)
    assert (first.cpu_mean[0], second.cpu_mean[0]) == pytest.approx((500, 500))


def test_without_readings_refused_time_is_unknown_and_not_zero() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for at in range(0, 301, MINUTE):
        add(slots, at, at * 0.5)
    throttle(slots, 30, 5.0)  # one reading, of a container that started long before

    (slot,) = slots.close(300)

    assert math.isnan(slot.throttled_mean[0])
    assert slot.cpu_mean[0] == pytest.approx(500)


@pytest.mark.parametrize("told_first", [True, False], ids=["the start is told first", "the counter is told first"])
def test_a_restart_begins_at_zero_and_no_second_counts_twice(told_first: bool) -> None:
    slots = UsageSlots(ref_of, LONGEST)
    add(slots, 0, 0.0, start=-1000)
    throttle(slots, 0, 1.0)
    throttle(slots, 60, 1.0)
    # Restarted at 90, and wholly refused by one CPU since then.
    for at in (120, 180):
        steps = [lambda at=at: add(slots, at, 0.0, start=90), lambda at=at: throttle(slots, at, at - 90)]
        for step in steps if told_first else steps[::-1]:
            step()

    (slot,) = slots.close(300)

    # The old one refused nothing for 60 s. Told first, the new one counts from its start: 90 s of 90. Else its first
    # reading looks like growth of the old counter: 29 s in 60, then 60 s in 60.
    expected = 90 / 150 if told_first else 89 / 180
    assert slot.throttled_mean[0] == pytest.approx(expected * 1000)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 4000)), min_size=8, max_size=30))
def test_refused_time_is_counted_as_usage_is(steps: list[tuple[int, int]]) -> None:
    slots, now, counter = UsageSlots(ref_of, LONGEST), 0, 0.0
    for pause, rate in steps:
        now, counter = now + pause, counter + pause * rate / 1000
        add(slots, now, counter)
        throttle(slots, now, counter)

    for slot in slots.close(now + 600):
        np.testing.assert_array_equal(slot.cpu_mean, slot.throttled_mean)


# ---- from kubelets to the store

START = 1_795_046_400
SPEED = 60.0
MANNERS = (Manner.WHOLE, Manner.CHOSEN, Manner.SILENT, Manner.REFUSED)
NODES, PODS = 5, 2
UNLIMITED = 4
"""The node whose pods have no limits."""


def pod_of(node: int, name: str, namespace: str, containers: list[str]) -> dict[str, Any]:
    limits = {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}} if node != UNLIMITED else {}
    listed = [{"name": c, "image": "i", **(limits if c == "main" else {})} for c in containers]
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": name, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"nodeName": node_name(node), "containers": listed},
        "status": {"phase": "Running"},
    }


@contextlib.contextmanager
def cluster(servers: KubeletServers) -> Iterator[ApiServer]:
    """An API server with the nodes of these kubelets and their pods."""
    api = ApiServer(None, None)
    pods_containers: dict[tuple[int, str, str], list[str]] = {}
    for node in range(NODES):
        for namespace, pod, container in containers_of(node, PODS):
            pods_containers.setdefault((node, pod, namespace), []).append(container)
    api.objects["/api/v1/pods"] = [pod_of(*key, containers) for key, containers in pods_containers.items()]
    api.objects["/api/v1/nodes"] = [
        {
            "metadata": {"name": address.node},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address.host}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port}},
            },
        }
        for address in servers.addresses
    ]
    try:
        yield api
    finally:
        api.stop()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, RecorderStatus]]:
    """A slot of five kubelets, one of each manner and one without limits: read each minute, a minute a second."""
    folder = tmp_path_factory.mktemp("throttled")
    clock = FastClock.create(folder / "clock", START, SPEED)
    store = Store((folder / "store").as_uri(), "c")
    with KubeletServers(folder, NODES, PODS, clock=clock.file, manners=MANNERS) as servers, cluster(servers) as api:
        access = Access("c", api.url, lambda: f"Bearer {TOKEN}", ca_file=str(servers.authority))
        with contextlib.closing(KubeClient(access, KubeSettings(retries=0))) as client:
            recorder = Recorder(client, Settings(), store, AlwaysLeads(), clock, KubeletRules(MINUTE))
            recorder.watch.start()
            try:
                assert recorder.watch.wait_synced(30)
                with ThreadPoolExecutor(1) as pool:  # a browser's test may have left a running loop in this thread
                    for _ in range(4):
                        pool.submit(asyncio.run, recorder.read_round(spread=0.0)).result()
                        time.sleep(MINUTE / SPEED)
                assert recorder.store_closed(math.inf), recorder.term.error
            finally:
                recorder.watch.stop()
    status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    assert status is not None
    yield store, status


def means(store: Store, signal: Signal) -> dict[PodContainerRef, float]:
    """The mean of each container over the slots that have a value."""
    usage = store.read(signal, TimeGrid(START, FIVE_MINUTES_SECONDS, 24))
    return {ref: float(np.nanmean(usage.values[row])) for ref, row in usage.row_of.items()}


@pytest.mark.slow
def test_quotas_are_stored_as_a_scan_stores_them_where_a_kubelet_tells(recorded: tuple[Store, RecorderStatus]) -> None:
    store, _ = recorded
    refs = [PodContainerRef(*names) for node in (0, 1) for names in containers_of(node, PODS) if names[2] == "main"]

    throttled, used = (means(store, signal) for signal in (Signal.CPU_THROTTLED_MEAN, Signal.CPU_USAGE_MEAN))

    assert throttled == {ref: pytest.approx(REFUSED_CORES * 1000, rel=0.01) for ref in refs}
    everyone = [PodContainerRef(*names) for node in range(NODES) for names in containers_of(node, PODS)]
    assert used == {ref: pytest.approx(CORES * 1000, rel=0.01) for ref in everyone}


def test_nodes_that_do_not_tell_are_counted_and_the_first_is_named_with_its_reason(
    recorded: tuple[Store, RecorderStatus],
) -> None:
    _, status = recorded

    assert status.unthrottled == 2
    assert status.nodes == {NodeSource.KUBELET: NODES} and not status.troubles
    text = (
        "throttled time is unknown on 2 nodes, where usage counts as demand: the kubelet of node node-00002 "
        "reports no throttled time of containers with a limit. Check that the kubelet's flag --containerd "
        "names the runtime's socket, which cAdvisor reads."
    )
    assert text in status.notes
    assert text in status.lines(status.written_seconds)
    # Four rounds: five kubelets for usage, four for quotas; the two that do not tell are left out of the third.
    assert status.questions in range(4 * NODES + 2 * 4 + 2 * 2, 4 * NODES + 4 * 4 + 1)


def test_where_all_tell_nothing_is_said() -> None:
    assert RecorderStatus(0.0, nodes={NodeSource.KUBELET: 3}).notes == ()
