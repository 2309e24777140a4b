"""ReservationPlan on the wire: from JSON to the vocabulary of `reservations.model.plan`, and its status back.

Pure. What is not known is left out of a status, so that server-side apply gives the field back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import moment, moment_of, seconds_of
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
    PlanCondition,
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


def parse_plan(body: Json) -> Plan:
    """Return the plan of the object as JSON; UsageError or QuantityError names the plan, the field and the value."""
    meta, spec = body.get("metadata") or {}, body.get("spec") or {}
    name, what = str(meta.get("name") or ""), f"reservationplan {meta.get('namespace')}/{meta.get('name')}"
    amount, texts = spec.get("amount") or {}, (spec.get("amount") or {}).get("perPod") or {}
    owner = spec.get("owner") or {}
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
        policy=_policy(spec.get("policy") or {}),
        approval=_approval(spec.get("approval") or {}, what),
        history_limit=int(spec.get("historyLimit", 10)),
        status=_status(body.get("status") or {}, what),
        labels=meta.get("labels") or {},
        per_pod_text={str(r): str(text) for r, text in texts.items()},
        deleting=bool(meta.get("deletionTimestamp")),
    )


def parse_span(body: Any, what: str) -> Span | None:
    """Return the span of {start, end}; None for an empty body, UsageError for an end that is not after a start."""
    if not body:
        return None
    start, end = moment_of(body.get("start"), f"{what}.start"), moment_of(body.get("end"), f"{what}.end")
    if start is None or end is None or end <= start:
        raise UsageError(f"{what} has no end after its start", fix="Give start and end, such as 18:00 and 20:00.")
    return Span(start, end)


def _pods(value: Any, what: str) -> int:
    """A number of pods, each of which gets a name and a Reservation of its own; UsageError for more than MOST_PODS."""
    pods = int(value or 0)
    if not 0 <= pods <= MOST_PODS:
        raise UsageError(f"{what} is not between 0 and {MOST_PODS:,} pods", fix="Write a number of pods.")
    return pods


def _windows(bodies: Any, what: str) -> tuple[PeakWindow, ...]:
    what = f"{what}: windows"
    spans = [(parse_span(body, what), _pods(body.get("count"), what)) for body in bodies]
    return tuple(sorted(PeakWindow(span, count) for span, count in spans if span))


def peak_body(peak: PeakWindow) -> dict[str, Any]:
    """A window with its pods as a plan's object writes it."""
    return {**span_body(peak.span), "count": peak.count}


def span_body(span: Span) -> dict[str, str]:
    """A span as a plan's object writes it: start and end in RFC 3339."""
    return {"start": moment(span.start_seconds), "end": moment(span.end_seconds)}


def status_body(status: PlanStatus, generation: int) -> dict[str, Any]:
    """The status as the object carries it; what is not known is left out."""
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
        body["expected"] = _expected_body(status.expected)
    if status.units:
        body["reservations"] = [_unit_body(unit) for unit in status.units]
    if status.progress.as_of_seconds:
        body["progress"] = _progress_body(status.progress)
    if status.score:
        body["score"] = _score_body(status.score)
    if status.history:
        body["history"] = [_score_body(score) for score in status.history]
    if status.settings_digest:
        body["settingsDigest"] = status.settings_digest
    if status.conditions:
        body["conditions"] = [_condition_body(condition) for condition in status.conditions]
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


def _policy(body: Json) -> ApprovalPolicy:
    return ApprovalPolicy(
        bool(body.get("autoApprove")),
        body.get("minimumHitRatio"),
        body.get("maximumIdleCoreHours"),
        body.get("maximumCost"),
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
    return PlanStatus(
        phase=PlanPhase(body["phase"]) if body.get("phase") else None,
        window=parse_span(body.get("window"), f"{what}: status.window"),
        reserve_at_seconds=moment_of(body.get("reserveAt"), what) or 0.0,
        lead_seconds=int(body.get("leadSeconds") or 0),
        count=_pods(body.get("count"), f"{what}: status.count"),
        expected=_parse_expected(body.get("expected")),
        units=tuple(
            PlanReservation(str(u.get("name")), u.get("nodeName") or "", u.get("phase") or "", u.get("usedBy") or "")
            for u in body.get("reservations") or ()
        ),
        progress=_progress(body.get("progress") or {}, what),
        score=_score(body.get("score"), what),
        history=tuple(s for entry in body.get("history") or () if (s := _score(entry, what))),
        settings_digest=str(body.get("settingsDigest") or ""),
        conditions=tuple(
            PlanCondition(
                str(c.get("type")), str(c.get("status")), c.get("reason") or "", c.get("message") or "",
                c.get("lastTransitionTime") or "",
            )
            for c in body.get("conditions") or ()
        ),
    )  # fmt: skip


def _parse_expected(body: Any) -> Expected | None:
    if not body:
        return None
    return Expected(
        hit_ratio=float(body.get("hitRatio") or 0),
        missed_pods=float(body.get("missedPods") or 0),
        occurrences=int(body.get("occurrences") or 0),
        idle_core_hours=float(body.get("idleCoreHours") or 0),
        displaced_batch_core_hours=float(body.get("displacedBatchCoreHours") or 0),
        cost=float(body.get("cost") or 0),
        currency=str(body.get("currency") or ""),
    )


def _expected_body(expected: Expected) -> dict[str, Any]:
    body = {
        "hitRatio": round(expected.hit_ratio, 4),
        "missedPods": round(expected.missed_pods, 3),
        "occurrences": expected.occurrences,
        "idleCoreHours": round(expected.idle_core_hours, 3),
        "displacedBatchCoreHours": round(expected.displaced_batch_core_hours, 3),
        "cost": round(expected.cost, 4),
    }
    return {**body, "currency": expected.currency} if expected.currency else body


def _unit_body(unit: PlanReservation) -> dict[str, str]:
    fields = {"name": unit.name, "nodeName": unit.node, "phase": unit.phase, "usedBy": unit.used_by}
    return {key: value for key, value in fields.items() if value}


def _progress(body: Json, what: str) -> OccurrenceProgress:
    return OccurrenceProgress(
        as_of_seconds=moment_of(body.get("asOf"), what) or 0.0,
        reserved_pod_seconds=float(body.get("heldPodSeconds") or 0),
        used_pod_seconds=float(body.get("usedPodSeconds") or 0),
        missed_pod_seconds=float(body.get("missedPodSeconds") or 0),
        most_reserved=int(body.get("mostHeld") or 0),
        most_used=int(body.get("mostUsed") or 0),
        most_missed=int(body.get("mostMissed") or 0),
        available_at_seconds=moment_of(body.get("availableAt"), what),
        changed_at_seconds=moment_of(body.get("changedAt"), what) or 0.0,
        lent_core_seconds=body.get("lentCoreSeconds"),
        most_needed=body.get("mostNeeded"),
        most_others_waiting=body.get("mostOthersWaiting"),
    )


def _progress_body(progress: OccurrenceProgress) -> dict[str, Any]:
    body: dict[str, Any] = {
        "asOf": moment(progress.as_of_seconds),
        "heldPodSeconds": round(progress.reserved_pod_seconds, 1),
        "usedPodSeconds": round(progress.used_pod_seconds, 1),
        "missedPodSeconds": round(progress.missed_pod_seconds, 1),
        "mostHeld": progress.most_reserved,
        "mostUsed": progress.most_used,
        "mostMissed": progress.most_missed,
    }
    if progress.available_at_seconds is not None:
        body["availableAt"] = moment(progress.available_at_seconds)
    if progress.changed_at_seconds:
        body["changedAt"] = moment(progress.changed_at_seconds)
    if progress.lent_core_seconds is not None:
        body["lentCoreSeconds"] = round(progress.lent_core_seconds, 1)
    optional = {"mostNeeded": progress.most_needed, "mostOthersWaiting": progress.most_others_waiting}
    return {**body, **{key: value for key, value in optional.items() if value is not None}}


def _score(body: Any, what: str) -> Score | None:
    if not body:
        return None
    start = moment_of(body.get("start"), what) or 0.0
    return Score(
        start,
        moment_of(body.get("end"), what) or start,
        reserved=int(body.get("held") or 0),
        used=int(body.get("used") or 0),
        missed=int(body.get("missed") or 0),
        hit_ratio=float(body.get("hitRatio") or 0),
        coverage=float(body.get("coverage", 1)),
        idle_core_hours=float(body.get("idleCoreHours") or 0),
        cost=float(body.get("cost") or 0),
        missed_core_minutes=float(body.get("missedCoreMinutes") or 0),
        lead_seconds=body.get("leadSeconds"),
        lent_core_hours=body.get("lentCoreHours"),
        planned=body.get("planned"),
        needed=body.get("needed"),
        others_waiting=body.get("othersWaiting"),
    )


def _score_body(score: Score) -> dict[str, Any]:
    body: dict[str, Any] = {
        "start": moment(score.start_seconds),
        "end": moment(score.end_seconds),
        "held": score.reserved,
        "used": score.used,
        "missed": score.missed,
        "hitRatio": round(score.hit_ratio, 4),
        "coverage": round(score.coverage, 4),
        "idleCoreHours": round(score.idle_core_hours, 3),
        "cost": round(score.cost, 4),
        "missedCoreMinutes": round(score.missed_core_minutes, 1),
    }
    optional = {
        "leadSeconds": score.lead_seconds,
        "lentCoreHours": score.lent_core_hours,
        "planned": score.planned,
        "needed": score.needed,
        "othersWaiting": score.others_waiting,
    }
    return {**body, **{key: value for key, value in optional.items() if value is not None}}


def _condition_body(condition: PlanCondition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.since,
    }
