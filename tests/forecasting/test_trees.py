"""Trees for several quantiles: they tell kinds of rows apart, and say of what is alike what is known of all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forecasting.losses import pinball
from forecasting.trees import DEPTH, FEWEST_IN_LEAF, Trees, grow

LEVELS = np.array([0.1, 0.5, 0.9])


def drawn(seed: int, count: int = 4000) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (count, 5)).astype(np.float32)


def steps(rows: np.ndarray, seed: int) -> np.ndarray:
    """A sign that a sign turns, with noise whose width depends on a third column."""
    noise = np.random.default_rng(seed).normal(0, 1, len(rows)) * np.where(rows[:, 2] > 0, 0.5, 0.1)
    return (np.sign(rows[:, 0]) * np.where(rows[:, 1] > 0, 1.0, 3.0) + noise).astype(np.float32)


def test_unseen_rows_get_the_quantiles_of_their_kind() -> None:
    rows = drawn(0)
    trees, asked = grow(rows, steps(rows, 1), LEVELS), drawn(2)
    answer, came = trees.predict(asked), steps(asked, 3)
    # The quantiles of a standard normal at 0.1, 0.5 and 0.9 lose 0.175, 0.399 and 0.175, 0.25 on average; half of the
    # rows deviate by 0.5 and half by 0.1, so that no forecast loses less than 0.25 x 0.3 = 0.075.
    loss = pinball(came[:, None], answer[:, None], LEVELS).mean()
    assert loss < 1.5 * 0.075
    share = (came[:, None] <= answer).mean(axis=0)
    np.testing.assert_allclose(share, LEVELS, atol=0.05)
    wide = answer[:, 2] - answer[:, 0]
    assert wide[asked[:, 2] > 0.2].mean() > 2 * wide[asked[:, 2] < -0.2].mean()


def test_a_leaf_adds_its_share_of_the_quantiles_that_are_left() -> None:
    """One column, two values: after 20 steps of 0.15 all but 0.85^20 = 3.9 % of the way from the whole is gone."""
    rows = np.repeat(np.array([[0.0], [1.0]], dtype=np.float32), 500, axis=0)
    targets = rows[:, 0] * 100
    # half of the targets are 0: quantiles of the whole are 0, 50 (between both) and 100
    answer = grow(rows, targets, LEVELS).predict(np.array([[0.0], [1.0]], dtype=np.float32))
    remains = 0.85**20
    np.testing.assert_allclose(answer[0], [0, 50 * remains, 100 * remains], atol=0.01)
    np.testing.assert_allclose(answer[1], [100 - 100 * remains, 100 - 50 * remains, 100], atol=0.01)


def test_what_cannot_be_told_apart_gets_the_quantiles_of_all() -> None:
    targets = np.arange(1000, dtype=np.float32)
    answer = grow(np.ones((1000, 3), np.float32), targets, LEVELS).predict(drawn(0, 10)[:, :3])
    np.testing.assert_allclose(answer, np.tile(np.quantile(targets, LEVELS), (10, 1)), rtol=1e-4)


@given(st.integers(1, 3 * FEWEST_IN_LEAF), st.integers(1, 4), st.integers(0, 2**31))
def test_any_rows_grow_trees_whose_answers_lie_between_the_targets(count: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.choice([-1e9, 0, 1e-9, 1, 1e9], (count, width)).astype(np.float32)
    targets = rng.choice([-60.0, 0.0, 1e-3, 60.0], count).astype(np.float32)
    trees = grow(rows, targets, LEVELS)
    assert trees.leaves.shape[1:] == (2**DEPTH, len(LEVELS))
    answer = trees.predict(rows)
    # each step moves a prediction at most to the farthest target
    assert (answer >= targets.min() - 1e-3).all()
    assert (answer <= targets.max() + 1e-3).all()


def test_a_row_goes_right_where_it_is_above_the_bound() -> None:
    nodes = 2**DEPTH - 1
    bounds = np.full((1, nodes), np.inf, dtype=np.float32)
    bounds[0, 0] = 2.0  # all further questions send rows to the left
    leaves = np.arange(2**DEPTH, dtype=np.float32)[None, :, None]
    trees = Trees(np.array([10.0], dtype=np.float32), np.zeros((1, nodes), np.int16), bounds, leaves)
    # the first leaf is 0; the first of the right half of 16 is 8
    np.testing.assert_array_equal(trees.predict(np.array([[2.0], [2.1]], np.float32)), [[10.0], [18.0]])
