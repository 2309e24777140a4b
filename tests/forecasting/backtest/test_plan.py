"""Rolling origins: where they lie, what a contender sees, and that nothing after the origin reaches it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.forecasting.backtest.baselines import DEFAULT, SLOW, by_name
from cotenant.forecasting.backtest.contenders import Contender, PathContender
from cotenant.forecasting.backtest.engine import EngineContender
from cotenant.forecasting.backtest.plan import (
    FIVE_MINUTES,
    HALF_HOURS,
    HOURLY_WEEK,
    BacktestPlan,
    join_slots,
    origins,
    trial,
)
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.profiler.portrait import build
from cotenant.profiler.settings import PortraitSettings

MONDAY = 1_700_438_400
GRID = TimeGrid(MONDAY, 300, 18 * 288)


def history(size: int = 6, days: int = 18, seed: int = 3) -> np.ndarray:
    """A daily wave with noise, gaps and a series that dies."""
    rng = np.random.default_rng(seed)
    slots = np.arange(days * 288)
    values = 100 + 60 * np.sin(2 * np.pi * slots / 288) + rng.gamma(2, 10, (size, len(slots)))
    values[rng.random(values.shape) < 0.03] = np.nan
    values[-1, 15 * 288 :] = np.nan
    return values.astype(np.float32)


def test_origins_start_after_the_history_and_end_before_the_last_horizon() -> None:
    numbers = origins(GRID, HALF_HOURS)
    # 18 days: the first after 14 days, the last at day 17 (24 h before the end), every 6 h: 3 days x 4 + 1.
    assert len(numbers) == 13
    assert numbers[0] == MONDAY + 14 * DAY_SECONDS
    assert numbers[-1] == MONDAY + 17 * DAY_SECONDS
    assert {b - a for a, b in pairwise(numbers)} == {6 * 3600}


def test_sampled_origins_are_spread_and_visit_several_times_of_day() -> None:
    numbers = origins(TimeGrid(MONDAY, 300, 60 * 288), HALF_HOURS, 12)
    assert len(numbers) == 12
    assert len({moment % DAY_SECONDS for moment in numbers}) > 2
    # 46 days of origins: the first in the first twelfth, the last in the last.
    assert numbers[0] < MONDAY + 18 * DAY_SECONDS
    assert numbers[-1] > MONDAY + 55 * DAY_SECONDS


def test_a_history_that_is_too_short_has_no_origin() -> None:
    assert origins(TimeGrid(MONDAY, 300, 14 * 288), HALF_HOURS) == ()


@given(st.integers(0, 40), st.sampled_from([300, 900, 1800]), st.integers(1, 9))
@settings(max_examples=40)
def test_origins_lie_on_the_plans_slots_with_room_on_both_sides(offset: int, step: int, every: int) -> None:
    grid = TimeGrid(MONDAY + offset * step, step, 20 * DAY_SECONDS // step)
    plan = BacktestPlan(every_hours=every)
    numbers = origins(grid, plan)
    assert numbers
    assert all(moment % plan.step_seconds == 0 for moment in numbers)
    assert all(grid.start_seconds + 14 * DAY_SECONDS <= m <= grid.end_seconds - DAY_SECONDS for m in numbers)


def test_a_trial_cuts_history_and_horizon_at_the_origin() -> None:
    values = np.tile(np.arange(GRID.size, dtype=np.float32), (2, 1))
    backtest_trial = trial(values, GRID, MONDAY + 15 * DAY_SECONDS, HALF_HOURS)
    # Day 1 (slot 288) to day 15 (slot 4320, excluded) is seen; the half hour's mean of 4320..4325 comes first.
    assert backtest_trial.past.fine[0, [0, -1]].tolist() == [288, 4319]
    assert (
        backtest_trial.past.fine_grid.end_seconds
        == backtest_trial.past.coarse_grid.end_seconds
        == backtest_trial.origin_seconds
    )
    assert backtest_trial.past.coarse.shape == (2, 14 * 48)
    assert backtest_trial.actual[0, 0] == 4322.5
    assert backtest_trial.actual.shape == (2, 48)
    assert backtest_trial.highest.tolist() == [4320 + 287] * 2


def test_series_with_too_little_history_are_not_forecast_and_without_a_horizon_not_judged() -> None:
    values = history()
    values[0, : 9 * 288] = np.nan  # 5 of 14 days known before day 14: under half
    backtest_trial = trial(values, GRID, MONDAY + 16 * DAY_SECONDS, HALF_HOURS)
    # Row 0: days 9-16 of 2-16 known, exactly half; with its 3 % further gaps less. Row 5 died on day 15.
    assert backtest_trial.rows.tolist() == [1, 2, 3, 4]
    # Row 5 has a history and is forecast; nothing came to judge it by.
    assert len(backtest_trial.past.fine) == 5
    assert backtest_trial.scored.tolist() == [True] * 4 + [False]
    young = trial(values, GRID, MONDAY + 16 * DAY_SECONDS, BacktestPlan(known_share=0.1))
    assert young.rows.tolist() == [0, 1, 2, 3, 4]


def test_a_mean_over_slots_ignores_gaps() -> None:
    # (1 + 3) / 2; 5 alone; nothing.
    values = join_slots(np.array([[1, 3, 5, np.nan, np.nan, np.nan]], dtype=np.float32), 2)
    assert values[0] == pytest.approx([2, 5, np.nan], nan_ok=True)


def test_a_step_that_does_not_divide_the_plans_is_refused() -> None:
    grid = TimeGrid(MONDAY - MONDAY % 420, 420, 5000)
    with pytest.raises(ValueError, match="does not divide"):
        trial(np.zeros((1, 5000), dtype=np.float32), grid, grid.start_seconds + 420 * 4000, HALF_HOURS)


CONTENDERS: list[Contender] = [*(PathContender(by_name(name)) for name in (*DEFAULT, *SLOW)), EngineContender()]


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda c: c.name)
@pytest.mark.parametrize("poison", [np.nan, 1e9])
def test_no_contender_knows_what_comes_after_the_origin(contender: Contender, poison: float) -> None:
    values = history()
    moment = MONDAY + 15 * DAY_SECONDS
    poisoned = values.copy()
    poisoned[:, 15 * 288 :] = poison
    clean, blind = (contender.answer(trial(v, GRID, moment, HALF_HOURS).past, 48) for v in (values, poisoned))
    for name in ("quantiles", "shape", "claims", "peak"):
        assert np.array_equal(getattr(clean, name), getattr(blind, name), equal_nan=True), name


@pytest.mark.parametrize("signal", [Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX], ids=lambda s: s.value)
def test_what_is_scored_is_what_the_product_serves(signal: Signal) -> None:
    spec, cut = signal.spec, 15 * 288
    resource = spec.resource
    assert isinstance(resource, Resource)
    backtest_trial = trial(history()[:5], GRID, MONDAY + 15 * DAY_SECONDS, BacktestPlan(statistic=spec.statistic))
    refs = tuple(NodeRef(str(row)) for row in range(5))
    usage = Usage(refs, TimeGrid(MONDAY, 300, cut), history()[:5, :cut], resource, spec.statistic)
    served = forecast(usage, build(refs, np.arange(5), usage, PortraitSettings()), ForecastingSettings())
    prediction = EngineContender(resource).answer(backtest_trial.past, 48)
    np.testing.assert_array_equal(prediction.quantiles, served.quantiles)
    first = history()[:5, cut : cut + 6]
    actual = np.nanmax(first, axis=1) if spec.statistic.value == "max" else np.nanmean(first, axis=1)
    assert backtest_trial.actual[:, 0] == pytest.approx(actual, rel=1e-6)


def test_what_is_scored_at_5_minutes_is_what_the_product_serves_there() -> None:
    past = trial(history()[:2], GRID, MONDAY + 15 * DAY_SECONDS, FIVE_MINUTES).past
    refs = (NodeRef("0"), NodeRef("1"))
    usage = Usage(refs, past.fine_grid, past.fine, Resource.CPU, past.statistic)
    fine = forecast(usage, build(refs, np.arange(2), usage, PortraitSettings()), ForecastingSettings()).fine
    assert fine is not None
    prediction = EngineContender().answer(past, FIVE_MINUTES.horizon)
    np.testing.assert_array_equal(prediction.quantiles, fine.paths())
    assert prediction.shape.shape == (2, FIVE_MINUTES.horizon)
    with pytest.raises(ValueError, match="from a whole half hour on"):
        odd = trial(history()[:2], GRID, MONDAY + 15 * DAY_SECONDS + 300, FIVE_MINUTES)
        EngineContender().answer(odd.past, FIVE_MINUTES.horizon)


def test_a_baseline_may_be_made_on_half_hours_and_scored_on_their_values() -> None:
    moment, baseline = MONDAY + 15 * DAY_SECONDS, by_name("B1")
    half_hours, values = (trial(history()[:2], GRID, moment, plan).past for plan in (HALF_HOURS, FIVE_MINUTES))
    coarse = PathContender(baseline).answer(half_hours, HALF_HOURS.horizon)
    joint = PathContender(baseline, joined_slots=6)
    repeated = joint.answer(values, FIVE_MINUTES.horizon)
    np.testing.assert_array_equal(repeated.quantiles, np.repeat(coarse.quantiles, 6, axis=1))
    assert joint.name == f"{baseline.name}, 6 slots as one"


def test_a_week_ahead_on_whole_hours() -> None:
    values = history(days=22)
    grid = TimeGrid(MONDAY, 300, 22 * 288)
    backtest_trial = trial(values[:5], grid, MONDAY + 14 * DAY_SECONDS, HOURLY_WEEK)
    assert backtest_trial.actual.shape == (5, 168)
    for name in DEFAULT:
        prediction = PathContender(by_name(name)).answer(backtest_trial.past, HOURLY_WEEK.horizon)
        assert prediction.quantiles.shape == (5, 168, 11)
        assert np.isfinite(prediction.quantiles).all()
