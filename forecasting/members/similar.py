"""Similar moments: what followed when the half day before had the same shape as now. Pure.

It finds rhythms of neither day nor week: a job that runs every five and a half hours, load that rises every other half
hour, a kind of day that has occurred before. Nearest neighbours in a series' own past (Lorenz 1969, "analogues").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import count_known, fill_gaps, row_quantiles

_FARTHEST: Final = 4.0
"""Squared distance of one slot, in variances of the series, beyond which it is just different; a gap is."""
_GAP: Final = 1e9  # stands for a gap, in deviations: its square is still a single precision number
_SLOT_DECAY: Final = 0.95  # weight of a slot relative to the one after it
_AGE_PER_WEEK: Final = 0.3  # what a week adds to the distance of a moment: what was long ago must be more alike
_OTHER_TIME: Final = 0.4  # what half a day apart on the clock adds to it
_DEVIATION: Final = 1.25  # standard deviation of normal noise / its mean absolute deviation
_SERIES_PER_BLOCK: Final = 128


@dataclass(frozen=True, slots=True)
class SimilarMoments:
    """Quantiles of what followed the `count` past moments whose previous 12 hours were most similar to the present."""

    count: int
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        A past moment is used only if the history has a day before it and `horizon` slots after it. If fewer than
        `count` moments have that, the forecast is the quantiles of the whole history (`conform`).
        """
        day, size = grid.slots_per_day, history.shape[1]
        moments = np.arange(day, size - horizon + 1)
        if len(moments) < self.count:
            return conform(np.full((len(history), horizon, len(LEVEL_ARRAY)), np.nan, dtype=np.float32), history)
        # The distance that age and time of day add to moments, (moments,). since: slots from now to each moment,
        # negative.
        since = moments - size
        phase = since % day / day
        clock = 2 * np.minimum(phase, 1 - phase)
        time_distance: Array = (_OTHER_TIME * clock**2 - _AGE_PER_WEEK * since / day / 7).astype(np.float32)
        blocks = (history[i : i + _SERIES_PER_BLOCK] for i in range(0, len(history), _SERIES_PER_BLOCK))
        parts = [self._after_similar(block, moments, time_distance, horizon) for block in blocks]
        raw = np.concatenate(parts) if parts else np.empty((0, horizon, len(LEVEL_ARRAY)))
        return conform(raw, history)

    def _after_similar(
        self, history: FloatMatrix, moments: npt.NDArray[np.intp], time_distance: Floats, horizon: int
    ) -> Array:
        """Return quantiles of what followed the `count` nearest moments, slot by slot: (n, horizon, L).

        The distance is that of the standardised half days before, plus `time_distance` for age and another time of day.
        """
        # Logarithm of use in deviations of the series: half of a peak is as far from it as twice of it. Level and
        # deviation are such that a burst, however high, hardly moves them.
        root = _mean(np.sqrt(history)) ** 2
        logs = np.log1p(history / np.where(root > 0, root / 10, 1.0).astype(np.float32))
        spread = _DEVIATION * _mean(np.abs(logs - _mean(logs).astype(np.float32)))
        units: Array = logs / np.maximum(spread, 1e-6).astype(np.float32)
        # Weighted mean squared distance of the 12 hours before each moment from those before now, (n, moments).
        total, weight = np.zeros((len(units), len(moments)), dtype=np.float32), 0.0
        away = np.empty_like(total)
        day = first = int(moments[0])
        # gaps are far from everything, those of now also from those of then
        now, units = fill_gaps(units[:, -day // 2 :], -_GAP), fill_gaps(units, _GAP)
        for back in range(1, day // 2 + 1):
            np.subtract(units[:, first - back : first - back + len(moments)], now[:, -back, None], out=away)
            np.square(away, out=away)
            np.minimum(away, np.float32(_FARTHEST), out=away)
            away *= np.float32(_SLOT_DECAY**back)
            total += away
            weight += _SLOT_DECAY**back
        distance = total / np.float32(weight) + time_distance
        nearest = moments[np.argpartition(distance, self.count - 1, axis=1)[:, : self.count]]
        firsts = nearest + np.arange(len(history))[:, None] * history.shape[1]
        came = history.ravel().take(firsts[:, None, :] + np.arange(horizon)[:, None])
        return row_quantiles(came, LEVEL_ARRAY)


def _mean(values: Floats) -> Floats:
    total = fill_gaps(values).sum(axis=1, keepdims=True, dtype=np.float64)
    mean: Floats = total / np.maximum(count_known(values), 1)[:, None]
    return mean
