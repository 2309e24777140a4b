"""Pods that are being deleted: slowly, or never because of a finalizer or a lost node; and evictions in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotenant.base.kubernetes.observed import LAG_SECONDS
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.rebalance.classification import NodeClass
from cotenant.scheduler_ext.rebalance.decide import decide as decide_round
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod, pod_of
from cotenant.scheduler_ext.rebalance.migration.failed_moves import IN_VAIN_SECONDS, LONGEST_REST_SECONDS
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import (
    DESCHEDULER_LABEL,
    LONGEST_HOLD_UP_SECONDS,
    JobsUnderWay,
    RoundCaps,
)
from cotenant.scheduler_ext.rebalance.migration.step import advance_job
from cotenant.scheduler_ext.rebalance.plan import RebalancePlan
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.scheduler_ext.rebalance.migration.moves import (
    EVICTING,
    ROOM_HELD,
    condition,
    job,
    on_node,
    room,
    running,
    view,
)
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, foreseen, inputs, node, pod

TTL = 300.0
ENDING: dict[str, Any] = {"leaving": True, "gone_by_seconds": NOW + 600}
STUCK: dict[str, Any] = {"leaving": True, "gone_by_seconds": NOW - LAG_SECONDS}


def moved(plan: RebalancePlan) -> list[str]:
    return [move.pod.removeprefix("shop/") for move in plan.moves]


@pytest.mark.parametrize(
    ("system", "ending", "expected"),
    [
        # 55 + 20 + 8 = 83 % of which 20 end: 63 % is under 70 %, and nothing is moved
        (55, ENDING, []),
        # 65 + 20 + 8 = 93 % of which 20 end: 73 % is over by 3 points, and the one pod of 8 % goes
        (65, ENDING, ["b-1"]),
        # a pod that outlasts its grace period uses what it uses: 83 % is over, and the other pod goes
        (55, STUCK, ["b-1"]),
    ],
)
@pytest.mark.parametrize("with_forecast", [False, True])
def test_what_ends_by_itself_moves_nobody_else(
    system: float, ending: dict[str, Any], expected: list[str], with_forecast: bool
) -> None:
    hot = node("hot", pod("a-1", 20, **ending), pod("b-1", 8), system=system)
    cold = node("cold", system=5)
    forecasts = {"a": (20.0,) * 48, "b": (8.0,) * 48}
    round_inputs = foreseen(hot, cold, forecasts=forecasts) if with_forecast else inputs(hot, cold)
    plan = decide_round(round_inputs, arguments(), with_forecast=with_forecast)
    assert moved(plan) == expected
    classes = {rebalanced_node.name: rebalanced_node.load for rebalanced_node in plan.nodes}
    assert (classes["hot"] is NodeClass.HIGH) is bool(expected)


def test_the_prod_pass_leaves_out_prod_pods_that_end() -> None:
    pools = {"prodLowThresholds": {"cpu": 20}, "prodHighThresholds": {"cpu": 40}}
    prod: dict[str, Any] = {"priority_class": PriorityClass.PROD}
    # 45 % of prod pods, of which 20 end: 25 % is under 40 %
    hot = node("hot", pod("a-1", 20, **prod, **ENDING), pod("b-1", 25, **prod), system=5)
    assert moved(decide_round(inputs(hot, node("cold")), arguments(pools), with_forecast=False)) == []
    hot_node = node("hot", pod("a-1", 20, **prod), pod("b-1", 25, **prod), system=5)
    assert moved(decide_round(inputs(hot_node, node("cold")), arguments(pools), with_forecast=False))


def owned_by(kind: str, name: str, **changes: Any) -> RebalancePod:
    return on_node(name, owner=Reference(kind, "web", "shop", "", "apps/v1", True), **changes)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        ("ReplicaSet", False),
        ("ReplicationController", False),
        ("Job", False),
        ("StatefulSet", True),
        ("CloneSet", True),
    ],
)
@pytest.mark.parametrize("ready", [NOW - 900.0, None])
def test_a_pod_that_is_deleted_is_a_replica_only_where_its_successor_comes_afterwards(
    kind: str, counted: bool, ready: float | None
) -> None:
    """A ReplicaSet counts active pods alone (`FilterActivePods`); a StatefulSet waits until the pod is gone."""
    pods = [owned_by(kind, f"web-{n}") for n in range(4)] + [owned_by(kind, "web-9", ready_seconds=ready, **STUCK)]
    migration_view = view([], pods)
    owner = f"shop/{kind}/web"
    assert (migration_view.replicas[owner], migration_view.unready[owner]) == ((5, 1) if counted else (4, 0))
    rebalance_inputs = RebalanceInputs.of([node("n1")], (), NOW)
    assert rebalance_inputs.replicas == {}
    read = RebalanceInputs.of([replace(node("n1"), pods=tuple(pods))], (), NOW)
    assert (read.replicas[owner], read.unready.get(owner, 0)) == (
        migration_view.replicas[owner],
        migration_view.unready[owner],
    )
    # of four or five replicas two may be away: one that is stuck takes one of them, and never both
    limits = MoveLimits.of(migration_view.arguments, read, 100)
    assert limits.refusal(pods[0]) is Reason.OK
    limits.count(pods[0], "n1")
    assert limits.refusal(pods[1]) is (Reason.WORKLOAD_MOVE_LIMIT if counted else Reason.OK)


def test_a_pod_that_a_job_moves_is_away_once() -> None:
    # the StatefulSet's pod is being deleted because of the job: it is counted as moving, and not as unready besides
    pods = [owned_by("StatefulSet", f"web-{n}") for n in range(4)] + [owned_by("StatefulSet", "web-9", **ENDING)]
    migration_job = job(of="web-9", status=running(*EVICTING, of="shop/StatefulSet/web"))
    assert view([migration_job], pods).unready["shop/StatefulSet/web"] == 0


def test_the_deletion_of_a_pod_is_read_with_the_end_of_its_grace_period_and_its_finalizers() -> None:
    body = {
        "metadata": {
            "name": "web-1", "namespace": "shop", "finalizers": ["foregroundDeletion", "shop.example/backup"],
            "deletionTimestamp": moment(NOW),
        },
        "spec": {"nodeName": "n1", "containers": []},
    }  # fmt: skip
    read = pod_of(msgspec.json.encode(body), LoadAwareSettings())
    assert (
        read.leaving
        and read.gone_by_seconds == NOW
        and read.finalizers == ("foregroundDeletion", "shop.example/backup")
    )
    assert not read.is_stuck(NOW + LAG_SECONDS - 1) and read.is_stuck(NOW + LAG_SECONDS)


EVICTED = job(status=running(*EVICTING), ttl="5m")
SUCCESSOR = on_node("web-2", "n2")


def test_a_move_is_done_when_the_successor_is_ready_though_its_old_pod_does_not_end() -> None:
    old = on_node("web-1", **STUCK, finalizers=("shop.example/backup",))
    taken = room("Succeeded", owner="web-2")
    status = advance_job(view([EVICTED], [old, SUCCESSOR], taken), EVICTED).status
    assert (status.phase, status.step) == ("Succeeded", "Complete")
    assert status.message == (
        "pod shop/web-2 runs on n2; the pod has not ended in its grace period: finalizers "
        "shop.example/backup keep the pod"
    )
    # while its grace period runs, the job waits for its end
    slow = on_node("web-1", **ENDING)
    waits = advance_job(view([EVICTED], [slow, SUCCESSOR], taken), EVICTED).status
    assert (waits.phase, waits.message) == ("Running", "the pod is ending")
    # and a grace period that is longer than the job's time is no failure of the move
    late = advance_job(view([EVICTED], [slow, SUCCESSOR], taken, now_seconds=NOW + TTL), EVICTED).status
    assert (late.phase, late.step) == ("Succeeded", "Complete")
    unready = replace(SUCCESSOR, ready_seconds=None)
    still = advance_job(view([EVICTED], [slow, unready], taken, now_seconds=NOW + TTL), EVICTED).status
    assert (still.phase, still.reason) == ("Failed", "Timeout")


@pytest.mark.parametrize("mode", ["ReservationFirst", "EvictDirectly"])
@pytest.mark.parametrize(
    ("finalizers", "keeper"),
    [(("a/b", "c/d"), "finalizers a/b, c/d keep"), ((), "node n1 keeps")],
    ids=["finalizers", "node"],
)
def test_a_job_that_waits_for_a_pod_without_an_end_says_what_keeps_it(
    mode: str, finalizers: tuple[str, ...], keeper: str
) -> None:
    migration_job = replace(EVICTED, mode=type(view([], []).mode_of(EVICTED))(mode))
    old = on_node("web-1", **STUCK, finalizers=finalizers)
    status = advance_job(view([migration_job], [old], room()), migration_job).status
    assert status.phase == "Running" and status.message.endswith(f"grace period: {keeper} the pod")
    ended = advance_job(
        view([migration_job], [old], room(), now_seconds=NOW + TTL), replace(migration_job, status=status)
    ).status
    assert (ended.phase, ended.reason) == ("Failed", "Timeout") and keeper in ended.message


def failed(*conditions: dict[str, str], number: int = 1, ago: float = 0.0, of: str = "web-1") -> MigrationJob:
    """A job whose time ran out so many seconds ago."""
    status = running(*conditions) | {"phase": "Failed", "reason": "Timeout", "message": "its time limit passed"}
    return job(f"move-{number}", of, age=TTL + ago, ttl="5m", status=status)


GONE = (*ROOM_HELD, condition("Eviction"))


def resting(*jobs: MigrationJob, later: float = 0.0) -> set[str]:
    round_inputs = replace(inputs(node("n1", pod("web-8", 5))), now_seconds=NOW + later)
    return set(RoundCaps.of(round_inputs, jobs, arguments().migration, arguments().churn).failed)


def test_a_workload_whose_pod_was_evicted_in_vain_rests_because_its_successor_is_another_pod() -> None:
    """A claim of a volume of one zone: the successor comes back to the node, under a new uid, again and again."""
    unmatched = failed(*GONE)
    web = "shop/ReplicaSet/web"
    assert resting(unmatched, later=IN_VAIN_SECONDS - 1) >= {web}
    assert resting(unmatched, later=IN_VAIN_SECONDS) == set()
    twice = (failed(*GONE, ago=9000.0), failed(*GONE, number=2, of="web-2"))
    assert resting(*twice, later=2 * IN_VAIN_SECONDS - 1) == {web}
    often = [failed(*GONE, number=number, of=f"web-{number}") for number in range(9)]
    assert resting(*often, later=LONGEST_REST_SECONDS - 1) == {web}
    assert resting(*often, later=LONGEST_REST_SECONDS) == set()
    # a successor that took the capacity has moved, and a pod that was never evicted was not disturbed
    assert web not in resting(failed(*GONE, condition("PodBoundReservation")))
    assert web not in resting(failed(*EVICTING))


def test_pods_of_a_workload_that_rests_stay_and_the_others_of_the_node_go() -> None:
    hot = inputs(node("hot", pod("web-8", 12), pod("b-1", 12), system=60), node("cold"))
    caps = RoundCaps.of(hot, [failed(*GONE)], arguments().migration, arguments().churn)
    chosen = replace(arguments(), failed=frozenset(caps.failed))
    plan = decide_round(hot, chosen, with_forecast=False)
    assert moved(plan) == ["b-1"]
    assert [(refusal.pod, refusal.reason) for refusal in plan.refusals] == [("shop/web-8", Reason.MOVE_FAILED)]


def test_a_job_without_a_step_for_ten_minutes_holds_up_no_round() -> None:
    """With `defaultJobTTL: 24h`, or 0 for ever, one eviction that is refused would keep every hot node hot."""
    ours = {"labels": DESCHEDULER_LABEL}
    steps = {"type": "Eviction", "status": "False", "reason": "FailedEvict"}

    def open_jobs(age: float) -> int:
        last = steps | {"lastTransitionTime": moment(NOW - age)}
        status = {"phase": "Running", "conditions": [condition("Arbitrated", age=80_000.0), last]}
        return JobsUnderWay.of([job(age=86_000.0, ttl="24h", meta=ours, status=status)], NOW).open

    assert open_jobs(LONGEST_HOLD_UP_SECONDS - 1) == 1
    assert open_jobs(LONGEST_HOLD_UP_SECONDS) == 0
    waiting = job(age=LONGEST_HOLD_UP_SECONDS - 1, ttl="0", meta=ours)
    assert JobsUnderWay.of([waiting], NOW).open == 1
    assert JobsUnderWay.of([waiting], NOW + 1).open == 0
