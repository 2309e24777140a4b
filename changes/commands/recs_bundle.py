"""`cotenant recs bundle|watch`: files for a GitOps repository, and the watcher of accepted changes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.cluster_options import Context, Kubeconfig, settings_of
from cotenant.base.commands.command import examples, new_app, session_of
from cotenant.base.commands.files import save_all
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.results import ClusterOption, StoreOption, open_store
from cotenant.base.errors import CotenantError
from cotenant.changes.commands.ledger_access import open_actions, workload_recommendations
from cotenant.changes.commands.recs_options import BundleFolder, BundleFormat, Second, Workloads
from cotenant.changes.commands.watcher_output import news_notifier, peaks_of
from cotenant.changes.model.service import BundleForm, Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.settings import RecommenderSettings

if TYPE_CHECKING:
    from cotenant.base.settings.root import SettingSections
    from cotenant.changes.accept import Actions

app = new_app()


@app.command(
    epilog=examples(
        "cotenant recs bundle pay/checkout -o ./bundle",
        "cotenant recs bundle pay/checkout pay/fraud-gateway -o ./bundle --form helm",
    )
)
def bundle(
    ctx: typer.Context,
    workloads: Workloads,
    folder: BundleFolder,
    form: BundleFormat = BundleForm.KUSTOMIZE,
    approved_by: Second = "",
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write files for a GitOps repository, and PULL_REQUEST.md with the numbers; the cluster stays as it is."""
    from cotenant.changes.bundle_export import export_bundle

    settings = settings_of(ctx, store, kubeconfig, context)
    recommendations = workload_recommendations(settings, cluster, workloads)
    with open_actions(settings) as actions:
        reviews = actions.review(recommendations, approved_by, Method.BUNDLE)
        files = export_bundle(actions, reviews, form, settings.section(RecommenderSettings), secrets.token_hex(4))
    save_all(folder, files)


@app.command(
    epilog=examples(
        "cotenant recs watch  # until Ctrl-C",
        "cotenant recs watch --once -o json",
        "cotenant recs watch --set actions.auto_revert=true --set notify.url_file=/run/secrets/chat",
    )
)
def watch(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Look once, do what is due, and end.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Continue canaries and ladders, verify changes after their soak time, settle unknown outcomes, notify the chat."""
    from cotenant.changes.access.configured_service import climber_of
    from cotenant.changes.model.tables import changes_table
    from cotenant.changes.soak.watcher import Watcher, by_itself

    settings = settings_of(ctx, None, kubeconfig, context)
    # The store of the named cluster, or of the only one there is; without one, no peaks are reported.
    cluster = session_of(ctx).cluster
    try:
        stored = open_store(settings, cluster)
    except CotenantError:
        stored = None
    watcher = Watcher(
        lambda: by_itself(open_actions_with_metrics(settings)),
        news_notifier(settings),
        peaks_of(stored),
        climb=climber_of(settings, stored) if stored is not None else None,
    )
    if once:
        print_table(changes_table(watcher.step()), output, headers=not no_headers)
        return
    message(f"looking every {settings.section(ActionSettings).watch_seconds:g} seconds; Ctrl-C ends it")
    # Run until SIGINT or SIGTERM; what is being done then is done first.
    every_seconds = settings.section(ActionSettings).watch_seconds
    import signal
    import threading

    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    watcher.run(every_seconds, end)


@contextmanager
def open_actions_with_metrics(settings: SettingSections, what: str = "the watcher looks") -> Iterator[Actions]:
    """Actions that compare throttling and pressure where a metric source is named."""
    with open_actions(settings, what) as actions:
        prometheus = settings.section(ProfilerSettings).prometheus
        if not prometheus.url:
            yield actions
            return
        from cotenant.changes.soak.usage_comparison import PrometheusComparison
        from cotenant.profiler.prometheus.client import Client

        client = Client(prometheus)
        try:
            metrics = PrometheusComparison(client, prometheus.labels)
            actions.compare, actions.trace = metrics, metrics.trace
            yield actions
        finally:
            client.close()
