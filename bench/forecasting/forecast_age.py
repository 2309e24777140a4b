"""May an hour's forecast stand for the next hours? The loss of one made anew against that of a kept one.

A workload's forecast of the day ahead is made at six in the morning. Some hours later it is slid along its own path
(the hours that have passed are appended as those of the next day), and compared with the forecast that the hourly
analysis makes at that moment, with the same back-tests behind it. "Where it held" keeps it for workloads alone of which
no half hour since has left its lowest and highest quantile, and takes the new one for all others: the gentlest rule
that a forecast can be kept by. Losses are quantile losses of the 24 hours that came, as the geometric mean over series.

A forecast that is made anew has to lose half a percent less than the kept one, else it need not be made
(docs/decisions/0032-forecasts-are-made-anew-each-hour.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting.forecast_quick import (
    ACTIVE_PERCENT,
    COLUMNS,
    DAY_SLOTS,
    FORECASTING,
    HISTORY_DAYS,
    ORIGINS,
    PORTRAIT,
    half_hours,
)
from bench.record import Row, below, record_on_traces
from bench.traces import trace_matrix
from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.usage import HOUR_SECONDS, Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import STEP_SECONDS, forecast_and_learn
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.losses import pinball
from cotenant.profiler.portrait import build

AGES_HOURS = (1, 2, 3, 5)
MOST = 0.995
HOUR_SLOTS = DAY_SLOTS // 24
MADE_AT_HOUR = 6
HALF_HOURS_AN_HOUR = HOUR_SECONDS // STEP_SECONDS
Values = np.ndarray


def usage_until(values: Values, grid: TimeGrid, cut: int) -> Usage[NodeRef]:
    """The history of `HISTORY_DAYS` before a slot, percent as hundredths of a core."""
    first = max(0, cut - HISTORY_DAYS * DAY_SLOTS)
    at = TimeGrid(grid.start_seconds + first * grid.step_seconds, grid.step_seconds, cut - first)
    refs = tuple(NodeRef(str(number)) for number in range(len(values)))
    return Usage(refs, at, values[:, first:cut] * np.float32(10), Resource.CPU, Statistic.MEAN)


def forecast_with(usage: Usage[NodeRef], learned: Learned | None) -> tuple[Forecasts[NodeRef], Learned]:
    portraits = build(usage.refs, np.arange(len(usage.refs)), usage, PORTRAIT)
    return forecast_and_learn(usage, portraits, FORECASTING, learned)


def active(values: Values, cut: int) -> Values:
    """Series that use something before the slot and are mostly there before and after it."""
    past, after = values[:, max(0, cut - HISTORY_DAYS * DAY_SLOTS) : cut], values[:, cut : cut + 2 * DAY_SLOTS]
    measured = (np.isfinite(past).mean(axis=1) > 0.5) & (np.isfinite(after).mean(axis=1) > 0.5)
    active_values: Values = values[measured & (np.nan_to_num(past).mean(axis=1) >= ACTIVE_PERCENT)]
    return active_values


def trials(values: Values, grid: TimeGrid, cut: int) -> Iterator[tuple[int, Values, Values, Values]]:
    """Of each age in hours: losses of the kept forecast and of the new one, and where the kept one held, (n,) each."""
    values = active(values, cut)
    kept_forecast, learned = forecast_with(usage_until(values, grid, cut), None)
    for hours in AGES_HOURS:
        now, steps = cut + hours * HOUR_SLOTS, hours * HALF_HOURS_AN_HOUR
        anew, _ = forecast_with(usage_until(values, grid, now), learned)
        came = half_hours(values[:, now : now + DAY_SLOTS] * np.float32(10))
        since = half_hours(values[:, cut:now] * np.float32(10))
        past = kept_forecast.quantiles[:, :steps]
        is_outside: Values = np.logical_or(since < past[..., 0], since > past[..., -1])
        slid = np.roll(kept_forecast.quantiles, -steps, axis=1)
        yield hours, pinball(came, slid), pinball(came, anew.quantiles), np.logical_not(is_outside.any(axis=1))


def of_trace(folder: Path, name: str) -> Iterator[Row]:
    values, grid = trace_matrix(folder, *COLUMNS[name])
    losses_by_age: dict[int, list[tuple[Values, Values, Values]]] = {hours: [] for hours in AGES_HOURS}
    for day in ORIGINS[name]:
        for hours, *losses in trials(values, grid, day * DAY_SLOTS + MADE_AT_HOUR * HOUR_SLOTS):
            kept_loss, anew, was_inside = losses
            losses_by_age[hours].append((kept_loss, anew, was_inside))
    for hours, parts in losses_by_age.items():
        kept_loss, anew, was_inside = (np.concatenate(part) for part in zip(*parts, strict=True))
        compared = (kept_loss > 0) & (anew > 0)
        for rule, loss in (("all of them", kept_loss), ("where it held", np.where(was_inside, kept_loss, anew))):
            ratio = float(np.exp(np.log(anew[compared] / loss[compared]).mean()))
            note = f"{was_inside[compared].mean():.0%} of {compared.sum()} had held" if rule != "all of them" else ""
            text = f"{name}: loss of new forecasts, by that of those kept for {hours} h, {rule}"
            yield below(text, round(ratio, 4), "ratio", MOST, note)


def measure(folder: Path) -> list[Row]:
    """Rows of all traces."""
    return [row for name in COLUMNS for row in of_trace(folder, name)]


if __name__ == "__main__":
    record_on_traces("forecast_age", measure)
