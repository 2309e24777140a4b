"""Peak windows of a day, forecast against actual: hit, overlap, capture, timing, and "there is no peak". Pure.

The peak window of a path is its run of `hours` with the highest mean. Actual days whose (p95 - p5) / mean is at most
AMPLITUDE have no peak; the right forecast for them is that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import HOUR_SECONDS, Flags, Floats
from cotenant.forecasting.windows import amplitude as relative_amplitude

AMPLITUDE: Final = 0.3
"""Smallest (p95 - p5) / mean of a day that has a peak worth forecasting."""
WINDOW_HOURS: Final = 2.0
EQUAL: Final = 0.95
"""A second window that reaches this share of the highest is another peak of the same height."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowScores:
    """The agreement of forecast and actual peak windows, one value for each of n paths.

    All are NaN if the actual or the forecast path has no window without a gap. hit: 1 if the windows start within an
    hour of each other; iou: intersection over union of the two; capture: mean usage inside the forecast window relative
    to that inside the actual one, NaN also if the latter is 0; late_minutes: forecast start minus actual start on a
    24-hour circle.
    """

    hit: Floats
    iou: Floats
    capture: Floats
    late_minutes: Floats


def amplitude(path: Floats) -> Flags:
    """Return for each path of (n, H) whether its (p95 - p5) / mean is above AMPLITUDE; gaps are ignored."""
    moving: Flags = relative_amplitude(path) > AMPLITUDE
    return moving


def run_means(path: Floats, width: int) -> Floats:
    """Return an array (n, H - width + 1): the mean of each run of `width` slots; NaN if the run has a gap."""
    total = np.cumsum(np.pad(path.astype(np.float64), ((0, 0), (1, 0))), axis=1)
    if not np.isnan(path).any():
        means: Floats = (total[:, width:] - total[:, :-width]) / width
        return means
    runs = np.lib.stride_tricks.sliding_window_view(path.astype(np.float64), width, axis=1)
    return np.asarray(runs.mean(axis=2))


def best_start(path: Floats, width: int) -> npt.NDArray[np.intp]:
    """Return for each path the first slot of its run with the highest mean; -1 if every run has a gap."""
    means = run_means(path, width)
    filled = np.where(np.isnan(means), -np.inf, means)
    start: npt.NDArray[np.intp] = np.where(np.isneginf(filled.max(axis=1, initial=-np.inf)), -1, filled.argmax(axis=1))
    return start


def compare(actual: Floats, shape: Floats, step_seconds: int, hours: float = WINDOW_HOURS) -> WindowScores:
    """Compare the peak windows of forecast paths `shape` (n, H) with those of actual values (n, H)."""
    width = max(1, round(hours * HOUR_SECONDS / step_seconds))
    real, forecast_start = best_start(actual, width), best_start(shape, width)
    comparable = (real >= 0) & (forecast_start >= 0)
    slots_late = (forecast_start - real).astype(np.float64)
    shared = np.maximum(0, width - np.abs(slots_late))
    means = run_means(actual, width)
    row = np.arange(len(actual))
    at_real, at_said = means[row, np.maximum(real, 0)], means[row, np.maximum(forecast_start, 0)]
    capture = np.divide(at_said, at_real, out=np.full(len(actual), np.nan), where=comparable & (at_real > 0))
    minutes, day = slots_late * step_seconds / 60, 24 * 60
    return WindowScores(
        hit=np.where(comparable, np.abs(minutes) <= 60, np.nan),
        iou=np.where(comparable, shared / (2 * width - shared), np.nan),
        capture=capture,
        late_minutes=np.where(comparable, (minutes + day / 2) % day - day / 2, np.nan),
    )


def equal_peaks(actual: Floats, step_seconds: int, hours: float = WINDOW_HOURS) -> Flags:
    """Return for each day whether a second, separate window has a mean of at least EQUAL times the highest one's."""
    width = max(1, round(hours * HOUR_SECONDS / step_seconds))
    means = np.nan_to_num(run_means(actual, width))
    best = means.argmax(axis=1)
    disjoint = np.abs(np.arange(means.shape[1])[None, :] - best[:, None]) >= width
    second = np.where(disjoint, means, 0.0).max(axis=1, initial=0.0)
    highest = means.max(axis=1, initial=0.0)
    both: Flags = (second >= EQUAL * highest) & (highest > 0)
    return both


def window_starts(path: Floats, step_seconds: int) -> Flags:
    """Return flags (n, H): True at the slots at which a peak window of the path starts.

    A window is a run of at least an hour above half of the path's height. The path is smoothed over three slots; half
    of its height is its lowest value + 0.5 x (highest - lowest).
    """
    filled = np.nan_to_num(path)
    padded = np.pad(filled, ((0, 0), (1, 1)), mode="edge")
    smooth = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
    low, high = smooth.min(axis=1, keepdims=True), smooth.max(axis=1, keepdims=True)
    inside = (smooth >= (low + high) / 2) & (high > low)
    starts: Flags = inside & ~np.pad(inside, ((0, 0), (1, 0)))[:, :-1]
    for ahead in range(1, max(1, round(HOUR_SECONDS / step_seconds))):
        starts &= np.pad(inside, ((0, 0), (0, ahead)))[:, ahead:]
    return starts


def count_matched_windows(real: Flags, forecast: Flags, step_seconds: int) -> npt.NDArray[np.intp]:
    """Count for each day of (n, H) the actual windows that can be paired with a forecast start within an hour.

    Pairing each actual window, in order, with the earliest unpaired start within reach makes as many pairs as possible.
    """
    reach, size = max(0, round(HOUR_SECONDS / step_seconds)), real.shape[1]
    free = forecast.copy()
    count = np.zeros(len(real), dtype=np.intp)
    for slot in range(size):
        open_still = real[:, slot].copy()
        for near in range(max(0, slot - reach), min(size, slot + reach + 1)):
            pair = open_still & free[:, near]
            count += pair
            free[:, near] &= ~pair
            open_still &= ~pair
    return count
