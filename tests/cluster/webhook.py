"""A real `cotenant serve webhook` beside the test cluster, called by its API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.admission.webhook_server.registration import registration_objects
from cotenant.admission.webhook_server.service import Certificates, WebhookService
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.cli.cluster.installation.manifests import address_of, manifests
from tests.admission.bodies import QUOTAS, quota
from tests.cluster.accounts import account
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
WEBHOOK = "cotenant-webhook"
"""The account's name."""
CRDS = ("clustercolocationprofiles.config.koordinator.sh", "elasticquotas.scheduling.sigs.k8s.io")


ENFORCED = {"cotenant.dev/quota-validation": "enforce"}
"""Labels of a namespace whose quotas wait for the webhook."""


def judges_quotas(api: Api, namespace: str) -> bool:
    """Whether the API server has read the present configuration, and is answered in our words."""
    try:
        api.create(QUOTAS.format(namespace), quota("x", parent="gone"), dryRun="All")
    except ApiError as error:
        return "does not exist" in str(error)
    return False


def prepare(plane: ControlPlane, settings: AdmissionSettings) -> None:
    """CRDs, priority classes and our namespace."""
    api = plane.api()
    for name in CRDS:
        install_crd(api, name)
    writer = Writer(plane.admin_client(), "cotenant-install")
    for body in yaml.safe_load_all((ROOT / "deploy" / "priorityclasses.yaml").read_text()):
        writer.send(Apply(address_of(body), body))
    for name in (settings.namespace, "koordinator-system"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        writer.send(Apply(address_of(namespace), namespace))


def register(client: KubeClient, settings: AdmissionSettings, url: str) -> None:
    writer = Writer(client, "cotenant-install")
    for body in registration_objects(
        [m.body for m in manifests(("registration",))], settings, "koordinator-system", url
    ):
        writer.send(Apply(address_of(body), body))


@contextmanager
def running(
    plane: ControlPlane,
    certificates: Path | None = None,
    client: KubeClient | None = None,
    native_gangs: bool = False,
    **options: Any,
) -> Iterator[WebhookService]:
    """A webhook that the API server calls; its certificate is in the Secret unless a folder is given.

    client: as whom the webhook speaks to the API server, its documented account unless given. native_gangs: as the
    setting queues.gangs_by would.
    """
    settings = AdmissionSettings(**{"port": 0, **options})
    prepare(plane, settings)
    service = WebhookService(
        WebhookMirrors(client or plane.client(account(plane, WEBHOOK)), native_gangs),
        settings,
        Certificates(certificates, True, "https://127.0.0.1"),
        SystemClock(),
        Metrics("test", "3"),
        "koordinator-system",
    )
    register(plane.admin_client(), settings, f"https://127.0.0.1:{service.server.port}")
    try:
        with service:
            wait_for(
                "the mirrors are complete", lambda: service.state.view().synced and service.state.view().quotas_synced
            )
            wait_for("the API server calls us", lambda: called(plane, service))
            yield service
    finally:
        unregister(plane)


def called(plane: ControlPlane, service: WebhookService) -> bool:
    """Whether a pod that is created now passes through us (the API server takes a moment to read configurations)."""
    judged = {"koordinator.sh/priority-class": "koord-prod"}
    pod = {
        "metadata": {"generateName": "probe-", "labels": judged},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    plane.api().create("/api/v1/namespaces/default/pods", pod, dryRun="All")
    path = "cotenant_webhook_reviews_total"
    registry = service.app.metrics.registry
    return all(
        sum((registry.get_sample_value(path, {"webhook": hook, "outcome": outcome}) or 0) for outcome in outcomes)
        for hook, outcomes in (("/mutate-pod", ("untouched", "patched")), ("/validate-pod", ("allowed",)))
    )


def unregister(plane: ControlPlane) -> None:
    api = plane.api()
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/cotenant-webhook"
        if api.exists(path):
            api.delete(path)
