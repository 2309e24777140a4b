"""What a policy leaves of a recommendation, and which workloads it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.decide.candidates import (
    LiveNamespace,
    PolicyInForce,
    apply_policy_limits,
    candidates_of,
    hardly_cut,
    raised_after_kills,
    settings_under,
)
from cotenant.autopilot.decide.history import Decisions
from cotenant.autopilot.decide.policy import effective, parse_policy
from cotenant.autopilot.decide.round_order import QueueCandidate
from cotenant.autopilot.model import AutopilotMode
from cotenant.autopilot.settings import CeilingSettings, Way
from cotenant.base.cluster import ContainerRole, RunningSum
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from cotenant.changes.model.settings import ActionSettings
from cotenant.recommender.model.recommendation import Action, Backtest, Field, Recommendation, Trust, Value
from cotenant.recommender.settings import CotenantSettings

WEB = WorkloadRef("shop", "Deployment", "web")
ONE_GIB = {"memory": "1Gi"}
SIMULATED = Backtest(14.0, 0.0, 0.0, 0, 1, 0, 0, 0)


def request(resource: Resource, now: int, amount: int, reason: Reason = Reason.OK) -> Value:
    inputs = {"days": 14.0, "coverage": 1.0}
    return Value(resource, Field.REQUEST, now, amount, Action.SET, reason, inputs=inputs)


def recommendation(*values: Value, backtest: Backtest | None = None) -> Recommendation:
    more: dict[str, Any] = {"role": ContainerRole.MAIN, "trust": Trust(0.95), "backtest": backtest}
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, values, 14 * 86_400, "digest", 0, **more)


def in_force(start_up_factor: float = 1.0, **spec: Any) -> PolicyInForce:
    policy = parse_policy({"metadata": {"namespace": "shop", "name": "p"}, "spec": {"mode": "Act", **spec}})
    ceiling = CeilingSettings(ways=[Way.IN_PLACE, Way.ROLL_OUT], start_up_factor=start_up_factor)
    limits = effective(ceiling, policy.spec)
    return PolicyInForce(policy, limits, AutopilotMode.ACT, settings_under(ActionSettings(), limits))


def candidate(
    recommended: Recommendation,
    classes: Sequence[QosClass] = (),
    limits: Mapping[str, str] = MappingProxyType({}),
    *,
    left_alone: bool = False,
    scaled_by: Sequence[str] = (),
    factor: float = 1.0,
    annotations: Mapping[str, str] = MappingProxyType({}),
    killed_seconds: float = 0.0,
    running_millicores: int = 0,
    **spec: Any,
) -> QueueCandidate:
    """Of a Deployment of two pods that requests 1000m and 1 GiB, with these limits.

    scaled_by: resources that an autoscaler of it follows; factor: the ceiling's start-up factor; killed_seconds: when
    it was killed for lack of memory, after its scan ended at 0; running_millicores: what its pods have, 0: unknown.
    """
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": dict(limits)}
    container = {"name": "app", "resources": resources}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    meta = {"uid": "u", "annotations": dict(annotations)}
    body = {"metadata": meta, "spec": {"replicas": 2, "template": template}}
    metrics = [{"type": "Resource", "resource": {"name": name}} for name in scaled_by]
    target = {"kind": WEB.kind, "name": WEB.name}
    scalers = [{"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "metrics": metrics}}]
    kills = {(WEB, "app"): killed_seconds}
    both = RunningSum(2, 2 * running_millicores, 2 * running_millicores)
    running = {WEB: {("app", Resource.CPU): (running_millicores, both)}} if running_millicores else {}
    live = LiveNamespace({WEB: body}, scalers, classes={WEB: frozenset(classes)}, kills=kills, running=running)
    decisions = Decisions(left_alone={str(WEB): "kubectl-edit changed it"} if left_alone else {})
    (only,) = candidates_of([in_force(factor, **spec)], [recommended], live, {}, decisions, CotenantSettings())
    return only


def test_pods_that_a_profile_made_lsr_at_admission_are_left_alone() -> None:
    less_cpu = recommendation(request(Resource.CPU, 1000, 900))
    assert candidate(less_cpu, [QosClass.LS]).blocked is None
    for name in (QosClass.LSE, QosClass.LSR):
        assert candidate(less_cpu, [QosClass.LS, name]).blocked == (
            Reason.AUTOPILOT_NEVER_TOUCHED,
            f"its pods have QoS class {name}",
        )


def test_what_pods_were_resized_to_in_place_is_what_a_proposal_moves() -> None:
    less_cpu = recommendation(request(Resource.CPU, 1000, 700))
    # By the template 300m less for each of two pods; pods that were resized to 300m would get 400m more each.
    assert candidate(less_cpu).moved == {Resource.CPU: -600} and candidate(less_cpu).lowers
    resized = candidate(less_cpu, running_millicores=300)
    assert resized.moved == {Resource.CPU: 800} and not resized.lowers


def test_an_autoscaler_is_not_missed_where_the_moved_request_frees_nothing() -> None:
    # an init container of the pod asks for 5 cores before: no capacity moves, but the percents of the request do
    less_cpu = replace(recommendation(request(Resource.CPU, 1000, 900)), pod_floor={Resource.CPU: 5000})
    queue_candidate = candidate(less_cpu, scaled_by=["cpu"])
    assert queue_candidate.moved == {}
    assert queue_candidate.blocked == (Reason.AUTOPILOT_NEVER_TOUCHED, "autoscaler web scales the workload by cpu")


def test_a_resource_without_a_possible_step_does_not_hold_up_the_other_one() -> None:
    both = recommendation(request(Resource.CPU, 1000, 500), request(Resource.MEMORY, GIB, GIB // 2))
    # 10 % of 1 GiB, in whole MiB, is 9.96 %: within the dead band of 10 %
    goes = candidate(both, largestCut={"cpu": 0.2, "memory": 0.1})
    # a first step of 200m on each of two pods
    assert (goes.blocked, goes.moved) == (None, {Resource.CPU: -400})
    assert candidate(both, largestCut={"cpu": 0.05, "memory": 0.15}).moved.keys() == {Resource.MEMORY}
    stuck = candidate(both, largestCut={"cpu": 0.05, "memory": 0.05})
    assert stuck.blocked == (Reason.AUTOPILOT_NOTHING_ALLOWED, "")


def test_a_policy_that_cannot_cut_says_so() -> None:
    assert hardly_cut(in_force()) == ""
    assert hardly_cut(in_force(largestCut={"memory": 0.1})).startswith(
        "memory is hardly ever cut: largestCut is not above"
    )
    assert hardly_cut(in_force(directions=["Up"])) == ""


def test_only_a_recorded_kill_makes_memory_urgent() -> None:
    more_memory = request(Resource.MEMORY, GIB, GIB + 300 * MIB)
    simulated = candidate(recommendation(more_memory, backtest=SIMULATED))
    assert simulated.moved == {Resource.MEMORY: 2 * 300 * MIB} and simulated.urgent is None
    killed = request(Resource.MEMORY, GIB, GIB + 300 * MIB, Reason.OOM_BUMP)
    less_cpu = request(Resource.CPU, 1000, 900)
    recorded = candidate(recommendation(killed, less_cpu))
    # the memory alone: the CPU follows with a later change
    assert recorded.urgent is Resource.MEMORY and recorded.moved == {Resource.MEMORY: 2 * 300 * MIB}
    assert candidate(recommendation(more_memory, backtest=SIMULATED), directions=["UpAfterOOMKill"]).moved == {}


def memory_limit(now: int | None, amount: int | None) -> Value:
    return replace(request(Resource.MEMORY, 0, 0), field=Field.LIMIT, now=now, amount=amount)


@pytest.mark.parametrize(
    ("limit", "moved"),
    [
        (memory_limit(2 * GIB, GIB), {Resource.MEMORY: -2 * 200 * MIB}),
        (memory_limit(None, GIB), {Resource.MEMORY: -2 * 200 * MIB}),
        (memory_limit(2 * GIB, 3 * GIB), {}),  # request and limit of a resource move in one direction, or not at all
        (memory_limit(GIB, GIB - 200 * MIB), {}),  # request = limit: a Guaranteed pod
    ],
)
def test_a_memory_limit_is_never_lowered_and_a_guaranteed_pod_keeps_its_memory(
    limit: Value, moved: dict[Resource, int]
) -> None:
    less = recommendation(request(Resource.MEMORY, GIB, GIB - 200 * MIB), limit)
    limits = {} if limit.now is None else {"memory": str(limit.now)}
    cut = candidate(less, limits=limits, directions=["Down"])
    assert cut.moved == moved
    assert all(v.field is Field.REQUEST for candidate_cut in cut.allowed for v in candidate_cut.values)


def throttled(now_minutes: float, then_minutes: float = 0.0, pod_minutes: float = 20_160.0) -> Backtest:
    """Of 7 days of two pods, 20160 minutes: so many throttled under the present limit, so many under the proposed."""
    return Backtest(7.0, then_minutes, now_minutes, 0, 0, 0, 0, 0, pod_minutes)


@pytest.mark.parametrize(
    ("tried", "spec", "urgent"),
    [
        # 3 % of 20160 minutes are 604.8
        (throttled(605.0), {}, Resource.CPU),
        (throttled(604.0), {}, None),
        (throttled(605.0), {"throttledShare": 0.031}, None),
        (throttled(605.0, 605.0), {}, None),
        (throttled(605.0), {"directions": ["Up", "Down"]}, None),
        # on for six hours a day: 3 % of 5,040 minutes are 151.2
        (throttled(152.0, pod_minutes=5_040.0), {}, Resource.CPU),
        (throttled(151.0, pod_minutes=5_040.0), {}, None),
        # results of an older version do not tell how long pods ran
        (throttled(6000.0, pod_minutes=0.0), {}, None),
        (None, {}, None),
    ],
)
def test_cpu_rises_alone_and_at_once_where_its_limit_throttles_too_often_and_the_proposal_would_not(
    tried: Backtest | None, spec: dict[str, Any], urgent: Resource | None
) -> None:
    values = (request(Resource.CPU, 1000, 1300), request(Resource.MEMORY, GIB, GIB - 200 * MIB))
    raises = candidate(recommendation(*values, backtest=tried), **spec)
    both = {Resource.CPU: 2 * 300, Resource.MEMORY: -2 * 200 * MIB}
    assert (raises.urgent, raises.moved) == (urgent, {Resource.CPU: 600} if urgent else both)


def test_memory_after_a_kill_goes_before_cpu_after_throttling() -> None:
    killed = request(Resource.MEMORY, GIB, GIB + 300 * MIB, Reason.OOM_BUMP)
    both = recommendation(killed, request(Resource.CPU, 1000, 1300), backtest=throttled(6000.0))
    assert candidate(both).urgent is Resource.MEMORY


@given(st.integers(1, 4000), st.integers(1, 4000), st.floats(0, 2e4), st.floats(0, 2e4), st.floats(0.001, 1))
def test_whatever_was_throttled_only_a_raise_is_ever_urgent(
    now: int, amount: int, now_minutes: float, then_minutes: float, share: float
) -> None:
    tried = throttled(now_minutes, then_minutes)
    queue_candidate = candidate(
        recommendation(request(Resource.CPU, now, amount), backtest=tried), throttledShare=share
    )
    if queue_candidate.urgent is not None:
        # the Deployment requests 1000m, whatever the scan had seen
        assert (
            amount > 1000
            and not queue_candidate.lowers
            and now_minutes >= share * 20_160
            and then_minutes < now_minutes
        )


@pytest.mark.parametrize(
    ("around", "is_helped"),
    [
        ({}, True),
        ({"scaled_by": ["memory"]}, True),
        ({"scaled_by": ["cpu"]}, False),
        ({"left_alone": True}, False),
        ({"classes": [QosClass.LSR]}, False),
        ({"resources": ["memory"]}, False),
        ({"ways": ["RollOut"]}, False),
        ({"factor": 1.0}, False),
    ],
)
def test_a_start_is_helped_only_where_cpu_may_move_in_place_and_the_workload_is_not_left_alone(
    around: dict[str, Any], is_helped: bool
) -> None:
    # nothing of it is to change: what may stand against a change must stand against the start as well
    stays = replace(request(Resource.CPU, 1000, 1000), inputs={"days": 14.0, "coverage": 1.0, "startup_max": 2500})
    queue_candidate = candidate(recommendation(stays), **{"factor": 3.0, **around})
    assert (queue_candidate.starts is not None) == is_helped


@pytest.mark.parametrize(
    ("ways", "ways_left"),
    [(["InPlace", "RollOut"], [Way.IN_PLACE]), (["RollOut"], [])],
)
def test_what_a_gitops_tool_owns_goes_the_ways_that_leave_its_manifests_alone(
    ways: list[str], ways_left: list[Way]
) -> None:
    less_cpu = recommendation(request(Resource.CPU, 1000, 900))
    queue_candidate = candidate(less_cpu, annotations={"argocd.argoproj.io/tracking-id": "x"}, ways=ways)
    assert (queue_candidate.limits.ways, queue_candidate.blocked) == (ways_left, None)
    assert queue_candidate.gitops == "argocd.argoproj.io/tracking-id shows that a GitOps tool owns the workload"


def of_memory(field: Field, amount: int, now: int = GIB) -> Value:
    return Value(Resource.MEMORY, field, now, amount, Action.SET, Reason.OK, inputs={"days": 14.0, "coverage": 1.0})


@pytest.mark.parametrize(
    ("killed_seconds", "most", "amount"),
    [
        (60.0, "", 1229 * MIB),  # a kill at 1 GiB asks for 1.2 times that, and at least 100 MiB more
        (60.0, "1100Mi", 1100 * MIB),
        (60.0, "1Gi", None),  # the annotation allows no more than there is
        (0.0, "", None),  # the scan ended at 0, and has seen it
    ],
)
def test_memory_rises_after_a_kill_that_no_scan_has_seen_and_nothing_else_moves(
    killed_seconds: float, most: str, amount: int | None
) -> None:
    moves = (of_memory(Field.REQUEST, 900 * MIB), of_memory(Field.LIMIT, GIB), request(Resource.CPU, 1000, 900))
    annotations = {"cotenant.dev/max-memory": most} if most else {}
    queue_candidate = candidate(
        recommendation(*moves), killed_seconds=killed_seconds, annotations=annotations, limits=ONE_GIB
    )
    assert queue_candidate.urgent is (Resource.MEMORY if amount else None)
    raised = {v.field: v.amount for r in queue_candidate.first for v in r.values if v.resource is Resource.MEMORY}
    if amount:
        assert raised == {Field.REQUEST: amount, Field.LIMIT: amount} and Resource.CPU not in queue_candidate.moved
    else:
        assert raised[Field.REQUEST] == 900 * MIB and queue_candidate.moved[Resource.CPU] == -200


def test_a_kill_before_the_last_change_of_the_workload_is_that_changes() -> None:
    moves = recommendation(of_memory(Field.REQUEST, 900 * MIB), of_memory(Field.LIMIT, GIB))
    kills = {(WEB, "app"): 60.0}
    for changed_seconds, reason in ((0.0, Reason.OOM_BUMP), (60.0, Reason.OK)):
        (raised,) = raised_after_kills({}, [moves], kills, changed_seconds, CotenantSettings())
        assert {v.reason for v in raised.values} == {reason}


def test_a_kill_under_a_change_that_was_taken_back_raises_nothing() -> None:
    moves = recommendation(of_memory(Field.REQUEST, 900 * MIB), of_memory(Field.LIMIT, GIB))
    change = Change("c1", "b1", WEB.namespace, WEB.kind, WEB.name, "cotenant", (), "template", "", ())
    accepted = ChangeStatus(change, ChangeState.APPLIED, 40.0, 40.0, "jane", begun_seconds=40.0)
    resumed, back = replace(accepted, begun_seconds=70.0), replace(accepted, state=ChangeState.ROLLED_BACK)
    # killed at 60: while it was in force; before the rest of its pods was changed; before it was rolled back at 80
    for status, reason in (
        (accepted, Reason.OOM_BUMP),
        (resumed, Reason.OK),
        (replace(back, since_seconds=80.0), Reason.OK),
    ):
        (raised,) = raised_after_kills({}, [moves], {(WEB, "app"): 60.0}, status.changed_seconds, CotenantSettings())
        assert {v.reason for v in raised.values} == {reason}


def test_after_a_kill_a_larger_proposal_of_the_scan_goes_at_once() -> None:
    moves = recommendation(of_memory(Field.REQUEST, GIB), of_memory(Field.LIMIT, 2 * GIB))
    queue_candidate = candidate(moves, killed_seconds=60.0, limits=ONE_GIB)
    raised = {v.field: v.amount for r in queue_candidate.first for v in r.values}
    # the bump of 1 GiB is 1.2 times that, below the 2 GiB that the scan proposed as limit
    assert (queue_candidate.urgent, raised) == (Resource.MEMORY, {Field.REQUEST: 1229 * MIB, Field.LIMIT: 2 * GIB})


def test_memory_that_was_solved_with_an_autoscaler_waits_for_the_scan_after_a_kill() -> None:
    solved: dict[str, float | int | str] = {
        "hpa": "web",
        "hpa_target_now_percent": 80,
        "hpa_target_percent": 91,
        "hpa_trigger_bytes": 858993459,
    }
    request_value = of_memory(Field.REQUEST, 900 * MIB)
    moves = recommendation(
        replace(request_value, inputs={**request_value.inputs, **solved}), of_memory(Field.LIMIT, GIB)
    )
    # a target of 91 % of another request would move the trigger
    assert raised_after_kills({}, [moves], {(WEB, "app"): 60.0}, 0.0, CotenantSettings()) == (moves,)


@given(st.integers(MIB, 100 * GIB), st.integers(MIB, 100 * GIB), st.integers(MIB, 100 * GIB))
def test_a_kill_lowers_nothing_and_leaves_the_request_within_the_limit(now: int, amount: int, limit: int) -> None:
    request_now, most = min(now, limit), max(amount, limit)
    moves = recommendation(of_memory(Field.REQUEST, amount, request_now), of_memory(Field.LIMIT, most, limit))
    (raised,) = raised_after_kills({}, [moves], {(WEB, "app"): 60.0}, 0.0, CotenantSettings())
    before, after = ({v.field: v.amount or 0 for v in r.values} for r in (moves, raised))
    assert all(after[field] >= before[field] for field in before)
    assert after[Field.REQUEST] <= after[Field.LIMIT]


def test_what_a_guardrail_or_too_little_confidence_stops_holds_nothing_else_up() -> None:
    less_cpu, less_memory = request(Resource.CPU, 1000, 900), request(Resource.MEMORY, GIB, GIB * 9 // 10)
    low = replace(less_memory, inputs={**less_memory.inputs, "observed_max": float(GIB)})
    # 0.9 GiB is below 1.1 times the 1 GiB that was seen: memory stays
    assert candidate(recommendation(less_cpu, low)).moved == {Resource.CPU: -200}
    stopped = candidate(recommendation(low))
    assert stopped.blocked == (Reason.AUTOPILOT_GUARDRAIL, "stopped by memory-floor")
    # of two containers the one that is not in the template, and the one that is uncertain, stay
    sidecar = replace(recommendation(less_cpu), container=ContainerRef(WEB, "sidecar"))
    injected = replace(sidecar, role=ContainerRole.INJECTED)
    uncertain = replace(sidecar, trust=Trust(0.1))
    under = in_force()
    for other in (injected, uncertain):
        first, second = apply_policy_limits([recommendation(less_cpu), other], under.limits, under.settings.guardrails)
        assert [v.amount for v in first.values] == [900] and second.values == ()
