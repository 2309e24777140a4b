"""Raise an autoscaler's minReplicas (its floor) ahead of a forecast peak, and restore it after the peak. Pure.

`recommender.replicas` computes the replicas that the forecast needs in each half hour, with the start of the pods
included. A peak begins with the first half hour that needs more than the autoscaler's own minReplicas and ends with the
last such half hour in a row. Its whole schedule is written to the ledger when it begins. Later steps use only the
ledger, the clock and the autoscaler: forecasts that were made under the raised floor are ignored. The floor rises with
the schedule, falls only at its end, and is not set again after somebody else has changed it. Times are Unix times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

import msgspec

from cotenant.autopilot.decide.history import GITOPS_MANAGERS, LedgerNote
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry
from cotenant.autopilot.model import AutopilotEvent
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.usage.usage import HALF_HOUR_SECONDS
from cotenant.changes.decide.guardrails import gitops_owner
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.scheduler_ext.reservations.model.plan import LENT_FLOOR_ANNOTATION
from cotenant.scheduler_ext.reservations.plans.realise import Floor, floor_mark_operations, floor_of, restore

Json = Mapping[str, Any]
AUTOPILOT: Final = "autopilot"
"""Name of the autopilot in the annotation of an autoscaler whose minReplicas it raised."""


class FloorForecast(msgspec.Struct, frozen=True):
    """Forecast of the replicas that a workload needs, by half hour (`counts`), made while minReplicas was `least`."""

    start_seconds: int
    counts: tuple[int, ...]
    least: int = 1

    @property
    def end_seconds(self) -> int:
        """The Unix time at which the last half hour ends."""
        return self.start_seconds + len(self.counts) * HALF_HOUR_SECONDS

    def slot(self, now_seconds: float) -> int:
        """Return the index of the half hour that contains `now_seconds`; it is negative before the first half hour."""
        return int((now_seconds - self.start_seconds) // HALF_HOUR_SECONDS)


class LentFloor(msgspec.Struct, frozen=True):
    """A raised minReplicas (floor) that a workload's autoscaler has until the end of a peak.

    `own` is the autoscaler's original minReplicas, `floor` the raised one, `peak` the schedule of the peak. The last
    write replaces `before` and fails if minReplicas is another; `has_arrived`: the server has surely accepted it.
    """

    workload: WorkloadRef
    autoscaler: str
    uid: str
    own: int
    before: int
    floor: int
    peak: FloorForecast
    has_arrived: bool = False


@dataclass(frozen=True, slots=True)
class FloorOutlook:
    """The peak for which an autoscaler's minReplicas is raised (`is_lent`), or would be raised next.

    `own` is its original minReplicas, `floor` the highest value of the peak's schedule.
    """

    own: int
    floor: int
    start_seconds: float
    end_seconds: float
    is_lent: bool


@dataclass(frozen=True, slots=True)
class FloorStep:
    """A step that raises or restores minReplicas. `is_fought`: somebody else has set it; `refused`: why, if refused."""

    event: AutopilotEvent
    lent: LentFloor
    words: str
    patch: Patch | None = None
    is_fought: bool = False
    refused: str = ""


FloorForecasts = Callable[[], Mapping[WorkloadRef, FloorForecast]]
"""Return the forecasts of the last scan by workload."""


def floor_factors(queue: Iterable[QueueEntry], left_alone: Mapping[str, str]) -> dict[WorkloadRef, float]:
    """Return by workload the multiple of its minReplicas, if above 1, up to which an acting policy may raise them."""
    acting = (e.candidate for e in queue if e.candidate.may_act and str(e.candidate.workload) not in left_alone)
    return {c.workload: c.limits.replica_floor_factor for c in acting if c.limits.replica_floor_factor > 1}


def floor_steps(
    workload: WorkloadRef,
    autoscaler: Json,
    factor: float,
    lent: LentFloor | None,
    forecast: FloorForecast | None,
    now_seconds: float,
) -> Iterator[FloorStep]:
    """Yield the step that is due for one autoscaler now, if there is one.

    `factor` is the largest allowed multiple of minReplicas: 1 if no policy raises it any more, inf if that is not
    known. `lent` is the raise in effect. While a ReservationPlan raises minReplicas (realization ReplicaFloor), there
    is no step. A raise that the autoscaler's annotation records, but not the ledger, is undone.
    """
    present = int((autoscaler.get("spec") or {}).get("minReplicas") or 1)
    if floor_of(autoscaler) is not None:
        return
    mark = floor_of(autoscaler, LENT_FLOOR_ANNOTATION)
    if lent is None:
        meta = autoscaler.get("metadata") or {}
        name, uid = str(meta.get("name")), str(meta.get("uid"))
        if mark is not None:
            own = mark.original or 1
            marked = LentFloor(workload, name, uid, own, own, mark.floor, FloorForecast(0, ()), has_arrived=True)
            yield _floor_end_step(marked, autoscaler, "the ledger has no row of this raise of minReplicas")
        elif forecast is not None and forecast.least == present:
            slot = forecast.slot(now_seconds)
            if slot >= 0 and (peak := _peak(autoscaler, factor, forecast, slot)):
                yield _raise(LentFloor(workload, name, uid, present, present, peak.counts[0], peak), autoscaler)
        return
    is_over = factor <= 1 or now_seconds >= lent.peak.end_seconds
    # by an earlier step whose answer was lost: it takes the mark away, which a person who sets the same number leaves
    is_back = is_over and present == lent.own and mark is None
    if not is_back and present != lent.floor and (lent.has_arrived or present != lent.before):
        reason = f"somebody set minReplicas of {lent.autoscaler} to {present}; the autopilot had set {lent.floor}"
        yield _floor_end_step(lent, autoscaler, reason, is_fought=True)
    elif is_over:
        yield _floor_end_step(lent, autoscaler, "the peak is over" if factor > 1 else "no policy allows a raise now")
    else:  # the highest floor of the schedule until now: within a peak it does not fall
        scheduled = max(lent.peak.counts[: max(lent.peak.slot(now_seconds), 0) + 1])
        due = min(scheduled, _most(autoscaler, lent.own, factor))
        if due > present:
            yield _raise(msgspec.structs.replace(lent, before=present, floor=due, has_arrived=False), autoscaler)
        elif not lent.has_arrived:
            yield FloorStep(AutopilotEvent.FLOOR_RAISED, lent, "it has arrived")


def floor_outlooks(
    candidates: Iterable[QueueCandidate],
    autoscalers: Mapping[str, Sequence[Json]],
    lent: Mapping[str, LentFloor],
    forecasts: Mapping[WorkloadRef, FloorForecast],
    guardrails: GuardrailSettings,
    now_seconds: float,
) -> dict[WorkloadRef, FloorOutlook]:
    """Return by workload the minReplicas that are raised now (`lent`, by autoscaler uid), or will be at the peak."""
    factors = {c.workload: c.limits.replica_floor_factor for c in candidates}
    outlooks = {}
    for namespace, bodies in autoscalers.items():
        for body in bodies:
            workload, present = target_of(namespace, body), lent.get(str(body["metadata"].get("uid")))
            factor = factors.get(workload, 1.0)
            is_spared = namespace in guardrails.protected_namespaces or kept_by(body, guardrails)
            outlook = floor_outlook(body, 1.0 if is_spared else factor, present, forecasts.get(workload), now_seconds)
            if outlook is not None:
                outlooks[workload] = outlook
    return outlooks


def floor_outlook(
    autoscaler: Json, factor: float, lent: LentFloor | None, forecast: FloorForecast | None, now_seconds: float
) -> FloorOutlook | None:
    """Return the raise of minReplicas in effect, else the one for the next forecast peak; None if there is neither."""
    if lent is not None:
        highest = min(max(lent.peak.counts, default=lent.floor), _most(autoscaler, lent.own, factor))
        end_seconds = lent.peak.end_seconds
        return FloorOutlook(lent.own, max(highest, lent.floor), lent.peak.start_seconds, end_seconds, is_lent=True)
    present = int((autoscaler.get("spec") or {}).get("minReplicas") or 1)
    if factor <= 1 or forecast is None or forecast.least != present or floor_of(autoscaler) is not None:
        return None
    for slot in range(max(forecast.slot(now_seconds), 0), len(forecast.counts)):
        if peak := _peak(autoscaler, factor, forecast, slot):
            return FloorOutlook(present, max(peak.counts), peak.start_seconds, peak.end_seconds, is_lent=False)
    return None


def target_of(namespace: str, autoscaler: Json) -> WorkloadRef:
    """Return the workload that an autoscaler scales."""
    reference = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return WorkloadRef(namespace, str(reference.get("kind") or ""), str(reference.get("name") or ""))


def kept_by(autoscaler: Json, guardrails: GuardrailSettings) -> str:
    """Return who would reset the autoscaler's minReplicas: its controller or a GitOps tool; "" if nobody would."""
    meta = autoscaler.get("metadata") or {}
    controller = next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), None)
    if controller is not None:
        return f"{controller.get('kind')} {controller.get('name')}"
    entries = (entry for entry in meta.get("managedFields") or () if entry.get("manager") in GITOPS_MANAGERS)
    owner = next(
        (e["manager"] for e in entries if "f:minReplicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})), ""
    )
    return str(owner) or gitops_owner(autoscaler, guardrails)


def mark_arrived(step: FloorStep) -> FloorStep:
    """Return the step, marked as accepted by the server."""
    return replace(step, lent=msgspec.structs.replace(step.lent, has_arrived=True))


def lent_of(note: LedgerNote) -> LentFloor | None:
    """Return the raised minReplicas that a row of the ledger records; None if the row cannot be read."""
    try:
        return msgspec.json.decode(note.details.get("lent", ""), type=LentFloor)
    except UNDECODABLE:
        return None


def lent_peaks(notes: Iterable[LedgerNote]) -> list[LentFloor]:
    """Return the raises of minReplicas that these ledger rows record as accepted, only the highest of each peak."""
    peaks: dict[tuple[str, int], LentFloor] = {}
    for note in notes:
        lent = lent_of(note) if note.event is AutopilotEvent.FLOOR_RAISED else None
        if lent is not None and lent.has_arrived:
            peaks[lent.uid, lent.peak.start_seconds] = lent  # a floor does not fall within its peak
    return list(peaks.values())


def details_of(step: FloorStep) -> dict[str, str]:
    """Return the body of the ledger row that records the raise or the restore of an autoscaler's minReplicas."""
    return {"uid": step.lent.uid, "lent": msgspec.json.encode(step.lent).decode(), "words": step.words}


def _peak(autoscaler: Json, factor: float, forecast: FloorForecast, slot: int) -> FloorForecast | None:
    """Return the half hours in a row from `slot` that need more than the autoscaler's own minReplicas, or None."""
    own, most = forecast.least, _most(autoscaler, forecast.least, factor)
    counts = tuple(takewhile(lambda count: count > own, (min(count, most) for count in forecast.counts[slot:])))
    return FloorForecast(forecast.start_seconds + slot * HALF_HOUR_SECONDS, counts, own) if counts else None


def _most(autoscaler: Json, own: int, factor: float) -> int:
    """Return the highest floor that the policy and the autoscaler's maxReplicas allow now."""
    return int(min(own * factor, int((autoscaler.get("spec") or {}).get("maxReplicas") or 1)))


def _raise(lent: LentFloor, autoscaler: Json) -> FloorStep:
    """Return the step that sets minReplicas from `lent.before` to `lent.floor`; an annotation keeps the original."""
    reason = f"at least {lent.floor} replicas instead of {lent.own} for the forecast peak"
    operations = (
        _minimum("test", lent.before),
        *floor_mark_operations(autoscaler, Floor(AUTOPILOT, lent.own, lent.floor), LENT_FLOOR_ANNOTATION),
        _minimum("replace", lent.floor),
    )
    return FloorStep(AutopilotEvent.FLOOR_RAISED, lent, reason, _of_object(lent, operations, reason))


def _floor_end_step(lent: LentFloor, autoscaler: Json, reason: str, is_fought: bool = False) -> FloorStep:
    """Return the step that restores the original minReplicas and removes our annotation, if they are still there."""
    present = int((autoscaler.get("spec") or {}).get("minReplicas") or 1)
    patch = restore(autoscaler, lent.workload.namespace, reason, (LENT_FLOOR_ANNOTATION,))
    operations = patch.operations if patch else ()
    if not patch and present == lent.floor:
        operations = (_minimum("test", present), _minimum("replace", lent.own))
    sent = _of_object(lent, operations, reason) if operations else None
    return FloorStep(AutopilotEvent.FLOOR_ENDED, lent, reason, sent, is_fought)


def _minimum(op: str, value: int) -> Json:
    return {"op": op, "path": "/spec/minReplicas", "value": value}


def _of_object(lent: LentFloor, operations: Iterable[Json], why: str) -> Patch:
    """Return a patch that the server refuses if the object was deleted and created again since it was read."""
    address = Address("autoscaling/v2", "horizontalpodautoscalers", lent.autoscaler, lent.workload.namespace)
    return Patch(address, ({"op": "test", "path": "/metadata/uid", "value": lent.uid}, *operations), why=why)
