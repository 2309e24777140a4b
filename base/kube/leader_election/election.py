"""Leader election: what a candidate does next, from the states of the Lease it has read and when. Pure.

Times are the candidate's own, from a clock that nobody sets; the stamps that other machines write into a Lease are not
compared with it, so a clock that is wrong by minutes does no harm. A candidate waits a whole lease duration from the
moment when it first saw the Lease as it is; a leader counts its own deadline from before it asked for the renewal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Record:
    """A Lease as the server has it; an empty holder has given it back. `transitions` counts its holders."""

    holder: str
    duration_seconds: float
    transitions: int
    version: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The record last seen, None if there is no Lease, and the time from which another holder may take it."""

    record: Record | None
    free_at_seconds: float
    transitions: int = -1
    """The most that was ever seen, -1 for none: a Lease that somebody deleted goes on counting from here."""


class ElectionStep(StrEnum):
    """The next step of a candidate."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def update_sighting(
    before: Sighting | None, record: Record | None, now_seconds: float, lease_seconds: float, leading: bool = False
) -> Sighting:
    """The Lease was read just now; `leading`: by somebody who may still write under it.

    Unchanged: its time goes on. Changed: a whole duration begins, the longer of its own and ours. Given back: free.
    Gone: somebody may have held it last and not know yet, so a whole duration begins, unless it was us. Who never saw
    it cannot tell a Lease that was deleted from one that never was, and takes it at once.
    """
    transitions_before = before.transitions if before else -1
    if record is None:
        wait_seconds = 0.0 if leading else lease_seconds
        if before is None:
            free_when_gone = now_seconds
        else:
            free_when_gone = before.free_at_seconds if before.record is None else now_seconds + wait_seconds
        return Sighting(None, free_when_gone, transitions_before)
    transitions = max(transitions_before, record.transitions)
    if before and before.record == record:
        return Sighting(record, before.free_at_seconds, transitions)
    if not record.holder:
        return Sighting(record, now_seconds, transitions)
    return Sighting(record, now_seconds + max(record.duration_seconds, lease_seconds), transitions)


def move(sighting: Sighting, identity: str, now_seconds: float) -> ElectionStep:
    """Return the next step of the candidate for what it saw."""
    record = sighting.record
    if record is not None and record.holder == identity:
        return ElectionStep.RENEW
    if now_seconds < sighting.free_at_seconds:
        return ElectionStep.WAIT
    return ElectionStep.CREATE if record is None else ElectionStep.TAKE


def next_transitions(sighting: Sighting, chosen: ElectionStep) -> int:
    """The Lease's number of transitions: it grows with every new holder and identifies an old leader's records."""
    if chosen is ElectionStep.RENEW and sighting.record is not None:
        return sighting.record.transitions
    return sighting.transitions + 1
