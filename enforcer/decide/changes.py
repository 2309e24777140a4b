"""The vocabulary of settle and apply: writes, notes of original values, outcomes. Pure.

Plan.wants -> settle -> Settled(writes, notes, refused) -> journal -> apply -> Done
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cotenant.enforcer.contract import CgroupPath, Knob, KnobValue, Level, Value, Want

Place = tuple[CgroupPath, Knob]
"""One setting (knob) of one cgroup."""


@dataclass(frozen=True, slots=True)
class OriginalValue:
    """The original value of a cgroup setting, and in `written` every value that the agent may have set, newest last."""

    path: CgroupPath
    knob: Knob
    level: Level
    original: Value
    written: tuple[Value, ...] = ()
    strategy: str = ""
    """The strategy that wrote last."""
    told: Value | None = None
    """The latest value of the kubelet (`Want.back_to`); if it changes, the new one also becomes the original."""

    @property
    def place(self) -> Place:
        """The cgroup's path and the setting (knob), as a key."""
        return self.path, self.knob


Notes = Mapping[Place, OriginalValue]


@dataclass(frozen=True, slots=True)
class KnobWrite(KnobValue):
    """A value to write to a cgroup setting now; `present` is the value before the write, None if not known."""

    present: Value | None = None
    restores: bool = False
    """Restores the original value."""
    drifted: bool = False
    """True if another program changed the value that the agent had written."""
    on_the_way: bool = False
    """True for an intermediate value; the write of the final one follows."""


def wants_of(notes: Notes) -> tuple[Want, ...]:
    """Return wants for the newest values in the previous agent's journal, except CPU shares, to keep them in force."""
    why = "the value was set before this agent started"
    mine = (note for note in notes.values() if note.written and note.knob is not Knob.CPU_SHARES)
    return tuple(Want(n.path, n.knob, n.written[-1], n.level, n.strategy, why) for n in mine)


class WriteOutcome(StrEnum):
    """The outcome of a write to a cgroup setting, or of a want that was not written."""

    WRITTEN = "written"
    WOULD_WRITE = "would-write"
    """Dry run."""
    RESTORED = "restored"
    CONFLICT = "conflict"
    """Written repeatedly, because another program keeps changing the value."""
    GONE = "gone"
    """The cgroup does not exist any more: nothing left to do."""
    UNSUPPORTED = "unsupported"
    """This kernel, or this cgroup, does not have the file."""
    REFUSED = "refused"
    """The want is refused, for its value, its cgroup, a stricter original value, or another strategy's want."""
    FAILED = "failed"
    """The kernel refused the value twice."""
    DENIED = "denied"
    """Writing is not permitted, or the mount is read-only: the agent only observes."""
    NOT_NOTED = "not-noted"
    """The original value could not be saved, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Done(KnobValue):
    """A write or want with its outcome; `errno` is the kernel's, 0 if none; `found` is the value read back, or None."""

    outcome: WriteOutcome
    before: Value | None = None
    found: Value | None = None
    errno: int = 0
    message: str = ""
    """Explanation for people if the write did not simply succeed."""
    repeated: bool = False
    """The same was reported within the last minute: count it, do not report it again."""

    @classmethod
    def of(cls, value: KnobValue, outcome: WriteOutcome, **more: Any) -> Done:
        """Return the result of a write or a want, with this outcome."""
        return cls(value.path, value.knob, value.value, value.level, value.strategy, value.why, outcome, **more)


@dataclass(frozen=True, slots=True)
class Settled:
    """The writes of a tick in order; `notes` is the complete journal, which must be saved before the first write."""

    writes: tuple[KnobWrite, ...]
    notes: Notes
    refused: tuple[Done, ...] = ()
    values_in_force: Mapping[Place, Value] = field(default_factory=dict)
    """All values of the agent that apply after the writes, including those that needed no write."""
