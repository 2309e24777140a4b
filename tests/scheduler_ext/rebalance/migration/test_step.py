"""What a job does next: room first, then the eviction, then the successor; and every way to fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.base.kubernetes.intent import Create, Patch
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration.decide import decide
from cotenant.scheduler_ext.rebalance.migration.job import JobPhase, MigrationJob
from cotenant.scheduler_ext.rebalance.migration.step import JobAdvance, advance_job
from cotenant.scheduler_ext.rebalance.migration.view import EvictionRefusal
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from tests.scheduler_ext.rebalance.migration.moves import (
    EVICTING,
    ROOM_HELD,
    SOURCE,
    TARGET,
    condition,
    job,
    on_node,
    room,
    running,
    view,
)
from tests.scheduler_ext.rebalance.small_cluster import NOW

WEB = on_node("web-1")
NEXT = on_node("web-2", TARGET)
FULL = room("Pending", "", conditions=[condition("Scheduled", "False", "full")])


def step(
    migration_job: MigrationJob, *rooms: Reservation, pods: tuple[RebalancePod, ...] = (WEB,), **changes: Any
) -> JobAdvance:
    return advance_job(view([migration_job], pods, *rooms, **changes), migration_job)


def test_room_on_another_node_is_asked_for_first() -> None:
    advance = step(job(status=running()))
    (intent,) = advance.intents
    assert isinstance(intent, Create) and advance.eviction is None
    assert intent.address.name == "migration-move-uid"
    spec = intent.body["spec"]
    assert spec["owners"][0]["controller"]["name"] == "web" and spec["allocateOnce"] is True
    # 5 minutes from its creation a minute ago, and a minute to spare
    assert spec["ttl"] == "300s"
    (term,) = spec["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [SOURCE]}]
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    assert intent.body["metadata"]["ownerReferences"][0]["uid"] == "move-uid"


def test_room_that_the_api_server_refuses_is_a_condition_of_the_job_and_is_asked_for_again() -> None:
    migration_job = job(status=running())
    advance = step(
        migration_job, unmade={f"podmigrationjobs/{migration_job.name}": "no pod uses the network of its node here"}
    )
    (job_condition,) = (c for c in advance.status.conditions if c.type == "ReservationCreated")
    assert (job_condition.status, job_condition.reason) == ("False", "NotMade")
    assert job_condition.message == "no pod uses the network of its node here"
    assert [type(intent) for intent in advance.intents] == [Create]


def test_a_plan_s_job_asks_for_room_on_its_target_alone() -> None:
    meta = {"annotations": {"cotenant.dev/target-node": TARGET}}
    (intent,) = step(job(status=running(), meta=meta)).intents
    assert isinstance(intent, Create)
    affinity = intent.body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [TARGET]}]


def test_where_an_earlier_move_put_the_pod_is_forgotten() -> None:
    here = {"key": "metadata.name", "operator": "In", "values": [SOURCE]}
    disk = {"key": "disk", "operator": "Exists"}
    placement = (
        b'{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":'
        b'{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}}],'
        b'"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":'
        b'[{"key":"disk","operator":"Exists"}],"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}}'
    )
    (intent,) = step(job(status=running()), pods=(on_node("web-1", placement=placement),)).intents
    assert isinstance(intent, Create)
    affinity = intent.body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == []
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [disk], "matchFields": [{**here, "operator": "NotIn"}]}


def test_nothing_is_evicted_before_it_is_written_down_that_room_stands() -> None:
    waiting = step(job(status=running()), room("Pending", ""))
    assert (waiting.eviction, waiting.intents, waiting.status.step) == (None, (), "ReservationCreated")
    advance = step(job(status=running(*ROOM_HELD[:1])), room())
    assert (advance.eviction, advance.status.step, advance.status.node) == (None, "Evicting", TARGET)
    assert advance.status.holds("ReservationScheduled") and not advance.status.holds("Eviction")


def test_the_very_pod_is_evicted_while_its_room_stands() -> None:
    advance = step(job(status=running(*EVICTING), deleteOptions={"gracePeriodSeconds": 7}), room())
    assert isinstance(advance.eviction, Create) and advance.eviction.subresource == "eviction"
    assert advance.eviction.body["deleteOptions"] == {"gracePeriodSeconds": 7, "preconditions": {"uid": "web-1"}}
    lost = room(conditions=[condition("Ready", "False")])
    for lost_room in (lost, room("Succeeded", owner="web-9")):
        assert step(job(status=running(*EVICTING)), lost_room).eviction is None


def test_nobody_is_evicted_while_no_room_is_handed_over() -> None:
    evicting = job(status=running(*EVICTING))
    assert step(evicting, room(), served_until_seconds=NOW).eviction is None
    assert step(evicting, room(), served_until_seconds=NOW + 1).eviction is not None
    directly = job(mode="EvictDirectly", status=running(condition("Eviction", "False")))
    assert step(directly, served_until_seconds=NOW).eviction is not None


def test_a_soft_eviction_asks_by_an_annotation_once() -> None:
    soft, evicting = {"eviction_policy": "SoftEviction"}, job(status=running(*EVICTING))
    eviction = step(evicting, room(), migration=soft).eviction
    assert isinstance(eviction, Patch) and eviction.operations[0]["value"] == "web-1"
    (text,) = eviction.operations[1]["value"].values()
    # NOW is 1,800,000,000 s
    assert json.loads(text) == {
        "timestamp": "2027-01-15T08:00:00Z", "initiator": "cotenant-manager", "reason": "podmigrationjob move"
    }  # fmt: skip
    marked = on_node("web-1", annotations={"a": "b"})
    further = step(evicting, room(), pods=(marked,), migration=soft).eviction
    assert isinstance(further, Patch)
    assert further.operations[1]["path"] == "/metadata/annotations/scheduling.koordinator.sh~1soft-eviction"
    pod = on_node("web-1", annotations={"scheduling.koordinator.sh/soft-eviction": text})
    assert step(evicting, room(), pods=(pod,), migration=soft).eviction is None


def test_the_successor_takes_the_room_and_the_job_succeeds_once_it_is_ready() -> None:
    evicted = job(status=running(*EVICTING))
    assert step(evicted, room(), pods=(on_node("web-1", leaving=True),)).status.message == "the pod is ending"
    waits = step(evicted, room(), pods=())
    assert (waits.status.step, waits.status.holds("Eviction")) == ("WaitForPodBindReservation", True)
    bound = step(evicted, room("Succeeded", owner="web-2"), pods=(on_node("web-2", TARGET, ready_seconds=None),))
    assert (bound.status.step, bound.status.phase) == ("WaitForBoundPodReady", JobPhase.RUNNING)
    assert bound.status.successor is not None and bound.status.successor.name == "web-2"
    done = step(evicted, room("Succeeded", owner="web-2"), pods=(NEXT,))
    assert (done.status.step, done.status.phase) == ("Complete", JobPhase.SUCCEEDED)
    names = [job_condition.type for job_condition in done.status.conditions if job_condition.status == "True"]
    assert names[-3:] == ["Eviction", "PodBoundReservation", "BoundPodReady"]


@pytest.mark.parametrize(
    ("migration_job", "rooms", "pods", "reason"),
    [
        (job(age=301, status=running()), (), (WEB,), "Timeout"),
        (job(age=31, ttl="30s", status=running()), (), (WEB,), "Timeout"),
        (job(status=running()), (), (), "MissingPod"),
        (job(status=running()), (), (on_node("web-1", leaving=True),), "MissingPod"),
        (job(status=running(*ROOM_HELD)), (), (WEB,), "MissingReservation"),
        (job(status=running(*EVICTING)), (), (WEB,), "MissingReservation"),
        (job(status=running()), (room("Failed"),), (WEB,), "ReservationExpired"),
        (job(status=running(*EVICTING)), (room("Failed"),), (), "ReservationExpired"),
        (job(status=running()), (room("Succeeded", owner="web-7"),), (WEB,), "MissingReservation"),
        (job(status=running()), (FULL,), (WEB,), "Unschedulable"),
        (job(status=running()), (room(node=SOURCE),), (WEB,), "Unschedulable"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_go_on_fails_with_koordinators_reason(
    migration_job: MigrationJob, rooms: tuple[Reservation, ...], pods: tuple[RebalancePod, ...], reason: str
) -> None:
    advance = step(migration_job, *rooms, pods=pods)
    assert (advance.status.phase, advance.status.reason, advance.eviction) == (JobPhase.FAILED, reason, None)
    assert advance.status.message


@pytest.mark.parametrize("spec", ["x", {"template": "x"}, {"template": {"spec": {"affinity": "x"}}}, [1]])
def test_a_template_that_cannot_be_used_fails_its_own_job(spec: Any) -> None:
    advance = step(job(status=running(), reservationOptions={"template": {"spec": spec}}))
    assert (advance.status.reason, advance.intents) == ("FailedCreateReservation", ())
    assert "reservationOptions.template" in advance.status.message


def test_a_template_is_put_over_the_room_and_keeps_it_off_the_source() -> None:
    affinity: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, {}]}}
    }
    spec = {"allocatePolicy": "Restricted", "allocateOnce": False, "template": {"spec": {"affinity": affinity}}}
    (intent,) = step(job(status=running(), reservationOptions={"template": {"spec": spec}})).intents
    assert isinstance(intent, Create)
    reserved = intent.body["spec"]
    assert (reserved["allocatePolicy"], reserved["allocateOnce"]) == ("Restricted", True)
    required = reserved["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    source = [{"key": "metadata.name", "operator": "NotIn", "values": [SOURCE]}]
    assert [term["matchFields"] for term in required["nodeSelectorTerms"]] == [source, source]


def test_a_pod_that_lost_its_controller_stays() -> None:
    assert step(job(status=running()), pods=(on_node("web-1", owner=None),)).status.reason == "ForbiddenMigratePod"


def test_a_job_without_an_end_holds_room_for_a_day_at_most() -> None:
    old = job(age=9e6, ttl="0", status=running())
    (intent,) = step(old).intents
    assert isinstance(intent, Create) and intent.body["spec"]["ttl"] == "86400s"


def test_a_job_may_be_seen_before_its_pod() -> None:
    young = job(age=5, status=running())
    assert step(young, pods=()).status == young.status


def test_a_job_that_names_no_uid_means_the_pod_that_was_there_before_it() -> None:
    nameless = job(podRef={"namespace": "shop", "name": "web-1"})
    assert view([nameless], [WEB]).pod_of(nameless) is WEB
    later = on_node("web-1")
    object.__setattr__(later, "created_seconds", NOW - 59)
    assert view([nameless], [later]).pod_of(nameless) is None


def test_without_room_the_pod_goes_and_the_job_is_done() -> None:
    first = step(job(mode="EvictDirectly", status=running()))
    assert (first.status.step, first.intents, first.eviction) == ("Evicting", (), None)
    started_job = job(mode="EvictDirectly", status=running(condition("Eviction", "False")))
    assert step(started_job).eviction is not None
    assert step(started_job, pods=(on_node("web-1", leaving=True),)).eviction is None
    assert step(started_job, pods=()).status.phase is JobPhase.SUCCEEDED
    assert step(job(mode="EvictDirectly", status=running()), pods=()).status.reason == "MissingPod"


def test_the_configuration_says_how_jobs_move_that_do_not() -> None:
    migration = {"default_job_mode": "EvictDirectly", "default_job_ttl": "10m"}
    assert step(job(status=running()), migration=migration).status.step == "Evicting"
    assert step(job(age=301, status=running()), migration=migration).status.step == "Evicting"


def test_the_room_of_a_job_that_ended_or_is_gone_is_given_back() -> None:
    failed = job(status={"phase": "Failed"})
    deletions = [i for i in decide(view([failed], [], room()), 3600).intents if i.address.resource == "reservations"]
    assert [(type(i).__name__, i.address.name) for i in deletions] == [("Delete", "migration-move-uid")]
    assert [i.address.name for i in decide(view([], [], room()), 3600).intents] == ["migration-move-uid"]
    for over in (room("Failed"), room("Succeeded", owner="web-2")):
        assert decide(view([failed], [], over), 3600).intents == ()
    assert decide(view([job(paused=True, status=running())], [WEB], room()), 3600).intents == ()


def test_jobs_of_the_descheduler_are_deleted_long_after_their_end_and_those_of_people_never() -> None:
    ours = {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"}
    ended = {"phase": "Failed", "conditions": [condition("Eviction", age=4000)]}
    jobs = [job("mine", meta={"labels": ours}, status=ended), job("theirs", status=ended)]
    assert [i.address.name for i in decide(view(jobs, []), 3600).intents] == ["mine"]
    assert decide(view(jobs, []), 4001).intents == ()


def test_evictions_come_last_and_keep_their_rate() -> None:
    jobs = [job(f"move-{n}", f"web-{n}", status=running(*EVICTING)) for n in range(3)]
    pods = [on_node(f"web-{n}") for n in range(3)]
    rooms = [room(of=f"move-{n}") for n in range(3)]
    writes = decide(view(jobs, pods, *rooms, evictions_now=2), 3600)
    assert [i.address.name for i in writes.intents] == ["web-0", "web-1"] and writes.evictions_due == 1
    refused = view(
        jobs, pods, *rooms, evictions_now=2, evictions_refused={("shop", "web-0"): EvictionRefusal(NOW + 1, "no")}
    )
    # the job of the refused one says so; its eviction is not tried
    assert [i.address.name for i in decide(refused, 3600).intents] == ["move-0", "web-1", "web-2"]
