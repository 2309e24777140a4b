"""What people had done to a workload: the change, its events in the ledger, and the state that follows from them. Pure.

A change is never stored as it stands: its events are, in the order in which they happened, and `folded` says where it
is. The event `accepted` is written before the cluster is touched and holds all that is needed to do it, to see whether
it was done, and to take it back; a change without an outcome is visibly unknown until the cluster has been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cotenant.model.errors import UsageError
from cotenant.model.intent import Address


class Happened(StrEnum):
    """An event of a change, as the ledger writes it."""

    ACCEPTED = "accepted"
    WAITING = "waiting"
    """It waits until those of its batch that went first have soaked."""
    AWAITED = "awaited"
    """It waits until a second person has confirmed it."""
    CONFIRMED = "confirmed"
    RESUMED = "resumed"
    CANCELLED = "cancelled"
    APPLIED = "applied"
    REFUSED = "refused"
    VERIFIED = "verified"
    REGRESSED = "regressed"
    UNJUDGED = "unjudged"
    """It was to be judged, and what it is judged by could not be told: neither good nor bad."""
    ROLLBACK_ACCEPTED = "rollback-accepted"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_REFUSED = "rollback-refused"
    ROLLBACK_LOST = "rollback-lost"
    """Whoever asked for it ended before anything was sent."""


class ChangeState(StrEnum):
    """Where a change is."""

    UNKNOWN = "unknown"
    """Accepted, and nobody has written what became of it: read the cluster."""
    WAITING = "waiting"
    """Accepted, and kept back until the first of its batch have soaked; the cluster holds none of it."""
    AWAITING = "awaiting"
    """Accepted, and kept back until a second person confirms it; the cluster holds none of it."""
    CANCELLED = "cancelled"
    """It waited, and was never done."""
    APPLIED = "applied"
    FAILED = "failed"
    """The cluster refused it; nothing was changed."""
    VERIFIED = "verified"
    REGRESSED = "regressed"
    ROLLBACK_UNKNOWN = "rollback-unknown"
    ROLLED_BACK = "rolled-back"

    @property
    def settled(self) -> bool:
        """Whether the ledger says what the cluster holds."""
        return self not in (ChangeState.UNKNOWN, ChangeState.ROLLBACK_UNKNOWN)

    @property
    def in_force(self) -> bool:
        """Whether the cluster holds the change, as far as the ledger knows."""
        return self in (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.REGRESSED)


_IN_FORCE: Final = (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.REGRESSED)
TRANSITIONS: Final[Mapping[tuple[ChangeState | None, Happened], ChangeState]] = {
    (None, Happened.ACCEPTED): ChangeState.UNKNOWN,
    (ChangeState.UNKNOWN, Happened.APPLIED): ChangeState.APPLIED,
    (ChangeState.UNKNOWN, Happened.REFUSED): ChangeState.FAILED,
    (ChangeState.UNKNOWN, Happened.WAITING): ChangeState.WAITING,
    (ChangeState.UNKNOWN, Happened.AWAITED): ChangeState.AWAITING,
    (ChangeState.AWAITING, Happened.CONFIRMED): ChangeState.UNKNOWN,
    (ChangeState.AWAITING, Happened.CANCELLED): ChangeState.CANCELLED,
    (ChangeState.WAITING, Happened.RESUMED): ChangeState.UNKNOWN,
    (ChangeState.WAITING, Happened.CANCELLED): ChangeState.CANCELLED,
    (ChangeState.APPLIED, Happened.VERIFIED): ChangeState.VERIFIED,
    (ChangeState.APPLIED, Happened.REGRESSED): ChangeState.REGRESSED,
    (ChangeState.APPLIED, Happened.UNJUDGED): ChangeState.APPLIED,
    (ChangeState.VERIFIED, Happened.VERIFIED): ChangeState.VERIFIED,
    (ChangeState.VERIFIED, Happened.UNJUDGED): ChangeState.VERIFIED,
    (ChangeState.VERIFIED, Happened.REGRESSED): ChangeState.REGRESSED,
    **{(state, Happened.ROLLBACK_ACCEPTED): ChangeState.ROLLBACK_UNKNOWN for state in _IN_FORCE},
    (ChangeState.ROLLBACK_UNKNOWN, Happened.ROLLED_BACK): ChangeState.ROLLED_BACK,
    (ChangeState.ROLLBACK_UNKNOWN, Happened.ROLLBACK_REFUSED): ChangeState.APPLIED,
    (ChangeState.ROLLBACK_UNKNOWN, Happened.ROLLBACK_LOST): ChangeState.APPLIED,
}
"""Everything that may happen, and where it leads; anything else is refused before it is written."""


@dataclass(frozen=True, slots=True)
class Write:
    """One object of a change: the fields that move, as RFC 6902 operations with their tests.

    where: pointer of each field that moves -> its value before (None = absent) and after; subresource: by which
    door, such as `resize` of a pod.
    """

    address: Address
    uid: str
    operations: tuple[Mapping[str, Any], ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What was accepted: of which workload, by whom, on which evidence.

    id: also the annotation on the object by which a change is recognised; batch: changes accepted together;
    recommendation: digest and end of the history that it rests on; guardrails: rule -> "pass", "warn: ...",
    "overridden: ..."; wave: 0 goes first, 1 waits until wave 0 of the batch has soaked without harm.
    """

    id: str
    batch: str
    namespace: str
    kind: str
    name: str
    actor: str
    groups: tuple[str, ...]
    method: str
    recommendation: str
    writes: tuple[Write, ...]
    guardrails: Mapping[str, str] = field(default_factory=dict)
    saved_millicores: int = 0
    saved_bytes: int = 0
    wave: int = 0
    cluster: str = ""

    @property
    def workload(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A change and where it is: since when, and the words of the last event.

    begun_seconds: when it was about to be sent (accepted, confirmed or resumed): what soaks, soaks from then on; held:
    taking it back was refused once, so that no program tries that again by itself.
    """

    change: Change
    state: ChangeState
    accepted_seconds: float
    since_seconds: float
    actor: str
    words: str = ""
    begun_seconds: float = 0.0
    held: bool = False

    def moved(self, happened: Happened, seconds: float, actor: str, note: str = "") -> Standing:
        """Where it is after the next event; UsageError when that cannot happen now."""
        return replace(
            self,
            state=after(self.state, happened),
            since_seconds=seconds,
            actor=actor,
            words=note,
            begun_seconds=seconds if happened in (Happened.RESUMED, Happened.CONFIRMED) else self.begun_seconds,
            held=self.held or happened is Happened.ROLLBACK_REFUSED,
        )


def after(state: ChangeState | None, happened: Happened) -> ChangeState:
    """The next state; UsageError when this cannot happen now."""
    next_state = TRANSITIONS.get((state, happened))
    if next_state is None:
        raise UsageError(
            f"a change that is {state or 'not accepted'} cannot become {happened}",
            fix="Look at `cotenant recs changes`.",
        )
    return next_state


def folded(events: Iterable[tuple[str, Happened, float, str, Change | None, str]]) -> dict[str, Standing]:
    """Standing of each change by id, from (id, happened, time, actor, the change when accepted, words) in order."""
    standings: dict[str, Standing] = {}
    for id_, happened, seconds, actor, change, note in events:
        last = standings.get(id_)
        if last is not None:
            standings[id_] = last.moved(happened, seconds, actor, note)
        elif change is not None:
            standings[id_] = Standing(change, after(None, happened), seconds, seconds, actor, note, seconds)
    return standings
