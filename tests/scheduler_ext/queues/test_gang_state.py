"""Gangs in a small cluster with both controllers: whole or not at all, whatever comes between two writes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE
from cotenant.scheduler_ext.queues.gangs.state import back_off_seconds
from cotenant.scheduler_ext.queues.model.gang import gang_of_pod_group
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from tests.scheduler_ext.queues.gang_world import CONTROLLERS, GangWorld


def test_a_complete_gang_with_room_runs_whole_and_nothing_stays_held() -> None:
    world = GangWorld({"a": 2, "b": 2})
    world.gang("train", 4)
    world.settle()
    assert len(world.bound("train")) == 4
    assert (world.state("train"), world.held(), world.partial) == ("Running", [], [])


def test_an_incomplete_gang_holds_nothing() -> None:
    world = GangWorld({"a": 8})
    for number in range(3):
        world.pod(f"train-{number}", gang="train", min_available="4")
    world.settle()
    assert (world.bound("train"), world.held(), world.state("train")) == ([], [], "Incomplete")
    assert "lacks 1 of the 4 pods" in world.decision.statuses[0].reason
    world.pod("train-3", gang="train", min_available="4")
    world.settle()
    assert len(world.bound("train")) == 4


def test_a_gang_that_fits_nowhere_is_told_so_at_once_and_holds_nothing() -> None:
    world = GangWorld({"a": 4, "b": 4})
    world.gang("train", 3, cpu=3)
    world.settle(1)
    (standing,) = world.decision.statuses
    assert (standing.state, standing.code) == ("NoRoom", "gang-never-fits")
    assert standing.reason.endswith("all nodes (2 nodes): capacity for 2 of 3 pods, cpu 8 free of 9 needed")
    assert world.held() == []


def test_of_two_gangs_with_room_for_one_the_second_runs_when_the_first_is_deleted() -> None:
    world = GangWorld({"a": 2, "b": 2})
    world.gang("one", 4)
    world.now += 5
    world.gang("two", 4)
    world.settle()
    assert (len(world.bound("one")), world.bound("two"), world.state("two")) == (4, [], "NoRoom")
    for number in range(4):
        del world.objects[f"pods/shop/one-{number}"]
    world.settle()
    assert len(world.bound("two")) == 4
    assert (world.held(), world.partial) == ([], [])


def test_gangs_that_fit_side_by_side_are_placed_together_others_one_after_the_other() -> None:
    world = GangWorld({"a": 4, "b": 4})
    for name in ("one", "two", "three"):
        world.gang(name, 4)
    world.decide("queues")
    assert [s.state for s in world.decision.statuses] == ["Placing", "Placing", "Queued"]
    assert {s.group.key: s.code for s in world.decision.statuses}["shop/two"] == "gang-behind-another"


def test_a_gang_whose_room_was_taken_meanwhile_gives_all_back_and_backs_off() -> None:
    world = GangWorld({"a": 2, "b": 2}, QueueSettings(back_off_seconds=5.0))
    world.gang("train", 4)
    world.decide("queues")
    while world.queues["queues"]:
        world.write("queues")
    world.pod("thief", 2)
    world.schedule()
    world.settle(3)
    assert (world.bound("train"), world.held(), world.partial) == ([], [], [])
    assert world.attempts["shop/train"][0] == 1
    del world.objects["pods/shop/thief"]
    world.now += 5
    world.settle()
    assert len(world.bound("train")) == 4
    assert world.attempts == {}


def test_a_gang_that_is_not_placed_in_time_gives_all_back_at_once() -> None:
    world = GangWorld({"a": 4}, QueueSettings(gang_place_seconds=30.0))
    world.gang("train", 4)
    for controller in CONTROLLERS:
        world.decide(controller)
        while world.queues[controller]:
            world.write(controller)
    world.now += 31
    world.decide("queues")
    assert {intent.address.resource for intent in world.decision.intents} == {"reservations"}
    assert len(world.decision.intents) == 4
    assert "4 of 4 members had no capacity after 30 s" in world.decision.statuses[0].reason


@pytest.mark.parametrize(("mode", "held"), [("Strict", 0), ("NonStrict", 2)])
def test_a_member_without_a_place_ends_a_strict_attempt_and_not_one_that_is_not(mode: str, held: int) -> None:
    world = GangWorld({"a": 2})
    world.gang("train", 2, mode=mode)
    world.decide("queues")
    while world.queues["queues"]:
        world.write("queues")
    world.pod("thief", 2)
    world.schedule()
    world.settle(3)
    assert len(world.held()) == held
    assert world.bound("train") == []


def test_the_gangs_of_a_group_start_together() -> None:
    world = GangWorld({"a": 8})
    both = '["shop/one", "shop/two"]'
    world.gang("one", 2, groups=both)
    world.settle(5)
    assert (world.bound("one"), world.state("one"), world.held()) == ([], "Incomplete", [])
    assert "gangs that do not exist: shop/two" in world.decision.statuses[0].reason
    world.gang("two", 2, groups=both)
    world.settle()
    assert len(world.bound("one") + world.bound("two")) == 4


def test_further_members_of_a_started_gang_pass_one_by_one() -> None:
    world = GangWorld({"a": 3})
    world.gang("train", 2, min_available="2", total_number="5")
    world.settle()
    for number in (2, 3):
        world.pod(f"train-{number}", gang="train", min_available="2", total_number="5")
        world.settle()
    assert len(world.bound("train")) == 3
    assert not any(GANG_GATE in pod.gates for pod in world.queue_pods())


def test_more_members_than_the_minimum_do_not_keep_it_from_starting() -> None:
    world = GangWorld({"a": 3})
    world.gang("train", 5, min_available="2", total_number="5")
    world.settle()
    assert len(world.bound("train")) == 3


@pytest.mark.parametrize(("policy", "bound"), [("once-satisfied", 3), ("waiting-and-running", 3), ("only-waiting", 2)])
def test_match_policies_decide_whether_one_new_member_waits(policy: str, bound: int) -> None:
    world = GangWorld({"a": 8})
    terms: dict[str, Any] = {"min_available": "2", "match_policy": policy}
    world.gang("train", 2, **terms)
    world.settle()
    world.pod("train-2", gang="train", **terms)
    world.settle()
    assert len(world.bound("train")) == bound


def test_a_replacement_waits_for_the_others_where_running_members_count() -> None:
    world = GangWorld({"a": 8})
    terms: dict[str, Any] = {"min_available": "4", "match_policy": "waiting-and-running"}
    world.gang("train", 4, **terms)
    world.settle()
    for number in (0, 1):
        del world.objects[f"pods/shop/train-{number}"]
    world.pod("train-4", gang="train", **terms)
    world.settle()
    assert (len(world.bound("train")), world.state("train")) == (2, "Incomplete")
    world.pod("train-5", gang="train", **terms)
    world.settle()
    assert len(world.bound("train")) == 4


def test_a_gang_waits_for_its_quota_as_a_whole() -> None:
    world = GangWorld({"a": 8})
    world.gang("train", 2)
    body = world.objects["pods/shop/train-1"]
    body["spec"]["schedulingGates"].append({"name": QUOTA_GATE})
    world.settle()
    assert (world.state("train"), world.held()) == ("WaitsForQuota", [])


def test_a_deleted_member_gives_its_room_back_and_the_gang_waits_for_another() -> None:
    world = GangWorld({"a": 4})
    world.gang("train", 4)
    for controller in CONTROLLERS:
        world.decide(controller)
        while world.queues[controller]:
            world.write(controller)
    assert len(world.held()) == 4
    del world.objects["pods/shop/train-0"]
    world.settle()
    assert (world.held(), world.state("train"), world.free()) == ([], "Incomplete", {"a": 4})


def test_a_gang_that_waits_too_long_is_told_so_and_goes_behind_the_others() -> None:
    world = GangWorld({"a": 4})
    world.pod("holder", 1)
    world.schedule()
    world.gang("old", 4, waiting_time="60s")
    world.now += 61
    world.gang("new", 4)
    world.decide("queues")
    states = {s.group.key: (s.state, s.position) for s in world.decision.statuses}
    assert states == {"shop/old": ("TimedOut", 2), "shop/new": ("NoRoom", 1)}


def test_a_gang_that_cannot_be_used_is_told_why_and_the_others_go_on() -> None:
    world = GangWorld({"a": 4})
    world.pod_groups["shop/bad"] = gang_of_pod_group(
        {"metadata": {"namespace": "shop", "name": "bad"}, "spec": {"minMember": 0}}
    )
    world.gang("bad", 2)
    world.gang("good", 2)
    world.settle()
    assert (world.state("bad"), world.bound("bad"), len(world.bound("good"))) == ("Invalid", [], 2)
    assert "podgroups/shop/bad: spec.minMember 0" in world.decision.statuses[0].reason


def test_a_gang_that_requests_nothing_needs_no_room() -> None:
    world = GangWorld({"a": 1})
    world.gang("train", 3, cpu=0)
    world.settle()
    assert len(world.bound("train")) == 3


def test_pauses_double_up_to_a_limit() -> None:
    settings = QueueSettings(back_off_seconds=5.0, longest_back_off_seconds=30.0)
    assert [back_off_seconds(n, settings) for n in (1, 2, 3, 4, 10_000)] == [5.0, 10.0, 20.0, 30.0, 30.0]


ACTIONS = (
    *("decide queues", "write queues", "write queues", "write queues"),
    *("decide reservations", "write reservations", "write reservations", "write reservations"),
    *("schedule", "schedule", "schedule"),
    *("crash queues", "crash reservations", "time", "stranger", "leave", "member"),
)


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 1_000), marks=pytest.mark.soak)], ids=str)
def test_whatever_comes_between_a_gang_starts_whole_or_not_at_all(seeds: range) -> None:
    for seed in seeds:
        world = walk(random.Random(seed))
        assert (world.held(), world.partial) == ([], []), f"seed {seed}"


def walk(chance: random.Random) -> GangWorld:
    """Random steps of everybody; then strangers leave, and every gang that still is complete runs in its turn."""
    world = GangWorld({"a": 3, "b": 3}, QueueSettings(back_off_seconds=1.0, longest_back_off_seconds=4.0))
    sizes = {"one": 4, "two": chance.choice((2, 4))}
    for name, size in sizes.items():
        world.gang(name, size)
    for _ in range(chance.randint(20, 100)):
        act(world, chance.choice(ACTIONS), chance.randint(0, 7))
        assert all(free >= 0 for free in world.free().values())
    assert world.partial == []
    remove(world, "stranger")
    for _ in sizes:
        world.now += 60
        world.settle(80)
        complete = [name for name, size in sizes.items() if len(world.members(name)) == size]
        running = [name for name in complete if len(world.bound(name)) == sizes[name]]
        assert running or not complete, world.decision.statuses
        for name in running:
            remove(world, name)
    return world


def act(world: GangWorld, action: str, number: int) -> None:
    """One step of anybody."""
    verb, _, controller = action.partition(" ")
    if verb == "decide" and not world.queues[controller]:
        world.decide(controller)
    elif verb == "write":
        world.write(controller, number)
    elif verb == "crash":
        world.crash(controller)
    elif verb == "schedule":
        world.schedule(number)
    elif verb == "time":
        world.now += 0.5 * number
    elif verb == "stranger" and f"pods/shop/stranger-{number}" not in world.objects:
        world.pod(f"stranger-{number}", 1 + number % 2)
    elif verb == "leave":
        world.objects.pop(f"pods/shop/stranger-{number}", None)
    elif verb == "member" and number == 0:
        world.objects.pop("pods/shop/two-0", None)


def remove(world: GangWorld, prefix: str) -> None:
    """Delete pods by the beginning of their names."""
    for key in [key for key in world.objects if key.startswith(f"pods/shop/{prefix}")]:
        del world.objects[key]


@pytest.mark.parametrize("left", ["label-gone", "never-named"])
def test_a_pod_behind_the_gangs_gate_without_a_gang_is_let_go(left: str) -> None:
    """Nothing will ever place it: its label is gone, or its author wrote the gate alone."""
    world = GangWorld({"a": 4})
    world.pod("train-0", gang="train", min_available="2")
    world.settle()
    key = "pods/shop/train-0"
    assert world.objects[key]["spec"]["schedulingGates"]
    body = world.objects[key]
    words = {} if left == "label-gone" else {"note": "copied"}
    body = {**body, "metadata": {**body["metadata"], "annotations": words}}
    world.put(key, body)
    world.settle()
    assert not world.objects[key]["spec"].get("schedulingGates")
    assert world.objects[key]["spec"].get("nodeName") == "a"
    assert world.held() == []


def test_a_pod_whose_gang_may_still_come_keeps_its_gate_with_the_reason() -> None:
    world = GangWorld({"a": 4})
    world.pod("train-0", gang="train")  # names a gang, and nobody says how many start together
    world.settle()
    assert world.objects["pods/shop/train-0"]["spec"]["schedulingGates"]
    assert world.state("train") == "Invalid"
    assert "no PodGroup shop/train exists" in world.decision.statuses[0].reason
