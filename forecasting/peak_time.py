"""The time of the day's peak, estimated separately from the median path, which smooths it out. Pure.

The peak of a day is its run of two hours with the highest mean. The chance of each start of such a run in the day ahead
is (share of votes + 0.05)^3 x exp(path) x exp(edges), scaled to sum 1:
- votes: each past day, laid over the horizon by the time of day, votes for the starts of its highest runs: one whose
  mean is that share of the day's swing below the highest gets exp(-share / 0.2), scaled so that a day's votes sum to 1.
  Newer days weigh more, and those of the coming weekday three times as much.
- path: the run's mean in the median path, 0 at the path's highest run and -1 at its lowest.
- edges: a level that is high now falls, one that is low rises, so the peak is near the first or the last hours of the
  day ahead more often than past days alone suggest.
The peak is forecast at the start around which an hour has the highest chance, nearer starts counting a little more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import Array
from cotenant.forecasting.empirical import known_mean, row_quantiles

RUN_SECONDS: Final = 2 * HOUR_SECONDS
"""Length of a peak window."""
PAST_DAYS: Final = 14
_DAY_DECAY: Final = 0.93
_WEEKDAY_WEIGHT: Final = 3.0
_WEEK: Final = 7
_SHARPNESS: Final = 0.2  # a run lower than the highest by this share of the day's swing has 1 / e of its votes
_VOTE_POWER: Final = 3.0
_FLOOR: Final = 0.05  # added to each start's share of votes: where no past day had its peak, the next one may
_START_WEIGHT, _START_LEVEL = 1.7, 0.5
_END_WEIGHT, _END_LEVEL = 0.9, 1.0
_HIGHEST_LEVEL: Final = 1.5
"""bench.forecasting.decisions_peaks says on what these were chosen."""
_FARTHEST_WEIGHT: Final = 0.9
"""What the chance of a start an hour away counts, so that among starts close to each other the likeliest is taken."""
_LEAST_PRESENT: Final = 0.7  # share of a day's slots that must be known for it to count


def past_days(history: FloatMatrix, slots_per_day: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the last whole days as (n, days, slots per day), newest last, and flags (n, days): the days that count.

    `history`: (n, slots), of which at most 14 days are used; a day counts if at least 70 % of it is known.
    """
    count = min(PAST_DAYS, history.shape[1] // slots_per_day)
    recent = history[:, history.shape[1] - count * slots_per_day :]
    days = recent.reshape(len(history), count, slots_per_day).astype(np.float64)
    return days, (~np.isnan(days)).mean(axis=2) >= _LEAST_PRESENT


def peak_timing(history: FloatMatrix, grid: TimeGrid, median: Array) -> Array:
    """Return a curve for each series, (n, slots per day): its highest run of two hours is the next day's forecast peak.

    It is the chance that a half hour lies in the peak, plus 1 in the forecast window. `history`: (n, grid.size) with
    gaps as NaN; `median`: (n, slots per day), the path of the day ahead.
    """
    width = max(1, RUN_SECONDS // grid.step_seconds)
    chance = start_chances(history, grid, median)
    # A run's sum of chances differs by at most one for each slot that it is moved, and so 1 a slot decides.
    chance[np.arange(len(chance)), likeliest(chance, grid.step_seconds)] += 1
    curve = np.zeros(median.shape, dtype=np.float32)
    for slot in range(width):
        curve[:, slot : slot + chance.shape[1]] += chance
    return curve


def start_chances(history: FloatMatrix, grid: TimeGrid, median: Array) -> npt.NDArray[np.float64]:
    """Return an array (n, starts): the chance that the day's peak starts at each slot, summing to 1 for each series.

    `history`: (n, grid.size) with gaps as NaN; `median`: (n, slots per day), the path of the day ahead.
    """
    width = max(1, RUN_SECONDS // grid.step_seconds)
    score = _share_of_swing(run_means(np.nan_to_num(median.astype(np.float64)), width))
    days, counts = past_days(history, grid.slots_per_day)
    if days.shape[1]:
        runs = run_means(np.where(np.isnan(days), known_mean(days, 0.0)[:, :, None], days), width)
        # Weighted mean of the days' votes, (n, starts); 0 where no day counts.
        votes = _normalize_sum(np.exp(_share_of_swing(runs) / _SHARPNESS))
        age = np.arange(runs.shape[1])[::-1]
        weight = _DAY_DECAY**age * np.where(age % _WEEK == _WEEK - 1, _WEEKDAY_WEIGHT, 1.0) * counts
        total = np.maximum(weight.sum(axis=1), np.finfo(np.float64).tiny)
        day_votes = (votes * weight[:, :, None]).sum(axis=1) / total[:, None]
        score += _VOTE_POWER * np.log(day_votes + _FLOOR)
        # The mean of the last two hours, (n,): 0 at the lowest run of the median day, 1 at its highest; NaN = unknown.
        recent = known_mean(history[:, -width:].astype(np.float64))
        extremes = np.stack([runs.min(axis=2), runs.max(axis=2)])
        low, high = row_quantiles(np.where(counts, extremes, np.nan), np.array([0.5]))[..., 0].astype(np.float64)
        level = np.divide(recent - low, high - low, out=np.full(len(history), np.nan), where=high > low)
        level = np.clip(level, 0, _HIGHEST_LEVEL)
        # What it adds to the score of each start decays with the distance from now and from the end of the day.
        starts = score.shape[1]
        from_start = np.exp(-np.arange(starts) / width)
        early, late = _START_WEIGHT * (level - _START_LEVEL), _END_WEIGHT * (_END_LEVEL - level)
        score += np.nan_to_num(early[:, None] * from_start + late[:, None] * from_start[::-1])
    return _normalize_sum(np.exp(score - score.max(axis=1, keepdims=True)))


def likeliest(chance: Floats, step_seconds: int) -> npt.NDArray[np.intp]:
    """Return each series' start slot with the highest weighted sum of chances (n, starts) up to an hour around it."""
    reach = max(1, HOUR_SECONDS // step_seconds)
    padded = np.pad(chance, ((0, 0), (reach, reach)))
    near = np.zeros_like(chance)
    for away in range(-reach, reach + 1):
        weight = 1 - (1 - _FARTHEST_WEIGHT) * abs(away) / reach
        near += weight * padded[:, reach + away : reach + away + chance.shape[1]]
    start: npt.NDArray[np.intp] = near.argmax(axis=1)
    return start


def run_means(values: Floats, width: int) -> Floats:
    """Return the mean of each run of `width` slots, (..., slots - width + 1); the values must not have gaps."""
    total = np.cumsum(values, axis=-1)
    total = np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1)
    means: Floats = (total[..., width:] - total[..., :-width]) / width
    return means


def busiest(timing: Array, step_seconds: int) -> npt.NDArray[np.intp]:
    """Return for each curve of (n, slots) the first slot of its highest run of two hours."""
    start: npt.NDArray[np.intp] = run_means(timing.astype(np.float64), RUN_SECONDS // step_seconds).argmax(axis=1)
    return start


def _share_of_swing(means: Floats) -> npt.NDArray[np.float64]:
    """Scale means along the last axis: 0 at the highest, -1 at the lowest; 0 if all are equal."""
    highest, lowest = means.max(axis=-1, keepdims=True), means.min(axis=-1, keepdims=True)
    share = np.zeros(means.shape)
    np.divide(means - highest, highest - lowest, out=share, where=highest > lowest)
    return share


def _normalize_sum(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    summed: npt.NDArray[np.float64] = values / values.sum(axis=-1, keepdims=True)
    return summed
