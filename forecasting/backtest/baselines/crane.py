"""Baseline B10: the better of the two estimators of Crane's DSP predictor, by its own back-test. Pure and frozen.

One estimator is the highest value at the same time of day over the past days, the other a Fourier series of the
strongest low frequencies with a margin. Each is tested on the last day from the data before it; under-estimates cost
-ln(1 - x) / ln(1.25), over-estimates their share x. The forecast is one path, the same for every quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.backtest.baselines.seasonal import by_day
from cotenant.forecasting.base import Array, conform
from cotenant.forecasting.empirical import row_quantiles

MARGINS: Final = (0.01, 0.10, 0.15, 0.20)
FEWEST_BINS, MOST_BINS = 3, 100
_CLIPPED: Final = np.array([0.001, 0.999])
_UNDER: Final = float(np.log(1.25))
_WORST: Final = 0.999


@dataclass(frozen=True, slots=True)
class CraneDsp:
    """Crane's predictor: past maxima by time of day, or a Fourier series, whichever was better on the last day."""

    name: str = "B10 crane dsp (fft + max)"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        Only whole days are used, from the newest back; fewer than two give the history's own quantiles (`conform`). All
        levels have the same path: that of the estimator with the smaller loss on the last day.
        """
        day = grid.slots_per_day
        # Gaps filled on a straight line, then clipped to the percentiles 0.1 and 99.9; NaN where nothing is known.
        filled = history.astype(np.float64)
        slots = np.arange(history.shape[1])
        for row in np.flatnonzero(np.isnan(history).any(axis=1)):
            present = ~np.isnan(history[row])
            if present.any():
                filled[row] = np.interp(slots, slots[present], history[row, present])
        low, high = row_quantiles(filled, _CLIPPED).T
        clean = np.clip(filled, low[:, None], high[:, None])
        slots = clean.shape[1] // day * day
        clean = clean[:, clean.shape[1] - slots :]
        if slots < 2 * day:
            return conform(np.full((len(history), horizon, len(LEVELS)), np.nan, dtype=np.float32), history)
        tried = _candidates(clean[:, :-day], day, day)
        best = np.argmin([_loss(clean[:, -day:], path) for path in tried], axis=0)
        ahead = np.stack(_candidates(clean, day, horizon))[best, np.arange(len(clean))]
        return conform(np.repeat(ahead[:, :, None], len(LEVELS), axis=2), history)


def _candidates(clean: Floats, day: int, horizon: int) -> list[Floats]:
    phase = np.arange(horizon) % day
    highest = by_day(clean.astype(np.float32), day).max(axis=1)[:, phase]
    # The first day of the periodic continuation from the strongest frequencies below one an hour, >= 0.
    spectrum = np.fft.rfft(np.nan_to_num(clean), axis=1)
    size = np.abs(spectrum)
    slow = np.arange(spectrum.shape[1]) * day < 24 * clean.shape[1]
    size = np.where(slow, size, 0.0)
    bins = max(FEWEST_BINS, min(MOST_BINS, spectrum.shape[1]))
    order = np.argsort(-size, axis=1, kind="stable")[:, :bins]
    chosen = np.zeros_like(spectrum)
    np.put_along_axis(chosen, order, np.take_along_axis(spectrum, order, axis=1), axis=1)
    chosen[:, ~slow] = 0
    path = np.maximum(np.fft.irfft(chosen, n=clean.shape[1], axis=1)[:, :day], 0)[:, phase]
    return [highest, *((1 + margin) * path for margin in MARGINS)]


def _loss(actual: Floats, path: Floats) -> Floats:
    away = np.divide(path - actual, np.abs(actual), out=np.zeros(actual.shape), where=np.abs(actual) > 0)
    under = -np.log1p(-np.minimum(-np.minimum(away, 0), _WORST)) / _UNDER
    loss: Floats = np.where(away < 0, under, away).mean(axis=1)
    return np.nan_to_num(loss)
