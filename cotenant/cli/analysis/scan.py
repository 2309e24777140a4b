"""`cotenant scan`: usage history from Prometheus to recommendations, read-only."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cotenant.base import measures
from cotenant.base.commands.output import DocumentFormat, NoHeadersOption, message, print_document
from cotenant.base.commands.progress import bars
from cotenant.base.commands.results import (
    ClusterOption,
    FilterOption,
    NamespaceOption,
    StoreOption,
    filter_rows,
    open_store,
    report_failures,
    require_namespaces,
    url_of,
)
from cotenant.base.commands.session import EXIT_FINDINGS, EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.errors import StoreConflict
from cotenant.base.process.memory import few_heaps, release_memory, seldom_collected
from cotenant.base.text import counted
from cotenant.cli.analysis import scan_clusters
from cotenant.cli.analysis.export import Results, ScanFormat, check
from cotenant.cli.analysis.findings import FailOn, FailOnOption
from cotenant.cli.analysis.metric_source import HeaderOption, LabelOption, TokenOption, metric_source, prometheus_flags
from cotenant.cli.analysis.notice import DryRunOption, NotifyOption, address, payload, send, summarise
from cotenant.cli.analysis.recorded_history import older_source, recorded_history

if TYPE_CHECKING:
    from cotenant.base.progress import Progress
    from cotenant.base.store import Store
    from cotenant.base.table import Table
    from cotenant.base.usage.server_quantiles import ServerQuantiles
    from cotenant.cli.analysis.metric_source import ScanTarget
    from cotenant.cli.analysis.notice import Summary
    from cotenant.cli.analysis.scan_clusters import ScanJob
    from cotenant.settings import Settings

app = new_app()

_SEVERITIES: Final = ("critical", "warning", "ok", "good", "unknown")

PrometheusOption = Annotated[str | None, typer.Option("--prometheus", "-p", metavar="URL", help="Prometheus to query.")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig of the cluster to scan.")
]
ContextOption = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
WindowOption = Annotated[int | None, typer.Option("--window-days", metavar="DAYS", help="Days of history to read.")]
StrategyOption = Annotated[str | None, typer.Option("--strategy", "-s", metavar="NAME", help="Recommender strategy.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", "-w", min=1, max=256, help="Number of processes that share the work.")
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="URL", help="Dask scheduler whose workers share the work.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--output-dir", metavar="DIR", help="Folder for the files of -o html, kustomize, helm, ssa."),
]


@app.command(
    epilog=examples(
        "cotenant scan --prometheus http://localhost:9090",
        "cotenant scan --context prod-1  # finds the Prometheus of that cluster by its Service's labels",
        "cotenant scan --all-clusters  # every cluster that the settings declare (docs/clusters.md)",
        "cotenant scan --prometheus https://prom.example --bearer-token-file token -n shop -o csv",
        "cotenant scan --offline --strategy vpa -o wide  # what VPA would recommend from the stored history",
        "cotenant scan --offline --fail-on severity=critical -o patch",
        "cotenant scan --offline -n shop -o kustomize --output-dir deploy/cotenant  # also helm, ssa",
        "cotenant scan --offline -o html > report.html",
        "cotenant scan --offline --workers 8  # the stored history again, its workloads shared by 8 processes",
        "cotenant scan --offline --notify-url webhook-address  # a file that holds the receiver's address",
    )
)
def scan(
    ctx: typer.Context,
    prometheus: PrometheusOption = None,
    bearer_token_file: TokenOption = None,
    header: HeaderOption = None,
    label: LabelOption = None,
    kubeconfig: Kubeconfig = None,
    context: ContextOption = None,
    window_days: WindowOption = None,
    strategy: StrategyOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only stored history. With --strategy, results are not stored.")
    ] = False,
    cluster: ClusterOption = None,  # noqa: ARG001 - the session knows it
    all_clusters: Annotated[
        bool, typer.Option("--all-clusters", help="Scan every cluster that the settings declare.")
    ] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    output: Annotated[ScanFormat, typer.Option("--output", "-o", help="Output format of the rows.")] = ScanFormat.TABLE,
    output_dir: FolderOption = None,
    no_headers: NoHeadersOption = False,
    fail_on: FailOnOption = None,
    notify_url: NotifyOption = None,
    notify_dry_run: DryRunOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.")] = False,
) -> None:
    """Read usage history from Prometheus, forecast, and recommend requests and limits. Read-only."""
    threshold = FailOn.parse(fail_on) if fail_on else None
    check(output, output_dir)
    if all_clusters:
        scan_clusters.check_form(output, output_dir)
    flags = {
        **prometheus_flags(prometheus, bearer_token_file, header, label),
        "profiler.window_days": window_days,
        "kube.kubeconfig": kubeconfig,
        "kube.context": context,
        "recommender.strategy": strategy,
        "pipeline.workers": workers,
        "pipeline.scheduler": scheduler,
        "store.url": store,
    }
    jobs = scan_clusters.jobs(session_of(ctx), flags, offline=offline, all_clusters=all_clusters)
    from cotenant.pipeline.shards import executors
    from cotenant.recommender.base import load_strategy

    # CotenantError for a receiver, strategy or workers that cannot be had: before minutes of reading and forecasting.
    for job in jobs:
        address(notify_url, job.settings.notify)
        load_strategy(job.settings.recommender.strategy)
        executors.choose_executor(job.settings.pipeline)
    trials = None
    if offline and strategy:  # the results of a strategy that is only tried live until the command ends
        trials = Path(ctx.with_resource(TemporaryDirectory(prefix="cotenant-scan-")))
    with bars(quiet=quiet) as progress, seldom_collected():
        read = partial(_history, quiet=quiet)
        analyse = partial(_analyse_and_publish, trials=trials)
        refuse = partial(require_namespaces, namespaces=namespace)
        places, failures = scan_clusters.scan_each_cluster(jobs, read, refuse, analyse, progress)
    report_failures(failures, len(jobs), "scanned")
    every = scan_clusters.chosen_rows(places, namespace, query, of_all=all_clusters)
    if not notify_dry_run:
        scan_clusters.write_all(every, output, output_dir, headers=not no_headers)
    for results in every.by_cluster:  # of each cluster to its own receiver
        if notify_dry_run:
            print_document(payload(_summary_of(results, namespace), results.settings.notify), DocumentFormat.JSON)
        elif receiver := address(notify_url, results.settings.notify):
            send(receiver, _summary_of(results, namespace), results.settings.notify)
    for results in () if quiet else every.by_cluster:
        _summary(results, f"cluster {results.store.cluster}: " if all_clusters else "")
    if threshold and threshold.findings(every.rows.columns["severity"]):
        raise typer.Exit(EXIT_FINDINGS)
    if failures or any(is_partial(results.store) for results in every.by_cluster):
        raise typer.Exit(EXIT_PARTIAL)


def is_partial(place: Store) -> bool:
    """Return whether a part of the stored history could not be read; the scan's summary then has a note about it."""
    records = place.read_quality()
    return bool(records and records[-1].unread_seconds)


def _history(job: ScanJob, progress: Progress, *, quiet: bool) -> tuple[Store, ScanTarget | None]:
    """Return the store of the history, read anew unless the job is offline, and the target that was queried.

    The target is None if the job is offline or if only a recorder has the history.
    """
    if job.offline:
        return open_store(job.settings, job.cluster), None
    recorded = recorded_history(job.settings, job.cluster, reaches_cluster=job.reaches_cluster)
    if recorded is not None:
        # The recorder's store; what was before the recording is pulled from the cluster's own Prometheus, if any.
        # That one is no condition: without its answer the recording is read as it is, with a note. NoData without
        # either.
        from cotenant.base.errors import NoData, SourceError

        older = older_source(job.settings, recorded, reaches_cluster=job.reaches_cluster)
        if not quiet:
            message(f"reading {recorded.describe()}")
        if older is not None:
            try:
                return _asked_history(job.settings, older, progress, quiet=quiet), older
            except (SourceError, NoData) as error:
                message(f"note: {older.how} has no data from before the recorder started: {error.message}")
        return recorded.require_usage(), None
    target = metric_source(job.settings, job.cluster, reaches_cluster=job.reaches_cluster)
    return _asked_history(job.settings, target, progress, quiet=quiet), target


def _asked_history(settings: Settings, target: ScanTarget, progress: Progress, *, quiet: bool) -> Store:
    """Read the history from a Prometheus, and import the analysis while the server responds."""
    threading.Thread(target=importlib.import_module, args=("cotenant.pipeline.daily_analysis",), daemon=True).start()
    if not quiet:
        message(f"asking {target.source.describe()} ({target.how})")
    # Pull what is new; an interruption keeps what was stored so far, a source without usage leaves no cluster.
    from cotenant.base.errors import NoData
    from cotenant.base.kube.overlay import overlay
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.store import Store
    from cotenant.profiler.history import pull

    few_heaps()
    place = Store(url_of(settings), target.cluster)
    is_new = target.cluster not in Store.clusters(place.url)
    pull(target.source, place, settings.profiler, SystemClock(), progress)
    if place.usage_span() is None:
        if is_new:
            place.remove()
        days = settings.profiler.window_days
        raise NoData(
            f"{target.source.describe()} answers, but has no usage of containers in the last {days:g} days",
            fix="Name the Prometheus that scrapes the kubelets of this cluster; cotenant doctor says what is missing. "
            "Series of windows_exporter are not read.",
        )
    if target.live is not None and (inventory := place.read_inventory()) is not None:
        place.write_inventory(overlay(inventory, target.live))
    release_memory()
    return place


def _analyse_and_publish(
    store: Store, job: ScanJob, progress: Progress, target: ScanTarget | None, *, trials: Path | None
) -> tuple[Store, Table]:
    """Analyse and publish; return the store of the results, and the recommendations.

    If a run with a newer history was published meanwhile, its recommendations are returned, and a note says so.

    `trials` is the folder for results of a strategy that is only tried; None publishes to `store`.
    """
    from cotenant.base.kube import clock_of_results
    from cotenant.pipeline import daily_analysis
    from cotenant.recommender.model.views import RECOMMENDATIONS

    settings = job.settings
    server = _server_quantiles(store, settings, progress, target) if target else None
    # The machine's clock; of a stored history that is only analysed again, the clock of its cluster.
    clock = clock_of_results(settings.kube, reaches_cluster=job.offline and job.reaches_cluster)
    analysis = daily_analysis.analyse(store, settings, clock, progress, server=server)
    place = store
    if trials is not None:  # elsewhere than another strategy's results, which the dashboard shows and which stay
        from cotenant.base.settings.sections import folder_url
        from cotenant.base.store import Store as Place
        from cotenant.recommender.model.views import Overview

        stored, tried = store.read_document("overview", Overview), settings.recommender.strategy
        if stored is not None and stored.strategy != tried:
            message(
                f"note: these results of strategy {tried} are not stored; the stored results remain those of "
                f"{stored.strategy}; the setting recommender.strategy names the strategy to store"
            )
            place = Place(folder_url(trials), store.cluster)
            for record in store.read_quality():
                place.append_quality(record)
    try:
        daily_analysis.publish(analysis, place, settings)
    except StoreConflict as error:
        message(f"note: {error.message}. The table shows the stored results.")
    return place, place.read_table(RECOMMENDATIONS)


def _server_quantiles(
    store: Store, settings: Settings, progress: Progress, target: ScanTarget
) -> ServerQuantiles | None:
    """Return quantiles computed by the server, for strategies defined by them (not in the query budget)."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.profiler.prometheus.quantiles import QuantileQuery

    if not settings.recommender.strategy.startswith("krr-") or (inventory := store.read_inventory()) is None:
        return None
    krr = settings.recommender.krr
    pooled = settings.recommender.strategy == "krr-simple-limit"
    progress.stage("Query quantiles that Prometheus computes", 1)
    question = QuantileQuery(
        cpu_fraction=krr.cpu_percentile / 100,
        end_seconds=int(SystemClock().now_seconds()),
        span_seconds=int(krr.history_hours * 3600),
        step_seconds=krr.step_seconds,
        pooled=(krr.cpu_request_percentile / 100, krr.cpu_limit_percentile / 100) if pooled else (),
    )
    answer = target.source.quantiles(question, inventory)
    progress.advance()
    return answer


def _summary_of(results: Results, namespaces: list[str] | None) -> Summary:
    """Return the summary of the shown rows, and of the findings of the same namespaces."""
    from cotenant.recommender.model.views import FINDINGS, Overview

    overview, findings = results.store.read_document("overview", Overview), results.table(FINDINGS)
    assert overview is not None, "the analysis wrote it in this run"
    shown = filter_rows(findings, namespaces, None) if findings is not None else None
    return summarise(overview, results.rows, shown, results.settings.recommender.prices.currency)


def _summary(results: Results, of: str) -> None:
    from cotenant.base.usage.usage import HOUR_SECONDS
    from cotenant.recommender.model.savings import When, summed_savings
    from cotenant.recommender.model.savings_text import saving_text
    from cotenant.recommender.model.views import FINDINGS, Overview

    rows, overview = results.rows, results.store.read_document("overview", Overview)
    if overview is None:
        return
    numbers = Counter(rows.columns["severity"].tolist())
    counts = ", ".join(f"{numbers[s]} {s}" for s in _SEVERITIES if numbers[s]) or "none"
    measured = f"{counted(len(rows), 'container')} of {counted(overview.workloads, 'workload')}"
    message(f"{of}{measured}: {counts}. Strategy {overview.strategy}.")
    currency = results.settings.recommender.prices.currency
    for when in When:
        message(f"{when.capitalize()}: {saving_text(summed_savings(rows.columns, when), currency)}.")
    # A sentence on the back-tests behind the forecasts. It reports that this scan made them, how old they are, or
    # that no series is old enough.
    relearn_hours = results.settings.forecasting.relearn_hours
    if overview.learned_seconds is None:
        backtest_sentence = "No series is old enough to back-test a forecast."
    else:
        hours = measures.age_seconds(overview.time_seconds, overview.learned_seconds) / HOUR_SECONDS
        if hours < 0.5:
            backtest_sentence = "Forecasts use back-tests of the history up to now."
        else:
            backtest_sentence = (
                f"Forecasts use back-tests of {hours:.0f} h ago; new back-tests are made after {relearn_hours:g} h."
            )
    message(backtest_sentence)
    if overview.kept_seconds is not None:
        kept_hours = measures.age_seconds(overview.time_seconds, overview.kept_seconds) / HOUR_SECONDS
        verb = "is kept" if overview.kept_recommendations == 1 else "are kept"
        message(
            f"{overview.kept_recommendations} of {len(rows)} recommendations {verb} from up to {kept_hours:.0f} h ago: "
            "their workloads have no new samples."
        )
    for note in overview.notes:
        message(f"note: {note}")
    if findings := results.table(FINDINGS):
        message(f"{counted(len(findings), 'further finding')}: cotenant get findings.")
    message("To see why: cotenant explain NAMESPACE/KIND/NAME. In the browser: cotenant dashboard.")
