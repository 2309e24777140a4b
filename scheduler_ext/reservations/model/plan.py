"""ReservationPlan (cotenant.dev/v1alpha1) as every package reads it. Pure; `plan_wire` reads and writes the object.

A plan says which workload needs how much capacity and when; its status says where the present occurrence is in its life
(`cotenant.scheduler_ext.reservations.plans.lifecycle` decides that). Field tree: `tools/crds/reservationplan.yaml`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.kubernetes.protocol import RESERVATION_PLANS
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy

Json = Mapping[str, Any]

PLURAL: Final = RESERVATION_PLANS
MOST_PODS: Final = 10_000
"""Pods of a plan."""
KIND: Final = "ReservationPlan"
PLAN_LABEL: Final = "cotenant.dev/plan"
"""On every object that realises a plan: `key_of` its namespace and name."""
FLOOR_ANNOTATION: Final = "cotenant.dev/plan-floor"
"""On a HorizontalPodAutoscaler whose minReplicas a plan raised: which plan, what stood there, what was set."""
LENT_FLOOR_ANNOTATION: Final = "cotenant.dev/lent-floor"
"""The same where the autopilot lends minReplicas for a peak."""
FLOOR_ANNOTATIONS: Final = (FLOOR_ANNOTATION, LENT_FLOOR_ANNOTATION)
"""A plan raises above what is lent, never the other way round."""


class WindowSource(StrEnum):
    """The source of a plan's window."""

    FORECAST = "Forecast"
    RECURRING = "Recurring"
    MANUAL = "Manual"


class Realisation(StrEnum):
    """The mechanism that keeps the capacity."""

    RESERVATION = "Reservation"
    CAPACITY_BUFFER = "CapacityBuffer"
    REPLICA_FLOOR = "ReplicaFloor"


class PlanDecision(StrEnum):
    """The decision about a plan."""

    APPROVED = "Approved"
    REJECTED = "Rejected"


class DecisionScope(StrEnum):
    """The scope of a decision: one occurrence, or the series."""

    ONCE = "Once"
    SERIES = "Series"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """[start, end) in Unix seconds."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Return the length in seconds."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True, order=True)
class PeakWindow:
    """One of a forecast plan's windows of the next day, and the most pods that it may hold capacity for."""

    span: Span
    count: int


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A schedule: cron's five fields read in an IANA zone; skip: starts that are left out.

    starting_deadline_seconds: how late after its start an occurrence may still be reserved; None: until its end.
    """

    schedule: str
    zone: str
    duration_seconds: float
    starting_deadline_seconds: float | None = None
    skip: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's decision; at_seconds 0: the time is not recorded."""

    decision: PlanDecision
    scope: DecisionScope = DecisionScope.SERIES
    by: str = ""
    at_seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """The conditions under which a plan may be approved without a person; None: not checked."""

    auto: bool = False
    minimum_hit_ratio: float | None = None
    maximum_idle_core_hours: float | None = None
    maximum_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Score(Span):
    """The score of an occurrence. reserved, used, missed: most pods at one time; hit_ratio: used of reserved pod-time.

    coverage: share of the needed pod-time that found capacity; lead_seconds: how long before the start all of it was
    reserved. planned: pods that the plan counted on; needed: most that used or lacked a reservation at one time;
    cost: money. others_waiting: most pods of others at one time that found no node and that fit into what was reserved
    for one pod. None: not recorded.
    """

    reserved: int = 0
    used: int = 0
    missed: int = 0
    hit_ratio: float = 0.0
    coverage: float = 1.0
    idle_core_hours: float = 0.0
    cost: float = 0.0
    missed_core_minutes: float = 0.0
    lead_seconds: int | None = None
    lent_core_hours: float | None = None
    planned: int | None = None
    needed: int | None = None
    others_waiting: int | None = None


@dataclass(frozen=True, slots=True)
class OccurrenceProgress:
    """The observations of the present occurrence up to `as_of_seconds`, in pod-seconds, for its score.

    Fields that begin with `most` are the highest number of pods at one time.
    """

    as_of_seconds: float = 0.0
    reserved_pod_seconds: float = 0.0
    used_pod_seconds: float = 0.0
    missed_pod_seconds: float = 0.0
    most_reserved: int = 0
    most_used: int = 0
    most_missed: int = 0
    most_needed: int | None = None
    most_others_waiting: int | None = None
    available_at_seconds: float | None = None
    changed_at_seconds: float = 0.0
    """When the number of pods was last changed."""

    lent_core_seconds: float | None = None
    """What batch pods had of the reserved capacity; None: nobody looked."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The results of a plan's back-test; core-hours and money are per day, money in the price sheet's currency."""

    hit_ratio: float
    missed_pods: float
    occurrences: int
    idle_core_hours: float
    displaced_batch_core_hours: float = 0.0
    cost: float = 0.0
    currency: str = ""


@dataclass(frozen=True, slots=True)
class PlanReservation:
    """One Reservation of the present occurrence."""

    name: str
    node: str = ""
    phase: str = ""
    used_by: str = ""


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The status of a plan; phase None: it has not been processed yet."""

    phase: PlanPhase | None = None
    window: Span | None = None
    reserve_at_seconds: float = 0.0
    lead_seconds: int = 0
    count: int = 0
    expected: Expected | None = None
    units: tuple[PlanReservation, ...] = ()
    progress: OccurrenceProgress = OccurrenceProgress()
    score: Score | None = None
    history: tuple[Score, ...] = ()
    settings_digest: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores of the occurrences that are over, the newest first."""
        return tuple(score for score in (self.score, *self.history) if score)

    @property
    def last_end_seconds(self) -> float:
        """End of the newest occurrence that was scored; 0 when there was none."""
        return max((score.end_seconds for score in self.scores), default=0.0)


@dataclass(frozen=True, slots=True)
class PlanOwner:
    """The owner of a plan's capacity."""

    kind: str
    name: str
    api_version: str = "apps/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoices:
    """The choices of a person about a plan, beside its pods. At most one of window and recurring.

    quantile is used by forecast plans alone. ttl_seconds None: Reservations are kept until the end of the window.
    standby: pods that free capacity is kept for at any time while the plan is approved, beyond those that run.
    """

    window: Span | None = None
    recurring: Recurrence | None = None
    quantile: float = 0.9
    lead_seconds: float = 900.0
    ttl_seconds: float | None = None
    realisation: Realisation = Realisation.RESERVATION
    allocate_once: bool = True
    allocate_policy: AllocatePolicy = AllocatePolicy.ALIGNED
    standby: int = 0

    def choices(self) -> dict[str, Any]:
        """Return the chosen values by name."""
        return inherited_fields(self, PlanChoices)


@dataclass(frozen=True, slots=True)
class Plan(PlanChoices):
    """A ReservationPlan. per_pod: request of one pod, cpu in millicores, others in their unit; per_pod_text as written.

    template: the pod template of the Reservations, None: the owner's. windows: all of a forecast plan, ascending, of
    which `window` is the largest; empty: `window` alone.
    """

    namespace: str
    name: str
    source: WindowSource
    owner: PlanOwner
    per_pod: Mapping[str, int]
    count: int
    uid: str = ""
    generation: int = 0
    version: str = ""
    """Of the object as the API server counts it, to write only what was read."""
    windows: tuple[PeakWindow, ...] = ()
    extend_by_seconds: float = 1800.0
    template: Json | None = None
    suspended: bool = False
    policy: ApprovalPolicy = ApprovalPolicy()
    approval: Approval | None = None
    history_limit: int = 10
    status: PlanStatus = PlanStatus()
    labels: Mapping[str, str] = field(default_factory=dict)
    per_pod_text: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False

    @property
    def key(self) -> str:
        """Return the value of PLAN_LABEL by which reservations name the plan."""
        return key_of(self.namespace, self.name)

    @property
    def cores_per_pod(self) -> float:
        """CPU request of one pod."""
        return self.per_pod.get("cpu", 0) / 1000

    @property
    def peaks(self) -> tuple[PeakWindow, ...]:
        """Its windows that are no schedule's, ascending."""
        return self.windows or ((PeakWindow(self.window, self.count),) if self.window else ())

    def most_in(self, window: Span) -> int:
        """Most pods that capacity may be held for in a window."""
        return next((peak.count for peak in self.windows if peak.span == window), self.count)

    @property
    def approved(self) -> bool:
        """True if a person or its policy approves the plan, for some occurrence."""
        return self.policy.auto or self.approved_by_person

    @property
    def approved_by_person(self) -> bool:
        """True if a person approves the plan, for some occurrence: its terms are then theirs to change."""
        return self.approval is not None and self.approval.decision is PlanDecision.APPROVED

    @property
    def reserved_pods(self) -> int:
        """Pods that capacity is reserved for now, those that use it included."""
        holds = self.status.phase is not None and self.status.phase.holds
        standby = self.standby if self.approved and not self.suspended else 0
        return max(self.status.count, standby) if holds else standby

    @property
    def standby_core_hours(self) -> float:
        """Most core-hours a day that its standby is free and idle."""
        return 24 * self.standby * self.cores_per_pod

    @property
    def workload(self) -> WorkloadRef:
        """The workload that it reserves capacity for."""
        return WorkloadRef(self.namespace, self.owner.kind, self.owner.name)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A forecast's proposal for one workload's next peak: a plan to be, or why there is none (`reason`).

    per_pod: request of one pod as Kubernetes writes it; base_pods: pods that run anyway; wanted, median: pods beyond
    them in each slot of `step_seconds` from `start_seconds`, at `quantile` and at 0.5. window, count: the largest of
    `windows`. standby: pods that capacity should be kept ready for at any time. coverage, skill, expected: of the
    back-test, None where there was none. ladder: `wanted` at each of `levels`, ascending.
    """

    workload: WorkloadRef
    reason: str
    count: int = 0
    quantile: float = 0.9
    window: Span | None = None
    per_pod: dict[str, str] = field(default_factory=dict)
    base_pods: float = 0.0
    coverage: float | None = None
    skill: float | None = None
    words: str = ""
    expected: Expected | None = None
    start_seconds: int = 0
    step_seconds: int = 1800
    wanted: tuple[int, ...] = ()
    median: tuple[int, ...] = ()
    levels: tuple[float, ...] = ()
    ladder: tuple[tuple[int, ...], ...] = ()
    settings_digest: str = ""
    windows: tuple[PeakWindow, ...] = ()
    standby: int = 0

    @property
    def ready(self) -> bool:
        """True if there is something to propose."""
        return self.window is not None and self.count > 0 and self.reason == "ok"

    def at(self, quantile: float) -> tuple[int, ...]:
        """`wanted` at the lowest rehearsed level that is not below a quantile, else at the highest."""
        rung = next((i for i, level in enumerate(self.levels) if level >= quantile - 1e-9), len(self.levels) - 1)
        return self.ladder[rung] if self.ladder else self.wanted


def proposal_name(ref: WorkloadRef) -> str:
    """Name of the plan that is proposed for a workload."""
    return f"{ref.kind}-{ref.name}".lower()[:253]


def key_of(namespace: str, name: str) -> str:
    """A label value for a plan: namespace and name where they fit into 63 characters, else their digest."""
    text = f"{namespace}.{name}"
    return text if len(text) <= 63 else hashlib.sha256(text.encode()).hexdigest()[:40]


def duration(seconds: float) -> str:
    """A duration as Kubernetes reads it, in whole seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, remainder = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (remainder, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0"
