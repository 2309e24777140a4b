"""EDGE: `cotenant serve recorder` measures usage in clusters without a Prometheus, and stores it as a scan would."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.output import message
from cotenant.base.commands.session import examples, new_app, remember_cluster, session_of
from cotenant.base.settings.sections import KubeSettings, ManagerSettings, TelemetrySettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections
    from cotenant.profiler.recorder.kubelets import KubeletRules

app = new_app()


@app.command(
    epilog=examples(
        "cotenant serve recorder  # until SIGTERM; `cotenant scan` reads what it stored",
        "cotenant serve recorder --context prod-1 --store s3://bucket/cotenant",
        "cotenant serve recorder --kubelet-ca-file kubelets.pem",
    )
)
def recorder(
    ctx: typer.Context,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="Path of the kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="fsspec URL of the store.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Cluster's name in the store.", callback=remember_cluster)
    ] = None,
    interval: Annotated[
        float, typer.Option(min=15, max=100, metavar="SECONDS", help="Time between two readings of a kubelet.")
    ] = 60.0,
    kubelet_ca_file: Annotated[
        str, typer.Option(metavar="FILE", help="Authorities of kubelets' certificates (PEM); default: the cluster's.")
    ] = "",
    kubelet_insecure: Annotated[
        bool, typer.Option("--kubelet-insecure", help="Do not verify kubelets' certificates (unsafe).")
    ] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /metrics, /livez and /readyz.")] = None,
) -> None:
    """Read the kubelets' usage every minute and store it, for scans without a Prometheus. One replica at a time."""
    flags = {"kube.kubeconfig": kubeconfig, "kube.context": context, "store.url": store, "telemetry.health_port": port}
    from cotenant.profiler.recorder.kubelets import KubeletRules

    rules = KubeletRules(interval, kubelet_ca_file, kubelet_insecure)
    run(session_of(ctx).load(flags).settings, cluster, rules)


def run(settings: SettingSections, cluster: str | None, rules: KubeletRules) -> None:
    """Record usage of the cluster until SIGTERM or SIGINT."""
    import platform

    from cotenant.base.commands.results import url_of
    from cotenant.base.http.health import Checks, HealthServer
    from cotenant.base.kube import Lease, connect, fresh_identity
    from cotenant.base.logs.metrics import Metrics
    from cotenant.base.logs.telemetry import configure_logging
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.process.in_hand import keep_notes
    from cotenant.base.settings.sections import RECORDER_PORT
    from cotenant.base.store.store import Store
    from cotenant.base.version import __version__
    from cotenant.profiler.recorder.service import LEASE, Recorder

    configure_logging(settings.section(TelemetrySettings))
    keep_notes("recorder")
    client, clock, ended = connect(settings.section(KubeSettings)), SystemClock(), threading.Event()
    place = Store(url_of(settings), cluster or client.access.cluster)
    manager = settings.section(ManagerSettings)
    lease = Lease(client, manager.namespace, LEASE, fresh_identity(), manager, clock)
    recording = Recorder(client, settings, place, lease, clock, rules)
    checks = Checks(ready={"cluster": recording.wrong})
    health = HealthServer(
        checks, Metrics(__version__, platform.python_version()), settings.section(TelemetrySettings), RECORDER_PORT
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    message(f"This recorder stores usage of {place.cluster} in {place.url} once it holds the Lease {LEASE}.")
    lease.start()
    try:
        with health:
            recording.run(ended)
            checks.draining = True
    finally:
        lease.stop()
    message("The recorder has stopped and released the Lease.")
