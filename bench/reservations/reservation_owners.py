"""Owners known by label only: how many land on their room, and how soon they run when all else is full.

.venv/bin/python -m bench.reservations.reservation_owners [--nodes 500 2000 5000] [--owners 100]

Real kube-apiserver and kube-scheduler with default sampling (at 5,000 nodes it looks at 500). As many Reservations as
owners, held anywhere; owners are created through the real webhook and carry no annotation. Pinned: an owner counts when
it is bound to the node of the Reservation whose current owner it is. Last resort: every other core is taken; owners
push the placeholders aside, and the clock runs until the last one is Running.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.record import Row, above, below, record
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, PodShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes, seed_pods
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.reservations.disturbed import manager_process
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, install

CLASS, FULL = "bench-web", "bench-full"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="*", default=[500, 2000, 5000])
    parser.add_argument("--owners", type=int, default=100)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reservation-owners-"))
    rows = []
    for nodes in options.nodes:
        landed, seconds = pinned(folder / f"pinned-{nodes}", nodes, options.owners)
        name = f"owners on their reservation, {nodes} nodes"
        rows.append(above(name, landed, "", options.owners, f"of {options.owners}, by label only"))
        rows.append(Row(f"last owner bound, {nodes} nodes", seconds, "s", note="from the first creation"))
    took = last_resort(folder / "last-resort", min(options.nodes), options.owners)
    rows.append(below("last resort: all owners Running, cluster full", took, "s", 10, f"{options.owners} owners"))
    rows.append(Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""))
    command = " ".join([".venv/bin/python -m bench.reservations.reservation_owners", *sys.argv[1:]])
    record("reservation_owners", command, rows)


def pinned(folder: Path, nodes: int, owners: int) -> tuple[int, float]:
    """Owners that landed on their Reservation, and seconds until the last was bound."""
    folder.mkdir()
    with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
        install(plane)
        seed_nodes(plane, nodes, NodeShape(cpu="16"))
        cluster = Scene(plane, create_namespace(plane.api(), "bench"))
        with manager_process(cluster, folder), running(plane) as webhook:
            names = reserve(cluster, owners, {})
            wait_for("the webhook knows them", lambda: len(webhook.state.view().offers.reservations) == owners, 120)
            start = time.monotonic()
            create(cluster, owners, {})
            wait_for("all owners are bound", lambda: len(bound(cluster)) == owners, 300, 0.05)
            seconds = round(time.monotonic() - start, 2)
            wait_for("all are told", lambda: phases(cluster, "Succeeded") == owners or seconds > 120, 60, 0.2)
            return landed(cluster, names), seconds


def last_resort(folder: Path, nodes: int, owners: int) -> float:
    """Seconds until the last owner runs, on nodes that are full but for the placeholders."""
    folder.mkdir()
    with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
        install(plane)
        names = seed_nodes(plane, nodes, NodeShape(cpu="4"))
        for name, value in ((CLASS, 100), (FULL, 1000)):
            plane.api().create(CLASSES, {"metadata": {"name": name}, "value": value})
        cluster = Scene(plane, create_namespace(plane.api(), "bench"))
        with manager_process(cluster, folder, mode="last-resort"):
            reserve(cluster, owners, {"priorityClassName": CLASS})
            reserved_nodes = {r["status"]["nodeName"] for r in cluster.api.items(RESERVATIONS)}
            full = [name for name in names if name not in reserved_nodes]
            create_namespace(plane.api(), "full")
            seed_pods(plane, "full", len(full), PodShape({"cpu": "4"}), full, valuable)
            start = time.monotonic()
            create(cluster, owners, {"priorityClassName": CLASS})
            path = f"/api/v1/namespaces/{cluster.namespace}/pods"
            query = {"fieldSelector": "status.phase=Running"}
            wait_for("all owners run", lambda: len(cluster.api.items(path, **query)) == owners, 300, 0.05)
            return round(time.monotonic() - start, 2)


def valuable(_: int, pod: dict[str, Any]) -> None:
    """Not to be pushed aside by the owners."""
    pod["spec"]["priorityClassName"] = FULL


def reserve(cluster: Scene, count: int, template: dict[str, Any]) -> list[str]:
    """Reservations for pods labelled app=web, all Available."""
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]
    spec = {
        "template": {"metadata": {"namespace": cluster.namespace}, "spec": {"containers": containers, **template}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
    }
    names = [f"web-{i}" for i in range(count)]
    head = {"apiVersion": SCHEDULING_GROUP, "kind": "Reservation", "spec": spec}
    each(cluster.plane.api, names, lambda api, name: api.create(RESERVATIONS, {**head, "metadata": {"name": name}}))
    wait_for("all are Available", lambda: phases(cluster, "Available") == count, 300, 0.2)
    return names


def create(cluster: Scene, count: int, spec: dict[str, Any]) -> None:
    """Owners, over several connections."""

    def one(api: Any, number: int) -> None:
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]
        pod: dict[str, Any] = {"metadata": {"name": f"owner-{number}", "labels": {"app": "web"}}}
        pod["spec"] = {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}
        api.create(f"/api/v1/namespaces/{cluster.namespace}/pods", pod)

    each(cluster.plane.api, range(count), one)


def phases(cluster: Scene, phase: str) -> int:
    """How many Reservations are in a phase."""
    return sum((r.get("status") or {}).get("phase") == phase for r in cluster.api.items(RESERVATIONS))


def bound(cluster: Scene) -> dict[str, str]:
    """Node by name of every bound owner."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    bound_pods = cluster.api.items(path, fieldSelector="spec.nodeName!=")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in bound_pods}


def landed(cluster: Scene, names: list[str]) -> int:
    """Owners on the node of the Reservation that names them."""
    where, count = bound(cluster), 0
    for item in cluster.api.items(RESERVATIONS):
        status = item.get("status") or {}
        owners = status.get("currentOwners") or []
        count += item["metadata"]["name"] in names and any(where.get(o["name"]) == status["nodeName"] for o in owners)
    return count


if __name__ == "__main__":
    main()
