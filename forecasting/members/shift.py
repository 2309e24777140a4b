"""The usual day shifted by the present deviation, which decays over the horizon. Pure.

It follows a level that has left its profile without losing the shape of the day. The band widens with the distance
ahead, by the past errors of the same rule at that distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import count_known, fill_gaps, row_quantiles

_BAND_ENDS: Final = (0, 1, 2, 4, 8, 16, 32)
"""Slots ahead at which a new band of errors begins: near errors are narrow and change fast."""
_SLOTS_PER_BLOCK: Final = 32
"""Of the filter: short enough that its weights stay few, long enough that few steps depend on one another."""
_ERRORS_KEPT: Final = 224  # past errors behind each band, evenly spread over the history


@dataclass(frozen=True, slots=True)
class ShiftedProfile:
    """Mid-mean (mean of the middle half) of each time of day + recent residual x 0.5^(hours ahead / fade) + quantiles.

    The quantiles are of past errors of the same formula at the same time ahead. The residual is a `decaying_mean`.
    """

    days: int
    level_half_life_hours: float
    fade_hours: float
    name: str
    relative: bool = False
    """Residuals and errors are ratios: a level that rose by half lifts the peak by more than the valley."""

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        With `relative` the formula is applied to log(1 + history / unit), where differences are ratios, and the result
        is converted back; the unit, a tenth of the series' mean, keeps small values from dominating.
        """
        if not self.relative:
            return conform(self._raw(history, grid, horizon), history)
        # A tenth of the mean of each series, (n, 1): amounts well below it count as alike; 1 where it is 0.
        mean = fill_gaps(history).sum(axis=1, dtype=np.float64) / np.maximum(count_known(history), 1)
        unit: Floats = np.where(mean > 0, mean / 10, 1.0)[:, None]
        raw = self._raw(np.log1p(history / unit), grid, horizon)
        return conform(np.expm1(raw) * unit[:, :, None], history)

    def _raw(self, history: Floats, grid: TimeGrid, horizon: int) -> Floats:
        """Return centre + spread by bands of slots ahead, (n, horizon, L), possibly with NaN and unsorted levels.

        centre = profile of the time of day + fade x present residual, fade = 0.5^(hours ahead / fade_hours) at the
        middle of the band. spread: quantiles of the errors that the same rule made at that distance.
        """
        day = grid.slots_per_day
        profile = _profile(history, day, self.days)
        usual = profile[:, (np.arange(history.shape[1] + horizon) - history.shape[1]) % day]
        residual = (history - usual[:, : history.shape[1]]).astype(np.float32)
        level = decaying_mean(residual, self.level_half_life_hours * HOUR_SECONDS / grid.step_seconds)
        answer = np.full((len(history), horizon, len(LEVEL_ARRAY)), np.nan, dtype=history.dtype)
        ends = [*(end for end in _BAND_ENDS if end < horizon), horizon]
        for first, after in pairwise(ends):
            middle = (first + after - 1) // 2 + 1
            fade = 0.5 ** (middle * grid.step_seconds / HOUR_SECONDS / self.fade_hours)
            # Residuals minus what was said of them `middle` slots before, at most _ERRORS_KEPT of them, the newest
            # included.
            pairs = residual.shape[1] - middle
            if pairs <= 0:
                errors = np.empty((len(residual), 0), dtype=np.float32)
            else:
                stride = -(-pairs // _ERRORS_KEPT)
                some = slice((pairs - 1) % stride, None, stride)
                errors = residual[:, middle:][:, some] - np.float32(fade) * level[:, :pairs][:, some]
            spread = row_quantiles(errors, LEVEL_ARRAY)
            now = np.float32(fade) * level[:, -1:] if history.shape[1] else np.full((len(history), 1), np.nan)
            centre = usual[:, history.shape[1] + first : history.shape[1] + after] + now
            answer[:, first:after] = centre[:, :, None] + spread[:, None, :]
        return answer


def _profile(history: Floats, day: int, days: int) -> Floats:
    """Return the smoothed mid-mean of each slot of the day over the last days, from the origin on, (n, day).

    The mid-mean (mean of the middle half, Tukey) is as efficient as a mean and ignores single days.
    """
    day_count = min(days, -(-history.shape[1] // day))
    tail = history[:, max(0, history.shape[1] - day_count * day) :]
    padded = np.pad(tail, ((0, 0), (day_count * day - tail.shape[1], 0)), constant_values=np.nan)
    ordered = np.sort(padded.reshape(len(history), day_count, day).transpose(0, 2, 1), axis=2)  # NaN goes last
    # The weight of each rank in the mid-mean of 0..most values, (most + 1, most); NaN for no values.
    count, rank = np.arange(day_count + 1)[:, None], np.arange(day_count)
    inside = np.clip(np.minimum(rank + 1, 0.75 * count) - np.maximum(rank, 0.25 * count), 0, None)
    mid_weights: Floats = inside / np.maximum(inside.sum(axis=1, keepdims=True), 0.5)
    mid_weights[0] = np.nan
    weights = mid_weights.astype(history.dtype)[count_known(ordered)]
    middle = np.einsum("nsd,nsd->ns", fill_gaps(ordered), weights)
    around = np.stack([np.roll(middle, 1, axis=1), middle, middle, np.roll(middle, -1, axis=1)])
    present = ~np.isnan(around)
    smooth: Floats = np.divide(
        np.where(present, around, 0).sum(axis=0),
        present.sum(axis=0, dtype=history.dtype),
        out=np.full_like(middle, np.nan),
        where=present.any(axis=0),
    )
    return smooth


def decaying_mean(residual: Floats, half_life: float) -> Array:
    """Return an array (n, slots): the exponentially weighted mean of each series' residuals up to each slot.

    `half_life` is in slots with a value: a gap keeps the mean before it. NaN before the first value.
    """
    if not residual.size:
        return np.empty(residual.shape, dtype=np.float32)
    decay = 0.5 ** (1 / half_life)
    present = ~np.isnan(residual)
    count = present.cumsum(axis=1, dtype=np.int32)
    # the filter runs over what is present, moved together; gaps then take what came before them
    together: Array = np.zeros(residual.shape, dtype=np.float32)
    together[np.arange(residual.shape[1]) < count[:, -1:]] = residual[present]
    # level[t] = decay x level[t - 1] + (1 - decay) x value[t], from level[0] = value[0]. In blocks: a level is a
    # weighted sum of its block's values, and what remains of the last level before the block.
    place = np.arange(_SLOTS_PER_BLOCK)
    age = place - place[:, None]
    weights = np.where(age >= 0, (1 - decay) * decay ** np.maximum(age, 0), 0.0).astype(np.float32)
    remains = (decay ** (place + 1)).astype(np.float32)
    slots = together.shape[1]
    padded = np.pad(together, ((0, 0), (0, -slots % _SLOTS_PER_BLOCK)))
    levels: Array = padded.reshape(len(together), -1, _SLOTS_PER_BLOCK) @ weights
    before = np.empty(levels.shape[:2], dtype=np.float32)
    last = together[:, 0]
    for block in range(levels.shape[1]):
        before[:, block] = last
        last = levels[:, block, -1] + last * remains[-1]
    levels += before[:, :, None] * remains
    level = np.pad(levels.reshape(padded.shape)[:, :slots], ((0, 0), (1, 0)), constant_values=np.nan)
    smoothed: Array = level.ravel().take(count + np.arange(len(level))[:, None] * (slots + 1))
    return smoothed
