"""EDGE: `cotenant size`: which nodes could be removed, where their pods would go, and what keeps the other nodes."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cotenant.base import measures
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
from cotenant.base.commands.results import ClusterOption, Context, Kubeconfig, StoreOption, open_store
from cotenant.base.commands.session import EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.text import agree, visible
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

if TYPE_CHECKING:
    from cotenant.base.progress import Progress
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.scheduler_ext.cluster_size.machines.shapes import MachineType
    from cotenant.scheduler_ext.cluster_size.model import RequestLevel, SizeOptions
    from cotenant.scheduler_ext.cluster_size.prices import ExportedPrices, PriceList
    from cotenant.scheduler_ext.cluster_size.report import SizeReport

app = new_app()


class Show(StrEnum):
    """The tables that `cotenant size` can print."""

    NODES = "nodes"
    MOVES = "moves"
    STEPS = "steps"
    OBSTACLES = "obstacles"
    MIX = "mix"
    BILLS = "bills"
    ALL = "all"


class Requests(StrEnum):
    """The pods' requests that the tables are computed with: present or recommended ones."""

    NOW = "now"
    READY = "ready"
    ALL_STEPS = "all-steps"


PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE|opencost",
        help="CSV with machine_type, price_per_hour, currency, for spot also capacity_type; opencost: OpenCost's "
        "prices in Prometheus; default: the price sheet.",
    ),
]
ShapesOption = Annotated[
    Path | None,
    typer.Option(
        "--shapes",
        metavar="FILE",
        help="CSV of the allowed machine types: the columns of --prices and cpu, memory, pods, provider.",
    ),
]
ROWS: Final = 10  # rows of a table where nobody asks for another number; `-o wide` and the formats of programs have all


@app.command(
    epilog=examples(
        "cotenant size",
        "cotenant size --requests ready --show all -o json",
        "cotenant size --reserve-nodes 2 -o wide",
        "cotenant size --reserve-zone --show moves",
        "cotenant size --prices machines.csv",
        "cotenant size --prices opencost",
        "cotenant size --requests ready --show steps",
        "cotenant size --shapes machines.csv --show bills",
    )
)
def size(
    ctx: typer.Context,
    reserve_nodes: Annotated[
        int, typer.Option("--reserve-nodes", min=0, metavar="N", help="Keep capacity free for N failing nodes.")
    ] = 0,
    reserve_zone: Annotated[
        bool, typer.Option("--reserve-zone", help="Keep capacity free for the failure of any one zone.")
    ] = False,
    requests: Annotated[
        Requests, typer.Option("--requests", help="Requests that the tables use; the summary shows all three choices.")
    ] = Requests.NOW,
    prices: PricesOption = None,
    shapes: ShapesOption = None,
    show: Annotated[
        Show,
        typer.Option(
            "--show",
            help="Tables to print: nodes, moves of pods, dated steps, obstacles, mix, bills, or all (CSV: nodes).",
        ),
    ] = Show.NODES,
    top: Annotated[
        int | None, typer.Option("--top", min=1, metavar="N", help=f"Most rows to show; default: {ROWS} in a table.")
    ] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show which nodes could be removed, with present requests and with recommended ones.

    The cluster is not changed; if a scan of it is stored, the answer is stored too, for the pages. Every pod of the
    removed nodes was placed on the others as kube-scheduler would, in many trials. Exit code 4: a part of the cluster
    could not be read.
    """
    from cotenant.scheduler_ext.cluster_size.model import RequestLevel, SizeOptions
    from cotenant.scheduler_ext.cluster_size.report import level_sentences, sentences_of

    flags = {"kube.kubeconfig": kubeconfig, "kube.context": context, "store.url": store}
    settings = session_of(ctx).load(flags).settings
    listed, allowed = _lists(prices, shapes, settings)
    with bars(quiet=quiet) as progress:
        report = _report(settings, cluster, SizeOptions(reserve_nodes, reserve_zone), listed, allowed, progress)
    level = RequestLevel.of(requests.value)
    rows = ROWS if top is None and output is Format.TABLE else top
    _print(report, level, show, output, rows, headers=not no_headers)
    answer, *about = sentences_of(report, level)
    is_for_people = output in (Format.TABLE, Format.WIDE)
    first_lines = () if is_for_people else (answer,)
    for line in (*first_lines, *about, *level_sentences(report), *report.autoscaler_notes, *report.gaps):
        if line:
            message(line)
    if is_for_people:
        typer.echo(f"\n{visible(answer)}")
    if report.gaps:
        raise typer.Exit(EXIT_PARTIAL)


def _lists(
    prices: Path | None, shapes: Path | None, settings: SettingSections
) -> tuple[PriceList | ExportedPrices | None, tuple[MachineType, ...]]:
    """Return the prices of today's nodes, from the file or OpenCost, and the allowed machine types.

    Without a price list, the list of machine types gives the prices too.
    """
    from cotenant.base.errors import UsageError
    from cotenant.base.process.clock import SystemClock
    from cotenant.scheduler_ext.cluster_size import prices as price_lists
    from cotenant.scheduler_ext.cluster_size.machines.shapes import FIX, parse_shapes

    listed: PriceList | ExportedPrices | None = None
    if prices and str(prices) == price_lists.OPENCOST:
        currency, now = settings.section(RecommenderSettings).prices.currency, SystemClock().now_seconds()
        listed = price_lists.read_exported_prices(settings.section(ProfilerSettings).prometheus, currency, now)
    elif prices:
        listed = price_lists.parse_price_list(_text_of(prices, price_lists.FIX), str(prices))
    if shapes is None:
        return listed, ()
    allowed = parse_shapes(_text_of(shapes, FIX), str(shapes))
    if listed is not None and listed.currency != allowed.prices.currency:
        currencies = f"{prices} is in {listed.currency} and {shapes} in {allowed.prices.currency}"
        raise UsageError(f"prices in 2 currencies: {currencies}", fix="Write all prices in one currency.")
    return listed or allowed.prices, allowed.types


def _text_of(file: Path, fix: str) -> str:
    """Return the text of a list; raise UsageError with `fix`, the list's format."""
    from cotenant.base.errors import UsageError

    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not text in UTF-8", fix=fix) from error


def _report(
    settings: SettingSections,
    cluster: str | None,
    options: SizeOptions,
    listed: PriceList | ExportedPrices | None,
    allowed: tuple[MachineType, ...],
    progress: Progress,
) -> SizeReport:
    """Read the cluster, its stored scan and the prices, and return the report; store it if it is complete."""
    from cotenant.base.errors import CotenantError
    from cotenant.base.kube import connect
    from cotenant.scheduler_ext.cluster_size import stored_scan
    from cotenant.scheduler_ext.cluster_size.autoscalers.reading import read_autoscalers
    from cotenant.scheduler_ext.cluster_size.model import RequestLevel
    from cotenant.scheduler_ext.cluster_size.prices import node_prices
    from cotenant.scheduler_ext.cluster_size.reading import read_cluster
    from cotenant.scheduler_ext.cluster_size.reserve import require_other_nodes
    from cotenant.scheduler_ext.cluster_size.steps import StepPace

    opened: Store | None = None
    try:
        opened = open_store(settings, cluster)
    except CotenantError as error:
        if cluster is not None:
            raise
        # the question has an answer without a store
        scan = stored_scan.StoredScan(reason=f"no store of this cluster: {error.message}")
    else:
        scan = stored_scan.read_scan(opened)
    progress.stage("Read the cluster", 0)
    with closing(connect(settings.section(KubeSettings))) as client:
        state, now = read_cluster(client, scan.proposals), client.clock().now_seconds()
        require_other_nodes(state.nodes, options)
        autoscalers = read_autoscalers(client, (pod.address for pod in state.pods))
    prices = node_prices(state.nodes, settings.section(RecommenderSettings).prices, listed)
    pace = StepPace(
        soak_seconds=settings.section(ActionSettings).soak_minutes * 60,
        cool_down_seconds=settings.section(ActionSettings).guardrails.cool_down_hours * 3_600,
        round_seconds=settings.section(DeschedulerSettings).interval_seconds,
    )
    size_question = stored_scan.Asked(state, scan, options, prices, autoscalers, pace, allowed)
    report = stored_scan.size_report(size_question, tuple(RequestLevel), now, progress)
    if opened is not None and not stored_scan.reason_without(scan, state):
        stored_scan.keep(opened, report)
    return report


def _print(
    report: SizeReport, level: RequestLevel, show: Show, output: Format, most: int | None, *, headers: bool
) -> None:
    import numpy as np

    from cotenant.base.errors import NoData
    from cotenant.scheduler_ext.cluster_size.report import level_document, level_words, tables_of

    answer = report.at(level)
    if answer.size is None:
        raise NoData(
            f"it is not known which nodes could leave {level_words(level)}: {answer.reason}", fix="Use --requests now."
        )
    if show is Show.ALL and output in (Format.JSON, Format.YAML):
        print_document(level_document(report, level), DocumentFormat(output.value))
        return
    tables = {name: table.take(np.arange(len(table))[:most]) for name, table in tables_of(report, answer).items()}
    if show is Show.ALL and output is not Format.CSV:
        for number, table in enumerate(tables.values()):
            if number:
                typer.echo("")
            print_table(table, output, headers=headers)
        return
    name = "nodes" if show is Show.ALL else show.value
    print_table(tables[name], output, headers=headers)
    if more := measures.left_out_count(len(tables_of(report, answer)[name]), len(tables[name])):
        message(f"{agree(more, 'row more', 'rows more')}: -o wide shows all rows, --top N shows N rows")
