"""EDGE: `cotenant size`: which nodes could leave, where their pods would go, and what binds the others."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.cluster_options import Context, Kubeconfig
from cotenant.base.commands.command import EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.commands.output import (
    DocumentFormat,
    Format,
    NoHeadersOption,
    OutputOption,
    message,
    print_document,
    print_table,
)
from cotenant.base.commands.progress import bars

if TYPE_CHECKING:
    from cotenant.base.progress import Progress
    from cotenant.base.settings.root import Settings
    from cotenant.scheduler_ext.cluster_size.model import ClusterSize, SizeOptions

app = new_app()


class Show(StrEnum):
    """The tables to print."""

    NODES = "nodes"
    MOVES = "moves"
    ALL = "all"


@app.command(
    epilog=examples(
        "cotenant size",
        "cotenant size --reserve-nodes 2 -o wide",
        "cotenant size --reserve-zone --show moves",
        "cotenant size -o json",
    )
)
def size(
    ctx: typer.Context,
    reserve_nodes: Annotated[
        int, typer.Option("--reserve-nodes", min=0, metavar="N", help="How many nodes may fail at once afterwards.")
    ] = 0,
    reserve_zone: Annotated[
        bool, typer.Option("--reserve-zone", help="Keep as much as any one zone needs when it fails.")
    ] = False,
    show: Annotated[
        Show, typer.Option("--show", help="Nodes, moves of pods or both; CSV of all has the nodes.")
    ] = Show.NODES,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show which nodes could leave with requests as they are now. It writes nothing.

    Every pod of the leaving nodes was placed on the others in several orders and by several score rules. Exit code 4
    when a part of the cluster could not be read.
    """
    from cotenant.scheduler_ext.cluster_size.model import SizeOptions
    from cotenant.scheduler_ext.cluster_size.tables import headline_of, notes_of

    settings = session_of(ctx).load({"kube.kubeconfig": kubeconfig, "kube.context": context}).settings
    with bars(quiet=quiet) as progress:
        answer = _answer(settings, SizeOptions(reserve_nodes, reserve_zone), progress)
    _print(answer, show, output, headers=not no_headers)
    for line in (headline_of(answer), *notes_of(answer), *answer.gaps):
        message(line)
    if answer.gaps:
        raise typer.Exit(EXIT_PARTIAL)


def _answer(settings: Settings, options: SizeOptions, progress: Progress) -> ClusterSize:
    from cotenant.base.kube import connect
    from cotenant.scheduler_ext.cluster_size.decide import decide_size
    from cotenant.scheduler_ext.cluster_size.reading import read_cluster

    progress.stage("Read the cluster", 0)
    client = connect(settings.kube)
    try:
        state = read_cluster(client)
    finally:
        client.close()
    return decide_size(state, options, progress)


def _print(answer: ClusterSize, show: Show, output: Format, *, headers: bool) -> None:
    from cotenant.scheduler_ext.cluster_size.tables import document_of, move_table, node_table

    if show is Show.ALL and output in (Format.JSON, Format.YAML):
        print_document(document_of(answer), DocumentFormat(output.value))
        return
    if show is not Show.MOVES:
        print_table(node_table(answer), output, headers=headers)
    if show is Show.MOVES or (show is Show.ALL and output is not Format.CSV):
        if show is Show.ALL:
            typer.echo("")
        print_table(move_table(answer), output, headers=headers)
