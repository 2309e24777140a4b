"""What a policy leaves of a recommendation, and which workloads it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autopilot.decide.candidates import LiveNamespace, PolicyInForce, candidates_of, settings_under
from autopilot.decide.history import Decisions
from autopilot.decide.policy import ceiling_of, effective, parse_policy
from autopilot.decide.queue import Candidate
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


def candidate(recommended: Recommendation, classes: Sequence[QosClass] = (), **spec: Any) -> Candidate:
    """Of a Deployment of two pods that requests 1000m and 1 GiB."""
    policy = parse_policy({"metadata": {"namespace": "shop", "name": "p"}, "spec": {"mode": "Act", **spec}})
    limits = effective(ceiling_of(CeilingSettings(ways=["InPlace", "RollOut"])), policy.spec)
    force = PolicyInForce(policy, limits, AutopilotMode.ACT, settings_under(ActionSettings(), limits))
    container = {"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    body = {"metadata": {"uid": "u"}, "spec": {"replicas": 2, "template": template}}
    live = LiveNamespace({WEB: body}, classes={WEB: frozenset(classes)})
    (only,) = candidates_of([force], [recommended], live, {}, Decisions())
    return only


def test_pods_that_a_profile_made_lsr_at_admission_are_left_alone() -> None:
    less_cpu = recommendation(request(Resource.CPU, 1000, 900))
    assert candidate(less_cpu, [QosClass.LS]).blocked is None
    for name in (QosClass.LSE, QosClass.LSR):
        assert candidate(less_cpu, [QosClass.LS, name]).blocked == (
            Reason.AUTOPILOT_NEVER_TOUCHED,
            f"its pods are {name}",
        )


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
