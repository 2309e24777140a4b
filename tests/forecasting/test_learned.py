"""What back-tests taught serves later moments: the same forecast at once, nearly the same a day later, then anew."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.backtest.engine import no_portraits
from cotenant.forecasting.engine import forecast, forecast_and_learn
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.settings import ForecastingSettings

START, DAY = 1_699_833_600, 48
SERIES, DAYS = 60, 14
CHEAP, BOOSTED = (
    msgspec.structs.replace(ForecastingSettings(), booster_rows=rows, relearn_hours=24.0) for rows in (0, 4000)
)


@cache
def daily(series: int = SERIES, seed: int = 0) -> np.ndarray:
    """Half hours of 16 days: a wave of the day and lognormal noise of 20 %."""
    rng = np.random.default_rng(seed)
    slots = np.arange(DAY * 16)
    height, phase = rng.uniform(100, 1000, (series, 1)), rng.uniform(0, DAY, (series, 1))
    shape = 1.5 + np.sin(2 * np.pi * (slots - phase) / DAY)
    return (height * shape * np.exp(0.2 * rng.normal(0, 1, (series, len(slots))))).astype(np.float32)


def usage(hours: float = 0, values: np.ndarray | None = None) -> Usage[NodeRef]:
    """The first 14 days and some hours of it."""
    values = daily() if values is None else values
    slots = DAYS * DAY + round(2 * hours)
    refs = tuple(NodeRef(f"n{row}") for row in range(len(values)))
    return Usage(refs, TimeGrid(START, 1800, slots), values[:, :slots], Resource.CPU, Statistic.MEAN)


def at(
    hours: float, learned: Learned | None, settings: ForecastingSettings = CHEAP, values: np.ndarray | None = None
) -> tuple[Forecasts[NodeRef], Learned]:
    return forecast_and_learn(usage(hours, values), no_portraits(Resource.CPU), settings, learned)


@cache
def first(booster_rows: int = 0) -> tuple[Forecasts[NodeRef], Learned]:
    return at(0, None, BOOSTED if booster_rows else CHEAP)


@pytest.mark.parametrize("settings", [CHEAP, BOOSTED], ids=["members", "with a booster"])
def test_at_the_moment_of_learning_what_was_learned_gives_the_same_forecast(settings: ForecastingSettings) -> None:
    anew, learned = first(settings.booster_rows)
    again, same = at(0, learned, settings)
    assert same is learned
    assert (again.model, again.error, again.cards) == (anew.model, anew.error, anew.cards)
    np.testing.assert_array_equal(again.quantiles, anew.quantiles)
    np.testing.assert_array_equal(again.losses, anew.losses)


@pytest.mark.parametrize("settings", [CHEAP, BOOSTED], ids=["members", "with a booster"])
def test_a_day_later_it_costs_little_accuracy(settings: ForecastingSettings) -> None:
    later, learned = at(23.5, first(settings.booster_rows)[1], settings)
    assert learned is first(settings.booster_rows)[1]
    anew = forecast(usage(23.5), no_portraits(Resource.CPU), settings)
    begin = DAYS * DAY + 47
    came = daily()[:, begin : begin + DAY]
    # Nothing changes in these series, so that both learned the same things from other noise: 60 x 48 values.
    assert pinball(came, later.quantiles).mean() < 1.02 * pinball(came, anew.quantiles).mean()
    assert abs((came <= later.level(0.95)).mean() - (came <= anew.level(0.95)).mean()) < 0.01


def test_a_level_that_changed_after_learning_is_followed() -> None:
    moved = daily().copy()
    moved[:, DAYS * DAY + 4 :] *= 3
    later, _ = at(8, first()[1], values=moved)
    begin = DAYS * DAY + 16
    came = moved[:, begin : begin + DAY]
    anew = forecast(usage(8, moved), no_portraits(Resource.CPU), CHEAP)
    assert pinball(came, later.quantiles).mean() < 1.1 * pinball(came, anew.quantiles).mean()


@pytest.mark.parametrize(("hours", "most"), [(24, 24), (0, 0), (6, 6)])
def test_after_the_hours_of_the_settings_forecasts_learn_anew(hours: float, most: float) -> None:
    settings = msgspec.structs.replace(CHEAP, relearn_hours=most)
    _, learned = at(hours, first()[1], settings)
    assert learned.end_seconds == usage(hours).grid.end_seconds


def test_a_moment_before_that_of_learning_learns_for_itself() -> None:
    learned = at(1, None)[1]
    assert at(0, learned)[1] is not learned


def test_series_that_are_new_are_forecast_by_what_held_for_the_others() -> None:
    learned = first()[1]
    more = np.concatenate([daily(), daily(6, seed=1)])
    forecasts, same = at(1, learned, values=more)
    assert same is learned
    # 6 of 66 are new, less than a tenth; nobody measured how forecasts did on them.
    assert [error.origins for error in forecasts.error[SERIES:]] == [0] * 6
    assert np.isfinite(forecasts.quantiles).all()


def test_where_many_series_are_new_all_learn_anew() -> None:
    # 7 of 67 are more than a tenth.
    more = np.concatenate([daily(), daily(7, seed=1)])
    assert len(at(1, first()[1], values=more)[1].names) == 67


def test_series_may_go_and_come_in_another_order() -> None:
    learned = first()[1]
    ordered = usage(1)
    some = [*range(40, 10, -1)]
    turned = Usage(
        tuple(ordered.refs[row] for row in some), ordered.grid, ordered.values[some], Resource.CPU, Statistic.MEAN
    )
    all_forecasts = forecast_and_learn(ordered, no_portraits(Resource.CPU), CHEAP, learned)[0]
    part = forecast_and_learn(turned, no_portraits(Resource.CPU), CHEAP, learned)[0]
    # A path is no higher than its peak, and spreads of peaks are shared by all series that are there.
    lower = np.minimum(part.peak, all_forecasts.peak[some])[:, None, :]
    np.testing.assert_array_equal(np.minimum(part.quantiles, lower), np.minimum(all_forecasts.quantiles[some], lower))
