"""Mixes forecasts as weighted distributions, so that the result covers what any of them expects. Pure.

An average of quantiles is as narrow as its members, and lies between them if they disagree, as on a series that is
either idle or busy. A mixture of their distributions (the linear opinion pool, Stone 1961) keeps both.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.threads import side_by_side
from cotenant.base.usage.usage import Floats
from cotenant.forecasting.base import LEVEL_ARRAY, Array
from cotenant.forecasting.empirical import smooth_quantiles

MOST: Final = 5
"""Forecasts that are mixed for one series, those of most weight: the rest would add little but work."""
_BORDERS: Final = (LEVEL_ARRAY[1:] + LEVEL_ARRAY[:-1]) / 2
_SHARES: Final = np.diff(_BORDERS, prepend=0.0, append=1.0).astype(np.float32)
"""Share of a forecast's distribution that each of its quantiles stands for."""
_SERIES_PER_BLOCK: Final = 32


def mixture(forecasts: Array, weights: Floats) -> Array:
    """Return the mixture (n, H slots, L levels) of M forecasts (M, n, H, L), by weights (M, n) that are not all 0."""
    order = np.argsort(-weights, axis=0, kind="stable")[:MOST]
    heaviest = np.take_along_axis(weights, order, axis=0).T.astype(np.float32)
    blocks = [slice(i, i + _SERIES_PER_BLOCK) for i in range(0, weights.shape[1], _SERIES_PER_BLOCK)]
    parts = side_by_side(lambda rows: _mix_members(forecasts[:, rows], order[:, rows], heaviest[rows]), blocks)
    return np.concatenate(parts) if parts else np.empty(forecasts.shape[1:], dtype=np.float32)


def _mix_members(forecasts: Array, order: npt.NDArray[np.intp], heaviest: Array) -> Array:
    used = np.moveaxis(forecasts[order, np.arange(forecasts.shape[1])], 0, 2)
    size, horizon, many, levels = used.shape
    shares = np.broadcast_to(heaviest[:, None, :, None] * _SHARES, used.shape)
    flat = smooth_quantiles(
        used.reshape(size * horizon, many * levels), shares.reshape(size * horizon, -1), LEVEL_ARRAY
    )
    return flat.reshape(size, horizon, levels)
