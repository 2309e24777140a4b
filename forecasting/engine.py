"""The entry point of forecasting: from 5-minute totals to forecasts. Pure.

usage -> half hours -> quantile path with its error, shard by shard (`shard`) -> windows from it and from past days
(`windows`), and the 24-hour peak from the 5-minute values (`peaks`). Series with too little or no history get the
quantiles of their portrait and the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.reasons import Reason
from cotenant.base.usage.forecast import LEVELS, FinePath, Forecasts, MeasuredError, RefT
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, TimeGrid, Usage
from cotenant.forecasting import plugins
from cotenant.forecasting.base import Array, Forecaster, conform
from cotenant.forecasting.five_minutes import five_minutes
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.local_time.calendars import Calendar
from cotenant.forecasting.local_time.wall_clock import WallClock
from cotenant.forecasting.peak_time import peak_timing
from cotenant.forecasting.peaks import daily_maxima, peak_quantiles
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.shard import ShardForecast, forecast_shard
from cotenant.forecasting.windows import peak_expected, windows

STALE_HOURS: Final = 24.0
"""Silence after which the portrait's quantiles stand in. A day without a sample is one whole daily pattern that was
not seen."""

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

    `members` are by default the built-in models and the settings' plug-ins; the first is the baseline of the measured
    errors. `allocatable` (n,) is the available amount of the resource, for totals of a cluster, whose peaks are
    measured against it; NaN or None for other series. `fine`: also forecast 5-minute values. `portraits` (usage
    summaries) may have more series, in any order; a series with a sample neither there nor in `usage` has NO_DATA.
    Values that are negative or not finite count as gaps.
    """
    competing = plugins.members(tuple(settings.plugins)) if members is None else members
    return _forecast(usage, portraits, settings, competing, None, allocatable, fine=fine)[0]


def forecast_and_learn(
    usage: Usage[RefT],
    portraits: Portraits[RefT],
    settings: ForecastingSettings,
    learned: Learned | None,
    allocatable: Floats | None = None,
    ceiling: Floats | None = None,
) -> tuple[Forecasts[RefT], Learned]:
    """Return the forecasts of `forecast`, and what was learned from back-tests, for later forecasts.

    `learned` is from an earlier forecast of these series with these settings and members. For `relearn_hours` it is
    used and returned; later, or without it, the history is learned again. `ceiling` (n,) is the most that a series can
    use, NaN or None = not known: peaks are limited to it, or to the highest usage seen if that is higher.
    """
    members = plugins.members(tuple(settings.plugins))
    return _forecast(usage, portraits, settings, members, learned, allocatable, ceiling)


def _forecast_shards(
    history: FloatMatrix,
    grid: TimeGrid,
    names: Sequence[str],
    settings: ForecastingSettings,
    members: Sequence[Forecaster],
    learned: Learned | None,
) -> tuple[list[tuple[npt.NDArray[np.intp], ShardForecast]], Learned]:
    """Forecast histories (n, grid.size) in shards; return them with their series' indices, and what they learned."""
    if learned is not None and learned.serves(names, grid.end_seconds, settings.relearn_hours):
        fitted = learned.shards(names)
        return [(rows, forecast_shard(history[rows], grid, settings, members, fit)) for rows, fit in fitted], learned
    firsts = range(0, len(names), _SERIES_PER_SHARD)
    blocks = [np.arange(first, min(first + _SERIES_PER_SHARD, len(names))) for first in firsts]
    shards = [(rows, forecast_shard(history[rows], grid, settings, members)) for rows in blocks]
    return shards, Learned(tuple(names), grid.end_seconds, tuple(shard.fit for _, shard in shards))


def _forecast(
    usage: Usage[RefT],
    portraits: Portraits[RefT],
    settings: ForecastingSettings,
    members: Sequence[Forecaster],
    learned: Learned | None,
    allocatable: Floats | None,
    ceiling: Floats | None = None,
    fine: bool = True,
) -> tuple[Forecasts[RefT], Learned]:
    if usage.resource is None or STEP_SECONDS % usage.grid.step_seconds:
        raise ValueError("forecasts need the usage of a resource, at a step that divides half an hour")
    past, coarse = _align_usage(usage, settings)
    levels, highest = _from_portraits(portraits, usage.refs, settings)
    reasons = _reasons(coarse, ~np.isnan(highest), settings)
    # Where nothing can be forecast, the portrait's quantiles stand all day; NaN where there is no data.
    path = conform(np.repeat(levels[:, None, :], HORIZON, axis=1), coarse.values)
    path[np.array([reason is Reason.NO_DATA for reason in reasons], dtype=bool)] = np.nan
    model, error = [PORTRAIT_MODEL] * len(reasons), [_UNKNOWN] * len(reasons)
    losses = np.full((len(reasons), len(members)), np.nan, dtype=np.float32)
    clock = WallClock.of(coarse.grid, HORIZON, settings.time_zone)
    calendar = Calendar.of(coarse.grid, HORIZON, settings)
    local = clock.local(calendar.ordinary(coarse.values))
    tested = np.flatnonzero(_ok_mask(reasons))
    names = [str(usage.refs[row]) for row in tested.tolist()]
    shards, learned = _forecast_shards(local[tested], coarse.grid, names, settings, members, learned)
    for places, shard in shards:
        rows = tested[places]
        path[rows], losses[rows] = shard.path, shard.losses
        for row, name, measured in zip(rows.tolist(), shard.model, shard.error, strict=True):
            model[row], error[row] = name, measured
    timing = clock.absolute(peak_timing(local, coarse.grid, path[:, :, _MEDIAN]))
    path = calendar.special(clock.absolute(path), coarse.values, clock)
    median = path[:, :, _MEDIAN]
    if calendar.rests:  # past days are no guide to a day of rest, of which the path is made apart
        local, timing = local[:, :0], np.nan_to_num(median)
    expected = peak_expected(local, coarse.grid, median, settings, allocatable) & _ok_mask(reasons)
    fine_values = past.tail(coarse.grid.size * (STEP_SECONDS // past.grid.step_seconds)).values
    maxima = daily_maxima(calendar.like_ahead(fine_values), past.grid.slots_per_day)[:, -settings.history_days :]
    peak = _bound_peaks(peak_quantiles(maxima, highest) * calendar.busiest, ceiling, highest, maxima)
    # A day's highest value is above no mean in it. The peak is raised to the highest point of the path's median. At the
    # other levels the path, whose far quantiles are known less well than that of past days' maxima, gives way; without
    # such a day the peak does.
    highest_path = path.max(axis=1)
    highest_median = highest_path[:, _MEDIAN, None]
    has_days = np.asarray(np.isfinite(maxima).any(axis=1))[:, None]
    peak = np.fmax(peak, np.where(has_days, highest_median, np.fmax(highest_path, highest_median)))
    path = np.minimum(path, peak[:, None, :])
    grid = coarse.grid.following(HORIZON)
    day_windows = windows(median, timing, expected, grid)
    forecasts = Forecasts(
        refs=usage.refs,
        resource=usage.resource,
        grid=grid,
        quantiles=path,
        peak=peak,
        windows=day_windows,
        model=tuple(model),
        error=tuple(error),
        reason=tuple(
            Reason.NO_PEAK if reason is Reason.OK and not windows_of_day else reason
            for reason, windows_of_day in zip(reasons, day_windows, strict=True)
        ),
        cards=tuple(shard.fit.card for _, shard in shards if shard.fit.card),
        members=tuple(member.name for member in members),
        losses=losses,
        timing=timing,
        fine=_fine(path, peak, past, coarse, reasons) if fine else None,
    )
    return forecasts, learned


def _align_usage(usage: Usage[RefT], settings: ForecastingSettings) -> tuple[Usage[RefT], Usage[RefT]]:
    """Return the last days of usage, cleaned, up to the last whole half hour: at its own step and in half hours."""
    recent = usage.tail((settings.history_days + 1) * usage.grid.slots_per_day)
    good = np.isfinite(recent.values) & (recent.values >= 0)
    values = recent.values if good.all() else np.where(good, recent.values, np.float32(np.nan))
    clean = Usage(usage.refs, recent.grid, values, usage.resource, usage.statistic)
    coarse = clean.coarser(STEP_SECONDS // usage.grid.step_seconds)
    cut = (coarse.grid.end_seconds - recent.grid.start_seconds) // usage.grid.step_seconds
    fine_grid = TimeGrid(recent.grid.start_seconds, recent.grid.step_seconds, max(0, cut))
    past = Usage(usage.refs, fine_grid, values[:, : fine_grid.size], usage.resource, usage.statistic)
    return past, coarse.tail(settings.history_days * HORIZON)


def _fine(path: Array, peak: Array, past: Usage[RefT], coarse: Usage[RefT], reasons: Sequence[Reason]) -> FinePath:
    """Return quantiles of 5-minute values, at most the day's highest; a portrait's quantiles are already of such."""
    fine = five_minutes(path, past, coarse)
    portrayed = ~_ok_mask(reasons)
    fine.quantiles[portrayed], fine.profile[portrayed] = path[portrayed], 1
    highest = peak[:, None, :] / fine.profile.max(axis=2)[..., None]
    return FinePath(fine.step_seconds, np.minimum(fine.quantiles, highest), fine.profile)


def _from_portraits(
    portraits: Portraits[RefT], refs: Sequence[RefT], settings: ForecastingSettings
) -> tuple[Floats, Floats]:
    """Return quantiles (n, levels) and maximum (n,) of the ordinary days of each portrait; NaN without a portrait."""
    row = {ref: index for index, ref in enumerate(portraits.refs)}
    index = np.array([row.get(ref, -1) for ref in refs], dtype=np.int64)
    levels, highest = portraits.percentiles(LEVELS), portraits.maximum
    if settings.events and portraits.refs:
        # The UTC days brought back to the usual level, each by the least factor of its slots: its highest sample may be
        # of any of them.
        days = portraits.daily_maxima.shape[1]
        newest = (portraits.end_seconds - portraits.step_seconds) // DAY_SECONDS
        grid = TimeGrid((newest - days + 1) * DAY_SECONDS, STEP_SECONDS, days * HORIZON)
        factor = Calendar.of(grid, 0, settings).factor.reshape(days, HORIZON).min(axis=1)
        highest = np.fmax.reduce(portraits.daily_maxima / factor, axis=1, initial=np.nan)
        levels = np.fmin(levels, highest[:, None])  # a histogram does not say which of its samples are of an event
    levels = np.append(levels, np.full((1, len(LEVELS)), np.nan), axis=0)
    return levels[index], np.append(highest, np.nan)[index]


def _reasons(coarse: Usage[RefT], portrayed: npt.NDArray[np.bool_], settings: ForecastingSettings) -> list[Reason]:
    """Return OK for series whose forecast can be tested, else the reason why not."""
    present = ~np.isnan(coarse.values)
    size = coarse.grid.size
    some = present.any(axis=1)
    first = present.argmax(axis=1) if size else np.zeros(len(present))
    last = size - 1 - (present[:, ::-1].argmax(axis=1) if size else np.zeros(len(present)))
    silent = (size - 1 - last) * STEP_SECONDS >= STALE_HOURS * HOUR_SECONDS
    young = (size - first) * STEP_SECONDS < settings.minimum_days * DAY_SECONDS
    states = ((Reason.NO_DATA, ~some & ~portrayed), (Reason.STALE, ~some | silent), (Reason.FROM_PORTRAIT, young))
    names = np.select([flags for _, flags in states], [reason.value for reason, _ in states], Reason.OK.value)
    return [Reason(name) for name in names.tolist()]


def _ok_mask(reasons: Sequence[Reason]) -> npt.NDArray[np.bool_]:
    return np.array([reason is Reason.OK for reason in reasons], dtype=bool)


def _bound_peaks(peak: Array, ceiling: Floats | None, highest: Floats, maxima: FloatMatrix) -> Array:
    """Return peaks (n, levels) that do not exceed both the ceiling (n,) and the highest usage seen of a series.

    A young series has the spread of other series, which may be many times what its pods may use.
    """
    if ceiling is None:
        return peak
    highest_seen = np.fmax(highest, np.fmax.reduce(maxima, axis=1, initial=np.nan))
    most = np.where(np.isnan(ceiling), np.inf, np.fmax(ceiling, highest_seen))
    bounded: Array = np.minimum(peak, most[:, None]).astype(np.float32)
    return bounded
