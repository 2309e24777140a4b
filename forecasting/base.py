"""The contract of every forecast model, and the final step that all models share. Pure.

A `Forecaster` gets a history matrix that ends at the origin and returns quantiles of the slots that follow. It is
vectorised over series, never sees a value after the origin, and its answer is finite, >= 0 and non-decreasing in the
level whatever the gaps: `conform` ensures that.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.empirical import row_quantiles

Array = npt.NDArray[np.float32]

LEVEL_ARRAY: Final = np.array(LEVELS)


class Forecaster(Protocol):
    """A model that forecasts quantiles of many series from their histories."""

    @property
    def name(self) -> str:
        """The short name that users see, unique among the forecast models."""

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of the slots right after `grid`, from `history` (n, grid.size).

        The history is finite and >= 0 or NaN. A series without any value gets zeros.
        """


def conform(raw: npt.NDArray[Any], history: FloatMatrix) -> Array:
    """Return a valid forecast: NaN filled from the history's own quantiles, levels non-decreasing, and values >= 0."""
    answer = raw.astype(np.float32, copy=False)
    missing = np.isnan(answer)
    rows = np.flatnonzero(missing.any(axis=(1, 2)))
    if rows.size:
        own = np.nan_to_num(row_quantiles(history[rows], LEVEL_ARRAY))[:, None, :]
        answer = answer.copy()
        answer[rows] = np.where(missing[rows], own, answer[rows])
    return in_order(answer)


def in_order(answer: Array) -> Array:
    """Return the quantiles (..., L) non-decreasing and >= 0: each is raised to at least that of the level below."""
    ordered = np.maximum(answer, np.float32(0), order="C")
    rows = ordered.reshape(-1, ordered.shape[-1])  # a view, in this order
    falls = np.empty(rows.shape, dtype=bool)
    np.less(rows.ravel()[1:], rows.ravel()[:-1], out=falls.ravel()[1:])
    falls[:, 0] = False  # compared with another row
    if falls.any():  # hardly a row of most members' answers
        wrong = np.flatnonzero(falls.any(axis=1))
        part = rows[wrong]
        for level in range(1, part.shape[1]):  # ten passes over columns beat accumulate over short rows
            np.maximum(part[:, level], part[:, level - 1], out=part[:, level])
        rows[wrong] = part
    return ordered
