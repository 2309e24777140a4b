"""The recorder beside a real kubelet: what pods burn, restart and are killed for is what a scan of its store shows.

The recorder has the token and the rights of its account; the kubelet asks the API server who it is and what it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import EventKind
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.errors import SourceForbidden
from cotenant.base.identity import PodContainerRef
from cotenant.base.kube import connect
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.root import Settings
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.base.settings.sections.recorder import RecorderSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.profiler.recorder.kubelets import KubeletAddress, fetch, tls_context
from cotenant.profiler.recorder.service import Recorder
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, pod_body, pods_gone, running

INTERVAL_SECONDS = 15.0
ROUNDS = 9
BURN = ["/bin/sh", "-c", "while :; do :; done"]
BURNT_MILLICORES = 200
"""Its quota; the loop always wants more."""


def own_address() -> str:
    """The address of this machine by which a node is known; nothing is sent."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[Kubelet]:
    """A kubelet whose certificate the cluster's authority signed, and that asks it about who comes."""
    plane = control_plane
    certificate, key = plane.authority.issue("recorded", "system:node:recorded", hosts=(own_address(), "127.0.0.1"))
    own: dict[str, Any] = {
        "address": "0.0.0.0",
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
    }
    with Kubelet(plane, _built_containerd, _built_containerd.socket, "recorded", **own) as kubelet:
        yield kubelet


@dataclass(frozen=True)
class Recorded:
    """What a recorder stored, and when it ran."""

    store: Store
    namespace: str
    begun: float
    ended: float
    restarts: int
    """How often the kubelet had restarted the greedy container, just before the recorder ended."""

    def values(self, signal: Signal, pod: str, container: str = "main") -> list[float]:
        """The finite values of one container, or of a node."""
        step = signal.spec.step_seconds
        first = int(self.begun) // step * step - 3600 // step * step
        usage = self.store.read(signal, TimeGrid.between(first, int(self.ended) + 2 * step, step))
        row = usage.row_of.get(PodContainerRef(self.namespace, pod, container))
        return [] if row is None else [v for v in usage.values[row].tolist() if np.isfinite(v)]


def settings_of(kubeconfig: Path) -> Settings:
    return Settings(
        kube=KubeSettings(kubeconfig=str(kubeconfig)), recorder=RecorderSettings(interval_seconds=INTERVAL_SECONDS)
    )


def pod(name: str, node: Kubelet, command: list[str], resources: dict[str, Any]) -> dict[str, Any]:
    body = pod_body(name, node.name, resources)
    body["spec"]["containers"][0]["command"] = command
    return body


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
            limited = {"limits": {"cpu": f"{BURNT_MILLICORES}m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}
            api.create(path, pod("burner", node, BURN, limited))
            api.create(path, pod("sleeper", node, ["/bin/sleep", "100000"], {}))
            for name in ("burner", "sleeper"):
                running(plane, namespace, name)
            recorder = Recorder(client, settings, store, AlwaysLeads(), SystemClock())
            stopping, begun = threading.Event(), time.time()
            thread = threading.Thread(target=recorder.run, args=(stopping,))
            thread.start()
            try:
                wait_for("the first round", lambda: recorder.rounds >= 1, 60)
                # It takes 200 MiB at once and may have 32: killed, started anew by the kubelet, killed again.
                killed = {"limits": {"memory": "32Mi"}}
                greedy = ["/bin/sh", "-c", "sleep 3; exec dd if=/dev/zero of=/dev/null bs=200M count=1"]
                api.create(path, pod("greedy", node, greedy, killed))
                wait_for("some rounds", lambda: recorder.rounds >= ROUNDS, 60 + ROUNDS * 2 * INTERVAL_SECONDS)
                shown = api.get(f"{path}/greedy")["status"]["containerStatuses"][0]
            finally:
                stopping.set()
                thread.join(60)
            yield Recorded(store, namespace, begun, time.time(), shown["restartCount"])


def test_the_mean_of_a_container_is_what_it_burnt(recorded: Recorded) -> None:
    means = recorded.values(Signal.CPU_USAGE_MEAN, "burner")

    # A loop that never waits uses its quota of 200 of 1000 millicores, whatever the two minutes fall on.
    assert means
    assert means == pytest.approx([BURNT_MILLICORES] * len(means), rel=0.02)
    assert recorded.values(Signal.CPU_USAGE_MAX, "burner") >= means


def test_a_container_that_sleeps_uses_nothing_and_has_memory(recorded: Recorded) -> None:
    assert max(recorded.values(Signal.CPU_USAGE_MEAN, "sleeper")) < 5
    assert 0 < min(recorded.values(Signal.MEMORY_WORKING_SET_MAX, "sleeper")) < 64 * 2**20


def test_kills_and_restarts_are_counted_once(recorded: Recorded) -> None:
    restarts, kills = (sum(recorded.values(s, "greedy")) for s in (Signal.RESTARTS, Signal.OOM_KILLS))

    # The last kill may not have been followed by a restart yet, or the last restart not have been seen.
    assert recorded.restarts >= 1
    assert restarts in (recorded.restarts, recorded.restarts + 1)
    assert restarts <= kills <= restarts + 1
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
    assert recorded.begun <= status.begun_seconds <= recorded.ended
    assert "recording since" in status.sentence(recorded.ended)


def test_the_kubelet_refuses_all_but_metrics(control_plane: ControlPlane, node: Kubelet) -> None:
    with contextlib.closing(connect(settings_of(account(control_plane, "cotenant-recorder")).kube)) as client:
        access = client.access
        body = client.get(f"/api/v1/nodes/{node.name}") or {}
        port = body["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        context = tls_context(access, RecorderSettings())
        address = KubeletAddress(node.name, own_address(), port)
        token = access.authorization() or ""

        assert b"node_cpu_usage_seconds_total" in asyncio.run(fetch(address, "/metrics/resource", context, token))
        # What nodes/proxy allows: running commands, reading pods and logs.
        for path in ("/pods", "/logs/", "/runningpods/", "/run/ns/pod/main?cmd=id"):
            with pytest.raises(SourceForbidden, match="403"):
                asyncio.run(fetch(address, path, context, token))
        with pytest.raises(SourceForbidden, match="401"):
            asyncio.run(fetch(address, "/metrics/resource", context, "Bearer nobody"))
