"""Who may begin: what can never be moved is refused, what a limit holds back waits, and the rest goes in order."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.arguments import ObjectLimiter, ObjectLimiters
from cotenant.scheduler_ext.rebalance.load import NEVER, DisruptionBudget
from cotenant.scheduler_ext.rebalance.migration.arbitration import Arbitration, arbitrate, resting_workloads
from cotenant.scheduler_ext.rebalance.migration.decide import decide
from cotenant.scheduler_ext.rebalance.migration.job import JobPhase
from tests.scheduler_ext.rebalance.migration.moves import EVICTING, condition, job, on_node, running, view
from tests.scheduler_ext.rebalance.small_cluster import NOW


def jobs_for(*names: str, **changes: Any) -> list[Any]:
    return [job(f"move-{name}", name, **changes) for name in names]


def verdict(jobs: list[Any], pods: list[Any], **changes: Any) -> Arbitration:
    shown = view(jobs, pods, **{"most_per_hour": 100, **changes})
    return arbitrate(shown, [waiting_job for waiting_job in jobs if waiting_job.waits])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"owner": None}, Reason.NO_CONTROLLER),
        ({"owner": Reference("DaemonSet", "d", "shop", "", "apps/v1", True)}, Reason.DAEMON_POD),
        ({"static": True}, Reason.STATIC_POD),
        ({"local_storage": True}, Reason.LOCAL_STORAGE),
        ({"eviction_cost": NEVER}, Reason.EVICTION_COST),
        ({"placed": NOW - 100}, Reason.STARTED_LATELY),
        ({"placeholder_of": "x"}, Reason.PLACEHOLDER_POD),
    ],
)
def test_a_pod_that_is_never_moved_fails_its_job(changes: dict[str, Any], reason: Reason) -> None:
    pod = on_node("web-1", **changes)
    result = verdict(jobs_for("web-1"), [pod], pause_seconds=1800.0)
    assert (result.passed, result.refused, result.waiting) == (frozenset(), {"move-web-1": reason}, {})
    writes = decide(view(jobs_for("web-1"), [pod], pause_seconds=1800.0), 3600)
    ((_, status),) = writes.ended
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ForbiddenMigratePod")
    assert status.message.startswith(reason.value)


def test_a_pod_that_requests_nothing_has_no_room_to_ask_for() -> None:
    idle = on_node("web-1", requests={})
    ((_, status),) = decide(view(jobs_for("web-1"), [idle]), 3600).ended
    assert status.reason == "FailedCreateReservation"
    (going,) = decide(view(jobs_for("web-1", mode="EvictDirectly"), [idle]), 3600).intents
    assert going.body["status"]["phase"] == "Running"  # type: ignore[union-attr]


def test_limits_hold_back_and_count_what_runs() -> None:
    # two of a node at once: one runs, so that one more may begin
    away = job("running", "a-1", status=running(of="shop/ReplicaSet/a"))
    jobs = [away, *jobs_for("b-1", "c-1", "d-1")]
    pods = [on_node(name) for name in ("a-1", "b-1", "c-1", "d-1")]
    result = verdict(jobs, pods)
    assert result.passed == {"move-b-1"}
    assert result.waiting == {"move-c-1": Reason.NODE_MOVE_LIMIT, "move-d-1": Reason.NODE_MOVE_LIMIT}
    spread = [on_node(name, node) for name, node in (("a-1", "n1"), ("b-1", "n2"), ("c-1", "n3"), ("d-1", "n4"))]
    assert len(verdict(jobs, spread).passed) == 3
    assert len(verdict(jobs, spread, migration={"max_migrating_globally": 2}).passed) == 1
    by_namespace = verdict(jobs, spread, migration={"max_migrating_per_namespace": 2})
    assert set(by_namespace.waiting.values()) == {Reason.NAMESPACE_MOVE_LIMIT} and len(by_namespace.passed) == 1


def test_a_workload_keeps_its_replicas() -> None:
    # 3 replicas: one may be away
    pods = [on_node(f"web-{n}", f"n{n}") for n in range(3)]
    first = verdict(jobs_for("web-0", "web-1"), pods)
    assert len(first.passed) == 1
    assert list(first.waiting.values()) == [Reason.WORKLOAD_MOVED_LATELY]
    off = {"object_limiters": ObjectLimiters(ObjectLimiter("0"))}
    second = verdict(jobs_for("web-0", "web-1"), pods, migration=off)
    assert list(second.waiting.values()) == [Reason.WORKLOAD_MOVE_LIMIT]
    unready = [*pods[:2], on_node("web-2", "n2", ready_seconds=None)]
    assert set(verdict(jobs_for("web-0"), unready).waiting.values()) == {Reason.WORKLOAD_MOVE_LIMIT}
    alone = verdict(jobs_for("web-0"), pods[:1], migration={"skip_check_expected_replicas": False})
    assert set(alone.waiting.values()) == {Reason.WORKLOAD_MOVE_LIMIT}


def test_a_workload_that_was_moved_lately_waits() -> None:
    status = {"phase": "Succeeded", "conditions": [
        condition("Arbitrated", message="shop/ReplicaSet/web on n9"), condition("Eviction", age=200)
    ]}  # fmt: skip
    earlier = job("earlier", "web-9", status=status)
    pods = [on_node(f"web-{n}", f"n{n}") for n in range(3)]
    assert verdict([earlier, *jobs_for("web-0")], pods).waiting == {"move-web-0": Reason.WORKLOAD_MOVED_LATELY}
    assert verdict([earlier, *jobs_for("web-0")], pods, now_seconds=NOW + 101).passed == {"move-web-0"}
    assert resting_workloads(view([earlier], pods)) == {"shop/ReplicaSet/web"}
    assert resting_workloads(view([earlier], pods, now_seconds=NOW + 101)) == frozenset()
    off = {"object_limiters": ObjectLimiters(ObjectLimiter("0"))}
    assert resting_workloads(view([earlier], pods, migration=off)) == frozenset()


def test_an_hour_has_an_end_to_its_moves() -> None:
    moved = [
        job(f"old-{n}", f"x{n}-1", status={"phase": "Failed", "conditions": [condition("Eviction", age=3000)]})
        for n in range(3)
    ]
    jobs = [*moved, *jobs_for("a-1", "b-1")]
    pods = [on_node("a-1", "n1"), on_node("b-1", "n2")]
    result = verdict(jobs, pods, most_per_hour=4)
    assert len(result.passed) == 1 and list(result.waiting.values()) == [Reason.CHURN_LIMIT]
    assert len(verdict(jobs, pods, most_per_hour=4, now_seconds=NOW + 601).passed) == 2


def test_a_budget_that_lets_nobody_go_holds_back_before_room_is_asked_for() -> None:
    budget = DisruptionBudget("shop", "keep", LabelSelector.parse({"matchLabels": {"app": "web"}}), 0)
    result = verdict(jobs_for("web-1", "other-1"), [on_node("web-1"), on_node("other-1")], budgets=(budget,))
    assert result.passed == {"move-other-1"} and result.waiting == {"move-web-1": Reason.DISRUPTION_BUDGET}


def test_two_jobs_do_not_move_one_pod() -> None:
    away = job("first", "web-1", status=running(*EVICTING))
    assert verdict([away, job("second", "web-1")], [on_node("web-1")]).waiting == {"second": Reason.MOVE_UNDER_WAY}
    both = verdict([job("first", "web-1"), job("second", "web-1")], [on_node("web-1")])
    assert both.passed == {"first"} and both.waiting == {"second": Reason.MOVE_UNDER_WAY}


def test_the_pods_order_comes_before_the_jobs_age() -> None:
    cheap, dear = on_node("a-1"), on_node("b-1", deletion_cost=5)
    jobs = [job("older", "b-1", age=90), job("younger", "a-1", age=60)]
    result = verdict(jobs, [cheap, dear], migration={"max_migrating_globally": 1})
    assert result.passed == {"younger"}


def test_what_waits_says_for_what_and_fails_when_its_time_is_over() -> None:
    jobs = jobs_for("web-1")
    (written,) = decide(view(jobs, [on_node("web-1")], most_per_hour=0), 3600).intents
    status = written.body["status"]  # type: ignore[union-attr]
    assert (status["phase"], status["status"]) == ("Pending", "WaitForArbitration")
    assert status["message"].startswith("churn-limit")
    ((_, late),) = decide(view(jobs_for("web-1", age=301), [on_node("web-1")], most_per_hour=0), 3600).ended
    assert late.reason == "Timeout"


def test_paused_jobs_are_left_alone() -> None:
    assert decide(view(jobs_for("web-1", paused=True, age=400), [on_node("web-1")]), 3600).intents == ()
