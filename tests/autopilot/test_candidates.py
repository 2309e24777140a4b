"""What a policy leaves of a recommendation, and which workloads it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autopilot.decide.candidates import LiveNamespace, PolicyInForce, candidates_of, hardly_cut, settings_under
from autopilot.decide.history import Decisions
from autopilot.decide.policy import ceiling_of, effective, parse_policy
from autopilot.decide.queue import QueueCandidate
from cotenant.core.model.autopilot import AutopilotMode
from cotenant.core.model.cluster import ContainerRole
from cotenant.core.model.identity import ContainerRef, WorkloadRef
from cotenant.core.model.kubernetes.qos import QosClass
from cotenant.core.model.reasons import Reason
from cotenant.core.model.recommendation import Action, Backtest, Field, Recommendation, Trust, Value
from cotenant.core.model.resource import GIB, MIB, Resource
from cotenant.core.settings.sections.actions import ActionSettings
from cotenant.core.settings.sections.autopilot import CeilingSettings

WEB = WorkloadRef("shop", "Deployment", "web")
SIMULATED = Backtest(14.0, 0.0, 0.0, 0, 1, 0, 0, 0)


def request(resource: Resource, now: int, amount: int, reason: Reason = Reason.OK) -> Value:
    inputs = {"days": 14.0, "coverage": 1.0}
    return Value(resource, Field.REQUEST, now, amount, Action.SET, reason, inputs=inputs)


def recommendation(*values: Value, backtest: Backtest | None = None) -> Recommendation:
    more: dict[str, Any] = {"role": ContainerRole.MAIN, "trust": Trust(0.95), "backtest": backtest}
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, values, 14 * 86_400, "digest", 0, **more)


def in_force(**spec: Any) -> PolicyInForce:
    policy = parse_policy({"metadata": {"namespace": "shop", "name": "p"}, "spec": {"mode": "Act", **spec}})
    limits = effective(ceiling_of(CeilingSettings(ways=["InPlace", "RollOut"])), policy.spec)
    return PolicyInForce(policy, limits, AutopilotMode.ACT, settings_under(ActionSettings(), limits))


def candidate(recommended: Recommendation, classes: Sequence[QosClass] = (), **spec: Any) -> QueueCandidate:
    """Of a Deployment of two pods that requests 1000m and 1 GiB."""
    container = {"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    body = {"metadata": {"uid": "u"}, "spec": {"replicas": 2, "template": template}}
    live = LiveNamespace({WEB: body}, classes={WEB: frozenset(classes)})
    (only,) = candidates_of([in_force(**spec)], [recommended], live, {}, Decisions())
    return only


def test_pods_that_a_profile_made_lsr_at_admission_are_left_alone() -> None:
    less_cpu = recommendation(request(Resource.CPU, 1000, 900))
    assert candidate(less_cpu, [QosClass.LS]).blocked is None
    for name in (QosClass.LSE, QosClass.LSR):
        assert candidate(less_cpu, [QosClass.LS, name]).blocked == (
            Reason.AUTOPILOT_NEVER_TOUCHED,
            f"its pods are {name}",
        )


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
    assert hardly_cut(in_force(largestCut={"memory": 0.1})).startswith("memory: the largest cut is not above")
    assert hardly_cut(in_force(directions=["Up"])) == ""


def test_only_a_recorded_kill_makes_memory_urgent() -> None:
    more_memory = request(Resource.MEMORY, GIB, GIB + 300 * MIB)
    simulated = candidate(recommendation(more_memory, backtest=SIMULATED))
    assert simulated.moved == {Resource.MEMORY: 2 * 300 * MIB} and not simulated.urgent
    killed = request(Resource.MEMORY, GIB, GIB + 300 * MIB, Reason.OOM_BUMP)
    less_cpu = request(Resource.CPU, 1000, 900)
    recorded = candidate(recommendation(killed, less_cpu))
    # the memory alone: the CPU follows with a later change
    assert recorded.urgent and recorded.moved == {Resource.MEMORY: 2 * 300 * MIB}
    assert candidate(recommendation(more_memory, backtest=SIMULATED), directions=["UpAfterOOMKill"]).moved == {}
