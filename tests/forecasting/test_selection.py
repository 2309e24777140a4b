"""Choice by back-test: who wins, how strongly others count, and that the shown error was measured forward."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from cotenant.model.forecast import MeasuredError
from cotenant.model.usage import TimeGrid
from cotenant.settings.forecasting import ForecastingSettings
from forecasting.members import MEMBERS
from forecasting.selection import BackTests, back_test, choose, combine, measure, rehearse

DEFAULTS = ForecastingSettings()
ALONE = msgspec.structs.replace(DEFAULTS, prior_days=0.0, average_within=0.0)
NAMES = [m.name for m in MEMBERS]


def grid_of(history: np.ndarray) -> TimeGrid:
    return TimeGrid(1_699_833_600, 1800, history.shape[1])


def daily(series: int, noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    height, slots = rng.uniform(100, 500, (series, 1)), np.arange(14 * 48)
    shape = height * (1.2 - np.cos(2 * np.pi * slots / 48))
    return np.maximum(shape + rng.normal(0, noise, shape.shape), 0).astype(np.float32)


def walk(series: int, seed: int = 0) -> np.ndarray:
    steps = np.random.default_rng(seed).normal(0, 0.1, (series, 14 * 48))
    return (100 * np.exp(steps.cumsum(axis=1))).astype(np.float32)


def measured(tests: BackTests) -> tuple[MeasuredError, ...]:
    return measure(tests, rehearse(tests, DEFAULTS))


def winners(history: np.ndarray) -> list[str]:
    weights = choose(back_test(MEMBERS, history, grid_of(history), ALONE).log_ratio, ALONE)
    return [NAMES[i] for i in weights.argmax(axis=0)]


def test_a_season_is_won_by_a_seasonal_member_and_a_random_walk_by_the_recent_level() -> None:
    assert all(name.startswith(("seasonal", "slots")) for name in winners(daily(20, noise=20)))
    recent = [name.startswith("recent") for name in winners(walk(40))]
    assert np.mean(recent) > 0.8


def test_origins_are_as_many_as_history_allows() -> None:
    # Three days: origins after day two and after day one.
    tests = back_test(MEMBERS, daily(2, 1)[:, : 3 * 48], grid_of(daily(2, 1)[:, : 3 * 48]), DEFAULTS)
    assert tests.actual.shape == (2, 2, 48)
    np.testing.assert_array_equal(tests.actual[0], daily(2, 1)[:, 2 * 48 : 3 * 48])


def test_a_day_without_values_is_not_judged() -> None:
    history = daily(2, 10)
    history[0, -48:] = np.nan
    log_ratio = back_test(MEMBERS, history, grid_of(history), DEFAULTS).log_ratio
    assert np.isnan(log_ratio[:, 0, 0]).all()
    assert not np.isnan(log_ratio[:, 0, 1]).any()


def test_scores_by_hand_with_decay_and_shrinkage() -> None:
    # Two members (the second is not the baseline), two origins, two series. Weights 1 and 0.8, prior 2 days.
    log_ratio = np.zeros((2, 2, 2))
    log_ratio[1] = [[-0.5, 0.3], [-0.5, 0.3]]
    # Own means -0.5 and 0.3, everyone's -0.1. Shrunk: (1.8 x 0.3 - 2 x 0.1) / 3.8 = +0.089: series 1 keeps the
    # baseline, series 0 at (-0.9 - 0.2) / 3.8 = -0.29 changes. log(1 + 0.1) = 0.095, so series 1 averages both.
    assert choose(log_ratio, DEFAULTS).tolist() == [[0.0, 0.5], [1.0, 0.5]]
    assert choose(log_ratio, msgspec.structs.replace(DEFAULTS, average_within=0.05)).tolist() == [[0, 1], [1, 0]]


def test_a_series_without_back_tests_follows_everyone() -> None:
    log_ratio = np.zeros((2, 1, 2))
    log_ratio[1, 0] = [-0.5, np.nan]
    log_ratio[0, 0, 1] = np.nan
    assert choose(log_ratio, DEFAULTS)[:, 1].tolist() == [0, 1]


def test_weights_sum_to_one_over_members() -> None:
    history = np.append(daily(10, 30), walk(10), axis=0)
    weights = choose(back_test(MEMBERS, history, grid_of(history), DEFAULTS).log_ratio, DEFAULTS)
    assert weights.sum(axis=0).tolist() == [1.0] * 20


def test_combining_is_the_average_of_quantiles() -> None:
    forecasts = np.stack([np.full((1, 2, 11), 10.0), np.full((1, 2, 11), 30.0)]).astype(np.float32)
    assert (combine(forecasts, np.array([[0.5], [0.5]])) == 20).all()


def test_the_measured_error_of_an_easy_season_beats_the_baseline() -> None:
    history = daily(30, noise=40)
    errors = measured(back_test(MEMBERS, history, grid_of(history), DEFAULTS))
    # The mean of n days errs by sqrt(1 + 1/n) of the noise, yesterday alone by sqrt(2): between 0.71 and 0.79 for the
    # members that look at 4 or more days, times what their smoothing over neighbours costs.
    assert np.mean([e.relative_wql for e in errors]) == pytest.approx(0.75, abs=0.08)
    assert np.mean([e.coverage_95 for e in errors]) == pytest.approx(0.95, abs=0.05)
    assert {e.origins for e in errors} == {4}


def test_the_newest_day_does_not_choose_for_itself() -> None:
    history = daily(5, noise=20)
    tests = back_test(MEMBERS, history, grid_of(history), DEFAULTS)
    swapped = tests.log_ratio.copy()
    swapped[:, 0] = swapped[::-1, 0]
    assert measured(replace(tests, log_ratio=swapped)) == measured(tests)


def test_two_back_tests_are_needed_for_a_measured_error() -> None:
    history = daily(2, 10)[:, : 2 * 48]
    (error, _) = measured(back_test(MEMBERS, history, grid_of(history), DEFAULTS))
    assert error.origins == 0
    assert np.isnan(error.relative_wql)
