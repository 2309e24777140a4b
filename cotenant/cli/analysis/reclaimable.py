"""`cotenant get reclaimable`: what each node can lend, with every term of the formula."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import typer

from cotenant.base.amount_text import amount
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.results import (
    AllClustersOption,
    ClusterOption,
    StoredScans,
    StoreOption,
    load_for_reading,
    open_scans,
)
from cotenant.base.commands.session import examples, new_app, node_names
from cotenant.base.resource import Resource
from cotenant.base.table import Table, kind_of
from cotenant.base.text import counted

app = new_app()


@app.command(
    epilog=examples(
        "cotenant get reclaimable",
        "cotenant get reclaimable node-07 --terms  # how the number was computed",
        "cotenant get reclaimable -o json",
    )
)
def reclaimable(
    ctx: typer.Context,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Only this node.", autocompletion=node_names)
    ] = None,
    terms: Annotated[bool, typer.Option("--terms", help="One row per band and resource, with the terms.")] = False,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show the capacity that batch and mid pods may use on each node, by Koordinator's formulas."""
    from cotenant.base.errors import NoData
    from cotenant.recommender.model.views import NODES, RECLAIMABLE

    scans = open_scans(load_for_reading(ctx, store, all_clusters), cluster, all_clusters)
    table = scans.read_table(RECLAIMABLE if terms else NODES)
    if node is not None:
        table = table.take(table.columns["node"] == node)
        if not len(table):
            raise NoData(f"no node is named {node}", fix="cotenant get reclaimable lists all of them.")
    if terms and output in (Format.TABLE, Format.WIDE):
        table, output = _legible(table), Format.WIDE
    print_table(table, output, headers=not no_headers)
    if output in (Format.TABLE, Format.WIDE):
        _print_worst_days(scans)
        if node is None:
            _print_free(scans)


def _print_free(scans: StoredScans) -> None:
    """Write what is free for batch in all nodes together, the same number as on Home, one line per cluster."""
    from cotenant.recommender.colocation.model.batch_totals import why_unknown
    from cotenant.recommender.model.views import RECLAIMABLE, Overview

    for store in scans.stores:
        overview = store.read_document("overview", Overview)
        if overview is not None:
            free = [amount(overview.cpu.batch_now, Resource.CPU), amount(overview.memory.batch_now, Resource.MEMORY)]
            words = ", ".join(free)
            if not math.isfinite(overview.cpu.batch_now) and not math.isfinite(overview.memory.batch_now):
                words = f"not known: {why_unknown(store.relation(RECLAIMABLE)) or 'no node is known'}"
            whose = f"{store.cluster}: " if scans.of_all else ""
            message(f"{whose}{counted(overview.nodes, 'node')}; free for batch now: {words}")


def _print_worst_days(scans: StoredScans) -> None:
    """The days on which most nodes passed their peaks together, one line per resource, on stderr."""
    from cotenant.recommender.model.views import Overview

    for store in scans.stores:
        overview = store.read_document("overview", Overview)
        for sentence in overview.worst_day_sentences if overview is not None else ():
            message(f"{store.cluster}: {sentence}" if scans.of_all else sentence)


def _legible(table: Table) -> Table:
    """The same rows of RECLAIMABLE with the terms written as the amount is: "capacity 16, safety_margin 6400m"."""
    from cotenant.base.colocation.reclaim_policies import decode_terms

    rows = list(table.rows())
    for row in rows:
        kind, terms = kind_of(row["resource"]), decode_terms(row["term_amounts"])
        row["terms"] = ", ".join(f"{name} {human(kind, amount)}" for name, amount in terms.items())
    shown = tuple(column for column in table.schema.columns if column.name != "term_amounts")
    return Table.from_rows(replace(table.schema, columns=shown), rows)
