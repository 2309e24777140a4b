"""Whether the day ahead has a peak, and its peak and valley windows. Pure.

The median path is flatter than any real day, so past days decide whether there is a peak. The swing of a day is p95 -
p5 of its half hours, and a day votes with 1 / (1 + (least / swing)^5), which is 0.5 if the swing equals the smallest
one that matters, a share of the day's mean. A peak is expected if the mean vote of the last 14 days, newer ones
weighing more, is above the limit, or if the swing was above the least on every day. The median path counts a little:
0.05 times the logarithm of its swing over a tenth of the least is added. The limit is the mean vote that 88 % of all
series' past days without a peak stayed below, shrunk to 0.67 as if by 100 more days, and at least 0.5. For a total with
a known allocatable amount the least is a share of that amount, and the limit is 0.5 if its days repeat. The peak window
is the two hours of `peak_time`'s timing curve; valleys are read from the median.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import Window, WindowKind
from cotenant.base.usage.usage import Flags, FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import Array
from cotenant.forecasting.empirical import known_mean, row_quantiles
from cotenant.forecasting.peak_time import PAST_DAYS, RUN_SECONDS, busiest, past_days
from cotenant.forecasting.settings import ForecastingSettings

PEAK_AMPLITUDE: Final = 0.3
"""(p95 - p5) / mean of half hours above which a day has a peak; many such days make one expected. The limit
below which a portrait calls a series flat: what is flat has no peak."""
WINDOW_MINUTES: Final = 60
"""Shortest valley window; a peak window is two hours. Two half hours of the forecast's grid: a shorter valley is
within its error."""


_DAY_DECAY: Final = 0.85
_STEEPNESS: Final = 5
_EXPECTED_FROM: Final = 0.67
_SILENT: Final = 0.88
_PRIOR_DAYS: Final = 100
_LOWEST_LIMIT: Final = 0.5
_PATH_WEIGHT: Final = 0.05
_FLATTER: Final = 0.1
"""Swing of a median path, of the least that a day has to have, which says nothing for or against a peak."""
_PATH_RANGE: Final = (0.2, 1000.0)
"""bench.forecasting.decisions_peaks says on what these were chosen."""
_TOTAL_EXPECTED_FROM: Final = 0.5
_REGULAR_FROM: Final = 0.3  # correlation of the half hours with those a day before from which a total's days repeat
_VALLEY_TO = 0.25  # a valley window is where the path is below valley + this x (peak - valley)


def swing(path: Floats) -> npt.NDArray[np.float64]:
    """Return p95 - p5 along the last axis, ignoring gaps, in the unit of the path; NaN if nothing is known."""
    low, high = np.moveaxis(row_quantiles(path, np.array([0.05, 0.95])).astype(np.float64), -1, 0)
    return np.asarray(high - low)


def amplitude(path: Floats) -> npt.NDArray[np.float64]:
    """Return (p95 - p5) / mean of each path (..., H), ignoring gaps; 0 if the mean is 0 or not known."""
    mean = known_mean(path, 0.0)
    relative: npt.NDArray[np.float64] = np.divide(swing(path), mean, out=np.zeros(mean.shape), where=mean > 0)
    return relative


def peak_expected(
    history: FloatMatrix,
    grid: TimeGrid,
    median: Array,
    settings: ForecastingSettings,
    allocatable: Floats | None = None,
) -> Flags:
    """Return for each series whether the day after the grid is expected to have a peak.

    `history`, (n, grid.size), has gaps as NaN. `median`, (n, slots per day), is the forecast of that day; it decides
    alone if no past day has enough samples. `allocatable`, (n,), is in the unit of the history, NaN if the series is no
    total; a total must swing by a share of it to have a peak.
    """
    days, counts = past_days(history, grid.slots_per_day)
    total = np.full(len(history), np.nan) if allocatable is None else allocatable
    least = settings.cluster_peak_share * total[:, None]
    is_total = np.isfinite(least) & (least > 0)
    least = np.where(is_total, least, PEAK_AMPLITUDE * known_mean(days, 0.0))
    swings = np.nan_to_num(swing(days))
    ratio = np.divide(least, swings, out=np.full(swings.shape, np.inf), where=swings > 0)
    with np.errstate(over="ignore"):
        votes = mean_votes(1 / (1 + ratio**_STEEPNESS), counts)
    mean_vote, has_past_day = votes[:, -1], counts.any(axis=1)
    path = amplitude(median)
    flat = max(_FLATTER * PEAK_AMPLITUDE, np.finfo(np.float64).tiny)
    of_path = _PATH_WEIGHT * np.log(np.clip(path / flat, *_PATH_RANGE))
    series = ~is_total[:, 0]
    limit = vote_limit(votes[series], (swings > least)[series], counts[series])
    every_day = ((swings > least) | ~counts).all(axis=1)
    expected: Flags = np.where(series, (mean_vote + of_path > limit) | every_day, mean_vote > _TOTAL_EXPECTED_FROM)
    expected[~series] &= daily_correlation(history[~series], grid.slots_per_day) >= _REGULAR_FROM
    return np.where(has_past_day, expected, path > PEAK_AMPLITUDE)


def mean_votes(votes: Floats, counts: Flags) -> npt.NDArray[np.float64]:
    """Return an array (n, days + 1): the weighted mean vote of the days before each day, and of all days; 0 if none.

    `votes` (0..1, how clearly a day had a peak) and `counts` (which days count) are (n, days), oldest first.
    """
    total, weight = np.zeros(len(votes)), np.zeros(len(votes))
    means = np.zeros((len(votes), votes.shape[1] + 1))
    for day in range(votes.shape[1]):
        total = _DAY_DECAY * total + votes[:, day] * counts[:, day]
        weight = _DAY_DECAY * weight + counts[:, day]
        means[:, day + 1] = np.divide(total, weight, out=np.zeros(len(votes)), where=weight > 0)
    return means


def vote_limit(votes: Floats, with_peak: Flags, counts: Flags) -> float:
    """Return the mean vote above which a peak is expected: a high quantile of those before past days without a peak.

    Only the newer half of days is used; the quantile is averaged with a prior, and the limit is at least 0.5. votes
    (0..1): (n, days + 1) of `mean_votes`; with_peak, counts: (n, days).
    """
    tested = slice(with_peak.shape[1] // 2, with_peak.shape[1])
    even = votes[:, tested][(~with_peak & counts)[:, tested]]
    own = float(np.quantile(even, _SILENT)) if even.size else 0.0
    return max(_LOWEST_LIMIT, (_PRIOR_DAYS * _EXPECTED_FROM + even.size * own) / (_PRIOR_DAYS + even.size))


def daily_correlation(history: FloatMatrix, slots_per_day: int) -> npt.NDArray[np.float64]:
    """Return each series' correlation of the last 14 days' slots with those one day before; 1 if it is not known."""
    recent = history[:, -PAST_DAYS * slots_per_day :].astype(np.float64)
    now, before = recent[:, slots_per_day:], recent[:, : max(0, recent.shape[1] - slots_per_day)]
    both = ~np.isnan(now) & ~np.isnan(before)
    count = np.maximum(both.sum(axis=1), 1)[:, None]
    away = [np.where(both, v - np.where(both, v, 0).sum(axis=1, keepdims=True) / count, 0.0) for v in (now, before)]
    spread = np.sqrt((away[0] ** 2).sum(axis=1) * (away[1] ** 2).sum(axis=1))
    correlation: npt.NDArray[np.float64] = np.divide(
        (away[0] * away[1]).sum(axis=1), spread, out=np.ones(len(history)), where=spread > 0
    )
    return correlation


def windows(median: Array, timing: Array, expected: Flags, grid: TimeGrid) -> tuple[tuple[Window, ...], ...]:
    """Return each series' peak window and valleys of the day ahead, by time; none if no peak is expected.

    `median` (n, grid.size) is in the resource's unit, because windows store its mean; `timing` is from `peak_timing`.
    """
    starts = busiest(timing, grid.step_seconds)
    chosen = np.flatnonzero(expected & np.isfinite(median).all(axis=1))
    windows_found: list[list[Window]] = [[] for _ in median]
    after = starts + RUN_SECONDS // grid.step_seconds
    for i in chosen.tolist():
        windows_found[i].append(_window(WindowKind.PEAK, median[i], int(starts[i]), int(after[i]), grid))
    # Centred mean over three slots: a window should not end at one odd half hour.
    path = median[chosen]
    padded = np.pad(path, ((0, 0), (1, 1)), mode="edge")
    smooth = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / np.float32(3)
    # Valleys are low runs of at least WINDOW_MINUTES outside the peak's.
    low, high = smooth.min(axis=1, keepdims=True), smooth.max(axis=1, keepdims=True)
    slot = np.arange(smooth.shape[1])
    inside = (smooth <= low + _VALLEY_TO * (high - low)) & (high > low)
    inside &= (slot < starts[chosen, None]) | (slot >= after[chosen, None])
    row, edge = np.nonzero(np.diff(inside.astype(np.int8), prepend=0, append=0))
    for place, first, last in zip(row[::2].tolist(), edge[::2].tolist(), edge[1::2].tolist(), strict=True):
        if (last - first) * grid.step_seconds >= 60 * WINDOW_MINUTES:
            i = int(chosen[place])
            windows_found[i].append(_window(WindowKind.VALLEY, median[i], first, last, grid))
    return tuple(tuple(sorted(of, key=lambda window: window.start_seconds)) for of in windows_found)


def _window(kind: WindowKind, path: Array, first: int, after: int, grid: TimeGrid) -> Window:
    start, end = (grid.start_seconds + slot * grid.step_seconds for slot in (first, after))
    return Window(kind, start, end, float(path[first:after].mean()))
