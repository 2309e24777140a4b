"""Empirical quantiles of rows with gaps and weights, faster than numpy's with NaN. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating[Any]]


def row_quantiles(values: Floats, levels: Floats) -> Array:
    """Quantiles along the last axis, NaN ignored, linear between order statistics: (..., k) -> (..., len(levels)).

    The same definition as numpy's default; NaN where a row holds no value.
    """
    if not values.shape[-1]:
        return np.full((*values.shape[:-1], len(levels)), np.nan, dtype=np.float32)
    ordered = np.sort(values, axis=-1)  # NaN goes last
    if ordered.size and not np.isnan(ordered[..., -1]).any():
        return _between(ordered, levels)
    count = values.shape[-1] - np.isnan(values).sum(axis=-1)
    position = np.maximum(count - 1, 0)[..., None] * levels
    below = np.floor(position).astype(np.intp)
    low = np.take_along_axis(ordered, below, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(below + 1, np.maximum(count - 1, 0)[..., None]), axis=-1)
    result: Array = (low + (high - low) * (position - below)).astype(np.float32)
    return result


def _between(ordered: Floats, levels: Floats) -> Array:
    """The same of ordered rows without gaps, where every row has its quantiles at the same positions."""
    position = (ordered.shape[-1] - 1) * levels
    below = np.floor(position).astype(np.intp)
    low, high = ordered[..., below], ordered[..., np.minimum(below + 1, ordered.shape[-1] - 1)]
    result: Array = (low + (high - low) * (position - below)).astype(np.float32)
    return result


def weighted_quantiles(values: Floats, weights: Floats, levels: Floats) -> Array:
    """Weighted quantiles along the last axis, NaN ignored: the smallest value whose share of weight reaches the level.

    values: (n, k); weights: (k,) or (n, k), positive; result (n, len(levels)); NaN where a row holds no value.
    """
    if not values.shape[-1]:
        return np.full((len(values), len(levels)), np.nan, dtype=np.float32)
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    mass = np.take_along_axis(np.where(np.isnan(values), 0.0, weights), order, axis=-1).cumsum(axis=-1)
    last = np.maximum(values.shape[-1] - np.isnan(values).sum(axis=-1) - 1, 0)
    # a rounding error must not lift the answer to the next value
    index = np.minimum(_lower(mass, (levels - 1e-12) * mass[:, -1:]), last[:, None])
    quantiles: Array = np.take_along_axis(ordered, index, axis=-1).astype(np.float32)
    return quantiles


def smooth_quantiles(values: Floats, weights: Floats, levels: Floats) -> Array:
    """Weighted quantiles along the last axis, NaN ignored, linear between the middles of the values' weights.

    values: (n, k); weights: (k,) or (n, k), >= 0; result (n, len(levels)); NaN where a row holds no value.
    """
    if not values.shape[-1]:
        return np.full((len(values), len(levels)), np.nan, dtype=np.float32)
    order = np.argsort(values, axis=-1)  # NaN goes last
    ordered = np.take_along_axis(values, order, axis=-1)
    own = np.take_along_axis(np.where(np.isnan(values), 0.0, weights), order, axis=-1)
    mass = own.cumsum(axis=-1)
    middle = (mass - own / 2) / np.maximum(mass[:, -1:], np.finfo(np.float64).tiny)
    last = np.maximum((~np.isnan(values)).sum(axis=-1) - 1, 0)
    above = np.minimum(_lower(middle, levels), last[:, None])
    below = np.maximum(above - 1, 0)
    low, high = (np.take_along_axis(ordered, at, axis=-1) for at in (below, above))
    start = np.take_along_axis(middle, below, axis=-1)
    gap = np.take_along_axis(middle, above, axis=-1) - start
    part = np.divide(levels - start, gap, out=np.ones_like(gap), where=gap > 0).clip(0, 1)
    quantiles: Array = (low + part * (high - low)).astype(np.float32)
    return quantiles


def _lower(rising: Floats, bounds: Floats) -> npt.NDArray[np.intp]:
    """How many cells of each rising row lie below each bound, (n, bounds); bounds: (b,) or (n, b)."""
    columns = np.moveaxis(np.broadcast_to(bounds, (len(rising), bounds.shape[-1])), -1, 0)
    under = (rising < column[:, None] for column in columns)
    # finding the first that is not below is faster than counting those that are
    return np.stack([np.where(one[:, -1], rising.shape[-1], one.argmin(axis=-1)) for one in under], axis=-1)
