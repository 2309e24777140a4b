"""EDGE: what people do with accepted ladders: list their steps, stop one, roll one back to an earlier step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.base.errors import NoData, UsageError
from cotenant.base.people import Person, Right
from cotenant.base.reasons import Reason
from cotenant.changes.accept import Actions
from cotenant.changes.decide.ladder import ladder_progress
from cotenant.changes.decide.lifecycle import Pace
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.ladder import LadderEvent, LadderProgress, LadderState, LadderStatus, steps_taken

FIX = "`cotenant recs ladders` lists all ladders."


def ladders_of(
    ladders: Mapping[str, LadderStatus], statuses: Sequence[ChangeStatus], pace: Pace, who: Person
) -> list[LadderProgress]:
    """Return the ladders (cuts in several steps) in the namespaces that the person may read, the newest first."""
    mine = [status for status in ladders.values() if who.may(Right.READ, status.ladder.namespace)]
    return [ladder_progress(status, statuses, pace) for status in sorted(mine, key=lambda s: -s.accepted_seconds)]


def find_ladder(ladders: Mapping[str, LadderStatus], who: Person, id_: str) -> LadderStatus:
    """Return the readable ladder whose id begins with `id_`; raise NoData if there is none, UsageError if several."""
    matching = (status for key, status in ladders.items() if key.startswith(id_))
    matches = [status for status in matching if who.may(Right.READ, status.ladder.namespace)]
    if len(matches) != 1 or not id_:
        message = f"{len(matches)} ladder ids begin with {id_!r}" if matches else f"there is no ladder {id_!r}"
        raise (UsageError if matches else NoData)(message, fix=FIX)
    return matches[0]


def stop_ladder(actions: Actions, who: Person, id_: str, why: str = "") -> LadderStatus:
    """Stop a ladder (a cut in several steps): no further step is applied; raise UsageError if it has ended."""
    status = find_ladder(actions.journal.ladders(), who, id_)
    who.require(Right.ACCEPT, status.ladder.namespace)
    sentence = f"stopped by {actions.person.name}" + (f": {why}" if why else "")
    stopped = actions.journal.record_ladder(status, LadderEvent.STOPPED, Reason.LADDER_PERSON.value, sentence)
    actions.finish()
    return stopped


def go_back(actions: Actions, who: Person, id_: str, place: int) -> list[ChangeStatus]:
    """Stop a ladder and roll its steps back, the last one first, down to step `place`; 0 rolls back all steps.

    If a step cannot be rolled back, because somebody has changed the workload since, it and the steps before it stay.
    """
    status = find_ladder(actions.journal.ladders(), who, id_)
    ladder = status.ladder
    who.require(Right.ACCEPT, ladder.namespace)
    taken = steps_taken(ladder, actions.journal.statuses().values())
    if not 0 <= place < len(taken):
        raise UsageError(
            f"ladder {ladder.id} has taken {len(taken)} steps: it cannot be rolled back to step {place}",
            fix=f"Name a step of 0 to {len(taken) - 1}; 0 is the state before step 1.",
        )
    if status.state is LadderState.UNDER_WAY:
        sentence = f"{actions.person.name} rolled the ladder back to step {place}"
        actions.journal.record_ladder(status, LadderEvent.STOPPED, Reason.LADDER_PERSON.value, sentence)
    done: list[ChangeStatus] = []
    for step in [step for batch in taken[place:][::-1] for step in batch[::-1]]:
        if step.state in (ChangeState.WAITING, ChangeState.AWAITING):
            done.append(actions.cancel(step, f"{actions.person.name} went back"))
        elif step.state.in_force:
            done.append(actions.roll_back(step))
            if done[-1].state is not ChangeState.ROLLED_BACK:
                break
    return done
