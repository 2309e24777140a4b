"""The plain members: the same slot one season ago, the newest values, and the values around each time of day. Pure.

The seasonal naive of one day is the baseline of every measured error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import row_quantiles, weighted_quantiles

_HALF_LIVES_KEPT = 10  # older values weigh less than a thousandth
_SERIES_PER_BLOCK = 128


@dataclass(frozen=True, slots=True)
class SeasonalNaive:
    """Seasonal naive of `days` days: newest known value of each slot + quantiles of changes from season to season."""

    days: int
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        With `days` above 1, a slot that is known in no past season takes the newest value of its time of day, and a
        series without any change from season to season takes the changes from day to day.
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
    """Return the newest value of each slot of the season, repeated over the horizon, (n, horizon); NaN without one."""
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
    """Return quantiles of value minus value one season before, (n, levels); NaN without such a pair."""
    return row_quantiles(history[:, season:] - history[:, : max(0, history.shape[1] - season)], LEVEL_ARRAY)


@dataclass(frozen=True, slots=True)
class RecentQuantiles:
    """Quantiles of the history, whose weights halve per `half_life_hours` of age; the same for every slot ahead."""

    half_life_hours: float
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)), all slots alike, from `history` (n, grid.size), NaN = gap."""
        half_life = self.half_life_hours * HOUR_SECONDS / grid.step_seconds
        tail = history[:, max(0, history.shape[1] - int(np.ceil(_HALF_LIVES_KEPT * half_life))) :]
        age = np.arange(tail.shape[1])[::-1]
        flat = weighted_quantiles(tail, np.exp2(-age / half_life), LEVEL_ARRAY)
        return np.repeat(conform(flat[:, None, :], history), horizon, axis=1)


@dataclass(frozen=True, slots=True)
class SlotQuantiles:
    """Quantiles over the same slot, and `reach` slots before and after it, of each of the last `days` days."""

    days: int
    reach: int
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid` from `history` (n, grid.size), NaN = gap."""
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
