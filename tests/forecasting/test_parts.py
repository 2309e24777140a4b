"""A history taken apart: the parts add up, and each holds what it is named after."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.weeks.decomposition import DAY, SHORTEST, bridge_gaps, decompose_hourly_series, parts
from cotenant.forecasting.weeks.stl import mstl, stl

GRID_START = 1_767_571_200


def grid(hours: int) -> TimeGrid:
    return TimeGrid(GRID_START, 3600, hours)


def wave(hours: int) -> np.ndarray:
    return 100 + 30 * np.sin(2 * np.pi * np.arange(hours) / DAY)


def test_a_daily_wave_is_habit_of_the_day() -> None:
    decomposition = decompose_hourly_series(wave(14 * DAY), grid(14 * DAY))
    assert decomposition.daily_strength > 0.99
    assert np.ptp(decomposition.daily) > 55
    assert not decomposition.weekly.any()


def test_quiet_weekends_are_habit_of_the_week_once_more_than_two_are_known() -> None:
    hours = np.arange(22 * DAY)
    series = wave(len(hours)) - 40 * (hours // DAY % 7 >= 5)
    decomposition = decompose_hourly_series(series, grid(len(series)))
    assert decomposition.weekly_strength > 0.7
    middle = decomposition.weekly[7 * DAY : 14 * DAY].reshape(7, DAY).mean(axis=1)
    assert middle[5:].max() < middle[:5].min()


@tries(max_examples=25)
@given(st.integers(SHORTEST, 20 * DAY), st.integers(0, 2**32 - 1))
def test_parts_add_up_to_what_was_observed(hours: int, seed: int) -> None:
    series = np.random.default_rng(seed).gamma(2.0, 50.0, hours)
    decomposition = decompose_hourly_series(series, grid(hours))
    together = decomposition.trend + decomposition.daily + decomposition.weekly + decomposition.rest
    assert np.allclose(together, series)
    assert 0 <= decomposition.daily_strength <= 1
    assert 0 <= decomposition.weekly_strength <= 1


@tries(max_examples=10)
@given(st.integers(SHORTEST, 30 * DAY), st.integers(0, 2**32 - 1))
def test_parts_are_those_of_statsmodels(hours: int, seed: int) -> None:
    from statsmodels.tsa.seasonal import MSTL, STL  # half a second of every collection

    series = np.random.default_rng(seed).gamma(2.0, 50.0, hours)
    single, ours = STL(series, period=DAY).fit(), stl(series, DAY)
    assert np.allclose(ours.trend, single.trend)
    assert np.allclose(ours.seasonal[0], single.seasonal)
    if hours > 14 * DAY:
        several, ours = MSTL(series, periods=(DAY, 7 * DAY), iterate=1).fit(), mstl(series, (DAY, 7 * DAY))
        assert np.allclose(ours.trend, several.trend)
        assert np.allclose(ours.seasonal.T, several.seasonal)


def test_a_constant_has_no_habits() -> None:
    decomposition = decompose_hourly_series(np.full(100, 7.0), grid(100))
    assert (decomposition.daily_strength, decomposition.weekly_strength) == (0.0, 0.0)
    assert decomposition.trend.tolist() == [7.0] * 100


def test_gaps_are_bridged_and_thin_or_young_series_left_out() -> None:
    values = np.repeat(wave(10 * DAY)[None], 4, axis=0).astype(np.float32)
    values[1, 50:60] = np.nan
    values[2, np.arange(10 * DAY) % 3 != 0] = np.nan
    values[3, : 8 * DAY] = np.nan
    names = tuple(NodeRef(name) for name in ("whole", "gap", "thin", "young"))
    decompositions = parts(Usage(names, grid(10 * DAY), values, Resource.CPU, Statistic.MEAN))
    assert [ref.name for ref in decompositions] == ["whole", "gap"]


def test_nothing_known_is_nothing() -> None:
    assert bridge_gaps(np.full(50, np.nan), grid(50))[0].size == 0
