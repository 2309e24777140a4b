"""The forecasters that a back-test compares: any `Forecaster` (here), and the engine (`engine.py`). Pure.

A contender answers with quantiles of the plan's slots, with the path its peak window is read from, with whether it
claims a peak at all, and with the 24-hour peak where it has a head for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.forecast import LEVELS
from forecasting.backtest.plan import Past
from forecasting.backtest.windows import amplitude
from forecasting.base import Array, Forecaster

Floats = npt.NDArray[np.floating[Any]]

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
    """A forecaster on the plan's step; its median is the path of its windows, its highest median its peak."""

    forecaster: Forecaster

    @property
    def name(self) -> str:
        """The forecaster's."""
        return self.forecaster.name

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Forecast of `horizon` coarse slots after the past; the median is the path in which windows are sought.

        Such a forecaster has no peak head, so `peak` is NaN; it claims a peak where its median moves enough.
        """
        quantiles = self.forecaster.quantiles(past.coarse, past.coarse_grid, horizon)
        shape = quantiles[:, :, MEDIAN]
        return ContenderForecast(
            quantiles, shape, amplitude(shape), np.full((len(shape), len(LEVELS)), np.nan, dtype=np.float32)
        )
