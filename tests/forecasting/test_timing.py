"""When the peak will be: from past days' highest runs, not from the smoothed path."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.core.model.usage.usage import TimeGrid
from forecasting.peak_time import peak_timing

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
    curve = peak_timing(history, grid_of(history), np.ones((len(history), 48), np.float32))
    assert curve.shape == (len(history), 48)
    assert np.isfinite(curve).all()
    assert (curve >= 0).all()
