"""What the controller writes for what it sees: phases, placeholders, hand-overs, and pods that wait in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.kubernetes.intent import Apply, Create, Delete, Patch
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.scheduler_ext.reservations.decide import ReservationWrites, decide
from cotenant.scheduler_ext.reservations.guard import (
    LONGEST_PROMISE_SECONDS,
    Guard,
    ReservationSwap,
    SwapPlaceholder,
    is_promised,
)
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.swap import advance, late
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView
from tests.scheduler_ext.reservations.builders import NOW, owner, placeholder, reservation

SETTINGS = ReservationSettings()
SERVED = Guard((), NOW + 30, "1")


def plan(*reservations: Reservation, **view: Any) -> ReservationWrites:
    fields = {"guard": SERVED, "nodes": frozenset({"n1", "n2"}), "now_seconds": NOW, **view}
    return decide(ReservationView({r.name: r for r in reservations}, **fields), SETTINGS)


def status_of(writes: ReservationWrites, name: str = "r") -> dict[str, Any]:
    """The status that is written."""
    (intent,) = (i for i in writes.intents if isinstance(i, Apply) and i.address.name == name)
    assert intent.subresource == "status"
    return dict(intent.body["status"])


def condition(status: dict[str, Any], type_: str) -> tuple[str, str]:
    (status_condition,) = (c for c in status["conditions"] if c["type"] == type_)
    return status_condition["status"], status_condition["reason"]


@pytest.mark.parametrize(
    ("ahead_seconds", "waited_for"),
    [(-1, False), (0, False), (1, True), (LONGEST_PROMISE_SECONDS, True), (LONGEST_PROMISE_SECONDS + 1, False)],
)
def test_a_promise_is_waited_for_until_its_end_if_that_is_not_too_far_ahead(
    ahead_seconds: float, waited_for: bool
) -> None:
    assert is_promised(NOW + ahead_seconds, NOW) is waited_for


@pytest.mark.parametrize(
    ("noticed_seconds", "now_seconds", "over"),
    [
        (None, NOW + 9, False), (None, NOW + 10, True), (None, NOW + 11, True),
        # noticed by a manager that came back: its full time again, 15 seconds from then
        (NOW + 100, NOW + 114, False), (NOW + 100, NOW + 115, True),
        (NOW - 100, NOW + 9, False), (NOW - 100, NOW + 10, True),
    ],
)  # fmt: skip
def test_a_hand_over_has_its_time_and_after_a_managers_return_its_full_time_again(
    noticed_seconds: float | None, now_seconds: float, over: bool
) -> None:
    swap = ReservationSwap("s", "r", "uid-r", "n1", expires_seconds=NOW + 10)
    noticed = {} if noticed_seconds is None else {swap.id: noticed_seconds}
    assert late(swap, ReservationView({}, now_seconds=now_seconds, noticed=noticed)) is over


def test_a_placeholder_that_the_api_server_refuses_is_a_condition_of_its_reservation() -> None:
    writes = plan(reservation(), unmade={"reservations/r": "no pod uses the network of its node here"})
    status = status_of(writes)
    assert condition(status, "Scheduled") == ("False", "Unschedulable")
    assert "no pod uses the network of its node here" in [c.get("message") for c in status["conditions"]]


def test_a_new_reservation_gets_a_placeholder_that_the_scheduler_places() -> None:
    (create,) = (i for i in plan(reservation()).intents if isinstance(i, Create))
    assert create.address.namespace == "cotenant-reservations"
    assert "nodeName" not in create.body["spec"]
    assert create.body["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "4"}}
    assert create.body["metadata"]["ownerReferences"][0]["uid"] == "r-uid"
    # Neither autoscaler takes the node that it holds.
    assert create.body["metadata"]["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }


def test_it_is_available_when_its_placeholder_is_bound() -> None:
    status = status_of(plan(reservation(), reserved=(placeholder(),)))
    assert (status["phase"], status["nodeName"], status["allocatable"]) == ("Available", "n1", {"cpu": "4"})
    assert condition(status, "Scheduled") == ("True", "Scheduled")
    assert condition(status, "Ready") == ("True", "Available")


def test_it_says_what_the_scheduler_says_while_there_is_no_room() -> None:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}
    waiting = placeholder(node="", conditions=[refused])
    status = status_of(plan(reservation(), reserved=(waiting,)))
    assert (status["phase"], condition(status, "Scheduled")) == ("Pending", ("False", "Unschedulable"))
    status = status_of(plan(reservation(preAllocation=True), reserved=(waiting,)))
    assert status["phase"] == "Waiting"


def test_one_at_rest_is_left_alone() -> None:
    assert plan(reservation(phase="Available"), reserved=(placeholder(),)).intents == ()


def test_its_time_is_over_to_the_second() -> None:
    brief = reservation(phase="Available", ttl="2800s")  # 7,200 + 2,800 = 10,000
    assert plan(brief, reserved=(placeholder(),), now_seconds=NOW - 0.1).intents == ()
    over = plan(brief, reserved=(placeholder(),))
    assert status_of(over)["phase"] == "Failed"
    assert condition(status_of(over), "Ready") == ("False", "Expired")
    assert [i.grace_seconds for i in over.intents if isinstance(i, Delete)] == [0]


def test_the_next_look_is_at_the_deadline() -> None:
    brief = reservation(phase="Available", ttl="2810s")
    assert plan(brief, reserved=(placeholder(),)).wake_seconds == pytest.approx(10)


def test_a_node_that_is_gone_fails_it_and_an_unknown_list_of_nodes_does_not() -> None:
    held_reservation = reservation(phase="Available", node="n9")
    orphan = placeholder(node="n9")
    assert status_of(plan(held_reservation, reserved=(orphan,)))["phase"] == "Failed"
    assert plan(held_reservation, reserved=(orphan,), nodes=None).intents == ()


def test_an_ended_one_is_deleted_after_its_day() -> None:
    ended = reservation(phase="Succeeded")
    day = ended.created_seconds + 86_400
    assert plan(ended, now_seconds=day - 1, guard=Guard((), day + 30, "1")).intents == ()
    (deletion,) = plan(ended, now_seconds=day, guard=Guard((), day + 30, "1")).intents
    assert isinstance(deletion, Delete)
    assert deletion.uid == "r-uid"


def test_a_placeholder_whose_reservation_is_gone_is_ended() -> None:
    (deletion,) = plan(reserved=(placeholder(),)).intents
    assert isinstance(deletion, Delete)
    assert deletion.uid == "r-hold-0"


def test_an_owner_on_the_node_ends_a_reservation_that_serves_once() -> None:
    status = status_of(plan(reservation(phase="Available"), reserved=(owner(node="n1", of="r"),)))
    assert (status["phase"], status["allocated"]) == ("Succeeded", {"cpu": "4"})
    assert [o["name"] for o in status["currentOwners"]] == ["web-0"]


def test_nobody_becomes_an_owner_by_annotation_alone() -> None:
    thief = owner(node="n1", of="r")
    thief = replace(thief, identity=replace(thief.identity, labels={"cotenant.dev/reservation": "r"}))
    assert plan(reservation(phase="Available"), reserved=(placeholder(), thief)).intents == ()


def test_room_that_was_lost_is_asked_for_on_the_same_node() -> None:
    writes = plan(reservation(phase="Available"))
    assert condition(status_of(writes), "Ready") == ("False", "RoomLost")
    (message,) = (c["message"] for c in status_of(writes)["conditions"] if c["type"] == "Ready")
    assert message == "reserved capacity was lost and is requested again: cpu 4"
    (again,) = (i for i in writes.intents if isinstance(i, Create))
    terms = again.body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    here = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert terms == {"nodeSelectorTerms": [{"matchFields": here}]}


def test_an_owner_that_ends_gives_its_room_back() -> None:
    shared = reservation(phase="Available", allocateOnce=False)
    used = (owner(cpu="1", node="n1", of="r"), placeholder(cpu="2"))
    (create,) = (i for i in plan(shared, reserved=used).intents if isinstance(i, Create))
    # Reserved 4, used 1, held 2: 1 is missing.
    assert create.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_an_owner_that_grows_takes_of_what_is_held_for_it() -> None:
    shared = reservation(phase="Available", allocateOnce=False)
    grown = (owner(cpu="3", node="n1", of="r"), placeholder(cpu="3"))
    writes = [i for i in plan(shared, reserved=grown).intents if isinstance(i, Create | Delete)]
    # Reserved 4, the owner asks for 3: 1 is held on, by a new placeholder that is made before the old one ends.
    assert [(type(i), i.address.name[-2:]) for i in writes] == [(Create, "-1"), (Delete, "-0")]
    assert isinstance(writes[0], Create)
    assert writes[0].body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_of_two_placeholders_the_one_that_holds_too_much_ends() -> None:
    shared = reservation(phase="Available", allocateOnce=False)
    between = (owner(cpu="3", node="n1", of="r"), placeholder(cpu="3"), placeholder(number=1, cpu="1", node=""))
    writes = [i for i in plan(shared, reserved=between).intents if isinstance(i, Create | Delete)]
    # 4 reserved, 3 in use, 1 to be held: the second placeholder asks for it already.
    assert [(type(i), i.address.name[-2:]) for i in writes] == [(Delete, "-0")]


def test_further_placeholders_avoid_a_crowded_node() -> None:
    settings = ReservationSettings(placeholders_per_node=1)
    view = ReservationView({"r": reservation()}, SERVED, reserved=(placeholder("other"),), now_seconds=NOW)
    (create,) = (i for i in decide(view, settings).intents if isinstance(i, Create))
    (term,) = create.body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]


# --- waiting pods -----------------------------------------------------------------------------------------------------
def test_a_waiting_owner_begins_a_hand_over() -> None:
    writes = plan(reservation(phase="Available"), reserved=(placeholder(),), pending=(owner(),))
    (written,) = writes.intents
    assert isinstance(written, Apply)
    assert written.body["metadata"]["resourceVersion"] == "1"
    assert written.body["spec"]["nodes"] == {"n1": ["shop/web-0"]}


def test_a_pod_that_waits_in_vain_is_let_go() -> None:
    (patch,) = plan(pending=(owner(),)).intents
    assert isinstance(patch, Patch)
    assert patch.operations[-1] == {"op": "replace", "path": "/spec/schedulingGates", "value": []}


def test_only_one_of_two_owners_gets_room_for_one() -> None:
    both = (owner("web-0"), owner("web-1"))
    writes = plan(reservation(phase="Available"), reserved=(placeholder(),), pending=both)
    assert [s.owner.name for s in writes.assignment.begun if s.owner] == ["web-0"]
    assert [p.identity.name for p in writes.assignment.unmatched] == ["web-1"]


@pytest.mark.parametrize(("labels", "waiting"), [({}, []), ({"cotenant.dev/gang": "train"}, ["web-1"])])
def test_a_gangs_member_waits_for_its_room_however_old_it_is(labels: dict[str, str], waiting: list[str]) -> None:
    rooms = [reservation(name, phase="Available", meta={"labels": labels}) for name in ("r", "s")]
    view = ReservationView(
        {room.name: room for room in rooms},
        guard=SERVED,
        nodes=frozenset({"n1"}),
        pending=(owner("web-0"), owner("web-1")),
        reserved=(placeholder("r"), placeholder("s")),
        now_seconds=NOW,
    )
    writes = decide(view, ReservationSettings(gate_seconds=5.0))
    assert [s.owner.name for s in writes.assignment.begun if s.owner] == ["web-0"]
    assert [p.identity.name for p in writes.assignment.waiting] == waiting


def test_a_reservation_of_one_very_pod_is_looked_up_by_its_uid() -> None:
    mine = reservation(phase="Available", owners=[{"object": {"uid": "web-0-uid"}}])
    assert mine.owner_labels == {("", "web-0-uid")}
    both = (owner("web-1"), owner("web-0"))
    writes = plan(mine, reserved=(placeholder(),), pending=both)
    assert [s.owner.name for s in writes.assignment.begun if s.owner] == ["web-0"]
    assert [p.identity.name for p in writes.assignment.unmatched] == ["web-1"]


def test_gates_of_others_come_first() -> None:
    also = owner()
    also = replace(also, gates=(*also.gates, "theirs"))
    assert plan(reservation(phase="Available"), reserved=(placeholder(),), pending=(also,)).intents == ()


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({"cpu": "8"}, {"cpu": "4"}, "b"),
        ({"cpu": "4"}, {"cpu": "8"}, "a"),
        ({"cpu": "4"}, {"cpu": "8", "meta": {"labels": {"scheduling.koordinator.sh/reservation-order": "1"}}}, "b"),
    ],
    ids=["the fuller one", "the fuller one, the other way", "order goes first"],
)
def test_of_several_reservations_koordinators_choice_is_taken(first: Any, second: Any, chosen: str) -> None:
    reservations = (
        reservation("a", phase="Available", **first),
        reservation("b", phase="Available", node="n2", **second),
    )
    placeholders = (placeholder("a", cpu=first["cpu"]), placeholder("b", cpu=second["cpu"], node="n2"))
    (swap,) = plan(*reservations, reserved=placeholders, pending=(owner(),)).assignment.begun
    assert swap.reservation == chosen


def test_a_node_sees_one_hand_over_at_a_time() -> None:
    reservations = (reservation("a", phase="Available"), reservation("b", phase="Available"))
    placeholders = (placeholder("a"), placeholder("b"))
    writes = plan(*reservations, reserved=placeholders, pending=(owner("web-0"), owner("web-1")))
    assert len(writes.assignment.begun) == 1
    assert [p.identity.name for p in writes.assignment.waiting] == ["web-1"]


@pytest.mark.parametrize(
    ("changes", "now_seconds", "outcome", "is_let_go"),
    [
        # Who has ended or is being deleted needs no gate lifted, wherever it was.
        ({"phase": "Failed", "node": "n1"}, NOW, "OwnerGone", False),
        ({"phase": "Failed"}, NOW, "OwnerGone", False),
        ({"deleting": True}, NOW, "OwnerGone", False),
        ({"node": "n2", "phase": "Running"}, NOW, "OwnerGone", False),
        # Who lives and waits is let go once the time of 10 seconds is over.
        ({}, NOW + 10, "TimedOut", True),
    ],
)
def test_a_hand_over_is_given_up_and_only_an_owner_that_still_waits_is_let_go(
    changes: dict[str, Any], now_seconds: float, outcome: str, is_let_go: bool
) -> None:
    waiting = owner()
    placeholder_pod = placeholder()
    swap = ReservationSwap(
        "s",
        "r",
        "r-uid",
        "n1",
        Reference("Pod", waiting.identity.name, "shop", waiting.uid),
        (SwapPlaceholder(placeholder_pod.identity.namespace, placeholder_pod.identity.name, placeholder_pod.uid),),
        expires_seconds=NOW + 10,
    )
    reservations = {"r": reservation(phase="Available")}
    reservation_view = ReservationView(
        reservations,
        pending=(replace(waiting, **changes),),
        reserved=(placeholder_pod,),
        nodes=frozenset({"n1"}),
        now_seconds=now_seconds,
    )
    step = advance(swap, reservation_view, SETTINGS)
    assert (step.outcome, bool(step.intents)) == (outcome, is_let_go)


@pytest.mark.parametrize("hours", [0, 1, 24])
def test_what_a_manager_finds_of_a_hand_over_is_written_as_the_policy_takes_it(hours: int) -> None:
    """Of 30 minutes at most, also where nobody looked after it for a day: a refused write would stop all others."""
    open_ = reservation(phase="Available")
    (guard_apply,) = plan(open_, reserved=(placeholder(),), pending=(owner(),)).intents
    assert isinstance(guard_apply, Apply)
    guard = Guard.parse({**guard_apply.body, "metadata": {"resourceVersion": "2"}})
    (swap,) = guard.swaps
    now = NOW + 16 + 3600 * hours  # its own time of 15 seconds is over, and its owner has ended
    view_fields = {"guard": guard, "now_seconds": now, "noticed": {swap.id: now - 16}}
    intents = plan(open_, reserved=(placeholder(),), **view_fields).intents
    (written,) = (intent for intent in intents if isinstance(intent, Apply) and intent.address.resource == "swapguards")
    (back,) = Guard.parse(written.body).swaps
    assert back.owner is None and back.rest is not None
    assert 0 < back.expires_seconds - back.started_seconds <= LONGEST_PROMISE_SECONDS


def test_restricted_room_is_not_for_owners_that_need_more() -> None:
    strict = reservation(phase="Available", allocatePolicy="Restricted")
    writes = plan(strict, reserved=(placeholder(),), pending=(owner(cpu="5"),))
    assert writes.assignment.begun == []
    assert len(writes.assignment.unmatched) == 1


def test_the_sign_of_life_is_renewed_in_time() -> None:
    quiet = {"reserved": (placeholder(),)}
    open_ = reservation(phase="Available")
    assert plan(open_, guard=Guard((), NOW + 21, "1"), **quiet).intents == ()
    (renewed,) = plan(open_, guard=Guard((), NOW + 19, "1"), **quiet).intents
    assert isinstance(renewed, Apply)
    assert renewed.body["spec"] == {"servedUntil": "1970-01-01T02:47:10.000000Z"}  # 10,000 + 30 s


# --- last resort ------------------------------------------------------------------------------------------------------
LAST = {"annotations": {"cotenant.dev/reservation-mode": "last-resort"}}


def test_a_last_resort_placeholder_stands_just_below_its_owners() -> None:
    last_resort = reservation(meta=LAST, template={"priorityClassName": "web"})
    (create,) = (i for i in plan(last_resort, classes={"web": 1000}).intents if isinstance(i, Create))
    assert (create.address.resource, create.body["value"]) == ("priorityclasses", 999)
    classes = {"web": 1000, "cotenant-below-999": 999}
    (second_create,) = (i for i in plan(last_resort, classes=classes).intents if isinstance(i, Create))
    assert second_create.body["spec"]["priorityClassName"] == "cotenant-below-999"


def test_who_pushes_a_last_resort_placeholder_aside_is_written_down() -> None:
    taking = replace(owner(gated=False), nominated="n1")
    (patch,) = plan(reservation(phase="Available", meta=LAST), reserved=(placeholder(),), pending=(taking,)).intents
    assert isinstance(patch, Patch)
    assert any("reservation-allocated" in str(o["path"]) + str(o["value"]) for o in patch.operations)


def test_it_is_looked_who_took_the_room_before_it_is_asked_for_again() -> None:
    lost = reservation(phase="Available", meta=LAST)
    assert plan(lost).asks == {"n1"}
    took: PodView = owner(gated=False, node="n1")
    (patch,) = plan(lost, found={"n1": (took,)}).intents
    assert isinstance(patch, Patch)
    nominated = replace(took, node="", nominated="n1")
    (patch,) = plan(lost, found={"n1": (nominated,)}).intents
    assert isinstance(patch, Patch)
    assert plan(lost, found={"n1": (replace(nominated, node="n2"),)}).intents == plan(lost, found={"n1": ()}).intents
    # Mirrors tell of the placeholder's end and of who pushed it aside in any order: ten seconds are given.
    first = plan(lost, found={"n1": ()})
    assert (status_of(first)["phase"], condition(status_of(first), "Ready")) == ("Available", ("False", "RoomLost"))
    assert len(first.intents) == 1
    reported = reservation(phase="Available", meta=LAST, conditions=status_of(first)["conditions"])
    later = {"now_seconds": NOW + 10, "guard": Guard((), NOW + 40, "1"), "classes": {"cotenant-below-minus-1": -1}}
    early = plan(reported, found={"n1": ()}, **{**later, "now_seconds": NOW + 9.9})
    assert (status_of(early)["phase"], status_of(early)["nodeName"]) == ("Available", "n1")
    anew = plan(reported, found={"n1": ()}, **later)
    assert status_of(anew)["phase"] == "Pending"
    (create,) = (i for i in anew.intents if isinstance(i, Create))
    assert "affinity" not in create.body["spec"]
