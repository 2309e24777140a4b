"""`cotenant get reclaimable`: what each node can lend, with every term of the formula."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, StoreOption, open_store
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.completion import node_names
from cotenant.apps.cli.output import Format, NoHeadersOption, OutputOption, print_table

app = new_app()


@app.command(
    epilog=examples(
        "cotenant get reclaimable",
        "cotenant get reclaimable node-07 --terms  # how the number came about",
        "cotenant get reclaimable -o json",
    )
)
def reclaimable(
    ctx: typer.Context,
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Only this node.", autocompletion=node_names)
    ] = None,
    terms: Annotated[bool, typer.Option("--terms", help="One row per band and resource, with the terms.")] = False,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show the capacity that batch and mid pods may use on each node, by Koordinator's formulas."""
    from cotenant.core.model.errors import NoData
    from cotenant.core.model.views import NODES, RECLAIMABLE

    place = open_store(session_of(ctx).load({"store.url": store}).settings, cluster)
    table = place.read_table(RECLAIMABLE if terms else NODES)
    if node is not None:
        table = table.take(table.columns["node"] == node)
        if not len(table):
            raise NoData(f"no node is named {node}", fix="cotenant get reclaimable lists all of them.")
    wide = Format.WIDE if terms and output is Format.TABLE else output
    print_table(table, wide, headers=not no_headers)
