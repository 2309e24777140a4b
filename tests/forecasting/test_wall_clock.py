"""Days of 23 and 25 hours: the pattern of people's days stays where their clocks say."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.local_time.wall_clock import WallClock
from cotenant.forecasting.settings import ForecastingSettings
from tests.forecasting.test_engine import NOBODY

BERLIN = "Europe/Berlin"
SPRING = int(datetime(2026, 3, 29, 1, tzinfo=ZoneInfo("UTC")).timestamp())
"""02:00 becomes 03:00 in Berlin."""
AUTUMN = int(datetime(2026, 10, 25, 1, tzinfo=ZoneInfo("UTC")).timestamp())
"""03:00 becomes 02:00."""
DAY = 86_400


def grid_before(origin: int, days: float, step: int = 1800) -> TimeGrid:
    return TimeGrid(origin - round(days * DAY), step, round(days * DAY / step))


def office(times: np.ndarray, zone: str) -> np.ndarray:
    """100 at night, 300 from 9 to 17 o'clock where the users live."""
    hours = np.array([datetime.fromtimestamp(int(t), ZoneInfo(zone)).hour for t in times])
    return np.where((hours >= 9) & (hours < 17), 300.0, 100.0)


def test_without_a_change_of_clocks_nothing_is_touched() -> None:
    for zone in ("UTC", BERLIN, "Asia/Kolkata"):
        clock = WallClock.of(grid_before(SPRING - 30 * DAY, 14), 48, zone)
        history = np.arange(14 * 48, dtype=np.float32)[None]
        assert clock.local(history) is history


def test_the_hour_that_never_was_is_a_gap() -> None:
    # The clocks went forward ten hours ago: what is older stands two slots earlier on today's clock.
    clock = WallClock.of(grid_before(SPRING + 10 * 3600, 2), 48, BERLIN)
    history = np.arange(96, dtype=np.float32)[None]
    local = clock.local(history)[0]
    assert local[:74].tolist() == list(range(2, 76))
    assert np.isnan(local[74:76]).all()
    assert local[76:].tolist() == list(range(76, 96))


def test_the_hour_that_came_twice_is_its_mean() -> None:
    clock = WallClock.of(grid_before(AUTUMN + 10 * 3600, 2), 48, BERLIN)
    local = clock.local(np.arange(96, dtype=np.float32)[None])[0]
    # Older slots stand two later; 74 and 75 of the old offset meet 76 and 77 of the new one.
    assert np.isnan(local[:2]).all()
    assert local[2:76].tolist() == list(range(74))
    assert local[76:78].tolist() == [(74 + 76) / 2, (75 + 77) / 2]
    assert local[78:].tolist() == list(range(78, 96))


def test_a_change_ahead_is_read_at_the_slots_that_really_come() -> None:
    clock = WallClock.of(grid_before(SPRING - 5 * 3600, 14), 48, BERLIN)
    ahead = clock.absolute(np.arange(48, dtype=np.float32)[None])[0]
    # Ten slots, then the clock jumps over two; the day repeats at its end.
    assert ahead.tolist() == [*range(10), *range(12, 48), 0, 1]


@given(
    change=st.sampled_from([SPRING, AUTUMN]),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"]),
    shift=st.integers(-20 * 48, 20 * 48),
    days=st.integers(0, 20),
)
def test_no_value_is_invented(change: int, zone: str, shift: int, days: int) -> None:
    grid = grid_before(change + 1800 * shift, days)
    clock = WallClock.of(grid, 48, zone)
    history = np.full((1, grid.size), 7, dtype=np.float32)
    local = clock.local(history)
    assert set(np.unique(local[~np.isnan(local)]).tolist()) <= {7.0}
    # A change moves by a whole day at most, and as many slots as it moves are gaps.
    assert np.isnan(local).sum() <= (np.abs(clock.past).max() if grid.size else 0) * 2
    assert (clock.absolute(np.ones((1, 48, 3), dtype=np.float32)) == 1).all()


def foreseen(origin: int, zone: str) -> tuple[Forecasts[NodeRef], np.ndarray]:
    """Median forecast of office hours in Berlin after an origin, by the days of a zone, and what really came."""
    past = grid_before(origin, 14, 300)
    values = office(past.start_seconds + 300 * np.arange(past.size), BERLIN)[None].astype(np.float32)
    usage = Usage((NodeRef("n"),), past, values, Resource.CPU, Statistic.MEAN)
    forecasts = forecast(usage, NOBODY, ForecastingSettings(time_zone=zone, booster_rows=0))
    return forecasts, office(origin + 1800 * np.arange(48), BERLIN)


@pytest.mark.slow
@pytest.mark.parametrize("change", [SPRING, AUTUMN])
@pytest.mark.parametrize("hours", [-10, 6, 30], ids=["tonight", "this night", "yesterday"])
def test_office_hours_are_foreseen_across_a_change_of_clocks(change: int, hours: int) -> None:
    forecasts, really = foreseen(change + 3600 * hours, BERLIN)
    # All days are alike on the users' clock, so nothing is wrong but an hour's edge that the mean blurs.
    assert np.abs(forecasts.level(0.5)[0] - really).max() < 60
    by_utc, _ = foreseen(change + 3600 * hours, "UTC")
    # By UTC both ends of the office day are an hour off: 4 half hours x 200, where the change lies inside the window.
    assert np.abs(by_utc.level(0.5)[0] - really).sum() > np.abs(forecasts.level(0.5)[0] - really).sum() + 300


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="not an IANA zone"):
        ForecastingSettings(time_zone="Mars/Base")
