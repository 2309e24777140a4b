"""Slot quantiles: the values around each time of day over the last days. Pure.

The shape of the day with its spread; smooths over jobs that fire at a fixed minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import row_quantiles

_SERIES_PER_BLOCK = 128


@dataclass(frozen=True, slots=True)
class SlotQuantiles:
    """Quantiles over the same slot +- `reach` slots of each of the last `days` days."""

    days: int
    reach: int
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Quantiles (n, horizon, L) of the slots after `grid`, from history (n, grid.size) with NaN for gaps.

        Series are handled in blocks, because each slot ahead gathers (2 reach + 1) x days values of a series.
        """
        day = grid.slots_per_day
        ahead = np.arange(horizon)[:, None, None]
        back = day * np.arange(1, self.days + 1)[None, :, None]
        near = np.arange(-self.reach, self.reach + 1)[None, None, :]
        # Beyond a day ahead the same slot of the last day known is meant.
        column = history.shape[1] + ahead % day - back + near
        column = np.where((column < 0) | (column >= history.shape[1]), -1, column).reshape(horizon, -1)
        padded = np.pad(history, ((0, 0), (0, 1)), constant_values=np.nan)  # column -1 is a gap
        blocks = range(0, len(history), _SERIES_PER_BLOCK)
        parts = [row_quantiles(padded[i : i + _SERIES_PER_BLOCK][:, column], LEVEL_ARRAY) for i in blocks]
        raw = np.concatenate(parts) if parts else np.empty((0, horizon, len(LEVEL_ARRAY)))
        return conform(raw, history)
