"""REST endpoints of reservation plans: what the reservations page requests from the `PlanService`, and a calendar.

They need the same rights as the page. Amounts are raw: Unix seconds, millicores, bytes; times in bodies are RFC 3339.
Without a `PlanService` each answers 400 and says how to start one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.moments import moment_of
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.reservations import story
from cotenant.dashboard.rest.wire import JsonBody, body_doc, json_answer, read_body
from cotenant.scheduler_ext.reservations.acts import (
    ApprovePlan,
    EditPlan,
    MakePlan,
    RejectPlan,
    RestoreOccurrence,
    SetPlanPolicy,
    SkipOccurrence,
)
from cotenant.scheduler_ext.reservations.model.plan import (
    ApprovalPolicy,
    DecisionScope,
    Plan,
    PlanChoices,
    Realisation,
    Recurrence,
    Span,
)
from cotenant.scheduler_ext.reservations.model.plan_scores import reports
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, PlanService, PlanTerms
from cotenant.scheduler_ext.reservations.model.plan_states import (
    available_pods,
    phase_of,
    used_reservations,
    wanted_pods,
)
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy

CALENDAR_DAYS: Final = 7.0
FOLD: Final = 73
"""Octets of a line of a calendar before it is folded (RFC 5545, 3.1: at most 75 with the break)."""
Days = Annotated[float, Query(gt=0, le=60, description="Days ahead to include.")]


class PlanTermsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The terms of a plan in a request.

    They have either `start` and `end`, or `schedule`, `zone` and `duration_seconds`.
    """

    pods: int
    start: str = ""
    end: str = ""
    schedule: str = ""
    zone: str = "Etc/UTC"
    duration_seconds: float = 0.0
    quantile: float = 0.9
    lead_seconds: float = 900.0
    ttl_seconds: float | None = None
    realisation: Realisation = Realisation.RESERVATION
    allocate_once: bool = True
    allocate_policy: AllocatePolicy = AllocatePolicy.ALIGNED
    standby: int = 0

    def terms(self) -> PlanTerms:
        """Return the terms for the service; raise UsageError if they have both a window and a schedule."""
        if self.schedule and (self.start or self.end):
            raise UsageError("a plan cannot have both a window and a schedule", fix="Leave one of them out.")
        rule = Recurrence(self.schedule, self.zone, self.duration_seconds) if self.schedule else None
        start, end = moment_of(self.start, "start"), moment_of(self.end, "end")
        window = None if start is None or end is None else Span(start, end)
        names = {field.name for field in fields(PlanChoices)}.intersection(self.__struct_fields__)
        choices = {name: getattr(self, name) for name in names}
        return PlanTerms(self.pods, window=window, recurring=rule, **choices)


class NewPlanBody(PlanTermsBody, forbid_unknown_fields=True, kw_only=True):
    """A new plan for `workload`, given as NAMESPACE/KIND/NAME."""

    workload: str
    name: str = ""


class EditPlanBody(PlanTermsBody, forbid_unknown_fields=True, kw_only=True):
    """New terms of a plan, and the `generation` of the plan that the caller has read."""

    generation: int


class PlanDecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A decision on one occurrence of a plan (Once) or on all (Series). With `dry_run` it returns the writes only.

    `generation` is that of the plan the caller has read: an approval without it answers 428, except in a dry run, and
    is refused if the plan has changed since. A rejection does not need it.
    """

    scope: DecisionScope = DecisionScope.SERIES
    reason: str = ""
    dry_run: bool = False
    generation: int | None = None


class SkipOccurrenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """The occurrence to skip or to restore, named by its start in RFC 3339, and the reason."""

    start: str
    reason: str = ""


def router(view: View, prefix: str) -> APIRouter:
    """Return the router of the plans' endpoints, all below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/reservations", tags=["reservations"])

    @api.get("", summary="Plans of the cluster with their phases, scores and next occurrences")
    def plans(days: Days = CALENDAR_DAYS) -> Response:
        service, who = _service(view), view.given.current_user()
        listed = service.plans(who)
        readable = [_plan_body(service, plan, days) for plan in listed.plans]
        names = [({"namespace": p.namespace, "name": p.name}, p.reason) for p in listed.unreadable]
        return json_answer([*readable, *({"plan": name, "unreadable": reason} for name, reason in names)])

    @api.get("/calendar.ics", summary="Occurrences of the next days as an iCalendar file")
    def calendar_file(days: Days = CALENDAR_DAYS) -> Response:
        service, who = _service(view), view.given.current_user()
        plan_windows = [(plan, service.occurrences(plan, days)) for plan in service.plans(who).plans]
        headers = {"Content-Disposition": 'attachment; filename="reservations.ics"'}
        text = calendar(plan_windows, view.now_seconds())
        return Response(text, media_type="text/calendar; charset=utf-8", headers=headers)

    @api.get("/{namespace}/{name}", summary="One plan and the history of people's actions on it")
    def plan(namespace: str, name: str, days: Days = CALENDAR_DAYS) -> Response:
        service, who, ref = _service(view), view.given.current_user(), PlanRef(namespace, name)
        return json_answer({**_plan_body(service, service.plan(who, ref), days), "history": service.history(who, ref)})

    @api.get("/{namespace}/{name}/preview", summary="The effects of approving a plan now")
    def preview(namespace: str, name: str) -> Response:
        return json_answer(_service(view).preview(view.given.current_user(), PlanRef(namespace, name)))

    _add_acts(api, view)
    return api


def _add_acts(api: APIRouter, view: View) -> None:
    @api.post("", summary="Make a plan, which still has to be approved", status_code=201, **body_doc(NewPlanBody))
    def make(body: JsonBody) -> Response:
        request = read_body(body, NewPlanBody)
        service, who = _service(view), view.given.current_user()
        plan = service.do(who, MakePlan(WorkloadRef.required(request.workload), request.terms(), request.name))
        return json_answer(_plan_body(service, plan, CALENDAR_DAYS), 201)

    def add(method: str, name: str, summary: str, kind: type[Any], request: Callable[[PlanRef, Any], Any]) -> None:
        """Add the route of an action on one plan; `request` builds the action from the plan and the body."""

        def endpoint(namespace: str, name: str, body: JsonBody) -> Response:
            answers, service, who = read_body(body, kind), _service(view), view.given.current_user()
            act_request = request(PlanRef(namespace, name), answers)
            if isinstance(answers, PlanDecisionBody) and answers.dry_run:
                return json_answer(service.lines_of(who, act_request))
            return json_answer(service.do(who, act_request))

        path = "/{namespace}/{name}" if name == "edit" else f"/{{namespace}}/{{name}}/{name}"
        api.add_api_route(path, endpoint, methods=[method], summary=summary, name=name, **body_doc(kind))

    def start(body: SkipOccurrenceBody) -> float:
        return moment_of(body.start, "start") or 0.0

    add("POST", "approve", "Approve a plan: its capacity is reserved at start - lead", PlanDecisionBody,
        lambda plan, body: ApprovePlan(plan, body.scope, body.reason, generation=body.generation))  # fmt: skip
    add("POST", "reject", "Reject a plan: release reserved capacity, and reserve no more", PlanDecisionBody,
        lambda plan, body: RejectPlan(plan, body.reason, body.scope))  # fmt: skip
    add("POST", "skip", "Skip one occurrence of a plan", SkipOccurrenceBody,
        lambda plan, body: SkipOccurrence(plan, start(body), body.reason))  # fmt: skip
    add("POST", "unskip", "Restore a skipped occurrence", SkipOccurrenceBody,
        lambda plan, body: RestoreOccurrence(plan, start(body)))  # fmt: skip
    add("PUT", "edit", "Edit a plan, if its generation is still the given one", EditPlanBody,
        lambda plan, body: EditPlan(plan, body.terms(), body.generation))  # fmt: skip
    add("PUT", "policy", "Set the conditions of a plan's automatic approval", ApprovalPolicy, SetPlanPolicy)


def _service(view: View) -> PlanService:
    return in_cluster(view.given.plans)


def _plan_body(service: PlanService, plan: Plan, days: float) -> dict[str, Any]:
    """Return a plan with its phase, its coming occurrences, and reports on the past ones, newest first."""
    return {
        "plan": plan,
        "phase": phase_of(plan),
        "wanted_pods": wanted_pods(plan),
        "available_pods": available_pods(plan),
        "used_reservations": used_reservations(plan),
        "occurrences": service.occurrences(plan, days),
        "reports": reports(plan),
    }


# --- iCalendar (RFC 5545) ---------------------------------------------------------------------------------------------
def calendar(plan_windows: Sequence[tuple[Plan, Sequence[Span]]], now_seconds: float) -> str:
    """Return an iCalendar file with one event per occurrence; names from the cluster are escaped."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//cotenant//reservations//EN", "CALSCALE:GREGORIAN"]
    for plan, windows in plan_windows:
        for window in windows:
            name = f"{plan.namespace}/{plan.name}"
            phase = phase_of(plan).value if window == story.window_of(plan) else "to come"
            description = f"{plan.count} pods for {plan.namespace}/{plan.owner.kind}/{plan.owner.name}: {phase}"
            event = [
                "BEGIN:VEVENT",
                f"UID:{_escape_text(plan.uid or plan.key)}-{int(window.start_seconds)}@cotenant",
                f"DTSTAMP:{_stamp(now_seconds)}",
                f"DTSTART:{_stamp(window.start_seconds)}",
                f"DTEND:{_stamp(window.end_seconds)}",
                f"SUMMARY:{_escape_text(f'Reservation {name}')}",
                f"DESCRIPTION:{_escape_text(description)}",
                "END:VEVENT",
            ]
            lines += event
    return "".join(f"{part}\r\n" for line in [*lines, "END:VCALENDAR"] for part in _fold_line(line))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y%m%dT%H%M%SZ")


def _escape_text(text: str) -> str:
    """Escape a text value, so that its backslashes, commas, semicolons and line ends have no meaning."""
    for character in ("\\", ",", ";"):
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _fold_line(line: str) -> Iterator[str]:
    """Yield a line in parts of at most FOLD octets, between characters; continuations begin with a space."""
    part = ""
    for character in line:
        if len((part + character).encode()) > FOLD:
            yield part
            part = " "
        part += character
    yield part
