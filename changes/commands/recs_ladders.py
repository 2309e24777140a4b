"""`cotenant recs ladders|stop|back`: cuts of several steps that were accepted as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.commands.call import DECLARED, LIVE, ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.session import EXIT_FINDINGS, new_app
from cotenant.base.people import Grant, Person, Role
from cotenant.changes.commands.ledger_access import open_actions
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.model.tables import changes_table

LadderId = Annotated[str, typer.Argument(metavar="LADDER", help="Id of a ladder, or its beginning.")]

app = new_app()


@command(app, DECLARED | ROWS, "cotenant recs ladders", "cotenant recs ladders 3f9c21  # each step")
def ladders(
    call: CommandCall,
    ladder: Annotated[str, typer.Argument(metavar="LADDER", help="Show each step of this ladder.")] = "",
) -> None:
    """Cuts of several steps that were accepted as a whole, and their progress; asks no cluster."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.change_ledger import ChangeLedger
    from cotenant.changes.commands.ledger_access import open_ledger
    from cotenant.changes.decide.ladder import ladder_progress
    from cotenant.changes.model.ladder_tables import ladders_table, rungs_table
    from cotenant.changes.soak.ladder_acts import find_ladder, ladders_of
    from cotenant.changes.soak.reconcile import pace_of

    settings = call.settings
    ledger = open_ledger(settings)
    change_ledger, pace = ChangeLedger(ledger, SystemClock(), ""), pace_of(settings.section(ActionSettings))
    statuses, who = list(change_ledger.statuses().values()), _whoever("")
    if ladder:
        found = ladder_progress(find_ladder(change_ledger.ladders(), who, ladder), statuses, pace)
        call.print(rungs_table(found))
        if found.words:
            message(f"{found.status.state}: {found.words}")
    else:
        call.print(ladders_table(ladders_of(change_ledger.ladders(), statuses, pace, who)))
    ledger.close()


@command(app, LIVE, "cotenant recs stop 3f9c21 --reason 'we move to other nodes'")
def stop(
    call: CommandCall,
    ladder: LadderId,
    reason: Annotated[str, typer.Option("--reason", help="Why; the ledger keeps it.")] = "",
) -> None:
    """Take no further step of a ladder; what was taken stays."""
    from cotenant.changes.soak.ladder_acts import stop_ladder

    with open_actions(call.settings) as actions:
        stopped = stop_ladder(actions, _whoever(actions.person.name), ladder, reason)
    message(f"ladder {stopped.ladder.id} of {stopped.ladder.ref} is {stopped.state}: {stopped.words}")


@command(app, LIVE | ROWS, "cotenant recs back 3f9c21 --to 2", "cotenant recs back 3f9c21 --to 0  # all of it")
def back(
    call: CommandCall,
    ladder: LadderId,
    to: Annotated[int, typer.Option("--to", min=0, metavar="STEP", help="The last step that stays; 0: none.")],
) -> None:
    """Roll the last steps of a ladder back, one after the other, and stop it there.

    Exit code 3 when a step could not be rolled back: somebody has changed the workload since.
    """
    from cotenant.changes.soak.ladder_acts import go_back

    with open_actions(call.settings) as actions:
        done = go_back(actions, _whoever(actions.person.name), ladder, to)
    call.print(changes_table(done))
    raise typer.Exit(EXIT_FINDINGS if any(status.state.in_force for status in done) else 0)


def _whoever(name: str) -> Person:
    """Return the person at the command line: what they may write, the cluster decides."""
    return Person(name, grants=(Grant(Role.OWNER),))
