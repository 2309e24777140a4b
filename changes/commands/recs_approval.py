"""`cotenant recs confirm|decline`: the second person of a change that somebody has accepted behind a login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import LIVE, ROWS, CommandCall, command
from cotenant.base.commands.session import EXIT_FINDINGS, new_app
from cotenant.base.errors import UsageError
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.commands.ledger_access import find_change, open_actions
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.tables import changes_table

if TYPE_CHECKING:
    from cotenant.base.people import Person
    from cotenant.changes.live_context import ClusterUser

ChangeId = Annotated[str, typer.Argument(metavar="CHANGE", help="Id of a change that waits, or its beginning.")]

app = new_app()


@command(app, LIVE | ROWS, "cotenant recs confirm 3f9c21")
def confirm(call: CommandCall, change: ChangeId) -> None:
    """As its second person, under the name that the cluster knows: do it, with all that was accepted with it."""
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
    """Cancel what waits for a second person."""
    from cotenant.changes.second_approval import decline as declined

    settings = call.settings
    with open_actions(settings) as actions:
        id_ = find_change(actions.journal.statuses(), change).change.id
        done = declined(actions, someone_of(actions.person, settings.section(AccessSettings)), id_)
    call.print(changes_table(done))


def someone_of(person: ClusterUser, access: AccessSettings) -> Person:
    """Return the user that the cluster reports, with the roles of `access.roles`.

    The prefixes that the cluster puts before names are removed for the comparison with the roles. Raises UsageError
    when access.mode is none.
    """
    from cotenant.base.people import IdentitySource
    from cotenant.changes.access.grants import person_with_grants
    from cotenant.changes.access.settings import AccessMode

    if access.mode is AccessMode.NONE:
        raise UsageError(
            "access.mode is none: nobody has a role", fix="Use the settings of the dashboard where it waits."
        )
    prefixes = access.proxy
    groups = [group.removeprefix(prefixes.cluster_group_prefix) for group in person.groups]
    return person_with_grants(
        person.name.removeprefix(prefixes.cluster_user_prefix), groups, IdentitySource.PROXY, access
    )
