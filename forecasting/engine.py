"""The entry point of forecasting: from 5-minute totals to forecasts. Pure.

usage -> half hours -> quantile path with its error, shard by shard (`shard`) -> windows from it and from past days
(`windows`), and the 24-hour peak from the 5-minute values (`peaks`). Series too young or silent get the quantiles of
their portrait and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.reasons import Reason
from cotenant.core.model.usage.forecast import LEVELS, FinePath, Forecasts, MeasuredError, ModelCard, RefT, Window
from cotenant.core.model.usage.portrait import Portraits
from cotenant.core.model.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid, Usage
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting import plugins
from forecasting.base import Array, Forecaster, conform
from forecasting.calendars import Calendar
from forecasting.five_minutes import five_minutes
from forecasting.peak_time import peak_timing
from forecasting.peaks import daily_maxima, peak_quantiles
from forecasting.shard import forecast_shard
from forecasting.wall_clock import WallClock
from forecasting.windows import peak_expected, windows

Floats = npt.NDArray[np.float64]

STEP_SECONDS: Final = 1800
HORIZON: Final = DAY_SECONDS // STEP_SECONDS
PORTRAIT_MODEL: Final = "portrait"

_SERIES_PER_SHARD: Final = 1000
"""Series that are tested together: bounds memory (about 100 MB of back-tests); their mean is what weights shrink to."""
_MEDIAN: Final = LEVELS.index(0.5)
_UNKNOWN: Final = MeasuredError(float("nan"), float("nan"), 0)


def forecast(
    usage: Usage[RefT],
    portraits: Portraits[RefT],
    settings: ForecastingSettings,
    members: Sequence[Forecaster] | None = None,
    allocatable: Floats | None = None,
    fine: bool = True,
) -> Forecasts[RefT]:
    """Forecast the 24 hours after the last whole half hour of `usage`, whose step must divide half an hour.

    Members are the built-in ones and the settings' plug-ins unless given; the first is the baseline of the measured
    errors. allocatable: (n,), how much of the resource there is, for totals of a cluster, whose peaks are measured
    against it; NaN or None for other series. fine: single values too. Portraits may be of more series and in any order;
    a series without a sample in both has NO_DATA. Values that are negative or not finite count as gaps.
    """
    if usage.resource is None or STEP_SECONDS % usage.grid.step_seconds:
        raise ValueError("a forecast needs usage of a resource at a step that divides half an hour")
    members = plugins.members(tuple(settings.plugins)) if members is None else members
    past, coarse = _aligned(usage, settings)
    levels, highest = _from_portraits(portraits, usage.refs)
    reasons = _reasons(coarse, ~np.isnan(highest), settings)
    path = _portrayed(levels, coarse, reasons)
    model, error, cards = [PORTRAIT_MODEL] * len(reasons), [_UNKNOWN] * len(reasons), list[ModelCard]()
    losses = np.full((len(reasons), len(members)), np.nan, dtype=np.float32)
    clock = WallClock.of(coarse.grid, HORIZON, settings.time_zone)
    calendar = Calendar.of(coarse.grid, HORIZON, settings)
    local = clock.local(calendar.ordinary(coarse.values))
    for start in range(0, len(reasons), _SERIES_PER_SHARD):
        rows = start + np.flatnonzero(_tested(reasons[start : start + _SERIES_PER_SHARD]))
        if rows.size:
            shard_forecast = forecast_shard(local[rows], coarse.grid, settings, members)
            path[rows], losses[rows] = shard_forecast.path, shard_forecast.losses
            cards += [shard_forecast.card] if shard_forecast.card else []
            for row, name, measured in zip(rows.tolist(), shard_forecast.model, shard_forecast.error, strict=True):
                model[row], error[row] = name, measured
    timing = clock.absolute(peak_timing(local, coarse.grid, path[:, :, _MEDIAN]))
    path = calendar.special(clock.absolute(path), coarse.values)
    median = path[:, :, _MEDIAN]
    if calendar.rests:  # past days are no guide to a day of rest, of which the path is made apart
        local, timing = local[:, :0], np.nan_to_num(median)
    expected = peak_expected(local, coarse.grid, median, settings, allocatable) & _tested(reasons)
    peak = peak_quantiles(daily_maxima(past.values, past.grid.slots_per_day), highest, settings) * calendar.busiest
    grid = coarse.grid.following(HORIZON)
    day_windows = windows(median, timing, expected, grid, settings)
    return Forecasts(
        refs=usage.refs,
        resource=usage.resource,
        grid=grid,
        quantiles=path,
        peak=_at_least(peak, path),
        windows=day_windows,
        model=tuple(model),
        error=tuple(error),
        reason=_of_windows(reasons, day_windows),
        cards=tuple(cards),
        members=tuple(member.name for member in members),
        losses=losses,
        timing=timing,
        fine=_fine(path, past, coarse, reasons) if fine else None,
    )


def _aligned(usage: Usage[RefT], settings: ForecastingSettings) -> tuple[Usage[RefT], Usage[RefT]]:
    """The last days of usage, cleaned, up to the last whole half hour: at its own step and in half hours."""
    recent = usage.tail((settings.history_days + 1) * usage.grid.slots_per_day)
    good = np.isfinite(recent.values) & (recent.values >= 0)
    values = recent.values if good.all() else np.where(good, recent.values, np.float32(np.nan))
    clean = Usage(usage.refs, recent.grid, values, usage.resource, usage.statistic)
    coarse = clean.coarser(STEP_SECONDS // usage.grid.step_seconds)
    cut = (coarse.grid.end_seconds - recent.grid.start_seconds) // usage.grid.step_seconds
    fine_grid = TimeGrid(recent.grid.start_seconds, recent.grid.step_seconds, max(0, cut))
    past = Usage(usage.refs, fine_grid, values[:, : fine_grid.size], usage.resource, usage.statistic)
    return past, coarse.tail(settings.history_days * HORIZON)


def _fine(path: Array, past: Usage[RefT], coarse: Usage[RefT], reasons: Sequence[Reason]) -> FinePath:
    """Quantiles of 5-minute values; those of a portrait are of such values already."""
    fine = five_minutes(path, past, coarse)
    portrayed = ~_tested(reasons)
    fine.quantiles[portrayed], fine.profile[portrayed] = path[portrayed], 1
    return fine


def _from_portraits(portraits: Portraits[RefT], refs: Sequence[RefT]) -> tuple[Floats, Floats]:
    """Portrait's quantiles (n, levels) and maximum (n,) of each series; NaN where it has none."""
    row = {ref: index for index, ref in enumerate(portraits.refs)}
    index = np.array([row.get(ref, -1) for ref in refs], dtype=np.int64)
    levels = np.append(portraits.histograms.percentiles(LEVELS), np.full((1, len(LEVELS)), np.nan), axis=0)
    return levels[index], np.append(portraits.maximum, np.nan)[index]


def _portrayed(levels: Floats, coarse: Usage[RefT], reasons: Sequence[Reason]) -> Array:
    """A path that stays at the portrait's quantiles all day; NaN where there is no data."""
    path = conform(np.repeat(levels[:, None, :], HORIZON, axis=1), coarse.values)
    path[np.array([reason is Reason.NO_DATA for reason in reasons], dtype=bool)] = np.nan
    return path


def _reasons(coarse: Usage[RefT], portrayed: npt.NDArray[np.bool_], settings: ForecastingSettings) -> list[Reason]:
    """OK where a forecast can be tested, else why not."""
    present = ~np.isnan(coarse.values)
    size = coarse.grid.size
    some = present.any(axis=1)
    first = present.argmax(axis=1) if size else np.zeros(len(present))
    last = size - 1 - (present[:, ::-1].argmax(axis=1) if size else np.zeros(len(present)))
    silent = (size - 1 - last) * STEP_SECONDS >= settings.stale_hours * HOUR_SECONDS
    young = (size - first) * STEP_SECONDS < settings.minimum_days * DAY_SECONDS
    states = (
        (Reason.NO_DATA, ~some & ~portrayed),
        (Reason.STALE, ~some | silent),
        (Reason.FROM_PORTRAIT, young),
    )
    names = np.select([flags for _, flags in states], [reason.value for reason, _ in states], Reason.OK.value)
    return [Reason(name) for name in names.tolist()]


def _tested(reasons: Sequence[Reason]) -> npt.NDArray[np.bool_]:
    return np.array([reason is Reason.OK for reason in reasons], dtype=bool)


def _of_windows(reasons: Sequence[Reason], windows: Sequence[Sequence[Window]]) -> tuple[Reason, ...]:
    """NO_PEAK where a tested forecast has no window."""
    return tuple(Reason.NO_PEAK if r is Reason.OK and not w else r for r, w in zip(reasons, windows, strict=True))


def _at_least(peak: Array, path: Array) -> Array:
    """Peak that is nowhere below the highest point of the path's median: a maximum cannot be below a mean."""
    floor = path[:, :, _MEDIAN].max(axis=1)
    return np.maximum(
        np.where(np.isnan(peak), floor[:, None], peak), np.where(np.isnan(floor), -np.inf, floor)[:, None]
    )
