"""Losses by their identities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.forecasting.losses import coverage, pinball

amounts = hnp.arrays(np.float64, (2, 5), elements=st.floats(0, 1e6))
MEDIAN = np.array([0.5])


@given(amounts, amounts)
def test_pinball_at_the_median_is_half_the_absolute_error(actual: np.ndarray, path: np.ndarray) -> None:
    assert pinball(actual, path[..., None], MEDIAN) == pytest.approx(np.abs(actual - path).mean(axis=1) / 2)


@given(amounts)
def test_a_perfect_forecast_loses_nothing(actual: np.ndarray) -> None:
    assert (pinball(actual, np.repeat(actual[..., None], 11, axis=2)) == 0).all()
    assert (coverage(actual, actual) == 1).all()


@given(amounts, amounts, st.sampled_from([0.1, 0.5, 0.95]))
def test_two_levels_mirror_each_other(actual: np.ndarray, path: np.ndarray, level: float) -> None:
    # Loss at q of (y, f) equals loss at 1 - q of (f, y).
    values = pinball(actual, path[..., None], np.array([level]))
    assert values == pytest.approx(pinball(path, actual[..., None], np.array([1 - level])), abs=1e-6)


def test_the_quantile_of_a_sample_minimises_its_pinball_loss() -> None:
    actual = np.arange(11.0)[None]
    losses = [pinball(actual, np.full((1, 11, 1), f), np.array([0.9]))[0] for f in range(11)]
    assert int(np.argmin(losses)) == 9


def test_missing_values_are_left_out_and_nothing_compared_is_nan() -> None:
    actual = np.array([[1.0, np.nan], [np.nan, np.nan]])
    assert pinball(actual, np.zeros((2, 2, 1)), MEDIAN)[0] == 0.5
    assert coverage(actual, np.full((2, 2), 2.0))[0] == 1.0
    assert np.isnan(pinball(actual, np.zeros((2, 2, 1)), MEDIAN)[1])
