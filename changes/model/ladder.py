"""A ladder: a cut of several steps that a person accepted once as a whole. Pure.

Its row in the ledger keeps what was approved: the amounts of all steps, and the final ones. Each step is a separate
change, with its own verdict and rollback; the ladder's events say how far it has come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.changes.model.change import AcceptedWork, ChangeState, ChangeStatus
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.model.steps import NextStep

LADDER_KEY_PREFIX: Final = "ladder-"
"""Prefix of the batch of every ladder step that a program has applied."""


class LadderEvent(StrEnum):
    """An event of a ladder (a cut in several steps), by its name in the ledger; the row's subject is the ladder."""

    ACCEPTED = "ladder-accepted"
    """A person accepted all steps; recorded together with the first step."""
    WAITS = "ladder-waits"
    """The next step has to wait for a new reason."""
    STOPPED = "ladder-stopped"
    DONE = "ladder-done"


class LadderState(StrEnum):
    """The state of a ladder, which is a cut in several steps."""

    UNDER_WAY = "under-way"
    STOPPED = "stopped"
    """No further step is applied; applied steps stay."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class LadderTarget:
    """The final amount of one field of a container, in the resource's unit; None if the field is removed."""

    container: str
    resource: Resource
    field: Field
    amount: int | None


@dataclass(frozen=True, slots=True)
class Ladder(AcceptedWork):
    """A person's approval of all steps of one workload's cut.

    `batch` is that of the first step; `targets` are the final amounts, `heaps` the final maximum heap of each container
    in bytes; `steps` are all steps, the first included, as they were shown; `canary` is the share of pods that go first
    in each step.
    """

    method: str
    targets: tuple[LadderTarget, ...]
    steps: tuple[NextStep, ...]
    heaps: Mapping[str, int] = field(default_factory=dict)
    canary: float = 0.0
    groups: tuple[str, ...] = ()
    cluster: str = ""

    def key(self, taken: int) -> str:
        """Return the batch id of the step after `taken` steps; a retry gets the same id and changes nothing."""
        return f"{LADDER_KEY_PREFIX}{self.id}-{taken + 1}"


@dataclass(frozen=True, slots=True)
class LadderStatus:
    """The state of a ladder: since when, by whom, and why, as a code of docs/reasons.md and as text."""

    ladder: Ladder
    state: LadderState
    accepted_seconds: float
    since_seconds: float
    actor: str
    reason: str = ""
    words: str = ""

    def advance(self, happened: LadderEvent, seconds: float, actor: str, reason: str, text: str) -> LadderStatus:
        """Return the status after the next event; raise UsageError if the ladder has ended."""
        if self.state is not LadderState.UNDER_WAY or happened is LadderEvent.ACCEPTED:
            raise UsageError(
                f"ladder {self.ladder.id} is {self.state} already: it cannot become {happened}",
                fix="`cotenant recs ladders` shows the state of each ladder.",
            )
        ended = {LadderEvent.STOPPED: LadderState.STOPPED, LadderEvent.DONE: LadderState.DONE}
        return replace(
            self, state=ended.get(happened, self.state), since_seconds=seconds, actor=actor, reason=reason, words=text
        )


class RungState(StrEnum):
    """The state of one step of a ladder, which is a cut in several steps."""

    PLANNED = "planned"
    """The step may be applied once the one before is kept."""
    UNDER_WAY = "under-way"
    """The step is being applied, or is in its soak time."""
    KEPT = "kept"
    """The step was verified a whole day later without harm."""
    TAKEN_BACK = "taken-back"
    ENDED = "ended"
    """The step was refused, was cancelled, did harm, or lost its values."""
    LEFT_OUT = "left-out"
    """The ladder ended before the step."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a ladder: its number from 1 (`place`), its new requests (`moves`), and the ids of its `changes`.

    `from_seconds` is when it was applied, or the earliest time at which it may be.
    """

    place: int
    state: RungState
    from_seconds: float
    moves: tuple[NextStep, ...]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LadderProgress:
    """A ladder (a cut in several steps) with every step's state, and why the next step is not applied yet.

    `reason` is a code of docs/reasons.md, "" if nothing prevents the next step; `words` is the reason as text.
    """

    status: LadderStatus
    rungs: tuple[Rung, ...]
    reason: str = ""
    words: str = ""

    @property
    def steps_begun(self) -> int:
        """Number of steps that were begun."""
        return sum(bool(rung.changes) for rung in self.rungs)

    @property
    def steps_accepted(self) -> int:
        """Number of steps that were accepted."""
        return len(planned_rungs(self.status.ladder.steps))


def ladder_id(key: str, workload: WorkloadRef) -> str:
    """Return the id of the ladder of a workload; the same request key gives the same id."""
    return hashlib.sha256(f"{key} {workload}".encode()).hexdigest()[:12]


def steps_taken(ladder: Ladder, statuses: Iterable[ChangeStatus]) -> list[list[ChangeStatus]]:
    """Return the changes of a ladder grouped by step, in order; the changes of one step were accepted together."""
    batches: dict[str, list[ChangeStatus]] = {}
    for status in statuses:
        if status.change.ladder == ladder.id:
            batches.setdefault(status.change.batch, []).append(status)
    return list(batches.values())


def planned_rungs(steps: Sequence[NextStep]) -> list[tuple[NextStep, ...]]:
    """Return a plan's request changes grouped into steps by their time, the earliest first."""
    times = sorted({step.from_seconds for step in steps})
    return [tuple(step for step in steps if step.from_seconds == time) for time in times]


def rungs(status: LadderStatus, statuses: Iterable[ChangeStatus], is_kept: Mapping[str, bool]) -> list[Rung]:
    """Return all steps of a ladder with their states; `is_kept` is {change id: whether it was verified twice}."""
    taken = steps_taken(status.ladder, statuses)
    planned = planned_rungs(status.ladder.steps)
    later = RungState.PLANNED if status.state is LadderState.UNDER_WAY else RungState.LEFT_OUT
    rungs_taken = []
    for place, batch in enumerate(taken, 1):
        states, ids = {step.state for step in batch}, tuple(step.change.id for step in batch)
        if states & {ChangeState.ROLLED_BACK, ChangeState.ROLLBACK_UNKNOWN}:
            state = RungState.TAKEN_BACK
        elif states & {ChangeState.FAILED, ChangeState.CANCELLED, ChangeState.REGRESSED, ChangeState.GONE}:
            state = RungState.ENDED
        else:
            state = RungState.KEPT if all(is_kept.get(id_, False) for id_ in ids) else RungState.UNDER_WAY
        moves = planned[place - 1] if place <= len(planned) else ()
        rungs_taken.append(Rung(place, state, batch[0].accepted_seconds, moves, ids))
    if status.state is LadderState.DONE:
        return rungs_taken
    rest = enumerate(planned[len(taken) :], len(taken) + 1)
    return [*rungs_taken, *(Rung(place, later, moves[0].from_seconds, moves) for place, moves in rest)]
