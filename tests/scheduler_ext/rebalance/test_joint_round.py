"""What is written of a round of both plugins, and the patches of marks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.node_taints import APPROVED, taint_patch, untaint_patch
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.emptying.decide import decide_emptying
from cotenant.scheduler_ext.rebalance.joint_round import RoundMode, writes_of
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import busy_nodes, withdrawn_from
from cotenant.scheduler_ext.rebalance.plan import MarkChange, NodeMark, RebalancePlan
from tests.scheduler_ext.rebalance.migration.moves import condition, job, running
from tests.scheduler_ext.rebalance.small_cluster import arguments, inputs, node, pod
from tests.scheduler_ext.rebalance.test_emptying import MARK, settings

KEY = "cotenant.dev/emptying"
ACTS = RoundMode(settled=True, relieves=True, empties=True)
DRY = RoundMode(settled=True, relieves=False, empties=False)
EARLY = RoundMode(settled=False, relieves=True, empties=True)


def changes(relief: RebalancePlan | None, emptying: RebalancePlan | None, mode: RoundMode) -> list[tuple[str, str]]:
    return [(mark.node, mark.change.value) for mark in writes_of(relief, emptying, mode).marks]


def sources(relief: RebalancePlan | None, emptying: RebalancePlan | None, mode: RoundMode) -> list[str]:
    plan = writes_of(relief, emptying, mode).plan
    return [move.source for move in plan.moves] if plan else []


def test_while_pods_leave_an_overloaded_node_no_node_is_begun() -> None:
    # hot: 90 % of 70 %; low and idle are under-used, one of which may be emptied
    hot = node("hot", *[pod(f"h{i}-1", 30) for i in range(3)])
    cluster = inputs(hot, node("low", pod("a-1", 5)), node("idle", system=1), node("full", pod("f-1", 50)))
    relief = decide(cluster, arguments(), with_forecast=False)
    emptying = decide_emptying(cluster, settings(), with_forecast=False)
    assert relief.moves and [mark.change for mark in emptying.marks] == [MarkChange.SET]
    assert (changes(relief, emptying, ACTS), set(sources(relief, emptying, ACTS))) == ([], {"hot"})
    assert changes(None, emptying, ACTS) == [("idle", "set")]
    assert (changes(relief, emptying, DRY), sources(relief, emptying, DRY)) == ([], [])
    assert (changes(relief, emptying, EARLY), sources(relief, emptying, EARLY)) == ([], [])


def test_a_marked_node_is_neither_relieved_nor_filled_by_low_node_load() -> None:
    hot, full = node("hot", *[pod(f"h{i}-1", 30) for i in range(3)]), node("full", pod("f-1", 50))
    free = decide(inputs(hot, node("low", pod("a-1", 5)), full), arguments(), with_forecast=False)
    assert {(move.source, move.target) for move in free.moves} == {("hot", "low")}
    marked_low = decide(inputs(hot, node("low", pod("a-1", 5), taints=MARK), full), arguments(), with_forecast=False)
    assert marked_low.moves == () and {n.name: n.load.value for n in marked_low.nodes}["low"] == "emptying"
    marked_hot = node("hot", *[pod(f"h{i}-1", 30) for i in range(3)], taints=MARK)
    assert decide(inputs(marked_hot, node("low", pod("a-1", 5))), arguments(), with_forecast=False).moves == ()


def test_nodes_that_pods_are_moved_from_or_to_are_not_begun() -> None:
    cluster = inputs(node("low", pod("a-1", 5)), node("full", pod("f-1", 50)))
    open_job = MigrationJob("j", target="low", decided_source="full")
    args = replace(settings(), busy=busy_nodes([open_job]))
    assert args.busy == {"low", "full"}
    plan = decide_emptying(cluster, args, with_forecast=False)
    assert plan.marks == () and [stop.reason for stop in plan.stops] == [Reason.NODES_BUSY]
    failed = replace(settings(), failed=frozenset({"a-1"}))
    plan = decide_emptying(cluster, failed, with_forecast=False)
    assert [(refusal.pod, refusal.reason) for refusal in plan.refusals] == [("shop/a-1", Reason.MOVE_FAILED)]
    assert [stop.reason for stop in plan.stops] == [Reason.NO_NODE_CAN_BE_EMPTIED]


def plan_of(*marks: NodeMark) -> RebalancePlan:
    return RebalancePlan(False, (), (), (), (), marks=marks, emptying=True)


def test_what_a_person_approved_is_gone_on_with_and_what_is_left_of_rounds_is_taken_away() -> None:
    full = node("full", pod("f-1", 50))
    approved = node("low", pod("a-1", 5), taints=((KEY, APPROVED, "PreferNoSchedule"),))
    own = node("other", pod("b-1", 5), taints=MARK)
    plan = decide_emptying(inputs(approved, own, full), settings(maxEmptyingNodes=2), with_forecast=False)
    assert changes(None, plan, DRY) == [("other", "taken away")] and sources(None, plan, DRY) == ["low"]
    assert changes(None, plan, ACTS) == [] and sorted(sources(None, plan, ACTS)) == ["low", "other"]
    assert writes_of(None, plan, DRY).marks[0].reason is Reason.EMPTYING_OFF


def test_while_pods_are_moved_only_somebodys_need_takes_a_mark_away() -> None:
    no_place = NodeMark("n", MarkChange.TAKEN, Reason.NO_NODE_FITS)
    needed = NodeMark("n", MarkChange.TAKEN, Reason.PODS_WAIT)
    assert changes(None, plan_of(no_place), EARLY) == [] and changes(None, plan_of(needed), EARLY)
    assert changes(None, plan_of(no_place), ACTS)


def test_jobs_off_a_node_that_is_needed_are_withdrawn_before_their_pods_may_be_evicted() -> None:
    def of_plan(name: str, source: str, **status: Any) -> MigrationJob:
        meta = {"labels": {"cotenant.dev/created-by": "descheduler"}, "resourceVersion": "7"}
        return job(name, meta={**meta, "annotations": {"cotenant.dev/source-node": source}}, status=status)

    evicting = of_plan("evicting", "low", **running(condition("Eviction", "False"), node="low"))
    persons = job("persons", meta={"annotations": {"cotenant.dev/source-node": "low"}})
    jobs = [of_plan("early", "low"), of_plan("elsewhere", "high"), evicting, persons]
    (withdrawn,) = withdrawn_from({"low"}, jobs)
    assert (withdrawn.address.name, withdrawn.version) == ("early", "7")


TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from([KEY, "theirs", "another"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])}
    ),
    max_size=5,
)


@given(st.none() | TAINTS, st.sampled_from(["", APPROVED]))
def test_marks_come_and_go_beside_the_taints_of_others(taints: list[dict[str, Any]] | None, value: str) -> None:
    body: Any = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"taints": taints} if taints else {},
    }
    others = [taint for taint in taints or () if taint["key"] != KEY]
    away = untaint_patch(msgspec.convert(body, TaintedNode), (KEY,), "why")
    bare = jsonpatch.JsonPatch(away.operations).apply(body) if away else body
    assert (bare["spec"].get("taints") or []) == others
    patch = taint_patch(msgspec.convert(bare, TaintedNode), KEY, "why", value=value)
    assert patch is not None
    after = jsonpatch.JsonPatch(patch.operations).apply(bare)
    assert after["spec"]["taints"][:-1] == others and after["spec"]["taints"][-1].get("value", "") == value
    assert taint_patch(msgspec.convert(after, TaintedNode), KEY, "why", value=value) is None
    # whatever effects the key has already, with the wanted one it stands there once
    once = taint_patch(msgspec.convert(body, TaintedNode), KEY, "why")
    settled = (jsonpatch.JsonPatch(once.operations).apply(body) if once else body)["spec"]["taints"]
    assert [taint["effect"] for taint in settled if taint["key"] == KEY] == ["PreferNoSchedule"]
    assert [taint for taint in settled if taint["key"] != KEY] == others
