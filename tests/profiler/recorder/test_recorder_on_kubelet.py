"""The recorder beside a real kubelet: what pods burn, restart and are killed for is what a scan of its store shows.

The truth of the CPU is the container's cgroup, which a thread reads beside the recorder: a busy machine may give a loop
less than its quota. The recorder has the token and the rights of its account; the kubelet asks the API server who it is
and what it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.cluster import EventKind
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.errors import SourceForbidden
from cotenant.base.identity import PodContainerRef
from cotenant.base.kube import connect
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.profiler.recorder.exposition import SampleColumns
from cotenant.profiler.recorder.kubelets import (
    RESOURCES,
    KubeletRules,
    MetricsPage,
    fetch,
    open_session,
    tls_context,
)
from cotenant.profiler.recorder.pod_records import KubeletAddress
from cotenant.profiler.recorder.service import BRIDGED_INTERVALS, Recorder
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, own_address, pods_gone, running
from tests.node.measured_node import BURN, CgroupReader, measured_kubelet, pod_running, scrape_job
from tests.support.prometheus import Server

pytestmark = pytest.mark.slow

INTERVAL_SECONDS = 15.0
ROUNDS = 7
QUOTA_MILLICORES = 200
"""Of the loop, which always wants more."""


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[Kubelet]:
    """A kubelet that asks the cluster about who comes."""
    with measured_kubelet(control_plane, _built_containerd, "recorded") as kubelet:
        yield kubelet


@dataclass(frozen=True)
class Recorded:
    """What a recorder stored, and when it ran."""

    store: Store
    namespace: str
    start: float
    ended: float
    burnt_millicores: float
    """Mean of the burner by its cgroup, from the first reading to the last."""
    refused_millicores: float
    """The same of what its quota refused."""
    scraped_millicores: float
    """The same by a Prometheus that scraped the same kubelet."""
    restarts: int
    """How often the kubelet had restarted the greedy container, just before the recorder ended."""

    def values(self, signal: Signal, pod: str, container: str = "main") -> list[float]:
        """The finite values of one container, or of a node."""
        step = signal.spec.step_seconds
        first = int(self.start) // step * step - 3600 // step * step
        usage = self.store.read(signal, TimeGrid.from_span(first, int(self.ended) + 2 * step, step))
        row = usage.row_of.get(PodContainerRef(self.namespace, pod, container))
        return [] if row is None else [v for v in usage.values[row].tolist() if np.isfinite(v)]


def settings_of(kubeconfig: Path) -> Settings:
    return Settings(kube=KubeSettings(kubeconfig=str(kubeconfig)))


def scraped_samples(server: Server, namespace: str) -> list[tuple[float, float]]:
    """Times and CPU seconds of the burner that Prometheus has so far."""
    query = f'container_cpu_usage_seconds_total{{namespace="{namespace}",pod="burner",container="main"}}[15m]'
    series_found = server.api("query", query=query)["result"]
    return [(at, float(value)) for series in series_found for at, value in series["values"]]


def scraped_until(server: Server, namespace: str) -> float:
    """Time of the newest sample of the burner that Prometheus has; 0 = none."""
    return max((at for at, _ in scraped_samples(server, namespace)), default=0.0)


def scraped_mean_millicores(server: Server, namespace: str, begin: float, end: float) -> float:
    """Mean of the burner between two Unix times, by the samples that Prometheus has."""

    def samples() -> list[tuple[float, float]]:
        pairs = scraped_samples(server, namespace)
        return pairs if pairs and pairs[-1][0] >= end else []

    times, used = np.array(wait_for("a scrape after the last reading", samples, 60)).T
    assert times[0] <= begin
    first, last = np.interp([begin, end], times, used)
    return float(last - first) / (end - begin) * 1000


def await_room_in_slot(plane: ControlPlane, namespace: str) -> None:
    """Wait until the container is too old to be counted from its start, and until a run fits into one slot."""
    oldest = BRIDGED_INTERVALS * INTERVAL_SECONDS
    shown = running(plane, namespace, "burner")["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    start = datetime.fromisoformat(shown).timestamp()
    fits = FIVE_MINUTES_SECONDS - ROUNDS * INTERVAL_SECONDS - 60
    wait_for(
        "a slot",
        lambda: time.time() > start + oldest + 2 and time.time() % FIVE_MINUTES_SECONDS < fits,
        FIVE_MINUTES_SECONDS + 60,
    )


def sample_times(recorder: Recorder, namespace: str) -> dict[str, list[float]]:
    """Times of each pod's samples as the recorder takes them in from now on.

    Each container's counter has a time of its own, and is of up to 15 s before it is asked for: while the machine is
    busy, means from the newest sample of all to the newest of all would be of another time than the burner's.
    """
    times: dict[str, list[float]] = {"burner": [], "sleeper": []}
    add = recorder.term.containers.add

    def noting(source: str, cpu: SampleColumns, *others: SampleColumns, received_seconds: float) -> None:
        for series_labels, at in zip(cpu.labels, cpu.times.tolist(), strict=True):
            for pod, of_pod in times.items():
                if all(
                    label in series_labels for label in (f'namespace="{namespace}"'.encode(), f'pod="{pod}"'.encode())
                ):
                    of_pod.append(at)
        add(source, cpu, *others, received_seconds=received_seconds)

    recorder.term.containers.add = noting  # type: ignore[method-assign,assignment]
    return times


def makes_a_rate(times: list[float]) -> bool:
    """Whether two readings of a counter are so close that the time between them is known.

    A busy machine's kubelet looks at a container that sleeps less often than the recorder asks for it.
    """
    return any(0 < later - at <= BRIDGED_INTERVALS * INTERVAL_SECONDS for at, later in itertools.pairwise(times))


@pytest.fixture(scope="module")
def recorded(
    control_plane: ControlPlane, node: Kubelet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorded]:
    """Two minutes of a node: a pod that burns a fifth of a core, one that sleeps, one that is killed and restarts."""
    plane = control_plane
    settings = settings_of(account(plane, "cotenant-recorder"))
    store = Store(tmp_path_factory.mktemp("store").as_uri(), "real")
    with contextlib.closing(plane.api()) as api, contextlib.closing(connect(settings.kube)) as client:
        namespace = create_namespace(api, f"recorded-{uuid.uuid4().hex[:6]}")
        with pods_gone(plane, namespace):
            path = f"/api/v1/namespaces/{namespace}/pods"
            limited = {"limits": {"cpu": f"{QUOTA_MILLICORES}m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}
            api.create(path, pod_running("burner", node.name, BURN, limited))
            api.create(path, pod_running("sleeper", node.name, ["/bin/sleep", "100000"], {}))
            burner, _ = [running(plane, namespace, name) for name in ("burner", "sleeper")]
            await_room_in_slot(plane, namespace)
            recorder = Recorder(client, settings, store, AlwaysLeads(), SystemClock(), KubeletRules(INTERVAL_SECONDS))
            stopping = threading.Event()
            thread = threading.Thread(target=recorder.run, args=(stopping,))
            data = tmp_path_factory.mktemp("scraped") / "data"
            job = scrape_job(plane, node.name)
            with CgroupReader(node.cgroup(burner, "burstable")) as truth, Server(data, scrapes=[job]) as prometheus:
                try:
                    known_at = time.time()
                    # A kubelet's counters may be of many seconds before they are asked for, and of before the truth.
                    wait_for("a counter of now", lambda: scraped_until(prometheus, namespace) >= known_at, 60)
                    start = time.time()
                    times = sample_times(recorder, namespace)
                    thread.start()
                    # It takes 200 MiB at once and may have 32: killed, started anew by the kubelet, killed again.
                    greedy = ["/bin/sh", "-c", "sleep 3; exec dd if=/dev/zero of=/dev/null bs=200M count=1"]
                    with contextlib.closing(plane.api()) as later:  # the server closes connections that were quiet
                        later.create(path, pod_running("greedy", node.name, greedy, {"limits": {"memory": "32Mi"}}))
                    wait_for(
                        "some rounds",
                        lambda: recorder.term.rounds >= ROUNDS and all(map(makes_a_rate, times.values())),
                        60 + ROUNDS * 2 * INTERVAL_SECONDS,
                    )
                    with contextlib.closing(plane.api()) as later:
                        shown = later.get(f"{path}/greedy")["status"]["containerStatuses"][0]
                finally:
                    stopping.set()
                    thread.join(60)
                first, last = times["burner"][0], times["burner"][-1]
                scraped = scraped_mean_millicores(prometheus, namespace, first, last)
            burnt, refused = truth.mean_millicores(first, last)
            yield Recorded(store, namespace, start, time.time(), burnt, refused, scraped, shown["restartCount"])


def test_the_mean_of_a_container_is_what_its_cgroup_counted(recorded: Recorded) -> None:
    # One slot, from the first reading to the last: a share of its quota of 200, as much as the machine could give.
    (mean,) = recorded.values(Signal.CPU_USAGE_MEAN, "burner")

    assert 20 < recorded.burnt_millicores < QUOTA_MILLICORES * 1.05
    assert mean == pytest.approx(recorded.burnt_millicores, rel=0.02)
    assert recorded.values(Signal.CPU_USAGE_MAX, "burner")[0] >= mean


def test_the_mean_is_that_of_a_prometheus_which_scrapes_the_same_kubelet(recorded: Recorded) -> None:
    (mean,) = recorded.values(Signal.CPU_USAGE_MEAN, "burner")

    assert mean == pytest.approx(recorded.scraped_millicores, rel=0.02)


def test_what_its_quota_refused_is_what_its_cgroup_counted(recorded: Recorded) -> None:
    status = recorded.store.read_document(STATUS_DOCUMENT, RecorderStatus)
    assert status is not None and status.throttling_trouble == ""
    (mean,) = recorded.values(Signal.CPU_THROTTLED_MEAN, "burner")

    # cAdvisor looks at a container each 10 to 15 s, so its first and last look differ from the readings by as much.
    assert mean == pytest.approx(recorded.refused_millicores, rel=0.2, abs=20)
    assert recorded.values(Signal.CPU_THROTTLED_MEAN, "sleeper") == []


def test_a_container_that_sleeps_uses_nothing_and_has_memory(recorded: Recorded) -> None:
    assert max(recorded.values(Signal.CPU_USAGE_MEAN, "sleeper")) < 5
    assert 0 < min(recorded.values(Signal.MEMORY_WORKING_SET_MAX, "sleeper")) < 64 * 2**20


def test_kills_and_restarts_are_counted_once(recorded: Recorded) -> None:
    restarts, kills = (sum(recorded.values(s, "greedy")) for s in (Signal.RESTARTS, Signal.OOM_KILLS))

    # The last kill may not have been followed by a restart yet, or the last restart not have been seen.
    assert recorded.restarts >= 2
    assert restarts in (recorded.restarts, recorded.restarts + 1)
    assert restarts <= kills <= restarts + 1
    # None of the others was killed: until the hour is over that is unknown, which is no value.
    assert recorded.values(Signal.OOM_KILLS, "burner") == []
    assert sum(recorded.values(Signal.RESTARTS, "burner")) == 0


def test_the_inventory_has_pods_amounts_and_the_kills(recorded: Recorded) -> None:
    inventory = recorded.store.read_inventory()

    assert inventory is not None
    pods = {p.name: p for p in inventory.pods if p.namespace == recorded.namespace}
    assert pods.keys() == {"burner", "sleeper", "greedy"}
    assert {n.name for n in inventory.nodes} >= {"recorded"}
    assert recorded.values(Signal.CPU_REQUEST, "burner") == [100]
    assert recorded.values(Signal.MEMORY_LIMIT, "burner") == [64 * 2**20]
    assert recorded.values(Signal.CPU_REQUEST, "sleeper") == []
    assert any(e.kind is EventKind.OOM_KILL and e.subject.pod == "greedy" for e in inventory.events)


def test_the_recorder_says_from_where_and_since_when(recorded: Recorded) -> None:
    status = recorded.store.read_document(STATUS_DOCUMENT, RecorderStatus)

    assert status is not None
    assert status.nodes[NodeSource.KUBELET] >= 1
    assert recorded.start <= status.begun_seconds <= recorded.ended
    assert "recording since" in status.sentence(recorded.ended)


def answer_of(address: KubeletAddress, page: MetricsPage, context: ssl.SSLContext, authorization: str) -> bytes:
    """The page; asked in a thread, for a browser's test may have left a running loop in this one."""

    async def ask() -> bytes:
        async with open_session(context, authorization) as session:
            return await fetch(session, address, page)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask()).result()


def test_the_kubelet_refuses_all_but_metrics(control_plane: ControlPlane, node: Kubelet) -> None:
    with contextlib.closing(connect(settings_of(account(control_plane, "cotenant-recorder")).kube)) as client:
        access = client.access
        body = client.get(f"/api/v1/nodes/{node.name}") or {}
        port = body["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        context = tls_context(access, KubeletRules())
        address = KubeletAddress(node.name, own_address(), port)
        token = access.authorization() or ""

        assert b"node_cpu_usage_seconds_total" in answer_of(address, RESOURCES, context, token)
        # What nodes/proxy allows: running commands, reading pods and logs.
        for path in ("/pods", "/logs/", "/runningpods/", "/run/ns/pod/main?cmd=id"):
            with pytest.raises(SourceForbidden, match="403"):
                answer_of(address, MetricsPage(path), context, token)
        with pytest.raises(SourceForbidden, match="401"):
            answer_of(address, RESOURCES, context, "Bearer nobody")
