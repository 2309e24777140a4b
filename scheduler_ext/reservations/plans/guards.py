"""Guards, the rules that stop a plan: kill switch, share of the cluster, namespace quota, forecast without skill. Pure.

Each guard has a result with a reason and a sentence with the numbers. All are checked, so that a page can show each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.text import percent
from cotenant.scheduler_ext.reservations.model.plan import WindowSource
from cotenant.scheduler_ext.reservations.model.plan_service import PlanGuardResult
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings

GAIN: Final = "forecast gain"
"""Name of the guard of plans that depend on a forecast."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of the guards; amounts are by resource name (cpu in millicores, others in their unit).

    `wanted` is what this plan would reserve and `reserved` what other plans reserve. `allocatable` is of the whole
    cluster, `quota_left` of the namespace, with only the resources that a ResourceQuota limits. `skill` is that of the
    plan's forecasts compared with the same time last week, None if it was not measured.
    """

    source: WindowSource
    wanted: Mapping[str, int]
    reserved: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    quota_left: Mapping[str, int] = field(default_factory=dict)
    skill: float | None = None


def check_guards(situation: Situation, settings: PlanSettings) -> tuple[PlanGuardResult, ...]:
    """Return the result of every guard, a rule that can stop the plan."""
    switch = PlanGuardResult("kill switch", True, "Enabled", "Plans may reserve capacity.")
    if not settings.enabled:
        message = "The setting plans.enabled is off, so no capacity is reserved."
        switch = PlanGuardResult("kill switch", False, "SwitchedOff", message)
    return (switch, _budget(situation, settings), _quota(situation), _skill(situation, settings))


def first_blocking_verdict(verdicts: tuple[PlanGuardResult, ...]) -> PlanGuardResult | None:
    """Return the first result that did not pass, or None."""
    return next((verdict for verdict in verdicts if not verdict.passed), None)


def _budget(situation: Situation, settings: PlanSettings) -> PlanGuardResult:
    """Check that all plans reserve at most `cluster_budget_fraction` of each allocatable resource of the cluster."""
    guard, share = "cluster budget", settings.cluster_budget_fraction
    if not situation.allocatable:
        message = "The capacity of the cluster's nodes is not known yet."
        return PlanGuardResult(guard, False, "CapacityUnknown", message)
    for name, amount in sorted(situation.wanted.items()):
        capacity = situation.allocatable.get(name)
        if not capacity:
            continue
        requested = amount + situation.reserved.get(name, 0)
        if requested > share * capacity:
            part = percent(requested / capacity, 1)
            message = f"{name}: plans would reserve {part} of the cluster, {percent(share)} is allowed."
            return PlanGuardResult(guard, False, "OverBudget", message)
    return PlanGuardResult(guard, True, "WithinBudget", f"Plans reserve no more than {percent(share)} of the cluster.")


def _quota(situation: Situation) -> PlanGuardResult:
    """Check that the plan's pods fit into what the namespace's ResourceQuota has left; without a quota they do."""
    guard = "namespace quota"
    for name, amount in sorted(situation.wanted.items()):
        remaining = situation.quota_left.get(name)
        if remaining is not None and amount > remaining:
            need, available = (format_quantities({name: each})[name] for each in (amount, remaining))
            message = f"{name}: the plan's pods need {need}, the namespace's ResourceQuota has {available} left."
            return PlanGuardResult(guard, False, "OverQuota", message)
    return PlanGuardResult(guard, True, "WithinQuota", "No ResourceQuota of the namespace excludes the plan's pods.")


def _skill(situation: Situation, settings: PlanSettings) -> PlanGuardResult:
    """Check that a forecast plan's skill is above `minimum_skill`; an unknown skill fails.

    Skill 0 is as good as the same time last week (`cotenant.scheduler_ext.reservations.plans.backtest.skill`).
    """
    if situation.source is not WindowSource.FORECAST:
        return PlanGuardResult(GAIN, True, "NotForecast", "The plan has no forecast.")
    if situation.skill is None or not math.isfinite(situation.skill):
        return PlanGuardResult(GAIN, False, "SkillUnknown", "This workload's forecasts have no back-test yet.")
    skill_text = f"The forecast's gain, the share of cost saved against last week's demand, is {situation.skill:+z.2f}"
    if situation.skill <= settings.minimum_skill:
        return PlanGuardResult(GAIN, False, "NoSkill", f"{skill_text}; it must be above {settings.minimum_skill:g}.")
    return PlanGuardResult(GAIN, True, "Skilled", f"{skill_text}.")
