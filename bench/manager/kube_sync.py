"""The API edge at scale: 5,000 nodes and 50,000 pods mirrored, and every node's status written, on a real API server.

    .venv/bin/python -m bench.manager.kube_sync [NODES PODS]      # other sizes are shown and not recorded

Client, API server and etcd share the machine. Mirrors are measured in a process of their own, from its start.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.record import Row, above, below, record
from cotenant.base.kube import Mirror, connect, send_all
from cotenant.base.kube.live import NODES, PODS
from cotenant.base.kubernetes.intent import Address, Apply, Intent, Patch
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ON_NODES, node_of, pod_of
from cotenant.base.kubernetes.protocol import MANAGER
from cotenant.base.settings.sections import KubeSettings
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, KWOK, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, PodShape, create_nodes, create_pods
from tests.cluster.namespaces import create_namespace

FULL = (5_000, 50_000)
EXTENDED = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


def synced(kubeconfig: str) -> None:
    """Mirror nodes and pods and print what it took; run in a fresh process."""
    start = time.monotonic()
    client = connect(KubeSettings(kubeconfig=kubeconfig))
    mirrors: list[Mirror[object]] = [
        Mirror(client, NODES, NodeWire, node_of),
        Mirror(client, PODS, ObservedPodWire, pod_of, fieldSelector=ON_NODES),
    ]
    for mirror in mirrors:
        mirror.start()
    for mirror in mirrors:
        assert mirror.wait_synced(600), mirror.error
    seconds = time.monotonic() - start
    looked = time.perf_counter()
    sizes = [len(mirror.snapshot()) for mirror in mirrors]
    sync_figures = {
        "sizes": sizes,
        "seconds": seconds,
        "cpu_seconds": time.process_time(),
        "snapshot_ms": 1000 * (time.perf_counter() - looked),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for mirror in mirrors:
        mirror.stop()
    print(json.dumps(sync_figures))


def applies(names: Sequence[str], amount: int) -> list[Intent]:
    amounts = dict.fromkeys(EXTENDED, str(amount))
    status = {"capacity": amounts, "allocatable": amounts}
    head = {"apiVersion": "v1", "kind": "Node"}
    return [
        Apply(Address("v1", "nodes", n), {**head, "metadata": {"name": n}, "status": status}, "status") for n in names
    ]


def patches(names: Sequence[str], amount: int) -> list[Intent]:
    keys = [f"/status/{part}/{name.replace('/', '~1')}" for part in ("capacity", "allocatable") for name in EXTENDED]
    operations = tuple({"op": "replace", "path": key, "value": str(amount)} for key in keys)
    return [Patch(Address("v1", "nodes", n), operations, "status") for n in names]


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written(plane: ControlPlane, label: str, intents: list[Intent]) -> list[Row]:
    server = plane.servers[APISERVER].pid
    start, own, theirs = time.monotonic(), time.process_time(), cpu_seconds(server)
    outcomes = send_all(plane.admin_client(), intents, MANAGER)
    seconds, count = time.monotonic() - start, len(intents)
    failed = [o.error for o in outcomes if not o.ok]
    assert not failed, failed[0]
    own_ms = 1000 * (time.process_time() - own) / count
    server_ms = 1000 * (cpu_seconds(server) - theirs) / count
    note = f"{own_ms:.2f} ms CPU a write here, {server_ms:.2f} ms in the API server"
    rate = round(count / seconds)
    if label == "apply, first":
        # 25 s for 5,000 nodes
        return [above(f"node status, {label}", rate, "writes/s", 200, note)]
    return [Row(f"node status, {label}", rate, "writes/s", note=note)]


def main(argv: list[str]) -> None:
    if argv[:1] == ["--synced"]:
        synced(argv[1])
        return
    nodes, pods = (int(argv[0]), int(argv[1])) if argv else FULL
    options = Options(components=frozenset({CONTROLLER_MANAGER, KWOK}), heartbeats=False)
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), options) as plane:
        names = create_nodes(plane, nodes, NodeShape())
        namespace = create_namespace(plane.api(), "load")
        labels = {"koordinator.sh/qosClass": "LS", "app": "web", "pod-template-hash": "5d4f8c7b9"}
        create_pods(plane, namespace, pods, PodShape(labels=labels), names)
        child = [sys.executable, "-m", "bench.manager.kube_sync", "--synced", str(plane.admin_kubeconfig)]
        done = subprocess.run(child, check=True, capture_output=True, text=True, timeout=900)
        sync_figures = json.loads(done.stdout)
        assert sync_figures["sizes"] == [nodes, pods]
        size = f"{nodes:,} nodes and {pods:,} pods"
        rows = [
            below(
                "first sync",
                round(sync_figures["seconds"], 1),
                "s",
                60,
                f"{size}, {sync_figures['cpu_seconds']:.1f} s CPU",
            ),
            below("memory after first sync, peak", round(sync_figures["rss_mib"]), "MiB", 1024, size),
            Row("first snapshot of both", round(sync_figures["snapshot_ms"], 1), "ms"),
            *written(plane, "apply, first", applies(names, 1000)),
            *written(plane, "apply, changed", applies(names, 2000)),
            *written(plane, "JSON patch, changed", patches(names, 3000)),
            *written(plane, "apply, again the same", applies(names, 3000)),
        ]
    record("kube_sync", ".venv/bin/python -m bench.manager.kube_sync", rows, is_kept=(nodes, pods) == FULL)


if __name__ == "__main__":
    main(sys.argv[1:])
