"""Two versions in one cluster: every switch that a rolling upgrade in any order can make, and back, under load.

    .venv/bin/python -m bench.manager.version_skew --older COMMIT      # all 160 switches
    .venv/bin/python -m bench.manager.version_skew --switches 10       # tries it; fewer than all record nothing

The cluster is that of `soak_hours`, installed by this version, with batch jobs that come and go, and with a node whose
cgroups are real. Manager, webhook, extender, dashboard and node agent are each of the older version or of this one: 32
mixtures. An upgrade in any of the 120 orders, and its way back, is a path through them, and each step of such a path
switches a single process in a single mixture: 5 * 32 = 160 switches. The run makes each of them once (they form one
closed walk, because every mixture is entered as often as it is left), so every step of every order was made, and each
pair of processes was seen in all four mixtures, with all mixtures of the others. What a path could still add is what an
earlier step left behind in the store, the ledger and the agent's notes; all 160 share these.

After each switch all has to work with the others as they are: what `soak_hours` asks for; a pod's whole way to its
limits on the real node (`skewed_node`); the dashboard's page, dry run and acceptance or rollback (`skewed_dashboard`).
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, combinations, cycle
from pathlib import Path
from typing import Final

from bench.closed_loop.closed_loop_live import NODES, PODS_A_NODE, SEED
from bench.closed_loop.live_cluster import live_cluster, live_world
from bench.closed_loop.live_play import LivePlay, LoopRecord
from bench.manager.skewed_dashboard import ActingDashboard
from bench.manager.skewed_node import EnforcedNode, Succession
from bench.manager.soak_faults import HOPELESS_SECONDS, LOOK_SECONDS, PROBES, Stage, await_working, features_up
from bench.manager.soak_hours import PROCESSES, SPEED, WITHIN_SECONDS, SteadyPace
from bench.record import ROOT, Row, above, below, record
from cotenant.experiment.install import USAGE
from cotenant.experiment.loop import jobs_of
from cotenant.experiment.outcome import STEP_SECONDS, SharingScenario
from cotenant.experiment.world import SLOTS_PER_DAY
from cotenant_lab.experiment.worlds import SYNTHETIC
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server
from tests.support import kubepods
from tests.support.invariants import Violation, auditing, recording, violations

AGO: Final = "HEAD~150"
"""About a day of commits."""
AGENT, DASHBOARD = "node agent", "dashboard"
COMPONENTS: Final = (*PROCESSES, DASHBOARD, AGENT)
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
    """What was seen.

    recoveries: seconds until all worked after a switch; stuck: why the run ended before its end, "" when it did not;
    ended: processes that ended by themselves; given_back: ends of a node agent without another one; left: values that
    it did not give back then; lifted: successions in which a limit was lifted; acts: by the dashboards' REST API.
    """

    recoveries: list[tuple[Switch, float]] = field(default_factory=list)
    stuck: str = ""
    ended: tuple[str, ...] = ()
    tracebacks: tuple[str, ...] = ()
    broken: tuple[Violation, ...] = ()
    given_back: int = 0
    left: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()
    acts: int = 0


def switches() -> list[Switch]:
    """Every switch of every mixture once, as one walk that begins and ends where no process is older (Hierholzer)."""
    sizes = range(len(COMPONENTS) + 1)
    mixtures = chain.from_iterable(combinations(COMPONENTS, size) for size in sizes)
    remaining = {frozenset(mixture): list(COMPONENTS) for mixture in mixtures}
    walk, path = list[Switch](), [(frozenset[str](), Switch("", older=False))]
    while path:
        mixture, came_by = path[-1]
        if remaining[mixture]:
            name = remaining[mixture].pop()
            path.append((mixture ^ {name}, Switch(name, older=name not in mixture)))
        else:
            path.pop()
            walk.append(came_by)
    return walk[-2::-1]  # the last one is the beginning, which nothing led to


def only_from(source: Path) -> dict[str, str]:
    """Environment of programs that import from there, and so does what they start: not from the working folder first,
    which is this version's.
    """
    return {"PYTHONPATH": str(source), "PYTHONSAFEPATH": "1"}


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
    environment = shlex.join(f"{name}={value}" for name, value in only_from(source).items())
    command.write_text(f"#!/bin/sh\nexec env {environment} {sys.executable} -c '{RUN}' \"$@\"\n")
    command.chmod(0o755)
    return command


@dataclass(frozen=True, slots=True)
class Skewing:
    """The cluster, and the two parts that `soak_hours` does not have."""

    stage: Stage
    node: EnforcedNode
    dashboard: ActingDashboard

    def await_working(self) -> None:
        """Until every part works and has done something new; TimeoutError says what does not."""
        await_working(self.stage)
        start = time.monotonic()
        while why := (self.node.why_not_working() or self.dashboard.why_not_working()):
            if time.monotonic() - start > HOPELESS_SECONDS:
                raise TimeoutError(f"{why}, {HOPELESS_SECONDS:g} s after a switch")
            time.sleep(LOOK_SECONDS)


class Upgrades:
    """What is switched after so many steps of the play."""

    def __init__(
        self, skewing: Skewing, play: LivePlay, due: Sequence[Switch], older: Path, observations: Skewed
    ) -> None:
        self._skewing, self._play, self._due, self._seen = skewing, play, iter(due), observations
        self._older, self._ways = str(older), cycle(Succession)

    def __call__(self, step: int, _so_far: LoopRecord) -> None:
        """Switch a process, and wait until all parts work."""
        if (step + 1) % STEPS_A_SWITCH:
            return
        switch, stage = next(self._due), self._skewing.stage
        command = self._older if switch.older else here()
        start = time.monotonic()
        if switch.process == AGENT:
            stage.servers[AGENT] = self._skewing.node.follow(command, next(self._ways))
        else:
            server = stage.servers[switch.process]
            server.stop()
            server.command = [command, *server.command[1:]]
            server.start()
            start = time.monotonic()
        self._skewing.await_working()
        self._seen.recoveries.append((switch, time.monotonic() - start))
        number = len(self._seen.recoveries)
        print(f"{number}. {switch}: all works after {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        self._play.api = stage.plane.api()


def here() -> str:
    """The command of this version."""
    return str(Path(sys.executable).with_name("cotenant"))


def skewed(folder: Path, older: str, count: int) -> Skewed:
    """Play on a live cluster while its processes change their version, so many times."""
    due, command = switches()[:count], checked_out(older, folder)
    steps = len(due) * STEPS_A_SWITCH
    scenario = SharingScenario(SYNTHETIC, NODES, NODES * PODS_A_NODE, -(-steps // SLOTS_PER_DAY), SEED)
    live, (log, flags), observations = live_world(scenario), auditing(folder), Skewed()
    parts: dict[str, Server] = {}
    with ExitStack() as stack:
        plane = stack.enter_context(live_cluster(live, folder, USAGE, SPEED, flags, parts))
        with closing(plane.api()) as api:
            create_namespace(api, PROBES)
        play = LivePlay(live, jobs_of(live.cluster), plane.api())
        play.begin(lambda: True)
        node = EnforcedNode(plane, stack.enter_context(kubepods.Kubepods()), folder, here())
        stack.callback(node.kill)
        dashboard = ActingDashboard(plane, (folder / "store").as_uri(), folder, here())
        stack.callback(dashboard.server.kill)
        stage = Stage(plane, live, {**parts, DASHBOARD: dashboard.server, AGENT: node.server})
        await_working(stage)
        stage.up = features_up(plane.api())
        skewing = Skewing(stage, node, dashboard)
        skewing.await_working()
        try:
            play.run(steps, SteadyPace(STEP_SECONDS / SPEED), Upgrades(skewing, play, due, command, observations))
        except (TimeoutError, AssertionError, RuntimeError) as error:  # what was waited for did not come
            observations.stuck = str(error)
        observations.ended = tuple(name for name in stage.ended if name in COMPONENTS)
        node.end()
        observations.given_back, observations.left = node.given_back, tuple(node.left)
        observations.lifted, observations.acts = tuple(node.lifted), dashboard.acts
        observations.broken = violations(recording(log, dashboard.ledger, [node.files]))
        logs = {folder / f"{name}.log" for name in COMPONENTS if name != AGENT} | set(folder.glob("node-agent-*.log"))
        observations.tracebacks = tuple(sorted(log.stem for log in logs for _ in tracebacks(log)))
    return observations


def tracebacks(log: Path) -> Iterator[str]:
    """The lines of a log with which a traceback begins."""
    return (line for line in log.read_text("utf-8", "replace").splitlines() if line.startswith("Traceback"))


def rows(observations: Skewed, count: int) -> list[Row]:
    """Switches, what they took, and what broke."""
    slowest = max(observations.recoveries, key=lambda of: of[1], default=(None, 0.0))
    broken = Counter(violation.invariant for violation in observations.broken)
    return [
        above("switches after which all worked", len(observations.recoveries), "switches", count, observations.stuck),
        below("slowest switch", round(slowest[1], 1), "s", WITHIN_SECONDS, str(slowest[0] or "")),
        above("acceptances and rollbacks by a dashboard", observations.acts, "acts", count),
        below(
            "processes of ours that ended by themselves",
            len(observations.ended),
            "times",
            0,
            ", ".join(observations.ended),
        ),
        below("tracebacks in their logs", len(observations.tracebacks), "times", 0, ", ".join(observations.tracebacks)),
        below(
            "invariants broken", len(observations.broken), "times", 0, ", ".join(f"{n} {c}" for n, c in broken.items())
        ),
        below(
            "cgroup values that a node agent left behind at its end",
            len(observations.left),
            "values",
            0,
            f"{observations.given_back} ends: {', '.join(observations.left[:5])}".removesuffix(": "),
        ),
        below(
            "limits lifted while one node agent followed another",
            len(observations.lifted),
            "times",
            0,
            ", ".join(observations.lifted),
        ),
    ]


def main() -> int:
    everything = len(switches())
    parser = argparse.ArgumentParser()
    parser.add_argument("--older", default=AGO, help=f"the commit of the older version, {AGO} unless given")
    parser.add_argument("--switches", type=int, default=everything, help=f"fewer than {everything} record nothing")
    options = parser.parse_args()
    if missing := kubepods.missing():
        print(f"version_skew: not measured: {missing}", file=sys.stderr)
        return 0
    git_command = ["git", "rev-parse", "--short=8", options.older]
    older = subprocess.run(git_command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(skewed(Path(folder), older, options.switches), options.switches)
    command = f".venv/bin/python -m bench.manager.version_skew --older {older}"
    record("version_skew", command, measured, is_kept=options.switches >= everything)
    return int(any(row.met is False for row in measured))


if __name__ == "__main__":
    sys.exit(main())
