"""A round of HighNodeLoad: which nodes are emptied, when not, and what marks them. Nodes of 10 cores and 100 GiB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.classification import NodeClass
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs, emptying_arguments_of
from cotenant.scheduler_ext.rebalance.emptying.decide import decide_emptying
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs
from cotenant.scheduler_ext.rebalance.plan import RebalancePlan
from tests.scheduler_ext.rebalance.small_cluster import NOW, foreseen, inputs, node, pod, without_memory

MARK = ((EMPTYING_TAINT, "", "PreferNoSchedule"),)
DAEMON = Reference("DaemonSet", "d", "shop", "", "apps/v1", True)


def settings(**load: Any) -> EmptyingArgs:
    """Low 40 % of CPU, high 70 %, memory 40 and 80 %; all pods of a node may leave in one round."""
    args = {
        "lowThresholds": {"cpu": 40, "memory": 40},
        "highThresholds": {"cpu": 70, "memory": 80},
    }
    entries = [{"name": "HighNodeLoad", "args": args | load}]
    entries.append({"name": "MigrationController", "args": {"maxMigratingPerNode": 50}})
    return emptying_arguments_of({"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": entries}]})


def observed(*loads: Any, changes: dict[str, Any] | None = None, **load: Any) -> RebalancePlan:
    return decide_emptying(inputs(*loads, **(changes or {})), settings(**load), with_forecast=False)


def moves(plan: RebalancePlan) -> list[tuple[str, str, str]]:
    return [(m.pod.removeprefix("shop/"), m.source, m.target) for m in plan.moves]


def marks(plan: RebalancePlan) -> list[tuple[str, str, Reason]]:
    return [(m.node, m.change.value, m.reason) for m in plan.marks]


def test_all_pods_of_an_under_used_node_leave_for_the_fullest_nodes_that_take_them() -> None:
    # a daemon goes with its node; 5 % + 10 % find room on `full` (50 %), which has the least left unrequested
    low = node("low", pod("a-1", 10), pod("b-1", 5), pod("d-1", 1, owner=DAEMON))
    full, half = node("full", pod("f-1", 50)), node("half", pod("h-1", 45))
    plan = observed(low, full, half)
    assert marks(plan) == [("low", "set", Reason.OK)]
    assert moves(plan) == [("a-1", "low", "full"), ("b-1", "low", "full")]
    states = {n.name: (n.load, round(n.after[0], 2)) for n in plan.nodes}
    assert states == {
        "low": (NodeClass.EMPTYING, 0.01), "full": (NodeClass.BETWEEN, 0.65), "half": (NodeClass.BETWEEN, 0.45),
    }  # fmt: skip
    # a free node counts for half an hour without a forecast: 1800 node-seconds over two pods
    assert [move.price.gain for move in plan.moves] == [900.0, 900.0]


def test_a_node_with_a_pod_that_cannot_leave_is_not_begun() -> None:
    low = node("low", pod("a-1", 5), pod("bare-1", 1, owner=None))
    plan = observed(low, node("full", pod("f-1", 50)))
    assert plan.moves == () and plan.marks == ()
    assert [(r.pod, r.reason) for r in plan.refusals] == [("shop/bare-1", Reason.NO_CONTROLLER)]
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_CAN_BE_EMPTIED]
    # 10 % would make 75 % of 70 %; the first pod's place is given back
    tight = observed(node("low", pod("a-1", 10), pod("b-1", 4)), node("full", pod("f-1", 65)))
    assert tight.moves == () and {n.name: round(n.after[0], 2) for n in tight.nodes} == {"low": 0.14, "full": 0.65}


def test_a_node_with_a_pod_whose_memory_nobody_measured_is_not_begun() -> None:
    low = without_memory(node("low", pod("a-1", 10), pod("b-1", 5)), 30)
    plan = observed(low, node("full", pod("f-1", 50)))
    assert not plan.moves and not plan.marks
    assert Reason.POD_UNMEASURED in {refusal.reason for refusal in plan.refusals}


def test_the_cheapest_node_is_emptied_first_and_one_at_a_time() -> None:
    # cost: 10 s x share x 2: 0.05 x 20 = 1.0 against 0.08 x 20 = 1.6
    dear, cheap = node("dear", pod("a-1", 8)), node("cheap", pod("b-1", 5))
    full = node("full", pod("f-1", 45))
    assert marks(observed(dear, cheap, full)) == [("cheap", "set", Reason.OK)]
    both = observed(dear, cheap, full, maxEmptyingNodes=2)
    assert [mark.node for mark in both.marks] == ["cheap", "dear"]
    assert {m.target for m in both.moves} == {"full"}
    marked = node("cheap", pod("b-1", 5), taints=MARK)
    again = observed(dear, marked, full)
    assert marks(again) == [("cheap", "stays", Reason.OK)] and moves(again) == [("b-1", "cheap", "full")]
    assert [stop.reason for stop in again.stops] == [Reason.EMPTYING_LIMIT]
    emptied = observed(dear, node("cheap", taints=MARK), full)
    assert marks(emptied) == [("cheap", "stays", Reason.OK), ("dear", "set", Reason.OK)]


def test_one_under_used_node_is_left_while_a_node_is_above_its_threshold() -> None:
    # a node at 75 % of 70 % may have to be relieved: of two under-used nodes one may be emptied, the last one not
    hot, full = node("hot", pod("h-1", 75)), node("full", pod("f-1", 50))
    load, other = node("one", pod("a-1", 5)), node("other", pod("b-1", 8))
    assert marks(observed(load, other, hot, full)) == [("one", "set", Reason.OK)]
    last = observed(node("one", pod("a-1", 5), taints=MARK), other, hot, full, maxEmptyingNodes=2)
    assert marks(last) == [("one", "stays", Reason.OK)]
    assert [stop.reason for stop in last.stops] == [Reason.TOO_FEW_NODES_LOW]


@pytest.mark.parametrize(
    ("full", "changes", "load", "reason"),
    [
        (50, {"waiting": (pod("w-1", 97)[0],)}, {}, Reason.PODS_WAIT),  # 95 are free on the node as it is
        (75, {}, {}, Reason.LOAD_RISES),
        (50, {}, {"paused": True}, Reason.REBALANCE_PAUSED),
    ],
)
def test_marks_are_taken_away_when_somebody_needs_the_room(
    full: float, changes: dict[str, Any], load: dict[str, Any], reason: Reason
) -> None:
    marked = node("low", pod("a-1", 5), taints=MARK)
    plan = observed(marked, node("full", pod("f-1", full)), changes=changes, **load)
    assert marks(plan) == [("low", "taken away", reason)] and plan.moves == ()
    assert [stop.reason for stop in plan.stops] == [reason]


def test_a_pod_that_fits_as_it_is_waits_for_something_else_than_room() -> None:
    # 50 are free on the other node: the scheduler would have placed 20, were it not for its volume or the like
    marked, changes = node("low", pod("a-1", 5), taints=MARK), {"waiting": (pod("w-1", 20)[0],)}
    plan = observed(marked, node("full", pod("f-1", 50)), changes=changes)
    assert marks(plan) == [("low", "stays", Reason.OK)] and moves(plan) == [("a-1", "low", "full")]


def test_a_node_that_was_begun_waits_for_a_young_pod_and_not_for_one_that_never_leaves() -> None:
    full = node("full", pod("f-1", 50))
    young = observed(node("low", pod("a-1", 5, placed=1_800_000_000.0 - 60), taints=MARK), full)
    assert marks(young) == [("low", "stays", Reason.STARTED_LATELY)]
    bare = observed(node("low", pod("a-1", 5, owner=None), taints=MARK), full)
    assert marks(bare) == [("low", "taken away", Reason.NO_CONTROLLER)]
    ending = observed(node("low", pod("a-1", 5, leaving=True, gone_by_seconds=NOW + 30), taints=MARK), full)
    assert marks(ending) == [("low", "stays", Reason.POD_LEAVING)]
    # a finalizer may keep it for days, in which no other node could be begun
    stuck = observed(node("low", pod("a-1", 5, leaving=True, gone_by_seconds=NOW - 600), taints=MARK), full)
    assert marks(stuck) == [("low", "taken away", Reason.POD_STUCK)]


@pytest.mark.parametrize(
    ("low", "load", "reason"),
    [(45, {}, Reason.NO_NODE_UNDER_USED), (5, {"numberOfNodes": 1}, Reason.TOO_FEW_NODES_LOW)],
)
def test_why_no_node_is_begun(low: float, load: dict[str, Any], reason: Reason) -> None:
    plan = observed(node("low", pod("a-1", low)), node("full", pod("f-1", 50)), **load)
    assert [stop.reason for stop in plan.stops] == [reason]


@pytest.mark.parametrize(("noon", "target"), [(7.0, "full"), (9.0, "idle")])
def test_a_receiver_stays_under_its_threshold_with_the_forecasts_of_all_its_pods(noon: float, target: str) -> None:
    # its own forecast is of a time when it was nearly idle; now it has a pod of 50 %. The one that comes uses 5 % now,
    # and 7 or 9 % at noon: 57 and 59 % of 70 %, of which the day is to stay 12 % away
    stale = (5.0,) * 49
    low, full = node("low", pod("a-1", 5), ahead=stale), node("full", pod("f-1", 50), ahead=stale)
    idle = node("idle", system=42, ahead=(42.0,) * 49)
    forecasts = {"a": (5.0,) * 24 + (noon,) * 24, "f": (50.0,) * 48}
    plan = decide_emptying(foreseen(low, full, idle, forecasts=forecasts), settings(), with_forecast=True)
    assert moves(plan) == [("a-1", "low", target)]


def test_tomorrows_peak_must_fit_on_the_receivers_and_the_cluster() -> None:
    flat = (50,) * 49
    evening = (50,) * 20 + (68,) + (50,) * 28
    low = node("low", pod("a-1", 5), ahead=(5,) * 49)
    fits = decide_emptying(inputs(low, node("full", pod("f-1", 50), ahead=flat)), settings(), with_forecast=True)
    assert marks(fits) == [("low", "set", Reason.OK)]
    # 68 + 5 = 73 % of the one node that would stay, which carries 70 %
    full = decide_emptying(inputs(low, node("full", pod("f-1", 50), ahead=evening)), settings(), with_forecast=True)
    assert full.marks == () and [r.reason for r in full.refusals] == [Reason.PEAK_NOT_COVERED]
    # an idle third node covers the cluster's peak, and takes the pod
    third = decide_emptying(
        inputs(low, node("full", pod("f-1", 50), ahead=evening), node("idle", system=42, ahead=(42,) * 49)),
        settings(), with_forecast=True,
    )  # fmt: skip
    assert moves(third) == [("a-1", "low", "idle")]
    # its own evening keeps a node from being under-used, and a node without a forecast is left alone
    busy = node("low", pod("a-1", 5), ahead=(5,) * 20 + (45,) + (5,) * 28)
    blind = node("blind", system=5)
    plan = decide_emptying(
        inputs(busy, blind, node("full", pod("f-1", 50), ahead=flat)), settings(), with_forecast=True
    )
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_UNDER_USED]
    assert {n.name: n.reason for n in plan.nodes}["blind"] is Reason.FORECAST_MISSING


def test_the_limits_of_a_round_spread_the_moves_over_rounds() -> None:
    crowd = [pod(f"w{i}-1", 1) for i in range(5)]
    entries = [
        {"name": "HighNodeLoad", "args": {}},
        {"name": "MigrationController", "args": {"maxMigratingPerNode": 2}},
    ]
    args = emptying_arguments_of({"profiles": [{"pluginConfig": entries}]})
    plan = decide_emptying(inputs(node("low", *crowd), node("full", pod("f-1", 50))), args, with_forecast=False)
    assert len(plan.moves) == 2 and {r.reason for r in plan.refusals} == {Reason.NODE_MOVE_LIMIT}
    assert marks(plan) == [("low", "set", Reason.OK)]


def test_configurations_are_ours_or_upstreams() -> None:
    alone = emptying_arguments_of({"kind": "HighNodeLoadArgs", "lowThresholds": {"cpu": 20}})
    assert alone.high_node_load.low_thresholds.pair(100) == (20, 100)
    assert alone.high_node_load.high_thresholds.pair(100) == (65, 80)
    args = {"thresholds": {"cpu": 20, "memory": 30, "pods": 20}, "numberOfNodes": 2}
    upstream = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [{"pluginConfig": [{"name": "HighNodeUtilization", "args": args}]}],
    }
    read = emptying_arguments_of(upstream)
    assert read.high_node_load.low_thresholds.pair(100) == (20, 30) and read.high_node_load.number_of_nodes == 2
    assert ["requests" in warning or "pods" in warning for warning in read.warnings] == [True, True]
    for document, part in (
        ({"kind": "HighNodeLoadArgs", "lowThresholds": {"cpu": 80}}, "$.lowThresholds.cpu: 80 % is above"),
        ({"kind": "HighNodeLoadArgs", "maxEmptyingNodes": -1}, "maxEmptyingNodes"),
        ({"profiles": [{"pluginConfig": [{"name": "LowNodeLoad", "args": {}}]}]}, "no arguments of the plugin"),
    ):
        with pytest.raises(UsageError) as error:
            emptying_arguments_of(document)
        assert part in error.value.message


node_loads = st.tuples(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30)), max_size=5), st.floats(0, 60), st.booleans(),
    st.lists(st.floats(0, 100), min_size=49, max_size=49),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(node_loads, min_size=1, max_size=6), st.booleans(), st.integers(1, 3))
def test_a_node_is_emptied_whole_and_no_other_is_overloaded(loads: list[Any], with_forecast: bool, most: int) -> None:
    cluster = []
    for number, (pods, system, is_marked, ahead) in enumerate(loads):
        of_node = [pod(f"n{number}p{i}-1", cpu, memory_percent=memory) for i, (cpu, memory) in enumerate(pods)]
        taints = MARK if is_marked else ()
        cluster.append(node(f"n{number}", *of_node, system=system, ahead=tuple(ahead), taints=taints))
    given_inputs: RebalanceInputs = replace(inputs(*cluster))
    plan = decide_emptying(given_inputs, settings(maxEmptyingNodes=most), with_forecast=with_forecast)
    marked = {mark.node for mark in plan.marks if mark.change.value != "taken away"}
    assert {m.source for m in plan.moves} <= marked and not {m.target for m in plan.moves} & marked
    assert sum(mark.change.value == "set" for mark in plan.marks) <= most
    for rebalanced_node in plan.nodes:
        if rebalanced_node.name in {m.target for m in plan.moves}:
            assert rebalanced_node.after[0] <= 0.70 + 1e-9 and rebalanced_node.after[1] <= 0.80 + 1e-9
            assert not with_forecast or rebalanced_node.peak_after[0] <= max(0.70, rebalanced_node.peak[0]) + 1e-9
    leaving = {m.source for m in plan.moves}
    waiting = {r.node for r in plan.refusals}
    for load in given_inputs.loads:
        if load.node.name in leaving - waiting:
            assert {p.key for p in load.pods} == {m.pod for m in plan.moves if m.source == load.node.name}
