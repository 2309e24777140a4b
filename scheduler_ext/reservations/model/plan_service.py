"""What pages and the REST API may ask to be done with reservation plans, and what they get to see. Pure vocabulary.

The dashboard gets a `PlanService` from its caller; without one it shows commands to copy. Every call names the person:
the service checks their rights, whatever the page showed.
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
"""On a forecast plan whose window or pods a person changed: until this Unix time the forecast no longer moves it."""
MOST_REASONS: Final = 3
"""Reasons that one note names; each plan is named where plans are listed."""
AT_THAT_MOMENT: Final = "the moment of the decision"


@dataclass(frozen=True, slots=True)
class UnreadablePlan:
    """A plan of the cluster whose content is not understood; reason: names the object, the field and the value."""

    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanListing:
    """The plans of some namespaces, sorted by namespace and name; one that cannot be read hides no other one."""

    plans: tuple[Plan, ...] = ()
    unreadable: tuple[UnreadablePlan, ...] = ()

    @property
    def note(self) -> str:
        """Return which plans are left out of every count, and why; "" if none is."""
        number = len(self.unreadable)
        reasons = "; ".join(plan.reason for plan in self.unreadable[:MOST_REASONS])
        more = f"; and {number - MOST_REASONS} more" if number > MOST_REASONS else ""
        subject = agree(number, "plan cannot be read and is", "plans cannot be read and are")
        return f"{subject} not counted: {reasons}{more}" if number else ""


@dataclass(frozen=True, slots=True)
class PlanGuardResult:
    """The result of one guard; `reason` in CamelCase, as conditions write it."""

    guard: str
    passed: bool
    reason: str
    message: str


class Preview(
    msgspec.Struct, frozen=True, rename={"reserved_core_hours": "held_core_hours", "reserved_cost": "held_cost"}
):
    """Answers before an approval. nodes: (name, pods); unplaced: pods that fit nowhere now.

    nodes_then, unplaced_then: the same when the window begins, by the forecast of the nodes' usage at that time;
    None: there is no forecast of that moment.

    quota_left: after the plan's pods, per resource that a quota bounds; displaced_core_hours: batch work on those nodes
    that shares its CPU with the capacity while pods use it; reserved_cost: of the reserved
    capacity, at the price sheet.
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
    """What happens when nothing is reserved, in a sentence."""
    nodes_then: tuple[tuple[str, int], ...] = ()
    unplaced_then: int | None = None
    windows: tuple[PeakWindow, ...] = ()
    """All windows that are approved with it, ascending; reserved_core_hours is their sum."""
    standby: int = 0
    """Pods for which capacity is reserved at all times."""
    standby_core_hours: float = 0.0
    """Most of it that is idle a day, in core-hours."""
    standby_cost: float = 0.0

    @property
    def fits(self) -> bool:
        """True if there is capacity for all pods of the plan now."""
        return self.unplaced == 0


@dataclass(frozen=True, slots=True, order=True)
class PlanRef:
    """A plan by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PlanTerms(PlanChoices):
    """The terms of a plan that a person may choose. Exactly one of window and recurring."""

    pods: int

    @classmethod
    def of(cls, plan: Plan) -> PlanTerms:
        """Return the present terms of a plan."""
        return cls(plan.count, **plan.choices())


class PlanEvent(StrEnum):
    """An event of a plan in the ledger."""

    ASKED = "plan-asked"
    """Written before the cluster is touched; without an outcome behind it, the plan itself says what became of it."""
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
    """A row of the ledger about a plan: who did what, when."""

    seconds: float
    actor: str
    event: PlanEvent
    words: str


class PlanService(Protocol):
    """Safe for many threads. Raises NotAllowed, and CotenantError when it could not be asked or done.

    asked: a request of `reservations.acts`, which has the right that it takes.
    """

    def do(self, who: Person, asked: Any) -> Plan:
        """Execute the request, and return the resulting plan."""

    def lines_of(self, who: Person, asked: Any) -> Sequence[FieldMove]:
        """Everything that it would write to the cluster, object by object and field by field.

        The API server only checks it, with the person's rights. Raises what the act would raise, but that an approval
        needs no generation. The moment of a decision is `AT_THAT_MOMENT`.
        """

    def plans(self, who: Person) -> PlanListing:
        """Every plan of the cluster, by name, as it was at most a moment ago."""

    def plan(self, who: Person, ref: PlanRef) -> Plan:
        """One present plan; NoData when there is none."""

    def preview(self, who: Person, ref: PlanRef, terms: PlanTerms | None = None) -> Preview:
        """Return what approving it would mean now, under its present terms or other terms. Right.REVIEW."""

    def preview_new(self, who: Person, workload: WorkloadRef, terms: PlanTerms) -> Preview:
        """The same for a plan that does not exist yet. Right.REVIEW."""

    def occurrences(self, plan: Plan, days: float, most: int = 200) -> Sequence[Span]:
        """Windows from now on: of a schedule all that begin within these days, else the one there is."""

    def next_windows(self, rule: Recurrence, count: int = 3) -> Sequence[Span]:
        """The next windows of a schedule; UsageError when it cannot be read."""

    def history(self, who: Person, ref: PlanRef) -> Sequence[PlanHistoryEntry]:
        """Return the actions of people on the plan through this service, the newest first."""
