"""Lifting upper quantiles to the coverage they promise."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.model.forecast import LEVELS
from forecasting.calibration import lift, lifted

STANDARD = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816, 1.6449, 2.0537])


def normal_paths(origins: int, series: int, spread: float) -> np.ndarray:
    """Quantiles of a normal distribution around 1000."""
    return np.broadcast_to(1000 + spread * STANDARD, (origins, series, 48, 11)).astype(np.float32)


def test_a_band_that_was_too_narrow_reaches_its_coverage() -> None:
    rng = np.random.default_rng(0)
    # The forecast believes in a spread of 50, it is 100.
    actual = rng.normal(1000, 100, (4, 50, 48)).astype(np.float32)
    by = lift(actual, normal_paths(4, 50, 50))
    better = lifted(normal_paths(1, 50, 50)[0], by)
    later = rng.normal(1000, 100, (50, 48))
    for level in (0.8, 0.9, 0.95, 0.98):
        covered = (later <= better[:, :, LEVELS.index(level)]).mean()
        # 2,400 later values: 3 standard errors at 0.8 are 0.024.
        assert covered == pytest.approx(level, abs=0.025)
    np.testing.assert_array_equal(better[:, :, :7], normal_paths(1, 50, 50)[0, :, :, :7])


def test_a_right_band_stays() -> None:
    actual = np.random.default_rng(1).normal(1000, 100, (4, 200, 48)).astype(np.float32)
    assert np.abs(lift(actual, normal_paths(4, 200, 100))).max() < 0.05


def test_the_lift_has_no_unit() -> None:
    actual = np.random.default_rng(2).normal(1000, 100, (2, 20, 48)).astype(np.float32)
    paths = normal_paths(2, 20, 50)
    np.testing.assert_array_equal(lift(actual * 1024, paths * 1024), lift(actual, paths))


def test_nothing_rehearsed_and_no_width_lift_nothing() -> None:
    assert (lift(np.empty((0, 3, 48)), np.empty((0, 3, 48, 11))) == 0).all()
    assert (lift(np.full((1, 3, 48), 5.0), np.full((1, 3, 48, 11), 4.0)) == 0).all()
    assert (lift(np.full((1, 3, 48), 2000.0), normal_paths(1, 3, 10)) == 0).all()  # 16 wide on a level of 1000
    assert (lift(np.full((1, 3, 48), np.nan), normal_paths(1, 3, 50)) == 0).all()


def test_a_negative_lift_keeps_levels_in_order() -> None:
    down = np.where(np.array(LEVELS) >= 0.8, -50.0, 0.0)
    moved = lifted(normal_paths(1, 2, 50), down)
    assert (np.diff(moved, axis=-1) >= 0).all()
    assert (moved >= 0).all()
