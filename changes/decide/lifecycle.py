"""Decide which steps are due for accepted changes: settle, verify, resume, cancel, roll back. Pure.

A batch with a canary applies its first wave, lets it soak and verifies it. Without harm the rest is resumed; otherwise
the first wave is rolled back and the rest cancelled. Every step is an event in the ledger, so that another process can
continue if one ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant.changes.model.change import ChangeState, ChangeStatus


class Due(StrEnum):
    """The kind of step that is due for a change."""

    SETTLE = "settle"
    """Find the outcome of the change."""
    VERIFY = "verify"
    RESUME = "resume"
    CANCEL = "cancel"
    ROLL_BACK = "roll-back"


@dataclass(frozen=True, slots=True)
class DueStep:
    """A change with the step that is due for it, and why."""

    due: Due
    status: ChangeStatus
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times at which steps on changes are due, and the steps that are allowed.

    A change is verified at the ages `soak_seconds` and `verify_seconds`; a second person has `confirm_seconds` to
    confirm. `auto_rollback` allows to roll harmful changes back; `may_change` is true while a change window is open.
    """

    soak_seconds: float
    verify_seconds: float
    auto_rollback: bool = False
    may_change: bool = True
    confirm_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Regressed:
    """The condition Regressed of a Recommendation: status, reason (one word) and message."""

    true: bool
    reason: str
    message: str


RECHECK_SECONDS: Final = 21_600.0
"""Time after which a verified change is compared with the cluster again. Savings shown are a quarter of a day old at
most."""
MOST_RECHECKS: Final = 50
"""Largest number of changes that one run of the watcher compares. With a run a minute 18,000 in a quarter of a day."""

_BAD: Final = (
    ChangeState.FAILED,
    ChangeState.REGRESSED,
    ChangeState.ROLLED_BACK,
    ChangeState.ROLLBACK_UNKNOWN,
    ChangeState.GONE,
)
_ENDED: Final = (ChangeState.FAILED, ChangeState.CANCELLED, ChangeState.GONE)
"""States without harm in which a change stays, and holds up nothing of a batch that is only paced."""
_NOT_BEGUN: Final = (ChangeState.WAITING, ChangeState.CANCELLED, ChangeState.AWAITING)


def of_anybody(_status: ChangeStatus) -> bool:
    """Return True: select every change; the default of the parameter `mine` of `due`."""
    return True


def due(
    statuses: Iterable[ChangeStatus], now_seconds: float, pace: Pace, mine: Callable[[ChangeStatus], bool] = of_anybody
) -> list[DueStep]:
    """Return the steps that are due now, at most one per change.

    `mine` selects the changes whose steps are returned. Other changes still count: a waiting change of a batch waits
    for all changes of the batch that went before.
    """
    step_by_change: dict[str, DueStep] = {}
    batches: dict[str, list[ChangeStatus]] = defaultdict(list)
    everything = tuple(statuses)
    for status in everything:
        batches[status.change.batch].append(status)
    # Verified changes of which a later one in force has written a field again: harm from then on is that one's.
    last: dict[tuple[str, str, str], str] = {}
    superseded: set[str] = set()
    for status in (status for status in everything if status.state.in_force):
        for write in status.change.writes:
            for pointer in write.after:
                field = (write.address.path, write.uid, pointer)
                superseded |= {last[field]} if field in last else set()
                last[field] = status.change.id
    replaced = superseded & {status.change.id for status in everything if status.state is ChangeState.VERIFIED}
    expired = f"no second person confirmed the change within {pace.confirm_seconds / 3600:g} hours"
    for batch in batches.values():
        steps = [DueStep(Due.SETTLE, status, "change outcome unknown") for status in batch if not status.state.settled]
        awaiting = (status for status in batch if status.state is ChangeState.AWAITING)
        late = (status for status in awaiting if _is_confirmation_expired(status, now_seconds, pace))
        steps += [DueStep(Due.CANCEL, status, expired) for status in late]
        steps += _canary(batch, pace)
        for status in (status for status in batch if status.change.id not in replaced):
            did_harm = status.state is ChangeState.REGRESSED and not status.rollback_refused
            if did_harm and (pace.auto_rollback or status.change.ladder):
                steps.append(DueStep(Due.ROLL_BACK, status, status.words))
            if any(status.begun_seconds + age <= now_seconds for age in _ages(status, pace)):
                steps.append(DueStep(Due.VERIFY, status))
        for step in steps:
            step_by_change.setdefault(step.status.change.id, step)
    return [step for step in step_by_change.values() if mine(step.status)]


def regressed_condition(status: ChangeStatus) -> Regressed | None:
    """Return the condition Regressed that a change's state sets on its Recommendation; None leaves it as it is.

    A rollback leaves it true, because the same recommendation would do the same harm again.
    """
    what = f"change {status.change.id}: {status.words}"
    if status.state is ChangeState.REGRESSED:
        return Regressed(True, "DidHarm", what)
    if status.state is ChangeState.VERIFIED:
        return Regressed(False, "Held", what)
    return None


def why_not_confirm(status: ChangeStatus, name: str, now_seconds: float, pace: Pace) -> str:
    """Return why this person cannot confirm a change as its second person now; "" if the person can."""
    if status.state is not ChangeState.AWAITING:
        return f"the change does not wait for a second person: it is {status.state}"
    if same_person(status.change.actor, name):
        return f"{name or 'nobody'} cannot be the second person for a change that {status.change.actor} has accepted"
    if _is_confirmation_expired(status, now_seconds, pace):
        return f"the change has waited for more than {pace.confirm_seconds / 3600:g} hours"
    if not pace.may_change and not status.change.guardrails.get("change-window", "").startswith("overridden"):
        return "no change window is open"
    return ""


def same_person(name: str, other: str) -> bool:
    """Return whether two names may be of one person, ignoring case and a cluster's prefix such as `oidc:`.

    The name "" may be of any person.
    """
    first, second = sorted((name.casefold(), other.casefold()), key=len)
    return not first or first == second or second.endswith((f":{first}", f"#{first}"))


def is_verified_again(status: ChangeStatus, pace: Pace) -> bool:
    """Return whether a change has already been verified for the second time, at the age `verify_seconds`."""
    return status.verified_seconds >= status.begun_seconds + pace.verify_seconds


def due_rechecks(
    statuses: Iterable[ChangeStatus], now_seconds: float, pace: Pace, last_seconds: Mapping[str, float]
) -> list[ChangeStatus]:
    """Return changes whose verification is final and that are due to be compared with the cluster, oldest check first.

    Verification is final after the second verdict, after harm, or after a refused rollback. `last_seconds` says when
    each was compared last, by id; those never compared by this process come first. At most MOST_RECHECKS are returned.
    """
    final = (s for s in statuses if s.state.in_force and not _ages(s, pace))
    overdue = [s for s in final if last_seconds.get(s.change.id, 0.0) + RECHECK_SECONDS <= now_seconds]
    return sorted(overdue, key=lambda status: last_seconds.get(status.change.id, 0.0))[:MOST_RECHECKS]


def _is_confirmation_expired(status: ChangeStatus, now_seconds: float, pace: Pace) -> bool:
    return now_seconds >= status.accepted_seconds + pace.confirm_seconds


def _canary(batch: Sequence[ChangeStatus], pace: Pace) -> Iterator[DueStep]:
    """Yield the steps due for a batch's waiting changes and for the changes that went before them.

    In a batch that is only paced, harm cancels the rest and a refused change delays nothing; a canary decides for all.
    """
    if not any(status.change.wave for status in batch) or not all(status.state.settled for status in batch):
        return
    active = [status for status in batch if status.state not in _NOT_BEGUN]
    waiting = [status for status in batch if status.state is ChangeState.WAITING]
    front = max((status.change.wave for status in active), default=0)
    keeping = [  # which keep those after them from being done
        s for s in active if s.rollback_refused or (s.state in _BAD and not (s.change.paced and s.state in _ENDED))
    ]
    bad = min(keeping, key=lambda status: status.state is ChangeState.GONE, default=None)  # harm first
    if bad is not None:
        why = f"{bad.change.workload}, changed first, is {bad.state}" + (f": {bad.words}" if bad.words else "")
        yield from (DueStep(Due.CANCEL, status, why) for status in waiting)
        takes_back = not bad.change.paced and bad.state is not ChangeState.GONE
        if takes_back and bad.change.wave == front < max(status.change.wave for status in batch):
            yield from (
                DueStep(Due.ROLL_BACK, status, why)
                for status in batch
                if status.change.wave == front and status.state.in_force and not status.rollback_refused
            )
    elif pace.may_change and waiting:
        following = min(status.change.wave for status in waiting)
        before = [status for status in batch if status.change.wave < following]
        if all(s.state is ChangeState.VERIFIED or (s.change.paced and s.state in _ENDED) for s in before):
            why = f"{len(before)} of the batch's changes were made first and did no harm in the soak time"
            yield from (DueStep(Due.RESUME, status, why) for status in waiting if status.change.wave == following)


def _ages(status: ChangeStatus, pace: Pace) -> tuple[float, ...]:
    """Return the ages in seconds at which the change is still to be verified."""
    if status.rollback_refused:
        return ()
    if status.state is ChangeState.APPLIED:
        return (pace.soak_seconds,)
    if status.state is ChangeState.VERIFIED and not is_verified_again(status, pace):
        return (pace.verify_seconds,)
    return ()
