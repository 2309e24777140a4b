"""The week ahead: it repeats what repeats, knows no future, and says how it did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import HOUR_SECONDS, Statistic, TimeGrid, Usage
from cotenant.forecasting.settings import CalendarEvent, ForecastingSettings
from cotenant.forecasting.weeks.week import DAY, WeekBlend, weeks

MONDAY = 1_767_571_200  # 2026-01-05T00:00:00Z
MEDIAN, WEEK = LEVELS.index(0.5), 7 * DAY


def of_hours(values: np.ndarray) -> Usage[NodeRef]:
    refs = tuple(NodeRef(str(row)) for row in range(len(values)))
    grid = TimeGrid(MONDAY, HOUR_SECONDS, values.shape[1])
    return Usage(refs, grid, values.astype(np.float32), Resource.CPU, Statistic.MEAN)


def office(days: int) -> np.ndarray:
    """Ten cores by night and at the weekend, thirty from 8 to 18 on working days."""
    hours = np.arange(days * DAY)
    busy = (hours % DAY >= 8) & (hours % DAY < 18) & (hours // DAY % 7 < 5)
    return np.where(busy, 30_000.0, 10_000.0)


def test_what_repeats_every_week_is_foreseen_with_its_weekend() -> None:
    forecasts = weeks(of_hours(office(21)[None]), ForecastingSettings(history_days=21))
    # the third week ends on a Sunday: what follows is the same week again
    assert np.abs(forecasts.quantiles[0, :, MEDIAN] - office(7)).max() < 3_000
    assert forecasts.grid.start_seconds == MONDAY + 21 * 86_400
    # repeating the week before is exact here, so that nothing can be relatively better: the loss has no measure
    assert np.isnan(forecasts.relative_loss[0])
    assert forecasts.covered[0] > 0.5


def test_a_noisy_week_is_told_better_than_by_repeating_the_last() -> None:
    rng = np.random.default_rng(3)
    noisy = np.maximum(office(28)[None] + rng.normal(0, 4_000, (12, 28 * DAY)), 0)
    forecasts = weeks(of_hours(noisy), ForecastingSettings(history_days=28))
    assert np.median(forecasts.relative_loss) < 1
    # the band of 0.1 to 0.9 is meant to hold four of five values
    assert 0.65 < forecasts.covered.mean() < 0.95


@pytest.mark.parametrize(("minute", "slots"), [(5, 12), (0, 11), (55, 1)])
def test_a_history_without_one_whole_hour_gives_nothing_and_breaks_nothing(minute: int, slots: int) -> None:
    grid = TimeGrid(MONDAY + 60 * minute, 300, slots)
    usage = Usage((NodeRef("n"),), grid, np.ones((1, slots), dtype=np.float32), Resource.CPU, Statistic.MEAN)
    forecasts = weeks(usage, ForecastingSettings())
    assert forecasts.quantiles.shape == (1, WEEK, len(LEVELS))
    assert np.isnan(forecasts.quantiles).all()
    assert forecasts.grid.size == WEEK


def test_series_that_are_too_young_or_too_thin_get_nothing() -> None:
    values = np.repeat(office(14)[None], 3, axis=0)
    values[0, : 12 * DAY] = np.nan
    values[1, np.arange(14 * DAY) % 3 != 0] = np.nan
    has_forecast = np.isfinite(weeks(of_hours(values), ForecastingSettings()).quantiles).all(axis=(1, 2))
    # two days; a third of the hours; whole
    assert has_forecast.tolist() == [False, False, True]


def test_nothing_after_the_origin_is_seen() -> None:
    past = office(14)[None].astype(np.float32)
    grid = TimeGrid(MONDAY, HOUR_SECONDS, 14 * DAY)
    alone = WeekBlend().quantiles(past, grid, WEEK)
    poisoned = np.concatenate([past, np.full((1, WEEK), 1e9, dtype=np.float32)], axis=1)
    assert np.array_equal(WeekBlend().quantiles(poisoned[:, : 14 * DAY], grid, WEEK), alone)


@tries(max_examples=25)
@given(st.integers(0, 20), st.floats(0, 0.9), st.integers(0, 2**32 - 1))
def test_whatever_the_history_quantiles_are_in_order_and_not_negative(days: int, gaps: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.gamma(1.0, 1_000.0, (3, days * DAY + 5))
    values[rng.random(values.shape) < gaps] = np.nan
    path = weeks(of_hours(values), ForecastingSettings()).quantiles
    forecast_rows = path[np.isfinite(path).all(axis=(1, 2))]
    assert (forecast_rows >= 0).all()
    assert (np.diff(forecast_rows, axis=2) >= 0).all()


def test_days_of_rest_are_foreseen_like_sundays() -> None:
    # Monday 2026-01-26 is ahead, and said to be a day of rest
    settings = ForecastingSettings(history_days=21, events=[CalendarEvent(name="rest", first_day="2026-01-26")])
    forecasts = weeks(of_hours(office(21)[None]), settings)
    assert forecasts.quantiles[0, 12, MEDIAN] == pytest.approx(10_000, rel=0.05)
    assert forecasts.quantiles[0, DAY + 12, MEDIAN] > 25_000
