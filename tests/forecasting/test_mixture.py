"""Mixtures of forecasts: both answers are kept where members disagree, and one member alone is itself."""

from __future__ import annotations

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.forecasting.mixture import MOST, mixture
from cotenant.forecasting.selection import combine

NORMAL = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816, 1.6449, 2.0537])
LOW, MEDIAN, HIGH = (LEVELS.index(q) for q in (0.1, 0.5, 0.9))


def around(*centres: float) -> np.ndarray:
    """One series, three slots, a band of deviation 1 around each centre, (centres, 1, 3, L)."""
    return np.stack([np.tile(centre + NORMAL, (1, 3, 1)) for centre in centres]).astype(np.float32)


def test_a_member_alone_is_itself() -> None:
    (alone,) = around(50.0)
    # But beyond the middle of the outermost share, where there is nothing to look between.
    np.testing.assert_allclose(mixture(alone[None], np.ones((1, 1)))[..., 1:-1], alone[..., 1:-1], atol=0.08)


def test_where_two_disagree_both_answers_are_kept() -> None:
    forecasts, even = around(10.0, 90.0), np.full((2, 1), 0.5)
    mixed, averaged = mixture(forecasts, even)[0, 0], combine(forecasts, even)[0, 0]
    # A tenth of the mixture is the lower fifth of the lower member: 10 - 0.84; the average sits between both.
    np.testing.assert_allclose([mixed[LOW], mixed[HIGH]], [10 - 0.8416, 90 + 0.8416], atol=0.1)
    assert 45 < averaged[LOW] < averaged[HIGH] < 55


def test_the_weight_says_how_much_of_the_answer_a_member_is() -> None:
    mixed = mixture(around(10.0, 90.0), np.array([[0.75], [0.25]]))[0, 0]
    # Three quarters lie around 10: the median is the lower two thirds of that member, q90 the upper 60 % of the other.
    assert 10 < mixed[MEDIAN] < 11
    assert 89 < mixed[HIGH] < 91


def test_levels_stay_in_order_and_within_the_members() -> None:
    rng = np.random.default_rng(0)
    forecasts = np.sort(rng.gamma(2.0, 30.0, (8, 300, 4, len(LEVELS))), axis=-1).astype(np.float32)
    mixed = mixture(forecasts, rng.dirichlet(np.ones(8), 300).T)
    assert mixed.shape == (300, 4, len(LEVELS))
    assert (np.diff(mixed, axis=-1) >= 0).all()
    assert (mixed >= forecasts.min(axis=(0, 3))[..., None]).all()
    assert (mixed <= forecasts.max(axis=(0, 3))[..., None]).all()


def test_only_the_heaviest_take_part() -> None:
    forecasts = around(*([20.0] * MOST), 500.0)
    weights = np.full((MOST + 1, 1), 1.0)
    weights[-1] = 0.5
    assert mixture(forecasts, weights).max() < 25


def test_no_series_are_answered() -> None:
    assert mixture(np.empty((2, 0, 48, len(LEVELS)), np.float32), np.empty((2, 0))).shape == (0, 48, len(LEVELS))
