"""One contract for every forecast model: whatever the history, a usable answer that knows nothing of the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.base import Forecaster
from cotenant.forecasting.members import BASELINE, MEMBERS
from cotenant.forecasting.members.shift import decaying_mean

HORIZON = 48
START = 1_699_833_600

every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.name)


def grid_of(slots: int) -> TimeGrid:
    return TimeGrid(START, 1800, slots)


def quantiles_of(member: Forecaster, history: np.ndarray, horizon: int = HORIZON) -> np.ndarray:
    return member.quantiles(history.astype(np.float32), grid_of(history.shape[1]), horizon)


def days(count: float, series: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    slots = np.arange(round(48 * count))
    return np.abs(200 + 100 * np.sin(2 * np.pi * slots / 48) + rng.normal(0, 20, (series, len(slots))))


def assert_contract(quantiles: np.ndarray, series: int, horizon: int = HORIZON) -> None:
    assert quantiles.shape == (series, horizon, len(LEVELS))
    assert quantiles.dtype == np.float32
    assert np.isfinite(quantiles).all()
    assert (quantiles >= 0).all()
    assert (np.diff(quantiles, axis=-1) >= 0).all()


def test_names_are_unique_and_the_baseline_comes_first() -> None:
    assert len({m.name for m in MEMBERS}) == len(MEMBERS)
    assert MEMBERS[0] is BASELINE


@every_member
@pytest.mark.parametrize("length", [0, 1 / 24, 0.25, 1, 3, 8, 14, 20], ids=lambda d: f"{d:.2g}d")
@pytest.mark.parametrize("horizon", [1, 48, 100])
def test_any_length_of_history_gives_a_lawful_answer(member: Forecaster, length: float, horizon: int) -> None:
    assert_contract(quantiles_of(member, days(length), horizon), 3, horizon)


@pytest.mark.slow
@every_member
@settings(deadline=None, max_examples=40)
@given(
    history=hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 5, 48, 49, 150, 400])),
        elements=st.one_of(st.just(float("nan")), st.just(0.0), st.floats(0, 2.0**43, width=32)),
    )
)
def test_any_mixture_of_gaps_and_values_gives_a_lawful_answer(member: Forecaster, history: np.ndarray) -> None:
    assert_contract(quantiles_of(member, history), len(history))


@every_member
@pytest.mark.parametrize("poison", [1e9, np.nan])
def test_nothing_after_the_origin_is_read(member: Forecaster, poison: float) -> None:
    # The same buffer with the future behind the origin replaced: the view handed over ends at the origin.
    clean = days(15).astype(np.float32)
    dirty = clean.copy()
    dirty[:, 14 * 48 :] = poison
    values, other = (member.quantiles(h[:, : 14 * 48], grid_of(14 * 48), HORIZON) for h in (clean, dirty))
    np.testing.assert_array_equal(values, other)


@every_member
def test_the_history_is_not_changed(member: Forecaster) -> None:
    history = days(14).astype(np.float32)
    history[:, 50:60] = np.nan
    before = history.copy()
    quantiles_of(member, history)
    np.testing.assert_array_equal(history, before)


@every_member
@pytest.mark.parametrize("value", [0.0, 250.0, 6.4e10])
def test_a_constant_series_is_forecast_as_that_constant(member: Forecaster, value: float) -> None:
    assert (quantiles_of(member, np.full((2, 14 * 48), value)) == np.float32(value)).all()


@every_member
@pytest.mark.parametrize("slots", [1, 4, 48, 144], ids=["short", "2h", "24h", "3d"])
@pytest.mark.parametrize("where", ["middle", "end"])
def test_a_gap_does_not_lower_the_level(member: Forecaster, slots: int, where: str) -> None:
    history = np.full((1, 14 * 48), 250.0)
    end = 14 * 48 if where == "end" else 10 * 48
    history[:, end - slots : end] = np.nan
    assert (quantiles_of(member, history) == 250).all()


@every_member
@pytest.mark.parametrize("factor", [2.0**-10, 2.0**30])
def test_scaling_the_history_scales_the_forecast(member: Forecaster, factor: float) -> None:
    # Powers of two are exact in float32, so the answers must agree to the last bit.
    history = days(14)
    np.testing.assert_array_equal(
        quantiles_of(member, history * factor), quantiles_of(member, history) * np.float32(factor)
    )


@every_member
def test_series_do_not_influence_each_other(member: Forecaster) -> None:
    history = days(14, series=5)
    np.testing.assert_array_equal(quantiles_of(member, history)[[3]], quantiles_of(member, history[[3]]))


@every_member
def test_three_days_after_a_step_the_median_has_left_the_old_level(member: Forecaster) -> None:
    history = np.full((1, 14 * 48), 100.0)
    history[:, 11 * 48 :] = 300.0
    median = quantiles_of(member, history)[0, :, LEVELS.index(0.5)]
    # Rest on what was a week ago, or on most of 14 days alike.
    if member.name in {"seasonal-naive-week", "slots-14d", "slots-10d", "shift-14d", "scale-14d"}:
        assert (median <= 300).all()
    else:
        assert (median == 300).all()


@every_member
def test_a_burst_of_outliers_does_not_move_the_median(member: Forecaster) -> None:
    history = days(14)
    burst = history.copy()
    burst[:, 300:304] = 1e6
    middle = LEVELS.index(0.5)
    values, other = quantiles_of(member, history)[:, :, middle], quantiles_of(member, burst)[:, :, middle]
    # Two hours of fourteen days: a rank or two in any pool, and noise is 20 on a level of 200.
    assert np.abs(values - other).max() < 40


def test_the_seasonal_naive_repeats_yesterday_plus_its_residual_quantiles() -> None:
    history = np.concatenate([np.arange(48.0), np.arange(48.0) + 10, np.arange(48.0) + 30])[None]
    # Residuals: 48 times 10 and 48 times 20. Linear quantiles of 96 values: 10 up to 0.4, the middle one 15, then 20.
    quantiles = quantiles_of(BASELINE, history)[0]
    assert quantiles[5, LEVELS.index(0.1)] == 35 + 10
    assert quantiles[5, LEVELS.index(0.5)] == 35 + 15
    assert quantiles[5, LEVELS.index(0.98)] == 35 + 20


def test_the_seasonal_naive_skips_a_gap_to_the_day_before() -> None:
    history = np.tile(np.arange(48.0), 3)[None]
    history[0, 2 * 48 + 7] = np.nan
    assert quantiles_of(BASELINE, history)[0, 7, LEVELS.index(0.5)] == 7


def test_the_recent_level_halves_in_weight_per_half_life() -> None:
    recent = next(m for m in MEMBERS if m.name == "recent-1h")
    # Half life 2 slots. Newest weighs 1, then 0.707, 0.5: shares 0.453, 0.320, 0.227. The value 30 is oldest.
    quantiles = quantiles_of(recent, np.array([[30.0, 20.0, 10.0]]))[0, 0]
    assert quantiles[LEVELS.index(0.4)] == 10
    assert quantiles[LEVELS.index(0.5)] == 20
    assert quantiles[LEVELS.index(0.8)] == 30


def test_slot_quantiles_see_the_neighbourhood_of_the_hour_only() -> None:
    slots = next(m for m in MEMBERS if m.name == "slots-10d")
    history = np.zeros((1, 14 * 48))
    history[0, 20::48] = 100.0
    values = quantiles_of(slots, history)[0, :, -1]
    assert np.flatnonzero(values).tolist() == [19, 20, 21]


def test_a_shifted_profile_keeps_the_shape_and_lets_the_shift_fade() -> None:
    shifted = next(m for m in MEMBERS if m.name == "shift-14d")
    history = np.tile(np.where(np.arange(48) < 24, 100.0, 300.0), 14)[None]
    history[0, -8:] += 80.0
    median = quantiles_of(shifted, history)[0, :, LEVELS.index(0.5)]
    # Four hours 80 above the usual, half life of the level one hour (two slots): 80 x (1 - 2^-4) = 75 stand at the end.
    # It fades by half in 6 h; it is taken at the middles of the bands: slots 4..7 at 3 h ahead, 16..31 at 12 h, 32..47
    # at 20 h. 53, 18.75 and 7.4 are left; the errors made when it came add up to a sixth of the shift.
    assert median[4] == pytest.approx(153, abs=13)
    assert median[20] == pytest.approx(118.75, abs=6)
    assert median[40] == pytest.approx(307.4, abs=3)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(0, 30)),
        elements=st.one_of(st.just(np.nan), st.floats(-1e6, 1e6)),
    ),
    st.floats(0.5, 50),
)
def test_the_level_moves_by_a_share_of_each_residual_and_stays_over_gaps(
    residual: np.ndarray, half_life: float
) -> None:
    # Levels are float32: two large residuals of opposite signs leave a millionth of the larger.
    rounding = 1e-6 * np.nanmax(np.abs(residual), initial=1000.0)
    for row, series in zip(decaying_mean(residual, half_life), residual, strict=True):
        level = np.nan
        for forecast_level, value in zip(row, series, strict=True):
            # half of what an earlier residual still counts is gone after half_life further ones
            moved = value + 0.5 ** (1 / half_life) * (level - value)
            level = level if np.isnan(value) else value if np.isnan(level) else moved
            assert forecast_level == pytest.approx(level, rel=1e-6, abs=rounding, nan_ok=True)
