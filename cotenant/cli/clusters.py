"""`cotenant get clusters`: all clusters of the store side by side."""

from __future__ import annotations

import typer

from cotenant.base.commands.command import EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.results import StoreOption, url_of
from cotenant.base.errors import CotenantError

app = new_app()


@app.command(epilog=examples("cotenant get clusters", "cotenant get clusters -o json"))
def clusters(
    ctx: typer.Context,
    store: StoreOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show what each cluster of the store could lend and save, and what is at risk there.

    Exit code 4 when the results of a cluster cannot be read: its row is empty then.
    """
    from cotenant.base.store.opening import opened_all
    from cotenant.recommender.model.clusters import clusters_table
    from cotenant.recommender.model.views import Overview

    stores = opened_all(url_of(session_of(ctx).read({"store.url": store}).settings))
    overviews: dict[str, Overview | None] = {}
    unread = False
    for opened in stores:
        try:
            overviews[opened.cluster] = opened.read_document("overview", Overview)
        except CotenantError as error:
            overviews[opened.cluster], unread = None, True
            message(f"note: cluster {opened.cluster} cannot be read: {error.message}")
    print_table(clusters_table(overviews), output, headers=not no_headers)
    if unread:
        raise typer.Exit(EXIT_PARTIAL)
