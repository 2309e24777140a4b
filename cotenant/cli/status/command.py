"""`cotenant status`: a cluster on one screen, or all clusters of the store side by side."""

from __future__ import annotations

import sys

import typer

from cotenant.base.commands.call import LIVE, ROWS, SCANS, SETTINGS, CommandCall, command
from cotenant.base.commands.output import DocumentFormat, Format, align_columns, message, print_document
from cotenant.base.commands.results import note_unstored, open_store, refuse_name, url_of
from cotenant.base.commands.session import EXIT_PARTIAL, new_app, session_of
from cotenant.base.errors import CotenantError, UsageError
from cotenant.settings import Settings

app = new_app()


@command(
    app,
    SCANS | LIVE | ROWS,
    "cotenant status",
    "cotenant status -o json",
    "cotenant status --all-clusters  # one row a cluster",
    "cotenant status --context prod",
)
def status(call: CommandCall) -> None:
    """Show what runs, what is lent, at risk and waiting, the next peak, and the verified savings.

    With several clusters each is a row, unless one is named. Exit code 4 if a part could not be read.
    """
    from cotenant.base.store import Store

    session, all_clusters, store = session_of(call.ctx), call.given["all_clusters"], call.given["store"]
    if all_clusters:
        refuse_name(session)
    loaded = session.read({"store.url": store})
    url = url_of(loaded.settings)
    options_given = {SETTINGS[name]: call.given[name] for name in LIVE}
    if all_clusters or (call.cluster is None and len(Store.clusters(url)) > 1):
        if any(options_given.values()):
            session.require_no_context(options_given, "the status of several clusters")
        note_unstored(loaded)
        from cotenant.base.store.store import opened_all
        from cotenant.recommender.model.clusters import clusters_table
        from cotenant.recommender.model.views import Overview

        overviews: dict[str, Overview | None] = {}
        faults: dict[str, str] = {}
        for opened in opened_all(url):
            try:
                overviews[opened.cluster] = opened.read_document("overview", Overview)
            except CotenantError as error:
                overviews[opened.cluster], faults[opened.cluster] = None, error.message
        call.print(clusters_table(overviews))
        for name, fault in faults.items():
            message(f"note: the results of cluster {name} cannot be read: {fault}")
        if faults:
            raise typer.Exit(EXIT_PARTIAL)
        return
    if call.output is Format.CSV:
        raise UsageError("-o csv is for several clusters", fix="Give --all-clusters, or -o json.")
    options = {path: value for path, value in options_given.items() if value is not None}
    _print_one(call, {"store.url": store, **options})


def _print_one(call: CommandCall, flags: dict[str, str | None]) -> None:
    from cotenant.base.kube import clock_of_results
    from cotenant.cli.status.reading import read_cluster, read_status
    from cotenant.cli.status.words import lines

    loaded = session_of(call.ctx).load(flags).of(Settings)
    opened = open_store(loaded.settings, call.cluster)
    live = read_cluster(loaded, opened.cluster)
    clock = clock_of_results(loaded.settings.kube, reaches_cluster=loaded.reaches_cluster)
    shown = read_status(opened, loaded.settings, live, clock)
    if call.output in (Format.JSON, Format.YAML):
        print_document(shown, DocumentFormat(call.output.value))
    else:
        sys.stdout.writelines(align_columns(list(lines(shown, loaded.settings.recommender.prices.currency))))
    if live.failed:
        message(f"partial: the cluster did not answer: {live.unknown or live.plans_unknown}", style="yellow")
    if live.plans_left_out:
        message(f"partial: {live.plans_left_out}", style="yellow")
    if live.failed or live.plans_left_out:
        raise typer.Exit(EXIT_PARTIAL)
