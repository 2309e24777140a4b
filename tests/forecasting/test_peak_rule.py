"""The rule of a node's peak: what was highest, and a share of the node above it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import Resource
from cotenant.forecasting.node_peaks.peak_records import records
from cotenant.forecasting.node_peaks.peak_rule import RATES, SHARES, PeakRule
from cotenant.forecasting.settings import NodePeakSettings

LIMIT = 1000.0
CPU, MEMORY = Resource.CPU, Resource.MEMORY


def rule(blocks: np.ndarray, resource: Resource = CPU) -> PeakRule:
    """On all decisions of these six-hour maxima, (n, blocks)."""
    return PeakRule.of(records(blocks, blocks.shape[1] + 1), np.full(len(blocks), LIMIT), resource, NodePeakSettings())


def of_days(*days: float) -> np.ndarray:
    """One node whose maximum of each day is given."""
    return np.repeat([days], 4, axis=1)


def test_cpu_gets_the_mean_of_both_highest_and_six_percent_of_the_node_at_one_percent() -> None:
    # 14 days, the highest 500 in the older week, 300 in the newer, no outcome yet: (500 + 300) / 2 + 0.06 x 1000.
    of = rule(of_days(500.0, *[100.0] * 6, 300.0, *[100.0] * 6))
    untested = replace(of, usable=np.zeros_like(of.usable))
    assert untested.peaks_now(0.01) * LIMIT == pytest.approx([460.0])


def test_memory_gets_a_share_of_what_is_free_and_never_less_than_the_last_day() -> None:
    # Usual 200: 200 + 0.36 x (1000 - 200); the risk of a half takes 15 % of the free part, but the last day had 200.
    flat = rule(of_days(*[200.0] * 14), MEMORY)
    assert flat.peaks_now(0.01) * LIMIT == pytest.approx([488.0])
    assert flat.peaks_now(0.5) * LIMIT == pytest.approx([200.0])


@pytest.mark.parametrize("resource", Resource)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), loud=st.floats(0, 600))
def test_a_smaller_risk_never_gets_a_lower_peak_and_none_is_above_the_limit(
    resource: Resource, seed: int, loud: float
) -> None:
    blocks = np.clip(200 + loud * np.random.default_rng(seed).standard_normal((4, 80)), 0, LIMIT)
    of = rule(blocks, resource)
    peaks = np.stack([of.peaks_now(risk) for risk in (0.5, 0.1, 0.05, 0.02, 0.01, 0.004, 0.001, 1e-5)])
    assert (np.diff(peaks, axis=0) >= 0).all()
    assert (peaks <= 1).all() and (peaks >= 0).all()


@pytest.mark.parametrize("resource", Resource)
def test_shares_rise_as_the_risk_falls(resource: Resource) -> None:
    assert len(SHARES[resource]) == len(RATES)
    assert list(SHARES[resource]) == sorted(SHARES[resource])
    assert list(RATES) == sorted(RATES, reverse=True)


def test_a_calm_past_never_shrinks_the_share_and_without_one_the_constants_serve() -> None:
    calm = rule(np.full((20, 84), 200.0))
    assert calm.share(0.01, calm.usable) == pytest.approx(0.06)
    assert calm.share(0.01, np.zeros_like(calm.usable)) == pytest.approx(0.06)


def test_a_restless_past_stretches_the_share_by_its_evidence() -> None:
    # Of the scores 89 in a hundred are -0.03, the rest 0.11: at most a tenth lies above 0.11, which is 0.14 above the
    # median, four times the 0.035 of the constants.
    of = rule(np.full((20, 84), 200.0))
    high = np.arange(of.usable.size).reshape(of.usable.shape) % 100 < 11
    spread = replace(of, after=of.usual + np.where(high, 0.11, -0.03), usable=np.isfinite(of.usual))
    days = spread.usable.any(axis=0).sum() / 4  # of twenty nodes a day counts once
    weight = days / (days + 30)
    # 0.06 lies 0.09 above the median's -0.03; the own quantile at 1 % is 0.11.
    stretched = 0.06 + weight * 3 * 0.09
    assert spread.share(0.01, spread.usable) == pytest.approx(stretched + weight * max(0.11 - stretched, 0))


def test_a_long_record_comes_near_its_own_quantile_where_that_is_higher() -> None:
    of = rule(np.full((40, 400), 200.0))
    rare = np.arange(of.usable.size).reshape(of.usable.shape) % 50 == 0  # two in a hundred are passed by 0.3
    jumps = replace(of, after=of.usual + np.where(rare, 0.3, -0.03), usable=np.isfinite(of.usual))
    days = jumps.usable.any(axis=0).sum() / 4
    weight = days / (days + 30)
    assert jumps.share(0.01, jumps.usable) == pytest.approx(0.06 + weight * (0.3 - 0.06))


def test_evidence_is_counted_in_days_and_not_in_nodes() -> None:
    # Nodes that do what others do, as on a day on which all exceed together, are no further evidence.
    blocks = np.random.default_rng(8).uniform(80, 500, (20, 80))
    some, many = rule(blocks), rule(np.tile(blocks, (50, 1)))
    assert many.share(0.01, many.usable) == pytest.approx(some.share(0.01, some.usable))
    # Two nodes count for a fifth of a class.
    few, same = rule(blocks[:2]), rule(np.tile(blocks[:2], (10, 1)))
    assert few.share(0.01, few.usable) < same.share(0.01, same.usable)


def test_past_decisions_are_tested_by_outcomes_that_were_complete_before_them() -> None:
    blocks = np.random.default_rng(3).uniform(100, 600, (12, 100))
    of = rule(blocks)
    tested = of.tested_peaks(0.01)
    assert (np.isfinite(tested) == of.usable).all()
    spoiled = blocks.copy()
    spoiled[:, 60:] = 999.0  # what comes later changes no peak of before
    assert rule(spoiled).tested_peaks(0.01)[:, :57] == pytest.approx(tested[:, :57], nan_ok=True)


def test_the_violation_is_the_share_of_tested_decisions_that_were_passed() -> None:
    # 20 days at 100, then a day at 300: of the decisions with a week of record the four before that day were passed.
    of = rule(of_days(*[100.0] * 20, 300.0))
    tested = of.tested_peaks(0.05)
    # Decisions stand at 4 x 6.5 = 26 to 80: the first with seven days on record, the last with a whole day after it.
    assert of.usable.sum() == 55
    # The last four days that end after block 80 hold the jump: decisions 77 to 80.
    assert of.violation(tested) == pytest.approx([4 / 55])


def test_without_an_outcome_the_constants_serve_and_nothing_is_tested() -> None:
    of = rule(np.full((2, 28), 500.0))
    assert not of.usable.any()
    assert of.peaks_now(0.01) == pytest.approx([0.56, 0.56])
    assert np.isnan(of.violation(of.tested_peaks(0.01))).all()
