"""The forecasters that a back-test compares: any `Forecaster` (here), and the engine (`engine.py`). Pure.

A contender returns quantiles of the plan's slots, the path from which its peak window is read, whether it expects a
peak at all, and the 24-hour peak if it forecasts that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.backtest.plan import Past, join_slots
from cotenant.forecasting.backtest.windows import amplitude
from cotenant.forecasting.base import Array, Forecaster

MEDIAN: Final = LEVELS.index(0.5)


@dataclass(frozen=True, slots=True, eq=False)
class ContenderForecast:
    """A forecast of n series for H slots at L levels, and whether, when and how high the day's peak is expected.

    `quantiles` (n, H, L); `shape` (n, H): the path whose highest run is the peak window; `claims` (n,): whether a peak
    is expected at all; `peak` (n, L): quantiles of the highest value, NaN if the forecaster does not forecast it.
    """

    quantiles: Array
    shape: Array
    claims: npt.NDArray[np.bool_]
    peak: Array

    def take(self, rows: npt.NDArray[Any]) -> ContenderForecast:
        """Return the forecast of only the series that `rows` selects."""
        return ContenderForecast(self.quantiles[rows], self.shape[rows], self.claims[rows], self.peak[rows])


class Contender(Protocol):
    """A forecaster that takes part in a back-test."""

    @property
    def name(self) -> str:
        """The forecaster's name in every result."""

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Return the forecast of the `horizon` slots after the past, at the past's coarse step."""


@dataclass(frozen=True, slots=True)
class PathContender:
    """A forecaster in a back-test at the plan's step; its peak window is the highest window of its median path.

    With `joined_slots` above 1 it forecasts that many slots of the plan as one, and each of them gets that forecast.
    """

    forecaster: Forecaster
    joined_slots: int = 1

    @property
    def name(self) -> str:
        """The forecaster's name, with the number of slots that it forecasts as one."""
        name, slots = self.forecaster.name, self.joined_slots
        return f"{name}, {slots} slots as one" if slots > 1 else name

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Return the forecast of `horizon` coarse slots after the past; peak windows are searched in its median.

        It has no separate peak forecast, so `peak` is NaN; it expects a peak if its median varies enough.
        """
        slots, grid = self.joined_slots, past.coarse_grid
        used_slots = grid.size // slots * slots
        history = (
            join_slots(past.coarse[:, grid.size - used_slots :], slots, past.statistic) if slots > 1 else past.coarse
        )
        step = slots * grid.step_seconds
        before = TimeGrid(grid.end_seconds - used_slots * grid.step_seconds, step, used_slots // slots)
        quantiles = np.repeat(self.forecaster.quantiles(history, before, horizon // slots), slots, axis=1)
        shape = quantiles[:, :, MEDIAN]
        return ContenderForecast(
            quantiles, shape, amplitude(shape), np.full((len(shape), len(LEVELS)), np.nan, dtype=np.float32)
        )
