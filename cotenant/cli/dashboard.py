"""`cotenant dashboard`: the results of the last scan in the browser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.command import examples, new_app, session_of
from cotenant.cli.output import message
from cotenant.cli.results import ClusterOption, StoreOption, open_store

if TYPE_CHECKING:
    from cotenant.edges.store import Store
    from cotenant.model.recommendation import Recommendation
    from cotenant.settings.root import Settings

app = new_app()


@app.command(
    epilog=examples(
        "cotenant dashboard",
        "cotenant dashboard --port 9000 --cluster prod-1",
    )
)
def dashboard(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on; there is no login.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
) -> None:
    """Serve the pages of the last scan's results, read-only. Newer results appear by themselves."""
    flags = {"dashboard.host": host, "dashboard.port": port, "store.url": store}
    settings = session_of(ctx).load(flags).settings
    serve_store(open_store(settings, cluster), settings, lambda url: message(f"open {url}   (Ctrl-C ends it)"))


def serve_store(store: Store, settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve a store until interrupted, which is the way to end it; `ready` gets the address once it answers."""
    from dashboard.app import create_app, serve
    from dashboard.source import StoreSource
    from recommender.patches import kubectl_command

    app = create_app(
        StoreSource(store, settings.dashboard),
        settings.dashboard,
        patch=kubectl_command,
        manifest=manifest,
        prices=settings.recommender.prices,
    )
    with suppress(KeyboardInterrupt):
        serve(app, settings.dashboard.host, settings.dashboard.port, ready)


def manifest(*found: Recommendation) -> str:
    """YAML of one workload for `kubectl apply --server-side`; empty when nothing changes."""
    from cotenant.cli.writing import as_yaml
    from recommender.manifests import server_side_apply

    return "".join(as_yaml(file) for file in server_side_apply(found, {r.container for r in found}))
