"""The peak head: quantiles of the highest 5-minute value of the next 24 hours. Pure.

The path's upper quantile is no peak (each half hour may stay below it while the day's highest value does not), so the
daily maximum is forecast by itself: a base level from past maxima, times the quantiles of how far later maxima were
from such a base before. Those ratios are the series' own, filled up with everybody's where its own days are few
(split-conformal with a pooled prior).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.usage import FloatMatrix
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.base import LEVEL_ARRAY, Array
from forecasting.empirical import row_quantiles, weighted_quantiles

_POOLED_POINTS = (np.arange(41) + 0.5) / 41
_RATIO_LIMIT = 100.0
_LOWEST_SHARE = 1e-3
_FEWEST_DAYS = 3
"""Days a base must rest on before its ratio counts as a score."""


def daily_maxima(values: FloatMatrix, slots_per_day: int) -> FloatMatrix:
    """Maximum of each 24 hours counted back from the end, (n, days), newest last; NaN when half or more is missing."""
    days = values.shape[1] // slots_per_day
    block = values[:, values.shape[1] - days * slots_per_day :].reshape(len(values), days, slots_per_day)
    present = ~np.isnan(block)
    highest = np.where(present, block, -np.inf).max(axis=2, initial=-np.inf)
    result: FloatMatrix = np.where(2 * present.sum(axis=2) > slots_per_day, highest, np.nan).astype(np.float32)
    return result


def peak_quantiles(maxima: FloatMatrix, fallback: npt.NDArray[np.floating], settings: ForecastingSettings) -> Array:
    """Quantiles (n, levels) of the next day's maximum from past ones (n, days), newest last.

    `fallback` (n,) is the base where no day is known, such as the portrait's maximum; NaN there gives NaN.
    """
    bases = [_base(maxima[:, :day], settings) for day in range(_FEWEST_DAYS, maxima.shape[1])]
    then = np.stack(bases, axis=1) if bases else np.empty((len(maxima), 0), dtype=np.float32)
    ratios = _ratios(maxima[:, _FEWEST_DAYS:], then)
    base = _base(maxima, settings)
    base = np.where(np.isnan(base), fallback, base)
    everyone = row_quantiles(ratios.reshape(1, -1), _POOLED_POINTS)
    everyone = np.where(np.isnan(everyone), np.float32(1), everyone)
    pooled = np.repeat(everyone, len(maxima), axis=0)
    weight = max(settings.peak_prior_days, 1e-6) / len(_POOLED_POINTS)
    weights = np.append(np.ones(ratios.shape[1]), np.full(len(_POOLED_POINTS), weight))
    spread = weighted_quantiles(np.append(ratios, pooled, axis=1), weights, LEVEL_ARRAY)
    result: Array = (base[:, None] * spread).astype(np.float32)
    return result


def _base(maxima: FloatMatrix, settings: ForecastingSettings) -> FloatMatrix:
    """Level of the maxima so far, (n,): their geometric mean, newer days weighing more."""
    present = ~np.isnan(maxima)
    some = present.any(axis=1)
    filled = np.where(present, maxima, 0.0).astype(np.float64)
    mean = filled.sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    # A day of nothing counts as a thousandth of the mean, or one such day would pull the level to 0.
    logs = np.log(np.maximum(filled, _LOWEST_SHARE * mean[:, None] + np.finfo(np.float64).tiny))
    weights = settings.peak_day_decay ** np.arange(maxima.shape[1])[::-1] * present
    level = np.exp((weights * logs).sum(axis=1) / np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))
    result: FloatMatrix = np.where(some, np.where(mean > 0, level, 0.0), np.nan).astype(np.float32)
    return result


def _ratios(maxima: FloatMatrix, bases: FloatMatrix) -> FloatMatrix:
    """Maxima relative to their bases, up to the limit; nothing over nothing is 1, NaN where either is missing."""
    capped = np.fmax(bases, maxima / np.float32(_RATIO_LIMIT))
    ratio = np.divide(maxima, capped, out=np.ones_like(maxima), where=capped > 0)
    return np.where(np.isnan(maxima) | np.isnan(bases), np.float32(np.nan), ratio)
