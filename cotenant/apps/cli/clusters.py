"""`cotenant get clusters`: all clusters of the store side by side."""

from __future__ import annotations

import typer

from cotenant.apps.cli.analysis.results import StoreOption, url_of
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import Format, NoHeadersOption, OutputOption, print_table

app = new_app()


@app.command(epilog=examples("cotenant get clusters", "cotenant get clusters -o json"))
def clusters(
    ctx: typer.Context,
    store: StoreOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show what each cluster of the store could lend and save, and what is at risk there."""
    from cotenant.core.adapters.store.opening import opened_all
    from cotenant.core.model.clusters import clusters_table
    from cotenant.core.model.views import Overview

    stores = opened_all(url_of(session_of(ctx).read({"store.url": store}).settings))
    overviews = {one.cluster: one.read_document("overview", Overview) for one in stores}
    print_table(clusters_table(overviews), output, headers=not no_headers)
