"""A forecaster with a cache of its forecasts, for repeated requests. Pure.

Forecasts of successive days use back-tests at the same origins. The forecast of a series depends only on that series,
so forecasts are cached per series, however series are grouped. A history that begins at another time has other values,
so the cache is then cleared.
"""

from __future__ import annotations

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, Forecaster


class Remembering:
    """A forecaster that caches the forecast of each series, until a history begins at another time."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self._inner = inner
        self._answers: dict[tuple[TimeGrid, int, bytes], Array] = {}
        self._start_seconds: int | None = None

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)); histories that are not cached go to the wrapped forecaster."""
        if grid.start_seconds != self._start_seconds:
            self._answers, self._start_seconds = {}, grid.start_seconds
        answered = self._answers
        keys = [(grid, horizon, row.tobytes()) for row in history]
        new = [row for row, key in enumerate(keys) if key not in answered]
        if new:
            answers = self._inner.quantiles(history[new], grid, horizon)
            answered.update(zip((keys[row] for row in new), answers, strict=True))
        answer = np.empty((len(history), horizon, len(LEVELS)), dtype=np.float32)
        for row, key in enumerate(keys):
            answer[row] = answered[key]
        return answer
