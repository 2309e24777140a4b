"""Usage -> portraits: a fixed-size summary of every series, built and updated by the same code. Pure.

All decisions use portraits instead of the history. There are two granularities: containers of workloads (usage rows are
pod containers, several rows per portrait, start-up separate) and totals (`profiler.pool`; one row each, no start-up).
`update(build(a), b)` equals `build(a + b)` except for the last digits of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import ContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import CPU_SAMPLE_WEIGHT, HistogramBatch, buckets_of, total_buckets_of
from cotenant.base.usage.lanes import Lanes
from cotenant.base.usage.portrait import SLOTS_PER_DAY, Floats, Pattern, Portraits, RefT
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, TimeGrid, Usage
from cotenant.profiler.pool import Rows, reduce_columns, reduce_rows
from cotenant.profiler.settings import PortraitSettings

PATTERN_DAYS: Final = 2.0
"""History below which the pattern is unknown. Fewer than two days cannot show that anything repeats."""
IDLE_MILLICORES: Final = 10.0
"""CPU usage whose 95th percentile stays at or below this is idle. Ten millicores is what a health check and a
runtime's timers use."""
FLAT_AMPLITUDE: Final = 0.3
"""Usage with (p95 - p5) / mean at or below this is flat. It only labels a series, and changes no amount."""
TREND_RISE: Final = 0.3
"""Change of the daily mean over the kept days, relative to the mean, that makes a trend. It only labels a series, and
changes no amount."""
TREND_FIT: Final = 0.7
"""Share of the daily means' variance (R squared) that a straight line must explain for a trend. It only labels a
series, and changes no amount."""
SEASON_SHARE: Final = 0.3
"""Share of variance that the time of day must explain in a daily pattern. It only labels a series, and changes no
amount."""
WEEK_SHARE: Final = 0.1
"""Further share of variance that the weekend must explain in a weekly pattern. It only labels a series, and changes no
amount."""

Flags = npt.NDArray[np.bool_]

_TREND_DAYS = 5


def classify(portraits: Portraits[RefT]) -> tuple[Pattern, ...]:
    """Return the usage pattern of each portrait, by the first matching rule; thresholds are this module's constants.

    Rules: unknown (too short), idle (p95 <= IDLE_MILLICORES; memory: 0), flat (small p95 - p5), trend (of daily means),
    weekly (workday and weekend explain clearly more than the half hour), daily (the half hour explains much), bursty.
    """
    mean, (p5, p95) = portraits.mean, portraits.percentiles((0.05, 0.95)).T
    # Shares of variance that the half hour of the day explains, alone and with workday/weekend, (n,) each:
    # between-group over total sum of squares (the correlation ratio of one-way analysis of variance).
    sums, counts = portraits.slot_sums, portraits.slot_counts
    total = portraits.square_sums - portraits.samples * mean**2
    seasons = (len(mean), 2 * SLOTS_PER_DAY)
    by_day = _between_group_squares(sums.sum(axis=1), counts.sum(axis=1), mean)
    by_week = _between_group_squares(sums.reshape(seasons), counts.reshape(seasons), mean)
    # A variance that is a rounding error of the squares says nothing.
    real = total > 1e-9 * portraits.square_sums
    daily, weekly = (np.divide(part, total, out=np.zeros(len(mean)), where=real) for part in (by_day, by_week))
    idle_below = IDLE_MILLICORES if portraits.resource is Resource.CPU else 0.0
    short = ~(portraits.span_days >= PATTERN_DAYS) | ~(portraits.samples > 0)
    rules = (
        (Pattern.UNKNOWN, short),
        (Pattern.IDLE, (p95 <= idle_below) | ~(mean > 0)),
        (Pattern.FLAT, p95 - p5 <= FLAT_AMPLITUDE * mean),
        (Pattern.TREND, _has_trend(portraits.daily_means)),
        (Pattern.WEEKLY, (weekly - daily >= WEEK_SHARE) & (weekly >= SEASON_SHARE)),
        (Pattern.DAILY, daily >= SEASON_SHARE),
    )
    names = np.select([flags for _, flags in rules], [name.value for name, _ in rules], Pattern.BURSTY.value)
    return tuple(Pattern(name) for name in names.tolist())


def _between_group_squares(sums: Floats, counts: Floats, mean: Floats) -> Floats:
    """Return the sum over groups of count x (group mean - mean)^2."""
    group = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    between: Floats = np.nansum(counts * (group - mean[:, None]) ** 2, axis=1)
    return between


def _has_trend(daily: Floats) -> Flags:
    """Return whether a straight line through each row's daily means slopes enough and fits well enough, (n,)."""
    present = np.isfinite(daily)
    days = present.sum(axis=1)
    when = np.where(present, np.arange(daily.shape[1]), np.nan)
    enough = days >= _TREND_DAYS
    daily, when = np.where(present, daily, 0.0)[enough], when[enough]
    present = present[enough]
    count = days[enough][:, None]
    dx = np.where(present, when - np.nansum(when, axis=1, keepdims=True) / count, 0.0)
    dy = np.where(present, daily - daily.sum(axis=1, keepdims=True) / count, 0.0)
    slope = (dx * dy).sum(axis=1) / (dx * dx).sum(axis=1)
    rise = np.abs(slope) * (np.nanmax(when, axis=1, initial=0) - np.nanmin(when, axis=1, initial=daily.shape[1]))
    variance = (dy * dy).sum(axis=1)
    fits = slope**2 * (dx * dx).sum(axis=1) >= TREND_FIT * variance
    trending = np.zeros(len(enough), dtype=bool)
    trending[enough] = fits & (variance > 0) & (rise >= TREND_RISE * daily.sum(axis=1) / count[:, 0])
    return trending


_HALF_HOUR_SECONDS: Final = DAY_SECONDS // SLOTS_PER_DAY
_WEEKEND: Final = 5
_THURSDAY: Final = 3
"""Day of week of 1970-01-01, 0 = Monday."""


def build(
    refs: Sequence[RefT],
    rows: Rows,
    usage: Usage[Any],
    settings: PortraitSettings,
    pod_start_seconds: Floats | None = None,
) -> Portraits[RefT]:
    """Build portraits (fixed-size usage summaries) of `refs`; `rows` has each usage row's position in `refs`, or -1.

    `pod_start_seconds`, one per usage row (NaN unknown), determines the start-up phase; if it is None (for totals and
    nodes), there is no such phase. The grid's step must divide half an hour.
    """
    if usage.resource is None or _HALF_HOUR_SECONDS % usage.grid.step_seconds:
        raise ValueError("a portrait needs a resource and a step that divides half an hour")
    size, days = len(refs), settings.days_kept
    of_containers = any(isinstance(ref, ContainerRef) for ref in refs)
    buckets = buckets_of(usage.resource) if of_containers else total_buckets_of(usage.resource)
    half_life = settings.half_life_hours * HOUR_SECONDS
    # Without any sample yet, ending where the usage begins
    blank = Portraits(
        refs=tuple(refs),
        resource=usage.resource,
        step_seconds=usage.grid.step_seconds,
        end_seconds=usage.grid.start_seconds,
        histograms=HistogramBatch.empty(size, buckets, half_life),
        startup_max=np.full(size, np.nan),
        startup_samples=np.zeros(size),
        first_seconds=np.full(size, np.nan),
        last_seconds=np.full(size, np.nan),
        seen=np.zeros(size),
        square_sums=np.zeros(size),
        daily_maxima=np.full((size, days), np.nan),
        daily_sums=np.zeros((size, days)),
        daily_counts=np.zeros((size, days)),
        slot_sums=np.zeros((size, 2, SLOTS_PER_DAY)),
        slot_counts=np.zeros((size, 2, SLOTS_PER_DAY)),
        slot_maxima=np.full((size, 7, SLOTS_PER_DAY), np.nan),
        pattern=(Pattern.UNKNOWN,) * size,
    )
    return update(blank, refs, rows, usage, settings, pod_start_seconds)


def update(
    portraits: Portraits[RefT],
    refs: Sequence[RefT],
    rows: Rows,
    usage: Usage[Any],
    settings: PortraitSettings,
    pod_start_seconds: Floats | None = None,
) -> Portraits[RefT]:
    """Return portraits with newer usage and new refs; `rows`: each series' position in `refs`, -1 if it has none."""
    if usage.grid.start_seconds < portraits.end_seconds or usage.grid.step_seconds != portraits.step_seconds:
        raise ValueError(
            f"usage from {usage.grid.start_seconds} does not follow portraits up to {portraits.end_seconds}"
        )
    wide = _add_blank_portraits(portraits, refs)
    position = {ref: index for index, ref in enumerate(wide.refs)}
    target = np.append(np.array([position[ref] for ref in refs], dtype=np.int64), -1)[rows]
    in_group = target >= 0
    values, target = (usage.values, target) if in_group.all() else (usage.values[in_group], target[in_group])
    starts = None if pod_start_seconds is None else pod_start_seconds[in_group]
    lanes = Lanes.of(np.isfinite(values), target)
    packed = lanes.pack(values)
    steady, startup = _split(packed, lanes, usage, starts, settings)
    wide = _with_presence(wide, packed, lanes, usage)
    if startup is not None:
        # Portraits with the start-up phase's maximum and count.
        size = len(wide.refs)
        highest = np.fmax.reduce(startup, axis=1, initial=np.nan).astype(np.float64)
        counts = np.isfinite(startup).sum(axis=1).astype(np.float64)
        wide = replace(
            wide,
            startup_max=np.fmax(wide.startup_max, reduce_rows(np.fmax, highest, target, size, np.nan)),
            startup_samples=wide.startup_samples + reduce_rows(np.add, counts, target, size, 0.0),
        )
    wide = _with_steady(wide, steady, lanes.groups, usage)
    return replace(wide, pattern=classify(wide))


_COLUMNS_OF_NAN: Final = ("startup_max", "first_seconds", "last_seconds", "daily_maxima", "slot_maxima")
_COLUMNS_OF_ZERO: Final = (
    *("startup_samples", "seen", "square_sums"),
    *("daily_sums", "daily_counts", "slot_sums", "slot_counts"),
)


def _add_blank_portraits(portraits: Portraits[RefT], refs: Sequence[RefT]) -> Portraits[RefT]:
    """Return the portraits with blank ones appended for new refs."""
    old_refs = set(portraits.refs)
    fresh = tuple(dict.fromkeys(ref for ref in refs if ref not in old_refs))
    if not fresh:
        return portraits

    def longer(name: str, fill: float) -> Floats:
        column: Floats = getattr(portraits, name)
        return np.append(column, np.full((len(fresh), *column.shape[1:]), fill), axis=0)

    changes: dict[str, Any] = {name: longer(name, np.nan) for name in _COLUMNS_OF_NAN}
    changes |= {name: longer(name, 0.0) for name in _COLUMNS_OF_ZERO}
    rows = np.append(np.arange(len(portraits.refs)), np.full(len(fresh), -1))
    pattern = portraits.pattern + (Pattern.UNKNOWN,) * len(fresh)
    histograms = portraits.histograms.select(rows)
    return replace(portraits, refs=portraits.refs + fresh, histograms=histograms, pattern=pattern, **changes)


def _split(
    packed: FloatMatrix, lanes: Lanes, usage: Usage[Any], starts: Floats | None, settings: PortraitSettings
) -> tuple[FloatMatrix, FloatMatrix | None]:
    """Return (steady, start-up) samples, all finite: (L, T), NaN during start-up, and (m, slots of the start-up).

    A slot belongs to the start-up if the pod started in it or was younger than `startup_minutes` at its start.
    """
    steady = np.where(np.isfinite(packed), packed, np.float32(np.nan))
    if starts is None or not settings.startup_minutes:
        return steady, None
    grid = usage.grid
    began = np.nan_to_num((starts - grid.start_seconds) / grid.step_seconds, nan=-np.inf)
    first = np.floor(np.clip(began, -1e6, grid.size + 1)).astype(np.int64)
    length = 60 * settings.startup_minutes / grid.step_seconds
    column = first[:, None] + np.arange(np.ceil(length) + 1, dtype=np.int64)
    # only slots that the pod has to itself: others of its lane may be an older pod's
    inside = (column >= lanes.first[:, None]) & (column < lanes.end[:, None])
    startup = np.full(column.shape, np.nan, dtype=np.float32)
    row, near = np.nonzero(inside & (column - began[:, None] < length))
    lane, slot = lanes.lane[row], column[row, near]
    startup[row, near] = steady[lane, slot]
    steady[lane, slot] = np.nan
    return steady, startup


def _with_presence(portraits: Portraits[RefT], packed: FloatMatrix, lanes: Lanes, usage: Usage[Any]) -> Portraits[RefT]:
    """Return the portraits with the times at which samples were present."""
    size, times = len(portraits.refs), usage.grid.times()
    present = reduce_rows(np.logical_or, np.isfinite(packed), lanes.groups, size, False)
    some = present.any(axis=1)
    first = np.where(some, times[present.argmax(axis=1)] if times.size else 0, np.nan)
    last = np.where(some, times[::-1][present[:, ::-1].argmax(axis=1)] if times.size else 0, np.nan)
    return replace(
        portraits,
        end_seconds=usage.grid.end_seconds,
        first_seconds=np.fmin(portraits.first_seconds, first),
        last_seconds=np.fmax(portraits.last_seconds, last),
        seen=portraits.seen + present.sum(axis=1),
        daily_maxima=_shift_days(portraits.daily_maxima, portraits.end_seconds, usage.grid.end_seconds, np.nan),
        daily_sums=_shift_days(portraits.daily_sums, portraits.end_seconds, usage.grid.end_seconds, 0.0),
        daily_counts=_shift_days(portraits.daily_counts, portraits.end_seconds, usage.grid.end_seconds, 0.0),
    )


def _with_steady(portraits: Portraits[RefT], steady: FloatMatrix, target: Rows, usage: Usage[Any]) -> Portraits[RefT]:
    """Return the portraits with the steady samples added (`_with_presence` has shifted the days)."""
    size = len(portraits.refs)
    weight = CPU_SAMPLE_WEIGHT if portraits.resource is Resource.CPU else 1.0
    # Sum, number and maximum of the samples in each half hour of the clock, (m, K), and sum of all squares, (m,).
    grid = usage.grid
    factor = _HALF_HOUR_SECONDS // grid.step_seconds
    lead = grid.start_seconds % _HALF_HOUR_SECONDS // grid.step_seconds
    trail = -(lead + grid.size) % factor
    padded = np.pad(steady, ((0, 0), (lead, trail)), constant_values=np.nan) if lead or trail else steady
    block = padded.reshape(len(padded), padded.shape[1] // factor, factor)
    sums, counts = np.zeros(block.shape[:2]), np.zeros(block.shape[:2])
    maxima, half_squares = np.full(block.shape[:2], np.nan), np.zeros(len(block))
    for offset in range(factor):  # six strided passes beat a reduction over an axis of six
        part = block[:, :, offset]
        present = np.isfinite(part)
        filled = np.where(present, part, 0.0)
        sums += filled
        half_squares += np.einsum("ij,ij->i", filled, filled, dtype=np.float64)
        counts += present
        np.fmax(maxima, part, out=maxima)
    *parts, squares = sums, counts, maxima, half_squares
    ufuncs, fills = (np.add, np.add, np.fmax), (0.0, 0.0, np.nan)
    sums, counts, maxima = map(reduce_rows, ufuncs, parts, repeat(target), repeat(size), fills)
    first = usage.grid.start_seconds // _HALF_HOUR_SECONDS
    when = np.arange(first, first + sums.shape[1])
    slot, day = when % SLOTS_PER_DAY, when // SLOTS_PER_DAY
    weekday = (day + _THURSDAY) % 7
    season = np.where(weekday >= _WEEKEND, SLOTS_PER_DAY, 0) + slot
    day_count = portraits.daily_sums.shape[1]
    column = np.maximum(day - (usage.grid.end_seconds - 1) // DAY_SECONDS + day_count - 1, -1)
    return replace(
        portraits,
        histograms=portraits.histograms.add(steady, usage.grid.times(), target, weight),
        square_sums=portraits.square_sums + reduce_rows(np.add, squares, target, size, 0.0),
        daily_maxima=np.fmax(portraits.daily_maxima, reduce_columns(np.fmax, maxima, column, day_count, np.nan)),
        daily_sums=portraits.daily_sums + reduce_columns(np.add, sums, column, day_count, 0.0),
        daily_counts=portraits.daily_counts + reduce_columns(np.add, counts, column, day_count, 0.0),
        slot_sums=portraits.slot_sums
        + reduce_columns(np.add, sums, season, 2 * SLOTS_PER_DAY, 0.0).reshape(size, 2, SLOTS_PER_DAY),
        slot_counts=portraits.slot_counts
        + reduce_columns(np.add, counts, season, 2 * SLOTS_PER_DAY, 0.0).reshape(size, 2, SLOTS_PER_DAY),
        slot_maxima=np.fmax(
            portraits.slot_maxima,
            reduce_columns(np.fmax, maxima, weekday * SLOTS_PER_DAY + slot, 7 * SLOTS_PER_DAY, np.nan).reshape(
                size, 7, SLOTS_PER_DAY
            ),
        ),
    )


def _shift_days(days: Floats, old_end_seconds: int, new_end_seconds: int, fill: float) -> Floats:
    """Return the columns of UTC days shifted left so that the last one is the day of the new end."""
    moved = (new_end_seconds - 1) // DAY_SECONDS - (old_end_seconds - 1) // DAY_SECONDS
    if not moved:
        return days
    fresh = np.full((len(days), min(moved, days.shape[1])), fill)
    return np.append(days[:, moved:], fresh, axis=1)


def idle_slots(cpu: FloatMatrix, memory: FloatMatrix) -> npt.NDArray[np.bool_]:
    """Return a mask, (series, slots), of the slots in which no pod ran: those with a memory sum of 0.

    A process always uses memory. `cpu` and `memory` have the same shape, with NaN for gaps; where memory is a gap, a
    CPU of exactly 0 counts.
    """
    idle: npt.NDArray[np.bool_] = np.where(np.isnan(memory), cpu, memory) == 0
    return idle


def while_running(
    histograms: HistogramBatch, values: FloatMatrix, idle: npt.NDArray[np.bool_], grid: TimeGrid
) -> HistogramBatch:
    """Return histograms of `values`, (series, slots), without idle slots; series that never ran stay unchanged.

    Histograms are built anew instead of removing zeros, because weights from before a long idle time have decayed.
    """
    running = np.isfinite(values) & ~idle
    rows = np.flatnonzero(running.any(axis=1) & (np.isfinite(values) & idle).any(axis=1))
    if not len(rows):
        return histograms
    part = np.where(running[rows], values[rows], np.float32(np.nan))
    batch = HistogramBatch.empty(len(rows), histograms.buckets, histograms.half_life_seconds).add(part, grid.times())
    weights, total, reference = histograms.weights.copy(), histograms.total.copy(), histograms.reference_seconds.copy()
    weights[rows], total[rows], reference[rows] = batch.weights, batch.total, batch.reference_seconds
    return replace(histograms, weights=weights, total=total, reference_seconds=reference)
