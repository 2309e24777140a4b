"""Decomposes a history into trend, daily and weekly season and remainder by STL and MSTL (`stl`). Pure.

For a few series, the cluster and the largest workloads: an explanation on screen, not a forecast. Sources: Cleveland et
al. 1990 (STL); Bandara, Hyndman and Bergmeir 2021 (MSTL); Wang, Smith and Hyndman 2006 (seasonal strength).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid, Usage
from cotenant.base.usage.week import WEEK_HOURS, RefT, WeekDecomposition
from cotenant.forecasting.weeks.stl import mstl, stl

Floats = npt.NDArray[np.float64]

DAY: Final = DAY_SECONDS // HOUR_SECONDS
SHORTEST: Final = 3 * DAY
"""Hours below which nothing is taken apart."""
LONGEST: Final = 5 * WEEK_HOURS
KNOWN: Final = 0.5
"""Share of hours that must be known."""


def parts(usage: Usage[RefT]) -> dict[RefT, WeekDecomposition]:
    """Return each series' hourly decomposition, without too short or sparse series; the step must divide an hour."""
    hourly = usage.coarser(HOUR_SECONDS // usage.grid.step_seconds).tail(LONGEST)
    decompositions = {}
    for ref, values in zip(hourly.refs, hourly.values, strict=True):
        series, grid = bridge_gaps(values.astype(np.float64), hourly.grid)
        if series.size >= SHORTEST:
            decompositions[ref] = decompose_hourly_series(series, grid)
    return decompositions


def bridge_gaps(series: Floats, grid: TimeGrid) -> tuple[Floats, TimeGrid]:
    """Return the series and grid from the first known hour on, with gaps bridged by linear interpolation.

    The series is empty if less than half of the hours are known, and then the grid is returned unchanged.
    """
    present = np.isfinite(series)
    if not present.any():
        return series[:0], grid
    first = int(present.argmax())
    present, series = present[first:], series[first:]
    if present.mean() < KNOWN:
        return series[:0], grid
    hours = np.arange(series.size)
    start = grid.start_seconds + first * grid.step_seconds
    return np.interp(hours, hours[present], series[present]), TimeGrid(start, grid.step_seconds, series.size)


def decompose_hourly_series(series: Floats, grid: TimeGrid) -> WeekDecomposition:
    """Decompose an hourly series of at least SHORTEST values without gaps; above two weeks also by week."""
    none = np.zeros(series.size)
    if np.ptp(series) == 0:
        return WeekDecomposition(grid, series, series.copy(), none, none, none, 0.0, 0.0)
    if series.size > 2 * WEEK_HOURS:
        trend, (daily, weekly) = mstl(series, (DAY, WEEK_HOURS))
    else:
        trend, (daily,) = stl(series, DAY)
        weekly = none
    rest = series - trend - daily - weekly
    return WeekDecomposition(grid, series, trend, daily, weekly, rest, strength(daily, rest), strength(weekly, rest))


def strength(habit: Floats, rest: Floats) -> float:
    """Return the share, 0..1, of the variance of season + remainder that the season explains."""
    moving = float(np.var(habit + rest))
    return max(0.0, 1.0 - float(np.var(rest)) / moving) if moving > 0 else 0.0
