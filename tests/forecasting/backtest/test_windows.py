"""Peak windows of a day: hit, overlap, capture, timing and abstention on days worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.forecasting.backtest.windows import (
    amplitude,
    best_start,
    compare,
    count_matched_windows,
    equal_peaks,
    run_means,
    window_starts,
)

HALF_HOUR = 1800


def day(**at: float) -> np.ndarray:
    """A day of 1s on half hours; `h9=5` sets 09:00-10:00 to 5."""
    path = np.ones(48)
    for name, value in at.items():
        hour = float(name[1:].replace("_", "."))
        path[int(2 * hour) : int(2 * hour) + 2] = value
    return path


def test_the_window_is_the_two_hours_with_the_highest_mean() -> None:
    # 9-11 h: mean 5; slot 18. A later hour of 8 alone reaches (8 + 1) / 2 = 4.5.
    assert best_start(day(h9=5, h10=5, h20=8)[None], 4).tolist() == [18]


def test_scores_of_a_forecast_that_is_an_hour_late() -> None:
    actual, values = day(h9=5, h10=5)[None], day(h10=2, h11=2)[None]
    scores = compare(actual, values, HALF_HOUR)
    # Start 10:00 against 09:00: within an hour; overlap 10-11 of 9-12: 1/3; mean 3 (5 and 1) over 5.
    assert scores.hit.tolist() == [1]
    assert scores.iou == pytest.approx([1 / 3])
    assert scores.capture == pytest.approx([0.6])
    assert scores.late_minutes.tolist() == [60]


def test_timing_runs_round_the_clock() -> None:
    actual, values = day(h0=5, h1=5)[None], day(h22=5, h23=5)[None]
    scores = compare(actual, values, HALF_HOUR)
    # 22:00 is two hours before 00:00 on the circle, and no hit.
    assert scores.late_minutes.tolist() == [-120]
    assert scores.hit.tolist() == [0]
    assert scores.iou.tolist() == [0]


def test_a_day_without_a_whole_window_is_not_judged() -> None:
    actual = np.full((1, 48), np.nan)
    actual[0, ::3] = 1.0
    scores = compare(actual, day(h9=5)[None], HALF_HOUR)
    assert np.isnan(scores.hit[0])
    assert np.isnan(scores.capture[0])


def test_only_days_that_move_have_a_peak() -> None:
    flat, moving = np.full(48, 10.0), np.full(48, 10.0)
    flat[10:20] = 12.9  # (12.9 - 10) / 10.6 = 0.27
    moving[10:20] = 14.0  # 4 / 10.8 = 0.37
    assert amplitude(np.stack([flat, moving])).tolist() == [False, True]
    assert amplitude(np.zeros((1, 48))).tolist() == [False]


def test_two_peaks_of_one_height_are_equal() -> None:
    # 5 and 4.9 are within 5 %; 5 and 4 are not; one wide peak is one.
    days = np.stack([day(h3=5, h4=5, h15=4.9, h16=4.9), day(h3=5, h4=5, h15=4, h16=4), day(h3=5, h4=5, h5=3)])
    assert equal_peaks(days, HALF_HOUR).tolist() == [True, False, False]


@given(arrays(np.float32, (4, 48), elements=st.floats(0, 1000, width=32)))
@settings(max_examples=40)
def test_a_perfect_forecast_is_perfect_and_no_capture_is_above_one(actual: np.ndarray) -> None:
    scores = compare(actual, actual, HALF_HOUR)
    assert (scores.hit == 1).all()
    assert (scores.iou == 1).all()
    used = actual.max(axis=1) > 0
    assert np.allclose(scores.capture[used], 1)
    other = compare(actual, actual[::-1], HALF_HOUR)
    assert (np.nan_to_num(other.capture) <= 1 + 1e-6).all()
    assert (np.abs(other.late_minutes) <= 720).all()


@given(arrays(np.float64, (2, 12), elements=st.floats(0, 10)), st.integers(1, 12), st.integers(0, 11))
@settings(max_examples=40)
def test_run_means_with_and_without_gaps_agree_where_both_know(path: np.ndarray, width: int, gap: int) -> None:
    holed = path.copy()
    holed[0, gap] = np.nan
    full, part = run_means(path, width), run_means(holed, width)
    assert np.allclose(part[~np.isnan(part)], full[~np.isnan(part)])
    assert np.isnan(part[0]).sum() == sum(start <= gap < start + width for start in range(12 - width + 1))


def test_several_windows_of_a_day_are_paired_one_to_one() -> None:
    actual, values = day(h3=5, h4=5, h15=4, h16=4)[None], day(h4=5, h5=5, h20=4, h21=4)[None]
    real, predicted = window_starts(actual, HALF_HOUR), window_starts(values, HALF_HOUR)
    # Smoothed over three slots, each edge lies half way: 5s above (1 + 5) / 2 = 3 start on their own slot, 6 and 8; 4s
    # as well: (1 + 4 + 4) / 3 = 3.
    assert np.flatnonzero(real[0]).tolist() == [6, 30]
    assert np.flatnonzero(predicted[0]).tolist() == [8, 40]
    # 03:00 and 04:00 are within an hour; 15:00 has no partner.
    assert count_matched_windows(real, predicted, HALF_HOUR).tolist() == [1]
    assert count_matched_windows(real, np.zeros_like(predicted), HALF_HOUR).tolist() == [0]


@given(arrays(np.bool_, (1, 10)), arrays(np.bool_, (1, 10)))
@settings(max_examples=60)
def test_as_many_windows_are_paired_as_any_assignment_can(real: np.ndarray, predicted: np.ndarray) -> None:
    from scipy.optimize import linear_sum_assignment

    a, b = np.flatnonzero(real[0]), np.flatnonzero(predicted[0])
    far = np.abs(a[:, None] - b[None, :]) > 2
    rows, columns = linear_sum_assignment(far)
    assert count_matched_windows(real, predicted, HALF_HOUR)[0] == (~far[rows, columns]).sum()


def test_a_flat_day_has_no_window() -> None:
    assert not window_starts(np.full((2, 48), 3.0), HALF_HOUR).any()
