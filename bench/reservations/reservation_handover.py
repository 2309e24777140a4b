"""Reserved room changes hands under eight strangers each: undisturbed, with kills, with strangers on another scheduler.

.venv/bin/python -m bench.reservations.reservation_handover [--rounds 200] [--side-by-side 10]

Real kube-apiserver and kube-scheduler, nodes played by kwok. Of every node three of four cores are held, 8 strangers
want them, and the owner arrives (gated, as the webhook would let it in). Counted: owners that landed on their room,
strangers that got it, nodes with more booked than they have. Killed are the manager (a process of its own), the
scheduler, or both, with SIGKILL within the first 0.6 s of each round; a new manager waits for the Lease. In a cluster
of its own the scheduler also asks an extender, which is killed with them or instead.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.record import Row, above, below, record
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.scheduler_ext.reservations.disturbed import (
    OTHER,
    ExtenderProcess,
    Tally,
    killing,
    manager_process,
    rounds,
    second_scheduler,
)
from tests.scheduler_ext.reservations.scene import Scene, install

SEED = 20261120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--side-by-side", type=int, default=10)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reservation-handover-"))
    with ControlPlane(folder / "cluster") as plane:
        install(plane)
        nodes = create_nodes(plane, options.side_by_side, NodeShape(cpu="4"))
        cluster = Scene(plane, create_namespace(plane.api(), "bench"))
        times = max(1, options.rounds // options.side_by_side)
        tallies = {
            "undisturbed": undisturbed(cluster, nodes, times, folder),
            "manager and scheduler killed": killed(cluster, nodes, times, folder),
            "strangers on another scheduler": beside(cluster, nodes, times, folder),
        }
    tallies["extender, manager and scheduler killed"] = killed_with_extender(options.side_by_side, times, folder)
    report(tallies)


def undisturbed(cluster: Scene, nodes: list[str], times: int, folder: Path) -> Tally:
    tally = Tally()
    with manager_process(cluster, folder):
        for _ in range(times):
            rounds(cluster, nodes, tally)
    return tally


def killed(cluster: Scene, nodes: list[str], times: int, folder: Path) -> Tally:
    tally, seed = Tally(), random.Random(SEED)
    with manager_process(cluster, folder) as manager:
        for _ in range(times):
            rounds(cluster, nodes, tally, killing(cluster.plane, manager, seed))
    return tally


def killed_with_extender(side_by_side: int, times: int, folder: Path) -> Tally:
    tally, seed, extender = Tally(), random.Random(SEED), ExtenderProcess(folder)
    with ControlPlane(folder / "with-extender", Options(scheduler=extender.fields)) as plane:
        install(plane)
        nodes = create_nodes(plane, side_by_side, NodeShape(cpu="4"))
        cluster = Scene(plane, create_namespace(plane.api(), "bench"))
        try:
            extender.start(plane)
            with manager_process(cluster, folder) as manager:
                for _ in range(times):
                    rounds(cluster, nodes, tally, killing(plane, manager, seed, extender.again))
        finally:
            extender.kill()
    return tally


def beside(cluster: Scene, nodes: list[str], times: int, folder: Path) -> Tally:
    tally = Tally()
    with manager_process(cluster, folder), second_scheduler(cluster.plane, folder):
        for _ in range(times):
            rounds(cluster, nodes, tally, schedulerName=OTHER)
    return tally


def report(tallies: dict[str, Tally]) -> None:
    rows = []
    for name, tally in tallies.items():
        guards = (
            "the API server's guard and the extender's" if "extender" in name else "no extender, the API server's guard"
        )
        all_, note = tally.rounds, f"of {tally.rounds}, {guards}"
        floor = 0.995 * all_ if "killed" in name else all_
        rows += [
            above(f"owners that landed on their room, {name}", tally.landed, "", floor, note),
            below(f"strangers that got reserved room, {name}", tally.robbed, "", all_ - floor),
            below(f"nodes with more booked than they have, {name}", tally.overbooked, "", 0),
            Row(f"owner created to bound, p50, {name}", round(float(np.percentile(tally.seconds, 50)), 2), "s"),
            Row(f"owner created to bound, longest, {name}", round(max(tally.seconds), 2), "s"),
        ]
    rows.append(Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""))
    command = " ".join([".venv/bin/python -m bench.reservations.reservation_handover", *sys.argv[1:]])
    record("reservation_handover", command, rows)


if __name__ == "__main__":
    main()
