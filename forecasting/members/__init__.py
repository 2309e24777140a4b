"""The forecast models; `MEMBERS` are those that selection weighs, the baseline first."""

from __future__ import annotations

from typing import Final

from cotenant.forecasting.base import Forecaster
from cotenant.forecasting.members.plain import RecentQuantiles, SeasonalNaive, SlotQuantiles
from cotenant.forecasting.members.shift import ShiftedProfile
from cotenant.forecasting.members.similar import SimilarMoments

BASELINE: Final = SeasonalNaive(days=1, name="seasonal-naive-day")
"""Measured errors are relative to this: the seasonal naive of the day with empirical residual quantiles."""

MEMBERS: Final[tuple[Forecaster, ...]] = (
    BASELINE,
    SeasonalNaive(days=7, name="seasonal-naive-week"),
    RecentQuantiles(half_life_hours=12, name="recent-12h"),
    RecentQuantiles(half_life_hours=3, name="recent-3h"),
    RecentQuantiles(half_life_hours=1, name="recent-1h"),
    SlotQuantiles(days=10, reach=1, name="slots-10d"),
    ShiftedProfile(days=14, level_half_life_hours=1, fade_hours=6, name="shift-14d"),
    ShiftedProfile(days=14, level_half_life_hours=3, fade_hours=96, name="scale-14d", relative=True),
    SimilarMoments(count=24, name="similar-moments"),
)
