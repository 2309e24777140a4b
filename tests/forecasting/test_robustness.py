"""What real history does to a forecast: gaps, restarts, moves of level, bursts, clocks and calendars, each asserted.

Usage is in millicores at 5 minutes, as the profiler hands it on; the engine is asked as the analysis asks it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, Forecasts, WindowKind
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.settings import ForecastingSettings
from tests.forecasting.test_engine import NOBODY, portraits_of

DAY = 288
START = 1_699_833_600  # 2023-11-13T00:00Z, a Monday
MEDIAN, UPPER = LEVELS.index(0.5), LEVELS.index(0.95)


def run(values: np.ndarray, start: int = START, with_portraits: bool = False) -> Forecasts[NodeRef]:
    values = np.atleast_2d(values).astype(np.float32)
    refs = tuple(NodeRef(f"n{i}") for i in range(len(values)))
    usage = Usage(refs, TimeGrid(start, 300, values.shape[1]), values, Resource.CPU, Statistic.MEAN)
    return forecast(usage, portraits_of(values) if with_portraits else NOBODY, ForecastingSettings())


def days(count: float, series: int = 4, seed: int = 0) -> np.ndarray:
    """200 at midnight, 800 at noon, noise 30."""
    rng = np.random.default_rng(seed)
    slots = np.arange(round(DAY * count))
    return np.abs(500 - 300 * np.cos(2 * np.pi * slots / DAY) + rng.normal(0, 30, (series, len(slots))))


def coming(series: int = 4) -> np.ndarray:
    """Half-hour means of a day of `days`, without noise."""
    shape = 500 - 300 * np.cos(2 * np.pi * np.arange(DAY) / DAY)
    return np.broadcast_to(shape.reshape(48, 6).mean(axis=1), (series, 48))


def away(forecasts: Forecasts[NodeRef]) -> float:
    """Mean distance of the median from the noiseless day, relative to its mean of 500."""
    return float(np.abs(forecasts.quantiles[:, :, MEDIAN] - coming(len(forecasts.refs))).mean() / 500)


@pytest.mark.parametrize(
    ("length", "reason"),
    [(0, Reason.NO_DATA), (1 / 24, Reason.FROM_PORTRAIT), (0.25, Reason.FROM_PORTRAIT), (1, Reason.FROM_PORTRAIT)],
    ids=["0", "1h", "6h", "1d"],
)
def test_a_cold_start_says_so_and_shows_what_was_seen(length: float, reason: Reason) -> None:
    forecasts = run(days(length), with_portraits=bool(length))
    assert set(forecasts.reason) == {reason}
    if length:
        assert (forecasts.quantiles[:, :, UPPER] >= days(length).mean(axis=1)[:, None]).all()


def test_three_days_know_the_shape_of_the_day() -> None:
    # Noise of half hours is 30 / sqrt(6) = 12, that of yesterday alone 17: some 3 % of 500.
    assert away(run(days(3))) < 0.05


def test_three_times_the_replicas_are_followed_within_half_a_day() -> None:
    values = days(14)
    values[:, -DAY // 2 :] *= 3
    forecasts = run(values)
    # Half a day of the new level: the median comes nearer to 3 x the day than to the day.
    error = np.abs(forecasts.quantiles[:, :, MEDIAN] - 3 * coming()).mean() / 1500
    assert error < 0.33


def test_a_restart_that_leaves_a_short_gap_changes_nothing_much() -> None:
    values = days(14)
    values[:, 13 * DAY : 13 * DAY + 3] = np.nan
    assert np.abs(run(values).quantiles - run(days(14)).quantiles).mean() < 2


@pytest.mark.parametrize("slots", [1, 24, DAY, 3 * DAY], ids=["5min", "2h", "24h", "3d"])
def test_a_scrape_gap_leaves_the_shape_of_the_day(slots: int) -> None:
    values = days(14)
    values[:, 9 * DAY : 9 * DAY + slots] = np.nan
    assert away(run(values)) < 0.05


def test_nan_infinity_and_negative_values_are_gaps() -> None:
    values = days(14)
    values[:, 1000], values[:, 2000], values[:, 3000] = np.nan, np.inf, -1e6
    forecasts = run(values)
    assert np.isfinite(forecasts.quantiles).all()
    assert away(forecasts) < 0.05


@pytest.mark.parametrize(("age", "error"), [(1, 0.5), (3, 0.05)], ids=["1d", "3d"])
def test_a_step_is_followed_more_the_longer_it_lasts(age: int, error: float) -> None:
    values = days(14)
    values[:, -age * DAY :] += 1000
    # 1000 on top of a day of mean 500; what stands still at the old level would err by 0.67.
    assert np.abs(run(values).quantiles[:, :, MEDIAN] - coming() - 1000).mean() / 1500 < error


def test_a_burst_of_outliers_moves_neither_path_nor_median_peak() -> None:
    values = days(14)
    values[:, 8 * DAY : 8 * DAY + 6] = 1e5
    forecasts = run(values)
    assert away(forecasts) < 0.05
    assert (forecasts.peak_level(0.5) < 1500).all()


@pytest.mark.parametrize("level", [0.0, 250.0])
def test_dead_and_constant_series_are_forecast_as_they_are(level: float) -> None:
    forecasts = run(np.full((2, 14 * DAY), level))
    assert (forecasts.quantiles == level).all()
    assert set(forecasts.reason) == {Reason.NO_PEAK}


def test_a_quiet_weekend_is_not_taken_for_the_end_of_work() -> None:
    # 15 days from a Monday: the origin is Monday again, after a weekend at a tenth.
    values = days(14)
    for day in (5, 6, 12, 13):
        values[:, day * DAY : (day + 1) * DAY] *= 0.1
    forecasts = run(values)
    # The weekly season saw Monday follow such a weekend once: the band must reach the workday's noon.
    assert (forecasts.quantiles[:, 24, LEVELS.index(0.98)] > 400).all()


def test_a_holiday_a_week_ago_does_not_lower_today() -> None:
    values = days(14)
    values[:, 7 * DAY : 8 * DAY] *= 0.1
    assert away(run(values)) < 0.07


def test_a_leak_is_not_forecast_below_its_last_level() -> None:
    rng = np.random.default_rng(3)
    values = np.linspace(100, 1500, 14 * DAY) + rng.normal(0, 5, (3, 14 * DAY))
    forecasts = run(values)
    # It grows by 100 a day: the upper quantile must at least hold the last level and the peak stand above it.
    assert (forecasts.quantiles[:, :, UPPER].max(axis=1) > 1490).all()
    assert (forecasts.peak_level(0.95) > 1500).all()


def test_series_of_different_size_get_the_same_forecast_in_their_unit() -> None:
    values = days(14, series=1)
    forecasts = run(np.concatenate([values, values * 64]))
    np.testing.assert_allclose(forecasts.quantiles[1], forecasts.quantiles[0] * 64, rtol=1e-3)


def test_a_peak_is_found_where_it_was_every_day() -> None:
    forecasts = run(days(14))
    for window in forecasts.windows:
        (peak,) = [w for w in window if w.kind is WindowKind.PEAK]
        assert peak.start_seconds % 86_400 < 43_200 < peak.end_seconds % 86_400


@pytest.mark.parametrize("switch", ["2023-10-29", "2024-03-31"], ids=["back", "forward"])
def test_days_after_a_change_of_clocks_the_peak_is_back_at_its_local_hour(switch: str) -> None:
    # A job at 09:00 in Berlin; the origin is two weeks after the switch, when all history has the new offset.
    zone = ZoneInfo("Europe/Berlin")
    end = int(datetime.fromisoformat(switch).replace(tzinfo=UTC).timestamp()) + 15 * 86_400
    start = end - 14 * 86_400
    times = np.arange(start, end, 300)
    hours = np.array([datetime.fromtimestamp(int(t), zone).hour for t in times])
    values = np.where(hours == 9, 900.0, 100.0)[None] + np.random.default_rng(0).normal(0, 5, (2, len(times)))
    forecasts = run(values, start)
    for row in forecasts.quantiles[:, :, MEDIAN]:
        when = datetime.fromtimestamp(forecasts.grid.start_seconds + 1800 * int(row.argmax()), zone)
        assert when.hour == 9
