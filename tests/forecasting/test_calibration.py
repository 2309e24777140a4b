"""Moving upper quantiles to the coverage they promise: pooled, per class, per series."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from cotenant.base.usage.forecast import LEVELS
from cotenant.forecasting.calibration import Rehearsed, apply_lift, compute_lifts, daily_classes
from cotenant.forecasting.settings import ForecastingSettings

STANDARD = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816, 1.6449, 2.0537])
DEFAULTS = ForecastingSettings()
STEADY = msgspec.structs.replace(DEFAULTS, coverage_step=0.0)
UPPER = LEVELS.index(0.95)


def normal_paths(origins: int, series: int, spread: float) -> np.ndarray:
    """Quantiles of a normal distribution around 1000."""
    return np.broadcast_to(1000 + spread * STANDARD, (origins, series, 48, 11)).astype(np.float32)


def rehearsed(actual: np.ndarray, paths: np.ndarray) -> Rehearsed:
    return Rehearsed(actual, paths, np.full(actual.shape[:2], 100.0))


def one_class(series: int) -> np.ndarray:
    return np.zeros(series, dtype=np.intp)


def moved(path: np.ndarray, by: np.ndarray, most: float = 1e9) -> np.ndarray:
    return apply_lift(path, by, np.full(len(path), 100.0), np.full(len(path), most))


def test_a_band_that_was_too_narrow_reaches_its_coverage() -> None:
    rng = np.random.default_rng(0)
    # The forecast believes in a spread of 50, it is 100. 400 series: the typical lift counts for 6 of 406.
    actual = rng.normal(1000, 100, (4, 400, 48)).astype(np.float32)
    by = compute_lifts(rehearsed(actual, normal_paths(4, 400, 50)), one_class(400), STEADY)
    better = moved(normal_paths(1, 400, 50)[0], by)
    later = rng.normal(1000, 100, (400, 48))
    for level in (0.95, 0.98):
        assert (later <= better[:, :, LEVELS.index(level)]).mean() == pytest.approx(level, abs=0.01)
    np.testing.assert_array_equal(better[:, :, :9], normal_paths(1, 400, 50)[0, :, :, :9])


def test_few_series_lean_on_what_is_typical() -> None:
    # One series of a right band: its own lift is about 0, and counts for 1 of 7; 0.1 scales are typical at 0.95.
    actual = np.random.default_rng(1).normal(1000, 100, (4, 1, 48)).astype(np.float32)
    by = compute_lifts(rehearsed(actual, normal_paths(4, 1, 100)), one_class(1), STEADY)
    assert by[0, UPPER] == pytest.approx(0.1 * 6 / 7, abs=0.03)


def test_nothing_rehearsed_is_lifted_by_what_is_typical() -> None:
    by = compute_lifts(rehearsed(np.empty((0, 3, 48), np.float32), normal_paths(0, 3, 50)), one_class(3), DEFAULTS)
    np.testing.assert_array_equal(by[:, UPPER], 0.1)
    assert (by[:, : LEVELS.index(0.9) + 1] == 0).all()
    gaps = compute_lifts(
        rehearsed(np.full((2, 3, 48), np.nan, np.float32), normal_paths(2, 3, 50)), one_class(3), DEFAULTS
    )
    np.testing.assert_array_equal(gaps, by)


def test_classes_have_lifts_of_their_own() -> None:
    rng = np.random.default_rng(2)
    spread = np.repeat([100.0, 200.0], 200)[None, :, None]
    actual = (1000 + spread * rng.normal(0, 1, (4, 400, 48))).astype(np.float32)
    classes = np.repeat([0, 2], 200)
    by = compute_lifts(rehearsed(actual, normal_paths(4, 400, 100)), classes, STEADY)[:, UPPER]
    # A right band needs nothing, one of half the width 1.645 x 100 = 1.645 scales; 20 series of 220 lean on all.
    assert abs(by[:200].mean()) < 0.2
    assert 1.3 < by[200:].mean() < 1.7


def test_a_series_that_missed_every_day_is_lifted_more_than_its_class() -> None:
    rng = np.random.default_rng(3)
    actual = rng.normal(1000, 100, (4, 300, 48)).astype(np.float32)
    actual[:, 0] += 150
    by = compute_lifts(rehearsed(actual, normal_paths(4, 300, 100)), one_class(300), DEFAULTS)[:, UPPER]
    assert by[0] > by[1:].max() - 1e-9
    assert by[0] > np.median(by) + 0.3


def test_the_lift_has_no_unit() -> None:
    actual = np.random.default_rng(4).normal(1000, 100, (2, 20, 48)).astype(np.float32)
    paths = normal_paths(2, 20, 50)
    values = compute_lifts(rehearsed(actual, paths), one_class(20), DEFAULTS)
    scaled = Rehearsed(actual * 1024, paths * 1024, np.full((2, 20), 100.0 * 1024))
    np.testing.assert_array_equal(values, compute_lifts(scaled, one_class(20), DEFAULTS))


def test_a_lift_keeps_order_and_ends_at_the_most() -> None:
    by = np.where(np.array(LEVELS) >= 0.95, -50.0, 0.0)[None].repeat(2, axis=0)
    path = normal_paths(1, 2, 50)[0]
    assert (np.diff(moved(path, by), axis=-1) >= 0).all()
    assert (moved(path, by) >= 0).all()
    np.testing.assert_allclose(moved(path, -by, most=30)[:, :, UPPER], path[:, :, UPPER] + 30)


def test_classes_follow_the_daily_autocorrelation() -> None:
    rng = np.random.default_rng(5)
    slots = np.arange(14 * 48)
    shape = np.sin(2 * np.pi * slots / 48)  # variance 1/2
    noise = rng.normal(0, 1, (3, len(slots)))
    # Autocorrelation at a day = 1/2 h^2 / (1/2 h^2 + 1): 0 for h = 0, 0.33 for h = 1, 0.82 for h = 3.
    history = (10 + np.array([[0.0], [1.0], [3.0]]) * shape + noise).astype(np.float32)
    history[:, 100:130] = np.nan
    assert daily_classes(history, 48).tolist() == [0, 1, 2]
    assert daily_classes(np.full((1, 96), 5.0, np.float32), 48).tolist() == [0]
    assert daily_classes(np.full((1, 10), 5.0, np.float32), 48).tolist() == [0]
