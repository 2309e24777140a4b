"""The interface by which pages and the REST API read and change reservation plans. Pure data types and a protocol.

The dashboard gets a `PlanService` from its caller; without one it shows commands to copy. Every call names the person,
and the service checks this person's rights, whatever the page showed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person
from cotenant.base.text import agree
from cotenant.changes.model.service import FieldMove
from cotenant.scheduler_ext.reservations.model.plan import Expected, PeakWindow, Plan, PlanChoices, Recurrence, Span

EDITED_LABEL: Final = "cotenant.dev/edited-until"
"""Label of a forecast plan whose window or pods a person changed: until this Unix time forecasts do not change them."""
MOST_REASONS: Final = 3
"""Most reasons in one note; each plan is named where plans are listed."""
AT_THAT_MOMENT: Final = "the moment of the decision"


@dataclass(frozen=True, slots=True)
class UnreadablePlan:
    """A plan of the cluster that cannot be parsed; `reason` names the object, the field and the value."""

    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanListing:
    """The plans of some namespaces, sorted by namespace and name, and separately the plans that cannot be parsed."""

    plans: tuple[Plan, ...] = ()
    unreadable: tuple[UnreadablePlan, ...] = ()

    @property
    def note(self) -> str:
        """A sentence about the plans that cannot be read and are not counted, with reasons; "" if there are none."""
        number = len(self.unreadable)
        reasons = "; ".join(plan.reason for plan in self.unreadable[:MOST_REASONS])
        more = f"; and {number - MOST_REASONS} more" if number > MOST_REASONS else ""
        subject = agree(number, "plan cannot be read and is not counted", "plans cannot be read and are not counted")
        return f"{subject}: {reasons}{more}" if number else ""


@dataclass(frozen=True, slots=True)
class PlanGuardResult:
    """The result of one guard (a rule that can stop a plan); `reason` is in CamelCase, as in a condition."""

    guard: str
    passed: bool
    reason: str
    message: str


class Preview(
    msgspec.Struct, frozen=True, rename={"reserved_core_hours": "held_core_hours", "reserved_cost": "held_cost"}
):
    """The expected effects of approving a plan. `nodes` are (name, pods) where pods fit; `unplaced` fit nowhere now.

    `nodes_then` and `unplaced_then` are the same at the window's start, by the forecast usage of the nodes;
    `unplaced_then` is None if there is no forecast for that time. `quota_left` is what the plan's pods leave of each
    resource that a quota limits. `displaced_core_hours` is batch work on those nodes that loses CPU while pods use the
    capacity. `without` is a sentence about the peak without the plan. Costs are money by the price sheet.
    """

    count: int
    window: Span
    nodes: tuple[tuple[str, int], ...]
    unplaced: int
    quota_left: Mapping[str, int]
    displaced_core_hours: float
    displaced_cost: float
    reserved_core_hours: float
    reserved_cost: float
    expected: Expected | None
    guards: tuple[PlanGuardResult, ...] = ()
    notes: tuple[str, ...] = ()
    without: str = ""
    """A sentence on what happens if nothing is reserved."""
    nodes_then: tuple[tuple[str, int], ...] = ()
    unplaced_then: int | None = None
    windows: tuple[PeakWindow, ...] = ()
    """All windows that the approval covers, ascending; reserved_core_hours is their sum."""
    standby: int = 0
    """Pods for which capacity is reserved at all times."""
    standby_core_hours: float = 0.0
    """Core-hours a day that the standby capacity is idle at most."""
    standby_cost: float = 0.0

    @property
    def fits(self) -> bool:
        """True if all pods of the plan fit on nodes now."""
        return self.unplaced == 0


@dataclass(frozen=True, slots=True, order=True)
class PlanRef:
    """Namespace and name of a plan."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PlanTerms(PlanChoices):
    """The terms that a person may choose: what a plan reserves and when. Exactly one of window and recurring is set."""

    pods: int

    @classmethod
    def of(cls, plan: Plan) -> PlanTerms:
        """Return the present terms of a plan."""
        return cls(plan.count, **plan.choices())


class PlanEvent(StrEnum):
    """A ledger event about a plan."""

    ASKED = "plan-asked"
    """Written before the cluster changes; if no outcome follows, the plan itself shows the outcome."""
    REFUSED = "plan-refused"
    MADE = "plan-made"
    EDITED = "plan-edited"
    APPROVED = "plan-approved"
    REJECTED = "plan-rejected"
    SKIPPED = "plan-skipped"
    RESTORED = "plan-skip-undone"
    POLICY = "plan-policy-set"


@dataclass(frozen=True, slots=True)
class PlanHistoryEntry:
    """A ledger row about a plan: what a person did and when (Unix time)."""

    seconds: float
    actor: str
    event: PlanEvent
    words: str


class PlanService(Protocol):
    """Thread-safe operations on plans. Methods raise NotAllowed, or CotenantError if the cluster cannot answer.

    A `request` is an object of a class in `reservations.acts`, which also declares the right that each class requires.
    """

    def do(self, who: Person, request: Any) -> Plan:
        """Carry out a request, and return the resulting plan."""

    def lines_of(self, who: Person, request: Any) -> Sequence[FieldMove]:
        """Return every field that a request would write to the cluster.

        The API server checks the write as a dry run with the person's rights. An approval needs no generation here. The
        time of a decision is shown as `AT_THAT_MOMENT`.
        """

    def plans(self, who: Person) -> PlanListing:
        """Return the plans that the person may see, sorted by name; the list may be a second old."""

    def plan(self, who: Person, ref: PlanRef) -> Plan:
        """Return one plan; raise NoData if it does not exist."""

    def preview(self, who: Person, ref: PlanRef, terms: PlanTerms | None = None) -> Preview:
        """Return what approving a plan would do now, under the plan's own or the given terms. Needs Right.REVIEW."""

    def preview_new(self, who: Person, workload: WorkloadRef, terms: PlanTerms) -> Preview:
        """Return what creating and approving a plan with these terms would do now. Needs Right.REVIEW."""

    def occurrences(self, plan: Plan, days: float, most: int = 200) -> Sequence[Span]:
        """Return a plan's present and next windows; for a schedule those that start within `days`, at most `most`."""

    def next_windows(self, rule: Recurrence, count: int = 3) -> Sequence[Span]:
        """Return the next `count` windows of a schedule; raise UsageError if the schedule is invalid."""

    def history(self, who: Person, ref: PlanRef) -> Sequence[PlanHistoryEntry]:
        """Return what people did with the plan through this service, newest first."""
