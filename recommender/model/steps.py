"""How much of a recommendation can be applied now, and the steps of a decrease that is too large for one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind
from cotenant.base.tables.quantity import Sign, Unit


class Ready(StrEnum):
    """The part of a recommendation that could be applied now, by the guardrails that need no live objects."""

    WHOLE = "whole"
    FIRST_STEP = "first-step"
    """The first step of a cut that is too large for one step."""
    WAITING = "waiting"
    """An earlier step was taken, and its cool-down lasts."""
    SECOND_PERSON = "second-person"
    """Only a second person's confirmation is missing, which the workload's QoS class requires."""
    BLOCKED = "blocked"
    NOTHING = "nothing"
    """It changes nothing."""

    @property
    def now(self) -> bool:
        """True if part or all of the recommendation can be applied now."""
        return self in (Ready.WHOLE, Ready.FIRST_STEP)


_WORDS: Final = {
    Ready.WHOLE: "in 1 step",
    Ready.FIRST_STEP: "first step",
    Ready.WAITING: "waits",
    Ready.SECOND_PERSON: "needs a second person",
    Ready.BLOCKED: "blocked",
    Ready.NOTHING: "no change",
}


def ready_words(code: str, steps: float | None) -> str:
    """Return what can be applied now, by a `Ready` code, as text; of a cut in several steps, the number of steps."""
    if code == Ready.FIRST_STEP and steps is not None and steps > 1:
        return f"in {steps:.0f} steps"
    return _WORDS[Ready(code)] if code else ""


@dataclass(frozen=True, slots=True)
class NextStep:
    """One step of a request's change: the time from which it is allowed, and the request before and after it."""

    from_seconds: float
    container: str
    resource: Resource
    now: int
    amount: int


STEP_COLUMNS: Final = (
    Column(
        "ready",
        "Ready",
        Kind.TEXT,
        "What the guardrails allow now: whole, first-step (of a decrease in several steps), second-person (a second "
        "person must confirm, because of the QoS class), waiting (for the next step), blocked, nothing. Live objects "
        "are checked only in the review.",
        essential=True,
    ),
    Column("steps", "Steps", Kind.INTEGER, "Number of steps of the workload's change; empty: no step possible."),
    Column("stopped_by", "Stopped by", Kind.TEXT, "Guardrails that stop the change; empty if none does.", wide=True),
    Column("cpu_step", "CPU step", Kind.MILLICORES, "CPU request after the step that is allowed now.", essential=True),
    Column("memory_step", "Mem step", Kind.BYTES, "Memory request after the step that is allowed now."),
    Column("cpu_step_total", "CPU delta now", Kind.MILLICORES, "CPU change by next step, all pods.", sign=Sign.RAISED),
    Column("memory_step_total", "Memory delta now", Kind.BYTES, "Next memory change over all pods.", sign=Sign.RAISED),
    Column(
        "saving_step",
        "Saving/month now",
        Kind.NUMBER,
        "Monthly saving by the step that is allowed now: freed minus raised.",
        wide=True,
        unit=Unit.MONTHLY,
        sign=Sign.FREED,
    ),
    Column("freed_step", "Freed/month now", Kind.NUMBER, "Cost freed by the next step.", wide=True, unit=Unit.MONTHLY),
    Column("raised_step", "Raised/month now", Kind.NUMBER, "Cost added by next step.", wide=True, unit=Unit.MONTHLY),
)
"""What of a recommendation is allowed now; columns of its table."""
