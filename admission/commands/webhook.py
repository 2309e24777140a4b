"""`cotenant serve webhook`: serve the admission webhooks, and register them with the API server on request."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.admission.settings import AdmissionSettings
from cotenant.base.commands.output import message
from cotenant.base.commands.results import Context, Kubeconfig
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.scheduler_ext.queues.model.settings import QueueSettings

if TYPE_CHECKING:
    from cotenant.admission.webhook_server.registration import ShippedRegistration
    from cotenant.admission.webhook_server.service import Certificates
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections

app = new_app()


@app.command(
    epilog=examples(
        "cotenant serve webhook  # in a cluster: certificate in the Secret, called through the Service",
        "cotenant serve webhook --install --url https://10.0.0.5:9443 --host 0.0.0.0  # from outside the cluster",
        "cotenant serve webhook --cert-dir /etc/webhook-tls  # certificate by cert-manager, which also injects its CA",
        "cotenant serve webhook --cert-dir ./pki --self-signed --install --url https://127.0.0.1:9443",
    )
)
def webhook(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Write Service and webhook configurations into the cluster first.")
    ] = False,
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="URL of the webhook if no Service leads to it.")
    ] = "",
    cert_dir: Annotated[
        Path | None,
        typer.Option("--cert-dir", metavar="DIR", help="Folder with tls.crt and tls.key; no Secret is used."),
    ] = None,
    self_signed: Annotated[
        bool, typer.Option("--self-signed", help="Issue and renew a self-signed certificate in --cert-dir.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve the webhooks for pods, quotas and slo-controller-config until interrupted.

    Pods are admitted unchanged while the webhook is not ready; /readyz on the same port says why.
    """
    if self_signed and cert_dir is None:
        raise UsageError("--self-signed needs --cert-dir", fix="Add --cert-dir, or omit --self-signed to use a Secret.")
    flags = {"admission.host": host, "admission.port": port, "kube.kubeconfig": kubeconfig, "kube.context": context}
    settings = session_of(ctx).load(flags).settings
    from cotenant.base.kube import connect

    client = connect(settings.section(KubeSettings))
    if install:
        from cotenant.admission.webhook_server.registration import ShippedRegistration

        register(client, settings, url, session_of(ctx).service(ShippedRegistration))
    from cotenant.admission.webhook_server.service import Certificates

    serve(client, settings, Certificates(cert_dir, cert_dir is None or self_signed, url))


def register(client: KubeClient, settings: SettingSections, url: str, shipped: ShippedRegistration) -> None:
    """Apply the webhook configurations that cotenant ships, with their Service, to the cluster."""
    from cotenant.admission.webhook_server.registration import registration_objects
    from cotenant.base.kube import Writer
    from cotenant.base.kubernetes.intent import Apply

    writer = Writer(client, "cotenant-install")
    for body in registration_objects(
        shipped.read(), settings.section(AdmissionSettings), settings.section(ManagerSettings).namespace, url
    ):
        writer.send(Apply(shipped.address_of(body), body))
        message(f"applied {body['kind']} {body['metadata']['name']}")


def serve(client: KubeClient, settings: SettingSections, certificates: Certificates) -> None:
    """Serve the webhooks until interrupted (Ctrl-C)."""
    import gc
    import platform
    import signal

    from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
    from cotenant.admission.webhook_server.service import WebhookService
    from cotenant.base.logs.metrics import Metrics
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.process.in_hand import keep_notes
    from cotenant.base.version import __version__

    keep_notes("webhook")
    queues = settings.section(QueueSettings)
    service = WebhookService(
        WebhookMirrors(client, native_gangs=queues.enabled and queues.gangs_by != "own"),
        settings.section(AdmissionSettings),
        certificates,
        SystemClock(),
        Metrics(__version__, platform.python_version()),
        settings.section(ManagerSettings).namespace,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # a pod, and what a shell started behind it, end like by Ctrl-C
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), service:
        gc.freeze()  # what lives as long as the process is not looked through between two calls
        host = settings.section(AdmissionSettings).host
        message(f"serving webhooks on https://{host}:{service.server.port}   (Ctrl-C ends it)")
        service.server.wait()
