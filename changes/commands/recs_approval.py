"""`cotenant recs confirm|decline|ladders|stop|back`: confirmations by a second person, and ladders of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cotenant.base.commands.call import DECLARED, LIVE, ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.session import EXIT_FINDINGS, new_app
from cotenant.base.errors import UsageError
from cotenant.base.people import Grant, Person, Role
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.commands.ledger_access import find_change, open_actions
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.model.tables import changes_table

if TYPE_CHECKING:
    from cotenant.changes.live_context import ClusterUser

WHOEVER: Final = Person("", grants=(Grant(Role.OWNER),))
"""The person at the command line: the cluster decides what they may write."""
LadderId = Annotated[str, typer.Argument(metavar="LADDER", help="Id of a ladder, or the beginning of the id.")]
ChangeId = Annotated[str, typer.Argument(metavar="CHANGE", help="Id of a waiting change, or the beginning of the id.")]

app = new_app()


@command(app, LIVE | ROWS, "cotenant recs confirm 3f9c21")
def confirm(call: CommandCall, change: ChangeId) -> None:
    """Confirm a change as its second person, under your cluster user name; its whole batch is then applied."""
    from cotenant.changes.second_approval import confirm as confirmed

    settings = call.settings
    with open_actions(settings) as actions:
        id_ = find_change(actions.journal.statuses(), change).change.id
        done = confirmed(actions, someone_of(actions.person, settings.section(AccessSettings)), id_)
    call.print(changes_table(done))
    bad = (ChangeState.FAILED, ChangeState.UNKNOWN)
    raise typer.Exit(EXIT_FINDINGS if any(s.state in bad for s in done) else 0)


@command(app, LIVE | ROWS, "cotenant recs decline 3f9c21")
def decline(call: CommandCall, change: ChangeId) -> None:
    """Cancel a change that waits for a second person."""
    from cotenant.changes.second_approval import decline as declined

    settings = call.settings
    with open_actions(settings) as actions:
        id_ = find_change(actions.journal.statuses(), change).change.id
        done = declined(actions, someone_of(actions.person, settings.section(AccessSettings)), id_)
    call.print(changes_table(done))


def someone_of(person: ClusterUser, access: AccessSettings) -> Person:
    """Return the cluster's user as a person with the roles that `access.roles` gives it.

    Prefixes that the cluster puts before user names are removed for the comparison with the roles. Raise UsageError if
    access.mode is none.
    """
    from cotenant.base.people import IdentitySource
    from cotenant.changes.access.grants import person_with_grants
    from cotenant.changes.access.settings import AccessMode

    if access.mode is AccessMode.NONE:
        raise UsageError(
            "access.mode is none, so that nobody has a role", fix="Use the settings that the dashboard uses."
        )
    prefixes = access.proxy
    groups = [group.removeprefix(prefixes.cluster_group_prefix) for group in person.groups]
    name = person.name.removeprefix(prefixes.cluster_user_prefix)
    return person_with_grants(name, groups, IdentitySource.PROXY, access)


@command(app, DECLARED | ROWS, "cotenant recs ladders", "cotenant recs ladders 3f9c21  # each step")
def ladders(
    call: CommandCall,
    ladder: Annotated[str, typer.Argument(metavar="LADDER", help="Show the steps of this ladder.")] = "",
) -> None:
    """List ladders (cuts of several steps, accepted as a whole) and their progress, without reading the cluster."""
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
    statuses = list(change_ledger.statuses().values())
    if ladder:
        progress = ladder_progress(find_ladder(change_ledger.ladders(), WHOEVER, ladder), statuses, pace)
        call.print(rungs_table(progress))
        if progress.words:
            message(f"{progress.status.state}: {progress.words}")
    else:
        call.print(ladders_table(ladders_of(change_ledger.ladders(), statuses, pace, WHOEVER)))
    ledger.close()


@command(app, LIVE, "cotenant recs stop 3f9c21 --reason 'we move to other nodes'")
def stop(
    call: CommandCall,
    ladder: LadderId,
    reason: Annotated[str, typer.Option("--reason", help="Why the ladder is stopped, kept in the audit log.")] = "",
) -> None:
    """Stop a ladder: no further step is applied, and the applied steps stay."""
    from cotenant.changes.soak.ladder_acts import stop_ladder

    with open_actions(call.settings) as actions:
        stopped = stop_ladder(actions, replace(WHOEVER, name=actions.person.name), ladder, reason)
    message(f"ladder {stopped.ladder.id} of {stopped.ladder.ref} is {stopped.state}: {stopped.words}")


@command(app, LIVE | ROWS, "cotenant recs back 3f9c21 --to 2", "cotenant recs back 3f9c21 --to 0  # all of it")
def back(
    call: CommandCall,
    ladder: LadderId,
    to: Annotated[int, typer.Option("--to", min=0, metavar="STEP", help="The last step to keep; 0 keeps none.")],
) -> None:
    """Stop a ladder and roll its steps back one by one, the latest first, down to step --to.

    Exit code 3: a step could not be rolled back, because somebody has changed the workload since.
    """
    from cotenant.changes.soak.ladder_acts import go_back

    with open_actions(call.settings) as actions:
        done = go_back(actions, replace(WHOEVER, name=actions.person.name), ladder, to)
    call.print(changes_table(done))
    raise typer.Exit(EXIT_FINDINGS if any(status.state.in_force for status in done) else 0)
