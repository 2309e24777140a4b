"""Decision scores of requests: by hand, by knob, without a look at the day itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.recommender.recommendation_scores import (
    RequestScore,
    by_risk,
    churn,
    closed,
    days_of,
    highest_of,
    judge,
    matched,
    risk_days,
)


def test_scores_are_what_a_hand_comes_to() -> None:
    days = days_of(np.array([[1, 3, 2, 2]], dtype=np.float32), 2)
    score = judge(np.array([[2.0, 4.0]]), days, np.array([[True, True]]))
    # day 1: peak 3 above 2; unused 1/2 and 0. day 2: unused 2/4 twice
    assert score.under_days == 0.5
    assert score.slack == pytest.approx((0.25 + 0.5) / 2)
    # used: min(1, 2), min(3, 2), 2, 2: means 1.5 and 2 of 6 requested
    assert score.slack_of_sum == pytest.approx(1 - 3.5 / 6)
    assert score.churn == 7  # 2 to 4 on the one pair of days
    assert score.days == 2


def test_a_day_with_few_samples_is_no_day() -> None:
    values = np.full((1, 8), np.nan, dtype=np.float32)
    values[0, 0], values[0, 4:6] = 5, 7
    days = days_of(values, 4)  # one of four samples, then two of four
    assert np.isnan(days.maxima[0, 0])
    assert days.maxima[0, 1] == days.means[0, 1] == 7


def test_a_change_of_a_tenth_is_no_churn() -> None:
    assert churn(np.array([[10.0, 11.0, 11.0, 13.0]])) == pytest.approx(7 / 3)  # one of three pairs
    assert churn(np.array([[10.0, np.nan, 20.0]])) == 0


def test_memory_is_at_risk_on_days_above_its_limit() -> None:
    peaks, mask = np.array([[1.0, 3.0, 2.0]]), np.array([[True, True, True]])
    assert risk_days(np.array([[2.0, 2.0, 2.0]]), peaks, mask) == pytest.approx(1 / 3)  # 2 is not above 2
    assert risk_days(np.full((1, 3), np.nan), peaks, mask) == 0


def test_the_gap_is_measured_from_the_baseline_to_the_oracle() -> None:
    at = {slack: RequestScore(0.01, slack, slack, 0, 1) for slack in (0.8, 0.7, 0.5)}
    assert closed(at[0.7], at[0.8], at[0.5]) == pytest.approx(1 / 3)


some = st.integers(0, 2**32 - 1)


@settings(max_examples=25)
@given(some, st.floats(0.0, 0.4))
def test_the_matched_knob_is_the_smallest_that_keeps_the_share(seed: int, share: float) -> None:
    values = np.random.default_rng(seed).lognormal(0, 1, size=(12, 40)).astype(np.float32)
    days = days_of(values, 4)
    requests, mask = highest_of(days, 3), np.arange(10) >= np.full((12, 1), 2)
    knob, scaled = matched(lambda factor: requests * factor, days, mask, share)
    assert (days.maxima > scaled)[mask].mean() <= share
    assert (days.maxima > requests * knob * 0.999)[mask].mean() >= min(share, 1 - 1e-9) or share == 0 or knob < 1e-5


@settings(max_examples=15)
@given(some, st.integers(8, 19))
def test_no_request_knows_its_own_day_or_a_later_one(seed: int, day: int) -> None:
    values = np.random.default_rng(seed).lognormal(0, 1, size=(40, 80)).astype(np.float32)
    poisoned = values.copy()
    poisoned[:, 4 * day :] = 1e6
    provided = np.full((40, 20), 50.0)
    for before, after in zip(*(_requests(v, provided) for v in (values, poisoned)), strict=True):
        assert np.array_equal(before[:, : day + 1], after[:, : day + 1], equal_nan=True)


def _requests(values: np.ndarray, provided: np.ndarray) -> list[np.ndarray]:
    days = days_of(values, 4)
    risk = by_risk(days, provided, 0.1)
    return [highest_of(days, 14), risk.calibrated, risk.at(0.3)]
