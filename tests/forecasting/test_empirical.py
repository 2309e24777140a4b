"""Quantiles of rows with gaps and weights against numpy and against repetition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.forecasting.empirical import row_quantiles, smooth_quantiles, weighted_quantiles

LEVELS = np.array([0.0, 0.1, 0.5, 0.95, 1.0])
values = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 3), st.integers(1, 30)), elements=st.one_of(st.just(np.nan), st.floats(0, 1e6))
)


@given(values)
def test_row_quantiles_are_those_of_numpy(matrix: np.ndarray) -> None:
    quantiles = row_quantiles(matrix, LEVELS)
    for row, series in zip(quantiles, matrix, strict=True):
        measured = series[~np.isnan(series)]
        if len(measured):
            assert row == pytest.approx(np.quantile(measured, LEVELS), rel=1e-6)
        else:
            assert np.isnan(row).all()


@given(values, st.data())
def test_whole_weights_are_repetitions(matrix: np.ndarray, data: st.DataObject) -> None:
    weights = data.draw(hnp.arrays(np.int64, matrix.shape[1], elements=st.integers(1, 4)))
    quantiles = weighted_quantiles(matrix, weights.astype(np.float64), LEVELS)
    for row, series in zip(quantiles, matrix, strict=True):
        repeated = np.repeat(series, weights)
        repeated = np.sort(repeated[~np.isnan(repeated)])
        if len(repeated):
            # Smallest value whose share reaches the level.
            rank = np.maximum(np.ceil(LEVELS * len(repeated) - 1e-9).astype(int), 1) - 1
            np.testing.assert_array_equal(row, repeated[rank].astype(np.float32))
        else:
            assert np.isnan(row).all()


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 30)),
        elements=st.one_of(st.sampled_from([np.nan, -np.nan, -0.0, 0.0, np.inf]), st.floats(-100, 100, width=32)),
    )
)
def test_numbers_of_single_precision_have_the_weighted_quantiles_of_the_same_numbers_in_double(
    matrix: np.ndarray,
) -> None:
    weights = np.exp2(-np.arange(matrix.shape[1])[::-1] / 8)
    quantiles = weighted_quantiles(matrix, weights, LEVELS)
    np.testing.assert_array_equal(quantiles, weighted_quantiles(matrix.astype(np.float64), weights, LEVELS))


def test_rows_without_columns_have_no_quantile() -> None:
    assert np.isnan(row_quantiles(np.empty((2, 0)), LEVELS)).all()
    assert np.isnan(weighted_quantiles(np.empty((2, 0)), np.empty(0), LEVELS)).all()


def test_smooth_quantiles_lie_between_the_middles_of_the_weights() -> None:
    # Weights 1, 1/4, 1/16 of 10, 20, 30: shares end at 0.762, 0.952 and 1, their middles are 0.381, 0.857 and 0.976.
    levels = np.array([0.3, 0.5, 0.98])
    quantiles = smooth_quantiles(np.array([[30.0, 20.0, 10.0]]), np.array([0.0625, 0.25, 1.0]), levels)[0]
    np.testing.assert_allclose(quantiles, [10, 10 + 10 * (0.5 - 0.38095) / (0.85714 - 0.38095), 30], rtol=1e-4)


def test_smooth_quantiles_take_weights_of_each_row() -> None:
    quantiles = smooth_quantiles(
        np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5])
    )
    assert quantiles[:, 0].tolist() == [1, 2]
