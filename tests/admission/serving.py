"""A real webhook server on loopback for tests: real TLS, a view that the test sets, a client that verifies."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cotenant.admission.profile_record import signing_key
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.view import ClusterView
from cotenant.admission.webhook_server.app import WebhookApp
from cotenant.admission.webhook_server.authority import CertificatePolicy, Material, renew_material
from cotenant.admission.webhook_server.service import WebhookServer
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock

POLICY = CertificatePolicy(("127.0.0.1", "localhost"))


def review_of(
    kind: str, body: Any = None, old: Any = None, operation: str = "CREATE", uid: str = "u-1", **more: Any
) -> dict[str, Any]:
    """An AdmissionReview as the API server sends it; kind: pods, elasticquotas, configmaps, ..."""
    group = {"elasticquotas": "scheduling.sigs.k8s.io"}.get(kind, "")
    metadata = (body or old or {}).get("metadata", {}) if isinstance(body or old or {}, dict) else {}
    request = {
        "uid": uid,
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": kind},
        "operation": operation,
        "namespace": metadata.get("namespace", "shop") if isinstance(metadata, dict) else "shop",
        "name": metadata.get("name", "") if isinstance(metadata, dict) else "",
        "object": body,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, **more}}


def patch_of(review: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch of an answer; empty when there is none."""
    return json.loads(base64.b64decode(review["response"].get("patch", "W10=")))


@dataclass
class Serving:
    """A running server; set `view` to what the cluster is to look like."""

    server: WebhookServer
    app: WebhookApp
    material: Material
    view: ClusterView

    def context(self, bundle: bytes | None = None) -> ssl.SSLContext:
        """Verifies the server against a bundle (the present one)."""
        return ssl.create_default_context(cadata=(bundle or self.material.bundle).decode())

    def connect(self, bundle: bytes | None = None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=self.context(bundle), timeout=30)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, path: str, review: Any) -> dict[str, Any]:
        status, body = self.ask("POST", path, json.dumps(review).encode())
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(view: ClusterView | None = None, pods: int = 0, **settings: Any) -> Iterator[Serving]:
    """A server with its own certificate on a free port."""
    clock = SystemClock()
    options = AdmissionSettings(port=0, **settings)
    material = renew_material(None, POLICY, clock.now_seconds())
    holder: list[Serving] = []
    metrics = Metrics("test", "3")
    app = WebhookApp(lambda: holder[0].view, lambda _name: pods, options, clock, metrics, "koordinator-system")
    server = WebhookServer(app, options)
    holder.append(Serving(server, app, material, view or ClusterView()))
    server.show(material.serving)
    app.shown(clock.now_seconds() + 86_400 * POLICY.certificate_days, signing_key(material.serving.key))
    server.start()
    try:
        yield holder[0]
    finally:
        server.stop()
