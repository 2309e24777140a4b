"""Koordinator's batch and mid formulas: worked numbers, degrade, and what must hold for any input."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import Band, Reclaimable
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation import formulas
from cotenant.recommender.colocation.columns import NodeColumns
from cotenant.recommender.colocation.formulas import Parameters
from cotenant.recommender.colocation.inventory import Usages, node_columns, pod_columns
from cotenant.recommender.settings import ReclaimableSettings

NOW = 1_700_000_000
CPU, MEMORY = Resource.CPU, Resource.MEMORY


FLOATS = {"prod_peak": np.nan, "system_peak": np.nan, "mid_peak": 0.0, "violation": np.nan, "cpu_ratio": 1.0}


def columns(resource: Resource = CPU, measured: float = NOW, **terms: float) -> NodeColumns:
    """One node; every term that is not given is 0, and there is no forecast."""
    names = [f.name for f in fields(NodeColumns) if f.name not in ("nodes", "resource", "measured_seconds")]
    given_terms: dict[str, Any] = {
        n: np.array([terms.get(n, FLOATS.get(n, 0))], dtype=np.float64 if n in FLOATS else np.int64) for n in names
    }
    return NodeColumns(nodes=("n",), resource=resource, measured_seconds=np.array([measured]), **given_terms)


def batch(node: NodeColumns, settings: ReclaimableSettings, now: float) -> list[Reclaimable]:
    return list(formulas.batch(node, parameters(node, ColocationStrategy.of_settings(settings)), now).messages())


def mid(node: NodeColumns, settings: ReclaimableSettings, now: float) -> list[Reclaimable]:
    return list(formulas.mid(node, parameters(node, ColocationStrategy.of_settings(settings)), now).messages())


def parameters(node: NodeColumns, strategy: ColocationStrategy) -> Parameters:
    return Parameters.of([strategy] * len(node.nodes), node.resource)


def test_prod_reclaimable_is_what_was_requested_and_the_node_has_less_the_peak() -> None:
    # min(1000, 4000) - 550 = 450; min(1000, 800) - 550 = 250; 1000 - 1100 < 0; a peak that is not known: nothing
    requested, room = np.full(4, 1000.0), np.array([4000.0, 800.0, 4000.0, 4000.0])
    amounts = formulas.prod_reclaimable(requested, room, np.array([550.0, 550.0, 1100.0, np.nan]))
    np.testing.assert_allclose(amounts, [450.0, 250.0, 0.0, 0.0])


def test_the_worked_number_of_the_documentation() -> None:
    # capacity 100 cores, reclaim 65 % -> margin 35; system 7; HP pods use 11 + 22: 100 - 35 - 7 - 33 = 25 cores
    node = columns(capacity=100_000, system_used=7_000, hp_used=33_000)
    (reclaimable,) = batch(node, ReclaimableSettings(cpu_reclaim_percent=65), NOW)
    assert reclaimable.amount == 25_000
    assert reclaimable.band is Band.BATCH
    assert reclaimable.reason is Reason.OK
    assert dict(reclaimable.terms) == {
        "capacity": 100_000,
        "safety_margin": 35_000,
        "system_used": 7_000,
        "hp_used": 33_000,
    }


def test_each_policy_subtracts_its_own_terms() -> None:
    node = columns(MEMORY, capacity=1000, reserved=100, system_used=50, hp_used=200, hp_request=400, hp_max=450)
    amounts = {
        policy: batch(node, ReclaimableSettings(memory_policy=policy, memory_reclaim_percent=90), NOW)[0].amount
        for policy in ("usage", "request", "maxUsageRequest")
    }
    # margin 100; system counts with max(50, reserved 100): usage 1000-100-100-200, request 1000-100-100-400, max -450
    assert amounts == {"usage": 600, "request": 400, "maxUsageRequest": 350}


def test_a_cap_limits_batch_and_is_shown() -> None:
    (reclaimable,) = batch(
        columns(capacity=1000), ReclaimableSettings(cpu_reclaim_percent=100, batch_cpu_percent=30), NOW
    )
    assert (reclaimable.amount, reclaimable.terms["cap"]) == (300, 300)


def test_a_percentage_of_capacity_is_cut_as_upstream_does() -> None:
    # 0.29 * 100 is 28.999999999999996 in a double; upstream cuts it to 28
    (reclaimable,) = batch(columns(capacity=100), ReclaimableSettings(cpu_reclaim_percent=71), NOW)
    assert reclaimable.terms["safety_margin"] == 28


def test_mid_takes_the_smaller_of_forecast_and_unused_plus_a_share_of_the_unallocated() -> None:
    settings = ReclaimableSettings(mid_unallocated_percent=10, mid_cpu_percent=50)
    node = columns(
        capacity=10_000, reserved=500, system_used=1_000, node_used=4_000, prod_request=6_000, prod_reclaimable=2_500
    )
    # unused 6000 > 2500; unallocated 10000 - max(1000, 500) - 6000 = 3000, of which 10 % = 300; cap 5000
    (reclaimable,) = mid(node, settings, NOW)
    assert reclaimable.amount == 2_800
    assert reclaimable.terms == {
        "capacity": 10_000, "prod_reclaimable": 2_500, "unused": 6_000, "unallocated_share": 300, "cap": 5_000,
    }  # fmt: skip
    static = ReclaimableSettings(mid_mode="static", mid_static_cpu_percent=20, mid_cpu_percent=15)
    assert mid(node, static, NOW)[0].amount == 1_500  # min(20 %, 15 %)


def test_without_a_forecast_mid_has_only_the_unallocated_share_and_is_not_degraded() -> None:
    (reclaimable,) = mid(columns(capacity=1000), ReclaimableSettings(mid_unallocated_percent=50), NOW)
    assert (reclaimable.amount, reclaimable.reason) == (500, Reason.OK)


@pytest.mark.parametrize("formula", [batch, mid])
def test_a_missing_or_old_metric_withdraws_the_capacity_with_its_reason(formula: Any) -> None:
    settings = ReclaimableSettings(mid_unallocated_percent=50)
    at_limit, late = columns(capacity=1000, measured=NOW - 900), columns(capacity=1000, measured=NOW - 901)
    missing = columns(capacity=1000, measured=float("nan"))
    assert formula(at_limit, settings, NOW)[0].amount > 0  # "older than 15 min" is strict
    assert [(r.amount, r.reason) for r in formula(late, settings, NOW)] == [(0, Reason.METRIC_EXPIRED)]
    assert [(r.amount, r.reason) for r in formula(missing, settings, NOW)] == [(0, Reason.METRIC_MISSING)]


def pod(name: str, *, qos: str = "", priority: str = "", cpu: int = 0, ended: bool = False) -> Pod:
    ref = WorkloadRef("ns", "Deployment", name)
    end = NOW - 60 if ended else None
    requests = {CPU: cpu, MEMORY: cpu * GIB}
    return Pod("ns", name, ref, "n", 0, end, qos=QosClass(qos), priority=PriorityClass(priority), requests=requests)


def inventory(*pods: Pod) -> Inventory:
    node = Node("n", {CPU: 10_000, MEMORY: 64 * GIB}, {CPU: 9_500, MEMORY: 60 * GIB})
    return Inventory("c", NOW, (node,), (), pods)


def test_pods_are_summed_by_class_and_by_what_is_known_of_them() -> None:
    pods = [
        pod("measured", priority="koord-prod", cpu=1000),  # used 300
        pod("silent", priority="koord-prod", cpu=700),  # no metric: its request counts as used
        pod("exclusive", qos="LSE", cpu=2000),  # used 100: an LSE pod counts with its CPU request
        pod("plain", cpu=400),  # no class: high priority, used 500
        pod("middle", priority="koord-mid", cpu=50),  # used 40
        pod("filler", qos="BE", cpu=5000),  # batch by default: not an owner, used 600
        pod("finished", priority="koord-prod", cpu=900, ended=True),  # dangling metric 20
        pod("finished-filler", qos="BE", cpu=900, ended=True),  # dangling metric of batch, 30
    ]
    used = {
        "measured": 300,
        "exclusive": 100,
        "plain": 500,
        "middle": 40,
        "filler": 600,
        "finished": 20,
        "finished-filler": 30,
    }
    now = Usages({"n": 2000.0}, {"n": float(NOW)}, {"n": 111.0})
    measured = {CPU: {("ns", k): float(v) for k, v in used.items()}, MEMORY: {("ns", "exclusive"): 5.0}}
    columns = pod_columns(inventory(*pods), measured)
    per_node = node_columns(inventory(*pods), CPU, now, columns)
    assert per_node.hp_used.tolist() == [300 + 700 + 2000 + 500 + 40 + 20]
    assert per_node.hp_request.tolist() == [1000 + 700 + 2000 + 400 + 50]
    assert per_node.hp_max.tolist() == [1000 + 700 + 2000 + 500 + 50 + 20]
    assert per_node.prod_request.tolist() == [
        1000 + 700 + 2000 + 400
    ]  # LSE defaults to prod; mid and batch do not count
    assert per_node.system_used.tolist() == [2000 - (300 + 100 + 500 + 40 + 600 + 20 + 30)]
    assert per_node.reserved.tolist() == [500]
    assert per_node.prod_reclaimable.tolist() == [111]
    memory = node_columns(inventory(*pods), MEMORY, now, columns)
    assert memory.hp_used.tolist() == [(1000 + 700 + 400 + 50) * GIB + 5]  # memory of LSE counts by usage


def test_a_node_without_a_number_is_not_measured() -> None:
    for nodes in ({}, {"n": float("nan")}, {"n": float("inf")}):
        per_node = node_columns(inventory(), CPU, Usages(nodes, {"n": float(NOW)}), pod_columns(inventory(), {}))
        assert batch(per_node, ReclaimableSettings(), NOW)[0].reason is Reason.METRIC_MISSING


def test_a_node_without_normalization_gets_nothing_more_however_large_it_is() -> None:
    # 1000 times this amount is not a whole number in a double
    assert formulas.normalization(np.array([2**48 - 10]), np.array([1.0])).tolist() == [0]
    assert formulas.normalization(np.array([1000]), np.array([1.2])).tolist() == [200]


amounts = st.integers(0, 2**50)
percents = st.integers(0, 100)
some_settings = st.builds(
    ReclaimableSettings,
    cpu_policy=st.sampled_from(["usage", "maxUsageRequest"]),
    memory_policy=st.sampled_from(["usage", "request", "maxUsageRequest"]),
    cpu_reclaim_percent=percents,
    memory_reclaim_percent=percents,
    batch_cpu_percent=st.none() | percents,
    mid_cpu_percent=percents,
    mid_unallocated_percent=percents,
    mid_mode=st.sampled_from(["dynamic", "static"]),
    mid_static_cpu_percent=percents,
)
some_columns = st.builds(
    columns,
    st.sampled_from(Resource),
    **dict.fromkeys(("capacity", "reserved", "system_used", "node_used", "hp_used", "hp_request", "hp_max"), amounts),
    prod_request=amounts,
    prod_reclaimable=amounts,
)
TERMS = ("reserved", "system_used", "node_used", "hp_used", "hp_request", "hp_max", "prod_request")


@given(some_columns, some_settings, st.sampled_from(TERMS), amounts)
def test_more_usage_never_frees_capacity_and_the_amount_stays_between_zero_and_the_node(
    node: NodeColumns, settings: ReclaimableSettings, term: str, more: int
) -> None:
    busier = replace(node, **{term: getattr(node, term) + more})
    for formula in (batch, mid):
        before, after = formula(node, settings, NOW)[0].amount, formula(busier, settings, NOW)[0].amount
        assert 0 <= after <= before <= node.capacity[0]


forecast_settings = st.builds(
    ReclaimableSettings,
    cpu_policy=st.just("forecast"),
    memory_policy=st.just("forecast"),
    cpu_reclaim_percent=percents,
    memory_reclaim_percent=percents,
    batch_cpu_percent=st.none() | percents,
)


@st.composite
def foreseen_nodes(draw: st.DrawFn) -> NodeColumns:
    """A node with a forecast of prod and of the system, tested on 0..9 days; mid pods are within HP usage."""
    node, prod = draw(some_columns), draw(amounts)
    peaks: dict[str, Any] = {
        name: np.array([float(draw(amounts))]) for name in ("prod_peak", "system_peak", "mid_peak")
    }
    used = np.array([prod]), np.array([prod + draw(amounts)])
    evidence = np.array([draw(st.sampled_from([0.0, 0.1, 0.11, np.nan]))]), np.array([draw(st.integers(0, 9))])
    return replace(node, prod_used=used[0], hp_used=used[1], violation=evidence[0], origins=evidence[1], **peaks)


def plain(settings: ReclaimableSettings, policy: str) -> ReclaimableSettings:
    return structs.replace(settings, cpu_policy=policy, memory_policy=policy)


@given(foreseen_nodes(), forecast_settings)
def test_a_proven_forecast_keeps_peaks_back_and_no_percentage_an_unproven_one_lends_no_more_than_usage(
    node: NodeColumns, settings: ReclaimableSettings
) -> None:
    reclaimable = batch(node, settings, NOW)[0]
    by_usage = batch(node, plain(settings, "usage"), NOW)[0]
    proven = node.origins[0] >= 5 and node.violation[0] <= 0.1
    assert ("safety_margin" in reclaimable.terms, "system_peak" in reclaimable.terms) == (not proven, proven)
    # whatever is known of the next 24 hours is never lent
    kept_back = max(node.prod_peak[0], node.prod_used[0]) + node.hp_used[0] - node.prod_used[0]
    assert reclaimable.amount <= max(node.capacity[0] - kept_back - max(node.system_used[0], node.reserved[0]), 0)
    if proven:
        assert reclaimable.amount <= max(node.capacity[0] - kept_back - node.system_peak[0], 0)
    else:
        assert reclaimable.amount <= by_usage.amount
    assert reclaimable.amount == max(
        min(reclaimable.terms["capacity"] - sum(taken(reclaimable).values()), reclaimable.terms.get("cap", 2**60)), 0
    )


def taken(reclaimable: Reclaimable) -> dict[str, int]:
    return {name: value for name, value in reclaimable.terms.items() if name not in ("capacity", "cap")}


@given(
    foreseen_nodes(),
    forecast_settings,
    st.sampled_from(["hp_used", "system_used", "prod_peak", "system_peak", "mid_peak"]),
    amounts,
)
def test_a_higher_forecast_or_use_never_frees_capacity(
    node: NodeColumns, settings: ReclaimableSettings, term: str, more: int
) -> None:
    busier = replace(node, **{term: getattr(node, term) + more})
    assert batch(busier, settings, NOW)[0].amount <= batch(node, settings, NOW)[0].amount


@given(foreseen_nodes(), forecast_settings, st.integers(101, 1000))
def test_a_reclaim_percentage_above_100_lends_no_more_than_the_node_under_forecast(
    node: NodeColumns, settings: ReclaimableSettings, percent: int
) -> None:
    strategy = structs.replace(
        ColocationStrategy.of_settings(settings), cpu_reclaim_percent=percent, memory_reclaim_percent=percent
    )
    amount = formulas.batch(node, parameters(node, strategy), NOW).message(0).amount
    assert amount <= max(node.capacity[0] - node.hp_used[0] - node.system_used[0], 0)


def test_a_proven_forecast_without_its_margin_by_hand() -> None:
    # 100 cores less a system that peaks at 9 (7 now) and a peak of 40 for prod: 51; by usage 100 - 40 - 7 - 20 = 33
    node = columns(
        capacity=100_000, system_used=7_000, hp_used=20_000, prod_used=20_000, prod_peak=40_000, system_peak=9_000,
        violation=0.01, origins=20,
    )  # fmt: skip
    settings = ReclaimableSettings(cpu_policy="forecast")
    reclaimable = batch(node, settings, NOW)[0]
    assert (reclaimable.amount, taken(reclaimable)) == (51_000, {"system_peak": 9_000, "hp_peak": 40_000})
    assert batch(node, plain(settings, "usage"), NOW)[0].amount == 33_000
    # what the system will need is not known: Koordinator's margin stays, 100 - 40 - 7 - 40
    assert batch(replace(node, system_peak=np.array([np.nan])), settings, NOW)[0].amount == 13_000
    # mid pods use 3 of the 23 now and used 8 at their highest: 100 - 9 - (40 + 8)
    mid = replace(node, hp_used=np.array([23_000]), mid_peak=np.array([8_000.0]))
    assert batch(mid, settings, NOW)[0].amount == 43_000


@given(some_columns, some_settings)
def test_the_batch_amount_can_be_computed_again_from_its_terms(
    node: NodeColumns, settings: ReclaimableSettings
) -> None:
    (reclaimable,) = batch(node, settings, NOW)
    terms = dict(reclaimable.terms)
    capacity, cap = terms.pop("capacity"), terms.pop("cap", 2**60)
    assert reclaimable.amount == max(min(capacity - sum(terms.values()), cap), 0)


wild = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1e6)


@given(wild, wild, wild, wild)
def test_absurd_metrics_never_give_capacity_that_is_not_there(
    pod_used: float, node_used: float, at: float, prod: float
) -> None:
    now, pod_inventory = (
        Usages({"n": node_used}, {"n": at}, {"n": prod}),
        inventory(pod("a", priority="koord-prod", cpu=100)),
    )
    per_node = node_columns(pod_inventory, CPU, now, pod_columns(pod_inventory, {CPU: {("ns", "a"): pod_used}}))
    for message in (*batch(per_node, ReclaimableSettings(), NOW), *mid(per_node, ReclaimableSettings(), NOW)):
        assert 0 <= message.amount <= 10_000
        assert message.amount == 0 or message.reason is Reason.OK
