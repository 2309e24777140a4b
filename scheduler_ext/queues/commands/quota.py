"""`cotenant get quotas`, `get waiting`, `explain queue`: the quota tree, the waiting pods, and why they wait."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.commands.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    NoHeadersOption,
    OutputOption,
    message,
    print_document,
    print_table,
    print_totals,
)
from cotenant.base.commands.results import Context, Kubeconfig, NamespaceOption, filter_rows
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.identity import PodName
from cotenant.scheduler_ext.queues.commands.live_queues import NO_QUOTAS, finish, open_queues

app = new_app()


@app.callback(
    epilog=examples(
        "cotenant get quotas", "cotenant get waiting -n research", "cotenant explain queue train-0 -n research"
    )
)
def _family() -> None:
    """Show what quotas use, borrow and lend, and which pods wait for them."""


@app.command(
    epilog=examples(
        "cotenant get quotas",
        "cotenant get quotas --resource cpu -n research",
        "cotenant get quotas -o csv  # exact amounts: millicores, bytes",
    )
)
def tree(
    ctx: typer.Context,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Show only quotas of this namespace's pods, and their parents; may be repeated.",
        ),
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option("--resource", metavar="NAME", help="Show only this resource; may be repeated.")
    ] = None,
    tree_id: Annotated[
        str | None,
        typer.Option("--tree", metavar="ID", help="Show only the quota tree with this id; '' is the default tree."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show the quota tree: each quota's guarantee, limit, runtime and use, and what it borrows and lends."""
    from cotenant.base.table import Table
    from cotenant.scheduler_ext.queues.model.tables import quota_table, quota_totals

    queues = open_queues(session_of(ctx), kubeconfig, context)
    rows = [
        row
        for row in queues.report.quotas
        if (not resource or row.resource in resource)
        and (tree_id is None or row.tree == tree_id)
        and (not namespace or row.quota in queues.quotas_of(namespace))
    ]
    table = shown = quota_table(rows)
    if output in (Format.TABLE, Format.WIDE):  # each name as deep as its quota is in the tree
        rows_with_cells = zip(table.rows(), rows, strict=True)
        indented = [cells | {"quota": f"{'  ' * row.depth}{row.quota}"} for cells, row in rows_with_cells]
        shown = Table.from_rows(table.schema, indented)
    print_table(shown, output, headers=not no_headers)
    if rows:
        print_totals(quota_totals(rows), output)
    if not queues.view.quotas:
        message(NO_QUOTAS)
    elif not rows:
        message(f"none of {len(queues.report.quotas)} rows matches the given namespaces, resources and tree")
    finish(queues.report)


@app.command(epilog=examples("cotenant get waiting", "cotenant get waiting -n research -o wide"))
def waiting(
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List the pods that wait for their quota or gang, in the order of the queues, each with its reason."""
    from cotenant.scheduler_ext.queues.model.tables import waiting_table, waiting_totals

    report = open_queues(session_of(ctx), kubeconfig, context).report
    table = filter_rows(waiting_table(report.waiting), namespace, None)
    print_table(table, output, headers=not no_headers)
    if len(table):
        print_totals(waiting_totals(table), output)
    else:
        message("no pod waits for quota or for its gang")
    finish(report)


@app.command(
    epilog=examples(
        "cotenant explain queue train-0 -n research",
        "cotenant explain queue research/train-0",
        "cotenant explain queue train-0 -n research -o json",
    )
)
def explain(
    ctx: typer.Context,
    pod: Annotated[str, typer.Argument(help="A pod: NAME, or NAMESPACE/NAME.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="Pod's namespace.")] = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Explain why a pod waits: the quota that blocks it, the missing amount, who uses it, queue position, gang."""
    from cotenant.scheduler_ext.queues.model.explanation import UNSERVED, explanation, gang_of, row_of

    named_namespace, _, name = pod.rpartition("/")
    pod_namespace = named_namespace or namespace
    queues = open_queues(session_of(ctx), kubeconfig, context, pod=PodName(pod_namespace, name))
    row = row_of(queues.report, pod_namespace, name)
    if row is None:
        message(queues.why_not_waiting())
    elif queues.unserved_gates_of_pod:
        message(f"{', '.join(queues.unserved_gates_of_pod)}: {UNSERVED}")
    if output is not DocumentFormat.TABLE:
        gang = gang_of(queues.report, row.gang) if row else None
        parents = {each.quota: each.parent for each in queues.report.quotas}
        names: list[str] = []  # of its quota and of all above it
        quota = row.quota if row else None
        while quota in parents and quota not in names:
            names.append(quota)
            quota = parents[quota]
        quotas = [each for each in queues.report.quotas if each.quota in names]
        print_document({"pod": row, "gang": gang, "quotas": quotas}, output)
    elif row is not None:
        print_table(explanation(queues.report, row), Format.TABLE, headers=False)
    finish(queues.problems_of_pod())
