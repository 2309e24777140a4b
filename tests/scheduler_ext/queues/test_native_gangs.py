"""Gangs that Kubernetes' own gang scheduling places: what is translated, when its pods go, what stays with us."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotenant.base.kubernetes.intent import Create, Patch
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.scheduler_ext.queues.decide import withdraw_queue_promise
from cotenant.scheduler_ext.queues.gangs.report import gang_rows
from cotenant.scheduler_ext.queues.gangs.state import GangDecision, gangs_decided
from cotenant.scheduler_ext.queues.model.gang import (
    Gang,
    GangMode,
    MatchPolicy,
    NativeGroup,
    inexpressible_fields,
    native_group,
)
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView
from cotenant.scheduler_ext.reservations.guard import Guard

NOW = 1_000.0
TRAIN = Gang("shop", "train", 2, 2, group=("shop/train",))
NATIVE = QueueSettings(gangs_by="auto")


def member(number: int, **more: Any) -> QueuePod:
    """A member as the webhook lets it in where Kubernetes places gangs."""
    defaults: dict[str, Any] = {
        "gates": (GANG_GATE, RESERVATION_GATE),
        "scheduling_group": "train",
        "created_seconds": NOW,
    }
    more = defaults | more
    return QueuePod("shop", f"train-{number}", f"uid-{number}", "7", requests={"cpu": 1000}, gang="shop/train", **more)


def decided(
    *pods: QueuePod, gang: Gang = TRAIN, native: NativeGroup | None = None, settings: QueueSettings = NATIVE
) -> GangDecision:
    return gangs_decided(view(*pods, gang=gang, native=native), settings)


def view(*pods: QueuePod, gang: Gang = TRAIN, native: NativeGroup | None = None) -> QueueView:
    nodes = (QueueNode("n1", {"cpu": 8000, "pods": 100}),)
    groups = {"shop/train": native} if native else {}
    return QueueView(NOW, gangs={gang.key: gang}, pods=pods, nodes=nodes, native_groups=groups)


def policies(decision: GangDecision) -> list[Any]:
    """Scheduling policies of the PodGroups that are made."""
    creates = [i for i in decision.intents if isinstance(i, Create) and i.address.resource == "podgroups"]
    return [intent.body["spec"]["schedulingPolicy"] for intent in creates]


def let_in(decision: GangDecision) -> list[str]:
    """Pods whose gate ends."""
    return [i.address.name for i in decision.intents if isinstance(i, Patch)]


def reservations(decision: GangDecision) -> int:
    return sum(i.address.resource == "reservations" for i in decision.intents)


def test_a_complete_gang_gets_its_podgroup_first_and_its_pods_go_once_it_exists() -> None:
    first = decided(member(0), member(1))
    assert (policies(first), let_in(first), reservations(first)) == ([{"gang": {"minCount": 2}}], [], 0)
    assert [s.state for s in first.statuses] == ["Scheduling"]
    second = decided(member(0), member(1), native=NativeGroup("shop", "train", 2))
    assert (policies(second), sorted(let_in(second))) == ([], ["train-0", "train-1"])


def test_the_podgroup_belongs_to_the_gangs_pods_so_that_it_goes_with_the_last_of_them() -> None:
    (intent,) = decided(member(0), member(1)).intents
    assert isinstance(intent, Create)
    owners = intent.body["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["name"], owner["uid"]) for owner in owners] == [
        ("Pod", "train-0", "uid-0"),
        ("Pod", "train-1", "uid-1"),
    ]


def test_an_incomplete_gang_and_one_that_waits_for_its_quota_keep_their_gates() -> None:
    assert decided(member(0)).intents == ()
    gated_member = member(0, gates=(QUOTA_GATE, GANG_GATE, RESERVATION_GATE))
    assert let_in(decided(gated_member, member(1), native=NativeGroup("shop", "train", 2))) == []


def test_what_the_scheduler_says_of_a_gang_that_it_has_is_shown_until_its_minimum_runs() -> None:
    refused = NativeGroup("shop", "train", 2, message="0/1 nodes are available")
    free = {"gates": ()}
    waiting = decided(member(0, **free), member(1, **free), native=refused)
    (standing,) = waiting.statuses
    assert (standing.state, standing.code, standing.reason, waiting.intents) == (
        "Scheduling",
        "gang-left-to-scheduler",
        "0/1 nodes are available",
        (),
    )
    running = decided(member(0, node="n1", **free), member(1, node="n1", **free), native=refused)
    assert [s.state for s in running.statuses] == ["Running"]


def test_a_gang_that_the_scheduler_does_not_place_in_time_is_told_so() -> None:
    free = {"gates": (), "created_seconds": NOW - 601}
    (standing,) = decided(member(0, **free), member(1, **free), native=NativeGroup("shop", "train", 2)).statuses
    assert standing.state == "TimedOut"


@pytest.mark.parametrize(
    ("gang", "because"),
    [
        (replace(TRAIN, group=("shop/other", "shop/train")), "group of gangs"),
        (replace(TRAIN, match_policy=MatchPolicy.ONLY_WAITING), "match policy is only-waiting"),
        (replace(TRAIN, mode=GangMode.NON_STRICT), "mode is NonStrict"),
        (replace(TRAIN, wait_seconds=60.0), "waiting time of its own"),
    ],
)
def test_a_gang_of_which_a_podgroup_cannot_say_all_is_named_and_placed_by_us(gang: Gang, because: str) -> None:
    assert because in inexpressible_fields(gang)
    pods = (member(0), member(1))
    decision = decided(*pods, gang=gang)
    assert policies(decision) == [{"basic": {}}]
    (row,) = gang_rows(decision.statuses, view(*pods, gang=gang), NATIVE)
    assert because in row.placed_by
    if len(gang.group) == 1:
        assert reservations(decision) == 2


def test_pods_that_name_no_podgroup_take_the_whole_gang_our_way() -> None:
    decision = decided(member(0, scheduling_group=""), member(1))
    assert (policies(decision), reservations(decision)) == ([{"basic": {}}], 2)


@pytest.mark.parametrize(
    ("settings", "offered"), [(QueueSettings(), True), (NATIVE, False), (QueueSettings(gangs_by="kubernetes"), False)]
)
def test_where_it_is_not_wanted_or_not_offered_gangs_are_placed_as_ever(settings: QueueSettings, offered: bool) -> None:
    pods = (member(0, scheduling_group=""), member(1, scheduling_group=""))
    queue = view(*pods) if offered else replace(view(*pods), native_groups=None)
    decision = gangs_decided(queue, settings)
    assert (policies(decision), reservations(decision)) == ([], 2)


def test_a_gang_whose_minimum_differs_from_its_podgroups_is_told_so() -> None:
    decision = decided(member(0), member(1), native=NativeGroup("shop", "train", 3))
    (standing,) = decision.statuses
    assert (standing.state, let_in(decision)) == ("Invalid", [])
    assert "needs 3 pods, the gang 2" in standing.reason


def test_a_replacement_goes_by_itself_once_the_scheduler_placed_the_minimum() -> None:
    placed = NativeGroup("shop", "train", 2, scheduled=True)
    runs, replacement = member(0, node="n1", gates=()), member(1, scheduling_group="")
    assert let_in(decided(runs, replacement, native=placed)) == ["train-1"]


def test_a_member_that_waits_for_a_podgroup_which_is_gone_gets_one() -> None:
    assert policies(decided(member(0, gates=()), member(1, gates=()))) == [{"basic": {}}]


def test_a_manager_that_ends_leaves_no_pod_without_the_podgroup_that_it_names() -> None:
    pods = (member(0), member(1))
    groups = [i for i in withdraw_queue_promise(Guard(), pods, NOW) if isinstance(i, Create)]
    assert [(g.address.name, g.body["spec"]["schedulingPolicy"]) for g in groups] == [("train", {"basic": {}})]
    assert not any(isinstance(i, Create) for i in withdraw_queue_promise(Guard(), pods, NOW, {("shop", "train")}))


def test_a_podgroup_is_read_back_as_it_was_made_with_what_the_scheduler_says() -> None:
    body = msgspec.json.decode(msgspec.json.encode(native_group("shop", "train", 4).body))
    assert NativeGroup.parse(body) == NativeGroup("shop", "train", 4)
    condition = {"type": "PodGroupScheduled", "status": "False", "message": "no room"}
    refused = NativeGroup.parse(body | {"status": {"conditions": [condition]}})
    assert (refused.scheduled, refused.message) == (False, "no room")
    assert NativeGroup.parse({"metadata": {"name": "x"}, "spec": {"schedulingPolicy": {"basic": {}}}}).min_count == 0
