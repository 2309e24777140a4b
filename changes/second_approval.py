"""EDGE: confirmation of a change by a second person, or its cancellation.

Either is for all changes that were accepted together, so that a canary is confirmed with the rest of its batch. Rights
are checked in each namespace; the rules themselves are in `cotenant.changes.decide.lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cotenant.base.errors import NoData, UsageError
from cotenant.base.people import NotAllowed, Person, Right
from cotenant.changes.accept import Actions
from cotenant.changes.decide.change_windows import is_open
from cotenant.changes.decide.lifecycle import same_person, why_not_confirm
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.soak.reconcile import pace_of
from cotenant.changes.soak.verification import why_not_send

FIX: Final = "The Changes page and `cotenant recs changes` show the change's state."


def confirm(actions: Actions, who: Person, change: str) -> list[ChangeStatus]:
    """Confirm a change and its batch as second person, and send what need not wait; raise NotAllowed or UsageError."""
    statuses = _awaiting_batch(actions, who, change, lambda status: who.require(Right.APPROVE, status.change.namespace))
    now = actions.journal.clock.now_seconds()
    pace = pace_of(actions.settings, is_open(actions.settings.windows, now))
    for status in statuses:
        if why := why_not_confirm(status, who.name, now, pace) or why_not_send(actions, status):
            raise UsageError(f"change {status.change.id} cannot be confirmed: {why}", fix=FIX)
    return actions.confirm(statuses)


def decline(actions: Actions, who: Person, change: str) -> list[ChangeStatus]:
    """Cancel the changes of a batch that wait for a second person; the person who accepted them may cancel them too."""

    def may(status: ChangeStatus) -> None:
        own = same_person(status.change.actor, who.name)
        who.require(Right.ACCEPT if own else Right.APPROVE, status.change.namespace)

    return [actions.cancel(status, f"declined by {who.name}") for status in _awaiting_batch(actions, who, change, may)]


def _awaiting_batch(
    actions: Actions, who: Person, change: str, may: Callable[[ChangeStatus], None]
) -> list[ChangeStatus]:
    """Return the change and the others of its batch that wait; raise an error if the person may not decide on one."""
    statuses = actions.journal.statuses()
    status = statuses.get(change)
    if status is None or not who.may(Right.READ, status.change.namespace):
        raise NoData(f"there is no change {change!r}", fix="`cotenant recs changes` lists all changes.")
    may(status)
    if status.state is not ChangeState.AWAITING:
        raise UsageError(f"change {change} does not wait for a second person: it is {status.state}", fix=FIX)
    together = [s for s in statuses.values() if s.change.batch == status.change.batch and s.state is status.state]
    if any(not who.may(Right.READ, status.change.namespace) for status in together):
        raise NotAllowed(
            f"change {change} waits together with changes in namespaces that you may not read",
            fix="Ask somebody with a role in all of these namespaces.",
        )
    for status in together:
        may(status)
    return together
