"""When the peak will be: from past days' highest runs, not from the smoothed path."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.peak_time import busiest, likeliest, peak_timing, start_chances

START = 1_699_833_600


def grid_of(history: np.ndarray) -> TimeGrid:
    return TimeGrid(START, 1800, history.shape[1])


def best_run(curve: np.ndarray) -> int:
    """First of the four slots with the highest mean."""
    return int(np.convolve(curve, np.ones(4), mode="valid").argmax())


def test_the_run_that_was_highest_on_most_days_wins_over_a_broad_hill() -> None:
    # A broad hill of 60 at 12..27 every day, and a job of two hours at 100 at slot 40 on ten of fourteen days.
    history = np.full((1, 14, 48), 10.0)
    history[:, :, 12:28] = 60.0
    history[:, :10, 40:44] = 100.0
    flat = history.reshape(1, -1).astype(np.float32)
    assert best_run(peak_timing(flat, grid_of(flat), np.full((1, 48), 30.0, np.float32))[0]) == 40


def test_a_peak_that_wanders_is_expected_in_its_middle() -> None:
    rng = np.random.default_rng(0)
    history = np.full((1, 14, 48), 10.0)
    for day, start in enumerate(20 + rng.integers(-2, 3, 14)):
        history[0, day, start : start + 4] = 100.0
    flat = history.reshape(1, -1).astype(np.float32)
    assert abs(best_run(peak_timing(flat, grid_of(flat), np.zeros((1, 48), np.float32))[0]) - 20) <= 1


def test_a_day_with_a_hole_does_not_vote() -> None:
    history = np.full((1, 3, 48), 10.0)
    history[:, :2, 20:24] = 100.0
    history[:, 2, :24] = np.nan
    history[:, 2, 44:48] = 500.0
    flat = history.reshape(1, -1).astype(np.float32)
    assert best_run(peak_timing(flat, grid_of(flat), np.zeros((1, 48), np.float32))[0]) == 20


def test_without_a_whole_day_the_path_decides() -> None:
    history = np.full((1, 30), 5.0, np.float32)
    median = np.full((1, 48), 1.0, np.float32)
    median[0, 30:34] = 9.0
    assert best_run(peak_timing(history, grid_of(history), median)[0]) == 30


def test_the_path_tips_the_scale_between_hours_that_were_highest_equally_often() -> None:
    # Fourteen days, every other one at slot 8 and at slot 36; models have seen what the days followed, and say 36.
    history = np.full((1, 14, 48), 10.0)
    history[:, ::2, 8:12] = history[:, 1::2, 36:40] = 100.0
    flat = history.reshape(1, -1).astype(np.float32)
    for start in (8, 36):
        median = np.full((1, 48), 10.0, np.float32)
        median[0, start : start + 4] = 60.0
        assert best_run(peak_timing(flat, grid_of(flat), median)[0]) == start


def test_a_level_that_is_high_now_brings_the_peak_near_and_a_low_one_puts_it_off() -> None:
    # Every other day at slot 1 and at slot 40, and the last two hours low or high.
    history = np.full((1, 14, 48), 10.0)
    history[:, ::2, 1:5] = history[:, 1::2, 40:44] = 100.0
    for now, start in ((10.0, 40), (95.0, 1)):
        history[0, -1, 44:] = now
        flat = history.reshape(1, -1).astype(np.float32)
        assert best_run(peak_timing(flat, grid_of(flat), np.full((1, 48), 30.0, np.float32))[0]) == start


def test_votes_are_sharp_on_a_total_that_moves_little() -> None:
    # 1,000 cores, 40 more for half of the day, and 10 on top of that from slot 30 on: 1 % of the highest run.
    history = np.full((1, 14, 48), 1000.0)
    history[:, :, 16:40] = 1040.0
    history[:, :, 30:34] = 1050.0
    flat = history.reshape(1, -1).astype(np.float32)
    assert best_run(peak_timing(flat, grid_of(flat), np.full((1, 48), 1020.0, np.float32))[0]) == 30


def test_the_start_with_most_chance_within_an_hour_is_taken() -> None:
    chance = np.zeros((2, 45))
    # 0.3 alone at slot 5; 0.2, 0.3, 0.2 at 20, 21 and 22: 0.95 x 0.2 + 0.3 + 0.95 x 0.2 = 0.68.
    chance[0, 5], chance[0, 20:23] = 0.3, (0.2, 0.3, 0.2)
    # All of it at the first slot: no later start is taken for the sake of what it has on both sides.
    chance[1, 0] = 1.0
    np.testing.assert_array_equal(likeliest(chance, 1800), [21, 0])


def test_scale_does_not_matter() -> None:
    history = np.random.default_rng(1).gamma(2, 50, (3, 480)).astype(np.float32)
    median = history[:, -48:]
    np.testing.assert_array_equal(
        peak_timing(history, grid_of(history), median), peak_timing(history * 1024, grid_of(history), median * 1024)
    )


@settings(deadline=None, max_examples=30)
@given(
    history=hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 3), st.sampled_from([0, 10, 48, 100, 700])),
        elements=st.one_of(st.just(float("nan")), st.just(0.0), st.floats(0, 2.0**43, width=32)),
    )
)
def test_any_history_gives_a_finite_curve(history: np.ndarray) -> None:
    median = np.ones((len(history), 48), np.float32)
    curve, chance = peak_timing(history, grid_of(history), median), start_chances(history, grid_of(history), median)
    assert curve.shape == (len(history), 48) and chance.shape == (len(history), 45)
    assert np.isfinite(curve).all() and (curve >= 0).all() and (chance >= 0).all()
    np.testing.assert_allclose(chance.sum(axis=1), 1)


@settings(deadline=None, max_examples=60)
@given(
    shares=hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.just(45)), elements=st.floats(0, 1)),
    peak=st.integers(0, 44),
)
def test_no_start_has_a_ninth_more_chance_around_it_than_the_one_that_is_taken(shares: np.ndarray, peak: int) -> None:
    shares[:, peak] += 0.01
    chance = shares / shares.sum(axis=1, keepdims=True)
    around = np.array([chance[:, max(0, s - 2) : s + 3].sum(axis=1) for s in range(45)]).T
    taken = around[np.arange(len(chance)), likeliest(chance, 1800)]
    # A start counts its neighbours an hour away at 0.9, so what is taken has at least 0.9 of the most.
    assert (taken >= 0.9 * around.max(axis=1) - 1e-12).all()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), days=st.integers(0, 14), shape=st.floats(0.01, 20))
def test_the_highest_run_of_the_curve_is_where_the_peak_is_announced(seed: int, days: int, shape: float) -> None:
    rng = np.random.default_rng(seed)
    history = rng.gamma(shape, 1.0, (3, days * 48)).astype(np.float32)
    median = rng.gamma(shape, 1.0, (3, 48)).astype(np.float32)
    chance = start_chances(history, grid_of(history), median)
    np.testing.assert_array_equal(
        busiest(peak_timing(history, grid_of(history), median), 1800), likeliest(chance, 1800)
    )
