"""A stored history of many containers that differ, quick to make: days and seeded noise around each one's level."""

from __future__ import annotations

import numpy as np

from cotenant.base.identity import PodContainerRef
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, Signal, TimeGrid, Usage

START = 20_000 * DAY_SECONDS
STEP = 300


def values_of(count: int, days: int, seed: int = 7) -> FloatMatrix:
    """(count, slots) millicores: a daily wave of each series' own phase, times noise."""
    rng = np.random.default_rng(seed)
    times = np.arange(days * DAY_SECONDS // STEP)
    level = rng.lognormal(5, 1, (count, 1))
    wave = 1 + 0.6 * np.sin(2 * np.pi * times * STEP / DAY_SECONDS + rng.uniform(0, 6, (count, 1)))
    values: FloatMatrix = (level * wave * rng.lognormal(0, 0.2, (count, len(times)))).astype(np.float32)
    return values


def refs_of(count: int) -> tuple[PodContainerRef, ...]:
    """Names in the order that the store keeps."""
    return tuple(PodContainerRef(f"team-{i // 50:03d}", f"app-{i:05d}", "main") for i in range(count))


def usage_of(values: FloatMatrix, first_slot: int = 0) -> Usage[PodContainerRef]:
    """CPU usage from a slot on."""
    spec = Signal.CPU_USAGE_MEAN.spec
    grid = TimeGrid(START + first_slot * STEP, STEP, values.shape[1])
    return Usage(refs_of(len(values)), grid, values, spec.resource, spec.statistic)


def filled(url: str, values: FloatMatrix, hours: int | None = None) -> Store:
    """A store with the first `hours` of the values, all of them for None."""
    store = Store(url, "big")
    first_hours = values if hours is None else values[:, : hours * HOUR_SECONDS // STEP]
    store.append(Signal.CPU_USAGE_MEAN, usage_of(first_hours))
    return store
