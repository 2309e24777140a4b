"""Upper quantiles that were too low in rehearsal are lifted: a conformal correction pooled over series. Pure.

Back-tests give, for each upper level, how far actual values lay from the forecast quantile, in widths of that forecast
(q95 - q50, mean of the horizon). The pooled quantile of these distances at the same level is the lift that would have
given the promised coverage (split-conformal prediction with a scale-free score; exchangeable days assumed). Bands that
are next to nothing wide teach nothing: their distances are measured in rounding errors.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.model.forecast import LEVELS
from cotenant.model.usage import FloatMatrix
from forecasting.base import Array
from forecasting.empirical import row_quantiles

Floats = npt.NDArray[np.floating[Any]]

_LIFTED_FROM: Final = 0.8
_NARROW: Final = 0.05
"""Width of a band, relative to its median, up to which it is left out."""
_MEDIAN, _UPPER = LEVELS.index(0.5), LEVELS.index(0.95)


def lift(actual: FloatMatrix, paths: Array) -> Floats:
    """Lift of each level in widths, (L,), from rehearsed paths (K, n, H, L) and what came (K, n, H); 0 without any."""
    width = _width(paths)[..., None]
    wide = width > _NARROW * paths[..., _MEDIAN].mean(axis=-1)[..., None]
    known = ~np.isnan(actual) & wide
    found = np.zeros(len(LEVELS))
    for index, level in enumerate(LEVELS):
        if level >= _LIFTED_FROM and known.any():
            away = (actual - paths[..., index]) / np.where(wide, width, 1)
            found[index] = row_quantiles(away[known], np.array([level]))[0]
    return found


def lifted(path: Array, by: Floats) -> Array:
    """Path (..., H, L) with each level moved by its lift; order of the levels and >= 0 are kept."""
    moved = path + (_width(path)[..., None, None] * by).astype(np.float32)
    result: Array = np.maximum(np.maximum.accumulate(moved, axis=-1), np.float32(0))
    return result


def _width(paths: Array) -> Array:
    """q95 - q50, mean over the horizon."""
    width: Array = (paths[..., _UPPER] - paths[..., _MEDIAN]).mean(axis=-1)
    return width
