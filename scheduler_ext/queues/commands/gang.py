"""`cotenant get gangs`: lists gangs, whose pods are placed together or not at all."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table, print_totals
from cotenant.base.commands.results import Context, Kubeconfig, NamespaceOption, filter_rows
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.scheduler_ext.queues.commands.live_queues import finish, open_queues
from cotenant.scheduler_ext.queues.model.report import GangState

app = new_app()


@app.callback(epilog=examples("cotenant get gangs", "cotenant get gangs -n research --state NoRoom"))
def _family() -> None:
    """List gangs, whose pods are placed together or not at all."""


@app.command(
    name="list", epilog=examples("cotenant get gangs", "cotenant get gangs -n research --state Queued -o json")
)
def list_(
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    state: Annotated[
        list[GangState] | None, typer.Option("--state", help="List only gangs in this state; may be repeated.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List gangs with their state: how many pods exist, are placed, and must be placed together."""
    from cotenant.scheduler_ext.queues.model.tables import gang_table, gang_totals

    report = open_queues(session_of(ctx), kubeconfig, context).report
    rows = [row for row in report.gangs if not state or row.state in state]
    table = filter_rows(gang_table(rows), namespace, None)
    print_table(table, output, headers=not no_headers)
    if len(table):
        print_totals(gang_totals(table), output)
    if not report.gangs:
        message("the cluster has no gang: no PodGroup, and no pod with a gang's label or annotations (docs/queues.md)")
    elif not len(table):
        message(f"none of {len(report.gangs)} gangs is in the given namespaces and states")
    finish(report)
