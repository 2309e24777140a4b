"""A change to a workload that a person accepted: its writes, its events in the ledger, its state machine. Pure.

The ledger does not store a change's state but its events, in order; `fold_events` derives the state. The event
`accepted` is written before the cluster is touched. It holds all that is needed to apply the change, to see whether it
was applied, and to roll it back; a change without an outcome is `unknown` until the cluster is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Address
from cotenant.base.text import counted, moment, visible
from cotenant.recommender.model.savings import RequestTotals, Savings, joined_savings
from cotenant.recommender.model.steps import NextStep

AUTOPILOT_KEY_PREFIX: Final = "autopilot-"
"""Prefix of the batch of changes that the autopilot has accepted."""


class ChangeEvent(StrEnum):
    """An event of a change, by its name in the ledger."""

    ACCEPTED = "accepted"
    WAITING = "waiting"
    """The change waits until the first changes of its batch have soaked."""
    AWAITED = "awaited"
    """The change waits until a second person confirms it."""
    CONFIRMED = "confirmed"
    RESUMED = "resumed"
    CANCELLED = "cancelled"
    APPLIED = "applied"
    REFUSED = "refused"
    VERIFIED = "verified"
    REGRESSED = "regressed"
    UNJUDGED = "unjudged"
    """Verification was due, but data was missing: there is no verdict."""
    ROLLBACK_ACCEPTED = "rollback-accepted"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_REFUSED = "rollback-refused"
    ROLLBACK_LOST = "rollback-lost"
    """The process that accepted the rollback ended before anything was sent."""
    GONE = "gone"
    """The workload lost the written values, or was deleted."""


class ChangeState(StrEnum):
    """The state of a change."""

    UNKNOWN = "unknown"
    """Accepted, but no outcome is recorded: the cluster must be read."""
    WAITING = "waiting"
    """Accepted, but not sent until the first changes of its batch have soaked."""
    AWAITING = "awaiting"
    """Accepted, but not sent until a second person confirms it."""
    CANCELLED = "cancelled"
    """The change waited and was never sent."""
    APPLIED = "applied"
    FAILED = "failed"
    """The cluster refused the change; nothing was changed."""
    VERIFIED = "verified"
    REGRESSED = "regressed"
    ROLLBACK_UNKNOWN = "rollback-unknown"
    ROLLED_BACK = "rolled-back"
    GONE = "gone"
    """Another writer changed its values later, or the workload was deleted: the change is no longer in effect."""

    @property
    def settled(self) -> bool:
        """True if the ledger records the outcome of the last write."""
        return self not in (ChangeState.UNKNOWN, ChangeState.ROLLBACK_UNKNOWN)

    @property
    def in_force(self) -> bool:
        """True if the cluster has the change's values, as far as the ledger records."""
        return self in _IN_FORCE


_IN_FORCE: Final = (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.REGRESSED)
TRANSITIONS: Final[Mapping[tuple[ChangeState | None, ChangeEvent], ChangeState]] = {
    (None, ChangeEvent.ACCEPTED): ChangeState.UNKNOWN,
    (ChangeState.UNKNOWN, ChangeEvent.APPLIED): ChangeState.APPLIED,
    (ChangeState.UNKNOWN, ChangeEvent.REFUSED): ChangeState.FAILED,
    (ChangeState.UNKNOWN, ChangeEvent.WAITING): ChangeState.WAITING,
    (ChangeState.UNKNOWN, ChangeEvent.AWAITED): ChangeState.AWAITING,
    (ChangeState.AWAITING, ChangeEvent.CONFIRMED): ChangeState.UNKNOWN,
    (ChangeState.AWAITING, ChangeEvent.CANCELLED): ChangeState.CANCELLED,
    (ChangeState.WAITING, ChangeEvent.RESUMED): ChangeState.UNKNOWN,
    (ChangeState.WAITING, ChangeEvent.CANCELLED): ChangeState.CANCELLED,
    (ChangeState.APPLIED, ChangeEvent.VERIFIED): ChangeState.VERIFIED,
    (ChangeState.APPLIED, ChangeEvent.REGRESSED): ChangeState.REGRESSED,
    (ChangeState.APPLIED, ChangeEvent.UNJUDGED): ChangeState.APPLIED,
    (ChangeState.VERIFIED, ChangeEvent.VERIFIED): ChangeState.VERIFIED,
    (ChangeState.VERIFIED, ChangeEvent.UNJUDGED): ChangeState.VERIFIED,
    (ChangeState.VERIFIED, ChangeEvent.REGRESSED): ChangeState.REGRESSED,
    **{(state, ChangeEvent.ROLLBACK_ACCEPTED): ChangeState.ROLLBACK_UNKNOWN for state in _IN_FORCE},
    (ChangeState.ROLLBACK_UNKNOWN, ChangeEvent.ROLLED_BACK): ChangeState.ROLLED_BACK,
    (ChangeState.ROLLBACK_UNKNOWN, ChangeEvent.ROLLBACK_REFUSED): ChangeState.APPLIED,
    (ChangeState.ROLLBACK_UNKNOWN, ChangeEvent.ROLLBACK_LOST): ChangeState.APPLIED,
    (ChangeState.UNKNOWN, ChangeEvent.GONE): ChangeState.GONE,
    (ChangeState.ROLLBACK_UNKNOWN, ChangeEvent.GONE): ChangeState.GONE,
    **{(state, ChangeEvent.GONE): ChangeState.GONE for state in _IN_FORCE},
    # A release that does not know the event takes such a change for one in force, and writes on.
    (ChangeState.GONE, ChangeEvent.VERIFIED): ChangeState.GONE,
    (ChangeState.GONE, ChangeEvent.REGRESSED): ChangeState.GONE,
    (ChangeState.GONE, ChangeEvent.UNJUDGED): ChangeState.GONE,
    (ChangeState.GONE, ChangeEvent.ROLLBACK_ACCEPTED): ChangeState.ROLLBACK_UNKNOWN,
}
"""All allowed events by state, with the next state; other events are refused before they are recorded."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write to one object: RFC 6902 operations that change its fields, with their tests.

    `before` and `after` are the values of the changed fields by JSON pointer (None is absent); `subresource` is the one
    that is written, such as `resize` of a pod.
    """

    address: Address
    uid: str
    operations: tuple[Mapping[str, Any], ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedWork:
    """An acceptance for one workload by a person; `batch` identifies all changes that were accepted together."""

    id: str
    batch: str
    namespace: str
    kind: str
    name: str
    actor: str

    @property
    def ref(self) -> WorkloadRef:
        """The workload that changes."""
        return WorkloadRef(self.namespace, self.kind, self.name)


@dataclass(frozen=True, slots=True)
class Change(AcceptedWork):
    """An accepted change: its workload, the person who accepted it, and the evidence for it.

    `id` is also an annotation on the object; `recommendation` is the digest of the settings and the end of the history
    behind the values; `guardrails` are by rule, such as "pass" or "warn: ...". Wave 0 is sent first, each later `wave`
    after the ones before have soaked without harm. `next_steps` are the steps of a cut that remain after this one.
    """

    groups: tuple[str, ...]
    method: str
    recommendation: str
    writes: tuple[Write, ...]
    guardrails: Mapping[str, str] = field(default_factory=dict)
    saved_millicores: int = 0
    """Net CPU requests that the change frees: decreases less increases."""
    saved_bytes: int = 0
    raised_millicores: int = 0
    """Sum of the increases of CPU requests; 0 also in older rows, which have only the net value."""
    raised_bytes: int = 0
    wave: int = 0
    cluster: str = ""
    next_steps: tuple[NextStep, ...] = ()
    ladder: str = ""
    """Id of the ladder that the change is a step of; empty for a single change."""
    images: str = ""
    """Images of the template when the change was made, for which its verdict counts; empty in older rows."""
    paced: bool = False
    """The batch goes in waves because it is too large to change at once, not because of a canary."""

    def promising(self, savings: Savings) -> Change:
        """Return a copy of the change with these savings as the expected ones."""
        net, raises = savings.net, savings.raises
        return replace(
            self,
            saved_millicores=net.millicores,
            saved_bytes=net.bytes,
            raised_millicores=raises.millicores,
            raised_bytes=raises.bytes,
        )

    @property
    def savings(self) -> Savings:
        """The CPU and memory that the change is expected to free and to add; no money, which changes do not record."""
        bytes_ = max(self.raised_bytes, -self.saved_bytes)
        raises = RequestTotals(max(self.raised_millicores, -self.saved_millicores), bytes_)
        frees = RequestTotals(self.saved_millicores + raises.millicores, self.saved_bytes + raises.bytes)
        return Savings(frees, raises)

    @property
    def workload(self) -> str:
        """The changed workload, as NAMESPACE/KIND/NAME."""
        return str(self.ref)

    @property
    def rollback_note(self) -> str:
        """The text that a rollback writes to an object in place of the change's id."""
        return f"{self.id}-undone"


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """A change with its state: since when, and the text of the last event.

    The soak time starts at `begun_seconds`, when the change was accepted, confirmed or resumed. If `rollback_refused`,
    a rollback was refused once, and no program tries it again.
    """

    change: Change
    state: ChangeState
    accepted_seconds: float
    since_seconds: float
    actor: str
    words: str = ""
    begun_seconds: float = 0.0
    rollback_refused: bool = False
    verified_seconds: float = 0.0
    """Unix time of the last verdict without harm; 0: never."""
    harm: str = ""
    """The verdict of harm as text; it stays after a rollback."""
    harm_seconds: float = 0.0
    """Unix time of the verdict of harm; 0: never."""

    @property
    def rollback_failed(self) -> bool:
        """True if a rollback was refused and the cluster still has the change."""
        return self.rollback_refused and self.state is ChangeState.APPLIED

    @property
    def changed_seconds(self) -> float:
        """The latest of the Unix times at which the change was accepted, resumed, confirmed and rolled back."""
        is_back = self.state is ChangeState.ROLLED_BACK
        return self.since_seconds if is_back else max(self.accepted_seconds, self.begun_seconds)

    @property
    def last_step(self) -> str:
        """The present state with who caused it and when: "ana, Thu 12 Nov 21:54 UTC: rolled-back"."""
        return f"{visible(self.actor)}, {moment(self.since_seconds)}: {self.state.value}"

    def moved(self, happened: ChangeEvent, seconds: float, actor: str, note: str = "") -> ChangeStatus:
        """Return the status after the next event; raise UsageError if the state does not allow that event."""
        state = after(self.state, happened, self.last_step)
        is_harmful = state is ChangeState.REGRESSED
        return replace(
            self,
            state=state,
            harm=note if is_harmful else self.harm,
            harm_seconds=seconds if is_harmful else self.harm_seconds,
            since_seconds=seconds,
            actor=actor,
            words=note,
            begun_seconds=seconds if happened in (ChangeEvent.RESUMED, ChangeEvent.CONFIRMED) else self.begun_seconds,
            rollback_refused=self.rollback_refused or happened is ChangeEvent.ROLLBACK_REFUSED,
            verified_seconds=seconds if happened is ChangeEvent.VERIFIED else self.verified_seconds,
        )


def last_changes(statuses: Iterable[ChangeStatus]) -> dict[WorkloadRef, ChangeStatus]:
    """Return each workload's last change that is in effect, was rolled back, or has an unknown outcome."""
    written = (s for s in statuses if s.state.in_force or s.state is ChangeState.ROLLED_BACK or not s.state.settled)
    return {s.change.ref: s for s in sorted(written, key=lambda s: s.changed_seconds)}


def cool_downs(statuses: Iterable[ChangeStatus], wait_seconds: float, now_seconds: float) -> dict[WorkloadRef, float]:
    """Return when (Unix seconds) the cool-down of each recently changed workload ends: no cuts before that."""
    ends = {ref: last.changed_seconds + wait_seconds for ref, last in last_changes(statuses).items()}
    return {ref: end for ref, end in ends.items() if end > now_seconds}


def after(state: ChangeState | None, happened: ChangeEvent, last_step: str = "") -> ChangeState:
    """Return a change's next state; raise UsageError, quoting `last_step`, if the state does not allow the event."""
    next_state = TRANSITIONS.get((state, happened))
    if next_state is None:
        ended = state is not None and all(state is not before for before, _ in TRANSITIONS)
        stands = f"the change is {state} already: it" if ended else f"a change that is {state or 'not accepted'}"
        who = f" ({last_step})" if last_step else ""
        raise UsageError(f"{stands} cannot become {happened}{who}", fix="See the state: cotenant recs changes.")
    return next_state


def fold_events(events: Iterable[tuple[str, ChangeEvent, float, str, Change | None, str]]) -> dict[str, ChangeStatus]:
    """Return each change's status by id, from (id, event, time, actor, change if accepted, text) in order."""
    statuses: dict[str, ChangeStatus] = {}
    for id_, happened, seconds, actor, change, note in events:
        last = statuses.get(id_)
        if last is not None:
            statuses[id_] = last.moved(happened, seconds, actor, note)
        elif change is not None:
            statuses[id_] = ChangeStatus(change, after(None, happened), seconds, seconds, actor, note, seconds)
    return statuses


def count_of_states(statuses: Iterable[ChangeStatus], *states: ChangeState) -> int:
    """Count the changes that are in one of the states."""
    return measures.matching_count(status.state in states for status in statuses)


def states_summary(statuses: Iterable[ChangeStatus]) -> str:
    """Count changes by state, in the order of the states: "5 changes: 2 applied, 3 verified"."""
    numbers = Counter(status.state for status in statuses)
    parts = ", ".join(f"{numbers[state]:,} {state.value}" for state in ChangeState if numbers[state])
    return f"{counted(numbers.total(), 'change')}: {parts}" if parts else counted(0, "change")


def unsettled_count(statuses: Iterable[ChangeStatus]) -> int:
    """Count the changes whose outcome is unknown, until the cluster has been read."""
    return measures.matching_count(not status.state.settled for status in statuses)


def accepted_by_autopilot(status: ChangeStatus) -> bool:
    """Return whether the autopilot, and not a person, has accepted the change."""
    return status.change.batch.startswith(AUTOPILOT_KEY_PREFIX)


@dataclass(frozen=True, slots=True)
class ChangeSavings:
    """Savings of changes: expected of all accepted changes, of those in effect, and of those verified."""

    promised: Savings
    in_force: Savings
    verified: Savings


def change_savings(statuses: Sequence[ChangeStatus]) -> ChangeSavings:
    """Sum the savings of changes by resource; failed and cancelled changes count as expected, not as in effect."""
    return ChangeSavings(
        joined_savings(s.change.savings for s in statuses),
        joined_savings(s.change.savings for s in statuses if s.state.in_force),
        joined_savings(s.change.savings for s in statuses if s.state is ChangeState.VERIFIED),
    )


def verified_by_month(statuses: Sequence[ChangeStatus]) -> dict[str, int]:
    """Return, by UTC month with a verdict ("2026-11"), the net millicores freed by all changes verified by its end."""
    months = Counter[str]()
    for status in statuses:
        if status.state is ChangeState.VERIFIED:
            month = datetime.fromtimestamp(status.verified_seconds or status.since_seconds, UTC).strftime("%Y-%m")
            months[month] += status.change.savings.net.millicores
    return dict(zip(sorted(months), accumulate(months[month] for month in sorted(months)), strict=True))
