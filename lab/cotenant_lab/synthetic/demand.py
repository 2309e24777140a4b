"""Usage of the containers of every seat (a replica's place): load and noise as millicores and bytes, in chunks of rows.

CPU inside a 5-minute slot is assumed uniform between `2 mean - peak` and `peak`; the part above the quota is throttled,
the rest is used. So usage never exceeds a limit, and mean <= max always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant_lab.synthetic.fleet import Blueprint
from cotenant_lab.synthetic.lifetimes import Lives
from cotenant_lab.synthetic.patterns import slow_noise
from cotenant_lab.synthetic.seats import Seats
from cotenant_lab.synthetic.spec import MemoryShape, Shape

Matrix = npt.NDArray[np.float32]
CHUNK = 128
"""Rows computed at once: the temporaries stay near the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Cpu:
    """CPU of the containers of all seats (pods' places), (n, grid.size), in millicores; 0 while no pod runs there."""

    mean: Matrix
    maximum: Matrix
    throttled: Matrix


@dataclass(frozen=True, slots=True)
class Crowd:
    """The workloads whose pods take the seats, with the facts that demand needs; `load` is (workloads, grid.size)."""

    blueprints: tuple[Blueprint, ...]
    lives: tuple[Lives, ...]
    load: Matrix


def cpu(seats: Seats, crowd: Crowd, grid: TimeGrid, rng: np.random.Generator) -> Cpu:
    """Return the CPU usage and the throttling of every row of `seats`."""
    out = Cpu(*(np.zeros((len(seats), grid.size), dtype=np.float32) for _ in range(3)))
    skew = np.exp(rng.normal(0.0, 0.18, len(seats)))
    for rows in _chunks(len(seats)):
        demanded = _unlimited_demand(seats, crowd, grid, rows, rng) * skew[rows, None].astype(np.float32)
        # A container's threads are chosen for its size, not for the node's.
        size, most = seats.wish[Resource.CPU][rows, None], seats.limit[Resource.CPU][rows, None]
        np.minimum(demanded, np.minimum(3.0 * size + 100.0, 1.5 * most).astype(np.float32), out=demanded)
        demanded *= seats.alive(grid, rows)
        # Relative height of the highest moment above the mean of each slot.
        height = np.exp(rng.normal(np.log(0.25), 0.7, len(demanded))).astype(np.float32)
        spikes = height[:, None] * rng.standard_exponential((len(demanded), grid.size), dtype=np.float32)
        width = demanded * np.asarray(np.minimum(spikes + 0.02, 4.0), dtype=np.float32)
        limit = most.astype(np.float32)
        lost = refused_demand(demanded, width, limit)
        out.throttled[rows] = lost
        out.mean[rows] = np.minimum(demanded - lost, limit)
        out.maximum[rows] = np.maximum(np.minimum(demanded + width, limit), out.mean[rows])
    return out


def refused_demand(mean: Matrix, width: Matrix, limit: Matrix) -> Matrix:
    """Return the mean demand above a quota, if demand is uniform between mean - width and mean + width."""
    over = np.maximum(mean + width - limit, 0.0)
    with np.errstate(invalid="ignore"):
        partly = over * over / np.maximum(4.0 * width, 1e-6)
    lost = np.where(limit <= mean - width, mean - limit, np.minimum(partly, mean))
    return np.asarray(np.where(over > 0, lost, 0.0), dtype=np.float32)


def _unlimited_demand(seats: Seats, crowd: Crowd, grid: TimeGrid, rows: slice, rng: np.random.Generator) -> Matrix:
    """Demand before any limit: level x load x noise, plus start-up bursts."""
    count = len(seats.workload[rows])
    steady = np.array([crowd.blueprints[w].shape in (Shape.FLAT, Shape.IDLE) for w in seats.workload[rows]])
    slow = np.where(steady, rng.uniform(0.02, 0.4, count), rng.uniform(0.08, 0.42, count))
    scripted = np.array([crowd.blueprints[w].told for w in seats.workload[rows]])
    slow[scripted] = 0.08
    noise = slow_noise(count, grid, slow, rng)
    fast = np.exp(rng.uniform(np.log(0.04), np.log(0.6), count)).astype(np.float32)
    fast[scripted] = 0.06
    noise += fast[:, None] * rng.standard_normal((count, grid.size), dtype=np.float32)
    np.exp(noise, out=noise)
    noise *= crowd.load[seats.workload[rows]]
    noise *= seats.level[Resource.CPU][rows, None].astype(np.float32)
    return _with_starts(noise, seats, crowd, rows, rng)


def _with_starts(demand: Matrix, seats: Seats, crowd: Crowd, rows: slice, rng: np.random.Generator) -> Matrix:
    """Add what a process burns while it starts: ten minutes of two to three requests for a JVM, little for others."""
    for row, workload, part, life in zip(
        range(len(demand)), seats.workload[rows], seats.part[rows], seats.life[rows], strict=True
    ):
        if part:
            continue
        height = rng.uniform(1.2, 3.0) if crowd.blueprints[workload].jvm else 0.1
        burst = np.float32(height * seats.wish[Resource.CPU][rows][row])
        for slot in [start for start, _ in life.runs] + [r.slot for r in life.restarts]:
            if slot >= 0:
                demand[row, slot : slot + 2] += burst
    return demand


def memory(seats: Seats, crowd: Crowd, grid: TimeGrid, rng: np.random.Generator) -> Matrix:
    """Return every row's working set in bytes, (n, grid.size), 0 while no pod runs; below the limit except at kills."""
    out = np.zeros((len(seats), grid.size), dtype=np.float32)
    for rows in _chunks(len(seats)):
        age = seats.age(grid, rows)
        level = seats.level[Resource.MEMORY][rows, None].astype(np.float32)
        limit = np.minimum(seats.limit[Resource.MEMORY], 3.0 * seats.wish[Resource.MEMORY])
        limit = limit[rows, None].astype(np.float32)
        # Caches fill: from 60 % of the level at the start to all of it after some hours.
        hours = rng.uniform(4.0, 60.0, (len(age), 1)).astype(np.float32)
        warmth = (1.0 - 0.4 * np.exp(-np.maximum(age, 0.0) / hours)).astype(np.float32)
        relative = warmth * np.exp(slow_noise(len(age), grid, rng.uniform(0.005, 0.09, len(age)), rng))
        kinds = np.array([crowd.blueprints[w].memory for w in seats.workload[rows]])
        kinds[seats.part[rows] > 0] = MemoryShape.STEADY
        for kind, grow in _GROWTH.items():
            chosen = np.flatnonzero(kinds == kind)
            relative[chosen] = grow(relative[chosen], age[chosen], crowd, seats.workload[rows][chosen])
        used = np.minimum(level * relative, 0.985 * limit)
        # Saw-tooth rows go from half of the limit in a straight line to the limit at the end of the period.
        for row in np.flatnonzero(kinds == MemoryShape.SAWTOOTH):
            progress = np.clip(age[row] / max(crowd.lives[seats.workload[rows][row]].period, 1), 0.0, 1.0)
            used[row] = limit[row] * (0.45 + 0.53 * progress)
        used *= seats.alive(grid, rows)
        _before_kills(used, limit, seats, rows)
        out[rows] = used
    return out


def _with_load(relative: Matrix, age: Matrix, crowd: Crowd, workload: npt.NDArray[np.int64]) -> Matrix:
    """Sessions and buffers: 60 % fixed, 40 % with the square root of the load."""
    del age
    return np.asarray(relative * (0.6 + 0.4 * np.sqrt(crowd.load[workload])), dtype=np.float32)


def _leak_growth(relative: Matrix, age: Matrix, crowd: Crowd, workload: npt.NDArray[np.int64]) -> Matrix:
    """Growth by a half within about six weeks of a process' life."""
    del crowd, workload
    return np.asarray(relative * (0.8 + 0.5 * np.minimum(age / 12_000.0, 1.0)), dtype=np.float32)


_GROWTH: dict[MemoryShape, Callable[[Matrix, Matrix, Crowd, npt.NDArray[np.int64]], Matrix]] = {
    MemoryShape.FOLLOWS_LOAD: _with_load,
    MemoryShape.LEAK: _leak_growth,
}


def _before_kills(used: Matrix, limit: Matrix, seats: Seats, rows: slice) -> None:
    """The half hour before a kill climbs to the limit, in place."""
    for row, (life, part) in enumerate(zip(seats.life[rows], seats.part[rows], strict=True)):
        for restart in life.restarts:
            if restart.oom and part == 0 and restart.slot > 0:
                first = max(0, restart.slot - 6)
                climb = np.linspace(0.9, 0.999, restart.slot - first, dtype=np.float32) * limit[row]
                used[row, first : restart.slot] = np.where(
                    used[row, first : restart.slot] > 0, np.maximum(used[row, first : restart.slot], climb), 0.0
                )


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
