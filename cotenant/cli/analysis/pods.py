"""`cotenant get pods`: which pods run on which node, what each asks for and uses."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table, print_totals
from cotenant.base.commands.results import (
    AllClustersOption,
    ClusterOption,
    FilterOption,
    NamespaceOption,
    StoreOption,
    chosen_of_scan,
    load_for_reading,
    open_scans,
)
from cotenant.base.commands.session import examples, new_app
from cotenant.base.text import counted

app = new_app()


@app.command(
    epilog=examples(
        "cotenant get pods --node node-1",
        "cotenant get pods -n shop --filter 'qos=BE&sort=-cpu_usage'",
        "cotenant get pods -o csv",
    )
)
def pods(
    ctx: typer.Context,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="Only this node; may be repeated.")
    ] = None,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show the pods that ran at the end of the last scan, with requests and usage of that moment."""
    from cotenant.base.tables.filters import literal
    from cotenant.recommender.model.views import PODS

    scans = open_scans(load_for_reading(ctx, store, all_clusters), cluster, all_clusters)
    table = scans.read_table(PODS)
    rows = chosen_of_scan(scans, table, namespace, query, urlencode([("node", literal(name)) for name in node or ()]))
    print_table(rows, output, headers=not no_headers)
    if len(rows):
        where = counted(len(set(rows.columns["node"])), "node")
        print_totals(f"{counted(len(rows), 'pod')} on {where}", output)
    else:
        message("no pod matches" if len(table) else "no pod ran")
