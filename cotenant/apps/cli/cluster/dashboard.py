"""`cotenant dashboard`: the results of the last scan in the browser, and with --act what to do about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, StoreOption, open_store
from cotenant.apps.cli.changes.watcher_output import watched
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import message
from cotenant.core.settings.sections.dashboard import AccessMode

if TYPE_CHECKING:
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.recommendation import Recommendation
    from cotenant.core.settings.root import Settings

app = new_app()


@app.command(
    epilog=examples(
        "cotenant dashboard",
        "cotenant dashboard --port 9000 --cluster prod-1",
        "cotenant dashboard --act  # accept, verify and roll back too, with your own rights",
    )
)
def dashboard(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; another than the loopback needs access.mode.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    act: Annotated[
        bool,
        typer.Option(
            "--act", help="Let recommendations be accepted here, with the kubeconfig's rights or each person's own."
        ),
    ] = False,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="With --act: path of the kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="With --act: context of the kubeconfig.")] = None,
) -> None:
    """Serve the pages of the last scan's results, read-only unless --act. Newer results appear by themselves."""
    from dashboard.access import grants

    flags = {"dashboard.host": host, "dashboard.port": port, "store.url": store}
    flags |= {"kube.kubeconfig": kubeconfig, "kube.context": context, "access.read_only": False if act else None}
    settings = session_of(ctx).load(flags).settings
    grants.checked(settings.access, settings.dashboard.host)
    filled = open_store(settings, cluster)
    more: dict[str, Any] = {"access": settings.access}
    if not settings.access.read_only:
        more |= acting(settings, filled)
    with watched(settings, more.get("desk"), filled):
        serve_store(filled, settings, lambda url: message(f"open {url}   (Ctrl-C ends it)"), more)


def acting(settings: Settings, store: Store) -> dict[str, Any]:
    """Services that let a dashboard act, and the local person where nobody signs in."""
    from cotenant.apps.cli.changes.change_service import (
        at_this_machine,
        autopilot_service_of,
        desk_of,
        door_of,
        move_desk_of,
        plan_desk_of,
    )
    from cotenant.apps.cli.node.topology_reading import ClusterTopologyService
    from cotenant.apps.cli.queues.queue_service import queue_service_of
    from cotenant.apps.pipeline.explain import recommendations_of

    arguments: dict[str, Any] = {"desk": desk_of(settings, store), "plans": plan_desk_of(settings, store=store)}
    arguments |= {"queues": queue_service_of(settings), "moves": move_desk_of(settings)}
    arguments |= {"autopilot": autopilot_service_of(settings, recommendations_of(store), stored=lambda: store)}
    arguments |= {"topologies": ClusterTopologyService(door_of(settings))}
    if settings.access.mode is AccessMode.NONE:
        arguments["people"] = at_this_machine(settings.kube)
    return arguments


def serve_store(
    store: Store, settings: Settings, ready: Callable[[str], None], more: Mapping[str, Any] | None = None
) -> None:
    """Serve a store until interrupted, which is the way to end it; `ready` gets the address once it answers.

    more: further fields of `DashboardContext`, such as those of `acting`.
    """
    from changes.decide.patches import kubectl_command
    from changes.decide.steps import planned_steps
    from cotenant.core.adapters.json_decoders import make_ready
    from dashboard.access import launch
    from dashboard.app import create_app, serve
    from dashboard.frame.view import DashboardContext
    from dashboard.sources.source import StoreSource

    token = launch.fresh_token(settings.access)
    app = create_app(
        StoreSource(store, settings.dashboard),
        settings.dashboard,
        context=DashboardContext(
            kubectl_command,
            manifest,
            settings.recommender.prices,
            steps=partial(planned_steps, settings.actions.guardrails),
            **{"actions": settings.actions, "launch_token": token, **(more or {})},
        ),
    )
    make_ready()
    with suppress(KeyboardInterrupt):
        serve(
            app,
            settings.dashboard.host,
            settings.dashboard.port,
            lambda url: ready(launch.printed(url, settings.dashboard.base_path, token)),
        )


def manifest(*recommendations: Recommendation) -> str:
    """YAML of one workload for `kubectl apply --server-side`; empty when nothing changes."""
    from changes.decide.manifests import server_side_apply
    from cotenant.apps.cli.analysis.export import as_yaml

    return "---\n".join(
        as_yaml(file) for file in server_side_apply(recommendations, {r.container for r in recommendations})
    )
