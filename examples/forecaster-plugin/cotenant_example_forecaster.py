"""Forecaster `example-median-week`: the last week's quantiles of each hour of day, no more. A complete plug-in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import conform

DAYS = 7


class ExampleMedianWeek:
    """A forecaster is a class without arguments, with a name and this one method."""

    name = "example-median-week"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> npt.NDArray[np.float32]:
        """Quantiles (n, horizon, len(LEVELS)) of the slots right after `grid`, from history (n, grid.size)."""
        day = grid.slots_per_day
        whole = min(DAYS, grid.size // day)
        if not whole:
            return conform(np.full((len(history), horizon, len(LEVELS)), np.nan), history)
        # (n, days, slots of a day) that end at the origin: column h is h slots after it, on each of the last days.
        week = history[:, grid.size - whole * day :].reshape(len(history), whole, day)
        answer = np.full((len(history), day, len(LEVELS)), np.nan)
        seen = ~np.isnan(week).all(axis=1)
        answer[seen] = np.nanquantile(week.swapaxes(1, 2)[seen], LEVELS, axis=1).T
        return conform(answer[:, np.arange(horizon) % day], history)
