"""A real extender server on loopback for tests: the view is a test's cluster, HTTP and TLS are real."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed


@dataclass
class Serving:
    """A running server."""

    server: ExtenderServer
    app: ExtenderApp
    metrics: Metrics

    def connect(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        if tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=30, context=tls)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, dict[str, str]]:
        connection = self.connect()
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read(), {k.lower(): v for k, v in response.getheaders()}
        finally:
            connection.close()

    def post(self, path: str, question: Any) -> Any:
        status, body, _ = self.ask("POST", path, json.dumps(question).encode())
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(
    view: SnapshotFeed, settings: ExtenderSettings | None = None, binder: Binder | None = None
) -> Iterator[Serving]:
    """A server on a free port; plain HTTP unless the settings name certificates."""
    chosen = msgspec.structs.replace(settings or ExtenderSettings(), port=0)
    metrics = Metrics("test", "3")
    app = ExtenderApp(ExtenderDependencies(view, chosen, SystemClock(), metrics, binder))
    server = ExtenderServer(app, chosen, app.collect_garbage, shown=app.counts.certificate_expires.set)
    server.start()
    try:
        yield Serving(server, app, metrics)
    finally:
        server.stop()


def client_tls(folder: Path, certificate: bool = True) -> ssl.SSLContext:
    """What a scheduler with certificates of `certificates.issue` uses."""
    context = ssl.create_default_context(cafile=str(folder / "scheduler" / "ca.crt"))
    if certificate:
        context.load_cert_chain(folder / "scheduler" / "tls.crt", folder / "scheduler" / "tls.key")
    return context


def args(pod: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The question of filter and prioritize."""
    return {"Pod": pod, "Nodes": None, "NodeNames": names}
