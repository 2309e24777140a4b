"""The state machine of one running job: its next step, given its status, its pod and its Reservation. Pure.

With ReservationFirst, capacity is reserved on another node, "Evicting" is recorded, the pod is evicted, and the
successor takes the capacity and becomes ready. The eviction is sent only while the capacity is reserved. With
EvictDirectly there is no Reservation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes.intent import Address, Create, Intent, Patch, eviction_of
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_identity import Condition, Reference
from cotenant.base.kubernetes.protocol import MANAGER, SOFT_EVICTION_ANNOTATION
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration import room
from cotenant.scheduler_ext.rebalance.migration.job import (
    EVICTION,
    POD_BOUND,
    POD_READY,
    RESERVATION_CREATED,
    RESERVATION_SCHEDULED,
    JobMode,
    JobPhase,
    JobReason,
    JobStatus,
    MigrationJob,
    status_with_changes,
)
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.status import merge_conditions

LAG_SECONDS: Final = 10.0  # a job this young may be seen before its pod is
COMPLETE: Final = "Complete"
MOST_CHARACTERS: Final = 1024  # of a message
_EVICTING: Final = Condition(EVICTION, "False", JobReason.EVICTING)


@dataclass(frozen=True, slots=True)
class JobAdvance:
    """The new status of a job and its writes; `eviction` is sent only if the rate limit permits it."""

    status: JobStatus
    intents: tuple[Intent, ...] = ()
    eviction: Create | Patch | None = field(default=None)


def advance_job(view: MigrationView, job: MigrationJob) -> JobAdvance:
    """Return the next step of a job in phase Running."""
    reservation, pod = view.reservations.get(room.job_reservation_name(job)), view.pod_of(job)
    is_evicted = job.status.condition(EVICTION) is not None
    if view.now_seconds >= job.deadline_seconds(view.default_ttl_seconds):
        if is_evicted and pod is not None and pod.leaving and reservation is not None and reservation.status.owners:
            # a success where the successor is ready, though the pod has not ended yet
            advance = _bound(view, job, reservation.status.owners[0], pod)
            if advance.status.phase is JobPhase.SUCCEEDED:
                return advance
        return timed_out(view, job)
    if view.mode_of(job) is JobMode.EVICT_DIRECTLY:
        return _evict_without_reservation(view, job)
    if is_evicted:
        return _after_eviction(view, job, pod, reservation)
    return _before_eviction(view, job, pod, reservation)


def fail_job(view: MigrationView, job: MigrationJob, reason: JobReason, message: str) -> JobAdvance:
    """Return the job's new status, failed for this reason; `release_reservations` then deletes its Reservation."""
    why = {"step": reason.value, "reason": reason.value, "message": message}
    return JobAdvance(status_with_changes(job, view.now_seconds, (), phase=JobPhase.FAILED, **why))


def timed_out(view: MigrationView, job: MigrationJob) -> JobAdvance:
    """Fail the job because its deadline has passed; the message names what it was waiting for."""
    waited = job.status.message or job.status.step or "arbitration"
    return fail_job(view, job, JobReason.TIMEOUT, f"the job's deadline passed; last step: {waited}"[:MOST_CHARACTERS])


def missing_pod(view: MigrationView, job: MigrationJob) -> JobAdvance:
    """Fail the job because its pod is missing, unless the job is so new that the pod may just not be seen yet."""
    if view.now_seconds - job.created_seconds < LAG_SECONDS:
        return JobAdvance(job.status)
    return fail_job(view, job, JobReason.MISSING_POD, f"pod {job.pod.namespace}/{job.pod.name} was deleted or replaced")


def _status_at_step(
    view: MigrationView, job: MigrationJob, step: str, message: str = "", *conditions: Condition, **changes: Any
) -> JobStatus:
    return status_with_changes(job, view.now_seconds, conditions, step=step, reason="", message=message, **changes)


def _before_eviction(
    view: MigrationView, job: MigrationJob, pod: RebalancePod | None, reservation: Reservation | None
) -> JobAdvance:
    """Return the job's next step until the reserved capacity is available."""
    if pod is None or pod.leaving:
        return missing_pod(view, job)
    if reservation is None:
        if job.status.holds(RESERVATION_CREATED) or job.reservation_ref:
            text = f"reservation {room.job_reservation_name(job)} was deleted"
            return fail_job(view, job, JobReason.MISSING_RESERVATION, text)
        return _request_reservation(view, job, pod)
    lost = _lost_capacity_failure(view, job, reservation, pod.facts.node)
    if lost is not None:
        return lost
    reservation_created = Condition(RESERVATION_CREATED, "True", "Created", f"reservation {reservation.name}")
    if not room.is_capacity_reserved(reservation):
        text = "capacity on another node is requested"
        return JobAdvance(_status_at_step(view, job, RESERVATION_CREATED, text, reservation_created))
    scheduled = Condition(RESERVATION_SCHEDULED, "True", "Scheduled", f"capacity on {reservation.status.node}")
    text = f"capacity is reserved on {reservation.status.node}"
    status = _status_at_step(
        view, job, JobReason.EVICTING, text, reservation_created, scheduled, _EVICTING, node=reservation.status.node
    )
    return JobAdvance(status)


def _request_reservation(view: MigrationView, job: MigrationJob, pod: RebalancePod) -> JobAdvance:
    """Create the Reservation; an invalid template fails only its own job."""
    if not pod.owner:
        return fail_job(view, job, JobReason.FORBIDDEN, f"pod {pod.key} has no controller any more")
    left_seconds = job.deadline_seconds(view.default_ttl_seconds) - view.now_seconds
    try:
        creation = room.successor_reservation_creation(job, pod, left_seconds)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"reservationOptions.template is no valid Reservation template ({error}); correct it"
        return fail_job(view, job, JobReason.FAILED_CREATE_RESERVATION, text)
    why = view.unmade.get(creation.asker)
    if why is None:
        return JobAdvance(job.status, (creation,))
    not_made = Condition(RESERVATION_CREATED, "False", "NotMade", why)
    return JobAdvance(_status_at_step(view, job, job.status.step, why, not_made), (creation,))


def _lost_capacity_failure(
    view: MigrationView, job: MigrationJob, reservation: Reservation, node: str
) -> JobAdvance | None:
    """Fail a job that will not get its capacity, before its pod was evicted from `node`; None if it still may."""
    if reservation.status.phase is Phase.FAILED:
        return fail_job(view, job, JobReason.RESERVATION_EXPIRED, f"reservation {reservation.name} expired unused")
    if reservation.status.phase is Phase.SUCCEEDED or reservation.status.owners:
        text = f"another pod took the capacity of reservation {reservation.name}"
        return fail_job(view, job, JobReason.MISSING_RESERVATION, text)
    text = room.refusal(reservation)
    if room.is_capacity_reserved(reservation) and reservation.status.node == node:
        text = f"reservation {reservation.name} reserves capacity on the pod's own node; a move needs another node"
    return fail_job(view, job, JobReason.UNSCHEDULABLE, text) if text else None


def _after_eviction(
    view: MigrationView, job: MigrationJob, pod: RebalancePod | None, reservation: Reservation | None
) -> JobAdvance:
    """Return the job's next step after its eviction was recorded."""
    if reservation is None or reservation.status.phase is Phase.FAILED:
        reason = JobReason.MISSING_RESERVATION if reservation is None else JobReason.RESERVATION_EXPIRED
        text = f"reservation {room.job_reservation_name(job)} ended before the pod's successor took it"
        return fail_job(view, job, reason, text)
    if pod is not None and not pod.leaving:
        # Not standing: taken by somebody else, or by the successor of a pod that is just going. Not served: nobody
        # would hand the capacity over, or hold a successor back for it.
        ready = room.is_capacity_reserved(reservation) and view.now_seconds < view.served_until_seconds
        return _evict_pod(view, job, pod) if ready else JobAdvance(job.status)
    owners = reservation.status.owners
    if pod is not None and not (owners and pod.is_stuck(view.now_seconds)):
        return JobAdvance(_status_at_step(view, job, JobReason.EVICTING, _end_text(view, pod), _EVICTING))
    if not owners:
        evicted = Condition(EVICTION, "True", JobReason.EVICT_COMPLETE)
        text = f"the pod is gone; its successor has not taken the capacity on {reservation.status.node} yet"
        return JobAdvance(_status_at_step(view, job, JobReason.WAIT_FOR_BIND, text, evicted))
    return _bound(view, job, owners[0], pod)


def _end_text(view: MigrationView, pod: RebalancePod) -> str:
    """Return that an evicted pod is ending, or what keeps it beyond its grace period."""
    if not pod.is_stuck(view.now_seconds):
        return "the pod is ending"
    keeper = f"finalizers {', '.join(pod.finalizers)} keep" if pod.finalizers else f"node {pod.facts.node} keeps"
    return f"the pod has not ended in its grace period: {keeper} the pod"


def _bound(view: MigrationView, job: MigrationJob, successor: Reference, ending: RebalancePod | None) -> JobAdvance:
    """Complete the job once its successor, which has the capacity, is ready; `ending` is the old pod if it exists."""
    evicted = Condition(EVICTION, "True", JobReason.EVICT_COMPLETE, _end_text(view, ending) if ending else "")
    name = f"{successor.namespace}/{successor.name}"
    bound = Condition(POD_BOUND, "True", "Bound", f"pod {name}")
    pod = view.pods.get((successor.namespace, successor.name))
    changes: dict[str, Any] = {"successor": Reference("Pod", successor.name, successor.namespace, successor.uid, "v1")}
    if pod is None or pod.facts.identity.uid != successor.uid or pod.ready_seconds is None:
        text = f"pod {name} is not ready yet"
        return JobAdvance(_status_at_step(view, job, JobReason.WAIT_FOR_READY, text, evicted, bound, **changes))
    ready = Condition(POD_READY, "True", "Ready")
    text = f"pod {name} runs on {pod.facts.node}" + (f"; {_end_text(view, ending)}" if ending else "")
    return JobAdvance(
        _status_at_step(view, job, COMPLETE, text, evicted, bound, ready, phase=JobPhase.SUCCEEDED, **changes)
    )


def _evict_without_reservation(view: MigrationView, job: MigrationJob) -> JobAdvance:
    """Evict the pod without reserving capacity; its controller creates another one."""
    pod = view.pod_of(job)
    if job.status.condition(EVICTION) is None:
        if pod is None:
            return missing_pod(view, job)
        return JobAdvance(_status_at_step(view, job, JobReason.EVICTING, "the job reserves no capacity", _EVICTING))
    if pod is None:
        evicted = Condition(EVICTION, "True", JobReason.EVICT_COMPLETE)
        return JobAdvance(_status_at_step(view, job, COMPLETE, "the pod is gone", evicted, phase=JobPhase.SUCCEEDED))
    if pod.leaving:
        return JobAdvance(_status_at_step(view, job, JobReason.EVICTING, _end_text(view, pod), _EVICTING))
    return _evict_pod(view, job, pod)


def _evict_pod(view: MigrationView, job: MigrationJob, pod: RebalancePod) -> JobAdvance:
    """Send the eviction, unless it was just refused: then the job's status has the API server's message."""
    refusal = view.refusal_of(job)
    if refusal is None:
        return JobAdvance(job.status, eviction=eviction(view, job, pod))
    condition = Condition(EVICTION, "False", JobReason.FAILED_EVICT, refusal.why)
    if refusal.final:
        ended = fail_job(view, job, JobReason.FAILED_EVICT, refusal.why)
        conditions = merge_conditions(ended.status.conditions, (condition,), view.now_seconds)
        return JobAdvance(replace(ended.status, conditions=conditions))
    text = f"the eviction was refused and is tried again: {refusal.why}"[:MOST_CHARACTERS]
    return JobAdvance(_status_at_step(view, job, JobReason.FAILED_EVICT, text, condition))


def eviction(view: MigrationView, job: MigrationJob, pod: RebalancePod) -> Create | Patch | None:
    """Return the eviction of exactly this pod, by `evictionPolicy`; None if its annotation already requests it."""
    identity = pod.facts.identity
    address, why = Address("v1", "pods", identity.name, identity.namespace), f"podmigrationjob {job.name}"
    if view.arguments.eviction_policy != "SoftEviction":
        return eviction_of(address, identity.uid, why, job.delete_options)
    if SOFT_EVICTION_ANNOTATION in identity.annotations:
        return None
    # Koordinator's SoftEvictionSpec as the pod's annotation (`apis/extension/descheduling.go`).
    request: dict[str, Any] = {"timestamp": moment(view.now_seconds), "initiator": MANAGER, "reason": why}
    if job.delete_options:
        request["deleteOptions"] = job.delete_options
    key, text = escape_pointer_key(SOFT_EVICTION_ANNOTATION), msgspec.json.encode(request).decode()
    added = (
        {"op": "add", "path": f"/metadata/annotations/{key}", "value": text}
        if identity.annotations
        else {"op": "add", "path": "/metadata/annotations", "value": {SOFT_EVICTION_ANNOTATION: text}}
    )
    return Patch(address, ({"op": "test", "path": "/metadata/uid", "value": identity.uid}, added), why=why)
