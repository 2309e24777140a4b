"""Hourly forecast of a week: daily and weekly members, weighted by their losses on the last weeks. Pure.

It looks further than the 24 hours on which decisions are based. Each member forecasts the weeks that began 7, 8, 9 and
10 days ago from the data before them; its weight falls with its loss, shrunk towards its loss over all series.
Exponential smoothing of what STL leaves (ETS) as a further member gave no gain: bench.forecasting.decisions_week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, TimeGrid, Usage
from cotenant.base.usage.week import WEEK_HOURS, RefT, Weeks
from cotenant.forecasting.base import Array, Forecaster, in_order
from cotenant.forecasting.local_time.calendars import Calendar
from cotenant.forecasting.local_time.wall_clock import WallClock
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.members.plain import RecentQuantiles, SeasonalNaive, SlotQuantiles
from cotenant.forecasting.members.shift import ShiftedProfile
from cotenant.forecasting.selection import blend, combine, level_of
from cotenant.forecasting.settings import ForecastingSettings

Floats = npt.NDArray[np.float64]

MODEL: Final = "week-blend"
DAY: Final = DAY_SECONDS // HOUR_SECONDS
MEMBERS: Final[tuple[Forecaster, ...]] = (
    SeasonalNaive(days=7, name="seasonal-naive-week"),
    SeasonalNaive(days=1, name="seasonal-naive-day"),
    RecentQuantiles(half_life_hours=12, name="recent-12h"),
    RecentQuantiles(half_life_hours=72, name="recent-72h"),
    SlotQuantiles(days=14, reach=1, name="slots-14d"),
    SlotQuantiles(days=4, reach=1, name="slots-4d"),
    ShiftedProfile(days=14, level_half_life_hours=24, fade_hours=10_000, name="shift-14d"),
    ShiftedProfile(days=14, level_half_life_hours=24, fade_hours=10_000, name="scale-14d", relative=True),
)
"""The first is what the measured loss is relative to."""
BACK_DAYS: Final = (7, 8, 9, 10)
"""How long ago the weeks began on which members are tried."""
SHORTEST_DAYS: Final = 3
"""History before such a week, and before the week ahead."""
SHARPNESS, PRIOR = 8.0, 4.0
"""How fast a weight falls with the log of the loss; weeks that the mean over all series counts for."""
_LOW, _HIGH = LEVELS.index(0.1), LEVELS.index(0.9)


def weeks(usage: Usage[RefT], settings: ForecastingSettings) -> Weeks[RefT]:
    """Forecast the 168 hours after the last whole hour of usage, whose step must divide an hour.

    Series without SHORTEST_DAYS of history, or with more gaps than values, get NaN.
    """
    if usage.resource is None or HOUR_SECONDS % usage.grid.step_seconds:
        raise ValueError("week-ahead forecasts need the usage of a resource, at a step that divides an hour")
    days = max(settings.history_days, 2 * 7)
    hourly = usage.coarser(HOUR_SECONDS // usage.grid.step_seconds).tail(days * DAY)
    if not hourly.grid.size:
        # The week of series whose history holds no whole hour: nothing is known of it.
        resource = usage.resource
        ahead = hourly.grid.following(WEEK_HOURS)
        path = np.full((len(usage.refs), WEEK_HOURS, len(LEVELS)), np.nan, dtype=np.float32)
        none = np.full(len(usage.refs), np.nan)
        return Weeks(usage.refs, resource, ahead, path, none, none)
    values = np.where(np.isfinite(hourly.values) & (hourly.values >= 0), hourly.values, np.float32(np.nan))
    clock = WallClock.of(hourly.grid, WEEK_HOURS, settings.time_zone)
    calendar = Calendar.of(hourly.grid, WEEK_HOURS, settings)
    path, loss, covered = blend_week(clock.local(calendar.ordinary(values)), hourly.grid)
    path = calendar.special(clock.absolute(path), values, clock)
    # A series must span SHORTEST_DAYS, and be known for half of that span.
    present = ~np.isnan(values)
    span, count = values.shape[1] - present.argmax(axis=1), present.sum(axis=1)
    path[~((count > 0) & (span >= SHORTEST_DAYS * DAY) & (2 * count >= span))] = np.nan
    return Weeks(usage.refs, usage.resource, hourly.grid.following(WEEK_HOURS), path, loss, covered)


def blend_week(history: FloatMatrix, grid: TimeGrid) -> tuple[Array, Floats, Floats]:
    """Return next week's quantiles (n, 168, L), and each series' relative loss and 80 % coverage last week, or NaN."""
    # Each past week from what stood before it; the newest is forecast with the weights of the older ones.
    size = len(history)
    cuts = [cut for days in BACK_DAYS if (cut := grid.size - days * DAY) >= SHORTEST_DAYS * DAY]
    ratios = np.zeros((0, len(MEMBERS), size))
    loss = covered = np.full(size, np.nan)
    if cuts:
        weeks_ahead = [(_member_paths(history, grid, cut), history[:, cut : cut + WEEK_HOURS]) for cut in cuts]
        ratios = np.stack([_ratio(came, member_paths, level_of(history)) for member_paths, came in weeks_ahead])
        member_paths, came = weeks_ahead[0]
        served = in_order(combine(member_paths, _weights(ratios[1:])))
        inside = (came >= served[:, :, _LOW]) & (came <= served[:, :, _HIGH])
        present = ~np.isnan(came)
        covered = np.where(
            present.any(axis=1), (inside & present).sum(axis=1) / np.maximum(present.sum(axis=1), 1), np.nan
        )
        naive = pinball(came, member_paths[0])
        loss = np.where(naive > 0, pinball(came, served) / np.where(naive > 0, naive, 1), np.nan)
    ahead = np.stack([member.quantiles(history, grid, WEEK_HOURS) for member in MEMBERS])
    return in_order(combine(ahead, _weights(ratios))), loss, covered


def _member_paths(history: FloatMatrix, grid: TimeGrid, cut: int) -> Array:
    """Return each member's quantiles of the week from hour `cut` on, from the hours before, (M, n, WEEK_HOURS, L)."""
    before = TimeGrid(grid.start_seconds, grid.step_seconds, cut)
    return np.stack([member.quantiles(history[:, :cut], before, WEEK_HOURS) for member in MEMBERS])


def _ratio(came: FloatMatrix, member_paths: Sequence[Array] | Array, level: Floats) -> Floats:
    """Return log(loss / the first member's loss), (M, n); 0 without actual values."""
    loss = np.array([pinball(came, path) for path in member_paths]) + 1e-6 * level
    return np.nan_to_num(np.log(loss / loss[:1]))


def _weights(ratios: Floats) -> Floats:
    tests, members, size = ratios.shape
    if not tests:
        return np.full((members, size), 1.0 / members)
    mean = ratios.mean(axis=0)
    score = (tests * mean + PRIOR * mean.mean(axis=1, keepdims=True)) / (tests + PRIOR)
    return blend(score, SHARPNESS)


@dataclass(frozen=True, slots=True)
class WeekBlend:
    """The week-ahead forecast of `blend_week` as a forecaster of hourly values, for back-tests."""

    name: str = "week ahead (as served)"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)); raise ValueError for other steps than an hour, or over a week."""
        if grid.step_seconds != HOUR_SECONDS or horizon > WEEK_HOURS:
            raise ValueError("a week-ahead forecast needs hourly values and a horizon of at most one week")
        return blend_week(history, grid)[0][:, :horizon]
