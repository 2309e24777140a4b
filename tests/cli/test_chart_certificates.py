"""With `certManager.enabled` cert-manager's own controllers fill every Secret and caBundle that the chart asks for."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.cli.charts import chart, release, values_of
from tests.cluster import binaries, needing
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.process import Server
from tests.cluster.waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

Json = dict[str, Any]
CERTIFICATES = "/apis/cert-manager.io/v1/namespaces/cotenant/certificates"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster with cert-manager and the chart's webhooks and extender; nothing of ours runs."""
    needing.kubernetes()
    needing.helm()
    needing.cert_manager()
    folder = tmp_path_factory.mktemp("certificates")
    definitions = binaries.sources("cert-manager", "github.com/cert-manager/cert-manager") / "deploy" / "crds"
    with ControlPlane(folder / "plane", Options(frozenset())) as plane:
        for file in sorted(definitions.glob("*.yaml")):
            plane.kubectl("apply", "--server-side", "-f", str(file))
        values = values_of(frozenset({"webhooks", "scheduling"}), certManager={"enabled": True})
        release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values)
        command = [str(binaries.find("cert-manager")), str(plane.admin_kubeconfig)]
        controllers = Server("cert-manager", command, Path(folder / "cert-manager.log"))
        controllers.start()
        yield plane.api()
        controllers.stop()


def ready(certificate: Json) -> bool:
    conditions = certificate.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def secret(api: Api, name: str) -> dict[str, bytes]:
    data = api.get(f"/api/v1/namespaces/cotenant/secrets/{name}")["data"]
    return {key: base64.b64decode(text) for key, text in data.items()}


def bundles(api: Api) -> set[bytes]:
    """Each caBundle of our registrations; empty bytes where there is none."""
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    hooks = [hook for kind in kinds for hook in api.get(f"{REGISTRATIONS}/{kind}/cotenant-webhook")["webhooks"]]
    assert len(hooks) > 5
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}


def test_every_certificate_is_issued_for_its_service_and_the_webhooks_authority_is_injected(api: Api) -> None:
    wait_for("four certificates", lambda: [ready(c) for c in api.items(CERTIFICATES)] == [True] * 4)
    names = {"cotenant-webhook-tls": "cotenant-webhook", "cotenant-extender-certificate": "cotenant-extender"}
    for name, service in names.items():
        files = secret(api, name)
        leaf, authority = (x509.load_pem_x509_certificate(files[key]) for key in ("tls.crt", "ca.crt"))
        leaf.verify_directly_issued_by(authority)
        alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.DNSName) == [f"{service}.cotenant.svc"]
        assert leaf.not_valid_after_utc > datetime.now(UTC)
    wait_for("the webhook's authority", lambda: bundles(api) == {secret(api, "cotenant-webhook-tls")["ca.crt"]})


def test_the_scheduler_proves_itself_by_the_extenders_own_authority(api: Api) -> None:
    wait_for("four certificates", lambda: [ready(c) for c in api.items(CERTIFICATES)] == [True] * 4)
    client = secret(api, "cotenant-scheduler-certificate")
    assert client["ca.crt"] == secret(api, "cotenant-extender-certificate")["ca.crt"]
    leaf = x509.load_pem_x509_certificate(client["tls.crt"])
    assert leaf.subject.rfc4514_string() == "CN=cotenant-scheduler"
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
