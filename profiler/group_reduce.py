"""Reduce rows or columns of a matrix that share a group: the step of `portrait` and `pool` that numpy lacks. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.integer[Any]]


def reduce_rows(ufunc: np.ufunc, values: npt.NDArray[Any], target: Rows, size: int, fill: Any) -> npt.NDArray[Any]:
    """Group rows: result[t] = ufunc over the rows i with target[i] == t; `fill` for none. All targets in 0..size-1.

    Where every group is the row of its number, as of totals, the result is `values` itself.
    """
    if len(target) == size and (target == np.arange(size)).all():
        return values
    result = np.full((size, *values.shape[1:]), fill, dtype=values.dtype)
    order = slice(None) if (target[1:] >= target[:-1]).all() else np.argsort(target, kind="stable")
    met, starts = np.unique(target[order], return_index=True)
    if len(met) == len(target):
        result[target] = values
    elif len(met):
        result[met] = ufunc.reduceat(values[order], starts, axis=0)
    return result


def reduce_columns(ufunc: np.ufunc, values: npt.NDArray[Any], target: Rows, size: int, fill: Any) -> npt.NDArray[Any]:
    """`reduce_rows` along the second axis; columns with target -1 are left out."""
    in_group = target >= 0
    return reduce_rows(ufunc, values[:, in_group].T, target[in_group], size, fill).T
