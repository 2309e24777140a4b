"""What PodGroups and people are told of gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.scheduler_ext.queues.decide import decide
from cotenant.scheduler_ext.queues.gangs.group import GangMembers
from cotenant.scheduler_ext.queues.gangs.report import changed_status, gang_rows, gang_waiting_rows, pod_group_intents
from cotenant.scheduler_ext.queues.model.explanation import explanation, row_of
from cotenant.scheduler_ext.queues.model.gang import Gang, gang_of_pod_group
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.report import GangState
from cotenant.scheduler_ext.queues.quota_report import queue_report
from tests.scheduler_ext.queues.gang_world import GangWorld

NOW = 1_000_000.0


def pod_group(least: int = 2, **status: Any) -> Gang:
    meta = {"namespace": "shop", "name": "train", "uid": "u"}
    return gang_of_pod_group({"metadata": meta, "spec": {"minMember": least}, "status": status})


def members(bound: int, running: int, waiting: int, /, **status: Any) -> GangMembers:
    phases = ["Running"] * running + ["Pending"] * (bound - running)
    placed = [QueuePod("shop", f"b{i}", f"b{i}", node="n", phase=phase) for i, phase in enumerate(phases)]
    others = [QueuePod("shop", f"w{i}", f"w{i}", gates=("cotenant.dev/gang",)) for i in range(waiting)]
    return GangMembers(pod_group(**status), (*placed, *others))


@pytest.mark.parametrize(
    ("bound", "running", "waiting", "state", "phase"),
    [
        (0, 0, 0, GangState.INCOMPLETE, "Pending"),
        (0, 0, 1, GangState.INCOMPLETE, "Pending"),
        (0, 0, 2, GangState.NO_CAPACITY, "PreScheduling"),
        (0, 0, 2, GangState.PLACING, "Scheduling"),
        (1, 1, 1, GangState.OPENING, "Scheduling"),
        (2, 1, 0, GangState.RUNNING, "Scheduled"),
        (2, 2, 3, GangState.RUNNING, "Running"),
    ],
)
def test_phases_are_those_of_koordinator(bound: int, running: int, waiting: int, state: GangState, phase: str) -> None:
    status = changed_status(members(bound, running, waiting), state, NOW)
    assert (status["phase"], status["scheduled"], status["running"]) == (phase, bound, running)
    assert ("scheduleStartTime" in status) is (bound > 0 or state is GangState.PLACING)


@pytest.mark.parametrize(
    ("running", "succeeded", "failed", "phase"),
    [
        (1, 1, 0, "Scheduling"),  # of the 2 that start together 1 has ended
        (0, 2, 0, "Finished"),
        (1, 2, 0, "Finished"),
        (1, 0, 1, "Failed"),  # 1 failed, and 2 have ended or run
        (0, 0, 1, "Pending"),
        (0, 2, 1, "Finished"),
    ],
)
def test_a_pod_group_finishes_or_fails_by_how_its_members_ended(
    running: int, succeeded: int, failed: int, phase: str
) -> None:
    ended = replace(members(running, running, 0), succeeded=succeeded, failed=failed)
    status = changed_status(ended, GangState.INCOMPLETE, NOW)
    assert (status["phase"], status["succeeded"], status["failed"]) == (phase, succeeded, failed)


def test_a_status_that_says_it_already_is_not_written_again() -> None:
    status_fields = {"phase": "Running", "scheduled": 2, "running": 2, "scheduleStartTime": "1970-01-12T13:46:40Z"}
    assert changed_status(members(2, 2, 0, **status_fields), GangState.RUNNING, NOW) == {}
    assert changed_status(members(1, 1, 0, **status_fields), GangState.RUNNING, NOW)["scheduled"] == 1


def test_a_finished_pod_group_whose_pods_are_gone_is_left_alone() -> None:
    assert changed_status(members(0, 0, 0, phase="Finished", scheduled=2), GangState.INCOMPLETE, NOW) == {}


def test_the_write_names_the_object_and_comes_from_the_decision() -> None:
    cluster = GangWorld({"a": 1})
    cluster.pod_groups["shop/train"] = pod_group(4)
    cluster.gang("train", 4)
    cluster.decide("queues")
    (intent,) = pod_group_intents(cluster.decision.statuses, cluster.now)
    assert str(intent.address) == "podgroups/shop/train"
    assert intent.body["status"] == {
        "phase": "PreScheduling",
        "scheduled": 0,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
    }
    assert intent.body["metadata"]["uid"] == "u"


def test_rows_say_where_each_gang_stands_and_why_its_members_wait() -> None:
    cluster = GangWorld({"a": 2})
    cluster.gang("runs", 2)
    cluster.settle()
    cluster.gang("waits", 2)
    cluster.decide("queues")
    rows = {row.gang: row for row in gang_rows(cluster.decision.statuses, cluster.queue_view(), cluster.settings)}
    assert (rows["runs"].state, rows["runs"].members, rows["runs"].placed) == ("Running", 2, 2)
    assert (rows["waits"].state, rows["waits"].placed, rows["waits"].min_available) == ("NoRoom", 0, 2)
    assert rows["waits"].reason == "all nodes (1 node): capacity for 0 of 2 pods, cpu 0 free of 2 needed"
    waiting = list(gang_waiting_rows(cluster.decision.statuses))
    assert [(row.pod, row.position, row.code) for row in waiting] == [
        ("waits-0", 1, "gang-no-room-now"),
        ("waits-1", 1, "gang-no-room-now"),
    ]


def test_a_waiting_member_is_explained_with_its_gang_and_where_that_stands() -> None:
    cluster = GangWorld({"a": 1})
    cluster.gang("train", 2)
    report = queue_report(cluster.queue_view(), cluster.settings)
    row = row_of(report, "shop", "train-0")
    assert row is not None
    answers = {line["what"]: line["answer"] for line in explanation(report, row).rows()}
    assert answers["gang"].startswith("shop/train NoRoom: 2 of 2 pods exist, 0 are placed, 2 must be placed together")


def test_the_whole_decision_places_gangs_and_reports_them() -> None:
    cluster = GangWorld({"a": 2})
    cluster.gang("train", 2)
    cluster.pod_groups["shop/none"] = gang_of_pod_group({"metadata": {"namespace": "shop", "name": "none"}})
    writes = decide(cluster.queue_view(), cluster.settings)
    assert sorted(intent.address.resource for intent in writes.intents) == ["podgroups", "reservations", "reservations"]
    assert {row.gang: row.state for row in writes.report.gangs} == {"train": "Placing", "none": "Invalid"}
    assert writes.notes == writes.report.problems
    assert writes.report.problems[0][0] == "podgroups/shop/none"
    assert writes.report.problems[0][1].startswith("spec.minMember null")  # the object's name is said once
    assert queue_report(cluster.queue_view(), cluster.settings) == writes.report
