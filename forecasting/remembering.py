"""A forecaster that is asked for the same forecasts again: it remembers what it said of each history. Pure.

Forecasts of successive days rest on back-tests at the same origins. A series' answer depends on that series alone, so
answers are kept by series, however the series are put together.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.model.usage.forecast import LEVELS
from cotenant.core.model.usage.usage import FloatMatrix, TimeGrid
from forecasting.base import Array, Forecaster


class Remembering:
    """A forecaster and all that it answered: for as long as the questions repeat themselves, then to be dropped."""

    def __init__(self, inner: Forecaster) -> None:
        """Nothing was asked yet."""
        self.name = inner.name
        self._inner = inner
        self._answers: dict[tuple[TimeGrid, int, bytes], Array] = {}

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """The forecaster's quantiles (n, horizon, L); it is asked about histories that are new alone."""
        keys = [(grid, horizon, row.tobytes()) for row in history]
        new = [row for row, key in enumerate(keys) if key not in self._answers]
        if new:
            answers = self._inner.quantiles(history[new], grid, horizon)
            self._answers.update(zip((keys[row] for row in new), answers, strict=True))
        answer = np.empty((len(history), horizon, len(LEVELS)), dtype=np.float32)
        for row, key in enumerate(keys):
            answer[row] = self._answers[key]
        return answer
