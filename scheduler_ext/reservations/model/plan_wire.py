"""Parses ReservationPlan objects into the types of `reservations.model.plan`, and writes their status as JSON.

Pure. Unknown values are left out of a status, so that server-side apply removes these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import moment, moment_of, seconds_of
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    MOST_PODS,
    Approval,
    ApprovalPolicy,
    DecisionScope,
    Expected,
    OccurrenceProgress,
    PeakWindow,
    Plan,
    PlanDecision,
    PlanOwner,
    PlanReservation,
    PlanStatus,
    Realisation,
    Recurrence,
    Score,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy

Json = Mapping[str, Any]
_Part = TypeVar("_Part", Expected, PlanReservation, OccurrenceProgress, Score)


def parse_plan(body: Json) -> Plan:
    """Parse a plan from JSON; raise UsageError or QuantityError that names the plan, the field and the wrong value."""
    meta, spec = body.get("metadata") or {}, body.get("spec") or {}
    name, what = str(meta.get("name") or ""), f"reservationplan {meta.get('namespace')}/{meta.get('name')}"
    amount, texts = spec.get("amount") or {}, (spec.get("amount") or {}).get("perPod") or {}
    owner, policy = spec.get("owner") or {}, spec.get("policy") or {}
    return Plan(
        namespace=str(meta.get("namespace") or "default"),
        name=name,
        source=_choice(WindowSource, spec.get("source"), f"{what}: source"),
        owner=PlanOwner(
            str(owner.get("kind") or "Deployment"),
            str(owner.get("name") or ""),
            str(owner.get("apiVersion") or "apps/v1"),
        ),
        per_pod=parse_quantities(texts, f"{what}: amount.perPod"),
        count=_pods(amount.get("count"), f"{what}: amount.count"),
        uid=str(meta.get("uid") or ""),
        generation=int(meta.get("generation") or 0),
        version=str(meta.get("resourceVersion") or ""),
        window=parse_span(spec.get("window"), f"{what}: window"),
        windows=_windows(spec.get("windows") or (), what),
        standby=_pods(amount.get("standby"), f"{what}: amount.standby"),
        recurring=_recurrence(spec.get("recurring"), what),
        quantile=float(spec.get("quantile", 0.9)),
        lead_seconds=_seconds(spec, "lead", 900.0, what),
        ttl_seconds=seconds_of(str(spec["ttl"]), f"{what}: ttl") if "ttl" in spec else None,
        extend_by_seconds=_seconds(spec, "extendBy", 1800.0, what),
        allocate_once=spec.get("allocateOnce") is not False,
        allocate_policy=_choice(AllocatePolicy, spec.get("allocatePolicy") or "Aligned", f"{what}: allocatePolicy"),
        template=spec.get("template"),
        realisation=_choice(Realisation, spec.get("realisation") or "Reservation", f"{what}: realisation"),
        suspended=bool(spec.get("suspend")),
        policy=ApprovalPolicy(
            bool(policy.get("autoApprove")),
            policy.get("minimumHitRatio"),
            policy.get("maximumIdleCoreHours"),
            policy.get("maximumCost"),
        ),
        approval=_approval(spec.get("approval") or {}, what),
        history_limit=int(spec.get("historyLimit", 10)),
        status=_status(body.get("status") or {}, what),
        labels=meta.get("labels") or {},
        per_pod_text={str(r): str(text) for r, text in texts.items()},
        deleting=bool(meta.get("deletionTimestamp")),
    )


def parse_span(body: Any, what: str) -> Span | None:
    """Parse a time span {start, end}: None for an empty body; raise UsageError if the end is not after the start."""
    if not body:
        return None
    start, end = moment_of(body.get("start"), f"{what}.start"), moment_of(body.get("end"), f"{what}.end")
    if start is None or end is None or end <= start:
        raise UsageError(f"{what}: the end is not after the start", fix="Give a start and a later end.")
    return Span(start, end)


def _pods(value: Any, what: str) -> int:
    """Parse a number of pods; UsageError above MOST_PODS, because each pod gets a Reservation of its own."""
    pods = int(value or 0)
    if not 0 <= pods <= MOST_PODS:
        raise UsageError(f"{what} is not between 0 and {MOST_PODS:,} pods", fix="Write a number of pods in that range.")
    return pods


def _windows(bodies: Any, what: str) -> tuple[PeakWindow, ...]:
    what = f"{what}: windows"
    spans = [(parse_span(body, what), _pods(body.get("count"), what)) for body in bodies]
    return tuple(sorted(PeakWindow(span, count) for span, count in spans if span))


def peak_body(peak: PeakWindow) -> dict[str, Any]:
    """Return a peak window as JSON of a plan object."""
    return {**span_body(peak.span), "count": peak.count}


def span_body(span: Span) -> dict[str, str]:
    """Return a span as JSON of a plan object: start and end in RFC 3339."""
    return {"start": moment(span.start_seconds), "end": moment(span.end_seconds)}


def status_body(status: PlanStatus, generation: int) -> dict[str, Any]:
    """Return a status as JSON of a plan object, without values that are unknown."""
    body: dict[str, Any] = {"observedGeneration": generation}
    if status.phase:
        body["phase"] = status.phase.value
    if status.window:
        body |= {
            "window": span_body(status.window),
            "reserveAt": moment(status.reserve_at_seconds),
            "leadSeconds": status.lead_seconds,
            "count": status.count,
        }
    if status.expected:
        body["expected"] = _body(status.expected, _EXPECTED)
    if status.units:
        body["reservations"] = [_body(unit, _UNIT) for unit in status.units]
    if status.progress.as_of_seconds:
        body["progress"] = _body(status.progress, _PROGRESS)
    if status.score:
        body["score"] = _body(status.score, _SCORE)
    if status.history:
        body["history"] = [_body(score, _SCORE) for score in status.history]
    if status.settings_digest:
        body["settingsDigest"] = status.settings_digest
    if status.conditions:
        body["conditions"] = [condition.body() for condition in status.conditions]
    return body


def _choice(kind: type[Any], text: Any, what: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        allowed = ", ".join(m.value for m in kind if m.value)
        raise UsageError(f"{what} {text!r} is unknown", fix=f"Write one of {allowed}.") from error


def _seconds(spec: Json, name: str, default: float, what: str) -> float:
    return seconds_of(str(spec[name]), f"{what}: {name}") if name in spec else default


def _recurrence(body: Any, what: str) -> Recurrence | None:
    if not body:
        return None
    late = body.get("startingDeadline")
    return Recurrence(
        str(body.get("schedule") or ""),
        str(body.get("timeZone") or "Etc/UTC"),
        seconds_of(str(body.get("duration") or ""), f"{what}: recurring.duration"),
        seconds_of(str(late), f"{what}: recurring.startingDeadline") if late is not None else None,
        tuple(
            s for moment in body.get("skip") or () if (s := moment_of(moment, f"{what}: recurring.skip")) is not None
        ),
    )


def _approval(body: Json, what: str) -> Approval | None:
    if not body.get("decision"):
        return None
    return Approval(
        _choice(PlanDecision, body["decision"], f"{what}: approval.decision"),
        _choice(DecisionScope, body.get("scope") or "Series", f"{what}: approval.scope"),
        str(body.get("by") or ""),
        moment_of(body.get("at"), f"{what}: approval.at") or 0.0,
        str(body.get("reason") or ""),
    )


def _status(body: Json, what: str) -> PlanStatus:
    expected, scored = body.get("expected"), body.get("score")
    return PlanStatus(
        phase=PlanPhase(body["phase"]) if body.get("phase") else None,
        window=parse_span(body.get("window"), f"{what}: status.window"),
        reserve_at_seconds=moment_of(body.get("reserveAt"), what) or 0.0,
        lead_seconds=int(body.get("leadSeconds") or 0),
        count=_pods(body.get("count"), f"{what}: status.count"),
        expected=_read(Expected, _EXPECTED, expected, what) if expected else None,
        units=tuple(_read(PlanReservation, _UNIT, unit, what) for unit in body.get("reservations") or ()),
        progress=_read(OccurrenceProgress, _PROGRESS, body.get("progress") or {}, what),
        score=_read(Score, _SCORE, scored, what) if scored else None,
        history=tuple(_read(Score, _SCORE, entry, what) for entry in body.get("history") or () if entry),
        settings_digest=str(body.get("settingsDigest") or ""),
        conditions=tuple(Condition.parse(condition) for condition in body.get("conditions") or ()),
    )


_MOMENT: Final = "moment"
_Fields = tuple[tuple[str, str, Any], ...]
_EXPECTED: Final[_Fields] = (
    ("hitRatio", "hit_ratio", 4),
    ("missedPods", "missed_pods", 3),
    ("occurrences", "occurrences", int),
    ("idleCoreHours", "idle_core_hours", 3),
    ("displacedBatchCoreHours", "displaced_batch_core_hours", 3),
    ("cost", "cost", 4),
    ("currency", "currency", str),
)
"""Name on the wire, attribute, and kind: a type, a number of digits, or a moment."""
_UNIT: Final[_Fields] = (
    ("name", "name", str),
    ("nodeName", "node", str),
    ("phase", "phase", str),
    ("usedBy", "used_by", str),
)
_PROGRESS: Final[_Fields] = (
    ("asOf", "as_of_seconds", _MOMENT),
    ("heldPodSeconds", "reserved_pod_seconds", 1),
    ("usedPodSeconds", "used_pod_seconds", 1),
    ("missedPodSeconds", "missed_pod_seconds", 1),
    ("mostHeld", "most_reserved", int),
    ("mostUsed", "most_used", int),
    ("mostMissed", "most_missed", int),
    ("availableAt", "available_at_seconds", _MOMENT),
    ("changedAt", "changed_at_seconds", _MOMENT),
    ("lentCoreSeconds", "lent_core_seconds", 1),
    ("mostNeeded", "most_needed", int),
    ("mostOthersWaiting", "most_others_waiting", int),
)
_SCORE: Final[_Fields] = (
    ("start", "start_seconds", _MOMENT),
    ("end", "end_seconds", _MOMENT),
    ("held", "reserved", int),
    ("used", "used", int),
    ("missed", "missed", int),
    ("hitRatio", "hit_ratio", 4),
    ("coverage", "coverage", 4),
    ("idleCoreHours", "idle_core_hours", 3),
    ("cost", "cost", 4),
    ("missedCoreMinutes", "missed_core_minutes", 1),
    ("leadSeconds", "lead_seconds", int),
    ("lentCoreHours", "lent_core_hours", float),
    ("planned", "planned", int),
    ("needed", "needed", int),
    ("othersWaiting", "others_waiting", int),
)


def _read(kind: type[_Part], fields_of: _Fields, body: Json, what: str) -> _Part:
    """Parse a part of the status; missing fields get their defaults, or 0."""
    values: dict[str, Any] = {field.name: 0 for field in fields(kind) if field.default is MISSING}
    for name, attribute, form in fields_of:
        if (value := body.get(name)) is not None:
            read = float if isinstance(form, int) else form
            values[attribute] = (moment_of(value, what) or 0.0) if form is _MOMENT else read(value)
    return kind(**values)


def _body(part: Any, fields_of: _Fields) -> dict[str, Any]:
    """Return a part of the status as JSON, without unknown values: None, "" and the time 0."""
    body: dict[str, Any] = {}
    for name, attribute, form in fields_of:
        value = getattr(part, attribute)
        if value is None or (not value and form in (_MOMENT, str)):
            continue
        rounded = round(value, form) if isinstance(form, int) else value
        body[name] = moment(value) if form is _MOMENT else rounded
    return body
