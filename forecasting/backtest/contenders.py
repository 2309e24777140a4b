"""The forecasters that a back-test compares: any `Forecaster` (here), and the engine (`engine.py`). Pure.

A contender answers with quantiles of the plan's slots, with the path its peak window is read from, with whether it
claims a peak at all, and with the 24-hour peak where it has a head for that.
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
    """quantiles: (n, H, L); shape: (n, H); claims: (n,), whether there is a peak; peak: (n, L), NaN without a head."""

    quantiles: Array
    shape: Array
    claims: npt.NDArray[np.bool_]
    peak: Array

    def take(self, rows: npt.NDArray[Any]) -> ContenderForecast:
        """The same of some rows."""
        return ContenderForecast(self.quantiles[rows], self.shape[rows], self.claims[rows], self.peak[rows])


class Contender(Protocol):
    """Something that forecasts from a past."""

    @property
    def name(self) -> str:
        """Name in every figure."""

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Forecast of the `horizon` slots of the past's coarse step that follow it."""


@dataclass(frozen=True, slots=True)
class PathContender:
    """A forecaster on the plan's step; its median is the path of its windows, its highest median its peak.

    With `joined_slots` above 1 it forecasts so many slots of the plan as one, and each of them gets that forecast.
    """

    forecaster: Forecaster
    joined_slots: int = 1

    @property
    def name(self) -> str:
        """The forecaster's, and how many slots it takes as one."""
        return self.forecaster.name + (f", {self.joined_slots} slots as one" if self.joined_slots > 1 else "")

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Forecast of `horizon` coarse slots after the past; the median is the path in which windows are sought.

        Such a forecaster has no peak head, so `peak` is NaN; it claims a peak where its median moves enough.
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
