"""Weights by back-test: who wins, how strongly others count, what the last two hours say, and the error shown."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from cotenant.base.usage.forecast import MeasuredError
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.members import MEMBERS
from cotenant.forecasting.selection import (
    REHEARSALS,
    BackTests,
    back_test,
    blend,
    combine,
    current_scores,
    daily_scores,
    damp_log_ratio,
    forecast_ahead,
    scores,
)
from cotenant.forecasting.served_mixture import booster_share, measure, rehearse
from cotenant.forecasting.settings import ForecastingSettings

DEFAULTS = ForecastingSettings()
ALONE = msgspec.structs.replace(DEFAULTS, prior_days=0.0)
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


def standing_now(history: np.ndarray, settings: ForecastingSettings) -> np.ndarray:
    tests = back_test(MEMBERS, history, grid_of(history), settings)
    return current_scores(daily_scores(tests, 0, settings), tests.near)


def winners(history: np.ndarray) -> list[str]:
    score = standing_now(history, ALONE)
    return [NAMES[i] for i in score.argmin(axis=0)]


def test_a_season_is_won_by_a_seasonal_member_and_a_random_walk_by_one_that_follows_the_level() -> None:
    assert all(name.startswith(("seasonal", "slots", "shift", "scale")) for name in winners(daily(20, noise=20)))
    # A profile that is moved by the level of now follows a walk as well.
    following = [name.startswith(("recent", "shift", "scale")) for name in winners(walk(40))]
    assert np.mean(following) > 0.9


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
    # Own means -0.5 and 0.3, everyone's -0.1. Shrunk: (-0.9 - 0.2) / 3.8 and (1.8 x 0.3 - 2 x 0.1) / 3.8.
    score = scores(log_ratio, DEFAULTS)
    np.testing.assert_allclose(score[1], [-1.1 / 3.8, 0.34 / 3.8])


def test_a_series_without_back_tests_follows_everyone() -> None:
    log_ratio = np.zeros((2, 1, 2))
    log_ratio[1, 0] = [-0.5, np.nan]
    log_ratio[0, 0, 1] = np.nan
    # Series 0 alone is everyone: -0.5 is what series 1 is taken for.
    assert scores(log_ratio, DEFAULTS)[1, 1] == pytest.approx(-0.5)


def test_weights_sum_to_one_over_members() -> None:
    history = np.append(daily(10, 30), walk(10), axis=0)
    score = standing_now(history, DEFAULTS)
    np.testing.assert_allclose(blend(score, 4.0).sum(axis=0), 1.0)


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
    assert {e.origins for e in errors} == {5}


def test_the_newest_day_does_not_choose_for_itself() -> None:
    history = daily(5, noise=20)
    tests = back_test(MEMBERS, history, grid_of(history), DEFAULTS)
    swapped = tests.log_ratio.copy()
    swapped[:, 0] = swapped[::-1, 0]
    assert measured(replace(tests, log_ratio=swapped)) == measured(tests)


def test_a_level_that_changed_an_hour_ago_is_followed_at_once() -> None:
    # A random week, parked at 5 for the last three hours: only the near test can know it.
    history = np.append(walk(30), walk(1, seed=9), axis=0)
    history[-1, -6:] = 5.0
    score = standing_now(history, DEFAULTS)
    assert NAMES[score[:, -1].argmin()] in {"recent-1h", "recent-3h"}


def test_small_near_differences_are_noise_and_large_ones_count() -> None:
    # r^3 / (r^2 + 1): 0.2 -> 0.0077, 1 -> 0.5, -4 -> -64/17.
    np.testing.assert_allclose(damp_log_ratio(np.array([0.2, 1.0, -4.0])), [0.008 / 1.04, 0.5, -64 / 17])


def test_the_blend_weighs_by_the_exponential_of_the_score() -> None:
    weights = blend(np.array([[0.0], [0.25]]), 4.0)
    # exp(0) : exp(-1) = 0.731 : 0.269.
    np.testing.assert_allclose(weights[:, 0], [0.7311, 0.2689], atol=1e-4)


def test_a_booster_that_was_better_on_the_day_held_out_gets_the_weight() -> None:
    share = booster_share(np.array([-0.3, 0.3]), np.zeros(2))
    # exp(10 x 0.3) : 1 = 20.1 : 1, and the reverse.
    np.testing.assert_allclose(share, [20.09 / 21.09, 1 / 21.09], atol=1e-3)


def test_a_booster_that_fails_in_the_last_hours_loses_weight() -> None:
    share = booster_share(np.zeros(2), np.array([0.0, 1.0]))
    # Damped 1 is 0.5, half of it counts: 1 : exp(10 x 0.25) = 0.076.
    np.testing.assert_allclose(share, [0.5, 1 / (1 + np.exp(2.5))])


def test_two_back_tests_are_needed_for_a_measured_error() -> None:
    history = daily(2, 10)[:, : 2 * 48]
    (error, _) = measured(back_test(MEMBERS, history, grid_of(history), DEFAULTS))
    assert error.origins == 0
    assert np.isnan(error.relative_wql)


def test_series_forecast_some_at_a_time_get_the_same_answers_as_all_at_once() -> None:
    history = np.concatenate([daily(4, noise=30), walk(3)])
    history[2, 100:180] = np.nan
    history[5] = np.nan
    together = forecast_ahead(MEMBERS, history, grid_of(history), 48, series_at_once=100)
    assert together.shape == (len(MEMBERS), 7, 48, 11)
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(forecast_ahead(MEMBERS, history, grid_of(history), 48, series_at_once=3), together)


def test_forecasts_are_kept_of_the_days_that_are_rehearsed_and_losses_of_all() -> None:
    history = daily(2, 1)
    tests = back_test(MEMBERS, history, grid_of(history), DEFAULTS)
    assert tests.log_ratio.shape[1] == len(tests.actual) == DEFAULTS.origins
    assert tests.forecasts.shape[1] == tests.rehearsals == REHEARSALS < DEFAULTS.origins
