"""Two versions in one cluster: every order in which processes may be an older version and come back, under load.

    .venv/bin/python -m bench.manager.version_skew --older COMMIT    # all six orders
    .venv/bin/python -m bench.manager.version_skew --orders 1        # tries it; fewer than six record nothing

The cluster is that of `soak_hours`, installed by this version, with batch jobs that come and go. For each order of
manager, webhook and extender, one after the other becomes the older version, and one after the other this one again.
After each switch all parts have to work again, with the others as they are. Dashboard and node agent have no part:
these nodes are objects only, and the dashboard writes nothing by itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice, permutations
from pathlib import Path
from typing import Final

from bench.closed_loop.closed_loop_live import NODES, PODS_A_NODE, SEED
from bench.closed_loop.live_cluster import live_cluster, live_world
from bench.closed_loop.live_play import LivePlay, LoopRecord
from bench.manager.soak_faults import PROBES, Stage, await_working, features_up
from bench.manager.soak_hours import PROCESSES, SPEED, WITHIN_SECONDS, SteadyPace
from bench.record import ROOT, Row, above, below, record
from cotenant.experiment.install import USAGE
from cotenant.experiment.loop import jobs_of
from cotenant.experiment.outcome import STEP_SECONDS, SharingScenario
from cotenant.experiment.world import SLOTS_PER_DAY, SYNTHETIC
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server
from tests.support.invariants import Violation, auditing, recording, violations

AGO: Final = "HEAD~150"
"""About a day of commits."""
ORDERS: Final = 6
"""Of three processes."""
STEPS_A_SWITCH: Final = 1
"""Steps of the play before each switch: five minutes of the world in five seconds."""
RUN: Final = "import sys; from cotenant.cli.main import run; sys.exit(run())"


@dataclass(frozen=True, slots=True)
class Switch:
    """A process that becomes another version. older: the older one, else this one."""

    process: str
    older: bool

    def __str__(self) -> str:
        return f"{self.process} {'older' if self.older else 'as here'}"


@dataclass(eq=False)
class Skewed:
    """What was seen. recoveries: seconds until all worked after a switch; ended: processes that ended by themselves."""

    recoveries: list[tuple[Switch, float]] = field(default_factory=list)
    ended: tuple[str, ...] = ()
    tracebacks: tuple[str, ...] = ()
    broken: tuple[Violation, ...] = ()


def switches(orders: int) -> list[Switch]:
    """The way to the older version and back, for each of so many orders."""
    chosen = islice(permutations(PROCESSES), orders)
    return [Switch(name, older) for order in chosen for older in (True, False) for name in order]


def checked_out(commit: str, folder: Path) -> Path:
    """A command that runs the cotenant of a commit, with the packages that are installed here."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    source = folder / "older"
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(source, filter="data")
    for room in source.glob("*/__init__.py"):
        link = source / "cotenant" / room.parent.name
        if room.parent.name != "cotenant" and not link.exists():
            link.symlink_to(room.parent)
    command = folder / "cotenant-older"
    command.write_text(f"#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -P -c '{RUN}' \"$@\"\n")
    command.chmod(0o755)
    return command


class Upgrades:
    """What is switched after so many steps of the play."""

    def __init__(self, stage: Stage, play: LivePlay, due: Sequence[Switch], older: Path, seen: Skewed) -> None:
        self._stage, self._play, self._due, self._seen = stage, play, iter(due), seen
        self._older = str(older)
        self._here = {name: stage.parts[name].command[0] for name in PROCESSES}

    def __call__(self, step: int, _so_far: LoopRecord) -> None:
        """Switch a process, and wait until all parts work."""
        if (step + 1) % STEPS_A_SWITCH:
            return
        switch = next(self._due)
        server = self._stage.parts[switch.process]
        server.stop()
        server.command = [self._older if switch.older else self._here[switch.process], *server.command[1:]]
        server.start()
        begun = time.monotonic()
        await_working(self._stage)
        self._seen.recoveries.append((switch, time.monotonic() - begun))
        print(f"{switch}: all works after {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
        self._play.api = self._stage.plane.api()


def skewed(folder: Path, older: str, orders: int) -> Skewed:
    """Play on a live cluster while its processes change their version."""
    due, command = switches(orders), checked_out(older, folder)
    steps = len(due) * STEPS_A_SWITCH
    scenario = SharingScenario(SYNTHETIC, NODES, NODES * PODS_A_NODE, -(-steps // SLOTS_PER_DAY), SEED)
    live, (log, words), seen = live_world(scenario), auditing(folder), Skewed()
    parts: dict[str, Server] = {}
    with live_cluster(live, folder, USAGE, SPEED, words, parts) as plane:
        with closing(plane.api()) as api:
            create_namespace(api, PROBES)
        play = LivePlay(live, jobs_of(live.world), plane.api())
        play.begin(lambda: True)
        stage = Stage(plane, live, parts)
        await_working(stage)
        stage.up = features_up(plane.api())
        play.run(steps, SteadyPace(STEP_SECONDS / SPEED), Upgrades(stage, play, due, command, seen))
        seen.ended = tuple(name for name in stage.ended if name in PROCESSES)
        seen.broken = violations(recording(log))
        seen.tracebacks = tuple(sorted(name for name in PROCESSES for _ in tracebacks(parts[name].log)))
    return seen


def tracebacks(log: Path) -> Iterator[str]:
    """The lines of a log with which a traceback begins."""
    return (line for line in log.read_text("utf-8", "replace").splitlines() if line.startswith("Traceback"))


def rows(seen: Skewed, orders: int) -> list[Row]:
    """Switches, what they took, and what broke."""
    slowest = max(seen.recoveries, key=lambda of: of[1], default=(None, 0.0))
    broken = Counter(violation.invariant for violation in seen.broken)
    return [
        above("switches after which all worked", len(seen.recoveries), "switches", len(switches(orders))),
        below("slowest switch", round(slowest[1], 1), "s", WITHIN_SECONDS, str(slowest[0] or "")),
        below("processes of ours that ended by themselves", len(seen.ended), "times", 0, ", ".join(seen.ended)),
        below("tracebacks in their logs", len(seen.tracebacks), "times", 0, ", ".join(seen.tracebacks)),
        below("invariants broken", len(seen.broken), "times", 0, ", ".join(f"{n} {c}" for n, c in broken.items())),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--older", default=AGO, help=f"the commit of the older version, {AGO} unless given")
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"fewer than {ORDERS} record nothing")
    given = parser.parse_args()
    named = ["git", "rev-parse", "--short=8", given.older]
    older = subprocess.run(named, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(skewed(Path(folder), older, given.orders), given.orders)
    command = f".venv/bin/python -m bench.manager.version_skew --older {older}"
    record("version_skew", command, measured, is_kept=given.orders >= ORDERS)
    return int(any(row.met is False for row in measured))


if __name__ == "__main__":
    sys.exit(main())
