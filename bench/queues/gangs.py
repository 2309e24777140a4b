"""Gangs on a stock scheduler: whole or nothing, no deadlock, room given back in time, and how soon one starts.

.venv/bin/python -m bench.queues.gangs [--rounds 200] [--samples 20] [--nodes 500] [--releases 5]

Real kube-apiserver and kube-scheduler; the manager is a process of its own with its own rights. A round creates 10
gangs of 16 side by side where 6 have room (24 nodes of 4 cores), waits until 6 run and the others hold nothing, deletes
those that run, and waits for the other 4. A partial start: a gang of which some but not all members are bound once
nothing moves any more. Start: from the creation of the last of 16 members to all of them bound, polled every 20 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.record import Row, below, record
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.queues.gang_scene import GangScene, install_queues

GANGS, MEMBERS, FITTING = 10, 16, 6
PATIENCE_SECONDS = 120.0
PLACE_SECONDS = 5.0
PARTS = {"part": "rounds"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--releases", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gangs-"))
    with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
        install_queues(plane)
        create_nodes(plane, 24, NodeShape(cpu="4", prefix="rounds", labels=PARTS))
        seed_nodes(plane, options.nodes, NodeShape(cpu="16"))
        cluster = GangScene(plane, create_namespace(plane.api(), "bench"))
        with cluster.process(folder):
            started(cluster, "warm")
            starts = [started(cluster, f"start-{number}") for number in range(options.samples)]
            partial = deadlocks = 0
            durations = []
            for number in range(options.rounds):
                start = time.monotonic()
                round_counts = one_round(cluster, number)
                partial, deadlocks = partial + round_counts[0], deadlocks + round_counts[1]
                durations.append(time.monotonic() - start)
        releases = released(cluster, folder, options.releases)
    of = f"{options.rounds} rounds of {GANGS} gangs x {MEMBERS} pods, room for {FITTING}"
    p95 = round(float(np.percentile(starts, 95)), 2)
    rows = [
        below("partial starts", partial, "gangs", 0, of),
        below("deadlocks", deadlocks, "rounds", 0, f"a round that did not end within {PATIENCE_SECONDS:g} s"),
        Row("one round, p50", round(float(np.median(durations)), 1), "s"),
        below("time over to all room given back, longest", round(max(releases), 2), "s", 5, f"{len(releases)} gangs"),
        below(
            f"last member created to {MEMBERS} bound, p95", p95, "s", 3, f"{len(starts)} gangs, {options.nodes} nodes"
        ),
        Row(f"last member created to {MEMBERS} bound, p50", round(float(np.median(starts)), 2), "s"),
        Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
    ]
    record("gangs", " ".join([".venv/bin/python -m bench.queues.gangs", *sys.argv[1:]]), rows)


def started(cluster: GangScene, name: str) -> float:
    """Seconds from the last member's creation to all members bound; the gang is gone afterwards."""
    cluster.gang(name, MEMBERS, "1")
    start = time.monotonic()
    wait_for(f"{name} runs", lambda: cluster.bound(name) == MEMBERS, PATIENCE_SECONDS, 0.02)
    took = time.monotonic() - start
    empty(cluster)
    return took


def one_round(cluster: GangScene, number: int) -> tuple[int, int]:
    """Gangs that started in part, and 1 when the round did not end in time."""
    names = [f"r{number}-{gang}" for gang in range(GANGS)]
    for name in names:
        cluster.gang(name, MEMBERS, "1", nodeSelector=PARTS)
    partial = deadlocks = 0
    remaining = list(names)
    for expected in (FITTING, GANGS - FITTING):
        reached = awaited(cluster, expected)
        deadlocks |= not reached
        counts = {name: cluster.bound(name) for name in remaining}
        partial += sum(0 < bound < MEMBERS for bound in counts.values())
        remaining = [name for name in remaining if counts[name] < MEMBERS]
        for name in names:
            if name not in remaining:
                cluster.remove(name)
    empty(cluster)
    return partial, int(deadlocks)


def awaited(cluster: GangScene, expected: int) -> bool:
    """Whether so many gangs came to run, and the others to hold nothing, in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        pods = cluster.api.items(f"/api/v1/namespaces/{cluster.namespace}/pods")
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if bound == expected * MEMBERS and not cluster.gang_reservations():
            return True
        time.sleep(0.2)
    return False


def released(cluster: GangScene, folder: Path, count: int) -> list[float]:
    """Seconds from the end of the time for placing to nothing held; the scheduler never answers."""
    cluster.queues = {**cluster.queues, "gang_place_seconds": PLACE_SECONDS, "longest_back_off_seconds": 600.0}
    cluster.queues["back_off_seconds"] = 600.0
    late = []
    with cluster.process(folder, scheduler_name="nobody"):
        for number in range(count):
            cluster.gang(f"late-{number}", MEMBERS, "1")
            wait_for("room is asked for", lambda: len(cluster.all_placeholders()) == MEMBERS, PATIENCE_SECONDS)
            start = time.monotonic()
            wait_for(
                "all is given back", lambda: not cluster.gang_reservations() and not cluster.all_placeholders(), 60
            )
            late.append(max(0.0, time.monotonic() - start - PLACE_SECONDS))
            empty(cluster)
    return late


def empty(cluster: GangScene) -> None:
    """No pod, no Reservation, no placeholder."""
    cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods", gracePeriodSeconds="0")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    wait_for("no pods", lambda: not cluster.api.items(path), 120)
    wait_for("nothing is held", lambda: not cluster.gang_reservations() and not cluster.all_placeholders(), 120)


if __name__ == "__main__":
    main()
