"""Each guardrail: when it lets a change pass, when it stops it, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.text import moment
from cotenant.changes.decide.guardrails import (
    Guardrail,
    GuardrailContext,
    GuardrailOutcome,
    blocking,
    judge,
    judge_batch,
)
from cotenant.changes.decide.rule import ClusterLimits
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

DEFAULTS = GuardrailSettings()
HOUR = 3600.0
LIVE: dict[str, Any] = {
    "metadata": {"generation": 3},
    "spec": {"replicas": 2},
    "status": {"observedGeneration": 3, "readyReplicas": 2, "updatedReplicas": 2},
}
READ = ClusterLimits(
    limit_ranges=(), quotas=(), scalers=(), nodes=({Resource.CPU: 64_000, Resource.MEMORY: 256 * GIB},)
)
CALM = GuardrailContext(LIVE, 1000 * HOUR, cluster_limits=READ)


def recommendation(
    now: int = 1000,
    amount: int = 800,
    resource: Resource = Resource.CPU,
    field: Field = Field.REQUEST,
    namespace: str = "shop",
    **inputs: float,
) -> Recommendation:
    all_inputs = {"days": 14.0, "coverage": 1.0, **inputs}
    value = Value(resource, field, now, amount, Action.SET, Reason.OK, inputs=all_inputs)
    return Recommendation(
        ContainerRef(WorkloadRef(namespace, "Deployment", "web"), "app"), "cotenant", 2, (value,), 14 * 86_400, "d", 0
    )


def low_memory(field: Field) -> Recommendation:
    """A sixth less, and below 1.1 x the 2 GiB that were seen."""
    return recommendation(int(2.5 * GIB), int(2.1 * GIB), Resource.MEMORY, field, observed_max=2.0 * GIB)


def judged(recommendation: Recommendation, around: GuardrailContext = CALM) -> dict[str, Guardrail]:
    return {rule.rule: rule for rule in judge([recommendation], around, DEFAULTS)}


def test_a_small_change_with_good_evidence_passes_everything() -> None:
    guardrails = judged(recommendation())
    assert {rule.outcome for rule in guardrails.values()} == {GuardrailOutcome.PASS}
    assert all(rule.why and rule.words() == "pass" for rule in guardrails.values())


@pytest.mark.parametrize(
    ("rule", "proposal", "around"),
    [
        ("history", recommendation(days=3.0), CALM),
        ("data-gap", recommendation(coverage=0.8), CALM),
        # 1.1 x 2 GiB = 2.2 GiB
        ("memory-floor", low_memory(Field.REQUEST), CALM),
        ("memory-floor", low_memory(Field.LIMIT), CALM),
        ("cpu-step", recommendation(1000, 690), CALM),
        ("memory-step", recommendation(10 * GIB, 7 * GIB, Resource.MEMORY), CALM),
        ("namespace", recommendation(namespace="kube-system"), CALM),
        ("gitops", recommendation(), replace(CALM, live={**LIVE, "metadata": {"generation": 3, "annotations": {
            "argocd.argoproj.io/tracking-id": "x"}}})),
        ("rollout", recommendation(), replace(CALM, live={**LIVE, "metadata": {"generation": 4}})),
        ("rollout", recommendation(), replace(CALM, live={**LIVE, "status": {**LIVE["status"], "readyReplicas": 1}})),
        ("rollout", recommendation(), replace(CALM, live={**LIVE, "status": {**LIVE["status"], "updatedReplicas": 1}})),
        ("disruption-budget", recommendation(), replace(CALM, disruptions=0)),
        ("cool-down", recommendation(), replace(CALM, changed_seconds=CALM.seconds - 23 * HOUR)),
        ("second-person", recommendation(), replace(CALM, qos=QosClass.LSR)),
    ],
)  # fmt: skip
def test_a_rule_stops_what_it_is_for_and_nothing_else_does(
    rule: str, proposal: Recommendation, around: GuardrailContext
) -> None:
    guardrails = judged(proposal, around)
    failed = [name for name, judged_ in guardrails.items() if judged_.outcome is GuardrailOutcome.FAIL]
    assert failed == [rule]
    assert blocking(guardrails.values(), ()) == [guardrails[rule]] and blocking(guardrails.values(), [rule]) == []
    assert guardrails[rule].words(overridden=True) == f"overridden: {guardrails[rule].why}"


@pytest.mark.parametrize(
    ("rule", "proposal", "reason"),
    [
        # 6.97 days are 7.0 to one digit; 1 - 699 / 1000 = 30.1 %, which is 30 % without digits.
        ("history", recommendation(days=6.97), "6.97 days of history; at least 7 are needed"),
        ("cpu-step", recommendation(1000, 699), "app is cut by 30.1 %; at most 30 % in one step"),
    ],
)
def test_what_a_rule_refuses_is_not_written_like_its_limit(rule: str, proposal: Recommendation, reason: str) -> None:
    guardrail = judged(proposal)[rule]
    assert (guardrail.outcome, guardrail.why) == (GuardrailOutcome.FAIL, reason)


def test_a_workload_that_was_changed_lately_says_by_whom_and_when() -> None:
    # CALM's clock less two hours is what the moment below is of.
    then = CALM.seconds - 2 * HOUR
    rule = judged(recommendation(), replace(CALM, changed_seconds=then, changed_by="administrator"))["cool-down"]
    assert rule.outcome is GuardrailOutcome.FAIL
    assert rule.why.startswith(f"the workload was changed by administrator, {moment(then)}, 2.0 hours ago; ")


MANAGED: Any = {**LIVE, "metadata": {"generation": 3, "labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}}
MOVING_TARGET: dict[str, Any] = {
    "hpa": "web",
    "hpa_trigger_millicores": 700.0,
    "hpa_target_now_percent": 70,
    "hpa_target_percent": 87,
}


@pytest.mark.parametrize(
    ("method", "live", "inputs", "passes"),
    [
        (Method.TEMPLATE, MANAGED, {}, False),
        (Method.BUNDLE, MANAGED, {}, True),
        (Method.ANNOTATE, MANAGED, {}, True),
        (Method.IN_PLACE, MANAGED, {}, True),
        # new pods get the values by the template here, which the tool would set back
        (Method.IN_PLACE, {**MANAGED, "spec": {"replicas": 2, "updateStrategy": {"type": "OnDelete"}}}, {}, False),
        # the target of its autoscaler would move along, and is in a manifest as well
        (Method.ANNOTATE, MANAGED, MOVING_TARGET, False),
        (Method.IN_PLACE, MANAGED, MOVING_TARGET, False),
        (Method.TEMPLATE, LIVE, MOVING_TARGET, True),
    ],
)
def test_what_a_gitops_tool_owns_is_changed_only_where_no_manifest_says_otherwise(
    method: Method, live: dict[str, Any], inputs: dict[str, Any], passes: bool
) -> None:
    rule = judged(recommendation(**inputs), replace(CALM, live=live, method=method))["gitops"]
    assert (rule.outcome is GuardrailOutcome.PASS) == passes


def test_a_rule_whose_objects_were_not_read_warns_with_the_cause_and_the_ledger_keeps_that_nothing_was_checked() -> (
    None
):
    containers = [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]
    live = {**LIVE, "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}}}
    around = replace(CALM, live=live, cluster_limits=ClusterLimits(), disruptions=None)
    rules = judged(recommendation(1000, 4000), around).values()
    unread = {rule.rule: rule.words() for rule in rules if "not checked" in rule.why}
    assert unread == {
        "limit-range": "warn: not checked: the right to list LimitRanges is missing",
        "quota": "warn: not checked: the right to list ResourceQuotas is missing",
        "node-fit": "warn: not checked: the right to list nodes is missing",
        "autoscaler": "warn: not checked: the right to list HorizontalPodAutoscalers is missing",
        "disruption-budget": "warn: not checked: the right to list PodDisruptionBudgets is missing",
    }
    absent = ClusterLimits(absent={"horizontalpodautoscalers", "poddisruptionbudgets"})
    rules_where_absent = judged(recommendation(1000, 4000), replace(around, cluster_limits=absent))
    for rule, kind in (("autoscaler", "HorizontalPodAutoscalers"), ("disruption-budget", "PodDisruptionBudgets")):
        why = f"not checked: the API server does not serve {kind} in the version that cotenant reads"
        assert rules_where_absent[rule].why == why
    assert rules_where_absent["quota"].why == "not checked: the right to list ResourceQuotas is missing"


def test_raising_is_not_cooled_down_and_never_a_step_too_far() -> None:
    guardrails = judged(recommendation(1000, 4000), replace(CALM, changed_seconds=CALM.seconds - HOUR))
    assert {rule.outcome for rule in guardrails.values()} == {GuardrailOutcome.PASS}


def test_a_second_person_may_let_a_reserved_workload_change() -> None:
    guardrails = judged(recommendation(), replace(CALM, qos=QosClass.LSE, second_person="bea"))
    assert guardrails["second-person"].outcome is GuardrailOutcome.WARN
    assert guardrails["second-person"].why == "confirmed by bea: the name was not verified"


@pytest.mark.parametrize(
    ("rule", "at", "beyond"),
    [
        # least_change .1: 1000 less 100 is worth it, less 99 is not; the same of a rise.
        ("dead-band", recommendation(1000, 900), recommendation(1000, 901)),
        ("dead-band", recommendation(2000, 2200), recommendation(2000, 2199)),
        ("history", recommendation(days=7.0), recommendation(days=6.99)),
        ("data-gap", recommendation(coverage=0.9), recommendation(coverage=0.899)),
        # most_cpu_cut .3, most_memory_cut .2
        ("cpu-step", recommendation(1000, 700), recommendation(1000, 699)),
        ("memory-step", recommendation(1000 * 2**20, 800 * 2**20, Resource.MEMORY),
         recommendation(1000 * 2**20, 799 * 2**20, Resource.MEMORY)),
    ],
)  # fmt: skip
def test_a_rule_passes_at_its_limit_and_not_beyond_it(rule: str, at: Recommendation, beyond: Recommendation) -> None:
    assert judged(at)[rule].outcome is GuardrailOutcome.PASS
    assert judged(beyond)[rule].outcome is GuardrailOutcome.FAIL


def test_without_days_among_its_inputs_the_length_of_the_window_counts() -> None:
    def of_window(days: float) -> Recommendation:
        original = recommendation()
        (value,) = original.values
        return replace(original, values=(replace(value, inputs={}),), window_seconds=int(days * 86_400))

    assert judged(of_window(7))["history"].outcome is GuardrailOutcome.PASS
    assert judged(of_window(6.5))["history"].why == "6.5 days of history; at least 7 are needed"


@pytest.mark.parametrize(("observed", "outcome"), [(2, "fail"), (3, "pass"), (4, "pass")])
def test_a_controller_that_has_not_seen_the_newest_template_rolls_out(observed: int, outcome: str) -> None:
    live = {**LIVE, "status": {**LIVE["status"], "observedGeneration": observed}}
    assert judged(recommendation(), replace(CALM, live=live))["rollout"].outcome == outcome


@pytest.mark.parametrize(("allowed", "outcome"), [(0, "fail"), (1, "pass"), (2, "pass")])
def test_one_pod_that_may_go_is_enough(allowed: int, outcome: str) -> None:
    assert judged(recommendation(), replace(CALM, disruptions=allowed))["disruption-budget"].outcome == outcome


def test_a_workload_that_was_not_changed_lately_says_why_nothing_cools_down() -> None:
    assert judged(recommendation())["cool-down"].why == "not changed lately"
    assert judged(recommendation(1000, 1200))["cool-down"].why == "nothing is lowered"
    day_ago = replace(CALM, changed_seconds=CALM.seconds - 24 * HOUR)
    assert judged(recommendation(), day_ago)["cool-down"].outcome is GuardrailOutcome.PASS


def test_a_batch_may_not_move_too_much_at_once() -> None:
    assert judge_batch(2, 1000, 20_000, DEFAULTS)[0].outcome is GuardrailOutcome.PASS
    assert [g.outcome for g in judge_batch(20, 1000, 10_000, DEFAULTS)] == [
        GuardrailOutcome.PASS,
        GuardrailOutcome.PASS,
    ]
    assert [g.outcome for g in judge_batch(21, 1001, 10_000, DEFAULTS)] == [
        GuardrailOutcome.FAIL,
        GuardrailOutcome.FAIL,
    ]
    assert judge_batch(1, 0, 0, DEFAULTS)[1].outcome is GuardrailOutcome.PASS
