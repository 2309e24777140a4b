"""ReservationPlan on the wire: from the object as JSON to the vocabulary of `cotenant.model.plan`, and its status back.

Pure. What is not known is left out of a status, so that server-side apply gives the field back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.model.errors import UsageError
from cotenant.model.plan import (
    Approval,
    ApprovalPolicy,
    Decision,
    Expected,
    Plan,
    PlanCondition,
    PlanPhase,
    PlanStatus,
    Progress,
    Realisation,
    Recurrence,
    Scope,
    Score,
    Source,
    Span,
    Unit,
    Workload,
    moment,
)
from cotenant.model.pod_request import parse_room
from cotenant.model.reservation import AllocatePolicy, moment_of, seconds_of

Json = Mapping[str, Any]


def parse_plan(given: Json) -> Plan:
    """Of the object as JSON; UsageError or QuantityError names the plan, the field and the value."""
    meta, spec = given.get("metadata") or {}, given.get("spec") or {}
    name, what = str(meta.get("name") or ""), f"reservationplan {meta.get('namespace')}/{meta.get('name')}"
    amount, texts = spec.get("amount") or {}, (spec.get("amount") or {}).get("perPod") or {}
    owner = spec.get("owner") or {}
    return Plan(
        namespace=str(meta.get("namespace") or "default"),
        name=name,
        source=_choice(Source, spec.get("source"), f"{what}: source"),
        owner=Workload(
            str(owner.get("kind") or "Deployment"),
            str(owner.get("name") or ""),
            str(owner.get("apiVersion") or "apps/v1"),
        ),
        per_pod=parse_room(texts, f"{what}: amount.perPod"),
        count=int(amount.get("count") or 0),
        uid=str(meta.get("uid") or ""),
        generation=int(meta.get("generation") or 0),
        window=parse_span(spec.get("window"), f"{what}: window"),
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
        status=_status(given.get("status") or {}, what),
        labels=meta.get("labels") or {},
        per_pod_text={str(r): str(text) for r, text in texts.items()},
        deleting=bool(meta.get("deletionTimestamp")),
    )


def parse_span(given: Any, what: str) -> Span | None:
    """Of {start, end}; None for none, UsageError for what is none or ends before it starts."""
    if not given:
        return None
    start, end = moment_of(given.get("start"), f"{what}.start"), moment_of(given.get("end"), f"{what}.end")
    if start is None or end is None or end <= start:
        raise UsageError(f"{what} has no end after its start", fix="Give start and end, such as 18:00 and 20:00.")
    return Span(start, end)


def span_body(span: Span) -> dict[str, str]:
    """As in the object."""
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
        body["conditions"] = [_condition_body(one) for one in status.conditions]
    return body


def _choice(kind: type[Any], text: Any, what: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(m.value for m in kind if m.value)
        raise UsageError(f"{what} {text!r} is unknown", fix=f"Write one of {known}.") from error


def _seconds(spec: Json, name: str, default: float, what: str) -> float:
    return seconds_of(str(spec[name]), f"{what}: {name}") if name in spec else default


def _recurrence(given: Any, what: str) -> Recurrence | None:
    if not given:
        return None
    late = given.get("startingDeadline")
    return Recurrence(
        str(given.get("schedule") or ""),
        str(given.get("timeZone") or "Etc/UTC"),
        seconds_of(str(given.get("duration") or ""), f"{what}: recurring.duration"),
        seconds_of(str(late), f"{what}: recurring.startingDeadline") if late is not None else None,
        tuple(s for one in given.get("skip") or () if (s := moment_of(one, f"{what}: recurring.skip")) is not None),
    )


def _policy(given: Json) -> ApprovalPolicy:
    return ApprovalPolicy(
        bool(given.get("autoApprove")),
        given.get("minimumHitRatio"),
        given.get("maximumIdleCoreHours"),
        given.get("maximumCost"),
    )


def _approval(given: Json, what: str) -> Approval | None:
    if not given.get("decision"):
        return None
    return Approval(
        _choice(Decision, given["decision"], f"{what}: approval.decision"),
        _choice(Scope, given.get("scope") or "Series", f"{what}: approval.scope"),
        str(given.get("by") or ""),
        moment_of(given.get("at"), f"{what}: approval.at") or 0.0,
        str(given.get("reason") or ""),
    )


def _status(given: Json, what: str) -> PlanStatus:
    return PlanStatus(
        phase=PlanPhase(given["phase"]) if given.get("phase") else None,
        window=parse_span(given.get("window"), f"{what}: status.window"),
        reserve_at_seconds=moment_of(given.get("reserveAt"), what) or 0.0,
        lead_seconds=int(given.get("leadSeconds") or 0),
        count=int(given.get("count") or 0),
        expected=_expected(given.get("expected")),
        units=tuple(
            Unit(str(u.get("name")), u.get("nodeName") or "", u.get("phase") or "", u.get("usedBy") or "")
            for u in given.get("reservations") or ()
        ),
        progress=_progress(given.get("progress") or {}, what),
        score=_score(given.get("score"), what),
        history=tuple(s for one in given.get("history") or () if (s := _score(one, what))),
        settings_digest=str(given.get("settingsDigest") or ""),
        conditions=tuple(
            PlanCondition(
                str(c.get("type")), str(c.get("status")), c.get("reason") or "", c.get("message") or "",
                c.get("lastTransitionTime") or "",
            )
            for c in given.get("conditions") or ()
        ),
    )  # fmt: skip


def _expected(given: Any) -> Expected | None:
    if not given:
        return None
    return Expected(
        hit_ratio=float(given.get("hitRatio") or 0),
        missed_pods=float(given.get("missedPods") or 0),
        occurrences=int(given.get("occurrences") or 0),
        idle_core_hours=float(given.get("idleCoreHours") or 0),
        displaced_batch_core_hours=float(given.get("displacedBatchCoreHours") or 0),
        cost=float(given.get("cost") or 0),
        currency=str(given.get("currency") or ""),
    )


def _expected_body(one: Expected) -> dict[str, Any]:
    body = {
        "hitRatio": round(one.hit_ratio, 4),
        "missedPods": round(one.missed_pods, 3),
        "occurrences": one.occurrences,
        "idleCoreHours": round(one.idle_core_hours, 3),
        "displacedBatchCoreHours": round(one.displaced_batch_core_hours, 3),
        "cost": round(one.cost, 4),
    }
    return {**body, "currency": one.currency} if one.currency else body


def _unit_body(unit: Unit) -> dict[str, str]:
    named = {"name": unit.name, "nodeName": unit.node, "phase": unit.phase, "usedBy": unit.used_by}
    return {key: value for key, value in named.items() if value}


def _progress(given: Json, what: str) -> Progress:
    return Progress(
        as_of_seconds=moment_of(given.get("asOf"), what) or 0.0,
        held_pod_seconds=float(given.get("heldPodSeconds") or 0),
        used_pod_seconds=float(given.get("usedPodSeconds") or 0),
        missed_pod_seconds=float(given.get("missedPodSeconds") or 0),
        most_held=int(given.get("mostHeld") or 0),
        most_used=int(given.get("mostUsed") or 0),
        most_missed=int(given.get("mostMissed") or 0),
        available_at_seconds=moment_of(given.get("availableAt"), what),
        changed_at_seconds=moment_of(given.get("changedAt"), what) or 0.0,
        lent_core_seconds=given.get("lentCoreSeconds"),
    )


def _progress_body(one: Progress) -> dict[str, Any]:
    body: dict[str, Any] = {
        "asOf": moment(one.as_of_seconds),
        "heldPodSeconds": round(one.held_pod_seconds, 1),
        "usedPodSeconds": round(one.used_pod_seconds, 1),
        "missedPodSeconds": round(one.missed_pod_seconds, 1),
        "mostHeld": one.most_held,
        "mostUsed": one.most_used,
        "mostMissed": one.most_missed,
    }
    if one.available_at_seconds is not None:
        body["availableAt"] = moment(one.available_at_seconds)
    if one.changed_at_seconds:
        body["changedAt"] = moment(one.changed_at_seconds)
    if one.lent_core_seconds is not None:
        body["lentCoreSeconds"] = round(one.lent_core_seconds, 1)
    return body


def _score(given: Any, what: str) -> Score | None:
    if not given:
        return None
    start = moment_of(given.get("start"), what) or 0.0
    return Score(
        start,
        moment_of(given.get("end"), what) or start,
        held=int(given.get("held") or 0),
        used=int(given.get("used") or 0),
        missed=int(given.get("missed") or 0),
        hit_ratio=float(given.get("hitRatio") or 0),
        coverage=float(given.get("coverage", 1)),
        idle_core_hours=float(given.get("idleCoreHours") or 0),
        cost=float(given.get("cost") or 0),
        missed_core_minutes=float(given.get("missedCoreMinutes") or 0),
        lead_seconds=given.get("leadSeconds"),
        lent_core_hours=given.get("lentCoreHours"),
    )


def _score_body(one: Score) -> dict[str, Any]:
    body: dict[str, Any] = {
        "start": moment(one.start_seconds),
        "end": moment(one.end_seconds),
        "held": one.held,
        "used": one.used,
        "missed": one.missed,
        "hitRatio": round(one.hit_ratio, 4),
        "coverage": round(one.coverage, 4),
        "idleCoreHours": round(one.idle_core_hours, 3),
        "cost": round(one.cost, 4),
        "missedCoreMinutes": round(one.missed_core_minutes, 1),
    }
    known = {"leadSeconds": one.lead_seconds, "lentCoreHours": one.lent_core_hours}
    return {**body, **{key: value for key, value in known.items() if value is not None}}


def _condition_body(one: PlanCondition) -> dict[str, str]:
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.since,
    }
