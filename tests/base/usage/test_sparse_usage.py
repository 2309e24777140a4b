"""Sparse usage: what goes in comes out, row by row, whatever gaps there are and wherever a series lives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import SparseUsage, Stretch, of_stretches
from cotenant.base.usage.usage import FloatMatrix, Statistic, TimeGrid, Usage

CELLS = st.one_of(st.just(np.nan), st.floats(0, 1e6, width=32))
MATRICES = st.tuples(st.integers(0, 6), st.integers(0, 12)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=CELLS)
)


def usage_of(values: FloatMatrix) -> Usage[NodeRef]:
    refs = tuple(NodeRef(f"n{i}") for i in range(len(values)))
    return Usage(refs, TimeGrid(600, 300, values.shape[1]), values, Resource.CPU, Statistic.MEAN)


def sparse(usage: Usage[NodeRef]) -> SparseUsage[NodeRef]:
    """The same series without the gaps before and after each one's samples."""
    stretch = Stretch(np.arange(len(usage.refs)), 0, usage.values)
    return of_stretches(usage.refs, usage.grid, [stretch], usage.resource, usage.statistic)


@given(MATRICES, st.data())
def test_every_view_is_that_of_the_dense_usage(values: FloatMatrix, data: st.DataObject) -> None:
    dense = usage_of(values)
    thin = sparse(dense)
    assert np.array_equal(thin.dense().values, values, equal_nan=True)
    assert (thin.refs, thin.grid, thin.row_of) == (dense.refs, dense.grid, dense.row_of)
    # a sum depends in its last bits on the order of its terms
    np.testing.assert_allclose(thin.sums(), np.nansum(values, axis=1, dtype=np.float64), rtol=1e-12)
    highest = [max((float(v) for v in row if v == v), default=np.nan) for row in values]  # noqa: PLR0124 - NaN
    assert np.array_equal(thin.highest(), np.array(highest), equal_nan=True)
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), dtype=bool)
    for index in (flags, np.flatnonzero(flags)[::-1], slice(1, 3)):
        assert np.array_equal(thin.rows(index), dense.rows(index), equal_nan=True)
    assert thin.select(flags).refs == dense.select(flags).refs
    assert np.array_equal(thin.select(flags).values, dense.select(flags).values, equal_nan=True)
    slots = data.draw(st.integers(0, values.shape[1] + 2))
    assert thin.tail(slots).grid == dense.tail(slots).grid
    assert np.array_equal(thin.tail(slots).values, dense.tail(slots).values, equal_nan=True)


@given(MATRICES, st.integers(1, 5))
def test_stretches_of_days_join_to_the_whole(values: FloatMatrix, slots: int) -> None:
    dense = usage_of(values)
    parts = []
    for first in range(0, values.shape[1], slots):
        day = values[:, first : first + slots]
        rows = np.flatnonzero(~np.isnan(day).all(axis=1))  # a day's file holds the series that it saw
        parts.append(Stretch(rows, first, day[rows]))
    usage = of_stretches(dense.refs, dense.grid, parts, dense.resource, dense.statistic)
    assert np.array_equal(usage.dense().values, values, equal_nan=True)


@given(MATRICES, st.data())
def test_values_of_another_usage_fill_gaps_alone(values: FloatMatrix, data: st.DataObject) -> None:
    others = data.draw(arrays(np.float32, values.shape, elements=CELLS))
    filled = sparse(usage_of(values)).filled(sparse(usage_of(others)))
    expected = np.where(np.isnan(values), others, values)
    assert np.array_equal(filled.dense().values, expected, equal_nan=True)
    assert filled.refs == usage_of(values).refs


def test_a_series_that_one_usage_alone_has_is_in_both_filled() -> None:
    usage, two = usage_of(np.ones((1, 3), dtype=np.float32)), usage_of(np.full((2, 3), 2, dtype=np.float32))
    filled = sparse(usage).filled(sparse(two))
    assert (filled.refs, filled.dense().values.tolist()) == (two.refs, [[1, 1, 1], [2, 2, 2]])
    back = sparse(two).filled(sparse(usage))
    assert (back.refs, back.dense().values.tolist()) == (two.refs, [[2, 2, 2], [2, 2, 2]])


def test_only_a_life_is_stored() -> None:
    # eight pods one after another, an eighth of the time each
    values = np.full((8, 800), np.nan, dtype=np.float32)
    for pod in range(8):
        values[pod, 100 * pod : 100 * pod + 100] = pod
    assert sparse(usage_of(values)).cells.size == 800


def test_bounds_that_fit_no_series_are_refused() -> None:
    grid, none = TimeGrid(0, 300, 1), np.zeros(0, dtype=np.float32)
    with pytest.raises(ValueError, match="0 first slots, 1 bounds for 1 series"):
        SparseUsage(
            (NodeRef("a"),),
            grid,
            np.zeros(0, np.int64),
            np.zeros(1, np.int64),
            none,
            None,
            Statistic.MEAN,
        )
