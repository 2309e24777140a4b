"""Recommendation: what a container requests now, what it should request, and why.

Each value has a reason code and the inputs that it was computed from. If the evidence is insufficient, the value is
withheld (`amount` is None, with a reason) instead of guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import StrEnum
from typing import Final

from cotenant.base.allocation.gpu_share import GpuShareProposal
from cotenant.base.cluster import ContainerRole, RunningSum
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.base.severity import Severity, Waste

PLURAL: Final = "recommendations"
LONGEST_NAME: Final = 253


class Field(StrEnum):
    """A field of a container's resources: request or limit."""

    REQUEST = "request"
    LIMIT = "limit"


class Action(StrEnum):
    """The action on a field: set its amount, remove it (unset), or propose nothing (withheld)."""

    SET = "set"
    UNSET = "unset"
    """Remove the field (KRR removes CPU limits)."""
    WITHHELD = "withheld"
    """No statement; the reason says why."""


class Restart(StrEnum):
    """The effect of applying a proposal on the pods: none, a resize in place, or new pods (rollout)."""

    NONE = "none"
    IN_PLACE = "in-place"
    """Resized while running (pods/resize); the template changes too, so that the next pod has it."""
    ROLLOUT = "rollout"
    """New pods: the server, the container's resize policy or the QoS class does not allow it in place."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """A rule that changed a proposed amount, and the amount before and after it, in the resource's unit."""

    rule: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Backtest:
    """The effect that the proposal would have had in the last `days`, over all pods of the container.

    `throttled_minutes` are container-minutes with CPU demand above the limit (0 without a limit; contention on a busy
    node is not counted). `oom_kills` sums over pod-days the recorded kills under a limit of at least the proposed one,
    but at least one kill for a day on which the working set exceeded the proposed limit. `evictions` are pod-days on
    which the working set exceeded the proposed memory request but not the present one. `freed_*` is the mean decrease
    of the requests of all pods together, in the resource's unit, negative for an increase. The `now_*` fields are the
    same for the present values; `cotenant.recommender.backtest` defines the rules.

    `cpu_pod_days` are pod-days with a CPU sample; `short_pod_days` those of them with CPU demand above the request, and
    `short_minutes` the container-minutes of such demand; both are None if there is no request.
    """

    days: float
    throttled_minutes: float
    now_throttled_minutes: float
    oom_kills: int
    now_oom_kills: int
    evictions: int
    freed_millicores: int
    freed_bytes: int
    pod_minutes: float = 0.0
    cpu_pod_days: int = 0
    short_pod_days: int | None = None
    now_short_pod_days: int | None = None
    short_minutes: float | None = None
    now_short_minutes: float | None = None


SURE: Final = 0.7
UNSURE: Final = 0.5


class Confidence(StrEnum):
    """The level of confidence in a proposal, as shown to people; its score is not a probability."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @classmethod
    def of(cls, score: float) -> Confidence:
        """Return the level of a score in 0..1: high from SURE on, low below UNSURE and for NaN."""
        return cls.HIGH if score >= SURE else cls.MEDIUM if score >= UNSURE else cls.LOW


@dataclass(frozen=True, slots=True)
class Trust:
    """The confidence in a proposal, 0..1, and the sentences behind it, the weakest point first.

    `confidence` is a score by which proposals are ordered and policies decide, not a probability; people see `level`.
    """

    confidence: float
    because: tuple[str, ...] = ()

    @property
    def level(self) -> Confidence:
        """The confidence as high, medium or low."""
        return Confidence.of(self.confidence)

    @property
    def words(self) -> str:
        """The level with the sentence on the weakest point, as "medium: A single pod was seen."; or the level alone."""
        return ": ".join((self.level.value, *self.because[:1]))


@dataclass(frozen=True, slots=True)
class Value:
    """One proposed field of a container, in the resource's unit.

    `inputs` maps the names of the inputs to amounts or texts. `clamps` are the rules that changed the amount, in the
    order of application; `overrides` are the workload's own annotations that were used.
    """

    resource: Resource
    field: Field
    now: int | None
    amount: int | None
    action: Action
    reason: Reason
    severity: Severity = Severity.UNKNOWN
    inputs: Mapping[str, float | int | str] = attribute(default_factory=dict)
    formula: str = ""
    clamps: tuple[Clamp, ...] = ()
    overrides: tuple[str, ...] = ()

    @property
    def change(self) -> int | None:
        """Proposed minus present amount; None if either is missing."""
        return None if self.now is None or self.amount is None else self.amount - self.now

    @property
    def changes_template(self) -> bool:
        """True if applying the value would change the workload's template."""
        return self.then != self.now

    @property
    def then(self) -> int | None:
        """Amount of the field once the proposal is applied; None = not set."""
        if self.action is Action.UNSET:
            return None
        return self.amount if self.action is Action.SET and self.amount is not None else self.now


_ABSENT: Final[Mapping[str, str]] = {Reason.AMOUNTS_UNKNOWN: "not known", Reason.OWNER_UNKNOWN: "not set or not known"}


def absent_words(reason: str) -> str:
    """Return text for a present amount that is missing: not set or, by the reason code, perhaps only not reported."""
    return _ABSENT.get(reason, "not set")


@dataclass(frozen=True, slots=True)
class Recommendation:
    """All proposed fields of one container by one strategy; effects are for all `replicas` pods together.

    The pipeline adds `backtest`, `trust`, `restart`, `monthly_saving`, `pods`, `waste`, `present_limits`, `running` and
    `pod_floor` to the strategy's result. `notes` are sentences by the strategy and the pipeline (leak found, replicas
    uneven ...); `queries` are the queries sent to the metrics source.
    """

    container: ContainerRef
    strategy: str
    replicas: int
    values: tuple[Value, ...]
    window_seconds: int
    settings_digest: str
    end_seconds: int
    profile: str = ""
    notes: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    backtest: Backtest | None = None
    trust: Trust | None = None
    restart: Restart = Restart.ROLLOUT
    monthly_saving: float | None = None
    """Money a month over all replicas in the price sheet's currency; negative when it costs more."""
    monthly_savings: Mapping[Resource, float] = attribute(default_factory=dict)
    """The parts of `monthly_saving` by resource."""
    pods: float | None = None
    """Number of pods that are paid for: running pods, for a job their mean in the history; None = `replicas`."""
    waste: Waste = Waste.NONE
    """The waste level of the resource with the larger waste."""
    present_limits: Mapping[Resource, int] = attribute(default_factory=dict)
    """Limits of the template; the API server sets a missing request to the limit."""
    running: Mapping[Resource, RunningSum] = attribute(default_factory=dict)
    """Requests of the running pods, by resource, if they differ from the present value in some pods."""
    pod_floor: Mapping[Resource, int] = attribute(default_factory=dict)
    """Lowering the request below these amounts frees nothing, because init containers request as much."""
    heap: HeapProposal | None = None
    """The new maximum heap of the language runtime, if it changes; memory values are valid only together with it."""
    gpu: GpuShareProposal | None = None
    """The GPU share in a recommendation for GPUs only, which a person requests and no strategy proposes."""
    role: ContainerRole = ContainerRole.MAIN
    """The list of the template that has the container, if any has."""

    def value(self, resource: Resource, which: Field) -> Value | None:
        """Return the proposal for one field; None if the strategy does not mention the field."""
        return next((v for v in self.values if v.resource is resource and v.field is which), None)

    @property
    def severity(self) -> Severity:
        """The worst severity among the fields."""
        return max((v.severity for v in self.values), key=lambda s: s.rank, default=Severity.UNKNOWN)


def object_name(ref: WorkloadRef) -> str:
    """Return the name of a workload's custom resource: kind and name, because two kinds may have the same name."""
    name = f"{ref.kind.lower()}-{ref.name}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 13].rstrip('.-')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
