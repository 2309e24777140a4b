"""The way to a smaller cluster: steps in their order, each with the earliest date that the settings permit."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.scheduler_ext.cluster_size.autoscalers.model import NODEPOOL_LABEL, NodeAutoscalers, NodePool, Obstacle
from cotenant.scheduler_ext.cluster_size.model import (
    ClusterSize,
    LeavingNode,
    PodOfNode,
    RequestLevel,
    SizedCluster,
    SizeOptions,
)
from cotenant.scheduler_ext.cluster_size.steps import (
    BY_HAND,
    ProposedChanges,
    Route,
    SizeStep,
    StepAction,
    StepPace,
    autoscaler_sentences,
    plan_steps,
    steps_note,
)
from tests.scheduler_ext.cluster_size.two_nodes import node

NOW = 1_000_000
PACE = StepPace(soak_seconds=1_800, cool_down_seconds=86_400, round_seconds=120, moves_a_round=2)
SCALED = NodeAutoscalers(pod="kube-system/ca", flags={"scale-down-unneeded-time": ("20m",)})


def leaving(name: str, turn: int, pods: int) -> LeavingNode:
    places = tuple(PodOfNode(f"shop/{name}{n}", "shop/ReplicaSet/web", name, "z") for n in range(pods))
    return LeavingNode(name, name, turn, {}, places)


SIZE = ClusterSize((leaving("a", 1, 5), leaving("b", 2, 0)), (), (), SizeOptions())
"""Two nodes could leave: one with five pods, one that is empty."""


def steps(level: RequestLevel = RequestLevel.NOW, **more: Any) -> tuple[SizeStep, ...]:
    labels = more.pop("labels", {})
    route = {"autoscalers": SCALED, "obstacles": (), "proposed": ProposedChanges(), **more}
    nodes = (node("a", labels=labels), node("b", labels=labels))
    return plan_steps(SIZE, level, Route(nodes, pace=PACE, now_seconds=NOW, **route))


def dates(steps: tuple[SizeStep, ...]) -> list[tuple[str, int | None]]:
    return [
        (step.action.value, None if step.earliest_seconds is None else step.earliest_seconds - NOW) for step in steps
    ]


def test_nodes_are_cordoned_emptied_one_after_the_other_and_then_taken_away() -> None:
    # Five pods leave two at a time: 3 rounds of 120 s. cluster-autoscaler takes a node 20 minutes after it is empty.
    size_steps = steps()
    assert dates(size_steps) == [
        ("cordon", 0), ("empty", 0), ("take", 360 + 1_200), ("empty", 360), ("take", 360 + 1_200),
    ]  # fmt: skip
    assert [(step.turn, step.node, step.pods) for step in size_steps[1:]] == [
        (2, "a", 5), (3, "a", 0), (4, "b", 0), (5, "b", 0),
    ]  # fmt: skip


def test_ready_recommendations_are_accepted_and_verified_before_a_node_is_emptied() -> None:
    size_steps = steps(RequestLevel.READY, proposed=ProposedChanges(ready=3, containers=9, most_steps=4, stopped=6))
    assert dates(size_steps)[:3] == [("accept", 0), ("wait", 1_800), ("cordon", 1_800)]
    assert size_steps[0].words == "accept the recommendations of 3 containers, as far as they are ready"


def test_all_steps_of_the_longest_cut_wait_for_their_cool_downs() -> None:
    # Four steps: three cool-downs of a day between them, then the soak time of half an hour.
    size_steps = steps(RequestLevel.ALL_STEPS, proposed=ProposedChanges(ready=3, containers=9, most_steps=4, stopped=6))
    assert dates(size_steps)[:3] == [("accept", 0), ("wait", 3 * 86_400 + 1_800), ("cordon", 3 * 86_400 + 1_800)]
    assert "guardrails now stop the changes of 6 containers, which have no date" in size_steps[0].words


def test_karpenter_takes_an_empty_node_after_the_time_of_its_pool() -> None:
    size_steps = steps(
        labels={NODEPOOL_LABEL: "default"},
        autoscalers=NodeAutoscalers(pools=(NodePool("default", consolidate_after="90s"),)),
    )
    assert dates(size_steps)[2] == ("take", 360 + 90) and size_steps[2].by == "Karpenter, NodePool default"


def test_without_an_autoscaler_somebody_takes_the_node_away() -> None:
    size_steps = steps(autoscalers=NodeAutoscalers())
    assert dates(size_steps)[2] == ("take", 360) and size_steps[2].by == BY_HAND


@pytest.mark.parametrize("even_empty", [True, False])
def test_a_node_that_an_obstacle_keeps_when_it_is_empty_has_no_date(even_empty: bool) -> None:
    obstacle = Obstacle("Node a", "annotation x=true", (), "", ("a",), even_empty=even_empty)
    size_steps = steps(obstacles=(obstacle,))
    assert (dates(size_steps)[2][1] is None) == even_empty
    assert ("annotation x=true" in size_steps[2].words) == even_empty
    assert dates(size_steps)[4] == ("take", 360 + 1_200)
    assert ("1 has no date" in steps_note(size_steps)) == even_empty


def test_a_pool_that_could_not_be_read_has_no_date() -> None:
    size_steps = steps(labels={NODEPOOL_LABEL: "other"}, autoscalers=NodeAutoscalers())
    assert dates(size_steps)[2] == ("take", None) and size_steps[2].action is StepAction.TAKE


def test_without_nodes_that_could_leave_there_is_no_step() -> None:
    route = Route((), NodeAutoscalers(), (), ProposedChanges(3, 3), PACE, NOW)
    assert plan_steps(ClusterSize((), (), (), SizeOptions()), RequestLevel.READY, route) == ()


def test_what_autoscalers_do_by_themselves_is_said_for_each() -> None:
    state = SizedCluster((node("a", labels={NODEPOOL_LABEL: "default"}), node("b")), ())
    pools = (NodePool("default", "WhenEmpty", "30s"), NodePool("old", consolidate_after="Never"))
    lines = autoscaler_sentences(state, NodeAutoscalers(pools=pools, status=True, unread=("x could not be read",)))
    assert lines == [
        "Karpenter removes nodes of NodePool default (1 node) that are empty, 30s after their pods last changed",
        "Karpenter removes no node of NodePool old (0 nodes)",
        "cluster-autoscaler removes a node whose pods request less than 0.5 of its capacity and fit on other nodes, "
        "after 10m (defaults: the flags could not be read)",
        "x could not be read",
    ]
    assert "Neither Karpenter nor cluster-autoscaler was found" in autoscaler_sentences(state, NodeAutoscalers())[0]
