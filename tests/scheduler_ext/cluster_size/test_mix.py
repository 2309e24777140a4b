"""The cheapest mix of machine types: small clusters by hand, and what holds for every mix."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.scheduler_ext.cluster_size.machines.bills import batch_alone
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix, cheapest_mix
from cotenant.scheduler_ext.cluster_size.machines.prototypes import prototypes_of
from cotenant.scheduler_ext.cluster_size.machines.shapes import parse_shapes
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizeOptions
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state
from tests.support.sized_clusters import SeededCluster, state_of

Json = dict[str, Any]
HEAD = "machine_type,price_per_hour,currency,allocatable_cpu,allocatable_memory,pods,capacity_type\n"
SMALL = "small,1,USD,2,64Gi,10,on-demand\n"
LARGE = "large,3,USD,8,64Gi,10,on-demand\n"


def requesting(cpu: str, memory: str = "1Mi", **spec: Any) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}], **spec}


def mix(cluster: SizedCluster, lines: str = SMALL + LARGE, **more: Any) -> Mix:
    prototypes = prototypes_of(cluster, parse_shapes(HEAD + lines, "s.csv").types)
    return cheapest_mix(cluster, prototypes.found, more.pop("monthly", {}), **more)


def counts(node_mix: Mix) -> dict[str, int]:
    totals: dict[str, int] = {}
    for line in node_mix.lines:
        totals[line.machine] = totals.get(line.machine, 0) + line.count
    return totals


def hourly(node_mix: Mix) -> float:
    assert node_mix.price_month is not None, node_mix.reason
    return node_mix.price_month / HOURS_PER_MONTH


def pods(count: int, cpu: str = "1", **more: Any) -> list[Json]:
    return [pod(f"p{n}", "a", requesting(cpu), **more) for n in range(count)]


IN_B = {"topology.kubernetes.io/zone": "b"}
DAEMON = {"owners": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}
ONE = [node("a")]
CASES: dict[str, tuple[SizedCluster, dict[str, int], float]] = {
    # 8 pods of a core: one large for 3 is less than four small for 4.
    "one large": (state(ONE, pods(8)), {"large": 1}, 3.0),
    # 2 pods of a core: one small for 1.
    "one small": (state(ONE, pods(2)), {"small": 1}, 1.0),
    # 10 cores: a large and a small for 4; two large would be 6, five small 5.
    "both": (state(ONE, pods(10)), {"large": 1, "small": 1}, 4.0),
    # 20 pods of nearly nothing: 10 a node, so two small.
    "pod count": (state(ONE, pods(20, "1m")), {"small": 2}, 2.0),
    # A DaemonSet takes a core of every new node: 7 pods of a core fit on a large, a small has one core left for 1.
    "DaemonSets": (state(ONE, [pod("d", "a", requesting("1"), **DAEMON), *pods(7)]), {"large": 1}, 3.0),
    # A pod that only zone b may run needs a node there.
    "zones": (
        state([node("a"), node("b")], [pod("p", "b", requesting("1", nodeSelector=IN_B))]),
        {"small": 1},
        1.0,
    ),
    "nothing runs": (state(ONE, []), {}, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_mix_of_a_small_cluster_is_the_one_by_hand(case: str) -> None:
    cluster, expected, price = CASES[case]
    node_mix = mix(cluster)
    assert (counts(node_mix), node_mix.reason) == (expected, "")
    assert hourly(node_mix) == pytest.approx(price) and node_mix.kept == ()


def test_the_bound_is_what_parts_of_nodes_would_cost() -> None:
    # 10 cores at the price of large, 3 / 8 a core: 3.75; whole nodes cost 4.
    node_mix = mix(state(ONE, pods(10)))
    assert node_mix.bound_month == pytest.approx(3.75 * HOURS_PER_MONTH)
    assert node_mix.price_by_bound == pytest.approx(4 / 3.75)


def test_a_node_that_cannot_leave_stays_with_its_price_and_takes_pods() -> None:
    # The pod without controller keeps a, whose other 3 cores hold 3 of the 5 pods; the 2 left need one small.
    fixed = pod("fixed", "a", requesting("1"), owners=[])
    node_mix = mix(state([node("a"), node("b")], [fixed, *pods(5)]), monthly={"a": 100.0, "b": 100.0})
    assert node_mix.kept == ("a",) and counts(node_mix) == {"small": 1}
    assert node_mix.price_month == pytest.approx(100 + HOURS_PER_MONTH)


def test_a_pod_that_no_machine_of_the_list_could_hold_keeps_its_node() -> None:
    wide = pod("wide", "a", requesting("3"))
    node_mix = mix(state([node("a"), node("b")], [wide, pod("p", "b", requesting("1"))]), SMALL)
    # a has 4 cores, 3 of them taken: the other pod fits there.
    assert node_mix.kept == ("a",) and counts(node_mix) == {} and node_mix.unpriced == 1


def test_a_reserve_of_one_node_costs_one_node_more() -> None:
    cluster = state(ONE, pods(2))
    assert counts(mix(cluster, SMALL)) == {"small": 1}
    assert counts(mix(cluster, SMALL, options=SizeOptions(reserve_nodes=1))) == {"small": 2}


def test_a_reserve_of_a_zone_has_what_a_zone_needs_in_every_other() -> None:
    # Two zones: each alone must hold the 4 pods, two small in each.
    node_mix = mix(state([node("a"), node("b")], pods(4)), SMALL, options=SizeOptions(reserve_zone=True))
    assert {(line.zone, line.count) for line in node_mix.lines} == {("a", 2), ("b", 2)}


SPOT = "small,0.1,USD,2,64Gi,10,spot\n"
SPOT_LABEL = {"karpenter.sh/capacity-type": "spot"}


@pytest.mark.parametrize(("on", "expected", "price"), [("s", {"small": 1, "small (spot)": 1}, 1.1), ("a", {}, 0.0)])
def test_spot_machines_take_only_workloads_that_run_on_a_spot_node_now(
    on: str, expected: dict[str, int], price: float
) -> None:
    # Where the batch pods run on an ordinary node, two small ones hold both pods, for 1 an hour each.
    owners = [{"kind": "ReplicaSet", "name": "batch", "controller": True}]
    selecting = requesting("2", nodeSelector=SPOT_LABEL) if on == "s" else requesting("2")
    bodies = [pod("web", "a", requesting("2")), pod("batch", on, selecting, owners=owners)]
    node_mix = mix(state([node("a"), node("s", labels=SPOT_LABEL)], bodies), SMALL + SPOT)
    assert counts(node_mix) == (expected or {"small": 2}) and hourly(node_mix) == pytest.approx(price or 2.0)


def test_without_a_usable_machine_type_there_is_a_reason_and_no_number() -> None:
    node_mix = cheapest_mix(state(ONE, pods(1)), (), {})
    assert node_mix.price_month is None and node_mix.reason == "no listed machine type can be used in this cluster"


def test_batch_work_on_lent_capacity_is_priced_on_nodes_of_its_own() -> None:
    lent = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "1Gi"}
    body = {"containers": [{"name": "main", "resources": {"requests": lent}}]}
    cluster = state(ONE, [pod("job1", "a", body), pod("job2", "a", body), *pods(1)])
    alone = batch_alone(cluster, prototypes_of(cluster, parse_shapes(HEAD + SMALL + LARGE, "s.csv").types).found)
    # Two pods of 4 batch cores each: one large node of 8 cores, for 3 an hour.
    assert (alone.pods, alone.millicores, alone.memory_bytes) == (2, 8_000, 2 << 30)
    assert alone.mix is not None and counts(alone.mix) == {"large": 1}
    assert alone.price_month == pytest.approx(3 * HOURS_PER_MONTH)


def test_without_batch_work_there_is_nothing_to_price() -> None:
    cluster = state(ONE, pods(2))
    assert batch_alone(cluster, ()).pods == 0 and batch_alone(cluster, ()).price_month is None


@settings(max_examples=6, deadline=None)
@given(
    requests=st.lists(st.integers(50, 4_000), min_size=1, max_size=25),
    price=st.floats(0.1, 5),
    reserve=st.sampled_from([0, 1]),
)
def test_no_mix_is_cheaper_than_the_bound_and_its_nodes_have_what_the_pods_request(
    requests: list[int], price: float, reserve: int
) -> None:
    cluster = state([node("a"), node("b")], [pod(f"p{n}", "a", requesting(f"{m}m")) for n, m in enumerate(requests)])
    lines = f"small,{price},USD,2,64Gi,10,on-demand\n" + LARGE
    node_mix = mix(cluster, lines, options=SizeOptions(reserve_nodes=reserve))
    # 4 cores and more fit on a large node alone, of 8.
    assert node_mix.price_month is not None and node_mix.bound_month is not None and node_mix.placed == len(requests)
    assert node_mix.price_month >= node_mix.bound_month - 1e-6
    cores = {"small": 2_000, "large": 8_000}
    assert sum(cores[line.machine] * line.count for line in node_mix.lines) >= sum(requests)
    assert sum(10 * line.count for line in node_mix.lines) >= len(requests)
    assert math.isclose(node_mix.price_month, sum(line.price_month for line in node_mix.lines), rel_tol=1e-9)


@pytest.mark.slow
def test_a_cluster_with_every_kind_of_rule_gets_a_mix_above_its_bound() -> None:
    cluster = state_of(SeededCluster.of(1, nodes=18, fill=0.4))
    lines = "small,1,USD,4,16Gi,58,\nmiddle,1.9,USD,8,32Gi,110,\nlarge,3.7,USD,16,64Gi,110,\n"
    node_mix = mix(cluster, lines)
    assert node_mix.reason == "" and node_mix.price_by_bound is not None
    assert 1.0 <= node_mix.price_by_bound < 1.6
