"""The phases of plans and of Reservations: what each means for the capacity, and which may follow. Pure.

The tables of docs/protocol.md are generated from these. A plan's Reservations exist while its occurrence has capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Stage(Enum):
    """The state of the capacity in a phase: not reserved yet, reserved, being released, or no longer reserved."""

    BEFORE = "not reserved yet"
    KEPT = "reserved"
    LEAVING = "being released"
    OVER = "not reserved"


class PlanPhase(StrEnum):
    """The phase of a plan's present occurrence, as the plan's status has it."""

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    REJECTED = "Rejected"
    RESERVED = "Reserved"
    IN_WINDOW = "Held"
    EXTENDED = "Extended"
    RELEASED = "Released"
    SCORED = "Scored"
    MISSED = "Missed"
    FAILED = "Failed"

    @property
    def holds(self) -> bool:
        """True if capacity is reserved for the occurrence."""
        return PLAN_STATES[self].stage is Stage.KEPT

    @property
    def over(self) -> bool:
        """True if the occurrence has ended and its phase will not change again."""
        return PLAN_STATES[self].stage is Stage.OVER


class Phase(StrEnum):
    """The phase of a Reservation, as Koordinator names it."""

    PENDING = "Pending"
    WAITING = "Waiting"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def ended(self) -> bool:
        """True if the Reservation no longer reserves anything."""
        return RESERVATION_STATES[self].stage is Stage.OVER


class PlanGroup(StrEnum):
    """A group of plan phases by the attention that they need from a person, in the order of lists and charts."""

    RUNNING = "running"
    COMING = "coming"
    WAITING = "waiting"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class State:
    """The meaning of a phase: `words` follow a number ("2 waiting for approval"); `then` maps next phases to causes."""

    stage: Stage
    words: str
    then: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanState(State):
    """The meaning of a plan's phase, and how it is shown: `tone` is its colour, `bar` its pattern in charts."""

    group: PlanGroup
    tone: str
    bar: str


_RELEASE: Final[Mapping[str, str]] = {
    PlanPhase.RELEASED: "the window or the demand is over, the approval was withdrawn, or the next window is due"
}
_NEXT: Final[Mapping[str, str]] = {PlanPhase.PROPOSED: "the next occurrence"}
PLAN_STATES: Final[Mapping[PlanPhase, PlanState]] = {
    PlanPhase.RESERVED: PlanState(
        Stage.KEPT, "reserved before the window",
        {PlanPhase.IN_WINDOW: "the window begins", **_RELEASE}, PlanGroup.RUNNING, "teal", "reserved",
    ),
    PlanPhase.IN_WINDOW: PlanState(
        Stage.KEPT, "reserved in the window",
        {PlanPhase.EXTENDED: "the window is over and demand is still high", **_RELEASE},
        PlanGroup.RUNNING, "teal", "reserved",
    ),
    PlanPhase.EXTENDED: PlanState(
        Stage.KEPT, "extended beyond the window", _RELEASE, PlanGroup.RUNNING, "teal", "reserved"
    ),
    PlanPhase.RELEASED: PlanState(
        Stage.LEAVING, "being released",
        {PlanPhase.SCORED: "nothing is reserved any more", PlanPhase.FAILED: "nothing was ever reserved"},
        PlanGroup.RUNNING, "gray", "over",
    ),
    PlanPhase.APPROVED: PlanState(
        Stage.BEFORE, "approved",
        {
            PlanPhase.RESERVED: "the lead time before the start begins, and no guard stops the plan",
            PlanPhase.MISSED: "the deadline passed without capacity",
            PlanPhase.SCORED: "the deadline passed without demand",
            PlanPhase.PROPOSED: "the approval was withdrawn",
            PlanPhase.REJECTED: "a person rejects the plan",
        },
        PlanGroup.COMING, "orange", "approved",
    ),
    PlanPhase.PROPOSED: PlanState(
        Stage.BEFORE, "waiting for approval",
        {PlanPhase.APPROVED: "a person or the plan's policy approves it", PlanPhase.REJECTED: "a person rejects it"},
        PlanGroup.WAITING, "violet", "proposed",
    ),
    PlanPhase.FAILED: PlanState(Stage.OVER, "failed", _NEXT, PlanGroup.FAILED, "red", "failed"),
    PlanPhase.MISSED: PlanState(Stage.OVER, "missed", _NEXT, PlanGroup.FAILED, "red", "failed"),
    PlanPhase.SCORED: PlanState(Stage.OVER, "over", _NEXT, PlanGroup.ENDED, "gray", "over"),
    PlanPhase.REJECTED: PlanState(
        Stage.BEFORE, "rejected",
        {PlanPhase.APPROVED: "a person approves the plan after all", **_NEXT}, PlanGroup.ENDED, "gray", "over",
    ),
}  # fmt: skip
"""Every phase, in the order of lists: what runs now, what comes, what waits for a person, what went wrong, the rest."""

_END: Final[Mapping[str, str]] = {
    Phase.SUCCEEDED: "a pod took the capacity, and allocateOnce is set",
    Phase.FAILED: "the Reservation expired or its node is gone",
}
RESERVATION_STATES: Final[Mapping[Phase, State]] = {
    Phase.PENDING: State(
        Stage.BEFORE,
        "looks for a node",
        {Phase.AVAILABLE: "a node was found", Phase.WAITING: "a pod has to leave its node first", **_END},
    ),
    Phase.WAITING: State(
        Stage.BEFORE,
        "waits for a pod to leave its node",
        {Phase.AVAILABLE: "a node was found", Phase.PENDING: "no pod has to leave any more", **_END},
    ),
    Phase.AVAILABLE: State(
        Stage.KEPT,
        "holds free capacity",
        {Phase.PENDING: "in mode last-resort, a pod of higher priority took the capacity", **_END},
    ),
    Phase.SUCCEEDED: State(Stage.OVER, "was taken by an owner pod", {}),
    Phase.FAILED: State(Stage.OVER, "expired or lost its node", {}),
}
"""Every phase of a Reservation."""
