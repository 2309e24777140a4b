"""A round of LowNodeLoad: who is high, who leaves, where to, at which price. Thresholds 40/70 % CPU, 40/80 % memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rebalance import rebalance_round
from cotenant.base.kubernetes.observed import LAG_SECONDS
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors
from cotenant.scheduler_ext.rebalance.classification import NodeClass, table_of
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.load import NEVER, DisruptionBudget
from cotenant.scheduler_ext.rebalance.plan import RebalancePlan
from cotenant.scheduler_ext.volumes.bound_volumes import BoundVolume
from tests.scheduler_ext.rebalance.small_cluster import MEMORY, NOW, arguments, inputs, node, pod, without_memory
from tests.support.approximate import about

EMPTY = "node-empty"


def observed(*loads: Any, load: Any = None, **migration: Any) -> RebalancePlan:
    return decide(inputs(*loads), arguments(load, **migration), with_forecast=False)


def moves(plan: RebalancePlan) -> list[tuple[str, str, str]]:
    return [(m.pod.removeprefix("shop/"), m.source, m.target) for m in plan.moves]


def reasons(plan: RebalancePlan) -> dict[str, Reason]:
    return {r.pod.removeprefix("shop/"): r.reason for r in plan.refusals}


def test_pods_leave_until_the_node_is_under_its_threshold() -> None:
    # 90 % - 12 % = 78 % is above 70 %; - 10 % = 68 % is not, so that the third pod stays. Largest usage first.
    hot = node("hot", pod("a-1", 12), pod("b-1", 10), pod("c-1", 9), system=59)
    plan = observed(hot, node(EMPTY, system=5))
    assert moves(plan) == [("a-1", "hot", EMPTY), ("b-1", "hot", EMPTY)]
    loads = {n.name: n for n in plan.nodes}
    assert loads["hot"].load is NodeClass.HIGH and loads[EMPTY].load is NodeClass.LOW
    assert loads["hot"].now[0] == pytest.approx(0.90) and loads["hot"].after[0] == pytest.approx(0.68)
    assert loads[EMPTY].after[0] == pytest.approx(0.05 + 0.22)
    assert plan.refusals == () and plan.stops == ()


def test_the_price_of_a_move_is_in_node_seconds() -> None:
    # above 70 % by 20 points; pod 12 % of the node, away 10 s, batch risk 2: gain 0.12 x 1800, cost 10 x 0.12 x 2
    plan = observed(node("hot", pod("a-1", 12), system=78), node(EMPTY))
    (move,) = plan.moves
    assert (move.price.gain, move.price.cost) == pytest.approx((216.0, 2.4))
    assert (move.price.restart_seconds, move.price.overload_seconds) == (10.0, 1800.0)


def test_a_move_that_does_not_pay_stays() -> None:
    # above by 1 point: gain 0.01 x 1800 = 18; a prod pod of 12 % that starts in 60 s costs 60 x 0.12 x 10 = 72
    slow = pod("a-1", 12, priority_class=PriorityClass.PROD, ready_seconds=None)
    assert reasons(observed(node("hot", slow, system=59), node(EMPTY))) == {"a-1": Reason.MOVE_DOES_NOT_PAY}
    job = Reference("Job", "train", "shop", "", "batch/v1", True)
    # a Job's pod loses a day of work: 86,410 s x 0.12 x 2 is more than 0.12 x 1800
    lost = pod("train-1", 12, owner=job)
    assert reasons(observed(node("hot", lost, system=78), node(EMPTY))) == {"train-1": Reason.MOVE_DOES_NOT_PAY}
    idle = pod("idle-1", 0, memory_percent=20)
    assert reasons(observed(node("hot", idle, system=75), node(EMPTY))) == {"idle-1": Reason.NOTHING_GAINED}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"owner": Reference("DaemonSet", "d", "shop", "", "apps/v1", True)}, Reason.DAEMON_POD),
        ({"owner": None}, Reason.NO_CONTROLLER),
        ({"static": True}, Reason.STATIC_POD),
        ({"local_storage": True}, Reason.LOCAL_STORAGE),
        ({"priority": 2_000_000_000}, Reason.SYSTEM_CRITICAL),
        ({"eviction_cost": NEVER}, Reason.EVICTION_COST),
        ({"leaving": True}, Reason.POD_LEAVING),
        ({"leaving": True, "gone_by_seconds": NOW - LAG_SECONDS}, Reason.POD_STUCK),
        ({"placeholder_of": "held"}, Reason.PLACEHOLDER_POD),
        ({"placed": NOW - 60}, Reason.STARTED_LATELY),
        ({"requests": {"cpu": 20_000}}, Reason.NO_NODE_FITS),
        ({"placement": b'{"nodeSelector":{"disk":"ssd"}}'}, Reason.NO_NODE_FITS),
        ({}, Reason.OK),
    ],
)
def test_which_pods_may_be_moved(changes: dict[str, Any], reason: Reason) -> None:
    plan = observed(node("hot", pod("a-1", 20, **changes), system=75), node(EMPTY))
    assert reasons(plan).get("a-1", Reason.OK) is reason
    assert len(plan.moves) == (reason is Reason.OK)


def test_a_pod_whose_memory_nobody_measured_is_not_moved() -> None:
    hot = without_memory(node("hot", pod("a-1", 20, memory_percent=30), system=75), 50)
    plan = observed(hot, node(EMPTY))
    assert reasons(plan) == {"a-1": Reason.POD_UNMEASURED} and not plan.moves
    # the node's own memory is measured: that of its pods is the rest of it
    assert {n.name: n.now[1] for n in plan.nodes} == pytest.approx({"hot": 0.5, EMPTY: 0.0})


@pytest.mark.parametrize(("memory", "moved"), [(39, True), (41, False)])
def test_a_node_receives_nothing_beside_memory_that_no_pod_s_report_has(memory: int, moved: bool) -> None:
    # 40 % is what a receiver may use at most
    hot = node("hot", pod("a-1", 20, memory_percent=10), system=75)
    plan = observed(hot, without_memory(node("other", pod("b-1", 1)), memory))
    assert bool(plan.moves) is moved


def test_unmeasured_memory_counts_for_prod_where_it_may_be_prods() -> None:
    def prod_memory(priority_class: PriorityClass) -> float:
        other = without_memory(node("n", pod("a-1", 1, priority_class=priority_class)), 30)
        return table_of(inputs(other), 0).prod[0, 1] / MEMORY

    assert prod_memory(PriorityClass.PROD) == pytest.approx(0.3)
    assert prod_memory(PriorityClass.BATCH) == 0


def usable_on(*nodes: str) -> tuple[bytes, ...]:
    """Volumes, the last of which only these nodes can use."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}]
    anywhere = [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["none"]}]}]
    return tuple(msgspec.json.encode({"nodeSelectorTerms": selector_terms}) for selector_terms in (anywhere, terms))


@pytest.mark.parametrize("node_fit", [True, False])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"volumes": usable_on("hot", EMPTY)}, Reason.OK),
        ({"volumes": ()}, Reason.OK),
        # its own node alone, and a node that is gone
        ({"volumes": usable_on("hot")}, Reason.VOLUME_ON_NODE),
        ({"volumes": usable_on("gone")}, Reason.VOLUME_ON_NODE),
        ({"volumes": (), "on_one_node": True}, Reason.VOLUME_ON_NODE),
        # another node of the zone, which is no receiver
        ({"volumes": usable_on("hot", "between")}, Reason.NO_NODE_FITS),
        ({"volumes": None}, Reason.VOLUME_UNKNOWN),
    ],
)
def test_a_pod_leaves_only_for_a_node_that_can_use_its_volumes(
    changes: dict[str, Any], reason: Reason, node_fit: bool
) -> None:
    hot = node("hot", pod("a-1", 20, claims=("data",), **changes), system=75)
    plan = observed(hot, node(EMPTY), node("between", system=60), load={"nodeFit": node_fit})
    assert reasons(plan).get("a-1", Reason.OK) is reason
    assert [move.target for move in plan.moves] == ([EMPTY] if reason is Reason.OK else [])


def test_a_volume_of_one_node_binds_a_pod_while_another_pod_uses_it() -> None:
    (sole, _), (pair, _) = pod("a-1", 1, claims=("own",)), pod("b-1", 1, claims=("own", "shared"))
    volumes = {("shop", name): BoundVolume(one_node=True) for name in ("own", "shared")}
    users = {("shop", "own"): 1, ("shop", "shared"): 2}
    assert [rebalance_pod.with_volumes(volumes, users).on_one_node for rebalance_pod in (sole, pair)] == [False, True]
    many = {**volumes, ("shop", "shared"): BoundVolume()}
    assert not pair.with_volumes(many, users).on_one_node
    local = {("shop", "own"): BoundVolume(local=True)}
    assert sole.with_volumes(local, {}).on_one_node
    # not bound, and not read: nothing is known; a pod without claims needs nobody to know
    assert (pair.with_volumes(local, {}).volumes, sole.with_volumes(None, {}).volumes) == (None, None)
    assert pod("c-1", 1)[0].with_volumes(None, {}).volumes == ()


def test_settings_let_pods_be_moved_or_not() -> None:
    hot = node("hot", pod("a-1", 20, local_storage=True), system=70)
    assert moves(observed(hot, node(EMPTY), evictLocalStoragePods=True))
    claim = node("hot", pod("a-1", 20, claims=("data",)), system=70)
    assert moves(observed(claim, node(EMPTY)))
    assert reasons(observed(claim, node(EMPTY), ignorePvcPods=True)) == {"a-1": Reason.VOLUME_CLAIM}
    plain = node("hot", pod("a-1", 20), system=70)
    for load in (
        {"evictableNamespaces": {"exclude": ["shop"]}},
        {"podSelectors": [{"selector": {"matchLabels": {"app": "b"}}}]},
    ):
        assert reasons(observed(plain, node(EMPTY), load=load)) == {"a-1": Reason.POD_NOT_SELECTED}
    # pods of the threshold's priority stay, those below it may be moved
    for priority, expected in ((999, {}), (1000, {"a-1": Reason.POD_NOT_SELECTED})):
        ranked = node("hot", pod("a-1", 20, priority=priority), system=70)
        assert reasons(observed(ranked, node(EMPTY), priorityThreshold={"value": 1000})) == expected
    ssd = node("hot", pod("a-1", 20, placement=b'{"nodeSelector":{"disk":"ssd"}}'), system=70)
    assert moves(observed(ssd, node(EMPTY), load={"nodeFit": False}))


def test_the_order_of_pods() -> None:
    # class before priority before QoS before costs before usage before age
    pods = [
        pod("prod-1", 3, priority_class=PriorityClass.PROD),
        pod("large-1", 3),
        pod("small-1", 2),
        pod("costly-1", 9, eviction_cost=5),
        pod("kept-1", 9, deletion_cost=7),
        pod("high-1", 9, priority=5),
        pod("free-1", 1, priority_class=PriorityClass.FREE),
    ]
    plan = observed(node("hot", *pods, system=60), node(EMPTY), load={"highThresholds": {"cpu": 61}})
    expected = ["free-1", "large-1", "small-1", "costly-1", "kept-1", "high-1", "prod-1"]
    assert [m[0] for m in moves(plan)] + list(reasons(plan)) == expected


@pytest.mark.parametrize(
    ("systems", "load", "reason"),
    [
        ((50, 50), {}, Reason.NO_NODE_HIGH),
        ((90, 50), {}, Reason.NO_NODE_LOW),
        ((90, 10), {"numberOfNodes": 1}, Reason.TOO_FEW_NODES_LOW),
        ((90, 10), {"paused": True}, Reason.REBALANCE_PAUSED),
    ],
)
def test_why_nothing_is_moved(systems: tuple[int, int], load: dict[str, Any], reason: Reason) -> None:
    plan = observed(*(node(f"n{i}", pod(f"a-{i}", 0.1), system=s) for i, s in enumerate(systems)), load=load)
    assert [stop.reason for stop in plan.stops] == [reason]
    assert plan.moves == ()


def test_a_node_over_a_low_threshold_is_shown_between_both_and_low_where_prod_pods_may_still_come() -> None:
    # memory of 50 % is above the low threshold of 40 % and below the high one of 80 %
    filled = node("filled", pod("a-1", 10, memory_percent=50))
    shown = {rebalanced_node.name: rebalanced_node.load for rebalanced_node in observed(filled, node(EMPTY)).nodes}
    assert shown == {"filled": NodeClass.BETWEEN, EMPTY: NodeClass.LOW}
    prod = {"prodLowThresholds": {"cpu": 20}, "prodHighThresholds": {"cpu": 50}}
    assert {rebalanced_node.load for rebalanced_node in observed(filled, node(EMPTY), load=prod).nodes} == {
        NodeClass.LOW
    }


def test_a_node_is_relieved_after_it_was_high_in_more_rounds_than_its_condition_says() -> None:
    cluster = inputs(node("hot", pod("a-1", 20), system=70), node(EMPTY))
    patient = arguments({"anomalyCondition": {"consecutiveAbnormalities": 2}})
    plans, detectors = [], AnomalyDetectors()
    for round_number in range(4):
        moment = replace(cluster, now_seconds=NOW + round_number)
        plans.append(decide(moment, patient, with_forecast=False, detectors=detectors))
        detectors = plans[-1].detectors
    # two marks do not exceed two; the third does, and relieves the node; the fourth counts from one again
    assert [len(plan.moves) for plan in plans] == [0, 0, 1, 0]
    assert [stop.reason for stop in plans[0].stops] == [Reason.NO_NODE_ABNORMAL]


def test_a_coming_overload_is_confirmed_as_a_present_one() -> None:
    hot = node("hot", pod("a-1", 25), system=25, ahead=(50, 90, 90, 90, 90, 40))
    cluster = inputs(hot, node(EMPTY, ahead=(5,) * 48))
    plan = decide(cluster, arguments(), with_forecast=True, detectors=AnomalyDetectors())
    assert not plan.moves and set(plan.detectors.by_node) == {("hot", False)}


def test_prod_pass_and_pass_over_all_pods_have_detectors_of_their_own() -> None:
    load = {"highThresholds": {"cpu": 90}, "prodLowThresholds": {"cpu": 20}, "prodHighThresholds": {"cpu": 40}}
    prod = [pod(f"p{i}-1", 25, priority_class=PriorityClass.PROD) for i in range(2)]
    cluster = inputs(node("all", pod("a-1", 20), system=75), node("prod", *prod), node(EMPTY, system=30))
    plan = decide(cluster, arguments(load), with_forecast=False, detectors=AnomalyDetectors())
    assert set(plan.detectors.by_node) == {("all", False), ("prod", True)}
    paused = decide(cluster, arguments({**load, "paused": True}), with_forecast=False, detectors=AnomalyDetectors())
    assert paused.detectors == AnomalyDetectors()


def test_a_cordoned_node_and_one_without_report_receive_nothing() -> None:
    hot = node("hot", pod("a-1", 20), system=70)
    plan = observed(hot, node("cordoned", unschedulable=True), node("silent", updated=NOW - 180))
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_LOW]
    states = {n.name: (n.load, n.reason) for n in plan.nodes}
    assert states["silent"] == (NodeClass.UNKNOWN, Reason.METRIC_EXPIRED)
    assert states["cordoned"] == (NodeClass.BETWEEN, Reason.OK)


def test_limits_of_node_namespace_workload_and_budget() -> None:
    crowd = [pod(f"a-{i}", 5) for i in range(4)]
    hot = node("hot", *crowd, *[pod(f"w{i}-1", 1) for i in range(100)], system=75)
    per_node = observed(hot, node(EMPTY), maxMigratingPerNode=1)
    assert len(per_node.moves) == 1 and reasons(per_node) == {"": Reason.NODE_MOVE_LIMIT}
    # five replicas: two may be away (4 to 10 replicas); 104 pods: ten leave in a round, which is more than 1 %
    plain = observed(hot, node(EMPTY))
    assert [m[0] for m in moves(plain)][:3] == ["a-0", "a-1", "w0-1"] and len(plain.moves) == 10
    assert reasons(plain) == {
        "a-2": Reason.WORKLOAD_MOVE_LIMIT,
        "a-3": Reason.WORKLOAD_MOVE_LIMIT,
        "": Reason.MOVE_LIMIT,
    }
    budget = DisruptionBudget("shop", "a", LabelSelector.parse({"matchLabels": {"app": "a"}}), 1)
    guarded = decide(inputs(hot, node(EMPTY), budgets=(budget,)), arguments(), with_forecast=False)
    assert [m[0] for m in moves(guarded)][:2] == ["a-0", "w0-1"]
    assert reasons(guarded)["a-1"] is Reason.DISRUPTION_BUDGET
    single = decide(inputs(hot, node(EMPTY), replicas={}), arguments(), with_forecast=False)
    assert reasons(single)["a-0"] is Reason.WORKLOAD_MOVE_LIMIT  # one replica: all of them would leave


def test_deviation_mode_measures_from_the_mean() -> None:
    # mean of 90, 30 and 30 % is 50 %: low below 40 %, high above 65 %; memory has no threshold and is not looked at
    load = {"useDeviationThresholds": True, "lowThresholds": {"cpu": 10}, "highThresholds": {"cpu": 15}}
    plan = observed(node("hot", pod("a-1", 20), system=70), node("b", system=30), node("c", system=30), load=load)
    assert [n.load for n in plan.nodes] == [NodeClass.HIGH, NodeClass.LOW, NodeClass.LOW]
    assert plan.nodes[0].high == (about(0.65), 1.0)
    assert len(plan.moves) == 1


def test_pools_have_thresholds_and_receivers_of_their_own() -> None:
    load = {
        "nodePools": [
            {
                "name": "gold",
                "nodeSelector": {"matchLabels": {"pool": "gold"}},
                "highThresholds": {"cpu": 50},
                "lowThresholds": {"cpu": 20},
            }
        ]
    }
    gold: dict[str, Any] = {"labels": {"pool": "gold"}}
    plan = observed(node("g", pod("a-1", 20), system=35, **gold), node(EMPTY), load=load)
    assert [(stop.pool, stop.reason) for stop in plan.stops] == [
        ("gold", Reason.NO_NODE_LOW), ("", Reason.NO_NODE_HIGH),
    ]  # fmt: skip
    assert moves(observed(node("g", pod("a-1", 20), system=35, **gold), node("g2", **gold), load=load))


def test_the_prod_pass_moves_prod_pods_by_their_own_usage() -> None:
    load = {"highThresholds": {"cpu": 90}, "prodLowThresholds": {"cpu": 20}, "prodHighThresholds": {"cpu": 40}}
    prod = [pod(f"p{i}-1", 25, priority_class=PriorityClass.PROD) for i in range(2)]
    # prod uses 50 % > 40 %, all pods 70 % < 90 %: one prod pod leaves, the batch pod, first in order, does not
    plan = observed(node("hot", pod("batch-1", 20), *prod), node(EMPTY, system=30), load=load)
    assert moves(plan) == [("p0-1", "hot", EMPTY)]
    assert plan.moves[0].prod_pass


def test_a_coming_overload_is_acted_on_before_it_happens() -> None:
    # 50 % now and in this half hour, 90 % from the next on for two hours: the overload lasts 4 x 1800 s
    hot = node("hot", pod("a-1", 25), system=25, ahead=(50, 90, 90, 90, 90, 40))
    cluster = inputs(hot, node(EMPTY, ahead=(5,) * 48))
    assert decide(cluster, arguments(), with_forecast=False).moves == ()
    (move,) = (plan := decide(cluster, arguments(), with_forecast=True)).moves
    assert move.by_forecast and move.price.overload_seconds == 4 * 1800
    # the pod grows as its node: 25 % now, 45 % then. 90 % is 20 points above 70 %, and 90 - 45 is below it
    assert move.price.gain == pytest.approx(0.20 * 4 * 1800)
    assert (plan.nodes[0].peak[0], plan.nodes[0].peak_after[0]) == pytest.approx((0.90, 0.45))


def test_a_forecast_begins_at_the_present_load() -> None:
    # the forecast still counts a pod that left: it says 60 % for now and 90 % for later, the node uses 40 %:
    # 40 x 90 / 60 = 60 % is expected, which is below 70 %
    left_node = node("left", pod("a-1", 20), system=20, ahead=(60, 90, 90))
    plan = decide(inputs(left_node, node(EMPTY, ahead=(5,) * 48)), arguments(), with_forecast=True)
    assert plan.nodes[0].peak[0] == pytest.approx(0.60)
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_HIGH]


def test_a_peak_that_ends_within_the_restart_is_left_alone() -> None:
    # above 70 % in this half hour alone, of which 1750 s have passed: 50 s are left, a restart takes 60
    late = NOW + 1750
    hot = node("hot", pod("a-1", 25, ready_seconds=None), system=60, ahead=(85, 40, 40), updated=late)
    cold = node(EMPTY, ahead=(5,) * 48, updated=late)
    cluster = replace(inputs(hot, cold), now_seconds=late)
    plan = decide(cluster, arguments(), with_forecast=True)
    assert reasons(plan) == {"a-1": Reason.OVERLOAD_ENDS_FIRST}
    assert decide(cluster, arguments(), with_forecast=False).moves


def test_an_overload_of_less_than_three_half_hours_is_not_announced() -> None:
    short = node("hot", pod("a-1", 25), system=25, ahead=(50, 90, 90, 60, 60))
    plan = decide(inputs(short, node(EMPTY, ahead=(5,) * 48)), arguments(), with_forecast=True)
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_HIGH]


def test_a_receiver_that_passes_its_threshold_later_is_the_second_choice() -> None:
    # the pod grows as its node, which stays at 90 %: 20 % everywhere. evening: 60 + 20 = 80 %, ten points above 70 %
    # for half an hour; the full one, 39 + 20 % all day, is harmed by nothing
    hot = node("hot", pod("a-1", 20), system=70, ahead=(90,) * 49)
    evening = node("evening", system=5, ahead=(5,) * 20 + (60,) + (5,) * 28)
    full = node("full", system=39, ahead=(39,) * 49)
    assert moves(observed(hot, evening, full)) == [("a-1", "hot", "evening")]
    assert moves(decide(inputs(hot, evening, full), arguments(), with_forecast=True)) == [("a-1", "hot", "full")]
    (move,) = decide(inputs(hot, evening), arguments(), with_forecast=True).moves
    # relief: 20 points above the threshold for 49 half hours; harm: 10 points for one
    assert move.target == "evening" and move.price.gain == pytest.approx((0.20 * 49 - 0.10) * 1800)


def test_a_move_that_harms_more_than_it_relieves_is_refused() -> None:
    # hot: 20 points above for one half hour, then 40 %; evening: 35 % for one, then 65 % for ten, of which the pod,
    # by then 20 x 40 / 90 = 8.9 %, makes 73.9 %: 3.9 points x 10 are more than 20 x 1
    hot = node("hot", pod("a-1", 20), system=70, ahead=(90,) + (40,) * 12)
    evening = node("evening", system=35, ahead=(35, *(65,) * 10, 35, 35))
    plan = decide(inputs(hot, evening), arguments(), with_forecast=True)
    assert reasons(plan) == {"a-1": Reason.TARGETS_TOO_FULL}


node_loads = st.tuples(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30), st.sampled_from(list(PriorityClass)[:4])), max_size=6),
    st.floats(0, 60),
    st.lists(st.floats(0, 110), max_size=4),
)


@pytest.mark.slow
@given(st.lists(node_loads, min_size=1, max_size=8), st.booleans(), st.booleans())
def test_no_plan_overloads_a_node_or_moves_a_pod_twice(loads: list[Any], with_forecast: bool, node_fit: bool) -> None:
    cluster = []
    for number, (pods, system, ahead) in enumerate(loads):
        pods_of_node = [
            pod(f"n{number}p{i}-1", cpu, memory_percent=memory, priority_class=chosen)
            for i, (cpu, memory, chosen) in enumerate(pods)
        ]
        cluster.append(node(f"n{number}", *pods_of_node, system=system, ahead=tuple(ahead)))
    load = {"nodeFit": node_fit, "prodHighThresholds": {"cpu": 50}, "prodLowThresholds": {"cpu": 30}}
    plan = decide(inputs(*cluster), arguments(load), with_forecast=with_forecast)
    assert len({m.pod for m in plan.moves}) == len(plan.moves)
    assert {m.source for m in plan.moves}.isdisjoint({m.target for m in plan.moves})
    before = {n.name for n in plan.nodes if any(x > h + 1e-9 for x, h in zip(n.now, n.high, strict=True))}
    after = {n.name for n in plan.nodes if any(x > h + 1e-9 for x, h in zip(n.after, n.high, strict=True))}
    assert after <= before
    assert all(m.price.pays for m in plan.moves)
    total = [sum(n.now[r] for n in plan.nodes) - sum(n.after[r] for n in plan.nodes) for r in (0, 1)]
    assert total == pytest.approx([0, 0], abs=1e-9)  # usage moves and does not vanish


def test_the_benchmark_decides_a_small_cluster() -> None:
    """bench/rebalance/rebalance_round.py at 100 nodes: all hot nodes are relieved or refused by name."""
    cluster = rebalance_round.cluster(100)
    plan = decide(cluster, rebalance_round.arguments(), with_forecast=True)
    high = {n.name for n in plan.nodes if n.load is NodeClass.HIGH}
    assert len(plan.nodes) == 100 and len(plan.moves) == 10  # at most ten of 1,000 pods, 1 %
    assert high == {m.source for m in plan.moves} | {r.node for r in plan.refusals}
