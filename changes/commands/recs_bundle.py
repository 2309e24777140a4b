"""`cotenant recs bundle|watch`: write files or a commit for a GitOps repository; run the watcher of changes."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.files import save_all
from cotenant.base.commands.output import message
from cotenant.base.commands.results import FilterOption, NamespaceOption, chosen_of_scan, open_scans, open_store
from cotenant.base.commands.session import EXIT_FINDINGS, new_app, session_of
from cotenant.base.errors import CotenantError, NoData, UsageError
from cotenant.base.text import visible
from cotenant.changes.commands.ledger_access import open_actions, workload_recommendations
from cotenant.changes.commands.recs_options import (
    BUNDLE_FOLDER,
    WORKLOADS,
    BundleBranch,
    BundleFormat,
    BundleRepository,
    Second,
)
from cotenant.changes.commands.watcher_output import news_notifier, peaks_of
from cotenant.changes.model.service import BundleForm, CommitBundle, Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.settings import RecommenderSettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.accept import Actions
    from cotenant.changes.model.service import BundleCommit

app = new_app()


@command(
    app,
    STORED | LIVE,
    "cotenant recs bundle pay/checkout -o ./bundle",
    "cotenant recs bundle pay/checkout pay/fraud-gateway -o ./bundle --form helm",
    "cotenant recs bundle pay/checkout --branch right-sizing/checkout --repo ./deploy  # shows the diff",
    "cotenant recs bundle -n pay --filter severity=critical --branch right-sizing/pay --repo ./deploy --yes",
)
def bundle(
    call: CommandCall,
    workloads: Annotated[list[str] | None, WORKLOADS] = None,
    folder: Annotated[Path | None, BUNDLE_FOLDER] = None,
    form: BundleFormat = BundleForm.KUSTOMIZE,
    branch: BundleBranch = "",
    repository: BundleRepository = Path(),
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Make the commit. Without --yes only the diff is shown.")] = False,
    approved_by: Second = "",
) -> None:
    """Write files for a GitOps repository and PULL_REQUEST.md, or with --branch a commit; the cluster is not changed.

    Name the workloads, or select them with --namespace and --filter. Exit code 3: the commit leaves a workload out.
    """
    from cotenant.base.identity import WorkloadRef
    from cotenant.changes.bundle_export import commit_bundle, export_bundle
    from cotenant.changes.decide.patches import resources
    from cotenant.recommender.model.views import RECOMMENDATIONS

    if bool(branch) == (folder is not None):
        raise UsageError("give either --output-dir or --branch", fix="Files go to -o DIR, a commit to --branch NAME.")
    settings = call.settings
    if bool(workloads) == bool(namespace or query):
        raise UsageError("give either workloads or filters", fix="Name workloads, or use --namespace and --filter.")
    names = workloads or []
    if not names:
        scans = open_scans(settings, call.cluster, False)
        rows = chosen_of_scan(scans, scans.read_table(RECOMMENDATIONS), namespace, query).rows()
        names = list(dict.fromkeys(str(WorkloadRef(row["namespace"], row["kind"], row["workload"])) for row in rows))
    recommendations = workload_recommendations(settings, call.cluster, names)
    key, recommender = secrets.token_hex(4), settings.section(RecommenderSettings)
    with open_actions(settings) as actions:
        if not workloads:  # of what the filters show: what changes, and is not hidden
            due = {r.container.workload for r in recommendations if resources(r)} - set(actions.postponements())
            recommendations = [r for r in recommendations if r.container.workload in due]
        if not recommendations:
            raise NoData("none of the selected workloads would change", fix="cotenant recs list --all shows reasons.")
        reviews = actions.review(recommendations, approved_by, Method.BUNDLE)
        if folder is None:
            request = CommitBundle(branch, str(repository), write=yes)
            _report_commit(commit_bundle(actions, reviews, request, recommender, key), repository)
        else:
            save_all(folder, export_bundle(actions, reviews, form, recommender, key))


def _report_commit(commit: BundleCommit, repository: Path) -> None:
    """Print message and diff as `git show` does; print on stderr what was done, and what was left out, with its fix."""
    show = visible if sys.stdout.isatty() else str
    text = [f"    {line}".rstrip() for line in commit.message.splitlines()] if commit.files else []
    sys.stdout.writelines(f"{show(line)}\n" for line in [*text, *commit.diff.split("\n")[:-1]])
    for out in commit.refused:
        message(f"left out: {out.workload}: {out.why}. {out.fix}", style="yellow")
    message(commit.sentence if commit.commit else f"{commit.sentence}; --yes makes the commit")
    if commit.commit:
        push = f"push -u origin {shlex.quote(commit.branch)}"
        message(f"nothing is pushed; to push: git -C {shlex.quote(str(repository))} {push}")
    if commit.refused:
        raise typer.Exit(EXIT_FINDINGS)


@command(
    app,
    LIVE | ROWS,
    "cotenant recs watch  # until Ctrl-C",
    "cotenant recs watch --once -o json",
    "cotenant recs watch --set actions.auto_revert=true --set notify.url_file=/run/secrets/chat",
)
def watch(
    call: CommandCall,
    once: Annotated[bool, typer.Option("--once", help="Check changes once, take due steps, and exit.")] = False,
) -> None:
    """Continue canaries and ladders, verify changes after their soak time, settle unknown outcomes, notify the chat."""
    from cotenant.changes.access.configured_service import climber_of
    from cotenant.changes.model.tables import changes_table
    from cotenant.changes.soak.watcher import Watcher, by_itself

    settings = call.settings
    # The store of the named cluster, or of the only one there is; without one, no peaks are reported.
    try:
        stored = open_store(settings, session_of(call.ctx).cluster)
    except CotenantError:
        stored = None
    watcher = Watcher(
        lambda: by_itself(open_actions_with_metrics(settings)),
        news_notifier(settings),
        peaks_of(stored),
        climb=climber_of(settings, stored) if stored is not None else None,
    )
    if once:
        call.print(changes_table(watcher.step()))
        return
    message(f"checking changes every {settings.section(ActionSettings).watch_seconds:g} seconds; Ctrl-C ends it")
    # Run until SIGINT or SIGTERM; what is being done then is done first.
    every_seconds = settings.section(ActionSettings).watch_seconds
    import signal
    import threading

    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    watcher.run(every_seconds, end)


@contextmanager
def open_actions_with_metrics(settings: SettingSections, what: str = "the watcher runs") -> Iterator[Actions]:
    """Yield actions that also compare throttling and pressure if a metric source is configured."""
    with open_actions(settings, what) as actions:
        prometheus = settings.section(ProfilerSettings).prometheus
        if not prometheus.url:
            yield actions
            return
        from cotenant.changes.soak.usage_comparison import PrometheusComparison
        from cotenant.profiler.prometheus.client import Client

        with closing(Client(prometheus)) as client:
            metrics = PrometheusComparison(client, prometheus.labels)
            yield actions.having(compare=metrics, trace=metrics.trace)
