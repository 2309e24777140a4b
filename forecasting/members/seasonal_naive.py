"""Seasonal naive: the same slot one season ago, with the quantiles of how wrong that was in the past. Pure.

With a season of one day it is the baseline that every measured error is relative to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import row_quantiles


@dataclass(frozen=True, slots=True)
class SeasonalNaive:
    """Same slot `days` ago (the newest of that slot that is not a gap) + empirical quantiles of the residuals."""

    days: int
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Quantiles (n, horizon, L) of the slots after `grid`, from history (n, grid.size) with NaN for gaps.

        Where a season of several days has no known slot or no residual, a season of one day stands in.
        """
        season = self.days * grid.slots_per_day
        point = _last_seasons(history, season, horizon)
        if self.days > 1:
            point = np.where(np.isnan(point), _last_seasons(history, grid.slots_per_day, horizon), point)
        spread = _residual_quantiles(history, season)
        if self.days > 1:
            spread = np.where(np.isnan(spread), _residual_quantiles(history, grid.slots_per_day), spread)
        return conform(point[:, :, None] + spread[:, None, :], history)


def _last_seasons(history: FloatMatrix, season: int, horizon: int) -> FloatMatrix:
    """Newest value of each slot of the season, laid out over the horizon, (n, horizon); NaN where there is none."""
    seasons = -(-history.shape[1] // season)
    padded = np.pad(history, ((0, 0), (seasons * season - history.shape[1], 0)), constant_values=np.nan)
    newest = np.full((len(history), season), np.nan, dtype=np.float32)
    for past in reversed(np.split(padded, seasons, axis=1) if seasons else ()):
        gap = np.isnan(newest)
        if not gap.any():
            break
        np.copyto(newest, past, where=gap)
    return newest[:, np.arange(horizon) % season]


def _residual_quantiles(history: FloatMatrix, season: int) -> Array:
    """Quantiles of value minus value one season before, (n, levels); NaN without such a pair."""
    return row_quantiles(history[:, season:] - history[:, : max(0, history.shape[1] - season)], LEVEL_ARRAY)
