"""Matrices of relative load over weeks, mean about 1, one row for each workload, built one pattern at a time.

Times are UTC; a row's users live `utc_offset_hours` east: week-end, holiday and evening follow their local time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid
from cotenant_lab.synthetic.fleet import Blueprint
from cotenant_lab.synthetic.spec import Shape

Matrix = npt.NDArray[np.float32]
_MONDAY_SECONDS = 4 * DAY_SECONDS
"""1970-01-05 00:00 UTC was a Monday."""


def loads(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    """Return the relative load of every blueprint, (len(plan), grid.size), >= 0, with mean 1 in each row."""
    out = np.ones((len(plan), grid.size), dtype=np.float32)
    for shape, make in _MAKERS.items():
        rows = [i for i, blueprint in enumerate(plan) if blueprint.shape is shape]
        if rows:
            out[rows] = make([plan[i] for i in rows], grid, holidays, rng)
    scripted = np.array([blueprint.told for blueprint in plan])
    out *= 1.0 + _incidents(plan, grid, rng) * ~scripted[:, None]
    _shift_levels(out, (rng.random(len(plan)) < 0.2) & ~scripted, rng)
    out /= np.maximum(out.mean(axis=1, keepdims=True, dtype=np.float64), 1e-9).astype(np.float32)
    return out


def slow_noise(count: int, grid: TimeGrid, sigma: npt.NDArray[np.float64], rng: np.random.Generator) -> Matrix:
    """Return the log of a slowly varying level, (count, grid.size): hourly AR(1) (correlation 0.85), interpolated."""
    slots = HOUR_SECONDS // grid.step_seconds
    hours = grid.size // slots + 2
    state = rng.standard_normal((count, hours), dtype=np.float32)
    for hour in range(1, hours):
        state[:, hour] = 0.85 * state[:, hour - 1] + 0.527 * state[:, hour]
    state *= sigma.astype(np.float32)[:, None]
    weight = np.linspace(0.0, 1.0, slots, endpoint=False, dtype=np.float32)
    blend = state[:, :-1, None] * (1 - weight) + state[:, 1:, None] * weight
    return np.ascontiguousarray(blend.reshape(count, -1)[:, : grid.size])


def _incidents(plan: Sequence[Blueprint], grid: TimeGrid, rng: np.random.Generator) -> Matrix:
    """Retries, back-fills, crawlers: every workload has its rate of short excesses, from one a month to one a day."""
    rate = np.exp(rng.uniform(np.log(0.03), np.log(1.2), len(plan)))
    return _bursts(grid, rate, np.exp(rng.uniform(np.log(8.0), np.log(150.0), len(plan))), 2.0, rng)


def _shift_levels(load: Matrix, chosen: npt.NDArray[np.bool_], rng: np.random.Generator) -> None:
    """A release or a new customer: the chosen rows go on at another level from some moment, in place."""
    for row in np.flatnonzero(chosen):
        load[row, int(rng.uniform(0.1, 0.9) * load.shape[1]) :] *= np.float32(np.exp(rng.normal(0.0, 0.5)))


def _daily(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    depth = rng.beta(2.6, 1.2, len(plan)) * 0.88 + 0.1
    return _day(plan, grid, depth) * _calendar(plan, grid, holidays, np.full(len(plan), 0.25))


def _weekly(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    depth = rng.uniform(0.45, 0.95, len(plan))
    return _day(plan, grid, depth) * _calendar(plan, grid, holidays, rng.uniform(0.6, 0.85, len(plan)))


def _day(plan: Sequence[Blueprint], grid: TimeGrid, depth: npt.NDArray[np.float64]) -> Matrix:
    """Relative load of a day, (len(plan), grid.size): a peak, a smaller one seven hours before it, and a low night.

    depth, (len(plan),) in 0..1: how far load falls between peaks; 0 is a flat line. Widths, heights and the factor 1.9
    are assumptions about an online service, not fitted to data; `loads` scales each row to mean 1 afterwards.
    """
    offset = np.array([b.utc_offset_hours for b in plan])[:, None]
    peak = np.array([b.peak_hour for b in plan])[:, None]
    hours = (grid.times()[None, :] / HOUR_SECONDS + offset) % 24.0
    curve = _bump(hours, peak, 2.6) + 0.62 * _bump(hours, peak - 7.0, 3.4)
    return (1.0 - depth[:, None] + depth[:, None] * curve * 1.9).astype(np.float32)


def _bump(hours: npt.NDArray[np.float64], centre: npt.NDArray[np.float64], width: float) -> npt.NDArray[np.float64]:
    """Gaussian around `centre`, height 1, standard deviation `width`, all in hours; distances wrap at midnight."""
    away = (hours - centre + 12.0) % 24.0 - 12.0
    return np.exp(-0.5 * (away / width) ** 2)


def _calendar(
    plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], swing: npt.NDArray[np.float64]
) -> Matrix:
    """Factor of the local day: days off are quieter by `swing` for work, busier by 0.6 of it for leisure."""
    offset = np.array([b.utc_offset_hours * HOUR_SECONDS for b in plan])[:, None]
    local = grid.times()[None, :] + offset
    weekday = ((local - _MONDAY_SECONDS) // DAY_SECONDS % 7).astype(int)
    off = (weekday >= 5) | np.isin(local // DAY_SECONDS, [day // DAY_SECONDS for day in holidays])
    leisure = np.array([b.leisure for b in plan])[:, None]
    friday = 1.0 + 0.12 * ((weekday == 4) & leisure)
    days_off = np.where(off, np.where(leisure, 1.0 + 0.6 * swing[:, None], 1.0 - swing[:, None]), 1.0)
    return np.asarray(days_off * friday, dtype=np.float32)


def _bursty(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    """A low floor with bursts: Poisson starts (1-10 a day), minutes to hours long, Pareto high."""
    del holidays
    rate = np.exp(rng.uniform(np.log(0.7), np.log(8.0), len(plan)))
    minutes = np.exp(rng.uniform(np.log(10.0), np.log(90.0), len(plan)))
    return 1.0 + _bursts(grid, rate, minutes, 4.0, rng)


def _bursts(
    grid: TimeGrid,
    per_day: npt.NDArray[np.float64],
    minutes: npt.NDArray[np.float64],
    height: float,
    rng: np.random.Generator,
) -> Matrix:
    """Sum of rectangular bursts by a difference array: +height at the start, -height at the end, cumulative sum."""
    steps = np.zeros((len(per_day), grid.size + 1), dtype=np.float32)
    counts = rng.poisson(per_day * grid.size / grid.slots_per_day)
    row = np.repeat(np.arange(len(per_day)), counts)
    start = rng.integers(0, grid.size, len(row))
    slots = np.maximum(1, rng.exponential(minutes[row]) * 60 / grid.step_seconds).astype(int)
    tall = (height * np.minimum(rng.pareto(2.2, len(row)) + 0.4, 6.0)).astype(np.float32)
    np.add.at(steps, (row, start), tall)
    np.add.at(steps, (row, np.minimum(start + slots, grid.size)), -tall)
    return np.maximum(np.cumsum(steps, axis=1, dtype=np.float32)[:, :-1], 0.0)


def _trend(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    """Growth (or decline) by 25-120 % over the span under a shallow day."""
    growth = rng.uniform(0.25, 1.2, len(plan)) * rng.choice([1.0, 1.0, -0.5], len(plan))
    line = 1.0 + growth[:, None] * np.linspace(0.0, 1.0, grid.size)[None, :]
    day = _day(plan, grid, rng.uniform(0.1, 0.4, len(plan)))
    return np.asarray(line * day * _calendar(plan, grid, holidays, np.full(len(plan), 0.1)), dtype=np.float32)


def _scheduled_pattern(
    plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator
) -> Matrix:
    """On for some hours of the local night, nearly off else."""
    del holidays
    start = rng.choice([0.0, 1.0, 2.0, 3.0, 4.0, 22.0], len(plan))[:, None]
    length = rng.uniform(1.0, 5.0, len(plan))[:, None]
    offset = np.array([b.utc_offset_hours for b in plan])[:, None]
    since = (grid.times()[None, :] / HOUR_SECONDS + offset - start) % 24.0
    return np.where(since < length, 1.0, 0.06).astype(np.float32)


def _flat(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    del holidays, rng
    return np.ones((len(plan), grid.size), dtype=np.float32)


def _idle(plan: Sequence[Blueprint], grid: TimeGrid, holidays: Sequence[int], rng: np.random.Generator) -> Matrix:
    """Housekeeping only, a rare short job, and in part of the rows an hourly or nightly one."""
    del holidays
    blips = _bursts(grid, np.full(len(plan), 0.2), np.full(len(plan), 6.0), 3.0, rng)
    period = rng.choice([1.0, 24.0, np.inf, np.inf], len(plan))[:, None]
    hour = grid.times()[None, :] / HOUR_SECONDS - rng.integers(0, 24, len(plan))[:, None]
    chore = np.where(np.isfinite(period) & (hour % period < np.where(period > 1, 0.5, 1 / 12)), 1.5, 0.0)
    return (1.0 + blips + chore).astype(np.float32)


_MAKERS: dict[Shape, Callable[[Sequence[Blueprint], TimeGrid, Sequence[int], np.random.Generator], Matrix]] = {
    Shape.IDLE: _idle,
    Shape.FLAT: _flat,
    Shape.DAILY: _daily,
    Shape.WEEKLY: _weekly,
    Shape.BURSTY: _bursty,
    Shape.TREND: _trend,
    Shape.SCHEDULED: _scheduled_pattern,
}
