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
        scene = GangScene(plane, create_namespace(plane.api(), "bench"))
        with scene.process(folder):
            started(scene, "warm")
            starts = [started(scene, f"start-{number}") for number in range(options.samples)]
            partial = deadlocks = 0
            durations = []
            for number in range(options.rounds):
                begun = time.monotonic()
                found = one_round(scene, number)
                partial, deadlocks = partial + found[0], deadlocks + found[1]
                durations.append(time.monotonic() - begun)
        releases = released(scene, folder, options.releases)
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


def started(scene: GangScene, name: str) -> float:
    """Seconds from the last member's creation to all members bound; the gang is gone afterwards."""
    scene.gang(name, MEMBERS, "1")
    begun = time.monotonic()
    wait_for(f"{name} runs", lambda: scene.bound(name) == MEMBERS, PATIENCE_SECONDS, 0.02)
    took = time.monotonic() - begun
    empty(scene)
    return took


def one_round(scene: GangScene, number: int) -> tuple[int, int]:
    """Gangs that started in part, and 1 when the round did not end in time."""
    names = [f"r{number}-{gang}" for gang in range(GANGS)]
    for name in names:
        scene.gang(name, MEMBERS, "1", nodeSelector=PARTS)
    partial = deadlocks = 0
    remaining = list(names)
    for expected in (FITTING, GANGS - FITTING):
        reached = awaited(scene, expected)
        deadlocks |= not reached
        counts = {name: scene.bound(name) for name in remaining}
        partial += sum(0 < bound < MEMBERS for bound in counts.values())
        remaining = [name for name in remaining if counts[name] < MEMBERS]
        for name in names:
            if name not in remaining:
                scene.remove(name)
    empty(scene)
    return partial, int(deadlocks)


def awaited(scene: GangScene, expected: int) -> bool:
    """Whether so many gangs came to run, and the others to hold nothing, in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        pods = scene.api.items(f"/api/v1/namespaces/{scene.namespace}/pods")
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if bound == expected * MEMBERS and not scene.held():
            return True
        time.sleep(0.2)
    return False


def released(scene: GangScene, folder: Path, count: int) -> list[float]:
    """Seconds from the end of the time for placing to nothing held; the scheduler never answers."""
    scene.queues = {**scene.queues, "gang_place_seconds": PLACE_SECONDS, "longest_back_off_seconds": 600.0}
    scene.queues["back_off_seconds"] = 600.0
    late = []
    with scene.process(folder, scheduler_name="nobody"):
        for number in range(count):
            scene.gang(f"late-{number}", MEMBERS, "1")
            wait_for("room is asked for", lambda: len(scene.all_placeholders()) == MEMBERS, PATIENCE_SECONDS)
            begun = time.monotonic()
            wait_for("all is given back", lambda: not scene.held() and not scene.all_placeholders(), 60)
            late.append(max(0.0, time.monotonic() - begun - PLACE_SECONDS))
            empty(scene)
    return late


def empty(scene: GangScene) -> None:
    """No pod, no Reservation, no placeholder."""
    scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods", gracePeriodSeconds="0")
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    wait_for("no pods", lambda: not scene.api.items(path), 120)
    wait_for("nothing is held", lambda: not scene.held() and not scene.all_placeholders(), 120)


if __name__ == "__main__":
    main()
