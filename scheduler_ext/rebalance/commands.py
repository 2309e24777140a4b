"""EDGE: `cotenant serve descheduler`: lists which pods would move to which nodes and why others stay. Read-only."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.files import documents
from cotenant.base.commands.output import (
    DocumentFormat,
    Format,
    NoHeadersOption,
    OutputOption,
    message,
    print_document,
    print_table,
)
from cotenant.base.commands.results import Context, Kubeconfig
from cotenant.base.commands.session import EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.base.text import counted
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.rebalance.arguments import RebalanceArgs
    from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading
    from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs
    from cotenant.scheduler_ext.rebalance.model.tables import RebalanceReport

app = new_app()


class RoundPart(StrEnum):
    """The value of `--show`: which tables of a rebalancing round are printed."""

    ALL = "all"
    NODES = "nodes"
    MOVES = "moves"
    EMPTYING = "emptying"


class RebalancePlugin(StrEnum):
    """The descheduler plugin that decides: relieve overloaded nodes, or empty under-used ones."""

    LOW_NODE_LOAD = "LowNodeLoad"
    HIGH_NODE_LOAD = "HighNodeLoad"


class RebalanceMode(StrEnum):
    """The basis on which a node's overload is determined: forecast or observed usage."""

    FORECAST = "forecast"
    OBSERVED = "observed"


@app.command(
    epilog=examples(
        "cotenant serve descheduler --once",
        "cotenant serve descheduler --once -f koord-descheduler-config.yaml",
        "cotenant serve descheduler --once --mode observed --show moves -o wide",
        "cotenant serve descheduler --once --plugin HighNodeLoad",
        "cotenant serve descheduler --once -o json",
    )
)
def descheduler(
    ctx: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Plan and print one round of moves; `cotenant serve manager` repeats rounds.")
    ] = False,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Koordinator's DeschedulerConfiguration (YAML). Default: the setting descheduler.configuration.",
        ),
    ] = "",
    plugin: Annotated[
        RebalancePlugin,
        typer.Option("--plugin", help="LowNodeLoad relieves overloaded nodes, HighNodeLoad empties under-used ones."),
    ] = RebalancePlugin.LOW_NODE_LOAD,
    mode: Annotated[
        RebalanceMode | None,
        typer.Option(
            "--mode",
            help="Judge nodes by present usage (observed), or also by forecasts (forecast). Default: descheduler.mode.",
        ),
    ] = None,
    show: Annotated[
        RoundPart, typer.Option("--show", help="Table to print. With -o csv, `all` prints only the moves.")
    ] = RoundPart.ALL,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List the pods that should leave overloaded or under-used nodes, and why others stay. Nothing is written.

    The exit code is 4 if a part of the cluster or of the configuration could not be read.
    """
    from cotenant.scheduler_ext.rebalance.rebalance_report import emptying_report_of, report_of

    if not once:
        raise UsageError(
            "cotenant serve descheduler needs --once, because it computes only one round",
            fix="Run cotenant serve descheduler --once; cotenant serve manager plans continuously.",
        )
    if show is RoundPart.EMPTYING and plugin is RebalancePlugin.LOW_NODE_LOAD:
        raise UsageError("--show emptying needs HighNodeLoad", fix="Add --plugin HighNodeLoad.")
    flags = {"kube.kubeconfig": kubeconfig, "kube.context": context, "descheduler.mode": mode and mode.value}
    settings = session_of(ctx).load(flags).settings
    own = settings.section(DeschedulerSettings)
    forecast, configured = own.mode == RebalanceMode.FORECAST.value, bool(file or own.configuration)
    if plugin is RebalancePlugin.LOW_NODE_LOAD:
        arguments = arguments_from(file, settings)
        report = report_of(_read(settings), arguments, with_forecast=forecast, configured=configured)
    else:
        emptying = emptying_arguments_from(file, settings)
        report = emptying_report_of(_read(settings), emptying, with_forecast=forecast, configured=configured)
    _print(report, show, output, headers=not no_headers)
    summary = f"{counted(report.move_count, 'move')} planned among {len(report.nodes)} nodes; nothing was written"
    for line in (summary, *report.notes, *report.gaps):
        message(line)
    if report.gaps:
        raise typer.Exit(EXIT_PARTIAL)


def arguments_from(file: str, settings: SettingSections) -> RebalanceArgs:
    """Return LowNodeLoad's arguments from a file, or from the settings if `file` is "". Raise UsageError if invalid."""
    from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings, arguments_of

    own = settings.section(DeschedulerSettings)
    return (arguments_of(_document(file)) if file else arguments_from_settings(own.configuration)).with_limits(own)


def emptying_arguments_from(file: str, settings: SettingSections) -> EmptyingArgs:
    """Return HighNodeLoad's arguments from a file, or from the settings if `file` is ""."""
    from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_arguments_of, emptying_configured

    own = settings.section(DeschedulerSettings)
    return (emptying_arguments_of(_document(file)) if file else emptying_configured(own.configuration)).with_limits(own)


def _document(file: str) -> Any:
    parsed = documents(file)
    if len(parsed) > 1:
        raise UsageError(f"{file} has {len(parsed)} objects", fix="Keep only one DeschedulerConfiguration in the file.")
    return parsed[0]


def _read(settings: SettingSections) -> RebalanceReading:
    from cotenant.base.kube import connect
    from cotenant.scheduler_ext.rebalance.cluster_reading import read

    client = connect(settings.section(KubeSettings))
    try:
        return read(
            client,
            settings.section(ExtenderSettings).load_aware,
            client.clock().now_seconds(),
            settings.section(ManagerSettings).namespace,
        )
    finally:
        client.close()


def _print(report: RebalanceReport, show: RoundPart, output: Format, *, headers: bool) -> None:
    """Print the tables one below the other. JSON and YAML print one object of all tables, CSV prints only the moves."""
    tables = {RoundPart.EMPTYING: report.emptying, RoundPart.NODES: report.nodes, RoundPart.MOVES: report.moves}
    if report.plugin == RebalancePlugin.LOW_NODE_LOAD:
        del tables[RoundPart.EMPTYING]
    if show is not RoundPart.ALL:
        print_table(tables[show], output, headers=headers)
    elif output in (Format.JSON, Format.YAML):
        rows = {name.value: list(table.rows()) for name, table in tables.items()}
        print_document(rows, DocumentFormat(output.value))
    elif output is Format.CSV:
        print_table(report.moves, output, headers=headers)
    else:
        for number, table in enumerate(tables.values()):
            if number:
                typer.echo("")
            print_table(table, output, headers=headers)
