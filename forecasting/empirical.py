"""Empirical quantiles of rows with gaps and weights, faster than numpy's functions that ignore NaN. Pure."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import Floats

Array = npt.NDArray[np.float32]

_LAST: Final = np.iinfo(np.int32).max
_LOW, _HIGH = (1, 0) if sys.byteorder == "big" else (0, 1)
"""Places of the two halves of a 64-bit number, as an array of 32-bit numbers has them."""


def row_quantiles(values: Floats, levels: Floats) -> Array:
    """Return quantiles along the last axis, ignoring NaN, interpolated linearly: (..., k) -> (..., len(levels)).

    The definition is numpy's default; NaN if a row has no value.
    """
    if not values.shape[-1]:
        return np.full((*values.shape[:-1], len(levels)), np.nan, dtype=np.float32)
    ordered = np.sort(values, axis=-1)  # NaN goes last
    gappy = np.isnan(ordered[..., -1])
    gaps = np.count_nonzero(gappy)
    if 2 * gaps > gappy.size:  # both only where few have none: copies of many rows take longer than a second answer
        result = np.empty((*ordered.shape[:-1], len(levels)), dtype=np.float32)
        result[~gappy] = _interpolated_quantiles(ordered[~gappy], levels)
    else:
        result = _interpolated_quantiles(ordered, levels)
    if gaps:
        ended = ordered[gappy]  # rows (n, k) that end in gaps
        last = np.maximum(count_known(ended) - 1, 0)[:, None]
        position = last * levels
        below = np.floor(position).astype(np.intp)
        first = np.arange(len(ended))[:, None] * ended.shape[-1]
        low, high = (ended.ravel().take(first + at) for at in (below, np.minimum(below + 1, last)))
        result[gappy] = (low + (high - low) * (position - below)).astype(np.float32)
    return result


def count_known(values: Floats) -> npt.NDArray[np.intp]:
    """Return the number of values along the last axis that are not NaN."""
    # sums of so short whole numbers take a quarter of the time; none of our rows is as long as they count
    short = np.uint16 if values.shape[-1] <= np.iinfo(np.uint16).max else np.intp
    count: npt.NDArray[np.intp] = (~np.isnan(values)).sum(axis=-1, dtype=short).astype(np.intp)
    return count


def known_mean(values: Floats, empty: float = np.nan) -> npt.NDArray[np.float64]:
    """Return the mean along the last axis, ignoring NaN; `empty` if all values are NaN."""
    present = ~np.isnan(values)
    total, count = np.where(present, values, 0.0).sum(axis=-1, dtype=np.float64), present.sum(axis=-1)
    mean: npt.NDArray[np.float64] = np.divide(total, count, out=np.full(count.shape, empty), where=count > 0)
    return mean


def fill_gaps(values: Floats, gap: float = 0.0) -> Floats:
    """Return a copy with `gap` in place of each NaN."""
    full = values.copy("K")
    np.copyto(full, gap, where=np.isnan(values))
    return full


def _interpolated_quantiles(ordered: Floats, levels: Floats) -> Array:
    """Return quantiles of sorted rows that have no gaps, so that all rows have them at the same positions."""
    position = (ordered.shape[-1] - 1) * levels
    below = np.floor(position).astype(np.intp)
    low, high = ordered[..., below], ordered[..., np.minimum(below + 1, ordered.shape[-1] - 1)]
    result: Array = (low + (high - low) * (position - below).astype(ordered.dtype)).astype(np.float32, copy=False)
    return result


def weighted_quantiles(values: Floats, weights: Floats, levels: Floats) -> Array:
    """Return weighted quantiles along the last axis: the smallest value whose share of weight reaches the level.

    `values`: (n, k), NaN is ignored; `weights`: (k,) or (n, k), positive; result (n, len(levels)), NaN without values.
    """
    if not values.shape[-1]:
        return np.full((len(values), len(levels)), np.nan, dtype=np.float32)
    order, count = _order(values), count_known(values)
    mass = weights.take(order) if weights.ndim == 1 else np.take_along_axis(weights, order, axis=-1)
    mass[np.arange(values.shape[-1]) >= count[:, None]] = 0  # gaps are last
    mass = mass.cumsum(axis=-1)
    # a rounding error must not lift the answer to the next value
    under = (mass < bound[:, None] for bound in ((levels - 1e-12) * mass[:, -1:]).T)
    # finding the first that is not below is faster than counting those that are
    firsts = [np.where(below[:, -1], values.shape[-1], below.argmin(axis=-1)) for below in under]
    index = np.minimum(np.stack(firsts, axis=-1), np.maximum(count - 1, 0)[:, None])
    quantiles: Array = np.take_along_axis(values, np.take_along_axis(order, index, axis=-1), axis=-1).astype(np.float32)
    return quantiles


def _order(values: Floats) -> npt.NDArray[np.integer[Any]]:
    """Return the indices that sort each row (n, k), gaps last.

    Single-precision numbers are sorted in a third of the time as integers that hold their bits and their index.
    """
    if values.dtype != np.float32:
        return np.argsort(values, axis=-1)
    bits = (values + np.float32(0)).view(np.int32)  # -0 has other bits than 0
    pairs = np.empty((*values.shape, 2), dtype=np.int32)
    pairs[..., _LOW] = np.arange(values.shape[-1], dtype=np.int32)
    pairs[..., _HIGH] = np.where(bits < 0, bits ^ np.int32(_LAST), bits)  # of two negative numbers the higher has less
    pairs[..., _HIGH][np.isnan(values)] = _LAST
    order: npt.NDArray[np.int32] = np.sort(pairs.view(np.int64)[..., 0], axis=-1)[..., None].view(np.int32)[..., _LOW]
    return order


def smooth_quantiles(values: Array, weights: Array, levels: Floats) -> Array:
    """Return weighted quantiles along the last axis, linear between the midpoints of the values' weights.

    `values`: (n, k), finite and >= 0, k > 0; `weights`: (n, k), >= 0 and not all 0 in a row; result (n, len(levels)).
    """
    # Values and their weights in order, (k, n), equal values as they stand. Bits of numbers >= 0 are in their order, so
    # that pairs with a place are sorted as whole numbers: far faster than sorting places.
    pairs = np.empty((*values.shape, 2), dtype=np.uint32)
    pairs[..., _LOW] = np.arange(values.size, dtype=np.uint32).reshape(values.shape)
    pairs[..., _HIGH] = (values.astype(np.float32, copy=False) + np.float32(0)).view(np.uint32)  # -0 would come last
    both = np.ascontiguousarray(np.sort(pairs.view(np.uint64)[..., 0], axis=-1).T)[..., None].view(np.uint32)
    ordered: Array = np.ascontiguousarray(both[..., _HIGH]).view(np.float32)
    own: Array = weights.astype(np.float32, copy=False).ravel().take(both[..., _LOW])
    mass = own.copy()
    for cell in range(1, len(mass)):  # faster than cumsum along this axis
        mass[cell] += mass[cell - 1]
    middle = (mass - own / 2) / mass[-1]
    size, columns = len(values), np.arange(len(values))
    quantiles = np.empty((len(levels), size), dtype=np.float32)
    short = np.uint8 if len(ordered) <= np.iinfo(np.uint8).max else np.uint32
    for level, quantile in zip(levels.astype(np.float32), quantiles, strict=True):
        count = np.minimum((middle < level).view(np.uint8).sum(axis=0, dtype=short), len(ordered) - 1)
        # places in the flat arrays: taken in half the time of rows and columns
        above = count.astype(np.intp) * size + columns
        below = np.maximum(above - size, columns)
        start, low = middle.take(below), ordered.take(below)
        gap = middle.take(above) - start
        with np.errstate(divide="ignore", invalid="ignore"):
            part = (level - start) / gap
        part[gap <= 0] = 1
        quantile[:] = low + part.clip(0, 1) * (ordered.take(above) - low)
    return np.ascontiguousarray(quantiles.T)
