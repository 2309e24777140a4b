"""Days that are not like their weekday: public holidays, company holidays, sales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cotenant.base.errors import SettingsError
from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, Forecasts
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.local_time.calendars import Calendar
from cotenant.forecasting.local_time.wall_clock import WallClock
from cotenant.forecasting.settings import CalendarEvent, ForecastingSettings
from cotenant.profiler import portrait
from cotenant.profiler.settings import PortraitSettings
from tests.forecasting.test_engine import NOBODY

DAY = 86_400
UNITY_DAY = int(datetime(2025, 10, 3, tzinfo=UTC).timestamp())
"""A Friday, and a public holiday in Germany."""


def office(start: int, days: float, holidays: tuple[int, ...] = ()) -> np.ndarray:
    """300 on weekdays and Saturdays, 100 on Sundays and holidays, in 5-minute values."""
    times = start + 300 * np.arange(round(days * 288))
    sunday = (times // DAY + 3) % 7 == 6
    off = np.isin(times // DAY, [h // DAY for h in holidays])
    return np.where(sunday | off, 100.0, 300.0)


def foreseen(origin: int, calendar: ForecastingSettings, holidays: tuple[int, ...] = ()) -> Forecasts[NodeRef]:
    past = TimeGrid(origin - 14 * DAY, 300, 14 * 288)
    values = office(past.start_seconds, 14, holidays)[None].astype(np.float32)
    usage = Usage((NodeRef("n"),), past, values, Resource.CPU, Statistic.MEAN)
    return forecast(usage, NOBODY, calendar)


def test_a_holiday_ahead_is_forecast_as_a_sunday() -> None:
    plain = foreseen(UNITY_DAY, ForecastingSettings())
    assert plain.level(0.5)[0] == pytest.approx(np.full(48, 300), abs=5)
    forecasts = foreseen(UNITY_DAY, ForecastingSettings(holidays="DE"))
    # Two Sundays of the history, both at 100 all day.
    assert forecasts.level(0.5)[0] == pytest.approx(np.full(48, 100), abs=1)
    # A holiday somewhere else is an ordinary day.
    other = foreseen(UNITY_DAY, ForecastingSettings(holidays="US"))
    assert np.array_equal(other.quantiles, plain.quantiles)


def test_a_day_of_rest_has_the_peak_of_its_like_and_not_that_of_workdays() -> None:
    past = TimeGrid(UNITY_DAY - 14 * DAY, 300, 14 * 288)
    seconds = past.start_seconds + 300 * np.arange(past.size)
    values = office(past.start_seconds, 14) + np.where(seconds % DAY // 7200 == 6, 500, 0)
    values[(seconds // DAY + 3) % 7 == 6] = 100.0
    usage = Usage((NodeRef("n"),), past, values[None].astype(np.float32), Resource.CPU, Statistic.MEAN)
    workday, holiday = (forecast(usage, NOBODY, ForecastingSettings(holidays=c)).peak_window(0) for c in ("", "DE"))
    assert workday is not None and workday.start_seconds == UNITY_DAY + 12 * 3600
    assert holiday is None


EASTER_MONDAY: Final = int(datetime(2027, 3, 28, 22, tzinfo=UTC).timestamp())
"""Midnight in Berlin of a public holiday, the day after the clocks went forward."""
ALL_SAINTS: Final = int(datetime(2026, 10, 31, 23, tzinfo=UTC).timestamp())
"""Midnight in Berlin of a public holiday in Bavaria, a week after the clocks went back."""


@pytest.mark.parametrize("midnight", [EASTER_MONDAY, ALL_SAINTS], ids=["spring", "autumn"])
def test_a_holiday_after_a_change_of_clocks_is_forecast_at_the_hours_of_people(midnight: int) -> None:
    past = TimeGrid(midnight - 14 * DAY, 300, 14 * 288)
    hours = np.array([datetime.fromtimestamp(int(t), ZoneInfo("Europe/Berlin")).hour for t in past.times()])
    values = np.where((hours >= 9) & (hours < 17), 300.0, 100.0)[None].astype(np.float32)
    usage = Usage((NodeRef("n"),), past, values, Resource.CPU, Statistic.MEAN)
    median = forecast(usage, NOBODY, ForecastingSettings(holidays="DE-BY", time_zone="Europe/Berlin")).level(0.5)[0]
    # On each day of rest three of the five half hours around 09:00 are at 300, and two of those around 17:00.
    assert median == pytest.approx(np.repeat([100.0, 300.0, 100.0], [18, 16, 14]), abs=1)


def test_a_holiday_is_one_where_people_live() -> None:
    calendar = Calendar.of(
        TimeGrid(UNITY_DAY - DAY, 1800, 48), 96, ForecastingSettings(holidays="DE", time_zone="Asia/Tokyo")
    )
    # The third of October begins at 15:00 UTC of the second in Tokyo, and lasts 48 half hours.
    assert np.flatnonzero(calendar.off).tolist() == list(range(30, 78))


def test_a_holiday_in_the_history_does_not_lower_ordinary_days() -> None:
    monday = UNITY_DAY + 3 * DAY
    forecasts = foreseen(monday, ForecastingSettings(holidays="DE"), (UNITY_DAY,))
    untold = foreseen(monday, ForecastingSettings(), (UNITY_DAY,))
    low = LEVELS.index(0.1)
    assert (forecasts.quantiles[0, :, low] >= untold.quantiles[0, :, low]).all()
    assert forecasts.level(0.5)[0] == pytest.approx(np.full(48, 300), abs=5)


def test_a_sale_scales_what_is_forecast_and_its_peak() -> None:
    sale = CalendarEvent("sale", "2025-10-01", factor=2.0)
    origin = UNITY_DAY - 2 * DAY
    usual, forecasts = foreseen(origin, ForecastingSettings()), foreseen(origin, ForecastingSettings(events=[sale]))
    np.testing.assert_allclose(forecasts.quantiles, 2 * usual.quantiles, rtol=1e-6)
    np.testing.assert_allclose(forecasts.peak, 2 * usual.peak, rtol=1e-6)


SALES: Final = ("2025-09-19", "2025-09-26", "2025-10-03")
"""Fridays: two before UNITY_DAY, and that day."""
NOON: Final = 43_200


def restless(end: int, days: float = 14) -> Usage[NodeRef]:
    """Four series with a daily wave from 50 to 150 and noise, in 5-minute values up to `end`."""
    grid = TimeGrid(end - round(days * DAY), 300, round(days * 288))
    wave = 100 - 50 * np.cos(2 * np.pi * grid.times() / DAY)
    values = wave + np.random.default_rng(0).normal(0, 2, (4, grid.size))
    refs = tuple(NodeRef(f"n{i}") for i in range(4))
    return Usage(refs, grid, values.astype(np.float32), Resource.CPU, Statistic.MEAN)


def doubled(usage: Usage[NodeRef], days: Sequence[str]) -> Usage[NodeRef]:
    """The same usage, twice as much on these UTC days."""
    on_sale = np.isin(
        usage.grid.times() // DAY, [datetime.fromisoformat(f"{day}T00:00Z").timestamp() // DAY for day in days]
    )
    return replace(usage, values=usage.values * np.where(on_sale, np.float32(2), np.float32(1)))


def sales(days: Sequence[str]) -> ForecastingSettings:
    return ForecastingSettings(events=[CalendarEvent("sale", day, factor=2.0) for day in days])


@pytest.mark.parametrize(
    ("end", "days", "ahead"),
    [
        (UNITY_DAY, SALES[:2], 1),
        (UNITY_DAY, SALES, 2),
        # From noon to noon no day of the history is all on sale, nor is the day ahead: its height is that of the sale.
        (UNITY_DAY - NOON, SALES[:2], 1),
        (UNITY_DAY - NOON, SALES, 2),
        (UNITY_DAY + NOON, SALES, 2),
    ],
)
def test_sales_count_once_in_the_peak_as_in_the_path(end: int, days: tuple[str, ...], ahead: int) -> None:
    usual = restless(end)
    forecasts = forecast(doubled(usual, days), NOBODY, sales(days))
    plain = forecast(usual, NOBODY, ForecastingSettings())
    assert set(forecasts.reason) == {Reason.OK}
    # On a sale there is twice as much to do: without it both histories are the same, and so is what is learned.
    np.testing.assert_array_equal(forecasts.peak, ahead * plain.peak)
    on_sale = (forecasts.grid.times() // DAY * DAY == UNITY_DAY) & (ahead == 2)
    np.testing.assert_array_equal(forecasts.quantiles, plain.quantiles * np.where(on_sale, 2, 1)[None, :, None])


@pytest.mark.parametrize(("ends", "ahead"), [("2025-10-02", 1), ("2025-10-03", 2)])
def test_the_maximum_of_a_portrait_from_a_sale_counts_once(ends: str, ahead: int) -> None:
    # Six hours are no day whose highest value is known, so that of the portrait stands in for it. Its quantiles are of
    # a sale too, and no sample of an ordinary day is above the highest.
    usual = restless(UNITY_DAY, days=0.25)
    sold, settings = doubled(usual, ["2025-10-02"]), PortraitSettings()
    event = CalendarEvent("sale", "2025-10-01", ends, factor=2.0)
    forecasts = forecast(
        sold, portrait.build(sold.refs, np.arange(4), sold, settings), ForecastingSettings(events=[event])
    )
    assert set(forecasts.reason) == {Reason.FROM_PORTRAIT}
    highest = ahead * usual.values.max(axis=1)
    assert forecasts.peak == pytest.approx(np.repeat(highest[:, None], len(LEVELS), axis=1))
    assert (forecasts.quantiles <= forecasts.peak[:, None]).all()


def test_a_past_holiday_is_no_ordinary_day_of_the_peak() -> None:
    usual = restless(UNITY_DAY + 2 * DAY)
    resting = replace(usual, values=np.where(usual.grid.times() // DAY * DAY == UNITY_DAY, 1, usual.values))
    all_forecasts = [forecast(usage, NOBODY, ForecastingSettings(holidays="DE")) for usage in (usual, resting)]
    np.testing.assert_array_equal(all_forecasts[0].peak, all_forecasts[1].peak)


def test_a_past_sale_is_brought_back_to_the_usual_level() -> None:
    calendar = Calendar.of(
        TimeGrid(UNITY_DAY, 1800, 96),
        48,
        ForecastingSettings(events=[CalendarEvent("sale", "2025-10-04", factor=4.0)]),
    )
    history = np.repeat([[100.0, 400.0]], 48, axis=1).astype(np.float32)
    assert calendar.ordinary(history)[0].tolist() == [100.0] * 96


@examples(max_examples=30, deadline=None)
@given(
    first=st.dates(datetime(2025, 9, 20).date(), datetime(2025, 10, 5).date()),
    length=st.integers(0, 5),
    factor=st.none() | st.floats(0.1, 20),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Auckland"]),
)
def test_whatever_the_calendar_a_forecast_stays_lawful(first: object, length: int, factor: float, zone: str) -> None:
    start = datetime.fromisoformat(f"{first}")
    last = datetime.fromtimestamp(start.replace(tzinfo=UTC).timestamp() + length * DAY, UTC).date()
    event = CalendarEvent("e", f"{first}", f"{last}", factor)
    grid = TimeGrid(UNITY_DAY - 14 * DAY, 1800, 14 * 48)
    calendar = Calendar.of(grid, 48, ForecastingSettings(events=[event], time_zone=zone))
    rng = np.random.default_rng(0)
    history = np.where(rng.random((3, grid.size)) < 0.2, np.nan, rng.random((3, grid.size)) * 100).astype(np.float32)
    path = np.sort(rng.random((3, 48, len(LEVELS))) * 100, axis=-1).astype(np.float32)
    values = calendar.special(path, history, WallClock.of(grid, 48, zone))
    assert np.isfinite(values).all() and (values >= 0).all() and (np.diff(values, axis=-1) >= 0).all()
    # Slots outside of the event are as they were.
    ahead = grid.start_seconds + 1800 * np.arange(grid.size, grid.size + 48)
    days = [datetime.fromtimestamp(int(t), ZoneInfo(zone)).date().isoformat() for t in ahead]
    outside = [i for i, day in enumerate(days) if not event.first_day <= day <= event.last_day]
    np.testing.assert_array_equal(values[:, outside], path[:, outside])


@pytest.mark.parametrize(
    ("fields", "phrase"),
    [
        ({"holidays": "Germany"}, "holidays"),
        ({"events": [{"name": "x", "first_day": "tomorrow"}]}, "isoformat"),
        ({"events": [{"name": "x", "first_day": "2026-02-02", "last_day": "2026-02-01"}]}, "before 2026-02-02"),
        ({"events": [{"name": "x", "first_day": "2026-02-02", "factor": 0}]}, "factor"),
    ],
)
def test_what_is_no_calendar_is_refused_by_name(fields: dict[str, object], phrase: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=phrase):
        msgspec.convert(fields, ForecastingSettings)


def test_a_country_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SettingsError, match="'XX' is not known"):
        foreseen(UNITY_DAY, ForecastingSettings(holidays="XX"))
    with pytest.raises(SettingsError, match="'DE-XX' is not known"):
        foreseen(UNITY_DAY, ForecastingSettings(holidays="DE-XX"))
