"""How soon Reservations hold their room, and how exactly they end.

.venv/bin/python -m bench.reservations.reservation_available [--nodes 5000] [--counts 100 1000]

Real kube-apiserver and kube-scheduler with default sampling; the manager is a process of its own. The clock runs from
the first Reservation's creation (16 connections) until the API server shows the last one Available. Then as many with a
ttl of 20 to 40 s: lateness is the moment at which one is seen Failed, less its deadline, polled every 50 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import Row, below, record
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.disturbed import manager_process
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, install

GOALS = {100: 5.0, 1000: 40.0}
TTL_COUNT = 100


def body(name: str, ttl: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
    spec = {"template": {"spec": {"containers": containers}}, "owners": [{"object": {"name": name}}], "ttl": ttl}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": spec,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--counts", type=int, nargs="*", default=[100, 1000])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reservation-available-"))
    rows = []
    with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
        install(plane)
        seed_nodes(plane, options.nodes, NodeShape(cpu="16"))
        cluster = Scene(plane, create_namespace(plane.api(), "bench"))
        with manager_process(cluster, folder):
            available(cluster, "warm", 1)
            for count in options.counts:
                took = available(cluster, f"r{count}", count)
                goal = GOALS.get(count, 40.0)
                rows.append(below(f"{count} Reservations to Available, {options.nodes} nodes", took, "s", goal))
            late = lateness(cluster, min(TTL_COUNT, *options.counts))
    rows += [
        below("ttl over to Failed, longest", round(max(late), 2), "s", 5, f"{len(late)} Reservations"),
        Row("ttl over to Failed, p50", round(float(np.percentile(late, 50)), 2), "s"),
        Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
    ]
    command = " ".join([".venv/bin/python -m bench.reservations.reservation_available", *sys.argv[1:]])
    record("reservation_available", command, rows)


def available(cluster: Scene, prefix: str, count: int) -> float:
    """Seconds from the first creation to the last one Available."""
    start = time.monotonic()
    names = [f"{prefix}-{i}" for i in range(count)]
    each(cluster.plane.api, names, lambda api, name: api.create(RESERVATIONS, body(name, "0s")))

    def ready() -> bool:
        reservations = cluster.api.items(RESERVATIONS)
        return len([r for r in reservations if (r.get("status") or {}).get("phase") == "Available"]) >= count

    wait_for(f"{count} Reservations", ready, 600, 0.1)
    took = time.monotonic() - start
    each(cluster.plane.api, names, lambda api, name: api.delete(f"{RESERVATIONS}/{name}"))
    path = "/api/v1/namespaces/cotenant-reservations/pods"
    wait_for("no placeholders", lambda: not cluster.api.items(path), 600, 0.2)
    return round(took, 2)


def lateness(cluster: Scene, count: int) -> list[float]:
    """Seconds between each deadline and the moment at which the Reservation is seen Failed."""
    names = {f"ttl-{i}": f"{20 + 20 * i // count}s" for i in range(count)}
    each(cluster.plane.api, names.items(), lambda api, pair: api.create(RESERVATIONS, body(*pair)))
    late_seconds: dict[str, float] = {}

    def over() -> bool:
        for item in cluster.api.items(RESERVATIONS):
            name = item["metadata"]["name"]
            if name in names and name not in late_seconds and (item.get("status") or {}).get("phase") == "Failed":
                late_seconds[name] = time.time() - (Reservation.parse(item).deadline_seconds or 0.0)
        return len(late_seconds) == count

    wait_for("all have ended", over, 300)
    return list(late_seconds.values())


if __name__ == "__main__":
    main()
