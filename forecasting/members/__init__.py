"""The forecast models, one small file each; `MEMBERS` is the pool that selection chooses from, the baseline first."""

from __future__ import annotations

from typing import Final

from forecasting.base import Forecaster
from forecasting.members.recent import RecentQuantiles
from forecasting.members.seasonal_naive import SeasonalNaive
from forecasting.members.slot import SlotQuantiles

BASELINE: Final = SeasonalNaive(days=1, name="seasonal-naive-day")
"""Measured errors are relative to this: the seasonal naive of the day with empirical residual quantiles."""

MEMBERS: Final[tuple[Forecaster, ...]] = (
    BASELINE,
    SeasonalNaive(days=7, name="seasonal-naive-week"),
    RecentQuantiles(half_life_hours=12, name="recent-12h"),
    RecentQuantiles(half_life_hours=3, name="recent-3h"),
    RecentQuantiles(half_life_hours=1, name="recent-1h"),
    SlotQuantiles(days=14, reach=3, name="slots-14d"),
    SlotQuantiles(days=4, reach=1, name="slots-4d"),
)
