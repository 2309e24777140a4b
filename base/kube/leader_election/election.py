"""Leader election: the next step of a candidate, from the states of the Lease that it has read, and when. Pure.

Times are of the candidate's own monotonic clock; the timestamps that other machines write into a Lease are not compared
with it, so a clock that is wrong by minutes does no harm. A candidate waits a whole lease duration from the moment at
which it first read the Lease's current state; a leader counts its deadline from before it requested the renewal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Record:
    """The state of a Lease on the server; `holder` is "" after a release; `transitions` counts changes of holder."""

    holder: str
    duration_seconds: float
    transitions: int
    version: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A Lease's state as last read (`record`, None without a Lease) and the time from which others may acquire it."""

    record: Record | None
    free_at_seconds: float
    transitions: int = -1
    """Highest number of transitions seen so far, -1 for none: a Lease that was deleted continues from here."""


class ElectionStep(StrEnum):
    """The next step of a candidate for the Lease: create it, renew it, take it over or wait."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def update_sighting(
    before: Sighting | None, record: Record | None, now_seconds: float, lease_seconds: float, leading: bool = False
) -> Sighting:
    """Return the sighting after a read of the Lease; `leading` is true if this candidate may still write under it.

    A Lease that is the same as in `before` keeps its expiry; a changed one expires after `lease_seconds` or its own
    duration, whichever is longer. A Lease deleted since `before` may be acquired after `lease_seconds`, or at once if
    this candidate leads. A Lease without holder, or one that the first read does not find, may be acquired at once.
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
    """Return the next step of a candidate that has seen this state of the Lease."""
    record = sighting.record
    if record is not None and record.holder == identity:
        return ElectionStep.RENEW
    if now_seconds < sighting.free_at_seconds:
        return ElectionStep.WAIT
    return ElectionStep.CREATE if record is None else ElectionStep.TAKE


def next_transitions(sighting: Sighting, chosen: ElectionStep) -> int:
    """Return the number of transitions to write to the Lease: unchanged in a renewal, else one more than ever seen."""
    if chosen is ElectionStep.RENEW and sighting.record is not None:
        return sighting.record.transitions
    return sighting.transitions + 1
