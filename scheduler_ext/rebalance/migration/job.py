"""Koordinator's PodMigrationJob (scheduling.koordinator.sh/v1alpha1): parses it and writes its status. Pure.

Semantics: koordinator-sh/koordinator `apis/scheduling/v1alpha1/pod_migration_job_types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment_of, seconds_of
from cotenant.base.kubernetes.pod_identity import Condition, Reference, object_of
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.base.text import format_value
from cotenant.scheduler_ext.reservations.status import condition_body, merge_conditions

Json = Mapping[str, Any]

JOBS: Final = "podmigrationjobs"
KIND: Final = "PodMigrationJob"
TARGET_ANNOTATION: Final = "cotenant.dev/target-node"  # on a job: the one node that its pod is to move to
SOURCE_ANNOTATION: Final = "cotenant.dev/source-node"
"""Annotation of a job: the pod's node when the move was decided."""

ARBITRATED: Final = "Arbitrated"
"""Condition of cotenant: the job passed arbitration; its message is "WORKLOAD on NODE" at that time."""
RESERVATION_CREATED: Final = "ReservationCreated"
RESERVATION_SCHEDULED: Final = "ReservationScheduled"
EVICTION: Final = "Eviction"
POD_BOUND: Final = "PodBoundReservation"
POD_READY: Final = "BoundPodReady"
_ON: Final = " on "


class JobPhase(StrEnum):
    """The phase of a PodMigrationJob."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"

    @property
    def ended(self) -> bool:
        """True if the job has ended, with or without success."""
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.ABORTED)


class JobMode(StrEnum):
    """The mode of a job: reserve capacity on another node before the pod is evicted, or evict it directly."""

    RESERVATION_FIRST = "ReservationFirst"
    EVICT_DIRECTLY = "EvictDirectly"


class JobReason(StrEnum):
    """Why a job failed, or what it waits for."""

    TIMEOUT = "Timeout"
    FAILED_CREATE_RESERVATION = "FailedCreateReservation"
    RESERVATION_EXPIRED = "ReservationExpired"
    UNSCHEDULABLE = "Unschedulable"
    FORBIDDEN = "ForbiddenMigratePod"
    MISSING_POD = "MissingPod"
    MISSING_RESERVATION = "MissingReservation"
    EVICTING = "Evicting"
    FAILED_EVICT = "FailedEvict"
    EVICT_COMPLETE = "EvictComplete"
    WAIT_FOR_BIND = "WaitForPodBindReservation"
    WAIT_FOR_READY = "WaitForBoundPodReady"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job: `step` is `status.status`, `node` the pod's target, `successor` the pod that replaces it."""

    phase: JobPhase = JobPhase.PENDING
    step: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    successor: Reference | None = None
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((condition for condition in self.conditions if condition.type == type_), None)

    def holds(self, type_: str) -> bool:
        """Return whether the condition of a type is present and true."""
        condition = self.condition(type_)
        return condition is not None and condition.status == "True"

    @property
    def changed_seconds(self) -> float:
        """Unix time of the latest condition; 0 without conditions."""
        return max((moment_of(condition.since, "condition") or 0.0 for condition in self.conditions), default=0.0)

    @property
    def source(self) -> tuple[str, str]:
        """(NAMESPACE/KIND/NAME of the pod's controller, node) at the time of arbitration; "" if unknown."""
        arbitrated = self.condition(ARBITRATED)
        workload, _, node = arbitrated.message.rpartition(_ON) if arbitrated is not None else ("", "", "")
        return workload, node

    @property
    def evicted_seconds(self) -> float | None:
        """Unix time at which the eviction began; None if it has not, or was refused."""
        evicted = self.condition(EVICTION)
        if evicted is None or (
            self.phase.ended and evicted.status != "True" and evicted.reason == JobReason.FAILED_EVICT
        ):
            return None
        return moment_of(evicted.since, EVICTION)


@dataclass(frozen=True, slots=True)
class MigrationJob:
    """A PodMigrationJob. `ttl_seconds` and `mode` are None if the job does not set them; a ttl of 0 is forever.

    `target` is the node that the pod must move to, "" for any; `decided_source` the pod's node when the move was
    decided, "" if unknown. `reservation_ref` is the name of a Reservation that somebody created for the job;
    `reservation_template` has additional fields of the job's own Reservation.
    """

    name: str
    uid: str = ""
    version: str = ""
    created_seconds: float = 0.0
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: Reference = field(default_factory=Reference)
    mode: JobMode | None = None
    paused: bool = False
    ttl_seconds: float | None = None
    target: str = ""
    decided_source: str = ""
    reservation_ref: str = ""
    reservation_template: Json = field(default_factory=dict)
    delete_options: Json = field(default_factory=dict)
    status: JobStatus = JobStatus()

    @classmethod
    def parse(cls, body: Json) -> MigrationJob:
        """Parse a job from JSON; raise a UsageError that names the job and the field."""
        meta, spec = body.get("metadata") or {}, body.get("spec") or {}
        name = str(meta.get("name") or "")
        what = f"podmigrationjob {name}"
        options = object_of(spec.get("reservationOptions"), f"{what}: reservationOptions")
        ttl = spec.get("ttl")
        pod = Reference.parse(object_of(spec.get("podRef"), f"{what}: podRef"))
        if not (pod.namespace and pod.name):
            raise UsageError(f"{what}: podRef names no pod", fix="Write the pod's namespace and name.")
        return cls(
            name=name,
            uid=str(meta.get("uid") or ""),
            version=str(meta.get("resourceVersion") or ""),
            created_seconds=moment_of(meta.get("creationTimestamp"), what) or 0.0,
            deleting=bool(meta.get("deletionTimestamp")),
            labels=meta.get("labels") or {},
            pod=pod,
            mode=_mode(spec.get("mode"), what),
            paused=bool(spec.get("paused")),
            ttl_seconds=None if ttl is None else seconds_of(str(ttl), f"{what}: ttl"),
            target=str((meta.get("annotations") or {}).get(TARGET_ANNOTATION) or ""),
            decided_source=str((meta.get("annotations") or {}).get(SOURCE_ANNOTATION) or ""),
            reservation_ref=str((options.get("reservationRef") or {}).get("name") or ""),
            reservation_template=object_of(options.get("template"), f"{what}: reservationOptions.template"),
            delete_options=object_of(spec.get("deleteOptions"), f"{what}: deleteOptions"),
            status=_status(body.get("status") or {}, what),
        )

    @property
    def waits(self) -> bool:
        """True if the job waits for arbitration; False for a paused job and for a job that is being deleted."""
        return self.status.phase is JobPhase.PENDING and not self.deleting and not self.paused

    @property
    def runs(self) -> bool:
        """True if the job passed arbitration and has not ended."""
        return self.status.phase is JobPhase.RUNNING

    @property
    def source_node(self) -> str:
        """The node that the pod leaves; "" if not known yet."""
        return self.status.source[1] or self.decided_source

    @property
    def pod_key(self) -> tuple[str, str]:
        """(namespace, name) of the job's pod."""
        return self.pod.namespace, self.pod.name

    def deadline_seconds(self, default_ttl_seconds: float) -> float:
        """Return the Unix time at which the job times out; infinity if it never does."""
        ttl = default_ttl_seconds if self.ttl_seconds is None else self.ttl_seconds
        return self.created_seconds + ttl if ttl else float("inf")


def status_with_changes(
    job: MigrationJob, now_seconds: float, conditions: Sequence[Condition] = (), **changes: Any
) -> JobStatus:
    """Return the job's status with further conditions and changed fields."""
    return replace(job.status, conditions=merge_conditions(job.status.conditions, conditions, now_seconds), **changes)


def arbitrated_condition(workload: str, node: str) -> Condition:
    """Return the condition that the job passed arbitration, with its pod's workload and node at that time."""
    return Condition(ARBITRATED, "True", "Passed", f"{workload}{_ON}{node}")


def address_of(name: str) -> Address:
    """Return the API address (version, resource, name) of a PodMigrationJob."""
    return Address(SCHEDULING_GROUP, JOBS, name)


def status_intent(job: MigrationJob, status: JobStatus) -> Apply | None:
    """Return the write of the status, or None if it has not changed."""
    if status == job.status:
        return None
    address = address_of(job.name)
    texts = {"status": status.step, "reason": status.reason, "message": status.message, "nodeName": status.node}
    body: dict[str, Any] = {"phase": status.phase.value} | {name: text for name, text in texts.items() if text}
    if status.successor is not None:
        pod = status.successor
        pod_fields = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        body["podRef"] = {"apiVersion": "v1", "kind": "Pod", **pod_fields}
    body["conditions"] = [condition_body(condition) for condition in status.conditions]
    manifest = address.manifest(KIND, {"uid": job.uid}, status=body)
    return Apply(address, manifest, "status", why=f"the move is {status.phase}: {status.step}")


def _status(body: Json, what: str) -> JobStatus:
    phase = body.get("phase")
    successor = object_of(body.get("podRef"), f"{what}: status.podRef")
    return JobStatus(
        JobPhase(phase) if phase in list(JobPhase) else JobPhase.PENDING,
        str(body.get("status") or ""),
        str(body.get("reason") or ""),
        str(body.get("message") or ""),
        str(body.get("nodeName") or ""),
        Reference.parse(successor) if successor else None,
        tuple(Condition.parse(condition) for condition in body.get("conditions") or ()),
    )


def _mode(mode: Any, what: str) -> JobMode | None:
    if mode in (None, ""):
        return None
    if mode not in list(JobMode):
        raise UsageError(
            f"{what}: mode {format_value(mode)} is unknown", fix="Write ReservationFirst or EvictDirectly."
        )
    return JobMode(mode)
