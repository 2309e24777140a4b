"""Hours of a live cluster with a fault a minute: what stayed right, what came back, and what grew.

    .venv/bin/python -m bench.manager.soak_hours                  # two hours
    .venv/bin/python -m bench.manager.soak_hours --minutes 12     # tries it; less than an hour is not recorded

The cluster is that of `closed_loop_live`, with manager, webhook, extender, a stock scheduler, batch jobs that come and
go, and a node that joins and leaves each minute. A seeded list says which fault comes when; after each one all parts
have to work again. At the end the installation is removed, and every object of every kind is searched.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.closed_loop.closed_loop_live import NODES, PODS_A_NODE, SEED
from bench.closed_loop.live_cluster import NAMESPACE, live_cluster, live_world, translates
from bench.closed_loop.live_play import STEP_ANNOTATION, LivePlay, LoopRecord
from bench.manager.process_growth import ProcessSample, growth, longest_life, sample
from bench.manager.soak_faults import PROBES, SoakFault, Stage, await_working, features_up, seeded_faults
from bench.record import ROOT, Row, above, below, record
from cotenant.experiment.install import USAGE
from cotenant.experiment.loop import jobs_of
from cotenant.experiment.outcome import STEP_SECONDS, SharingScenario
from cotenant.experiment.world import SLOTS_PER_DAY
from cotenant_lab.experiment.worlds import SYNTHETIC
from tests.cluster import second_scheduler as second
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server
from tests.cluster.remains import KEPT, everything, traces
from tests.cluster.shell import Shell, environment_of
from tests.support.invariants import Violation, auditing, recording, violations

MINUTES, LEAST_MINUTES, SPEED = 120.0, 60.0, 60.0
STEPS_A_MINUTE: Final = int(60 * SPEED / STEP_SECONDS)
PROCESSES: Final = ("manager", "webhook", "extender")
WITHIN_SECONDS: Final = 60.0
GROWTH: Final = 0.05
ASKED: Final = 15
"""Pods that are tried each minute, to see what an admission takes."""
OF_OTHERS: Final = ("scheduler", "cotenant-demo-", f"leases/kube-system/{second.NAME}")
"""In the names of objects that no installation makes: what the documented commands for the second scheduler make, which
whoever typed them removes, and the namespaces of the world."""
OWNED: Final = ("replicasets/", "pods/", "endpointslices/", "jobs/")
"""What goes with its owner, where a garbage collector runs; this cluster has none."""


@dataclass(eq=False)
class Soaked:
    """What was seen.

    recoveries: seconds after each fault by its name; admissions: the time of one by that of an object without
    webhooks, each minute; ended: processes that ended by themselves.
    """

    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    samples: list[ProcessSample] = field(default_factory=list)
    admissions: list[float] = field(default_factory=list)
    ended: tuple[str, ...] = ()
    broken: tuple[Violation, ...] = ()
    left: tuple[str, ...] = ()


class SteadyPace:
    """Gives each step its share of wall time; what a fault took is not caught up with."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds, self._last = step_seconds, time.monotonic()

    def __call__(self, _step: int, so_far: LoopRecord) -> None:
        """Sleep until the step's end."""
        left_seconds = self._last + self._step_seconds - time.monotonic()
        so_far.late += left_seconds < 0
        time.sleep(max(0.0, left_seconds))
        self._last = time.monotonic()


class Minutes:
    """What happens at the end of each minute of the play: churn of nodes, measurements, and a fault."""

    def __init__(self, stage: Stage, play: LivePlay, faults: Sequence[SoakFault], observations: Soaked) -> None:
        self._stage, self._play, self._faults, self._seen = stage, play, faults, observations
        self._begun, self._joined = time.monotonic(), ""

    def __call__(self, step: int, _so_far: LoopRecord) -> None:
        """Do what is due after a step of the play."""
        minute, rest = divmod(step + 1, STEPS_A_MINUTE)
        if rest:
            return
        self._churn(minute)
        self._measure()
        if minute <= len(self._faults):
            self._strike(self._faults[minute - 1])
        self._play.api = self._stage.plane.api()  # the old connection may have ended with its server

    def _churn(self, minute: int) -> None:
        if self._joined:
            delete_nodes(self._stage.plane, [self._joined])
        (self._joined,) = create_nodes(self._stage.plane, 1, NodeShape(prefix=f"joins-{minute}"))

    def _measure(self) -> None:
        minutes = (time.monotonic() - self._begun) / 60
        for name in PROCESSES:
            if (process_sample := sample(name, self._stage.parts[name].pid, minutes)) is not None:
                self._seen.samples.append(process_sample)
        with closing(self._stage.plane.api()) as api:
            self._seen.admissions.append(_admission_by_plain(api))

    def _strike(self, fault: SoakFault) -> None:
        fault.strike(self._stage)
        time.sleep(fault.seconds)
        fault.end(self._stage)
        seconds = await_working(self._stage)
        self._seen.recoveries[fault.name].append(seconds)
        print(f"{fault.name}: works again after {seconds:.1f} s", file=sys.stderr, flush=True)


def _admission_by_plain(api: Api) -> float:
    """The time of a pod's admission as a multiple of that of an object without webhooks, both dry runs.

    Each is the fastest of several that take turns, so that what else the machine does at that time cancels out.
    """
    plain = {"metadata": {"name": "plain"}}
    pods, others = [], []
    for _ in range(ASKED):
        pods.append(_seconds_of(lambda: translates(api)))
        others.append(_seconds_of(lambda: api.create(f"/api/v1/namespaces/{PROBES}/configmaps", plain, dryRun="All")))
    return min(pods) / min(others)


def _seconds_of(request: Callable[[], object]) -> float:
    start = time.perf_counter()
    request()
    return time.perf_counter() - start


def soaked(folder: Path, minutes: float, seed: int = SEED) -> Soaked:
    """Soak a live cluster for so many minutes of wall time, the time of the faults not counted."""
    steps = max(1, int(minutes * STEPS_A_MINUTE))
    scenario = SharingScenario(SYNTHETIC, NODES, NODES * PODS_A_NODE, -(-steps // SLOTS_PER_DAY), SEED)
    live, (log, flags), observations = live_world(scenario), auditing(folder), Soaked()
    parts: dict[str, Server] = {}
    with live_cluster(live, folder, USAGE, SPEED, flags, parts) as plane:
        create_namespace(plane.api(), PROBES)
        play = LivePlay(live, jobs_of(live.cluster), plane.api())
        play.begin(lambda: True)
        stage = Stage(plane, live, parts)
        await_working(stage)
        stage.up = features_up(plane.api())
        faults = seeded_faults(int(minutes), seed)
        play.run(steps, SteadyPace(STEP_SECONDS / SPEED), Minutes(stage, play, faults, observations))
        observations.ended = tuple(stage.ended)
        observations.broken = violations(recording(log))
        observations.left = tuple(sorted(_after_uninstallation(plane, folder, parts)))
    return observations


def _after_uninstallation(plane: ControlPlane, folder: Path, parts: dict[str, Server]) -> set[str]:
    """Objects with anything of ours once it was removed, without what is kept by design."""
    for name in PROCESSES:
        parts[name].stop()
    api = plane.api()
    pods = [f"/api/v1/namespaces/{p['metadata']['namespace']}/pods/{p['metadata']['name']}"
            for p in api.items("/api/v1/pods")]  # fmt: skip
    each(plane.api, pods, lambda own, path: own.delete(path, gracePeriodSeconds="0"))
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    for node in api.items("/api/v1/nodes"):  # what the play noted there
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"annotations": {STEP_ANNOTATION: None}}})
    shell = Shell(environment_of(plane, folder), ROOT, folder)
    command = shlex.quote(str(Path(sys.executable).with_name("cotenant")))
    done = shell.run(f"{command} uninstall --crds --yes")
    if done.returncode:
        raise RuntimeError(f"cotenant uninstall: {done.stdout}\n{done.stderr}")
    traces_by_name = {name: next(traces(item), "") for name, item in everything(api) if name not in KEPT}
    leftovers = {name: trace for name, trace in traces_by_name.items() if trace and not name.startswith(OWNED)}
    return {f"{name} ({trace})" for name, trace in leftovers.items() if not any(word in name for word in OF_OTHERS)}


def rows(observations: Soaked, minutes: float) -> list[Row]:
    """Faults, recoveries, invariants, growth of each process, and what an uninstallation left."""
    struck = sum(map(len, observations.recoveries.values()))
    own = [name for name in observations.ended if name in PROCESSES]
    slowest = {name: max(seconds) for name, seconds in observations.recoveries.items()}
    note = ", ".join(
        f"{name} {max(seconds):.0f} s of {len(seconds)}" for name, seconds in observations.recoveries.items()
    )
    table_rows = [
        above("faults struck", struck, "faults", int(minutes), note),
        below("slowest recovery", round(max(slowest.values(), default=0.0), 1), "s", WITHIN_SECONDS),
        below("processes of ours that ended by themselves", len(own), "times", 0, _counted(observations.ended)),
        below(
            "invariants broken",
            len(observations.broken),
            "times",
            0,
            _counted([v.invariant for v in observations.broken]),
        ),
    ]
    for name in PROCESSES:
        life = longest_life(observations.samples, name)
        for what in ("memory_bytes", "open_files", "threads"):
            values = [float(getattr(life_sample, what)) for life_sample in life]
            table_rows.append(_growth_row(f"{name}: growth of {what}", values))
    table_rows.append(
        _growth_row("growth of the time of an admission, by that without webhooks", observations.admissions)
    )
    table_rows.append(
        below(
            "objects left by an uninstallation", len(observations.left), "objects", 0, ", ".join(observations.left[:10])
        )
    )
    return table_rows


def _growth_row(metric: str, values: Sequence[float]) -> Row:
    grown = growth(values)
    if grown is None:
        return Row(metric, len(values), "samples", note="too few to say")
    return below(metric, round(grown, 4), "ratio", GROWTH, f"{min(values):,.4g} to {max(values):,.4g}")


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"of wall time; fewer than {LEAST_MINUTES:g} record nothing"
    )
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(soaked(Path(folder), minutes), minutes)
    command = f".venv/bin/python -m bench.manager.soak_hours --minutes {minutes:g}"
    record("soak_hours", command, measured, is_kept=minutes >= LEAST_MINUTES)
    return int(any(row.met is False for row in measured))


if __name__ == "__main__":
    sys.exit(main())
