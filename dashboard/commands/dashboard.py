"""`cotenant dashboard`: the results of the last scan in the browser, and with --act the actions on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from cotenant.base.commands.output import message
from cotenant.base.commands.results import ClusterOption, StoreOption, open_store, url_of
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import is_empty, opened_all
from cotenant.changes.access.settings import AccessMode, AccessSettings
from cotenant.changes.commands.watcher_output import run_watcher
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.settings import DashboardSettings
from cotenant.recommender.settings import RecommenderSettings

if TYPE_CHECKING:
    from cotenant.base.commands.session import CliSession
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.base.usage.backtest import ReplayJob
    from cotenant.dashboard.frame.view import DashboardContext
    from cotenant.recommender.model.recommendation import Recommendation

FIRST_FILE_SECONDS: Final = 2.0
"""Time between two checks whether anything is stored."""
app = new_app()


@dataclass(frozen=True, slots=True)
class Replays:
    """The provider of the job that replays stored histories; `cotenant.cli.registry.PROVIDERS` names it."""

    begin: Callable[[CliSession, Store], AbstractContextManager[ReplayJob]]
    """Replays a store in the background, after each scan and at most once a day, as long as the context lasts."""


@app.command(
    epilog=examples(
        "cotenant dashboard",
        "cotenant dashboard --port 9000 --cluster prod-1  # only that cluster, if the store has several",
        "cotenant dashboard --act  # also accept, verify and roll back, with your own rights",
    )
)
def dashboard(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any other than loopback needs access.mode.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    act: Annotated[
        bool,
        typer.Option(
            "--act", help="Allow people to accept recommendations here, with the kubeconfig's rights or their own."
        ),
    ] = False,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="With --act: path of the kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="With --act: context of the kubeconfig.")] = None,
) -> None:
    """Serve the pages of the last scan's results, read-only unless --act is given. Newer results appear automatically.

    If the store holds several clusters and none is named, all are served, with a switch in the top bar. After a scan,
    and at most once a day, a low-priority process replays the history for *Try a risk*.
    """
    from cotenant.base.process.in_hand import keep_notes
    from cotenant.changes.access import grants

    keep_notes("dashboard")
    flags = {"dashboard.host": host, "dashboard.port": port, "store.url": store}
    flags |= {"kube.kubeconfig": kubeconfig, "kube.context": context, "access.read_only": False if act else None}
    session = session_of(ctx)
    settings = session.read(flags).settings
    grants.require_authentication(settings.section(AccessSettings), settings.section(DashboardSettings).host)
    stores = [_named_store(settings, cluster)] if cluster else _first_stores(url_of(settings))
    if len(stores) > 1 and not settings.section(AccessSettings).read_only:
        session.require_no_context(flags, "a dashboard of several clusters")
    parts = [_cluster_of(session, flags, store, several=len(stores) > 1) for store in stores]
    replays = session.service(Replays)
    with ExitStack() as beside:
        for number, part in enumerate(parts):
            beside.enter_context(run_watcher(part.settings, part.services.get("changes"), part.store))
            job = beside.enter_context(replays.begin(session, part.store))
            parts[number] = replace(part, services={**part.services, "replay": job})
        serve_stores(parts, lambda url: message(f"open {url}   (Ctrl-C ends it)"))


def _first_stores(url: str) -> list[Store]:
    """Return the stores of all clusters; wait until a recorder or a scan has written the first files."""
    if is_empty(url):
        message(
            f"waiting: nothing is stored at {url} yet. `cotenant serve recorder` or `cotenant scan` writes the first "
            "files there within minutes; --cluster NAME serves that cluster's pages meanwhile (Ctrl-C ends it)"
        )
        while is_empty(url):
            sleep(FIRST_FILE_SECONDS)
    return list(opened_all(url))


def _named_store(settings: SettingSections, cluster: str) -> Store:
    """Return the named cluster's store; in a pod, or if nothing is stored at all, even before it has any results.

    Its page then says that there are no results. In a pod the recorder or the first scan starts at the same time as the
    dashboard. Otherwise a name without results is a mistake: NoData lists the clusters that exist.
    """
    from cotenant.base.store import Store
    from cotenant.base.store.buckets import INTERACTIVE

    if os.environ.get("KUBERNETES_SERVICE_HOST") or is_empty(url_of(settings)):
        return Store(url_of(settings), cluster, INTERACTIVE)
    return open_store(settings, cluster)


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """One cluster of a dashboard: its results, its settings, and the services for its `DashboardContext`."""

    store: Store
    settings: SettingSections
    services: Mapping[str, Any]


def _cluster_of(session: CliSession, flags: Mapping[str, Any], store: Store, *, several: bool) -> ServedCluster:
    """Return a store's cluster with its settings and, unless the dashboard is read-only, its services to act.

    A dashboard of several clusters acts on each only through the kubeconfig context that the settings name for it;
    without one the cluster is read-only, and a note says so. `flags` has settings from command options, by path.
    """
    if several:
        loaded = session.of_cluster(store.cluster).read(flags)
        acts = loaded.cluster == store.cluster and loaded.reaches_cluster
    else:
        loaded, acts = session.read(flags), True
        own_session = session.of_cluster(store.cluster) if store.cluster in loaded.clusters else session
        only_reads = loaded.settings.section(AccessSettings).read_only
        loaded = own_session.read(flags) if only_reads else own_session.load(flags)
    own = loaded.settings
    access = own.section(AccessSettings)
    services: dict[str, Any] = {"access": access}
    if not access.read_only and acts:
        services |= action_services(own, store)
    elif not access.read_only:
        message(f"note: cluster {store.cluster} is read-only: the settings name no kubeconfig context for it")
    return ServedCluster(store, own, services)


def action_services(settings: SettingSections, store: Store) -> dict[str, Any]:
    """Return the services by which a dashboard acts, and the local person if there is no login."""
    from cotenant.autopilot.service import autopilot_service_of
    from cotenant.changes.access.configured_service import change_service_of
    from cotenant.changes.access.kubeconfig_access import at_this_machine, door_of
    from cotenant.changes.objectives.search import guard_finder
    from cotenant.enforcer.model.topology_reading import ClusterTopologyService
    from cotenant.recommender.stored_recommendations import recommendations_of
    from cotenant.scheduler_ext.queues.service.cluster_queue_service import queue_service_of
    from cotenant.scheduler_ext.rebalance.moves.service import move_service_of
    from cotenant.scheduler_ext.reservations.service.service import plan_service_of

    arguments: dict[str, Any] = {"changes": change_service_of(settings, store)}
    arguments |= {"plans": plan_service_of(settings, store=store)}
    arguments |= {"queues": queue_service_of(settings), "moves": move_service_of(settings)}
    arguments |= {"autopilot": autopilot_service_of(settings, recommendations_of(store), stored=lambda: store)}
    arguments |= {"guards": guard_finder(door_of(settings), settings)}
    arguments |= {"topologies": ClusterTopologyService(door_of(settings))}
    if settings.section(AccessSettings).mode is AccessMode.NONE:
        arguments["current_user"] = at_this_machine(settings.section(KubeSettings))
    return arguments


def serve_stores(parts: Sequence[ServedCluster], ready: Callable[[str], None]) -> None:
    """Serve the clusters until interrupted (Ctrl-C); call `ready` with the address once the server answers."""
    from cotenant.base.json_documents.json_decoders import make_ready
    from cotenant.dashboard.access import launch
    from cotenant.dashboard.app import serve

    settings = parts[0].settings.section(DashboardSettings)
    token = launch.fresh_token(parts[0].settings.section(AccessSettings))
    app = application(parts, token)
    make_ready()
    with suppress(KeyboardInterrupt):
        serve(app, settings.host, settings.port, lambda url: ready(launch.launch_url(url, settings.base_path, token)))


def application(parts: Sequence[ServedCluster], token: str = "") -> Any:
    """Return the ASGI application of one cluster, or of several behind one login; `token` is the launch token."""
    from cotenant.dashboard.access.gate import Gate
    from cotenant.dashboard.app import create_app
    from cotenant.dashboard.server.clusters import ClusterApps, base_of, links
    from cotenant.dashboard.sources.source import StoreSource

    if len(parts) == 1:
        dashboard = parts[0].settings.section(DashboardSettings)
        return create_app(StoreSource(parts[0].store, dashboard), dashboard, context=_context(parts[0], token))
    common = parts[0].settings.section(DashboardSettings)
    base = common.base_path
    gate = Gate(parts[0].settings.section(AccessSettings), base, launch=token)
    addresses = links(base, [part.store.cluster for part in parts])
    dashboards = {}
    for part in parts:
        own = msgspec.structs.replace(common, base_path=base_of(base, part.store.cluster))
        context = replace(_context(part, token), clusters=addresses)
        dashboards[part.store.cluster] = create_app(StoreSource(part.store, own), own, context=context, gate=gate)
    return ClusterApps(dashboards, gate)


def _context(part: ServedCluster, token: str) -> DashboardContext:
    from cotenant.changes.decide.patches import kubectl_command
    from cotenant.changes.decide.steps import planned_steps
    from cotenant.dashboard.frame.view import DashboardContext

    actions, prices = part.settings.section(ActionSettings), part.settings.section(RecommenderSettings).prices
    fields: dict[str, Any] = {"actions": actions, "launch_token": token, **part.services}
    steps = partial(planned_steps, actions.guardrails)
    return DashboardContext(kubectl_command, manifest, prices, steps=steps, **fields)


def manifest(*recommendations: Recommendation) -> str:
    """Return YAML for `kubectl apply --server-side` of one workload; "" if nothing changes."""
    from cotenant.changes.decide.gitops.manifests import as_yaml, server_side_apply

    files = server_side_apply(recommendations, {r.container for r in recommendations})
    return "---\n".join(map(as_yaml, files))
