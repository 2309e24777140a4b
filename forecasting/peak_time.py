"""The time of the day's peak: estimated apart from the median path, which smooths it out. Pure.

The peak of a day is its run of two hours with the highest mean. Each past day, laid over the horizon by the time of
day, votes for the starts of such runs: a start whose run has the mean r gets exp((r / highest - 1) / 0.1), scaled so
that a day's votes sum to 1. Newer days weigh more, and those of the coming weekday three times as much; the median path
votes likewise, less sharply. A vote counts for the middle hour of its run, and little for the rest: the highest run
of the sum is the one with most votes within an hour of its start.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from forecasting.base import Array

Floats = npt.NDArray[np.floating[Any]]

RUN_SECONDS: Final = 2 * HOUR_SECONDS
"""Length of a peak window."""
PAST_DAYS: Final = 14
_DAY_DECAY: Final = 0.93
_WEEKDAY_WEIGHT: Final = 3.0
_WEEK: Final = 7
_SHARPNESS: Final = 0.1
_PATH_SHARPNESS: Final = 0.2
"""A run this share of the highest lower has 1 / e of its votes."""
_PATH_WEIGHT: Final = 0.7
"""Votes of the median path beside the mean over the days: it contains what the models learned from them."""
_EDGE_WEIGHT: Final = 0.1
"""What a vote counts for in the first and last half hour of its run, so that among close starts its own is highest."""
_LEAST_PRESENT: Final = 0.7
"""Share of a day's slots that must be known for it to count."""


def past_days(history: FloatMatrix, slots_per_day: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The last whole days before the end, (n, days, slots per day) with gaps as NaN, newest last, and which count.

    history: (n, slots); at most 14 days; a day counts where at least 70 % of it is known, (n, days).
    """
    count = min(PAST_DAYS, history.shape[1] // slots_per_day)
    recent = history[:, history.shape[1] - count * slots_per_day :]
    days = recent.reshape(len(history), count, slots_per_day).astype(np.float64)
    return days, (~np.isnan(days)).mean(axis=2) >= _LEAST_PRESENT


def peak_timing(history: FloatMatrix, grid: TimeGrid, median: Array) -> Array:
    """Curve of the day ahead, (n, slots per day), whose highest run of two hours is the likeliest peak; >= 0, no unit.

    history: (n, grid.size) with gaps as NaN; median: (n, slots per day), the path of the day ahead.
    """
    width = max(1, RUN_SECONDS // grid.step_seconds)
    days, counts = past_days(history, grid.slots_per_day)
    votes = _PATH_WEIGHT * _votes(run_means(np.nan_to_num(median.astype(np.float64)), width), _PATH_SHARPNESS)
    if days.shape[1]:
        present = ~np.isnan(days)
        mean = np.where(present, days, 0.0).sum(axis=2) / np.maximum(present.sum(axis=2), 1)
        of_days = _votes(run_means(np.where(present, days, mean[:, :, None]), width), _SHARPNESS)
        age = np.arange(days.shape[1])[::-1]
        weight = _DAY_DECAY**age * np.where(age % _WEEK == _WEEK - 1, _WEEKDAY_WEIGHT, 1.0) * counts
        total = np.maximum(weight.sum(axis=1), np.finfo(np.float64).tiny)
        votes += (of_days * weight[:, :, None]).sum(axis=1) / total[:, None]
    curve = np.zeros(median.shape, dtype=np.float32)
    for slot in range(width):
        middle = width // 4 <= slot < width - width // 4
        curve[:, slot : slot + votes.shape[1]] += votes if middle else _EDGE_WEIGHT * votes
    return curve


def run_means(values: Floats, width: int) -> Floats:
    """Mean of each run of `width` slots along the last axis, (..., slots - width + 1); no gaps allowed."""
    total = np.cumsum(values, axis=-1)
    total = np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1)
    means: Floats = (total[..., width:] - total[..., :-width]) / width
    return means


def busiest(timing: Array, step_seconds: int) -> npt.NDArray[np.intp]:
    """First slot of the highest run of two hours of each curve (n, slots), (n,)."""
    start: npt.NDArray[np.intp] = run_means(timing.astype(np.float64), RUN_SECONDS // step_seconds).argmax(axis=1)
    return start


def _votes(means: Floats, sharpness: float) -> Floats:
    """Votes for each start from the means of the runs, along the last axis; sum 1, all alike on a day of nothing."""
    highest = means.max(axis=-1, keepdims=True)
    share = np.divide(means, highest, out=np.ones_like(means), where=highest > 0)
    votes = np.exp((share - 1) / sharpness)
    summed: Floats = votes / votes.sum(axis=-1, keepdims=True)
    return summed
