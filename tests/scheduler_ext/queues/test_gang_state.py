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
    cluster = GangWorld({"a": 2, "b": 2})
    cluster.gang("train", 4)
    cluster.settle()
    assert len(cluster.bound("train")) == 4
    assert (cluster.state("train"), cluster.reservation_names(), cluster.partial) == ("Running", [], [])


def test_an_incomplete_gang_holds_nothing() -> None:
    cluster = GangWorld({"a": 8})
    for number in range(3):
        cluster.pod(f"train-{number}", gang="train", min_available="4")
    cluster.settle()
    assert (cluster.bound("train"), cluster.reservation_names(), cluster.state("train")) == ([], [], "Incomplete")
    assert "lacks 1 of the 4 pods" in cluster.decision.statuses[0].reason
    cluster.pod("train-3", gang="train", min_available="4")
    cluster.settle()
    assert len(cluster.bound("train")) == 4


def test_a_gang_that_fits_nowhere_is_told_so_at_once_and_holds_nothing() -> None:
    cluster = GangWorld({"a": 4, "b": 4})
    cluster.gang("train", 3, cpu=3)
    cluster.settle(1)
    (standing,) = cluster.decision.statuses
    assert (standing.state, standing.code) == ("NoRoom", "gang-never-fits")
    assert standing.reason.endswith("all nodes (2 nodes): capacity for 2 of 3 pods, cpu 8 free of 9 needed")
    assert cluster.reservation_names() == []


def test_of_two_gangs_with_room_for_one_the_second_runs_when_the_first_is_deleted() -> None:
    cluster = GangWorld({"a": 2, "b": 2})
    cluster.gang("one", 4)
    cluster.now += 5
    cluster.gang("two", 4)
    cluster.settle()
    assert (len(cluster.bound("one")), cluster.bound("two"), cluster.state("two")) == (4, [], "NoRoom")
    for number in range(4):
        del cluster.objects[f"pods/shop/one-{number}"]
    cluster.settle()
    assert len(cluster.bound("two")) == 4
    assert (cluster.reservation_names(), cluster.partial) == ([], [])


def test_gangs_that_fit_side_by_side_are_placed_together_others_one_after_the_other() -> None:
    cluster = GangWorld({"a": 4, "b": 4})
    for name in ("one", "two", "three"):
        cluster.gang(name, 4)
    cluster.decide("queues")
    assert [s.state for s in cluster.decision.statuses] == ["Placing", "Placing", "Queued"]
    assert {s.group.key: s.code for s in cluster.decision.statuses}["shop/two"] == "gang-behind-another"


def test_a_gang_whose_room_was_taken_meanwhile_gives_all_back_and_backs_off() -> None:
    cluster = GangWorld({"a": 2, "b": 2}, QueueSettings(back_off_seconds=5.0))
    cluster.gang("train", 4)
    cluster.decide("queues")
    while cluster.queues["queues"]:
        cluster.write("queues")
    cluster.pod("thief", 2)
    cluster.schedule()
    cluster.settle(3)
    assert (cluster.bound("train"), cluster.reservation_names(), cluster.partial) == ([], [], [])
    assert cluster.attempts["shop/train"][0] == 1
    del cluster.objects["pods/shop/thief"]
    cluster.now += 5
    cluster.settle()
    assert len(cluster.bound("train")) == 4
    assert cluster.attempts == {}


def test_a_gang_that_is_not_placed_in_time_gives_all_back_at_once() -> None:
    cluster = GangWorld({"a": 4}, QueueSettings(gang_place_seconds=30.0))
    cluster.gang("train", 4)
    for controller in CONTROLLERS:
        cluster.decide(controller)
        while cluster.queues[controller]:
            cluster.write(controller)
    cluster.now += 31
    cluster.decide("queues")
    assert {intent.address.resource for intent in cluster.decision.intents} == {"reservations"}
    assert len(cluster.decision.intents) == 4
    assert "4 of 4 members had no capacity after 30 s" in cluster.decision.statuses[0].reason


@pytest.mark.parametrize(("mode", "reserved"), [("Strict", 0), ("NonStrict", 2)])
def test_a_member_without_a_place_ends_a_strict_attempt_and_not_one_that_is_not(mode: str, reserved: int) -> None:
    cluster = GangWorld({"a": 2})
    cluster.gang("train", 2, mode=mode)
    cluster.decide("queues")
    while cluster.queues["queues"]:
        cluster.write("queues")
    cluster.pod("thief", 2)
    cluster.schedule()
    cluster.settle(3)
    assert len(cluster.reservation_names()) == reserved
    assert cluster.bound("train") == []


def test_the_gangs_of_a_group_start_together() -> None:
    cluster = GangWorld({"a": 8})
    both = '["shop/one", "shop/two"]'
    cluster.gang("one", 2, groups=both)
    cluster.settle(5)
    assert (cluster.bound("one"), cluster.state("one"), cluster.reservation_names()) == ([], "Incomplete", [])
    assert "gangs that do not exist: shop/two" in cluster.decision.statuses[0].reason
    cluster.gang("two", 2, groups=both)
    cluster.settle()
    assert len(cluster.bound("one") + cluster.bound("two")) == 4


def test_further_members_of_a_started_gang_pass_one_by_one() -> None:
    cluster = GangWorld({"a": 3})
    cluster.gang("train", 2, min_available="2", total_number="5")
    cluster.settle()
    for number in (2, 3):
        cluster.pod(f"train-{number}", gang="train", min_available="2", total_number="5")
        cluster.settle()
    assert len(cluster.bound("train")) == 3
    assert not any(GANG_GATE in pod.gates for pod in cluster.queue_pods())


def test_more_members_than_the_minimum_do_not_keep_it_from_starting() -> None:
    cluster = GangWorld({"a": 3})
    cluster.gang("train", 5, min_available="2", total_number="5")
    cluster.settle()
    assert len(cluster.bound("train")) == 3


@pytest.mark.parametrize(("policy", "bound"), [("once-satisfied", 3), ("waiting-and-running", 3), ("only-waiting", 2)])
def test_match_policies_decide_whether_one_new_member_waits(policy: str, bound: int) -> None:
    cluster = GangWorld({"a": 8})
    terms: dict[str, Any] = {"min_available": "2", "match_policy": policy}
    cluster.gang("train", 2, **terms)
    cluster.settle()
    cluster.pod("train-2", gang="train", **terms)
    cluster.settle()
    assert len(cluster.bound("train")) == bound


def test_a_replacement_waits_for_the_others_where_running_members_count() -> None:
    cluster = GangWorld({"a": 8})
    terms: dict[str, Any] = {"min_available": "4", "match_policy": "waiting-and-running"}
    cluster.gang("train", 4, **terms)
    cluster.settle()
    for number in (0, 1):
        del cluster.objects[f"pods/shop/train-{number}"]
    cluster.pod("train-4", gang="train", **terms)
    cluster.settle()
    assert (len(cluster.bound("train")), cluster.state("train")) == (2, "Incomplete")
    cluster.pod("train-5", gang="train", **terms)
    cluster.settle()
    assert len(cluster.bound("train")) == 4


def test_a_gang_waits_for_its_quota_as_a_whole() -> None:
    cluster = GangWorld({"a": 8})
    cluster.gang("train", 2)
    body = cluster.objects["pods/shop/train-1"]
    body["spec"]["schedulingGates"].append({"name": QUOTA_GATE})
    cluster.settle()
    assert (cluster.state("train"), cluster.reservation_names()) == ("WaitsForQuota", [])


def test_a_deleted_member_gives_its_room_back_and_the_gang_waits_for_another() -> None:
    cluster = GangWorld({"a": 4})
    cluster.gang("train", 4)
    for controller in CONTROLLERS:
        cluster.decide(controller)
        while cluster.queues[controller]:
            cluster.write(controller)
    assert len(cluster.reservation_names()) == 4
    del cluster.objects["pods/shop/train-0"]
    cluster.settle()
    assert (cluster.reservation_names(), cluster.state("train"), cluster.free()) == ([], "Incomplete", {"a": 4})


def test_a_gang_that_waits_too_long_is_told_so_and_goes_behind_the_others() -> None:
    cluster = GangWorld({"a": 4})
    cluster.pod("holder", 1)
    cluster.schedule()
    cluster.gang("old", 4, waiting_time="60s")
    cluster.now += 61
    cluster.gang("new", 4)
    cluster.decide("queues")
    states = {s.group.key: (s.state, s.position) for s in cluster.decision.statuses}
    assert states == {"shop/old": ("TimedOut", 2), "shop/new": ("NoRoom", 1)}


def test_a_gang_that_cannot_be_used_is_told_why_and_the_others_go_on() -> None:
    cluster = GangWorld({"a": 4})
    cluster.pod_groups["shop/bad"] = gang_of_pod_group(
        {"metadata": {"namespace": "shop", "name": "bad"}, "spec": {"minMember": 0}}
    )
    cluster.gang("bad", 2)
    cluster.gang("good", 2)
    cluster.settle()
    assert (cluster.state("bad"), cluster.bound("bad"), len(cluster.bound("good"))) == ("Invalid", [], 2)
    assert "podgroups/shop/bad: spec.minMember 0" in cluster.decision.statuses[0].reason


def test_a_gang_that_requests_nothing_needs_no_room() -> None:
    cluster = GangWorld({"a": 1})
    cluster.gang("train", 3, cpu=0)
    cluster.settle()
    assert len(cluster.bound("train")) == 3


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
        cluster = walk(random.Random(seed))
        assert (cluster.reservation_names(), cluster.partial) == ([], []), f"seed {seed}"


def walk(chance: random.Random) -> GangWorld:
    """Random steps of everybody; then strangers leave, and every gang that still is complete runs in its turn."""
    cluster = GangWorld({"a": 3, "b": 3}, QueueSettings(back_off_seconds=1.0, longest_back_off_seconds=4.0))
    sizes = {"one": 4, "two": chance.choice((2, 4))}
    for name, size in sizes.items():
        cluster.gang(name, size)
    for _ in range(chance.randint(20, 100)):
        act(cluster, chance.choice(ACTIONS), chance.randint(0, 7))
        assert all(free >= 0 for free in cluster.free().values())
    assert cluster.partial == []
    remove(cluster, "stranger")
    for _ in sizes:
        cluster.now += 60
        cluster.settle(80)
        complete = [name for name, size in sizes.items() if len(cluster.members(name)) == size]
        running = [name for name in complete if len(cluster.bound(name)) == sizes[name]]
        assert running or not complete, cluster.decision.statuses
        for name in running:
            remove(cluster, name)
    return cluster


def act(cluster: GangWorld, action: str, number: int) -> None:
    """One step of anybody."""
    verb, _, controller = action.partition(" ")
    if verb == "decide" and not cluster.queues[controller]:
        cluster.decide(controller)
    elif verb == "write":
        cluster.write(controller, number)
    elif verb == "crash":
        cluster.crash(controller)
    elif verb == "schedule":
        cluster.schedule(number)
    elif verb == "time":
        cluster.now += 0.5 * number
    elif verb == "stranger" and f"pods/shop/stranger-{number}" not in cluster.objects:
        cluster.pod(f"stranger-{number}", 1 + number % 2)
    elif verb == "leave":
        cluster.objects.pop(f"pods/shop/stranger-{number}", None)
    elif verb == "member" and number == 0:
        cluster.objects.pop("pods/shop/two-0", None)


def remove(cluster: GangWorld, prefix: str) -> None:
    """Delete pods by the beginning of their names."""
    for key in [key for key in cluster.objects if key.startswith(f"pods/shop/{prefix}")]:
        del cluster.objects[key]


@pytest.mark.parametrize("leftover", ["label-gone", "never-named"])
def test_a_pod_behind_the_gangs_gate_without_a_gang_is_let_go(leftover: str) -> None:
    """Nothing will ever place it: its label is gone, or its author wrote the gate alone."""
    cluster = GangWorld({"a": 4})
    cluster.pod("train-0", gang="train", min_available="2")
    cluster.settle()
    key = "pods/shop/train-0"
    assert cluster.objects[key]["spec"]["schedulingGates"]
    body = cluster.objects[key]
    pod_annotations = {} if leftover == "label-gone" else {"note": "copied"}
    body = {**body, "metadata": {**body["metadata"], "annotations": pod_annotations}}
    cluster.put(key, body)
    cluster.settle()
    assert not cluster.objects[key]["spec"].get("schedulingGates")
    assert cluster.objects[key]["spec"].get("nodeName") == "a"
    assert cluster.reservation_names() == []


def test_a_pod_whose_gang_may_still_come_keeps_its_gate_with_the_reason() -> None:
    cluster = GangWorld({"a": 4})
    cluster.pod("train-0", gang="train")  # names a gang, and nobody says how many start together
    cluster.settle()
    assert cluster.objects["pods/shop/train-0"]["spec"]["schedulingGates"]
    assert cluster.state("train") == "Invalid"
    assert "no PodGroup shop/train exists" in cluster.decision.statuses[0].reason
