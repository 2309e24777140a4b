"""More replicas ahead of a forecast peak: an autoscaler's minReplicas rises for it, and goes back after it. Pure.

What the forecast asks for, half hour by half hour and with the pods' start in it, is `recommender.replicas`. The first
half hour that asks for more than the autoscaler's own minReplicas begins a peak, which ends with the last one that does
without a break. Its whole schedule is written down when it begins: what follows rests on the ledger, the clock and the
autoscaler alone, so that forecasts that were made under the raised floor are not followed. The floor rises with the
schedule, falls only at its end, and is never set a second time where somebody else has set it. Times are Unix times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from autopilot.decide.history import LedgerNote
from autopilot.decide.queue import QueueEntry
from autopilot.decide.writers import GITOPS_MANAGERS
from changes.decide.guardrails import gitops_owner
from cotenant.core.model.autopilot import AutopilotEvent
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.kubernetes.intent import Address, Patch
from cotenant.core.settings.sections.actions import GuardrailSettings
from recommender.plans.realise import floor_of

Json = Mapping[str, Any]
SLOT_SECONDS: Final = 1800


class FloorForecast(msgspec.Struct, frozen=True):
    """Replicas that a workload needs in half hours from start_seconds on; least: minReplicas that it was made under."""

    start_seconds: int
    counts: tuple[int, ...]
    least: int = 1

    @property
    def end_seconds(self) -> int:
        """Of its last half hour."""
        return self.start_seconds + len(self.counts) * SLOT_SECONDS

    def slot(self, now_seconds: float) -> int:
        """Number of the half hour of now; negative before the first."""
        return int((now_seconds - self.start_seconds) // SLOT_SECONDS)


class LentFloor(msgspec.Struct, frozen=True):
    """What was lent to a workload's autoscaler: its name and uid, its own minReplicas, the floor, and the schedule.

    before: minReplicas that the last write finds; has_arrived: the server took that write; until then nobody knows.
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
class FloorStep:
    """One thing to write down, and to send where there is a patch. is_fought: somebody else has set the field."""

    event: AutopilotEvent
    lent: LentFloor
    words: str
    patch: Patch | None = None
    is_fought: bool = False


def floor_factors(queue: Iterable[QueueEntry], left_alone: Mapping[str, str]) -> dict[WorkloadRef, float]:
    """Times its own minReplicas that each workload's floor may be; those whose floor is not to rise are left out."""
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
    """What is due for one autoscaler now, one step or none; factor 1: no policy lends any more.

    A plan of realisation ReplicaFloor that holds the autoscaler is waited for.
    """
    present = int((autoscaler.get("spec") or {}).get("minReplicas") or 1)
    if floor_of(autoscaler) is not None:
        return
    if lent is None:
        if forecast is not None and forecast.least == present:
            yield from _begun(workload, autoscaler, factor, forecast, now_seconds)
    elif present != lent.floor and (lent.has_arrived or present != lent.before):
        words = f"somebody set minReplicas of {lent.autoscaler} to {present}; it had been lent {lent.floor}"
        yield FloorStep(AutopilotEvent.FLOOR_ENDED, lent, words, is_fought=True)
    elif factor <= 1 or now_seconds >= lent.peak.end_seconds:
        words = "the peak is over" if factor > 1 else "no policy lends it any more"
        patch = _patch(lent, present, lent.own, words) if present != lent.own else None
        yield FloorStep(AutopilotEvent.FLOOR_ENDED, lent, words, patch)
    elif (due := _due(lent.peak, now_seconds)) > present:
        yield _raise(msgspec.structs.replace(lent, before=present, floor=due, has_arrived=False))
    elif not lent.has_arrived:
        yield FloorStep(AutopilotEvent.FLOOR_RAISED, lent, "it has arrived")


def kept_by(autoscaler: Json, guardrails: GuardrailSettings) -> str:
    """Who would set its own minReplicas back: the controller of the autoscaler, or a GitOps tool; "" is nobody."""
    meta = autoscaler.get("metadata") or {}
    controller = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), None)
    if controller is not None:
        return f"{controller.get('kind')} {controller.get('name')}"
    entries = (entry for entry in meta.get("managedFields") or () if entry.get("manager") in GITOPS_MANAGERS)
    owner = next(
        (e["manager"] for e in entries if "f:minReplicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})), ""
    )
    return str(owner) or gitops_owner(autoscaler, guardrails)


def arrived(step: FloorStep) -> FloorStep:
    """The step once the server took it."""
    return replace(step, lent=msgspec.structs.replace(step.lent, has_arrived=True))


def lent_of(note: LedgerNote) -> LentFloor | None:
    """What a row lent; None for a row that cannot be read."""
    try:
        return msgspec.json.decode(note.details.get("lent", ""), type=LentFloor)
    except msgspec.MsgspecError:
        return None


def details_of(step: FloorStep) -> dict[str, str]:
    """The body of its row in the ledger."""
    return {"uid": step.lent.uid, "lent": msgspec.json.encode(step.lent).decode(), "words": step.words}


def _begun(
    workload: WorkloadRef, autoscaler: Json, factor: float, forecast: FloorForecast, now_seconds: float
) -> Iterator[FloorStep]:
    """The first raise of a peak, where one begins now."""
    meta, spec = autoscaler.get("metadata") or {}, autoscaler.get("spec") or {}
    own, slot = forecast.least, forecast.slot(now_seconds)
    most = min(int(own * factor), int(spec.get("maxReplicas") or 1))
    counts: list[int] = []
    for count in forecast.counts[slot:] if slot >= 0 else ():
        if min(count, most) <= own:
            break
        counts.append(min(count, most))
    if not counts:
        return
    peak = FloorForecast(forecast.start_seconds + slot * SLOT_SECONDS, tuple(counts), own)
    yield _raise(LentFloor(workload, str(meta.get("name")), str(meta.get("uid")), own, own, counts[0], peak))


def _due(peak: FloorForecast, now_seconds: float) -> int:
    """The highest floor of the schedule until now: within a peak it does not fall."""
    return max(peak.counts[: max(peak.slot(now_seconds), 0) + 1])


def _raise(lent: LentFloor) -> FloorStep:
    words = f"at least {lent.floor} replicas instead of {lent.own} for the peak that the forecast has"
    patch = _patch(lent, lent.before, lent.floor, words)
    return FloorStep(AutopilotEvent.FLOOR_RAISED, lent, words, patch)


def _patch(lent: LentFloor, present: int, floor: int, why: str) -> Patch:
    """Refused by the server where somebody has set the field, or made the object anew, in between."""
    operations = (
        {"op": "test", "path": "/metadata/uid", "value": lent.uid},
        {"op": "test", "path": "/spec/minReplicas", "value": present},
        {"op": "replace", "path": "/spec/minReplicas", "value": floor},
    )
    address = Address("autoscaling/v2", "horizontalpodautoscalers", lent.autoscaler, lent.workload.namespace)
    return Patch(address, operations, why=why)
