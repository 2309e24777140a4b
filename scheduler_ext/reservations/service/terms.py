"""Validates a person's input for a reservation plan and computes the patch of its fields. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import DNS_NAME, Address, Patch
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.scheduler_ext.reservations.model.plan import (
    MOST_PODS,
    PLURAL,
    ApprovalPolicy,
    Plan,
    PlanDecision,
    PlanStatus,
    WindowSource,
    duration,
)
from cotenant.scheduler_ext.reservations.model.plan_service import EDITED_LABEL, PlanTerms
from cotenant.scheduler_ext.reservations.model.plan_wire import span_body
from cotenant.scheduler_ext.reservations.plans import schedule

MOST_STANDBY_PODS: Final = 100
QUANTILES: Final = (0.5, 0.999)
LONGEST_LEAD_SECONDS: Final = 6 * 3600.0
LONGEST_WINDOW_SECONDS: Final = 7 * 86_400.0
SHORTEST_SECONDS: Final = 60.0
MOST_SKIPPED: Final = 100

Operation = dict[str, Any]


def validate_terms(terms: PlanTerms, now_seconds: float) -> PlanTerms:
    """Return the terms unchanged; raise UsageError for the first invalid one, with its allowed range."""
    _require_range("pods", terms.pods, 1, MOST_PODS, "")
    checked_standby(terms.standby)
    _require_range("quantile", terms.quantile, *QUANTILES, "")
    _require_range("lead", terms.lead_seconds, 0, LONGEST_LEAD_SECONDS, " s")
    if terms.ttl_seconds is not None:
        _require_range("ttl", terms.ttl_seconds, SHORTEST_SECONDS, LONGEST_WINDOW_SECONDS, " s")
    if terms.recurring and terms.window:
        raise UsageError("a plan cannot have both a window and a schedule", fix="Leave out the window or the schedule.")
    if terms.recurring:
        schedule.check(terms.recurring)
        _require_range("length", terms.recurring.duration_seconds, SHORTEST_SECONDS, LONGEST_WINDOW_SECONDS, " s")
        if next(schedule.occurrences(terms.recurring, now_seconds), None) is None:
            raise UsageError(f"schedule {terms.recurring.schedule!r} has no future start", fix="Correct the schedule.")
    elif window := terms.window:
        if window.end_seconds <= window.start_seconds:
            raise UsageError(
                f"the window ends at {moment(window.end_seconds)}, not after its start, {moment(window.start_seconds)}",
                fix="Give an end after the start.",
            )
        if window.end_seconds <= now_seconds:
            raise UsageError(f"the window ended at {moment(window.end_seconds)}", fix="Give a later end.")
        _require_range("window length", window.seconds, SHORTEST_SECONDS, LONGEST_WINDOW_SECONDS, " s")
    else:
        raise UsageError("a plan needs a window or a schedule", fix="Give a start and an end, or a schedule.")
    return terms


def checked_standby(pods: int) -> int:
    """Return the number of standby pods; raise UsageError if it is outside 0 to MOST_STANDBY_PODS."""
    _require_range("standby", pods, 0, MOST_STANDBY_PODS, " pods")
    return pods


def _require_range(what: str, value: float, least: float, most: float, unit: str) -> None:
    """Raise UsageError unless the value of the field that `what` names is finite and within [least, most]."""
    if not math.isfinite(value) or not least <= value <= most:
        raise UsageError(f"{what} {value:g}{unit} is out of its range", fix=f"Give {least:g} to {most:g}{unit}.")


def checked_policy(policy: ApprovalPolicy) -> ApprovalPolicy:
    """Return the policy unchanged; raise UsageError for the first invalid limit."""
    bounds = {
        "least share used": (policy.minimum_hit_ratio, (0.0, 1.0)),
        "most idle core-hours a day": (policy.maximum_idle_core_hours, (0.0, 1e6)),
        "most cost a day": (policy.maximum_cost, (0.0, 1e9)),
    }
    for what, (value, allowed) in bounds.items():
        if value is not None:
            _require_range(what, value, *allowed, "")
    return policy


def checked_name(name: str) -> str:
    """Return the name of a plan; raise UsageError if it is no valid Kubernetes object name."""
    if not DNS_NAME.fullmatch(name):
        raise UsageError(f"plan name {name!r} is invalid", fix="Write lower-case letters, digits, dots and dashes.")
    return name


def plan_with_terms(plan: Plan, terms: PlanTerms) -> Plan:
    """Return the plan with these terms; a change of its window or schedule resets its status, except the back-test."""
    moved = (terms.window, terms.recurring) != (plan.window, plan.recurring)
    return replace(
        plan,
        **terms.choices(),
        count=terms.pods,
        windows=() if moved or terms.pods != plan.count else plan.windows,
        status=PlanStatus(expected=plan.status.expected) if moved else plan.status,
    )


def edit_patch(plan: Plan, terms: PlanTerms, generation: int) -> Patch:
    """Return the patch of the edited terms; UsageError for another generation, or if its phase forbids the edit."""
    if plan.generation != generation:
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} has changed since you read it", fix="Reload the plan and edit it again."
        )
    moved = (terms.window, terms.recurring) != (plan.window, plan.recurring)
    if moved and plan.status.phase and plan.status.phase.holds:
        raise UsageError(
            f"the window of plan {plan.namespace}/{plan.name} cannot change while its capacity is reserved",
            fix="Wait until the window is over, or reject the plan, which releases the capacity.",
        )
    if bool(terms.recurring) is not bool(plan.recurring):
        raise UsageError("a plan cannot change from schedule to window or back", fix="Create a new plan.")
    operations = list(_differences(plan, terms))
    if not operations:
        raise UsageError("no field of the plan was changed", fix="Change a field first.")
    if plan.approved_by_person:  # named, so that the right to approve is asked for behind a proxy too
        operations.append({"op": "test", "path": "/spec/approval/decision", "value": PlanDecision.APPROVED.value})
    paths = [str(each["path"]) for each in operations if "/spec/" in each["path"] and each["op"] != "test"]
    edited = ", ".join(path.removeprefix("/spec/").replace("/", ".") for path in paths)
    return _patch(plan, operations, f"edited: {edited}")


def _differences(plan: Plan, terms: PlanTerms) -> Iterator[Operation]:
    """Return the JSON patch operations for the terms that differ from the plan's.

    A label with the window's end is added when a person edits the window or pods of a forecast plan, or its standby
    before the approval: until then no forecast overwrites these fields. After an approval forecasts never change the
    standby.
    """
    old = PlanTerms.of(plan)
    if terms.window and terms.window != old.window:
        yield _set("window", span_body(terms.window))
    if plan.windows and (terms.window, terms.pods) != (old.window, old.pods):
        yield {"op": "remove", "path": "/spec/windows"}
    if (rule := terms.recurring) and rule != old.recurring:
        late, skipped = rule.starting_deadline_seconds, [moment(start) for start in rule.skip]
        body: dict[str, Any] = {
            "schedule": rule.schedule,
            "timeZone": rule.zone,
            "duration": duration(rule.duration_seconds),
        }
        body |= {} if late is None else {"startingDeadline": duration(late)}
        yield _set("recurring", body | ({"skip": skipped} if skipped else {}))
    if terms.pods != old.pods:
        yield _set("amount/count", terms.pods)
    plain = {
        "amount/standby": (old.standby, terms.standby),
        "quantile": (old.quantile, terms.quantile),
        "lead": (duration(old.lead_seconds), duration(terms.lead_seconds)),
        "ttl": tuple(None if t.ttl_seconds is None else duration(t.ttl_seconds) for t in (old, terms)),
        "realisation": (old.realisation.value, terms.realisation.value),
        "allocateOnce": (old.allocate_once, terms.allocate_once),
        "allocatePolicy": (old.allocate_policy.value, terms.allocate_policy.value),
    }
    for field, (before, after) in plain.items():
        if before != after:
            yield {"op": "remove", "path": f"/spec/{field}"} if after is None else _set(field, after)
    chosen = (terms.window, terms.pods) != (old.window, old.pods)
    chosen = chosen or (terms.standby != old.standby and not plan.approved)
    if plan.source is WindowSource.FORECAST and chosen and terms.window:
        yield {
            "op": "add",
            "path": "/metadata/labels",
            "value": {**plan.labels, EDITED_LABEL: str(int(terms.window.end_seconds))},
        }


def skip_start_patch(plan: Plan, start_seconds: float, now_seconds: float) -> Patch:
    """Return the patch that skips one start of a schedule; UsageError if it is no start or has reserved capacity."""
    rule = plan.recurring
    assert rule is not None
    if next(schedule.starts(rule, start_seconds - 1), None) != start_seconds:
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} has no occurrence that starts at {moment(start_seconds)}",
            fix="Choose one of the plan's next starts.",
        )
    window = plan.status.window
    if plan.status.phase and plan.status.phase.holds and window and window.start_seconds == start_seconds:
        raise UsageError(
            f"capacity for the occurrence of {moment(start_seconds)} is already reserved",
            fix="Reject the plan, which releases the capacity.",
        )
    coming = [start for start in rule.skip if start >= now_seconds]
    if len(coming) >= MOST_SKIPPED:
        raise UsageError(f"the plan already skips {MOST_SKIPPED} starts", fix="Change the schedule.")
    starts = [moment(start) for start in sorted({*coming, start_seconds})]
    return _patch(plan, [_set("recurring/skip", starts)], f"skipped the occurrence of {moment(start_seconds)}")


def restore_start_patch(plan: Plan, start_seconds: float, now_seconds: float) -> Patch:
    """Return the patch that restores a skipped start of a schedule; UsageError if it is not skipped or is past."""
    skips = plan.recurring.skip if plan.recurring else ()
    if start_seconds not in skips:
        skipped_starts = ", ".join(moment(start) for start in skips) or "none"
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} does not skip {moment(start_seconds)}",
            fix=f"Choose a start that the plan skips (now: {skipped_starts}).",
        )
    if start_seconds < now_seconds:
        raise UsageError(f"the occurrence of {moment(start_seconds)} has already begun", fix="Choose a later start.")
    starts = [moment(start) for start in skips if start >= now_seconds and start != start_seconds]
    return _patch(plan, [_set("recurring/skip", starts)], f"restored the occurrence of {moment(start_seconds)}")


def with_policy(plan: Plan, policy: ApprovalPolicy) -> Patch:
    """Return the patch that sets the conditions under which the plan is approved automatically."""
    limits = {
        "minimumHitRatio": policy.minimum_hit_ratio,
        "maximumIdleCoreHours": policy.maximum_idle_core_hours,
        "maximumCost": policy.maximum_cost,
    }
    bounds = {name: value for name, value in limits.items() if value is not None}
    text = ", ".join(f"{name} {value:g}" for name, value in bounds.items())
    says = f"is approved automatically, limits: {text or 'none'}" if policy.auto else "needs a person's approval"
    return _patch(plan, [_set("policy", {"autoApprove": policy.auto, **bounds})], says)


def _set(field: str, value: Any) -> Operation:
    return {"op": "add", "path": f"/spec/{field}", "value": value}


def _patch(plan: Plan, operations: list[Operation], why: str) -> Patch:
    """Return a JSON patch that the API server applies only if the plan is the one that was read."""
    same: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": plan.uid},
        {"op": "test", "path": "/metadata/generation", "value": plan.generation},
    ]
    return Patch(Address(OWN_GROUP, PLURAL, plan.name, plan.namespace), (*same, *operations), why=why)
