"""`cotenant get pods`, `get replicas` and `get reclaimable`: running pods, forecast replicas, lendable capacity."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlencode

import typer

from cotenant.base.amount_text import amount
from cotenant.base.commands.call import CHOICE, ROWS, SCANS, CommandCall, command
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import Format, message, print_totals
from cotenant.base.commands.session import new_app, node_names
from cotenant.base.resource import Resource
from cotenant.base.table import Table, kind_of
from cotenant.base.text import counted

app = new_app()


@command(
    app,
    SCANS | CHOICE | ROWS,
    "cotenant get pods --node node-1",
    "cotenant get pods -n shop --filter 'qos=BE&sort=-cpu_usage'",
    "cotenant get pods -o csv",
)
def pods(
    call: CommandCall,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="Only pods of this node; may be repeated.")
    ] = None,
) -> None:
    """Show the pods that ran at the end of the last scan, with their requests and usage at that time."""
    from cotenant.base.tables.filters import literal
    from cotenant.recommender.model.views import PODS

    table = call.scans.read_table(PODS)
    rows = call.filter_rows(table, urlencode([("node", literal(name)) for name in node or ()]))
    call.print(rows)
    if len(rows):
        where = counted(len(set(rows.columns["node"])), "node")
        print_totals(f"{counted(len(rows), 'pod')} on {where}", call.output)
    else:
        message("no pod matches" if len(table) else "no pod ran")


@command(
    app,
    SCANS | CHOICE | ROWS,
    "cotenant get replicas",
    "cotenant get replicas -n shop -o wide",
    "cotenant get replicas --filter workload=checkout -o json  # with the minimum of each half hour",
)
def replicas(call: CommandCall) -> None:
    """Show how many replicas workloads with an autoscaler, or with many replicas, will need in the next 24 hours.

    An autoscaler reacts to measured usage, so its new pods are ready only a start time after usage has risen. A raised
    minReplicas starts them in time: a ReservationPlan with realisation ReplicaFloor or an AutopilotPolicy with
    replicaFloorFactor raises and restores it.
    """
    from cotenant.recommender.model.views import REPLICAS
    from cotenant.recommender.replicas import replica_totals

    table = call.scans.read_table(REPLICAS)
    rows = call.filter_rows(table)
    call.print(rows)
    if not len(rows):
        what = "an autoscaler on CPU or memory, or six replicas and more"
        message(f"none of {len(table)} workloads with {what} matches" if len(table) else f"no workload has {what}")
        return
    for row in rows.rows():
        if row["most"] and row["needed"] and row["needed"] > row["most"]:
            name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
            message(f"{name}: maxReplicas {row['most']} is below the {row['needed']} that the forecast needs")
    print_totals(replica_totals(rows), call.output)


@command(
    app,
    SCANS | ROWS,
    "cotenant get reclaimable",
    "cotenant get reclaimable node-07 --terms  # how the number was computed",
    "cotenant get reclaimable -o json",
)
def reclaimable(
    call: CommandCall,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Only this node.", autocompletion=node_names)
    ] = None,
    terms: Annotated[bool, typer.Option("--terms", help="One row per band and resource: the formula's terms.")] = False,
) -> None:
    """Show the capacity that batch and mid pods may use on each node, by Koordinator's formulas."""
    from cotenant.base.errors import NoData
    from cotenant.recommender.colocation.model.batch_totals import why_unknown
    from cotenant.recommender.model.views import NODES, RECLAIMABLE, Overview

    scans, is_text = call.scans, call.output in (Format.TABLE, Format.WIDE)
    table = scans.read_table(RECLAIMABLE if terms else NODES)
    if node is not None:
        table = table.take(table.columns["node"] == node)
        if not len(table):
            raise NoData(f"no node is named {node}", fix="cotenant get reclaimable lists all nodes.")
    if terms and is_text:
        call = replace(call, given={**call.given, "output": Format.WIDE})
        from cotenant.base.colocation.reclaim_policies import decode_terms

        # The terms written as the amount is: "capacity 16, safety_margin 6400m".
        rows = list(table.rows())
        for row in rows:
            kind, of_row = kind_of(row["resource"]), decode_terms(row["term_amounts"])
            row["terms"] = ", ".join(f"{name} {human(kind, term)}" for name, term in of_row.items())
        shown = tuple(column for column in table.schema.columns if column.name != "term_amounts")
        table = Table.from_rows(replace(table.schema, columns=shown), rows)
    call.print(table)
    overviews = [(store, store.read_document("overview", Overview)) for store in scans.stores if is_text]
    # The days on which most nodes passed their peaks together, one line per resource.
    for store, overview in overviews:
        for sentence in overview.worst_day_sentences if overview is not None else ():
            message(f"{store.cluster}: {sentence}" if scans.of_all else sentence)
    # What is free for batch in all nodes together, the same number as on Home, one line per cluster.
    for store, overview in overviews if node is None else ():
        if overview is not None:
            cpu, memory = overview.cpu.batch_now, overview.memory.batch_now
            free_text = f"{amount(cpu, Resource.CPU)}, {amount(memory, Resource.MEMORY)}"
            if not math.isfinite(cpu) and not math.isfinite(memory):
                free_text = f"not known: {why_unknown(store.relation(RECLAIMABLE)) or 'no node is known'}"
            whose = f"{store.cluster}: " if scans.of_all else ""
            message(f"{whose}{counted(overview.nodes, 'node')}; free for batch now: {free_text}")
