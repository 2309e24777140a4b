"""Simple baselines: B1 with Gaussian residuals, B3 and B10. Pure and frozen.

`forecasting.members.plain` has B1 with empirical residuals and B2; a test pins their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, conform
from cotenant.forecasting.empirical import known_mean

NORMAL: Final = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
"""Quantiles of the standard normal distribution at LEVELS."""


@dataclass(frozen=True, slots=True)
class GaussianSeasonalNaive:
    """Baseline B1: the value a day before + normal quantiles x root mean square of day-to-day changes (GIFT-Eval)."""

    name: str = "B1 seasonal naive day (Gaussian residuals)"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        They are normal around the newest known value at the same time of day; their variance is the mean square of the
        changes from day to day. A series without known changes gets quantiles of its history (`conform`).
        """
        day = grid.slots_per_day
        residuals = history[:, day:] - history[:, : max(0, history.shape[1] - day)]
        variance = known_mean(residuals.astype(np.float64) ** 2)
        point = newest_of_slot(history, day, horizon)
        return conform(point[:, :, None] + np.sqrt(variance)[:, None, None] * NORMAL, history)


@dataclass(frozen=True, slots=True)
class MaxPath:
    """Baseline B3: the highest value of the last `days`, overall or per slot of the day; the same for every level."""

    days: int = 7
    per_slot: bool = False
    name: str = "B3 max of 7 d, flat"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        Each level is the highest value of the last `days`; slots without one get quantiles of the history (`conform`).
        """
        day = grid.slots_per_day
        block = by_day(history, day)[:, -self.days :]
        filled = np.where(np.isnan(block), -np.inf, block)
        highest = filled.max(axis=1, initial=-np.inf)[:, np.arange(horizon) % day]
        if not self.per_slot:
            highest = np.repeat(filled.max(axis=(1, 2), initial=-np.inf)[:, None], horizon, axis=1)
        point = np.where(np.isneginf(highest), np.nan, highest)
        return conform(np.repeat(point[:, :, None], len(LEVELS), axis=2), history)


def by_day(history: FloatMatrix, day: int) -> FloatMatrix:
    """Return the history (n, slots) cut into days from its end: (n, days, slots per day); NaN fills the oldest day."""
    days = -(-history.shape[1] // day)
    padded = np.pad(history, ((0, 0), (days * day - history.shape[1], 0)), constant_values=np.nan)
    return padded.reshape(len(history), days, day)


def newest_of_slot(history: FloatMatrix, day: int, horizon: int) -> FloatMatrix:
    """Return an array (n, horizon): the newest known value at the same time of day as each future slot."""
    newest = np.full((len(history), day), np.nan, dtype=np.float32)
    for past in by_day(history, day).transpose(1, 0, 2):
        newest = np.where(np.isnan(past), newest, past)
    return newest[:, np.arange(horizon) % day]
