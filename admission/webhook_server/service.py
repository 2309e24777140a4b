"""EDGE: one complete webhook process: mirrors, application, TLS server and the renewal of its certificate.

`start` returns once the server answers with a certificate; the mirrors fill afterwards (`/readyz` reports it). The
certificate can be replaced while serving: new connections get the new one.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from cryptography import x509

from cotenant.admission.guard_watchdog import GuardWatchdog
from cotenant.admission.profile_record import signing_key
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.app import WebhookApp
from cotenant.admission.webhook_server.authority import Pair
from cotenant.admission.webhook_server.certificates import (
    CertificateController,
    CertificateFileReloader,
    FolderStore,
    Injector,
    SecretStore,
    policy_of,
)
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.http.http_connection import Connection, Limits
from cotenant.base.http.http_server import Listener, ServerTls, bound
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import BelievableClock, Clock

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The source of the certificate: a Secret, or a folder if given; `own` means that we issue it ourselves."""

    folder: Path | None = None
    own: bool = True
    url: str = ""
    """Address that callers use, for the certificate's names."""


class WebhookService:
    """A running `cotenant serve webhook`, also as a context manager."""

    def __init__(
        self,
        state: WebhookMirrors,
        settings: AdmissionSettings,
        certificates: Certificates,
        clock: Clock,
        metrics: Metrics,
        config_namespace: str,
    ) -> None:
        """Bind the port, without requests to the API server yet.

        `clock` is this machine's. If it differs much from the API server's time, the latter decides when a manager's
        promise or a certificate expires.
        """
        self.state, clock = state, BelievableClock(clock, state.client.server_clock)
        self.app = WebhookApp(self.state.view, self.state.pods_of_quota, settings, clock, metrics, config_namespace)
        self.server = WebhookServer(self.app, settings)
        client = state.client.sibling()
        self.keeper: CertificateController | CertificateFileReloader
        if certificates.folder is not None and not certificates.own:
            self.keeper = CertificateFileReloader(certificates.folder, self._show)
        else:
            store = FolderStore(certificates.folder) if certificates.folder else SecretStore(client, settings)
            host = urlsplit(certificates.url).hostname
            policy, injector = policy_of(settings, (host,) if host else ()), Injector(client, settings)
            self.keeper = CertificateController(store, policy, clock, self._show, injector)
        self.watchdog = GuardWatchdog(state.client.sibling(), clock)
        self.app.checks.ready["cluster"] = self.state.wrong
        # Why the certificate could not be renewed or read last, empty when it could.
        self.app.checks.ready["certificate"] = lambda: self.keeper.error.message if self.keeper.error else ""
        self._pause = settings.certificate_check_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="certificates", daemon=True)

    def start(self) -> None:
        """Get a certificate, serve, and keep renewing it; raise CotenantError if no certificate can be obtained."""
        self.state.start()
        self.keeper.step()
        self.server.start()
        self.watchdog.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop everything within a few seconds, without waiting for requests to the API server."""
        self._stopping.set()
        self.watchdog.stop()
        self.server.stop()
        self.state.stop()
        if self._thread.is_alive():
            self._thread.join(1)

    def __enter__(self) -> WebhookService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _show(self, pair: Pair) -> None:
        self.server.show(pair)
        expires = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
        self.app.shown(expires.timestamp(), signing_key(pair.key))

    def _keep(self) -> None:
        """Renew the certificate until stopped; an error is logged and the step is tried again."""
        while not self._stopping.wait(self._pause):
            try:
                self.keeper.step()
            except CotenantError as error:
                _log.warning("certificate not renewed", error=error.message, fix=error.fix)
            except Exception:  # noqa: BLE001 - the present certificate still serves
                _log.exception("certificate not renewed")


class WebhookServer:
    """The TLS server of the webhooks; `show` gives it its first certificate and every later one."""

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
        """The TCP port that the server listens on, also if port 0 was requested."""
        return self._listener.port

    @property
    def connections(self) -> set[Connection]:
        """The open connections."""
        return self._listener.connections

    def show(self, pair: Pair) -> None:
        """Use this certificate for new connections; keep the present one and raise ValueError if it is unusable."""
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
                raise ValueError(f"the webhook's certificate cannot be used:  {error}") from error
        if self._tls is None:
            self._tls = ServerTls(context)
        else:
            self._tls.replace(context)

    def start(self) -> None:
        """Start serving; raise UsageError if `show` has not been given a certificate yet."""
        if self._tls is None:
            raise UsageError("the webhook server has no certificate yet", fix="Call show first.")
        self._listener.start(self._tls)

    def stop(self) -> None:
        """Finish the requests in progress, then stop."""
        self._app.checks.draining = True
        self._listener.stop()

    def wait(self) -> None:
        """Block until the server ends."""
        self._listener.wait()
