"""EDGE: settles changes without a recorded outcome by reading the cluster, and verifies those that have soaked."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.base.errors import ClusterUnreachable, CotenantError, NoData, NotLeader, StoreError
from cotenant.base.text import duration
from cotenant.changes.accept import Actions
from cotenant.changes.decide.field_changes import carries
from cotenant.changes.decide.in_force import object_writes
from cotenant.changes.decide.in_place import RESIZE, summarize_resize_answers
from cotenant.changes.decide.lifecycle import Pace
from cotenant.changes.model.change import ChangeEvent, ChangeState, ChangeStatus, Write
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.objects import read_object, read_objects
from cotenant.changes.soak.verification import compute_change_verdict

VERIFY_HOURS: Final = 24.0
"""Age at which a change is verified again. One whole daily pattern after the change."""

FOUND: Final = "found in the cluster"
QUIET_SECONDS: Final = 2.0
"""A request of a process that ended may still arrive, so younger changes are not settled."""


def settle(actions: Actions) -> list[ChangeStatus]:
    """Settle every change that has no recorded outcome: read its objects from the cluster, and record its outcome.

    A change whose objects cannot be read keeps its state, with the reason as its text. Raise ClusterUnreachable if the
    cluster does not answer, StoreError if the ledger cannot be written, NotLeader if another replica has the Lease.
    """
    statuses = []
    for status in [s for s in actions.journal.statuses().values() if not s.state.settled]:
        try:
            statuses.append(settle_change(actions, status))
        except (ClusterUnreachable, NotLeader, StoreError):
            raise
        except CotenantError as error:
            statuses.append(replace(status, words=str(error)))
    return statuses


def settle_change(actions: Actions, status: ChangeStatus) -> ChangeStatus:
    """Settle one change that has no recorded outcome: read its objects from the cluster, and record its outcome."""
    settled = _settle_change(actions, status)
    actions.parts.reached("settled")
    actions.finish()
    return settled


def verify(actions: Actions, status: ChangeStatus) -> ChangeStatus:
    """Verify a change after its soak time, and a second time later; raise NoData before the soak time is over.

    The module `verification` defines what counts as harm. If a configured query has no answer, the change keeps its
    state without a verdict.
    """
    pace, now = pace_of(actions.settings), actions.journal.clock.now_seconds()
    age = pace.verify_seconds if status.state is ChangeState.VERIFIED else pace.soak_seconds
    remaining_seconds = status.begun_seconds + age - now
    if remaining_seconds > 0:
        remaining = duration(math.ceil(remaining_seconds))
        raise NoData(f"the soak time of change {status.change.id} ends in {remaining}", fix="Verify the change then.")
    happened, message, verdict = compute_change_verdict(actions, status)
    if happened is ChangeEvent.UNJUDGED and status.words == message:
        return status
    verified = actions.events.record(status, happened, message, verdict)
    actions.parts.reached("judged")
    actions.finish()
    return verified


def pace_of(settings: ActionSettings, may_change: bool = True) -> Pace:
    """Return the settings' pace; changes are finally verified after VERIFY_HOURS, or after the soak time if longer."""
    soak = 60 * settings.soak_minutes
    return Pace(soak, max(soak, 3600 * VERIFY_HOURS), settings.auto_rollback, may_change, 3600 * settings.confirm_hours)


def _settle_change(actions: Actions, status: ChangeStatus) -> ChangeStatus:
    """Find the state of a change with an unknown outcome by reading every object that it should have written.

    Workload deleted: gone. All written: applied. Nothing written: refused, or waiting if its wave is not the first.
    Partly written: rolled back and refused.
    """
    # Wait until a write of the process that was last to act on the change has arrived, and none can follow it.
    fenced = actions.journal.fence(status.change.id)
    waited = 0.0 if fenced else actions.journal.clock.now_seconds() - status.since_seconds
    time.sleep(max(0.0, min(QUIET_SECONDS, QUIET_SECONDS - waited)))
    back = status.state is ChangeState.ROLLBACK_UNKNOWN
    writes = object_writes([status.change])
    live = read_objects(actions, [status.change])
    if writes and not any(_is_same(live[write.address.path], write) for write in writes):
        what = "rolled back" if back else "applied"  # of objects that are gone nobody can read it any more
        names = list(dict.fromkeys(str(write.address) for write in writes))
        verb = "was" if len(names) == 1 else "were"
        deletion = f"{', '.join(names)} {verb} deleted before it was known whether the change had been {what}"
        return actions.events.record(status, ChangeEvent.GONE, deletion)
    note = status.change.rollback_note if back else status.change.id
    write_states = [(write, _holds(actions, write, note, back)) for write in status.change.writes]
    live_writes = [write for write, is_live in write_states if is_live]
    complete = bool(live_writes) and not any(is_live is False for _, is_live in write_states)
    if back:
        return _rolled_back(actions, status, write_states)
    if complete:
        answers = actions.resize_answers(live_writes)
        why, message = summarize_resize_answers(answers) if answers else ("", "")
        if why:
            return actions.roll_back_and_fail(status, live_writes, why)
        return actions.events.record(status, ChangeEvent.APPLIED, "; ".join(filter(None, (FOUND, message))))
    if status.change.wave and not live_writes:
        return actions.events.record(status, ChangeEvent.WAITING, "nothing was written; the change still waits")
    why = "the change was partly applied" if live_writes else "no write reached the cluster"
    return actions.roll_back_and_fail(status, live_writes, why)


def _rolled_back(actions: Actions, status: ChangeStatus, states: Sequence[tuple[Write, bool | None]]) -> ChangeStatus:
    """Continue a rollback that reached the cluster; record one that did not as lost. Ended pods do not count."""
    if states and all(is_live is False for _, is_live in states):
        return actions.events.record(status, ChangeEvent.ROLLBACK_LOST, "the cluster still has the change")
    try:
        actions.roll_back_writes([write for write, is_live in states if is_live is False], status.change)
    except CotenantError as error:
        return actions.events.record(status, ChangeEvent.ROLLBACK_REFUSED, f"only partly rolled back: {error}")
    message = "; ".join(filter(None, (FOUND, actions.roll_back_new_pods(status.change))))
    return actions.events.record(status, ChangeEvent.ROLLED_BACK, message)


def _is_same(live: Mapping[str, Any] | None, write: Write) -> bool:
    return live is not None and (live.get("metadata") or {}).get("uid") == write.uid


def _holds(actions: Actions, write: Write, note: str, back: bool) -> bool | None:
    """Return whether the object has the write; None for a pod that has ended."""
    live = read_object(actions, write.address)
    if live is None or not _is_same(live, write):
        return None if write.subresource == RESIZE else False
    expected = replace(write, before=write.after, after=write.before) if back else write
    return carries(live, expected, note)
