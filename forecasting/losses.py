"""Losses of forecasts, per series; missing actual values (NaN) are left out. Pure.

actual: (n, H); quantiles: (n, H, L) at `levels`; results (n,), NaN if nothing could be compared.
"""

from __future__ import annotations

import numpy as np

from cotenant.base.usage.usage import Floats
from cotenant.forecasting.base import LEVEL_ARRAY
from cotenant.forecasting.empirical import known_mean


def pinball(actual: Floats, quantiles: Floats, levels: Floats = LEVEL_ARRAY) -> Floats:
    """Return the mean quantile loss max(q (y - f), (q - 1) (y - f)) over slots and levels (Koenker, Bassett 1978)."""
    error = actual[..., None] - quantiles
    # max(q e, (q - 1) e) = (q - 0.5) e + 0.5 |e|, each a product with a vector
    half = np.full(len(levels), 0.5, dtype=error.dtype)
    slots = (error @ (levels.astype(error.dtype) - half) + np.abs(error) @ half) / len(levels)
    return known_mean(slots)


def coverage(actual: Floats, path: Floats) -> Floats:
    """Return the share of actual values at or below a quantile path (n, H)."""
    return known_mean(np.where(np.isnan(actual), np.nan, actual <= path))
