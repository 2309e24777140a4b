"""EDGE: `cotenant serve extender`: serve kube-scheduler, or print the scheduler configuration for it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.output import message
from cotenant.base.commands.results import Context, Kubeconfig
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings, TelemetrySettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections

app = new_app()


@app.command(
    epilog=examples(
        "cotenant serve extender --cert-dir /etc/cotenant/extender --host 0.0.0.0",
        "cotenant serve extender --make-certs ./pki --url https://cotenant-extender.cotenant.svc:9445",
        "cotenant serve extender --print-config --url https://10.0.0.5:9445 --scheduler-certs /etc/kubernetes/cotenant",
        "cotenant serve extender --print-config --url https://10.0.0.5:9445 --managed-only",
        "cotenant serve extender --print-config --url https://cotenant-extender.cotenant.svc:9445 --scheduler cotenant",
    )
)
def extender(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 uses any free port.")] = None,
    cert_dir: Annotated[
        Path | None, typer.Option("--cert-dir", metavar="DIR", help="Folder with tls.crt, tls.key and ca.crt.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print a KubeSchedulerConfiguration and exit.")
    ] = False,
    make_certs: Annotated[
        Path | None, typer.Option("--make-certs", metavar="DIR", help="Folder for new certificates; write and exit.")
    ] = None,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The extender's URL for the scheduler.")] = "",
    scheduler_certs: Annotated[
        str,
        typer.Option("--scheduler-certs", metavar="DIR", help="The scheduler's folder with ca.crt, tls.crt, tls.key."),
    ] = "/etc/kubernetes/cotenant",
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="NAME", help="Name of a second scheduler to configure.")
    ] = "",
    scheduler_kubeconfig: Annotated[
        str, typer.Option("--scheduler-kubeconfig", metavar="FILE", help="kubeconfig path on the scheduler's machine.")
    ] = "",
    managed_only: Annotated[
        bool,
        typer.Option(
            "--managed-only",
            help="Call the extender only for pods with exclusive CPUs or device shares; load taints guide other pods.",
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve filter, prioritize, preempt and bind for kube-scheduler until interrupted.

    Until the view of the cluster is complete, every node passes; /readyz on the health port says what is missing.
    """
    flags = {
        "extender.host": host,
        "extender.port": port,
        "extender.certificate_folder": str(cert_dir) if cert_dir else None,
        "kube.kubeconfig": kubeconfig,
        "kube.context": context,
    }
    settings = session_of(ctx).load(flags).settings
    if make_certs is None and not print_config:
        serve(settings)
        return
    if not url:
        raise UsageError("--url is missing", fix="Give the extender's URL: --url https://HOST:9445")
    if make_certs is not None:
        from cotenant.scheduler_ext.extender.serve.certificates import issue

        for path in issue(make_certs, url):
            message(f"wrote {path}")
        message("Copy scheduler/ to the scheduler's machine, server/ to the extender's machine. Keep ca.key elsewhere.")
    else:
        import yaml

        from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, configuration

        certificates = scheduler_certs.rstrip("/")
        reach = Reach(url, *(f"{certificates}/{name}" for name in ("ca.crt", "tls.crt", "tls.key")))
        of_extender = settings.section(ExtenderSettings)
        document = configuration(reach, of_extender, scheduler, scheduler_kubeconfig, managed_only=managed_only)
        sys.stdout.write(yaml.safe_dump(document, sort_keys=False))


def serve(settings: SettingSections) -> None:
    """Serve kube-scheduler until interrupted."""
    import platform
    import signal

    from cotenant.base.http.health import HealthServer
    from cotenant.base.kube import connect
    from cotenant.base.logs.metrics import Metrics
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.settings.sections import EXTENDER_PORT
    from cotenant.base.version import __version__
    from cotenant.scheduler_ext.extender.serve.server import ExtenderService

    metrics = Metrics(__version__, platform.python_version())
    service = ExtenderService(
        connect(settings.section(KubeSettings)),
        settings.section(ExtenderSettings),
        SystemClock(),
        metrics,
        settings.section(TelemetrySettings),
    )
    health = HealthServer(service.app.checks, metrics, settings.section(TelemetrySettings), EXTENDER_PORT)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), service, health:
        message(f"serving the extender on {service.server.url}   (Ctrl-C ends it)")
        service.server.wait()
