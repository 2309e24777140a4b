"""EDGE: `cotenant backtest`: how good forecasts are on a trace or on the stored history, against named baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, StoreOption, open_store
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import Format, NoHeadersOption, message, print_table, render
from cotenant.apps.cli.progress import bars
from cotenant.core.model.errors import StoreError, UsageError
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.backtest import ORIGINS, Horizon

if TYPE_CHECKING:
    from cotenant.apps.backtest.sources import Series
    from cotenant.apps.cli.report.backtest_report import BacktestContents
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.progress import Progress
    from cotenant.core.model.table import Table
    from cotenant.core.model.usage.backtest import Frontier
    from cotenant.core.settings.root import Settings
    from forecasting.backtest.run import BacktestScores

app = new_app()


class BacktestFormat(StrEnum):
    """How the scores are written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"


LimitOption = Annotated[
    float | None, typer.Option("--limit", metavar="VALUE", help="Limit of every series, in the column's unit.")
]
LimitColumnOption = Annotated[
    str | None, typer.Option("--limit-column", metavar="NAME", help="Column with each series' limit.")
]
OriginsOption = Annotated[
    int, typer.Option("--origins", min=1, metavar="N", help="Origins, spread over all 6-hourly ones.")
]
KnownOption = Annotated[
    float,
    typer.Option("--known-share", min=0.01, max=1, metavar="SHARE", help="Of 14 days a series must be known."),
]
BaselinesOption = Annotated[
    str | None, typer.Option("--baselines", metavar="B1,B14,...", help="Whom to compare with; default: all fast.")
]
PodsOption = Annotated[
    int | None,
    typer.Option("--pods-per-node", min=2, metavar="N", help="Draw what nodes of N such series could lend (-o html)."),
]
ReclaimOption = Annotated[
    bool,
    typer.Option(
        "--reclaim", help="Compare reclaim policies on the stored history: what each lends, and how often too much."
    ),
]
OutputOption = Annotated[BacktestFormat, typer.Option("--output", "-o", help="How to write the scores.")]
FileOption = Annotated[
    Path | None, typer.Option("--output-file", metavar="FILE", help="Write there instead of stdout.")
]


@app.command(
    epilog=examples(
        "cotenant backtest usage.parquet --column cpu_usage_pct --limit 100",
        "cotenant backtest traces/ --column cpu_cores --limit-column cpu_request --origins 56 -o json",
        "cotenant backtest --metric memory  # the stored history, workload by workload",
        "cotenant backtest usage.parquet --baselines B1,B11,B14 -o html --output-file report.html",
        "cotenant backtest --reclaim  # in cores and violations: what each reclaim policy would have done here",
    )
)
def backtest(
    ctx: typer.Context,
    trace: Annotated[
        str | None, typer.Argument(metavar="TRACE", help="Parquet file or folder (see docs/backtest.md).")
    ] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="Column of the trace.")] = None,
    limit: LimitOption = None,
    limit_column: LimitColumnOption = None,
    metric: Annotated[Resource, typer.Option("--metric", "-m", help="cpu or memory.")] = Resource.CPU,
    origins: OriginsOption = ORIGINS,
    horizon: Annotated[Horizon, typer.Option("--horizon", help="24 hours on half hours, or 7 days on hours.")] = (
        Horizon.DAY
    ),
    known_share: KnownOption = 0.5,
    baselines: BaselinesOption = None,
    pods_per_node: PodsOption = None,
    reclaim: ReclaimOption = False,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: OutputOption = BacktestFormat.TABLE,
    output_file: FileOption = None,
    no_headers: NoHeadersOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Forecast a history again and again from what came before, and score it against named baselines. Read-only.

    Without TRACE the store's history is taken, and the report is kept beside its results for the dashboard.
    """
    from cotenant.apps.backtest.forecast_backtest import contenders, plan_of, run_backtest

    settings = session_of(ctx).load({"store.url": store}).settings
    if trace is not None and (store or cluster):
        raise UsageError("a trace and a store cannot be back-tested at once", fix="Leave out one of the two.")
    if trace is None and (column or limit_column or limit is not None):
        raise UsageError("--column, --limit and --limit-column are those of a TRACE", fix="Name its file or folder.")
    place = open_store(settings, cluster) if trace is None else None
    if reclaim:
        if place is None or baselines or pods_per_node:
            raise UsageError("--reclaim takes the stored history and no baselines", fix="Leave out the other options.")
        _reclaim(place, settings, output, output_file, headers=not no_headers, quiet=quiet)
        return
    plan, who = plan_of(horizon, metric, known_share), contenders(baselines, metric, horizon)
    with bars(quiet=quiet) as progress:
        series = _series(trace, place, metric, (column, limit, limit_column))
        ledger = run_backtest(series, plan, who, origins, progress)
        drawn = _frontiers(series, pods_per_node, settings, progress) if pods_per_node else ()
    contents = _contents(series, ledger, drawn)
    _write(contents, output, output_file, headers=not no_headers)
    if place is not None:
        _keep(place, contents, ledger)
    if not quiet:
        _say(contents, saved=place is not None)


def _reclaim(
    store: Store, settings: Settings, output: BacktestFormat, file: Path | None, *, headers: bool, quiet: bool
) -> None:
    """Reclaim policies instead of forecasts; the scores stay in the store for the overview."""
    from cotenant.apps.cli.analysis.backtest_reclaim import keep, summary, table, trial
    from cotenant.apps.cli.report.backtest_report import policies_page
    from cotenant.core.adapters.clock import SystemClock

    with bars(quiet=quiet) as progress:
        tried = trial(store, settings, progress, SystemClock().now_seconds())
    scores = table(tried)
    lead = f"Reclaim policies on {tried.nodes} nodes of cluster {store.cluster}, {tried.tested_days:.1f} tested days."
    _put(scores, lambda: policies_page(lead, tried.computed_seconds, scores), output, file, headers=headers)
    keep(store, tried)
    if not quiet:
        message(summary(tried))
        message("the scores are kept with the results: the overview offers a switch that they speak for")


def _series(
    trace: str | None, store: Store | None, metric: Resource, columns: tuple[str | None, float | None, str | None]
) -> Series:
    from cotenant.apps.backtest.sources import StoredSeries, TraceSeries
    from cotenant.core.adapters.store.traces import open_trace

    if store is not None:
        return StoredSeries.of(store, metric)
    opened = open_trace(trace or "")
    column, limit, limit_column = columns
    for name in (column, limit_column):
        if name is not None and name not in opened.columns:
            raise UsageError(f"{trace} has no column of numbers {name!r}", fix=f"It has: {', '.join(opened.columns)}.")
    if column is None and len(opened.columns) != 1:
        raise UsageError(
            f"{trace} has {len(opened.columns)} columns of numbers", fix=f"--column: {', '.join(opened.columns)}."
        )
    return TraceSeries(opened, column or opened.columns[0], limit, limit_column)


def _frontiers(series: Series, pods: int, settings: Settings, progress: Progress) -> tuple[Frontier, ...]:
    """What nodes made of the first shard's series could lend, ours against static predictors."""
    from cotenant.apps.backtest.frontiers import frontier

    progress.stage("Frontier", 1)
    computed = frontier(next(series.shards()), pods, settings.node_peak)
    progress.advance()
    return (computed,)


def _contents(series: Series, ledger: BacktestScores, frontiers: tuple[Frontier, ...]) -> BacktestContents:
    from cotenant.apps.backtest.forecast_scores import curves, table
    from cotenant.apps.cli.report.backtest_report import BacktestContents
    from cotenant.core.adapters.clock import SystemClock
    from forecasting.backtest.engine import ENGINE

    plan = ledger.plan
    description = (
        f"{len(ledger.names)} series, {len(ledger.origins)} origins; {plan.history_days} days of history, "
        f"{plan.horizon_hours} hours ahead in steps of {plan.step_seconds // 60} minutes."
    )
    now = int(SystemClock().now_seconds())
    return BacktestContents(series.title, description, now, ENGINE, table(ledger), curves(ledger), frontiers)


def _write(contents: BacktestContents, output: BacktestFormat, file: Path | None, *, headers: bool) -> None:
    from cotenant.apps.cli.report.backtest_report import page

    _put(contents.scores, lambda: page(contents), output, file, headers=headers)


def _put(scores: Table, html: Callable[[], str], output: BacktestFormat, file: Path | None, *, headers: bool) -> None:
    """To stdout or a file; StoreError when that cannot be written."""
    if output is BacktestFormat.HTML:
        text = html()
    elif file is None:
        print_table(scores, Format(output.value), headers=headers)
        return
    else:
        text = "".join(render(scores, Format(output.value), headers=headers))
    if file is None:
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error


def _keep(store: Store, contents: BacktestContents, ledger: BacktestScores) -> None:
    """The page beside the results, for the dashboard."""
    from cotenant.apps.cli.report.backtest_report import page
    from cotenant.core.model.usage.backtest import BACKTEST, BacktestReport

    summary = f"{len(ledger.names)} workloads, {len(ledger.origins)} origins"
    report = BacktestReport(contents.title, contents.computed_seconds, summary, page(contents))
    store.write_document(BACKTEST, report)


def _say(contents: BacktestContents, *, saved: bool) -> None:
    """The outcome in a line or two."""
    first = next(iter(contents.scores.rows()))
    if first["contender"] == contents.ours and first["vs_b14"] is not None:
        message(
            f"loss {first['rel_wql']:.3f} x B1's (seasonal naive day, empirical residuals); {first['vs_b14']:.3f} x "
            f"B14's, 95 % interval {first['vs_b14_low']:.3f}..{first['vs_b14_high']:.3f}"
        )
    if saved:
        message("the report is kept with the results: the dashboard's Forecast page links to it")
