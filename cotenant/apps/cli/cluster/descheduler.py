"""`cotenant descheduler`: which pods would leave overloaded nodes, where to, and why others stay. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.apps.cli.cluster.install import ContextOption, KubeconfigOption
from cotenant.apps.cli.command import EXIT_PARTIAL, examples, new_app, session_of
from cotenant.apps.cli.documents import documents
from cotenant.apps.cli.output import (
    DocumentFormat,
    Format,
    NoHeadersOption,
    OutputOption,
    message,
    print_document,
    print_table,
)
from cotenant.core.model.errors import UsageError
from cotenant.core.model.reasons import SENTENCES, Reason
from cotenant.core.model.table import Column, Kind, Schema, Table

if TYPE_CHECKING:
    from cotenant.core.settings.root import Settings
    from scheduler_ext.rebalance.arguments import RebalanceArgs
    from scheduler_ext.rebalance.cluster_reading import RebalanceReading
    from scheduler_ext.rebalance.plan import RebalancePlan

app = new_app()

_SHARES: Final = (
    ("now", "now", "Usage now, of capacity."),
    ("after", "after", "Usage after the moves."),
    ("peak", "peak", "Highest forecast (q95) of the next 24 hours; empty without a forecast."),
    ("peak_after", "peak after", "The same after the moves."),
    ("high", "high", "High threshold."),
)
NODES: Final = Schema(
    "rebalance_nodes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("pool", "Pool", Kind.TEXT, "Node pool of the configuration; empty: its own thresholds.", wide=True),
        Column("load", "Load", Kind.TEXT, "low, between, high, high soon (by forecast) or unknown."),
        *(
            Column(f"{resource}_{name}", f"{title} {heading}", Kind.RATIO, text, wide=name in ("peak_after", "high"))
            for resource, title in (("cpu", "CPU"), ("memory", "Memory"))
            for name, heading, text in _SHARES
        ),
        Column("moves", "Moves", Kind.INTEGER, "Pods that leave (negative) or come."),
        Column("reason", "Reason", Kind.TEXT, "Why the node is not judged."),
    ),
    ("node",),
)
MOVES: Final = Schema(
    "rebalance_moves",
    (
        Column("decision", "Decision", Kind.TEXT, "move or stay."),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME; empty: the node's remaining pods."),
        Column("source", "From", Kind.TEXT, "The overloaded node."),
        Column("target", "To", Kind.TEXT, "The node that fits best; the scheduler decides in the end."),
        Column("cpu", "CPU", Kind.MILLICORES, "What the pod uses."),
        Column("memory", "Memory", Kind.BYTES, "What the pod uses."),
        Column("gain", "Gain", Kind.NUMBER, "Overload that the move takes away, in node-seconds."),
        Column("cost", "Cost", Kind.NUMBER, "Restart and its risk, in node-seconds."),
        Column("restart_seconds", "Restart s", Kind.NUMBER, "How long the pod is away.", wide=True),
        Column("overload_seconds", "Overload s", Kind.NUMBER, "How long the overload lasts.", wide=True),
        Column("unjudged", "Not judged", Kind.TEXT, "Constraints that only the scheduler judges.", wide=True),
        Column(
            "reason", "Reason", Kind.TEXT, "Code of docs/reasons.md; of a move: overload now, soon or of prod pods."
        ),
    ),
    ("pod", "source"),
)


class Show(StrEnum):
    """What is printed."""

    ALL = "all"
    NODES = "nodes"
    MOVES = "moves"


class RebalanceMode(StrEnum):
    """What a node's overload is judged by."""

    FORECAST = "forecast"
    OBSERVED = "observed"


@app.command(
    epilog=examples(
        "cotenant descheduler --once",
        "cotenant descheduler --once -f koord-descheduler-config.yaml",
        "cotenant descheduler --once --mode observed --show moves -o wide",
        "cotenant descheduler --once -o json",
    )
)
def descheduler(
    ctx: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Decide one round and print it. There is no other mode yet.")
    ] = False,
    file: Annotated[
        str,
        typer.Option("--file", "-f", metavar="FILE", help="Koordinator's configuration of its descheduler (YAML)."),
    ] = "",
    mode: Annotated[
        RebalanceMode,
        typer.Option("--mode", help="forecast: also overloads of the next half hour, and peaks; observed: now."),
    ] = RebalanceMode.FORECAST,
    show: Annotated[Show, typer.Option("--show", help="Nodes, moves, or both; CSV of both has the moves.")] = Show.ALL,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Say which pods should leave overloaded nodes, and why others stay. Reads the cluster and writes nothing.

    Exit code 4 when a part of the cluster or of the configuration could not be read.
    """
    if not once:
        raise UsageError("the descheduler only decides one round yet", fix="cotenant descheduler --once")
    settings = session_of(ctx).load({"kube.kubeconfig": kubeconfig, "kube.context": context}).settings
    arguments = arguments_from(file)
    reading = _read(settings)
    plan = _decide(reading, arguments, mode)
    _print(plan, show, output, headers=not no_headers)
    notes = list(_gaps(plan, reading, arguments))
    for line in (*_summary(plan, reading, arguments, file), *notes):
        message(line)
    if notes:
        raise typer.Exit(EXIT_PARTIAL)


def arguments_from(file: str) -> RebalanceArgs:
    """The file's arguments, or ours without a file; UsageError names what cannot be used."""
    from scheduler_ext.rebalance.arguments import DEFAULT_ARGS, arguments_of

    if not file:
        return DEFAULT_ARGS
    parsed = documents(file)
    if len(parsed) > 1:
        raise UsageError(f"{file} holds {len(parsed)} objects", fix="Give one DeschedulerConfiguration.")
    return arguments_of(parsed[0])


def _read(settings: Settings) -> RebalanceReading:
    from cotenant.core.adapters.clock import SystemClock
    from cotenant.core.adapters.kube import connect
    from scheduler_ext.rebalance.cluster_reading import read

    client = connect(settings.kube)
    try:
        return read(client, settings.extender.load_aware, SystemClock().now_seconds())
    finally:
        client.close()


def _decide(reading: RebalanceReading, arguments: RebalanceArgs, mode: RebalanceMode) -> RebalancePlan:
    from scheduler_ext.rebalance.decide import decide

    return decide(reading.inputs, arguments, with_forecast=mode is RebalanceMode.FORECAST and reading.forecasts > 0)


def _print(plan: RebalancePlan, show: Show, output: Format, *, headers: bool) -> None:
    """Both tables one below the other; JSON and YAML of both are one object, CSV is one table."""
    nodes, moves = Table.from_rows(NODES, node_rows(plan)), Table.from_rows(MOVES, move_rows(plan))
    if show is Show.ALL and output in (Format.JSON, Format.YAML):
        print_document({"nodes": list(nodes.rows()), "moves": list(moves.rows())}, DocumentFormat(output.value))
        return
    if show is Show.NODES or (show is Show.ALL and output is not Format.CSV):
        print_table(nodes, output, headers=headers)
    if show is Show.ALL and output is not Format.CSV:
        typer.echo("")
    if show is not Show.NODES:
        print_table(moves, output, headers=headers)


def node_rows(plan: RebalancePlan) -> list[dict[str, Any]]:
    """A row a node: the loaded ones first."""
    moves: dict[str, int] = {}
    for move in plan.moves:
        moves[move.source] = moves.get(move.source, 0) - 1
        moves[move.target] = moves.get(move.target, 0) + 1
    rows = []
    for node in sorted(plan.nodes, key=lambda one: (-max(one.now), one.name)):
        judged = node.reason is Reason.OK
        row: dict[str, Any] = {"node": node.name, "pool": node.pool, "moves": moves.get(node.name, 0)}
        row["load"] = "high soon" if node.by_forecast else node.load.value
        row["reason"] = "" if judged else node.reason.value
        for place, resource in enumerate(("cpu", "memory")):
            for name, _, _ in _SHARES:
                has_value = judged or name.startswith("peak")
                row[f"{resource}_{name}"] = getattr(node, name)[place] if has_value else None
        rows.append(row)
    return rows


def move_rows(plan: RebalancePlan) -> list[dict[str, Any]]:
    """A row a move, then a row a refusal, each in the order of the decision."""
    rows: list[dict[str, Any]] = []
    for move in plan.moves:
        reason = "prod overload now" if move.prod_pass else "overload soon" if move.by_forecast else "overload now"
        rows.append(
            {
                "decision": "move", "pod": move.pod, "source": move.source, "target": move.target,
                "cpu": move.usage[0], "memory": move.usage[1], "gain": move.price.gain, "cost": move.price.cost,
                "restart_seconds": move.price.restart_seconds, "overload_seconds": move.price.overload_seconds,
                "unjudged": move.unjudged, "reason": reason,
            }
        )  # fmt: skip
    return rows + [
        {"decision": "stay", "pod": one.pod, "source": one.node, "reason": one.reason.value} for one in plan.refusals
    ]


def _summary(plan: RebalancePlan, reading: RebalanceReading, arguments: RebalanceArgs, file: str) -> Iterator[str]:
    """What the tables do not say: nothing is written, by which thresholds and forecasts, why nothing is moved."""
    count = len(plan.moves)
    yield f"{count} {'move' if count == 1 else 'moves'} of {len(plan.nodes)} nodes; a dry run: nothing was written"
    if not file:
        load = arguments.low_node_load
        yield "without --file: low cpu {:g} %, memory {:g} %; high cpu {:g} %, memory {:g} %".format(
            *load.low_thresholds.pair(100), *load.high_thresholds.pair(100)
        )
    elif not any(pool.has_thresholds for pool in arguments.low_node_load.pools()):
        yield "the configuration sets no high threshold, so that no node is ever high"
    if plan.with_forecast:
        yield f"forecasts of {reading.forecasts} of {len(plan.nodes)} nodes were looked at"
    else:
        yield "forecasts were not looked at: the present moment alone decides"
    for stop in plan.stops:
        name = f"pool {stop.pool}, " if stop.pool else ""
        yield f"{name}{'prod pods' if stop.prod_pass else 'all pods'}: {SENTENCES[stop.reason]}"
    yield "a node above its threshold at this moment counts as overloaded: one look has no anomaly detector"


def _gaps(plan: RebalancePlan, reading: RebalanceReading, arguments: RebalanceArgs) -> Iterator[str]:
    """What could not be read; any of it makes the answer a partial one."""
    yield from reading.gaps
    yield from (f"the configuration's {warning}" for warning in arguments.warnings)
    unjudged = [node.name for node in plan.nodes if node.reason is not Reason.OK]
    if unjudged:
        names = ", ".join(unjudged[:3]) + (", ..." if len(unjudged) > 3 else "")
        yield f"{len(unjudged)} of {len(plan.nodes)} nodes have no fresh NodeMetric and are not judged: {names}"
