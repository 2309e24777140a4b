"""The ReservationPlan (cotenant.dev/v1alpha1) as data types. Pure; `plan_wire` reads and writes the object.

A plan says which workload needs how much capacity and when; its status has the phase of the present occurrence, which
`cotenant.scheduler_ext.reservations.plans.lifecycle` decides. The fields are in `tools/crds/reservationplan.yaml`.
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
"""Most pods of a plan."""
KIND: Final = "ReservationPlan"
PLAN_LABEL: Final = "cotenant.dev/plan"
"""Label of every object of a plan: `key_of` the plan's namespace and name."""
FLOOR_ANNOTATION: Final = "cotenant.dev/plan-floor"
"""Annotation of a HorizontalPodAutoscaler whose minReplicas a plan raised: the plan, the former value, the new one."""
LENT_FLOOR_ANNOTATION: Final = "cotenant.dev/lent-floor"
"""Annotation of a HorizontalPodAutoscaler whose minReplicas the autopilot raised for a peak; same content."""
FLOOR_ANNOTATIONS: Final = (FLOOR_ANNOTATION, LENT_FLOOR_ANNOTATION)
"""A plan raises minReplicas beyond the autopilot's value, never the other way round."""


class WindowSource(StrEnum):
    """The source of a plan's windows: a usage forecast, a schedule, or a person."""

    FORECAST = "Forecast"
    RECURRING = "Recurring"
    MANUAL = "Manual"


class Realisation(StrEnum):
    """The objects that keep a plan's capacity: Reservations, a CapacityBuffer, or a raised minReplicas."""

    RESERVATION = "Reservation"
    CAPACITY_BUFFER = "CapacityBuffer"
    REPLICA_FLOOR = "ReplicaFloor"


class PlanDecision(StrEnum):
    """A person's decision about a plan."""

    APPROVED = "Approved"
    REJECTED = "Rejected"


class DecisionScope(StrEnum):
    """The scope of a decision: the next occurrence only, or the whole series."""

    ONCE = "Once"
    SERIES = "Series"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A time span [start, end) in Unix seconds."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """The length of the span in seconds."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True, order=True)
class PeakWindow:
    """A window of a forecast plan within the next day, and the largest number of pods that it reserves capacity for."""

    span: Span
    count: int


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A schedule: cron's five fields in an IANA time zone, without the starts (Unix seconds) in `skip`.

    An occurrence may be reserved up to `starting_deadline_seconds` after its start; None means until its end.
    """

    schedule: str
    zone: str
    duration_seconds: float
    starting_deadline_seconds: float | None = None
    skip: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's approval or rejection of a plan; `at_seconds` is 0 if its time was not recorded."""

    decision: PlanDecision
    scope: DecisionScope = DecisionScope.SERIES
    by: str = ""
    at_seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """The conditions under which a plan is approved automatically; core-hours and money per day, None is no limit."""

    auto: bool = False
    minimum_hit_ratio: float | None = None
    maximum_idle_core_hours: float | None = None
    maximum_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Score(Span):
    """The score of a past occurrence. `reserved`, `used`, `missed` (without capacity) are the most pods at one time.

    `hit_ratio` is the used share of the reserved pod-time, `coverage` the share of the needed pod-time that had
    capacity, `lead_seconds` how long before the start all capacity was reserved. `planned` pods were expected. `needed`
    pods used or lacked a reservation, `others_waiting` of other workloads found no node and fitted into one pod's
    capacity, each the most at one time. Batch pods used `lent_core_hours`. `cost` is money. None: not recorded.
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
    """Observations of the present occurrence up to `as_of_seconds` (Unix time), from which its score is computed.

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
    """Unix time at which the number of pods was last changed."""

    lent_core_seconds: float | None = None
    """Core-seconds of the reserved capacity that batch pods used; None if not observed."""


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
    """The state of one Reservation of the present occurrence."""

    name: str
    node: str = ""
    phase: str = ""
    used_by: str = ""


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The status of a plan; `phase` is None until the manager has processed the plan."""

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
        """The scores of past occurrences, newest first."""
        return tuple(score for score in (self.score, *self.history) if score)

    @property
    def last_end_seconds(self) -> float:
        """End of the newest scored occurrence (Unix time); 0 if none was scored."""
        return max((score.end_seconds for score in self.scores), default=0.0)


@dataclass(frozen=True, slots=True)
class PlanOwner:
    """The workload whose pods may use a plan's capacity."""

    kind: str
    name: str
    api_version: str = "apps/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoices:
    """A person's choices about a plan, beside its number of pods. At most one of window and recurring is set.

    Only forecast plans use `quantile`. If `ttl_seconds` is None, Reservations are kept until the end of the window.
    `standby` is the number of pods for which capacity is reserved at all times while the plan is approved.
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
        """Return the values of the fields of PlanChoices by name."""
        return inherited_fields(self, PlanChoices)


@dataclass(frozen=True, slots=True)
class Plan(PlanChoices):
    """A ReservationPlan. `per_pod` is the request of one pod: cpu in millicores, other resources in their unit.

    `per_pod_text` has the same amounts as written. `template` is the Reservations' pod template; None: the workload's.
    `windows` are all windows of a forecast plan, ascending; `window` is the largest of them, or the only one.
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
    """The object's resourceVersion, so that only the version that was read is written."""
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
        """The value of the label PLAN_LABEL by which objects refer to this plan."""
        return key_of(self.namespace, self.name)

    @property
    def cores_per_pod(self) -> float:
        """CPU request of one pod in cores."""
        return self.per_pod.get("cpu", 0) / 1000

    @property
    def peaks(self) -> tuple[PeakWindow, ...]:
        """The windows that come from a forecast or a person, ascending; empty for a plan with a schedule."""
        return self.windows or ((PeakWindow(self.window, self.count),) if self.window else ())

    def most_in(self, window: Span) -> int:
        """Return the largest number of pods for which capacity is reserved in a window."""
        return next((peak.count for peak in self.windows if peak.span == window), self.count)

    @property
    def approved(self) -> bool:
        """True if the plan's policy approves it automatically, or a person has approved at least one occurrence."""
        return self.policy.auto or self.approved_by_person

    @property
    def approved_by_person(self) -> bool:
        """True if a person has approved at least one occurrence; only approvers may then change the terms."""
        return self.approval is not None and self.approval.decision is PlanDecision.APPROVED

    @property
    def reserved_pods(self) -> int:
        """Number of pods for which the plan reserves capacity now, including capacity that pods already use."""
        holds = self.status.phase is not None and self.status.phase.holds
        standby = self.standby if self.approved and not self.suspended else 0
        return max(self.status.count, standby) if holds else standby

    @property
    def standby_core_hours(self) -> float:
        """Core-hours a day that the standby capacity is idle if no pod ever uses it."""
        return 24 * self.standby * self.cores_per_pod

    @property
    def workload(self) -> WorkloadRef:
        """The workload for which the plan reserves capacity."""
        return WorkloadRef(self.namespace, self.owner.kind, self.owner.name)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that the forecast proposes for a workload's next peaks, or the `reason` why it proposes none.

    `per_pod` is the request of one pod as Kubernetes writes it; `base_pods` run in any case. `wanted` and `median` are
    the pods beyond these in each slot of `step_seconds` from `start_seconds`, at `quantile` and at 0.5; `ladder` has
    `wanted` at each of the ascending `levels`. `window` and `count` are the largest of `windows`. `standby` is the
    number of pods for which capacity should be reserved at all times. `coverage`, `skill` and `expected` come from the
    back-test.
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
        """True if the forecast proposes a plan; otherwise `reason` says why not."""
        return self.window is not None and self.count > 0 and self.reason == "ok"

    def at(self, quantile: float) -> tuple[int, ...]:
        """Return the pods needed per slot, at the lowest level that reaches `quantile`, else at the highest level."""
        rung = next((i for i, level in enumerate(self.levels) if level >= quantile - 1e-9), len(self.levels) - 1)
        return self.ladder[rung] if self.ladder else self.wanted


def proposal_name(ref: WorkloadRef) -> str:
    """Return the name of the plan that is proposed for a workload."""
    return f"{ref.kind}-{ref.name}".lower()[:253]


def key_of(namespace: str, name: str) -> str:
    """Return the label value that names a plan: namespace and name if they fit in 63 characters, else a digest."""
    text = f"{namespace}.{name}"
    return text if len(text) <= 63 else hashlib.sha256(text.encode()).hexdigest()[:40]


def duration(seconds: float) -> str:
    """Return a duration as Kubernetes writes it, rounded to seconds, such as "1h30m"."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, remainder = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (remainder, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0"
