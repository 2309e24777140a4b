"""The formulas at other moments than now: what is known follows them, and what is not is no zero."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.colocation import lendable
from cotenant.recommender.colocation.columns import NodeColumns
from cotenant.recommender.colocation.formulas import Parameters
from cotenant.recommender.colocation.lendable import Lender, PastUse
from cotenant.recommender.colocation.model.lendable import TOLERATED_SILENT, sum_over_nodes

ON: Final = ColocationStrategy(enable=True)
NOW: Final = 1000.0
"""Usage now: prod 4, mid 1 and 0.5 of the system outside of pods, of a node of 16 cores."""
PRESENT: Final = {
    "capacity": 16_000, "reserved": 200, "system_used": 500, "node_used": 5_500, "hp_used": 5_000, "hp_request": 9_000,
    "hp_max": 9_500, "prod_used": 4_000, "prod_request": 8_000, "prod_reclaimable": 2_500,
}  # fmt: skip


def lender(strategy: ColocationStrategy = ON, nodes: int = 1, age_seconds: float = 0.0, **other: Any) -> Lender:
    """Nodes of these present terms, measured so long ago."""
    columns: dict[str, Any] = {f.name: np.zeros(nodes, dtype=np.int64) for f in fields(NodeColumns)}
    columns |= {name: np.full(nodes, value) for name, value in (PRESENT | other).items()}
    columns |= dict.fromkeys(("prod_peak", "system_peak", "violation"), np.full(nodes, other.get("peak", np.nan)))
    columns |= {"mid_peak": np.zeros(nodes), "cpu_ratio": np.ones(nodes), "resource": Resource.CPU}
    columns |= {"nodes": tuple(f"n{i}" for i in range(nodes)), "measured_seconds": np.full(nodes, NOW - age_seconds)}
    columns.pop("peak", None)
    given_strategies = Parameters.of([strategy] * nodes, Resource.CPU)
    return Lender.of(NodeColumns(**columns), given_strategies, np.full(nodes, 15_000.0), NOW)


def past_use(hours: int = 1, node_used: float = 5_500.0, age_seconds: float = 0.0, **terms: float) -> PastUse:
    node_terms = {"all_used": 5_000.0, "hp_used": 5_000.0, "hp_request": 9_000.0, "hp_max": 9_500.0}
    node_terms |= {"prod_used": 4_000.0, "prod_request": 8_000.0} | terms
    pods = {name: np.full((1, hours), value) for name, value in node_terms.items()}
    return PastUse(pods, np.full((1, hours), node_used), np.full((1, hours), age_seconds))


def past_batch(strategy: ColocationStrategy, use: PastUse, **other: Any) -> float:
    return float(lendable.past(lender(strategy, **other), use).amounts[Band.BATCH][0, 0])


def test_a_past_hour_is_the_formula_on_the_usage_of_then() -> None:
    # 16,000 - 40 % - max(7,000 - 6,000, 200) - 6,000 = 2,600
    assert past_batch(ON, past_use(node_used=7_000, all_used=6_000, hp_used=6_000)) == 2_600
    # the margin as before, 200 reserved, 9,500 of the larger of use and request: below 0
    assert past_batch(replace_strategy(cpu_policy="maxUsageRequest"), past_use()) == 0
    # at most 20 % of 16,000
    assert past_batch(replace_strategy(batch_cpu_percent=20), past_use(hp_used=1_000, all_used=1_000)) == 3_200


def replace_strategy(**fields_: Any) -> ColocationStrategy:
    return ColocationStrategy(enable=True, **fields_)


@pytest.mark.parametrize("age_seconds", [15 * 60 + 1, float("nan")])
def test_an_hour_without_a_report_is_not_known_and_one_of_a_node_that_is_off_is_zero(age_seconds: float) -> None:
    use = past_use(age_seconds=age_seconds, node_used=float("nan") if np.isnan(age_seconds) else 5_500.0)
    for band, amounts in lendable.past(lender(), use).amounts.items():
        assert np.isnan(amounts).all(), band
    assert past_batch(ColocationStrategy(enable=False), use) == 0


def test_what_rested_on_a_forecast_is_not_known_and_without_one_the_policy_lends_what_usage_does() -> None:
    by_forecast = replace_strategy(cpu_policy="forecast")
    assert np.isnan(past_batch(by_forecast, past_use(), peak=7_000.0))
    # 16,000 - 40 % - 500 - 5,000 = 4,100
    assert past_batch(by_forecast, past_use()) == past_batch(ON, past_use()) == 4_100


@pytest.mark.parametrize(
    ("strategy", "use", "expected"),
    [
        (ON, past_use(), None),
        # nothing was requested by prod: nothing of it can be given to mid
        (ON, past_use(prod_request=0.0), 0.0),
        # the cap of 0 % holds whatever was forecast
        (replace_strategy(mid_cpu_percent=0), past_use(), 0.0),
        # 10 % of 16,000
        (replace_strategy(mid_mode="static", mid_static_cpu_percent=10), past_use(), 1_600.0),
        # the unrequested share, 16,000 - 500 - 8,000 = 7,500, alone is above the cap of 10 %
        (replace_strategy(mid_cpu_percent=10, mid_unallocated_percent=100), past_use(), 1_600.0),
        (ColocationStrategy(enable=False), past_use(), 0.0),
    ],
)
def test_mid_of_the_past_is_known_where_no_forecast_could_change_it(
    strategy: ColocationStrategy, use: PastUse, expected: float | None
) -> None:
    amount = lendable.past(lender(strategy), use).amounts[Band.MID][0, 0]
    assert np.isnan(amount) if expected is None else amount == expected


@pytest.mark.parametrize(
    ("strategy", "age_seconds", "batch", "mid"),
    [
        # mid rests on the unused part of prod's requests, which only a forecast of then would say; batch on use alone
        (ON, 0.0, Reason.OK, Reason.PAST_BY_FORECAST),
        # the policy takes the forecast's peak, which the node has
        (replace_strategy(cpu_policy="forecast"), 0.0, Reason.PAST_BY_FORECAST, Reason.PAST_BY_FORECAST),
        # a static mid needs no forecast
        (replace_strategy(mid_mode="static", mid_static_cpu_percent=10), 0.0, Reason.OK, Reason.OK),
        # no report: no forecast could have helped
        (replace_strategy(cpu_policy="forecast"), float("nan"), Reason.PAST_NOT_MEASURED, Reason.PAST_NOT_MEASURED),
        # off is nothing, which is known
        (ColocationStrategy(enable=False), 0.0, Reason.OK, Reason.OK),
    ],
)
def test_each_node_has_the_reason_why_its_past_is_missing(
    strategy: ColocationStrategy, age_seconds: float, batch: Reason, mid: Reason
) -> None:
    use = past_use(age_seconds=age_seconds, node_used=float("nan") if np.isnan(age_seconds) else 5_500.0)
    amounts = lendable.past(lender(strategy, peak=7_000.0), use)
    assert {band: amounts.reasons(band) for band in Band} == {Band.BATCH: (batch,), Band.MID: (mid,)}
    for band, (reason,) in {band: amounts.reasons(band) for band in Band}.items():
        assert np.isnan(amounts.amounts[band]).any() == (reason is not Reason.OK)


def ahead(of: Lender, *prod: float) -> dict[Band, list[float]]:
    return {band: line[0].tolist() for band, line in lendable.ahead(of, np.array([prod])).items()}


def test_ahead_batch_falls_as_prod_rises_and_all_else_stays() -> None:
    # now: 16,000 - 40 % - 500 - 5,000 = 4,100; with prod at 3, 4, 6 and 12 of the 4 cores of now
    assert ahead(lender(), 3_000, 4_000, 6_000, 12_000)[Band.BATCH] == [5_100, 4_100, 2_100, 0]
    # mid: min(2,500, 16,000 - node use), the node's use rises with prod's: 16,000 - (5,500 + 9,000) = 1,500
    assert ahead(lender(), 4_000, 13_000)[Band.MID] == [2_500, 1_500]


def test_ahead_a_policy_by_requests_lends_what_it_lends_now_until_use_passes_them() -> None:
    larger = lender(replace_strategy(cpu_policy="maxUsageRequest", cpu_reclaim_percent=100))
    # 16,000 - 500 - 9,500 = 6,000 until prod and mid together use more: 11,000 + 1,000 leave 3,500
    assert ahead(larger, 1_000, 4_000, 11_000)[Band.BATCH] == [6_000, 6_000, 3_500]
    memory = replace(lender().now, resource=Resource.MEMORY)
    by_request = Parameters.of([replace_strategy(memory_policy="request", memory_reclaim_percent=100)], Resource.MEMORY)
    # 16,000 - 200 reserved - 9,000 requested, whatever is used and whether it is forecast or not
    fixed = ahead(Lender(memory, by_request, np.full(1, 15_000.0)), 1_000, float("nan"), 14_000)[Band.BATCH]
    assert fixed == [6_800, 6_800, 6_800]


def test_ahead_a_proven_peak_holds_until_it_is_passed() -> None:
    proven = lender(replace_strategy(cpu_policy="forecast"), peak=0.0, origins=30)
    proven = replace(proven, now=replace(proven.now, prod_peak=np.full(1, 7_000.0), system_peak=np.full(1, 600.0)))
    # 16,000 - 600 - (7,000 + 1,000 of mid) = 7,400; prod at 9 cores passes the peak: 16,000 - 600 - 10,000
    assert ahead(proven, 4_000, 9_000)[Band.BATCH] == [7_400, 5_400]


def test_ahead_of_an_old_report_nothing_is_known_and_without_a_path_what_it_could_change() -> None:
    old = ahead(lender(age_seconds=15 * 60 + 1), 4_000)
    assert np.isnan(old[Band.BATCH]).all() and np.isnan(old[Band.MID]).all()
    unknown = ahead(lender(), float("nan"), 4_000)
    assert np.isnan(unknown[Band.BATCH][0]) and unknown[Band.BATCH][1] == 4_100
    assert ahead(lender(ColocationStrategy(enable=False)), float("nan"))[Band.BATCH] == [0]
    assert ahead(lender(replace_strategy(batch_cpu_percent=0)), float("nan"))[Band.BATCH] == [0]


def test_nodes_in_parts_are_nodes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    many, path = lender(nodes=7), np.linspace(0, 14_000, 7 * 5).reshape(7, 5)
    all_nodes = lendable.ahead(many, path)
    monkeypatch.setattr(lendable, "ROWS_AT_ONCE", 11)
    parts = lendable.ahead(many, path)
    for band in Band:
        np.testing.assert_array_equal(all_nodes[band], parts[band])


SHAPES: Final = st.tuples(st.integers(1, 5), st.integers(1, 6))
AMOUNTS: Final = hnp.arrays(np.float64, SHAPES, elements=st.integers(0, 9).map(float) | st.just(np.nan))


@given(AMOUNTS)
def test_a_sum_is_of_all_nodes_that_are_there_or_it_is_not_known(amounts: np.ndarray) -> None:
    capacity, present = np.ones(len(amounts)), np.ones(amounts.shape, dtype=bool)
    sums = sum_over_nodes(amounts, capacity, present)
    for moment, column in enumerate(amounts.T):
        # with up to five nodes of one size each is more than 2 % of the capacity
        assert np.isnan(sums[moment]) if np.isnan(column).any() else sums[moment] == column.sum()


def test_a_node_that_is_not_there_is_no_gap_and_a_small_silent_one_is_tolerated() -> None:
    amounts = np.array([[5.0, 5.0, 5.0], [np.nan, 3.0, np.nan]])
    present = np.array([[True] * 3, [False, True, True]])
    # before the second node came its part is nothing; when it is silent the sum is not known
    assert sum_over_nodes(amounts, np.ones(2), present)[:2].tolist() == [5, 8]
    assert np.isnan(sum_over_nodes(amounts, np.ones(2), present)[2])
    small = np.array([1.0, TOLERATED_SILENT])
    assert sum_over_nodes(amounts, small, present)[2] == 5
