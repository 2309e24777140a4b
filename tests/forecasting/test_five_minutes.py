"""From half hours to single 5-minute values: what is kept whatever comes, and coverage of a bursty series."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, FinePath, fine_path
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.forecasting.five_minutes import five_minutes
from cotenant.forecasting.settings import ForecastingSettings
from tests.forecasting.test_engine import portraits_of, usage_of

DAY, SLOTS, PARTS = 288, 48, 6
MEDIAN, Q95 = LEVELS.index(0.5), LEVELS.index(0.95)


def refined(past: np.ndarray, path: np.ndarray, statistic: Statistic = Statistic.MEAN) -> FinePath:
    """What is served at 5 minutes after some past (n, days x 288), from a path (n, 48, L)."""
    refs = tuple(NodeRef(str(row)) for row in range(len(past)))
    grid = TimeGrid(0, 300, past.shape[1])
    usage = Usage(refs, grid, past.astype(np.float32), Resource.CPU, statistic)
    return five_minutes(path.astype(np.float32), usage, usage.coarser(PARTS))


def path_of(past: np.ndarray, spread: float = 0.1) -> np.ndarray:
    """A forecast around the mean half hour of a past, the same all day, (n, 48, L)."""
    level = np.nan_to_num(np.nanmean(past, axis=1))
    return np.tile((level[:, None] * (1 + spread * (np.array(LEVELS) - 0.5)))[:, None], (1, SLOTS, 1))


@given(
    seed=st.integers(0, 2**16),
    days=st.integers(0, 9),
    gaps=st.sampled_from([0.0, 0.3, 1.0]),
    statistic=st.sampled_from([Statistic.MEAN, Statistic.MAX]),
    burst=st.floats(0.0, 50.0),
)
def test_order_sign_and_shape_are_kept_whatever_the_past(
    seed: int, days: int, gaps: float, statistic: Statistic, burst: float
) -> None:
    rng = np.random.default_rng(seed)
    past = rng.gamma(2, 50, (3, days * DAY)) + burst * 100 * (rng.random((3, days * DAY)) < 0.1)
    past[1] = 0.0
    path = path_of(np.append(past, np.full((3, 1), 100.0), axis=1), float(rng.random()))
    path[2] = np.nan
    past[rng.random(past.shape) < gaps] = np.nan
    fine = refined(past, path, statistic)
    paths = fine.paths()
    assert paths.shape == (3, DAY, len(LEVELS))
    assert np.isnan(paths[2]).all()
    assert np.isfinite(paths[:2]).all()
    assert (paths[:2] >= 0).all()
    assert (np.diff(paths[:2], axis=2) >= 0).all()
    np.testing.assert_array_equal(fine.level(0.95), paths[:, :, Q95])
    if statistic is Statistic.MEAN:
        np.testing.assert_allclose(fine.profile.mean(axis=2), 1, rtol=1e-5)  # a half hour's mean stays what it was
    if not days or gaps == 1.0:
        np.testing.assert_array_equal(fine.quantiles, path.astype(np.float32))


@given(level=st.floats(0.0, 1e6), days=st.integers(1, 8), seed=st.integers(0, 99))
def test_a_series_that_is_even_inside_its_half_hours_keeps_its_path(level: float, days: int, seed: int) -> None:
    steps = np.random.default_rng(seed).integers(1, 9, (1, days * SLOTS)).repeat(PARTS, axis=1)
    for past in (np.full((1, days * DAY), level), steps):
        path = path_of(past.astype(np.float32))
        np.testing.assert_array_equal(refined(past, path).paths(), np.repeat(path.astype(np.float32), PARTS, axis=1))


def test_a_job_at_a_fixed_minute_is_expected_at_that_minute() -> None:
    past = np.full((1, 8 * DAY), 10.0)
    past[:, 1::12] = 100.0  # five past each hour
    half_hours = past.reshape(-1, PARTS).mean(axis=1)[:SLOTS]
    path = np.repeat(half_hours[None, :, None], len(LEVELS), axis=2)
    median = refined(past, path).level(0.5)[0]
    np.testing.assert_allclose(median, past[0, :DAY], rtol=0.02)


def test_the_spread_is_that_of_half_hours_of_the_same_level() -> None:
    rng = np.random.default_rng(3)
    busy = rng.random(9 * SLOTS) < 0.5
    past = np.where(busy[:, None], 1.0, 10.0).repeat(PARTS, axis=1)
    past[busy, rng.integers(0, PARTS, busy.sum())] = 100.0  # five busy minutes somewhere, else next to nothing
    path = np.full((1, SLOTS, len(LEVELS)), 10.0)
    path[:, SLOTS // 2 :] = past[busy].mean()
    quiet, bursty = refined(past.reshape(1, -1), path).quantiles[0, [0, -1]]
    np.testing.assert_allclose(quiet, 10, rtol=1e-4)
    assert bursty[MEDIAN] < 2
    assert bursty[Q95] > 90


def bursty(days: int) -> np.ndarray:
    """24 series that work for some minutes of most half hours, never at a fixed minute, (24, days x 288)."""
    rng = np.random.default_rng(7)
    shape = (24, days * DAY)
    daily = 60 + 40 * np.sin(2 * np.pi * np.arange(days * DAY) / DAY)
    heights = rng.gamma(4, 1.5, shape) * (rng.random(shape) < 0.15)
    return daily * rng.gamma(3, 1 / 3, (24, 1)) * (0.3 + heights)


def test_q95_of_what_is_served_holds_95_percent_of_the_5_minute_values() -> None:
    values = bursty(15)
    past, actual = values[:, : 14 * DAY], values[:, 14 * DAY :]
    served = forecast(usage_of(past), portraits_of(np.empty((0, 0))), ForecastingSettings())
    assert served.fine is not None
    assert set(served.reason) <= {Reason.OK, Reason.NO_PEAK}
    half_hours = np.repeat(served.level(0.95), PARTS, axis=1)
    before, after = ((actual <= path).mean() for path in (half_hours, served.fine.level(0.95)))
    assert before < 0.92
    assert 0.93 <= after <= 0.97


def test_what_tables_store_gives_the_same_path() -> None:
    rng = np.random.default_rng(0)
    fine = refined(rng.gamma(2, 50, (1, 8 * DAY)), np.sort(rng.gamma(20, 5, (1, SLOTS, len(LEVELS)))))
    stored = fine.quantiles[0, :, Q95].tolist()
    np.testing.assert_allclose(fine_path(stored, fine.profile.ravel().tolist()), fine.level(0.95)[0], rtol=1e-6)
    np.testing.assert_array_equal(fine_path(stored, ()), np.repeat(stored, PARTS))
    assert fine_path((), ()).size == 0  # results of a version that had none


def test_a_portrait_is_of_5_minute_values_already() -> None:
    young = bursty(1)[:, :24]
    served = forecast(usage_of(young), portraits_of(young), ForecastingSettings())
    assert served.fine is not None
    assert set(served.reason) == {Reason.FROM_PORTRAIT}
    np.testing.assert_array_equal(served.fine.paths(), np.repeat(served.quantiles, PARTS, axis=1))
