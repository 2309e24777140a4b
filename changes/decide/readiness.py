"""Decide which part of a workload's recommendations the guardrails allow now, by the scan alone. Pure.

Rules about the cluster (a rollout, a quota, a budget, a window) are checked in the review, on the live state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.base.cluster import Workload
from cotenant.changes.decide.checks.capacity import AUTOSCALER, qos_class_rule
from cotenant.changes.decide.guardrails import GITOPS, SECOND_PERSON, blocking, gitops_key, judge_recorded, takes_second
from cotenant.changes.decide.patches import refusal
from cotenant.changes.decide.steps import first_step, steps_count
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.restart import apply_recommendations


@dataclass(frozen=True, slots=True)
class Readiness:
    """The part of one workload's recommendations that can be applied now.

    `first` are the recommendations reduced to their first step, and `stopped_by` names the rules that stop that step;
    `steps` is the number of steps until all is applied, 0 if nothing can be applied now.
    """

    ready: Ready
    first: tuple[Recommendation, ...]
    stopped_by: tuple[str, ...] = ()
    steps: int = 0


def readiness(
    recommendations: Sequence[Recommendation], limits: GuardrailSettings, workload: Workload | None = None
) -> Readiness:
    """Return which part of one workload's recommendations passes the guardrails; some rules need the `workload`."""
    first = first_step(recommendations, limits)
    if not any(value.changes_template for r in recommendations for value in r.values):
        return Readiness(Ready.NOTHING, first)
    if any(refusal(r) for r in recommendations if any(value.changes_template for value in r.values)):
        return Readiness(Ready.BLOCKED, first, ("template",))
    rules = judge_recorded(first, limits)
    if workload is not None and workload.described and workload.one_template:  # else no template of new pods is known
        rules.append(qos_class_rule(workload.containers, apply_recommendations(workload.containers, first)))
    if failed := blocking(rules, ()):
        return Readiness(Ready.BLOCKED, first, tuple(rule.rule for rule in failed))
    # Somebody else writes what a change would write: a GitOps tool or an operator, or a VerticalPodAutoscaler.
    is_owned = workload is not None and (gitops_key(workload.labels, limits) or workload.operator)
    if workload is not None and (is_owned or workload.vertical):
        return Readiness(Ready.BLOCKED, first, (GITOPS if is_owned else AUTOSCALER,))
    if workload is not None and takes_second(workload.qos):
        return Readiness(Ready.SECOND_PERSON, first, (SECOND_PERSON,))
    is_whole = all(a.values == b.values for a, b in zip(first, recommendations, strict=True))
    ready = Ready.WHOLE if is_whole else Ready.FIRST_STEP
    return Readiness(ready, first, steps=steps_count(recommendations, first, limits))
