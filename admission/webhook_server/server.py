"""EDGE: the webhook server: its certificate, around `cotenant.base.http.http_server`.

The certificate can be replaced while serving: new connections get the new one.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.app import WebhookApp
from cotenant.admission.webhook_server.authority import Pair
from cotenant.base.errors import UsageError
from cotenant.base.http.http_connection import Connection, Limits
from cotenant.base.http.http_server import Listener, ServerTls, bound


class WebhookServer:
    """`show` gives it its first certificate and every later one."""

    def __init__(self, app: WebhookApp, settings: AdmissionSettings) -> None:
        """Bind at once, so that a taken port is an error at start-up."""
        self._app, self._settings = app, settings
        try:
            opened = bound(settings.host, settings.port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {settings.host}:{settings.port}: {error}", fix="Set admission.port to a free port."
            ) from error
        limits = Limits(settings.read_seconds, settings.max_body_bytes, settings.max_connections)
        self._listener = Listener("webhook", app, limits, opened)
        self._tls: ServerTls | None = None

    @property
    def port(self) -> int:
        """Port that is served, also when 0 was asked."""
        return self._listener.port

    @property
    def connections(self) -> set[Connection]:
        """The open connections."""
        return self._listener.connections

    def show(self, pair: Pair) -> None:
        """Use this certificate from the next connection on; ValueError when it is unusable: the present one stays."""
        # A TLS context with this certificate and key. Raises ValueError when they cannot be used. OpenSSL reads them
        # from files, which exist only during the call.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory(prefix="cotenant-webhook-") as folder:  # mode 0700
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            certificate.write_bytes(pair.certificate)
            key.write_bytes(pair.key)
            try:
                context.load_cert_chain(certificate, key)
            except OSError as error:
                raise ValueError(f"the certificate cannot be used: {error}") from error
        if self._tls is None:
            self._tls = ServerTls(context)
        else:
            self._tls.replace(context)

    def start(self) -> None:
        """Serve from now on; `show` must have been called."""
        if self._tls is None:
            raise UsageError("the webhook server has no certificate yet", fix="Call show first.")
        self._listener.start(self._tls)

    def stop(self) -> None:
        """Answer what was asked, then stop."""
        self._app.checks.draining = True
        self._listener.stop()

    def wait(self) -> None:
        """Block until the server ends."""
        self._listener.wait()
