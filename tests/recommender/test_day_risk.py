"""Requests by a chosen share of days: calibration, bounds, order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.recommender.recommendation_scores import Days, by_risk, churn
from cotenant.base.cluster import Container, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.strategies.cotenant import day_risk
from tests.support.scenario import DAY, Scenario, Track, value

CPU = Resource.CPU


def fleet(count: int, days: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Daily maxima with independent noise, means at 40 % of their typical peak, provided 10 times that peak."""
    random = np.random.default_rng(seed)
    level = random.lognormal(5, 1, size=(count, 1))
    return level * random.lognormal(0, 0.4, size=(count, days)), np.tile(0.4 * level, days), 10 * level[:, 0]


def test_the_margin_is_the_corrected_quantile_of_the_scores() -> None:
    scores = np.arange(1.0, 101.0)
    assert day_risk.margin_for(scores, 0.1) == 91  # ceil(101 x 0.9) = 91st of 1..100
    assert day_risk.margin_for(scores, 0.001) == 100  # ceil(101 x 0.999) = 101: the largest there is
    assert np.isnan(day_risk.margin_for(scores[:99], 0.1))


def test_the_next_day_is_short_about_as_often_as_the_risk_says() -> None:
    maxima, means, provided = fleet(3000, 15)
    for risk in (0.02, 0.1):
        values = day_risk.amounts(maxima[:, :14], means[:, :14], provided, risk).amounts
        short = float((maxima[:, 14] > values).mean())
        # the window grows from 7 to 13 days over the back-test and is 14 for the next day: a little less than the risk
        assert 0.4 * risk <= short <= 1.3 * risk


def test_base_and_spread_are_what_the_formula_says() -> None:
    # 14 days: 100, but 400 on the first and 200 on the last; mean 50, provided 1000
    maxima = np.full((1, 14), 100.0)
    maxima[0, 0], maxima[0, -1] = 400, 200
    base, spread, ceiling = day_risk.expected_next_day(maxima, np.full((1, 14), 50.0), np.array([1000.0]))
    assert base[0] == (400 + 200) / 2
    assert np.isclose(spread[0], 1000 * 8**0.75)
    assert np.isclose(ceiling[0], 1100)


def test_too_few_days_have_no_amount() -> None:
    maxima, means, provided = fleet(50, 14)
    maxima[0, :12] = np.nan  # two days are left
    values = day_risk.amounts(maxima, means, provided, 0.05).amounts
    assert np.isnan(values[0])
    assert np.isfinite(values[1:]).all()
    assert np.isnan(day_risk.amounts(maxima[:, :7], means[:, :7], provided, 0.05).margin).all()


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.005, 0.5), st.floats(0.005, 0.5))
def test_less_risk_is_never_a_smaller_request_and_none_is_above_what_there_is(
    seed: int, first: float, other: float
) -> None:
    maxima, means, provided = fleet(30, 14, seed)
    low, high = (day_risk.amounts(maxima, means, provided, r).amounts for r in sorted((first, other)))
    assert (low >= high).all()
    assert (low <= np.maximum(1.1 * provided, 1.5 * maxima.max(axis=1))).all()


def test_requests_rise_at_once_with_the_margin_and_fall_slowly() -> None:
    random = np.random.default_rng(4)
    maxima, means, provided = fleet(200, 60)
    # On one day in five several containers jump at once: the highest scores come and go with such days.
    jumps = (random.random(60) < 0.2) & (random.random((200, 60)) < 0.05)
    maxima = maxima * np.where(jumps, random.uniform(2, 8, size=60), 1.0)
    days = Days(maxima[:, :, None].astype(np.float32), maxima, means)
    damped = by_risk(days, np.tile(provided[:, None], 60), 0.01).calibrated[:, 15:]
    pasts = [slice(day - 14, day) for day in range(15, 60)]
    at_once = np.stack([day_risk.amounts(maxima[:, p], means[:, p], provided, 0.01).amounts for p in pasts], axis=1)
    assert (damped >= at_once).all()
    assert (damped == at_once).any()
    assert churn(at_once) > 1
    assert churn(damped) < 0.7 * churn(at_once)


def test_a_margin_falls_by_a_share_of_itself_a_day_and_bounds_from_above_zero_alone() -> None:
    assert np.isclose(day_risk.least_later_margin(2.0, 1), 2 * 0.96)
    assert np.isclose(day_risk.least_later_margin(2.0, 0.5), 2 * 0.96**0.5)
    assert np.isnan(day_risk.least_later_margin(-0.1, 1))
    maxima, means, provided = fleet(50, 14)
    alone = day_risk.amounts(maxima, means, provided, 0.05)
    least = np.where(np.arange(50) < 10, alone.margin + 1, alone.margin - 1)
    bounded = day_risk.amounts(maxima, means, provided, 0.05, least)
    assert np.array_equal(bounded.margin, np.fmax(alone.margin, least))
    assert (bounded.amounts[:10] > alone.amounts[:10]).all()
    assert np.array_equal(bounded.amounts[10:], alone.amounts[10:])


def test_the_strategy_sizes_by_day_risk_when_asked() -> None:
    random = np.random.default_rng(3)
    refs = [WorkloadRef("shop", "Deployment", f"web-{i}") for i in range(20)]
    spec = (Container("app", {CPU: 2000}, {CPU: 4000}),)
    tracks = [Track(r, f"{r.name}-0", cpu=random.lognormal(5, 0.3, size=14 * DAY)) for r in refs]
    case = Scenario([Workload(r, 1, spec) for r in refs], tracks, days=14, history_days=14)
    chosen = RecommenderSettings(cotenant=CotenantSettings(cpu_day_risk=0.05))
    for proposal in (value(r, CPU) for r in case.recommendations("cotenant", chosen).values()):
        # 20 containers x 7 back-tested days are enough to calibrate
        assert float(proposal.inputs["day_risk_margin"]) > 0
        assert "margin for the day's risk" in proposal.formula
        assert proposal.amount is not None
        assert 0.6 * float(proposal.inputs["observed_max"]) < proposal.amount <= 4400
    alone = Scenario([Workload(refs[0], 1, spec)], tracks[:1], days=14, history_days=14).recommendation(
        "cotenant", chosen
    )
    assert "day_risk_margin" not in value(alone, CPU).inputs  # 7 days are not: the profile's rule holds
