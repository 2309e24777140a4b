"""Which moves of a plan become jobs, and when the next round may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotenant.base.kubernetes.intent import Create
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.migration.churn import Churn
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import DESCHEDULER_LABEL, JobsUnderWay, jobs_of, name_of
from cotenant.scheduler_ext.rebalance.rebalance_report import report_of
from tests.scheduler_ext.rebalance.migration.moves import EVICTING, condition, job, running
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, inputs, node, pod

CLUSTER = inputs(node("hot", pod("a-1", 12), pod("b-1", 10), system=65), node("cold", system=5))
OURS = {"labels": DESCHEDULER_LABEL}


def planned(*jobs: MigrationJob, **migration: Any) -> list[Create]:
    chosen = arguments(**migration)
    return list(jobs_of(decide(CLUSTER, chosen, with_forecast=False), CLUSTER, chosen.migration, jobs))


def test_each_move_becomes_a_job_that_names_its_very_pod_and_its_target() -> None:
    first, second = planned(defaultJobTTL="7m")
    assert (first.body["spec"]["podRef"]["name"], second.body["spec"]["podRef"]["name"]) == ("a-1", "b-1")
    body = {**first.body, "metadata": {**first.body["metadata"], "creationTimestamp": "2026-11-22T00:00:00Z"}}
    parsed = MigrationJob.parse(body)
    assert (parsed.pod.uid, parsed.target, parsed.ttl_seconds) == ("a-1", "cold", 420.0)
    assert parsed.waits and DESCHEDULER_LABEL.items() <= dict(parsed.labels).items()
    assert first.why.startswith("from hot to cold: node hot is overloaded; the move gains")


def test_a_pod_that_has_a_job_gets_no_other() -> None:
    assert [create.body["spec"]["podRef"]["name"] for create in planned(job("theirs", "a-1"))] == ["b-1"]
    ended = job(name_of("shop", "b-1", "b-1"), "b-1", status={"phase": "Failed"})
    assert [create.body["spec"]["podRef"]["name"] for create in planned(ended)] == ["a-1"]


def test_a_round_leaves_workloads_alone_that_were_moved_lately() -> None:
    resting = replace(arguments(), resting=frozenset({"shop/ReplicaSet/a"}))
    plan = decide(CLUSTER, resting, with_forecast=False)
    assert [move.pod for move in plan.moves] == ["shop/b-1"]
    assert [refusal.reason for refusal in plan.refusals] == [Reason.WORKLOAD_MOVED_LATELY]


def test_a_look_shows_what_earlier_moves_leave_of_the_hour() -> None:
    ended = {"phase": "Succeeded", "conditions": [condition("Eviction", age=1000)]}
    reading = RebalanceReading(CLUSTER, gaps=(), forecasts=0, jobs=(job("done", status=ended),))
    chosen = replace(arguments(), churn=Churn(0.01, 2))
    # two in any hour, one of which was moved a thousand seconds ago
    table = report_of(reading, chosen, with_forecast=False, configured=True).moves
    assert [(row["decision"], row["pod"]) for row in table.rows()][:1] == [("move", "shop/a-1")]
    assert [row["reason"] for row in table.rows() if row["decision"] == "stay"] == [Reason.MOVE_LIMIT]
    lately = {"phase": "Succeeded", "conditions": [condition("Arbitrated", message="shop/ReplicaSet/a on hot"),
                                                   condition("Eviction", age=100)]}  # fmt: skip
    resting = replace(reading, jobs=(job("done", "a-0", status=lately),))
    rows = report_of(resting, arguments(), with_forecast=False, configured=True).moves.rows()
    assert {row["pod"]: row["reason"] for row in rows if row["decision"] == "stay"} == {
        "shop/a-1": Reason.WORKLOAD_MOVED_LATELY
    }


def test_the_next_round_waits_for_the_moves_of_the_last_one() -> None:
    assert JobsUnderWay.of([], NOW) == JobsUnderWay(0, 0.0, 0)
    ours, theirs = job("ours", meta=OURS, status=running()), job("theirs", status=running(*EVICTING))
    under_way = JobsUnderWay.of([ours, theirs, job("paused", meta=OURS, paused=True)], NOW)
    assert (under_way.open, under_way.hour) == (1, 2)
    ended = {"phase": "Succeeded", "conditions": [condition("Eviction", age=100), condition("BoundPodReady", age=40)]}
    after = JobsUnderWay.of([job("done", meta=OURS, status=ended)], NOW)
    assert (after.open, after.last_seconds, after.hour) == (0, NOW - 40, 1)
    old = {"phase": "Succeeded", "conditions": [condition("Eviction", age=3600)]}
    assert JobsUnderWay.of([job("old", status=old)], NOW).hour == 0
