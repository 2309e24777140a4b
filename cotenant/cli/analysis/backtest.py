"""EDGE: `cotenant backtest`: scores forecasts on a trace or on the stored history, against named baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cotenant.base.commands.extras import part_of_lab
from cotenant.base.commands.output import Format, NoHeadersOption, message, print_table, render
from cotenant.base.commands.progress import bars
from cotenant.base.commands.results import (
    AllClustersOption,
    ClusterOption,
    StoredCluster,
    StoreOption,
    computed_for_each,
    exit_if_partial,
    stored_clusters_of,
)
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import StoreError, UsageError
from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import ORIGINS, Horizon
from cotenant.settings import Settings

if TYPE_CHECKING:
    from cotenant.backtesting.sources import Series
    from cotenant.base.table import Table
    from cotenant.base.usage.backtest import BacktestReport, Frontier, PolicyTrial
    from cotenant.cli.report.backtest_report import BacktestContents
    from cotenant.forecasting.backtest.contenders import Contender
    from cotenant.forecasting.backtest.plan import BacktestPlan
    from cotenant.forecasting.backtest.run import BacktestScores, Shard
    from cotenant.forecasting.settings import NodePeakSettings

app = new_app()

FRONTIER: Final = ("cotenant.backtests", "frontier")
"""Group and name of the entry point that draws the chart of --pods-per-node."""


class BacktestFormat(StrEnum):
    """The output format of the scores."""

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
    str | None, typer.Option("--limit-column", metavar="NAME", help="Column that holds each series' limit.")
]
OriginsOption = Annotated[
    int, typer.Option("--origins", min=1, metavar="N", help="Number of forecasts, spread over the history.")
]
KnownOption = Annotated[
    float,
    typer.Option(
        "--known-share", min=0.01, max=1, metavar="SHARE", help="Share of each forecast's history that must have data."
    ),
]
BaselinesOption = Annotated[
    str | None,
    typer.Option("--baselines", metavar="B1,B14,...", help="Baselines to compare; default: all fast ones."),
]
PodsOption = Annotated[
    int | None,
    typer.Option("--pods-per-node", min=2, metavar="N", help="With -o html: chart what nodes of N pods could lend."),
]
ReclaimOption = Annotated[
    bool,
    typer.Option(
        "--reclaim",
        help="Compare reclaim policies on the stored history: what each lends, and how often too much.",
    ),
]
OutputOption = Annotated[BacktestFormat, typer.Option("--output", "-o", help="Output format of the scores.")]
FileOption = Annotated[
    Path | None, typer.Option("--output-file", metavar="FILE", help="Write the scores to this file.")
]


@app.command(
    epilog=examples(
        "cotenant backtest usage.parquet --column cpu_usage_pct --limit 100",
        "cotenant backtest traces/ --column cpu_cores --limit-column cpu_request --origins 56 -o json",
        "cotenant backtest --all-clusters -o csv  # each cluster's stored history, with its name as a column",
        "cotenant backtest --metric memory  # the stored history, workload by workload",
        "cotenant backtest usage.parquet --baselines B1,B11,B14 -o html --output-file report.html",
        "cotenant backtest --reclaim  # what each reclaim policy would have lent, and how often too much",
    )
)
def backtest(
    ctx: typer.Context,
    trace: Annotated[
        str | None, typer.Argument(metavar="TRACE", help="Parquet file or folder (see docs/backtest.md).")
    ] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="Column to forecast.")] = None,
    limit: LimitOption = None,
    limit_column: LimitColumnOption = None,
    metric: Annotated[Resource, typer.Option("--metric", "-m", help="cpu or memory.")] = Resource.CPU,
    origins: OriginsOption = ORIGINS,
    horizon: Annotated[Horizon, typer.Option("--horizon", help="24 hours in half hours, or 7 days in hours.")] = (
        Horizon.DAY
    ),
    known_share: KnownOption = 0.5,
    baselines: BaselinesOption = None,
    pods_per_node: PodsOption = None,
    reclaim: ReclaimOption = False,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    output: OutputOption = BacktestFormat.TABLE,
    output_file: FileOption = None,
    no_headers: NoHeadersOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.")] = False,
) -> None:
    """Forecast past periods of a history from the data before them, and score the forecasts. Read-only.

    Without TRACE the stored history is used, and the report is stored with the results for the dashboard.
    """
    from cotenant.backtesting.forecast_backtest import contenders, plan_of
    from cotenant.base.process.clock import SystemClock

    if trace is not None and (store or cluster or all_clusters):
        raise UsageError("TRACE and options of the store exclude each other", fix="Leave out TRACE or these options.")
    if trace is None and (column or limit_column or limit is not None):
        raise UsageError("--column, --limit and --limit-column apply only to a TRACE", fix="Name a trace file.")
    if reclaim and (trace is not None or baselines or pods_per_node):
        raise UsageError("--reclaim needs the stored history and has no baselines", fix="Leave out all but --reclaim.")
    if all_clusters and output is BacktestFormat.HTML:
        raise UsageError("-o html writes the report of a single cluster", fix="Name the cluster: --cluster NAME.")
    if pods_per_node:
        part_of_lab(*FRONTIER)  # without it nothing begins
    form = _Form(output, output_file, not no_headers, quiet)
    if reclaim:
        _reclaim(stored_clusters_of(ctx, store, cluster, all_clusters), form, all_clusters=all_clusters)
        return
    who = contenders(baselines, metric, horizon)
    run = _BacktestRun(metric, plan_of(horizon, metric, known_share), who, origins, pods_per_node, quiet)
    if trace is not None:
        settings = session_of(ctx).read().settings
        now = int(SystemClock().now_seconds())
        contents, _ = run.of(_trace(trace, (column, limit, limit_column)), Settings.of(settings), now)
        _write(contents, form)
        if not quiet:
            _print_outcome(contents, saved=False)
        return
    _backtest_stored(stored_clusters_of(ctx, store, cluster, all_clusters), run, form, all_clusters=all_clusters)


def _backtest_stored(clusters: Sequence[StoredCluster], run: _BacktestRun, form: _Form, *, all_clusters: bool) -> None:
    """Score stored histories. Scores are written first, so that they are not lost if the store takes no report."""
    from cotenant.base.usage.backtest import BACKTEST

    answers, failures = computed_for_each(clusters, run.of_stored, "back-tested", all_clusters=all_clusters)
    if all_clusters:
        _write_scores(_combine_scores({name: contents.scores for name, (contents, _) in answers.items()}), str, form)
    else:
        _write(next(iter(answers.values()))[0], form)
    for store in (cluster.store for cluster in clusters if cluster.store.cluster in answers):
        contents, report = answers[store.cluster]
        store.write_document(BACKTEST, report)
        if not form.quiet:
            _print_outcome(contents, saved=True, head=f"cluster {store.cluster}: " if all_clusters else "")
    exit_if_partial(failures)


@dataclass(frozen=True, slots=True)
class _Form:
    """The output options of the scores: format, file, headers and progress."""

    output: BacktestFormat
    file: Path | None
    headers: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class _BacktestRun:
    """The parameters of a back-test, the same for every history."""

    metric: Resource
    plan: BacktestPlan
    contenders: list[Contender]
    origins: int
    pods_per_node: int | None
    quiet: bool

    def of(self, series: Series, settings: Settings, now_seconds: int) -> tuple[BacktestContents, BacktestScores]:
        """Return the report and the scores behind it; `now_seconds` is the Unix time in the report."""
        from cotenant.backtesting.forecast_backtest import curves, run_backtest, table
        from cotenant.cli.report.backtest_report import BacktestContents
        from cotenant.forecasting.backtest.engine import ENGINE

        drawn: tuple[Frontier, ...] = ()
        with bars(quiet=self.quiet) as progress:
            ledger = run_backtest(series, self.plan, self.contenders, self.origins, progress)
            if self.pods_per_node:
                # Savings against violations of nodes made of the first shard's series: ours and static predictors.
                frontier: Callable[[Shard, int, NodePeakSettings], Frontier] = part_of_lab(*FRONTIER)
                progress.stage("Frontier", 1)
                drawn = (frontier(next(series.shards()), self.pods_per_node, settings.node_peak),)
                progress.advance()
        plan = ledger.plan
        description = (
            f"{len(ledger.names)} series, {len(ledger.origins)} origins; {plan.history_days} days of history, "
            f"{plan.horizon_hours} hours ahead in steps of {plan.step_seconds // 60} minutes."
        )
        contents = BacktestContents(
            series.title, description, now_seconds, ENGINE, table(ledger), curves(ledger), drawn
        )
        return contents, ledger

    def of_stored(self, stored: StoredCluster) -> tuple[BacktestContents, BacktestReport]:
        """Return the scores of a stored history, and their report for the dashboard."""
        from cotenant.backtesting.sources import StoredSeries

        contents, ledger = self.of(
            StoredSeries.of(stored.store, self.metric), Settings.of(stored.settings), stored.now_seconds()
        )
        # The page for the dashboard.
        from cotenant.base.usage.backtest import BacktestReport
        from cotenant.cli.report.backtest_report import page

        summary = f"{len(ledger.names)} workloads, {len(ledger.origins)} origins"
        return contents, BacktestReport(contents.title, contents.computed_seconds, summary, page(contents))


def _combine_scores(scores: Mapping[str, Table]) -> Table:
    from cotenant.base.table import of_clusters

    return of_clusters(next(iter(scores.values())).schema, scores)


def _reclaim(clusters: Sequence[StoredCluster], form: _Form, *, all_clusters: bool) -> None:
    """Score reclaim policies instead of forecasts; store the scores for the overview."""
    from cotenant.cli.analysis.backtest_reclaim import store_trial, summary, table, trial
    from cotenant.cli.report.backtest_report import policies_page

    def try_policies(stored: StoredCluster) -> PolicyTrial:
        with bars(quiet=form.quiet) as progress:
            return trial(stored.store, Settings.of(stored.settings), progress, stored.now_seconds())

    trials, failures = computed_for_each(clusters, try_policies, "back-tested", all_clusters=all_clusters)
    name, first = next(iter(trials.items()))
    lead = f"Reclaim policies on {first.nodes} nodes of cluster {name}, {first.tested_days:.1f} tested days."
    scores = {name: table(trial) for name, trial in trials.items()}
    shown = _combine_scores(scores) if all_clusters else scores[name]
    _write_scores(shown, lambda: policies_page(lead, first.computed_seconds, shown), form)
    for store in (cluster.store for cluster in clusters if cluster.store.cluster in trials):
        done = trials[store.cluster]
        store_trial(store, done)
        if not form.quiet:
            message(f"cluster {store.cluster}: {summary(done)}" if all_clusters else summary(done))
    if not form.quiet:
        message("the scores are stored with the results: page Home recommends a policy by these scores")
    exit_if_partial(failures)


def _trace(trace: str, columns: tuple[str | None, float | None, str | None]) -> Series:
    from cotenant.backtesting.sources import TraceSeries
    from cotenant.base.store.traces import open_trace

    opened = open_trace(trace)
    column, limit, limit_column = columns
    for name in (column, limit_column):
        if name is not None and name not in opened.columns:
            raise UsageError(f"{trace} has no numeric column {name!r}", fix=f"Name one of {', '.join(opened.columns)}.")
    if column is None and len(opened.columns) != 1:
        fix = f"Name one of them by --column: {', '.join(opened.columns)}."
        raise UsageError(f"{trace} has {len(opened.columns)} numeric columns", fix=fix)
    return TraceSeries(opened, column or opened.columns[0], limit, limit_column)


def _write(contents: BacktestContents, form: _Form) -> None:
    from cotenant.cli.report.backtest_report import page

    _write_scores(contents.scores, lambda: page(contents), form)


def _write_scores(scores: Table, html: Callable[[], str], form: _Form) -> None:
    """Write the scores to stdout or a file; raise StoreError if the file cannot be written."""
    if form.output is BacktestFormat.HTML:
        text = html()
    elif form.file is None:
        print_table(scores, Format(form.output.value), headers=form.headers)
        return
    else:
        text = "".join(render(scores, Format(form.output.value), headers=form.headers))
    if form.file is None:
        sys.stdout.write(text)
        return
    try:
        form.file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{form.file} cannot be written: {error.strerror}") from error


def _print_outcome(contents: BacktestContents, *, saved: bool, head: str = "") -> None:
    first = next(iter(contents.scores.rows()))
    if first["contender"] == contents.ours and first["vs_b14"] is not None:
        message(
            f"{head}the loss is {first['rel_wql']:.3f} x that of B1, which repeats the day before, and "
            f"{first['vs_b14']:.3f} x that of B14, 95 % interval {first['vs_b14_low']:.3f}..{first['vs_b14_high']:.3f}"
        )
    if saved:
        message(f"{head}the report is stored with the results: the dashboard's Forecast page links to it")
