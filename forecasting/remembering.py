"""A forecaster that is asked for the same forecasts again: it remembers what it said of each history. Pure.

Forecasts of successive days rest on back-tests at the same origins. A series' answer depends on that series alone, so
answers are kept by series, however the series are put together. A history that begins at another time holds other
values: what was said before then is forgotten.
"""

from __future__ import annotations

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, Forecaster


class Remembering:
    """A forecaster and all that it answered: for as long as the questions repeat themselves, then to be dropped."""

    def __init__(self, inner: Forecaster) -> None:
        """Wrap a forecaster, with no answer remembered yet."""
        self.name = inner.name
        self._inner = inner
        self._answers: dict[tuple[TimeGrid, int, bytes], Array] = {}
        self._start_seconds: int | None = None

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """The forecaster's quantiles (n, horizon, L); it is asked about histories that are new alone."""
        if grid.start_seconds != self._start_seconds:
            self._answers, self._start_seconds = {}, grid.start_seconds
        known = self._answers
        keys = [(grid, horizon, row.tobytes()) for row in history]
        new = [row for row, key in enumerate(keys) if key not in known]
        if new:
            answers = self._inner.quantiles(history[new], grid, horizon)
            known.update(zip((keys[row] for row in new), answers, strict=True))
        answer = np.empty((len(history), horizon, len(LEVELS)), dtype=np.float32)
        for row, key in enumerate(keys):
            answer[row] = known[key]
        return answer
