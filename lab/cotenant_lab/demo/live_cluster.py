"""EDGE: the demo with a cluster to act on: objects, services for changes and plans, a clock, access for the CLI.

store and results -> `simulation.cluster.DemoCluster` -> the services of a real dashboard -> pages. All of it runs in
one process, with all files in the demo's temporary folder.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cotenant.base.commands.output import message
from cotenant.base.process.files import open_private
from cotenant.cli.analysis.background_replay import NICENESS, background_replay
from cotenant_lab.demo.progress_page import ProgressPage

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.changes.soak.watcher import News
    from cotenant.settings import Settings
    from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario

CONFIG = "settings.yaml"
OF_RESULTS: Final = ("profiler", "portrait", "forecasting", "node_peak", "recommender", "plans", "autopilot")
"""Sections that the numbers of pages and commands rest on."""
WATCH_SECONDS = 2.0
"""Of real time between two looks: a day of the demo's clock passes in a minute."""


@dataclass(frozen=True)
class Opening:
    """The demo's address while its cluster is made: the socket, the launch token, and the page of the progress."""

    listener: socket.socket
    token: str = field(repr=False)
    page: ProgressPage

    @classmethod
    def of(cls, listener: socket.socket, settings: Settings, folder: Path, *, browser: bool) -> Opening:
        """Answer on the bound socket from now on, print the address, and open it in the browser if `browser`."""
        from cotenant.changes.access.settings import AccessSettings
        from cotenant.dashboard.access import launch

        opening = cls(listener, launch.fresh_token(AccessSettings()), ProgressPage(listener))
        host, port = listener.getsockname()[:2]
        url = launch.launch_url(
            f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}",
            settings.dashboard.base_path,
            opening.token,
        )
        message(f"{url} shows the demo's progress, and then the dashboard.")
        if browser:
            with suppress(webbrowser.Error):
                webbrowser.open(way_in(folder, url).as_uri())
        return opening


def show(store: Store, story: DemoScenario, settings: Settings, folder: Path, opening: Opening) -> None:
    """Serve the pages on a running demo cluster until interrupted; all files are in `folder`."""
    from cotenant.dashboard.access import launch
    from cotenant.dashboard.app import create_app, serve
    from cotenant.dashboard.sources.source import StoreSource
    from cotenant_lab.simulation.cluster import DemoCluster

    settings = msgspec.structs.replace(settings, store=msgspec.structs.replace(settings.store, url=store.url))
    opening.page.stage("Start the cluster", 1)
    with DemoCluster(story, settings, folder) as cluster, run_demo_verification(cluster, store):
        written = write_config(cluster, store, folder)

        def ready(served: str) -> None:
            url = launch.launch_url(served, settings.dashboard.base_path, opening.token)
            message(f"\nopen {url}   (Ctrl-C ends the demo)\n")
            for line in equals(written):
                message(line)

        environment = {"COTENANT_CONFIG": str(written)}
        turn = threading.Lock()
        with (
            suppress(KeyboardInterrupt),
            background_replay(store, turn, environment=environment, first_seconds=0) as replay,
            run_size_question(environment) as computes_size,
        ):
            context = demo_dashboard_context(cluster, store)
            joined = replace(context, launch_token=opening.token, replay=replay, computes_size=computes_size)
            app = create_app(StoreSource(store, settings.dashboard), settings.dashboard, cluster.clock, joined)
            opening.page.stop()
            serve(app, settings.dashboard.host, settings.dashboard.port, ready, opening.listener)


def demo_dashboard_context(cluster: DemoCluster, store: Store) -> Any:
    """Return the dashboard context of the demo: that of a dashboard that can act, plus the demo's clock."""
    from cotenant.autopilot.service import autopilot_service_of
    from cotenant.changes.access.configured_service import change_service_of
    from cotenant.changes.access.kubeconfig_access import at_this_machine, door_of
    from cotenant.changes.decide.patches import kubectl_command
    from cotenant.changes.decide.steps import planned_steps
    from cotenant.dashboard.commands.dashboard import manifest
    from cotenant.dashboard.frame.view import DashboardContext
    from cotenant.enforcer.model.topology_reading import ClusterTopologyService
    from cotenant.recommender.stored_recommendations import recommendations_of
    from cotenant.scheduler_ext.queues.service.cluster_queue_service import queue_service_of
    from cotenant.scheduler_ext.rebalance.moves.service import move_service_of
    from cotenant.scheduler_ext.reservations.service.service import plan_service_of

    settings, clock = cluster.settings, cluster.clock
    acting: dict[str, Any] = {
        "current_user": at_this_machine(settings.kube),
        "changes": change_service_of(settings, store, clock=clock, comparison=cluster.comparison),
        "plans": plan_service_of(settings, clock=clock, store=store),
        "queues": queue_service_of(settings, clock=clock),
        "moves": move_service_of(settings, clock=clock),
        "autopilot": autopilot_service_of(settings, recommendations_of(store), clock=clock, stored=lambda: store),
        "topologies": ClusterTopologyService(door_of(settings)),
        "actions": settings.actions,
        "steps": partial(planned_steps, settings.actions.guardrails),
        "steering": cluster.course,
    }
    return DashboardContext(kubectl_command, manifest, settings.recommender.prices, **acting)


@contextmanager
def run_demo_verification(cluster: DemoCluster, store: Store) -> Iterator[None]:
    """Verify changes once the demo's clock has passed their soak time; report harm in the strip with the clock."""
    from cotenant.changes.access.configured_service import change_service_of
    from cotenant.changes.commands.watcher_output import news_notifier, peaks_of

    settings = cluster.settings
    service = change_service_of(settings, store, clock=cluster.clock, comparison=cluster.comparison)
    notify = news_notifier(settings)

    def print_news(news: list[News]) -> None:
        notify(news)
        for item in news:
            if item.bad:
                cluster.course.report(f"{item.title}: {item.words}")

    stop = service.watcher(print_news, peaks_of(store)).start(WATCH_SECONDS)
    try:
        yield
    finally:
        stop()


@contextmanager
def run_size_question(environment: Mapping[str, str]) -> Iterator[Callable[[], bool]]:
    """Compute once which nodes could be removed, in a process of lower priority that ends with the demo.

    `environment` has variables to add to this process's. Yields a function that says whether it still computes; without
    a result the page says how to compute one.
    """
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()", "size"]
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(  # noqa: S603
        command, env={**os.environ, **environment}, stdin=nothing, stdout=nothing, stderr=nothing
    )
    with suppress(OSError):  # it may have ended
        os.setpriority(os.PRIO_PROCESS, child.pid, NICENESS)
    try:
        yield lambda: child.poll() is None
    finally:
        child.terminate()
        child.wait()


def _set_values(section: msgspec.Struct, usual: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that are not as usual: constants, which no settings file may name, are as usual."""
    values: dict[str, Any] = {}
    for name, written in zip(section.__struct_fields__, section.__struct_encode_fields__, strict=True):
        own, other = getattr(section, name), getattr(usual, name)
        if own != other:
            values[written] = _set_values(own, other) if isinstance(own, msgspec.Struct) else msgspec.to_builtins(own)
    return values


def write_config(cluster: DemoCluster, store: Store, folder: Path) -> Path:
    """Write a settings file by which commands in another terminal use the demo's store, cluster and ledger.

    It has all settings that results depend on, so that a scan of the demo's history there gives the pages' numbers.
    """
    from cotenant.settings import Settings

    settings, usual = cluster.settings, Settings()
    document = {
        **{name: _set_values(getattr(settings, name), getattr(usual, name)) for name in OF_RESULTS},
        "store": {"url": store.url},
        "kube": {"kubeconfig": settings.kube.kubeconfig},
        "actions": {"ledger": settings.actions.ledger},
        "descheduler": {"configuration": settings.descheduler.configuration},
    }
    path = folder / CONFIG
    path.write_bytes(msgspec.json.encode(document))  # JSON is YAML
    return path


def equals(config: Path) -> Iterator[str]:
    """Yield the lines that list commands to try on the demo, and the one for the user's own data."""
    yield "commands for a second terminal, on the demo's cluster, store and ledger:"
    yield f"  export COTENANT_CONFIG={config}"
    yield "  cotenant recs list -n pay -o wide         # the rows of the page To do"
    yield "  cotenant recs show pay/checkout           # what would be written, and every guardrail"
    yield "  cotenant recs apply pay/checkout          # dry run on the server; --yes does it"
    yield "  cotenant reservations list                # the plans of the demo's cluster"
    yield "  cotenant reservations approve feed/deployment-rank --once   # dry run; --yes does it"
    yield "  cotenant serve descheduler --once         # which pods should leave which nodes, and why others stay"
    yield "  cotenant autopilot preview --in-window    # what the autopilot would do tonight; it only observes"
    yield "  cotenant get quotas                       # quotas: guarantees, borrowing, waiting pods"
    yield "  cotenant size --show steps                # which nodes could leave, and the way there"
    yield "use your own data, read-only: cotenant scan --prometheus URL"


def way_in(folder: Path, url: str) -> Path:
    """Write a private page that redirects to the address: a token in a browser's command line is not private."""
    page = folder / "open.html"
    with open(page, "w", opener=open_private) as file:
        file.write(f'<!DOCTYPE html><title>cotenant</title><meta http-equiv="refresh" content="0;url={escape(url)}">')
    return page
