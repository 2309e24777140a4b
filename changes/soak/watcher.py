"""EDGE: the watcher: does the steps that are due for accepted changes, and sends notifications.

`step` runs once: it settles changes without an outcome, verifies those that have soaked, continues canaries or rolls
their batch back, and rolls harmful changes back if the settings say so. Its state is the ledger, so that it can be
killed at any time; `run` repeats it until stopped. One watcher at a time has the ledger's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from cotenant.base.errors import ClusterForbidden, CotenantError, StoreBusy
from cotenant.base.kube import access_review
from cotenant.changes.accept import Actions, Guard
from cotenant.changes.decide.change_windows import is_open
from cotenant.changes.decide.lifecycle import Due, DueStep, due, due_rechecks
from cotenant.changes.model.change import ChangeEvent, ChangeState, ChangeStatus, Write, accepted_by_autopilot
from cotenant.changes.soak.objects import read_objects
from cotenant.changes.soak.reconcile import pace_of, settle_change, verify
from cotenant.changes.soak.verification import find_loss, why_not_send

ROUNDS: Final = 8
"""Most passes in one run: a step may make another one due (settle, verify, resume, roll back)."""
STOP_SECONDS: Final = 8.0
"""Longest wait for the end of a run when the watcher is stopped; the ledger lets the next watcher continue it."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """A notification: a title with event and subject, and a text; `bad` if somebody has to act."""

    title: str
    words: str
    bad: bool = False


Opened = Callable[[], AbstractContextManager[Actions]]
"""Opens actions with the ledger locked, under the watcher's name."""


class Climber(Protocol):
    """An object that applies the next steps of accepted ladders (cuts in several steps)."""

    def guard(self, actions: Actions) -> Guard:
        """Return the check that precedes each write of one run of the watcher."""

    def __call__(self, actions: Actions) -> list[ChangeStatus]:
        """Apply every step that is due; return the changes made."""


class NothingClimbed:
    """An object that applies no step of any ladder; used if no recommendations are available."""

    def guard(self, actions: Actions) -> Guard:
        """Return the check that the actions already make before each write, unchanged."""
        return actions.parts.guard

    def __call__(self, _actions: Actions) -> list[ChangeStatus]:
        """Do nothing."""
        return []


@contextmanager
def by_itself(opened: AbstractContextManager[Actions]) -> Iterator[Actions]:
    """Yield the actions with "cotenant (as its account)" as the actor instead of a person."""
    with opened as actions:
        actions.journal.actor = f"cotenant (as {actions.journal.actor})"
        yield actions


def accepted_by_people(status: ChangeStatus) -> bool:
    """Return whether a person accepted the change; the autopilot watches its own changes."""
    return not accepted_by_autopilot(status)


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The changes that a watcher handles, and whether it may send waiting changes.

    If `may_change` is None, the change windows of the settings decide. With `rechecks`, it regularly compares verified
    changes with the cluster, whoever accepted them.
    """

    mine: Callable[[ChangeStatus], bool] = accepted_by_people
    may_change: bool | None = None
    rechecks: bool = True


class Watcher:
    """Settles, verifies, continues and rolls back changes; `report` gets notifications, also those from `ahead`."""

    def __init__(
        self,
        opened: Opened,
        report: Callable[[list[News]], None],
        ahead: Callable[[float], Iterable[News]] = lambda _now: (),
        scope: WatchScope | None = None,
        climb: Climber | None = None,
    ) -> None:
        """`climb` applies the next steps of accepted ladders, after all other steps that were due."""
        self._opened = opened
        self._climb = climb or NothingClimbed()
        self._scope = scope or WatchScope()
        self._tell = report
        self._ahead = ahead
        self._told: set[str] = set()
        self._compared: dict[str, float] = {}
        """When each verified change was last compared with the cluster (Unix time), by its id."""

    def step(self) -> list[ChangeStatus]:
        """Do the steps that are due and return the affected changes; raise StoreBusy while the ledger is locked."""
        with self._opened() as opened:
            actions = opened.having(guard=self._climb.guard(opened))
            moved = _perform_due_steps(actions, self._scope)
            moved += self._climb(actions)
            now = actions.journal.clock.now_seconds()
            if self._scope.rechecks:
                moved += self._recheck(actions, now)
        news = [item for status in moved if (item := news_of(status)) is not None]
        fresh = [item for item in self._ahead(now) if item.title not in self._told]
        self._told.update(item.title for item in fresh)
        if news or fresh:
            self._tell([*news, *fresh])
        return moved

    def _recheck(self, actions: Actions, now_seconds: float) -> list[ChangeStatus]:
        """Record which verified changes are no longer in effect; an unreadable one keeps its state."""
        lost_changes: list[ChangeStatus] = []
        statuses = actions.journal.statuses().values()
        for status in due_rechecks(statuses, now_seconds, pace_of(actions.settings), self._compared):
            self._compared[status.change.id] = now_seconds
            try:
                if lost := find_loss(actions, status, read_objects(actions, [status.change])):
                    lost_changes.append(actions.events.record(status, ChangeEvent.GONE, lost))
            except CotenantError as error:
                log.info("a change could not be compared with the cluster", change=status.change.id, err=error.message)
        if lost_changes:
            actions.finish()
        return lost_changes

    def run(self, every_seconds: float, end: threading.Event) -> None:
        """Call `step` every `every_seconds` until `end` is set; errors are logged and tried again next time."""
        while not end.is_set():
            try:
                self.step()
            except StoreBusy as error:
                log.info("another process uses the ledger: trying again", err=error.message)
            except CotenantError as error:
                log.warning("the watcher could not check the changes", err=error.message, fix=error.fix)
            end.wait(every_seconds)

    def start(self, every_seconds: float) -> Callable[[], None]:
        """Run the watcher in a thread; return a function that stops it and waits up to STOP_SECONDS for its end."""
        end = threading.Event()
        thread = threading.Thread(target=self.run, args=(every_seconds, end), name="watcher", daemon=True)
        thread.start()

        def stop() -> None:
            end.set()
            thread.join(STOP_SECONDS)

        return stop


def news_of(status: ChangeStatus) -> News | None:
    """Return the notification about a change's new state; None if the change goes as expected."""
    titles = {
        ChangeState.REGRESSED: ("did harm", True),
        ChangeState.ROLLED_BACK: ("was rolled back", True),
        ChangeState.CANCELLED: ("was cancelled", True),
        ChangeState.FAILED: ("was refused", True),
        ChangeState.GONE: ("is no longer in force", False),
    }
    title, bad = ("could not be rolled back", True) if status.rollback_failed else titles.get(status.state, ("", False))
    if not title:
        return None
    change = status.change
    return News(f"{change.workload}: change {change.id} {title}", status.words or f"by {status.actor}", bad)


def _perform_due_steps(actions: Actions, scope: WatchScope) -> list[ChangeStatus]:
    """Do the steps that are due until none is left."""
    moved: dict[str, ChangeStatus] = {}
    stuck: set[tuple[str, Due]] = set()
    for _ in range(ROUNDS):
        now = actions.journal.clock.now_seconds()
        may_change = is_open(actions.settings.windows, now) if scope.may_change is None else scope.may_change
        pace = pace_of(actions.settings, may_change)
        statuses = actions.journal.statuses().values()
        steps = [s for s in due(statuses, now, pace, scope.mine) if _key(s) not in stuck]
        if not steps:
            break
        for step in steps:
            stuck.add(_key(step))
            try:
                moved_to = _perform_step(actions, step)
            except CotenantError as error:
                log.warning("a step failed", due=step.due, change=step.status.change.id, err=error.message)
                continue
            if moved_to == step.status:
                continue  # it could not be judged, still
            log.info("a due step of a change was done", due=step.due, change=moved_to.change.id, state=moved_to.state)
            moved[moved_to.change.id] = moved_to
    return list(moved.values())


def _key(step: DueStep) -> tuple[str, Due]:
    """Return the key that makes each step run once per call: a failed step is not tried again at once."""
    return step.status.change.id, step.due


def require_patching(actions: Actions, namespace: str, writes: Iterable[Write]) -> None:
    """Raise ClusterForbidden if the watcher's account may not make the writes: somebody else has to."""
    kinds = {(w.address.resource, w.address.api_version.rpartition("/")[0], w.subresource) for w in writes}
    for resource, group, subresource in sorted(kinds):
        where = (resource, group, namespace, subresource)
        if not access_review(actions.client, "patch", *where):
            name = "/".join(filter(None, where[::3]))
            raise ClusterForbidden(
                f"{actions.journal.actor} may not patch {name} in namespace {namespace}",
                fix="Bind the ClusterRole cotenant-applier to this account there, or patch the object by hand.",
            )


def _perform_step(actions: Actions, step: DueStep) -> ChangeStatus:
    status = step.status
    if step.due in (Due.RESUME, Due.ROLL_BACK):
        require_patching(actions, status.change.namespace, status.change.writes)
    match step.due:
        case Due.SETTLE:
            return settle_change(actions, status)
        case Due.VERIFY:
            return verify(actions, status)
        case Due.ROLL_BACK:
            return actions.roll_back(status, step.why)
        case Due.CANCEL:
            return actions.cancel(status, step.why)
        case Due.RESUME:  # sent, unless something is against it that nobody knew of when it was accepted
            why = why_not_send(actions, status)
            return actions.cancel(status, why) if why else actions.resume(status, step.why)
