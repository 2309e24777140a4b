"""Start and end of the pods of every seat (a replica's place), and the restarts of their containers.

A seat's life is a list of runs (one pod each) in grid slots. Runs end by deploys, autoscaling, or completed work;
restarts inside a run are OOM kills or plain crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid
from cotenant_lab.synthetic.fleet import Blueprint
from cotenant_lab.synthetic.spec import MemoryShape

FOREVER: Final = 1 << 30
"""End of a run that goes on after the window."""


@dataclass(frozen=True, slots=True)
class ContainerRestart:
    """A restart of a seat's main container at `slot`; `oom` is true if it was killed for lack of memory."""

    slot: int
    oom: bool


@dataclass(frozen=True, slots=True)
class Life:
    """The runs of one seat (a replica's place) and its restarts; runs are slots [start, end), < 0 before the window."""

    runs: tuple[tuple[int, int], ...]
    restarts: tuple[ContainerRestart, ...] = ()


@dataclass(frozen=True, slots=True)
class Lives:
    """All seats of one workload, the slots of its deploys, and the `period` of its memory saw-tooth in slots."""

    seats: tuple[Life, ...]
    deploys: tuple[int, ...] = ()
    period: int = 0

    def running(self, slot: int) -> int:
        """Return the number of seats in which a pod runs at a slot."""
        return sum(any(a <= slot < b for a, b in life.runs) for life in self.seats)


def lives(
    plan: Sequence[Blueprint], load: npt.NDArray[np.float32], grid: TimeGrid, rng: np.random.Generator
) -> tuple[Lives, ...]:
    """Return the lives of every workload's seats; `load` (len(plan), grid.size) scales the autoscaled workloads."""
    return tuple(_lives(blueprint, load[i], grid, rng) for i, blueprint in enumerate(plan))


def _lives(blueprint: Blueprint, load: npt.NDArray[np.float32], grid: TimeGrid, rng: np.random.Generator) -> Lives:
    """Lives of one workload's seats: how many are taken by its load, (grid.size,), cut at deploys where it has them.

    The period of its saw-tooth, 1.5 to 9 days, is drawn even where no memory follows it, so that all else stays.
    """
    begin = _first_slot(blueprint, grid, rng)
    deploys = _deploys(blueprint, begin, grid, rng)
    period = int(rng.uniform(1.5, 9.0) * grid.slots_per_day)
    seats = []
    for seat, spans in enumerate(_spans(blueprint, begin, load, grid, rng)):
        cuts = deploys if blueprint.ref.kind in ("Deployment", "DaemonSet") else ()
        runs = tuple(run for span in spans for run in _cut(span, cuts))
        seats.append(Life(runs, _restarts(blueprint, seat, runs, period, grid, rng)))
    return Lives(tuple(seats), deploys, period)


def _first_slot(blueprint: Blueprint, grid: TimeGrid, rng: np.random.Generator) -> int:
    """First slot of the workload; long before the window for most, in its last third for a few."""
    age = -int(rng.uniform(1, 90) * grid.slots_per_day)
    young = blueprint.archetype in ("online", "internal", "mid") and rng.random() < 0.04
    return int(grid.size * rng.uniform(0.65, 0.995)) if young else age


def _spans(
    blueprint: Blueprint, begin: int, load: npt.NDArray[np.float32], grid: TimeGrid, rng: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Return the stretches of slots in which each seat is wanted, before deploys cut them."""
    kind = blueprint.ref.kind
    if kind == "CronJob":
        return [_cron(blueprint, grid, rng)]
    if kind in ("Job", "Pod"):
        return [[_single_run(kind, grid, rng)]]
    if blueprint.scaled and blueprint.autoscaler:
        replicas = replicas_by_load(load, blueprint.autoscaler.min_replicas, blueprint.seats, grid)
        return [_stretches(replicas > seat, begin) for seat in range(blueprint.seats)]
    return [[(begin, FOREVER)] for _ in range(blueprint.seats)]


def replicas_by_load(load: npt.NDArray[np.float32], lowest: int, highest: int, grid: TimeGrid) -> npt.NDArray[np.int64]:
    """Return the replicas of an autoscaled workload, (grid.size,): in proportion to the peak load of each two hours."""
    block = 2 * HOUR_SECONDS // grid.step_seconds
    padded = np.pad(load, (0, -len(load) % block), mode="edge")
    peaks = np.repeat(padded.reshape(-1, block).max(axis=1), block)[: len(load)]
    replicas = np.ceil(peaks / max(float(np.percentile(peaks, 95)), 1e-9) * highest).astype(np.int64)
    return np.clip(replicas, lowest, highest)


def _stretches(alive: npt.NDArray[np.bool_], begin: int) -> list[tuple[int, int]]:
    """[start, end) of every stretch of True; one that touches the window's edge reaches beyond it."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], alive, [False])).astype(np.int8)))
    size = len(alive)
    pairs = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    pairs = [(min(begin, 0) if a == 0 else a, FOREVER if b == size else b) for a, b in pairs]
    return [(max(a, begin), b) for a, b in pairs if b > begin]


def _cron(blueprint: Blueprint, grid: TimeGrid, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Runs of a CronJob: daily, weekly or every six hours, each a little longer or shorter than usual."""
    hours = int(rng.choice([24, 168, 6], p=[0.5, 0.42, 0.08]))
    usual = float(np.exp(rng.uniform(np.log(2.0), np.log(24.0))))
    start = -(grid.start_seconds % (hours * HOUR_SECONDS)) + int(blueprint.peak_hour) * HOUR_SECONDS
    if hours == 168:
        start += int(rng.integers(0, 7)) * DAY_SECONDS
    slots = range(start // grid.step_seconds, grid.size, hours * HOUR_SECONDS // grid.step_seconds)
    runs = [(slot, slot + max(1, int(usual * np.exp(rng.normal(0.0, 0.2))))) for slot in slots]
    return [run if run[1] < grid.size else (run[0], FOREVER) for run in runs if run[1] > 0]


def _single_run(kind: str, grid: TimeGrid, rng: np.random.Generator) -> tuple[int, int]:
    """Draw [first, end) of the only run of a Job or a bare pod, in slots; most bare pods still run (FOREVER)."""
    days = float(rng.uniform(0.15, 5.0) if kind == "Job" else rng.uniform(2.0, 40.0))
    length = max(6, int(days * grid.slots_per_day))
    start = int(rng.integers(-length // 2, grid.size - 2))
    lasting = start + length >= grid.size or (kind == "Pod" and rng.random() < 0.6)
    return (start, FOREVER if lasting else start + length)


def _deploys(blueprint: Blueprint, begin: int, grid: TimeGrid, rng: np.random.Generator) -> tuple[int, ...]:
    """Roll-outs in working hours; a third of the services has some in four weeks."""
    if blueprint.told:
        return (story_slot(grid, 16.0, 10),) if blueprint.ref.name == "checkout" else ()
    often = {"Deployment": 0.35, "StatefulSet": 0.15, "DaemonSet": 0.3}.get(blueprint.ref.kind, 0.0)
    if rng.random() >= often:
        return ()
    count = 1 + int(rng.poisson(0.5 * grid.size / (28 * grid.slots_per_day)))
    days = rng.integers(0, max(1, grid.size // grid.slots_per_day), count)
    hour = rng.integers(8, 17, count)
    slots = sorted(
        {story_slot(grid, float(day), int(h)) + int(rng.integers(0, 12)) for day, h in zip(days, hour, strict=True)}
    )
    return tuple(slot for slot in slots if max(begin, 0) < slot < grid.size - 1)


def story_slot(grid: TimeGrid, day: float, hour: int) -> int:
    """Return the slot of a UTC hour on the `day`-th of 28 days; shorter windows scale the day in proportion."""
    days = grid.size / grid.slots_per_day
    moment = grid.start_seconds + int(day if days >= 28 else day * days / 28) * DAY_SECONDS
    moment = moment // DAY_SECONDS * DAY_SECONDS + hour * HOUR_SECONDS
    return min(max(grid.index_of(moment), 1), grid.size - 2)


def _cut(span: tuple[int, int], deploys: tuple[int, ...]) -> list[tuple[int, int]]:
    """A stretch divided at the deploys inside it."""
    inside = [slot for slot in deploys if span[0] < slot < span[1]]
    marks = [span[0], *inside, span[1]]
    return list(pairwise(marks))


def _restarts(
    blueprint: Blueprint,
    seat: int,
    runs: tuple[tuple[int, int], ...],
    period: int,
    grid: TimeGrid,
    rng: np.random.Generator,
) -> tuple[ContainerRestart, ...]:
    if blueprint.told:
        kills = blueprint.ref.name == "checkout" and seat < 2
        return (ContainerRestart(story_slot(grid, 9.0, 18) + 1 + seat, True),) if kills else ()
    if blueprint.memory is MemoryShape.SAWTOOTH:
        return _saw(runs, period, int(rng.integers(0, period)), grid)
    if rng.random() < 0.02 and blueprint.ref.kind in ("Deployment", "StatefulSet"):
        slots = sorted({int(s) for s in rng.integers(1, grid.size, int(rng.integers(1, 4)))})
        return tuple(ContainerRestart(s, False) for s in slots if any(a < s < b for a, b in runs))
    return ()


def _saw(runs: tuple[tuple[int, int], ...], period: int, phase: int, grid: TimeGrid) -> tuple[ContainerRestart, ...]:
    """Kills every `period` slots of a run's life; a run from before the window is somewhere in its tooth.

    Its last kill before the window (slot <= 0) is kept, because the tooth began there.
    """
    kills: list[ContainerRestart] = []
    for start, end in runs:
        first = -phase if start < 0 else start + period
        kills += [ContainerRestart(slot, True) for slot in range(first, min(end, grid.size), period)]
    return tuple(kills)
