"""The test cluster itself: start of a control plane, fake nodes, pods through the scheduler, copies by the thousand."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.record import Row, below, record
from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, PodShape, create_nodes, wait_running
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes, seed_pods
from tests.cluster.waiting import wait_for

STARTS = 3
NODES, REPLICAS = 500, 2_000
MANY_NODES, MANY_PODS = 5_000, 50_000


def seconds(act: Callable[[], object]) -> float:
    start = time.monotonic()
    act()
    return round(time.monotonic() - start, 1)


def start_and_stop() -> None:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)):
        pass


def schedule(plane: ControlPlane, namespace: str) -> None:
    """A Deployment until every pod of it runs."""
    container = {"name": "main", "image": "example.invalid/app:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    api = plane.api()
    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    wait_for("its pods", lambda: len(api.items(f"/api/v1/namespaces/{namespace}/pods")) == REPLICAS, 900, 0.5)
    wait_running(plane, namespace)


def small() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        nodes = seconds(lambda: create_nodes(plane, NODES, NodeShape()))
        namespace = create_namespace(plane.api(), "bench")
        pods = seconds(lambda: schedule(plane, namespace))
    return [
        Row(f"{NODES} fake nodes created and Ready", nodes, "s"),
        Row(f"{REPLICAS:,} pods of a Deployment placed by the real scheduler and Running", pods, "s"),
    ]


def large() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), Options(heartbeats=False)) as plane:
        names: list[str] = []
        nodes = seconds(lambda: names.extend(seed_nodes(plane, MANY_NODES)))
        namespace = create_namespace(plane.api(), "bench")
        pods = seconds(lambda: seed_pods(plane, namespace, MANY_PODS, PodShape(), names))
    return [
        Row(f"{MANY_NODES:,} nodes copied into etcd and served", nodes, "s"),
        Row(f"{MANY_PODS:,} running pods copied into etcd and served", pods, "s"),
    ]


def main() -> int:
    try:
        binaries.ensure()
    except binaries.MissingBinaries as error:
        print(error, file=sys.stderr)
        return 1
    starts = [seconds(start_and_stop) for _ in range(STARTS)]
    note = f"slowest of {STARTS}; ready for pods; its end included"
    up = below("a control plane: etcd, API server, controller-manager, scheduler, kwok", max(starts), "s", 5, note)
    record("harness", ".venv/bin/python -m bench.platform.harness", [up, *small(), *large()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
