"""An eviction that the API server refuses: what its job says, when it ends, and what the next rounds do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, NotLeader
from cotenant.base.kube.client import refusal
from cotenant.base.kube.connection import ApiResponse
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.cluster_reading import BudgetWire, RebalanceReading, budget_of
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import (
    EVICTION_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    refusal_of,
)
from cotenant.scheduler_ext.rebalance.decide import decide as decide_round
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget, RebalanceInputs
from cotenant.scheduler_ext.rebalance.migration.decide import decide
from cotenant.scheduler_ext.rebalance.migration.failed_moves import (
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    free_name,
    resting_pods,
)
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import JobsUnderWay, RoundCaps, jobs_of, name_of
from cotenant.scheduler_ext.rebalance.migration.step import advance_job
from cotenant.scheduler_ext.rebalance.migration.view import EvictionRefusal
from cotenant.scheduler_ext.rebalance.rebalance_report import report_of
from tests.scheduler_ext.rebalance.migration.moves import EVICTING, condition, job, on_node, room, running, view
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, inputs, node, pod

SENTENCE = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
TTL = 300.0


def status_response(status: int, message: str, **headers: str) -> ApiResponse:
    return ApiResponse(status, headers, msgspec.json.encode({"kind": "Status", "message": message}))


@pytest.mark.parametrize(
    ("status", "message", "headers", "final", "pause"),
    [
        (429, BUDGET, {}, False, EVICTION_PAUSE_SECONDS),
        (429, BUDGET, {"retry-after": "10"}, False, 10.0),
        (429, BUDGET, {"retry-after": "30"}, False, 30.0),
        (429, "too many requests", {"retry-after": "100000"}, False, LONGEST_PAUSE_SECONDS),
        (429, BUDGET, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, False, EVICTION_PAUSE_SECONDS),
        (500, SENTENCE, {}, True, EVICTION_PAUSE_SECONDS),
        (500, "failed calling webhook: context deadline exceeded", {}, False, EVICTION_PAUSE_SECONDS),
        (404, 'pods "web-1" not found', {}, False, EVICTION_PAUSE_SECONDS),
        (409, "Operation cannot be fulfilled on pods", {}, False, EVICTION_PAUSE_SECONDS),
        (422, "Pod is invalid", {}, True, EVICTION_PAUSE_SECONDS),
        (400, "the object cannot be read", {}, True, EVICTION_PAUSE_SECONDS),
        (503, "the server is shutting down", {}, False, EVICTION_PAUSE_SECONDS),
        (504, "Timeout: request did not complete", {}, False, EVICTION_PAUSE_SECONDS),
    ],
)
def test_each_answer_of_the_eviction_api_is_passing_or_final_and_keeps_its_sentence(
    status: int, message: str, headers: dict[str, str], final: bool, pause: float
) -> None:
    eviction_refusal = refusal_of(refusal("create pods/shop/web-1", status_response(status, message, **headers)), NOW)
    assert eviction_refusal == EvictionRefusal(NOW + pause, f"the API server answered {status}: {message}", final)


def test_no_answer_is_passing_a_missing_right_is_final_and_a_lost_lease_is_nothing() -> None:
    silent = refusal_of(ClusterUnreachable("pods/web-1: no complete answer: timed out"), NOW)
    assert silent is not None and not silent.final and "timed out" in silent.why
    forbidden = ClusterForbidden("cannot create pods/eviction")
    forbidden.status, forbidden.answer = 403, 'admission webhook "keep" denied the request'
    eviction_refusal = refusal_of(forbidden, NOW)
    assert eviction_refusal is not None and eviction_refusal.final and "denied the request" in eviction_refusal.why
    assert refusal_of(NotLeader("not ours any more"), NOW) is None and refusal_of(None, NOW) is None


def refused(final: bool, why: str) -> dict[str, Any]:
    return {"evictions_refused": {("shop", "web-1"): EvictionRefusal(NOW + 5, why, final)}}


@pytest.mark.parametrize("mode", ["ReservationFirst", "EvictDirectly"])
def test_a_refusal_that_passes_is_said_with_the_servers_words_and_the_job_goes_on(mode: str) -> None:
    migration_job = job(status=running(*EVICTING), mode=mode)
    migration_view = view(
        [migration_job], [on_node("web-1")], room(), **refused(False, f"the API server answered 429: {BUDGET}")
    )
    advance = advance_job(migration_view, migration_job)
    assert advance.eviction is None and advance.status.phase == "Running"
    assert BUDGET in advance.status.message
    evicting = advance.status.condition("Eviction")
    assert evicting is not None and (evicting.status, evicting.reason) == ("False", "FailedEvict")
    assert BUDGET in evicting.message
    # once the pause is over it is tried again, and a job whose time runs out says what it waited for
    assert advance_job(replace(migration_view, now_seconds=NOW + 5), migration_job).eviction is not None
    again = replace(migration_job, status=advance.status)
    late = advance_job(replace(migration_view, now_seconds=NOW + TTL), again).status
    assert (late.phase, late.reason) == ("Failed", "Timeout") and BUDGET in late.message


@pytest.mark.parametrize("mode", ["ReservationFirst", "EvictDirectly"])
def test_a_refusal_that_stays_ends_the_job_at_once_with_the_servers_words(mode: str) -> None:
    migration_job = job(status=running(*EVICTING), mode=mode)
    migration_view = view(
        [migration_job], [on_node("web-1")], room(), **refused(True, f"the API server answered 500: {SENTENCE}")
    )
    status = advance_job(migration_view, migration_job).status
    assert (status.phase, status.reason) == ("Failed", "FailedEvict") and SENTENCE in status.message
    evicting = status.condition("Eviction")
    assert evicting is not None and SENTENCE in evicting.message
    # nobody left: neither the hour's churn nor the workload's limiter counts it
    assert status.evicted_seconds is None
    ended = replace(migration_job, status=status)
    assert JobsUnderWay.of([ended], NOW).hour == 0
    # its Event has the same words, and the capacity is given back
    writes = decide(migration_view, 3600)
    assert [(j.name, s.message) for j, s in writes.ended] == [("move", status.message)]
    assert [i.why for i in decide(view([ended], [on_node("web-1")], room()), 3600).intents] == [
        "the move that needed this reservation has ended"
    ]


HOT = inputs(node("hot", pod("a-1", 12), pod("b-1", 10), pod("c-1", 9), pod("d-1", 8), system=45),
             node("cold", system=5))  # fmt: skip


def failed_job(name: str, number: int = 1, *, ago: float, why: str = SENTENCE) -> MigrationJob:
    """A job of pod `name` whose move failed so many seconds ago."""
    base = name_of("shop", name, name)
    status = {"phase": "Failed", "reason": "FailedEvict", "message": why,
              "conditions": [condition("Eviction", "False", why, age=ago) | {"reason": "FailedEvict"}]}  # fmt: skip
    return job(base if number == 1 else f"{base}-{number}", name, age=ago + 60, status=status)


def moved(jobs: list[MigrationJob], **changes: Any) -> list[tuple[str, str]]:
    """(pod, job) of the next round."""
    chosen = arguments(maxMigratingPerNode=2, **changes)
    caps = RoundCaps.of(HOT, jobs, chosen.migration, chosen.churn)
    chosen = replace(chosen, failed=frozenset(caps.failed))
    plan = decide_round(HOT, chosen, with_forecast=False)
    creates = jobs_of(plan, HOT, chosen.migration, jobs)
    return [(create.body["spec"]["podRef"]["name"], create.address.name) for create in creates]


def test_after_failed_moves_the_next_pods_of_the_node_are_moved() -> None:
    # 84 % of the node is used and 70 % allowed; two pods may leave it in a round
    first = [pod_name for pod_name, _ in moved([])]
    assert first == ["a-1", "b-1"]
    jobs = [failed_job(name, ago=30.0) for name in first]
    assert [name for name, _ in moved(jobs)] == ["c-1", "d-1"]


def test_a_pod_is_tried_again_after_its_rest_under_a_name_of_its_own() -> None:
    before = [failed_job("a-1", ago=FIRST_REST_SECONDS - 1)]
    assert "a-1" not in dict(moved(before))
    after = [failed_job("a-1", ago=FIRST_REST_SECONDS)]
    assert dict(moved(after))["a-1"] == name_of("shop", "a-1", "a-1") + "-2"
    twice = [failed_job("a-1", ago=7200.0), failed_job("a-1", 2, ago=2 * FIRST_REST_SECONDS - 1)]
    assert "a-1" not in dict(moved(twice))
    twice = [failed_job("a-1", ago=7200.0), failed_job("a-1", 2, ago=2 * FIRST_REST_SECONDS)]
    assert dict(moved(twice))["a-1"] == name_of("shop", "a-1", "a-1") + "-3"


def test_a_job_that_ran_out_of_time_failed_at_its_deadline() -> None:
    status = {"phase": "Failed", "reason": "Timeout", "message": "its deadline passed; last step: x", "conditions": []}
    migration_job = job("t", "a-1", age=TTL + 60.0, ttl="5m", status=status)
    move = resting_pods([migration_job], NOW, 1.0)["a-1"]
    assert move.until_seconds == NOW - 60.0 + FIRST_REST_SECONDS
    assert resting_pods([migration_job], NOW + FIRST_REST_SECONDS, 1.0) == {}


def test_a_look_says_in_the_servers_words_why_a_pod_stays() -> None:
    reading = RebalanceReading(HOT, gaps=(), forecasts=0, jobs=(failed_job("a-1", ago=60.0),))
    report = report_of(reading, arguments(), with_forecast=False, configured=True)
    rows = {row["pod"]: row["reason"] for row in report.moves.rows() if row["decision"] == "stay"}
    assert rows["shop/a-1"] == Reason.MOVE_FAILED
    (note,) = [text for text in report.notes if "shop/a-1" in text]
    assert SENTENCE in note and "9 min" in note  # of the ten minutes one has passed


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_a_rest_grows_with_the_failures_and_ends(ages: list[float]) -> None:
    jobs = [failed_job("a-1", number + 1, ago=age) for number, age in enumerate(sorted(ages, reverse=True))]
    last = NOW - min(ages)
    rest = min(FIRST_REST_SECONDS * 2 ** (len(ages) - 1), LONGEST_REST_SECONDS)
    moves = resting_pods(jobs, NOW, TTL)
    # moments are written in whole seconds
    if moves:
        assert moves["a-1"].times == len(ages) and abs(moves["a-1"].until_seconds - (last + rest)) <= 1.0
    else:
        assert last + rest <= NOW + 1.0


@given(st.text("ab", max_size=3), st.sets(st.integers(1, 6)))
def test_a_free_name_is_free_and_the_same_for_the_same_names(name: str, numbers: set[int]) -> None:
    taken = {name if number == 1 else f"{name}-{number}" for number in numbers}
    assert free_name(name, taken) not in taken
    assert free_name(name, ()) == name


def budget(policy: str | None = None, allowed: int = 0, healthy: int = 0, desired: int = 0) -> DisruptionBudget:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": policy}
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
    wire = {"metadata": {"name": "keep", "namespace": "shop"}, "spec": spec, "status": status}
    return budget_of(msgspec.convert(wire, BudgetWire))


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow", "ANewOne"])
@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize(("healthy", "desired"), [(0, 0), (1, 2), (2, 2), (3, 2)])
@pytest.mark.parametrize("state", ["ready", "unready", "pending"])
def test_a_budget_is_read_as_the_eviction_api_reads_it(
    policy: str | None, allowed: int, healthy: int, desired: int, state: str
) -> None:
    rebalance_pod = on_node("web-1", ready_seconds=NOW - 900 if state == "ready" else None, pending=state == "pending")
    round_inputs = RebalanceInputs(
        (), [budget(policy, allowed, healthy, desired)], NOW, {"shop/ReplicaSet/web": 10}, {}
    )
    limits = MoveLimits.of(view([], []).arguments, round_inputs, 100)
    # pkg/registry/core/pod/storage/eviction.go: a pending pod passes; one that is not ready passes with AlwaysAllow, or
    # while currentHealthy >= desiredHealthy > 0; else the number of allowed disruptions decides, and goes down.
    passes_by = state == "pending" or (state == "unready" and (policy == "AlwaysAllow" or healthy >= desired > 0))
    assert limits.refusal(rebalance_pod) is (Reason.OK if passes_by or allowed else Reason.DISRUPTION_BUDGET)
    limits.count(rebalance_pod, "n1")
    assert limits.allowed == [allowed if passes_by else allowed - 1]


def test_a_pod_under_two_budgets_is_not_moved_and_a_job_for_it_ends_in_words_that_help() -> None:
    two = [DisruptionBudget("shop", name, LabelSelector.parse({}), 5) for name in ("a", "b")]
    migration_job = job()
    migration_view = view([migration_job], [on_node("web-1")], budgets=two)
    status = decide(migration_view, 3600).ended[0][1]
    assert (status.phase, status.reason) == ("Failed", "ForbiddenMigratePod")
    assert "more than one PodDisruptionBudget" in status.message
    limits = MoveLimits.of(
        migration_view.arguments, RebalanceInputs((), two, NOW, {"shop/ReplicaSet/web": 10}, {}), 100
    )
    assert limits.refusal(on_node("web-1")) is Reason.TWO_BUDGETS
    soft = view([], [], migration={"eviction_policy": "SoftEviction"}).arguments
    asked_of_nobody = MoveLimits.of(soft, limits.inputs, 100)
    assert asked_of_nobody.refusal(on_node("web-1")) is Reason.OK


def test_an_unready_pod_does_not_count_against_its_own_move() -> None:
    owner = "shop/ReplicaSet/web"
    # of two replicas one may be unavailable (10 %, at least one); the one that is not ready is the one to be moved
    round_inputs = RebalanceInputs((), (), NOW, {owner: 2}, {owner: 1})
    limits = MoveLimits.of(view([], []).arguments, round_inputs, 100)
    assert limits.refusal(on_node("web-1", ready_seconds=None)) is Reason.OK
    assert limits.refusal(on_node("web-2", ready_seconds=NOW - 900)) is Reason.WORKLOAD_MOVE_LIMIT
