"""The rolling origins of a back-test: the past that forecasters see and the actual values after it. Pure.

A `Past` has no value after the origin (the time of the forecast), so no forecaster can use later values; only the
scores get the actual ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage import usage
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, FloatMatrix, Statistic, TimeGrid


@dataclass(frozen=True, slots=True)
class BacktestPlan:
    """The rules by which a back-test moves through a history; forecast times (origins) are multiples of the step.

    A series is forecast at an origin if at least `known_share` of its history is known, and scored if half of its
    horizon is known: future values never decide what forecasters see. `statistic` aggregates measured slots to slots of
    the plan, in history and horizon: the mean for CPU and the maximum for memory, as in the product.
    """

    history_days: int = 14
    every_hours: float = 6.0
    horizon_hours: int = 24
    step_seconds: int = 1800
    known_share: float = 0.5
    statistic: Statistic = Statistic.MEAN

    @property
    def horizon(self) -> int:
        """The number of slots that are forecast."""
        return self.horizon_hours * HOUR_SECONDS // self.step_seconds

    @property
    def slots_per_day(self) -> int:
        """The number of the plan's slots in 24 hours."""
        return DAY_SECONDS // self.step_seconds


SCORED_SHARE: Final = 0.5
HALF_HOURS: Final = BacktestPlan()
"""14 days of history, every 6 hours, 24 hours ahead on half hours."""
FIVE_MINUTES: Final = BacktestPlan(step_seconds=FIVE_MINUTES_SECONDS)
"""The same on single 5-minute values; the origins are to be those of HALF_HOURS, as the engine's days begin there."""
HOURLY_WEEK: Final = BacktestPlan(horizon_hours=168, step_seconds=HOUR_SECONDS)
"""The same, 7 days ahead on whole hours."""


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """The history of n series that a forecaster sees, at the step of the measurement and at the plan's step.

    `fine` is (n, fine_grid.size); `coarse` is (n, coarse_grid.size), aggregated by `statistic`; gaps are NaN.
    """

    fine: FloatMatrix
    fine_grid: TimeGrid
    coarse: FloatMatrix
    coarse_grid: TimeGrid
    statistic: Statistic


@dataclass(frozen=True, slots=True, eq=False)
class BacktestTrial:
    """A back-test at one moment: the past of n series, and the actual values of the m series that are scored.

    `rows` (m,): indices of the scored series in the values that were split; `scored` (n,): True for scored rows of
    `past`; `actual` (m, horizon): values after that moment; `highest` (m,): the highest of the measured values then.
    """

    origin_seconds: int
    rows: npt.NDArray[np.intp]
    past: Past
    scored: npt.NDArray[np.bool_]
    actual: FloatMatrix
    highest: FloatMatrix


def origins(grid: TimeGrid, plan: BacktestPlan, most: int | None = None) -> tuple[int, ...]:
    """Return the Unix times of the forecasts: after the first `plan.history_days`, up to the last whole horizon.

    With `most`, at most that many are returned, spread evenly so that every time of day occurs: every second one of
    6-hourly times would cover only two times of day.
    """
    every = round(plan.every_hours * HOUR_SECONDS)
    first = -(-(grid.start_seconds + plan.history_days * DAY_SECONDS) // plan.step_seconds) * plan.step_seconds
    last = grid.end_seconds - plan.horizon_hours * HOUR_SECONDS
    every = max(plan.step_seconds, every // plan.step_seconds * plan.step_seconds)
    moments = range(first, last + 1, every)
    if most is None or len(moments) <= most:
        return tuple(moments)
    return tuple(moments[int((k + 0.5) * len(moments) / most)] for k in range(most))


def trial(values: FloatMatrix, grid: TimeGrid, origin_seconds: int, plan: BacktestPlan) -> BacktestTrial:
    """Return the back-test at one time of `values` (n, grid.size); raise ValueError if steps or time do not fit."""
    step = grid.step_seconds
    if plan.step_seconds % step or (origin_seconds - grid.start_seconds) % step:
        raise ValueError(f"the usage's step of {step} s does not divide the plan's, {plan.step_seconds} s")
    cut = grid.index_of(origin_seconds)
    first = max(0, cut - plan.history_days * DAY_SECONDS // step)
    factor = plan.step_seconds // step
    first += (cut - first) % factor
    past, after = values[:, first:cut], values[:, cut : cut + plan.horizon * factor]
    shown = np.flatnonzero(_share_without_gaps(past) >= max(plan.known_share, 1e-9))
    scored = _share_without_gaps(after[shown]) >= SCORED_SHARE
    fine, came = past[shown], after[shown[scored]]
    highest = np.where(np.isnan(came), -np.inf, came).max(axis=1, initial=-np.inf)
    start = grid.start_seconds + first * step
    history = Past(
        fine=fine,
        fine_grid=TimeGrid(start // step * step, step, cut - first),
        coarse=join_slots(fine, factor, plan.statistic),
        coarse_grid=TimeGrid(start, plan.step_seconds, (cut - first) // factor),
        statistic=plan.statistic,
    )
    return BacktestTrial(
        origin_seconds,
        shown[scored],
        history,
        scored,
        join_slots(came, factor, plan.statistic),
        np.where(np.isneginf(highest), np.nan, highest).astype(np.float32),
    )


def join_slots(values: FloatMatrix, factor: int, statistic: Statistic = Statistic.MEAN) -> FloatMatrix:
    """Return an array (n, slots / factor): the statistic of the known values of every `factor` slots, or NaN."""
    return usage.reduce_last_axis(values.reshape(len(values), values.shape[1] // factor, factor), statistic)


def _share_without_gaps(values: FloatMatrix) -> npt.NDArray[np.float64]:
    share: npt.NDArray[np.float64] = (~np.isnan(values)).sum(axis=1) / max(1, values.shape[1])
    return share
