"""Forms of reservation plans: their fields, the initial values, and the conversion of the input into terms. Pure.

Times are written and read in UTC. A field that cannot be parsed raises a UsageError that names it; the `PlanService`
refuses a value that is readable but impossible, with its own message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.reservations.model.plan import (
    ApprovalPolicy,
    Plan,
    Realisation,
    Recurrence,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanTerms
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy

HOURLY_SECONDS: Final = 3600
DEFAULT_MINUTES: Final = 120
MINUTE: Final = "%Y-%m-%dT%H:%M"
SECOND: Final = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True, slots=True)
class FieldOf:
    """One form field: its key, label, kind ("number", "text" or "choice"), present value and hint."""

    key: str
    label: str
    kind: str
    value: Any = ""
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    group: str = ""


def fields(plan: Plan) -> list[FieldOf]:
    """Return the editable fields of a plan with their present values."""
    when = _schedule(plan.recurring) if plan.recurring else _window(plan.window)
    return [*when, *_capacity_fields(PlanTerms.of(plan), forecast=plan.source is WindowSource.FORECAST)]


def fresh(start_seconds: float, workload: str = "", pods: int = 1, window: Span | None = None) -> list[FieldOf]:
    """Return the fields of a new plan, which recurs by schedule unless a window is given."""
    first = (start_seconds // HOURLY_SECONDS + 1) * HOURLY_SECONDS
    span = window or Span(first, first + 60 * DEFAULT_MINUTES)
    kinds = (("schedule", "By schedule"), ("window", "One window"))
    rule = Recurrence("0 18 * * 1-5", "Etc/UTC", 60.0 * DEFAULT_MINUTES)
    return [
        FieldOf("workload", "Workload", "text", workload, "NAMESPACE/KIND/NAME, such as shop/Deployment/web"),
        FieldOf("when", "When", "choice", "window" if window else "schedule", choices=kinds),
        *_schedule(rule),
        *_window(span),
        *_capacity_fields(PlanTerms(pods), forecast=False),
    ]


def _schedule(rule: Recurrence) -> list[FieldOf]:
    hint = "cron's five fields: minute hour day month weekday"
    return [
        FieldOf("schedule", "Schedule", "text", rule.schedule, hint, group="schedule"),
        FieldOf("zone", "Time zone", "text", rule.zone, "IANA name, such as Europe/Berlin", group="schedule"),
        FieldOf("minutes", "Minutes long", "number", _plain(rule.duration_seconds / 60), group="schedule"),
    ]


def _window(window: Span | None) -> list[FieldOf]:
    start, end = (format_moment(window.start_seconds), format_moment(window.end_seconds)) if window else ("", "")
    return [
        FieldOf("start", "From (UTC)", "text", start, "such as 2026-11-20T18:00", group="window"),
        FieldOf("end", "Until (UTC)", "text", end, group="window"),
    ]


def _capacity_fields(terms: PlanTerms, *, forecast: bool) -> list[FieldOf]:
    level = [FieldOf("quantile", "Quantile", "number", _plain(terms.quantile), "quantile of demand, 0.5 to 0.999")]
    ttl = "" if terms.ttl_seconds is None else _plain(terms.ttl_seconds / 60)
    once = (("yes", "One pod each"), ("no", "Pods may follow"))
    policies = (("Aligned", "Aligned"), ("Restricted", "Restricted"))
    kinds = tuple((r.value, r.value) for r in Realisation)
    return [
        FieldOf("pods", "Pods", "number", terms.pods),
        FieldOf("standby", "Standby, pods", "number", terms.standby, "pods reserved at all times; 0: none"),
        *(level if forecast else []),
        FieldOf("lead", "Lead, minutes", "number", _plain(terms.lead_seconds / 60), "added to pods' time to start"),
        FieldOf("ttl", "TTL, minutes", "number", ttl, "empty: kept until the window ends"),
        FieldOf("realisation", "Realisation", "choice", terms.realisation.value, choices=kinds),
        FieldOf("once", "A Reservation is for", "choice", "yes" if terms.allocate_once else "no", choices=once),
        FieldOf("policy", "Owners may use", "choice", terms.allocate_policy.value or "Aligned", choices=policies),
    ]


def format_moment(seconds: float) -> str:
    """Format a Unix time for its input field: without seconds if it is a whole minute."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime(SECOND if int(seconds) % 60 else MINUTE)


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else round(float(value), 3)


def terms(form: Mapping[str, Any], base: PlanTerms | None = None) -> PlanTerms:
    """Return the plan's terms from the form; a term without a form field is taken from `base`."""
    old = base or PlanTerms(1)
    by_schedule = form["when"] == "schedule" if "when" in form else "schedule" in form
    # The chosen policy; DEFAULT, the old name of Aligned, stays unless another is chosen.
    chosen = AllocatePolicy(form.get("policy") or "Aligned")
    default = chosen is AllocatePolicy.ALIGNED and old.allocate_policy is AllocatePolicy.DEFAULT
    return PlanTerms(
        pods=int(_number(form, "pods", "Pods")),
        window=None if by_schedule else _span(form, old.window),
        recurring=recurrence(form, old.recurring) if by_schedule else None,
        quantile=_number(form, "quantile", "Quantile") if "quantile" in form else old.quantile,
        lead_seconds=60 * _number(form, "lead", "Lead"),
        ttl_seconds=None if form.get("ttl") in (None, "") else 60 * _number(form, "ttl", "TTL"),
        realisation=Realisation(form.get("realisation") or old.realisation),
        allocate_once=form.get("once", "yes") == "yes",
        allocate_policy=AllocatePolicy.DEFAULT if default else chosen,
        standby=int(_number(form, "standby", "Standby")) if "standby" in form else old.standby,
    )


def recurrence(form: Mapping[str, Any], old: Recurrence | None = None) -> Recurrence:
    """Return the schedule in the form; terms without a field come from `old`; raise UsageError for an invalid field."""
    minutes = _number(form, "minutes", "Minutes long")
    schedule, zone = (" ".join(str(form.get(key) or "").split()) for key in ("schedule", "zone"))
    if not schedule:
        raise UsageError("Schedule is empty", fix='Write five fields, such as "0 18 * * 1-5".')
    late, skip = (old.starting_deadline_seconds, old.skip) if old else (None, ())
    return Recurrence(schedule, zone or "Etc/UTC", 60 * minutes, late, skip)


def _span(form: Mapping[str, Any], old: Span | None) -> Span:
    """Return the window from the form; an unchanged time keeps its fraction of a second, which the form hides."""
    start, end = moment(form.get("start"), "From"), moment(form.get("end"), "Until")
    if old is None:
        return Span(start, end)
    pairs = ((start, old.start_seconds), (end, old.end_seconds))
    return Span(*(was if int(was) == typed else typed for typed, was in pairs))


def moment(text: Any, label: str) -> float:
    """Return the Unix time of an ISO 8601 text, in UTC if it has no offset; raise UsageError naming `label`."""
    try:
        parsed = datetime.fromisoformat(str(text or "").strip().replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(f"{label}: {str(text or '')!r} is not a time", fix="Write 2026-11-20T18:00.") from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _number(form: Mapping[str, Any], key: str, label: str) -> float:
    value = form.get(key)
    try:
        number = float(str(value))
    except ValueError as error:
        raise UsageError(f"{label}: {str(value or '')!r} is not a number", fix="Write a number.") from error
    if not math.isfinite(number):
        raise UsageError(f"{label}: {value} is not a number", fix="Write a number.")
    return number


def policy(auto: bool, limits: Sequence[Any]) -> ApprovalPolicy:
    """Build the approval policy; an empty limit sets no condition. Raise UsageError if a limit is not a number.

    `limits` are the least used share of reserved pod-time in percent, the most idle core-hours and most cost a day.
    """
    names = ("Share used", "Idle core-hours", "Cost")
    least, idle, cost = (
        None if value in (None, "") else _number({"it": value}, "it", name)
        for name, value in zip(names, limits, strict=True)
    )
    return ApprovalPolicy(auto, None if least is None else least / 100, idle, cost)
