"""With `certManager.enabled` cert-manager's own controllers fill every Secret and caBundle that the chart asks for.

Our webhook serves with the Secret, and the API server trusts it by the injected caBundle, also after a renewal.
"""

from __future__ import annotations

import base64
import socket
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.cli.charts import chart, release, values_of
from tests.cluster import binaries, needing
from tests.cluster.accounts import token_of
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import ENFORCED, WEBHOOK, judges_quotas

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

Json = dict[str, Any]
CERTIFICATES = "/apis/cert-manager.io/v1/namespaces/cotenant/certificates"
SECRETS = "/api/v1/namespaces/cotenant/secrets"
SECRET = "cotenant-webhook-tls"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
REGISTERED = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
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
        yield plane
        controllers.stop()


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    return plane.api()


def ready(certificate: Json) -> bool:
    conditions = certificate.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def secret(api: Api, name: str) -> dict[str, bytes]:
    data = api.get(f"{SECRETS}/{name}")["data"]
    return {key: base64.b64decode(text) for key, text in data.items()}


def bundles(api: Api) -> set[bytes]:
    """Each caBundle of our registrations; empty bytes where there is none."""
    hooks = [hook for kind in REGISTERED for hook in api.get(f"{REGISTRATIONS}/{kind}/cotenant-webhook")["webhooks"]]
    assert len(hooks) > 5
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}


def test_every_certificate_is_issued_for_its_service_and_the_webhooks_authority_is_injected(api: Api) -> None:
    wait_for("four certificates", lambda: [ready(c) for c in api.items(CERTIFICATES)] == [True] * 4)
    names = {SECRET: "cotenant-webhook", "cotenant-extender-certificate": "cotenant-extender"}
    for name, service in names.items():
        files = secret(api, name)
        leaf, authority = (x509.load_pem_x509_certificate(files[key]) for key in ("tls.crt", "ca.crt"))
        leaf.verify_directly_issued_by(authority)
        alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.DNSName) == [f"{service}.cotenant.svc"]
        assert leaf.not_valid_after_utc > datetime.now(UTC)
    wait_for("the webhook's authority", lambda: bundles(api) == {secret(api, SECRET)["ca.crt"]})


def test_the_scheduler_proves_itself_by_the_extenders_own_authority(api: Api) -> None:
    wait_for("four certificates", lambda: [ready(c) for c in api.items(CERTIFICATES)] == [True] * 4)
    client = secret(api, "cotenant-scheduler-certificate")
    assert client["ca.crt"] == secret(api, "cotenant-extender-certificate")["ca.crt"]
    leaf = x509.load_pem_x509_certificate(client["tls.crt"])
    assert leaf.subject.rfc4514_string() == "CN=cotenant-scheduler"
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def mount(api: Api, folder: Path) -> None:
    """Write the Secret's files as the kubelet does."""
    for name, content in secret(api, SECRET).items():
        (folder / f"{name}.part").write_bytes(content)
        (folder / f"{name}.part").rename(folder / name)


def route(api: Api, port: int) -> None:
    """Lead the Service, which has no pods here, to a port of this machine; a Service of a name keeps the port asked."""
    service = {"spec": {"type": "ExternalName", "externalName": "127.0.0.1", "clusterIP": None, "clusterIPs": None}}
    api.patch("/api/v1/namespaces/cotenant/services/cotenant-webhook", service)
    for kind in REGISTERED:
        path = f"{REGISTRATIONS}/{kind}/cotenant-webhook"
        ports = [f"/webhooks/{number}/clientConfig/service/port" for number in range(len(api.get(path)["webhooks"]))]
        api.patch(path, [{"op": "replace", "path": place, "value": port} for place in ports], "json")


@pytest.fixture
def webhook(plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The Deployment's command as its account, called through the Service; the folder of its certificate, its port."""
    folder, port, access = tmp_path / "certificate", free_port(), tmp_path / "kubeconfig"
    folder.mkdir()
    wait_for("the certificate", lambda: api.exists(f"{SECRETS}/{SECRET}") and secret(api, SECRET).get("tls.crt"))
    mount(api, folder)
    route(api, port)
    token_of(plane, WEBHOOK, access)
    pod = api.get("/apis/apps/v1/namespaces/cotenant/deployments/cotenant-webhook")["spec"]["template"]["spec"]
    assert pod["volumes"][-1]["secret"]["secretName"] == SECRET
    (_, *arguments) = pod["containers"][0]["command"]
    assert arguments == ["serve", "webhook", "--cert-dir", "/etc/cotenant-webhook"]
    arguments = [
        "serve",
        "webhook",
        "--cert-dir",
        folder,
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--kubeconfig",
        access,
    ]
    command = [Path(sys.executable).with_name("cotenant"), "--set", "admission.certificate_check_seconds=1", *arguments]
    process = Server(WEBHOOK, [str(word) for word in command], tmp_path / "webhook.log")
    process.start()
    yield folder, port
    process.stop()


def presented(port: int, authority: bytes) -> bytes:
    """The webhook's certificate, which this authority signed for its Service; SSLError if it did not."""
    context = ssl.create_default_context(cadata=authority.decode())
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="cotenant-webhook.cotenant.svc") as tls,
    ):
        return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"").encode()


def test_the_api_server_calls_our_webhook_by_what_cert_manager_issued_and_renewed(
    api: Api, webhook: tuple[Path, int]
) -> None:
    folder, port = webhook
    space = "judged"
    api.create("/api/v1/namespaces", {"metadata": {"name": space, "labels": ENFORCED}})
    wait_for("the webhook's answer", lambda: judges_quotas(api, space))
    first = secret(api, SECRET)["tls.crt"]

    api.delete(f"{SECRETS}/{SECRET}")

    wait_for(
        "another one", lambda: api.exists(f"{SECRETS}/{SECRET}") and secret(api, SECRET)["tls.crt"] not in (b"", first)
    )
    mount(api, folder)
    (authority,) = wait_for("one bundle", lambda: {b for b in bundles(api) if b == secret(api, SECRET)["ca.crt"]})
    wait_for("the new certificate", lambda: presented(port, authority) in secret(api, SECRET)["tls.crt"])
    assert judges_quotas(api, space)
