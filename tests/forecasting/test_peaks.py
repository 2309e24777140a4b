"""The peak head: quantiles of the next day's highest value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.usage.forecast import LEVELS
from cotenant.forecasting.peaks import daily_maxima, peak_quantiles
from cotenant.forecasting.settings import ForecastingSettings

DEFAULTS = ForecastingSettings()


def peaks(maxima: np.ndarray, fallback: float = np.nan) -> np.ndarray:
    return peak_quantiles(np.asarray(maxima, dtype=np.float32), np.full(len(maxima), fallback))


def test_days_are_counted_back_from_the_end_and_thin_days_are_gaps() -> None:
    values = np.array([[9, 1, 2, 3, 4, np.nan, 7, np.nan, np.nan]], dtype=np.float32)
    # Four slots a day: [1 2 3 4] and [nan 7 nan nan]; the leading 9 fills no day, and one value of four is too thin.
    maxima = daily_maxima(values, 4)
    assert maxima[0, 0] == 4
    assert np.isnan(maxima[0, 1])


def test_equal_days_give_that_peak_at_every_level() -> None:
    assert (peaks(np.full((3, 14), 700.0)) == 700).all()


def test_an_idle_series_has_no_peak_height() -> None:
    assert (peaks(np.zeros((2, 14))) == 0).all()


def test_the_ratios_of_others_widen_a_short_history() -> None:
    restless = np.exp(np.random.default_rng(0).normal(0, 0.5, (50, 14))) * 100
    young = np.full((1, 14), np.nan)
    young[0, -1] = 100.0
    highest = peaks(np.append(restless, young, axis=0))[-1]
    assert highest[LEVELS.index(0.98)] > 120
    assert highest[LEVELS.index(0.1)] < 90


def test_without_a_day_the_fallback_is_the_base() -> None:
    assert (peaks(np.full((1, 14), np.nan), 50.0) == 50).all()
    assert np.isnan(peaks(np.empty((1, 0)))).all()


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 20)), elements=st.floats(0, 2.0**40, width=32))
)
def test_levels_are_in_order_and_finite(maxima: np.ndarray) -> None:
    values = peaks(maxima)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (np.diff(values, axis=1) >= 0).all()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_on_days_that_were_not_seen(level: float) -> None:
    rng = np.random.default_rng(1)
    # 400 series, lognormal days around their own level: the share of next days at or below the quantile.
    maxima = np.exp(rng.normal(0, 0.3, (400, 15))) * rng.uniform(10, 1000, (400, 1))
    values = peaks(maxima[:, :14])[:, LEVELS.index(level)]
    assert (maxima[:, 14] <= values).mean() == pytest.approx(level, abs=0.06)


def fleet(spreads: np.ndarray, days: int, seed: int) -> np.ndarray:
    """Lognormal daily maxima (n, days) around a level of their own; spreads: (n,), the sigma of their logarithm."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 1, (len(spreads), days)) * spreads[:, None]
    return np.exp(logs) * rng.uniform(10, 1000, (len(spreads), 1))


SPREADS = np.geomspace(0.02, 0.8, 500)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_of_five_classes_of_spread_passes_its_p95_on_a_twentieth_of_the_days(seed: int) -> None:
    days = fleet(SPREADS, 34, seed)
    # Twenty next days of 100 series: 2000 in a class, so one standard error of 5 % is 0.5 points;
    # 3 to 7 % is what is wanted of each.
    passed = np.stack(
        [days[:, day] > peaks(days[:, day - 14 : day])[:, LEVELS.index(0.95)] for day in range(14, 34)], axis=1
    )
    share = passed.reshape(5, -1).mean(axis=1)
    assert ((share >= 0.025) & (share <= 0.075)).all(), share


def test_a_steady_series_does_not_wear_the_spread_of_wild_ones() -> None:
    values = peaks(fleet(SPREADS, 14, 3))
    relative = (values[:, LEVELS.index(0.95)] / values[:, LEVELS.index(0.5)]).reshape(5, -1)
    # Lognormal: p95 / p50 is exp(1.645 sigma); the middles of the first and last fifth are 0.029 and 0.55.
    assert np.median(relative[0]) == pytest.approx(np.exp(1.645 * 0.029), abs=0.03)
    assert np.median(relative[4]) == pytest.approx(np.exp(1.645 * 0.55), rel=0.25)


def test_a_series_of_one_day_has_the_spread_of_all() -> None:
    young = np.full((1, 14), np.nan)
    young[0, -1] = 100.0
    highest = peaks(np.append(fleet(SPREADS, 14, 4), young, axis=0))[-1]
    everyone = peaks(fleet(SPREADS, 14, 4))
    relative = np.median(everyone[:, LEVELS.index(0.95)] / everyone[:, LEVELS.index(0.5)])
    assert highest[LEVELS.index(0.95)] / highest[LEVELS.index(0.5)] > relative
