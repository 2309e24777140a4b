"""EDGE: one webhook process assembled: mirrors, application, server and the renewal of its certificate.

`start` returns once the server answers with a certificate; mirrors fill in their own time (`/readyz` tells).
"""

from __future__ import annotations

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
from cotenant.admission.webhook_server.server import WebhookServer
from cotenant.base.errors import CotenantError
from cotenant.base.kube import KubeClient
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import BelievableClock, Clock

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The source of the certificate: a Secret, or a folder if given; `own`: we issue the certificate ourselves."""

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
        """Bind the port; nothing is asked yet.

        clock: of this machine. What managers promise, and how long a certificate is valid, is judged by the API
        server's time where the two are far apart.
        """
        self.state, clock = state, BelievableClock(clock, state.client.server_clock)
        self.app = WebhookApp(self.state.view, self.state.pods_of_quota, settings, clock, metrics, config_namespace)
        self.server = WebhookServer(self.app, settings)
        self.keeper = self._keeper(state.client.sibling(), settings, certificates, clock)
        self.watchdog = GuardWatchdog(state.client.sibling(), clock)
        self.app.checks.ready["cluster"] = self.state.wrong
        self.app.checks.ready["certificate"] = self._certificate
        self._pause = settings.certificate_check_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="certificates", daemon=True)

    def start(self) -> None:
        """Get a certificate, serve, and go on keeping both; CotenantError when there is no certificate to be had."""
        self.state.start()
        self.keeper.step()
        self.server.start()
        self.watchdog.start()
        self._thread.start()

    def stop(self) -> None:
        """End what was started, in a few seconds at most: what waits for the API server is not waited for."""
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

    def _keeper(
        self, client: KubeClient, settings: AdmissionSettings, certificates: Certificates, clock: Clock
    ) -> CertificateController | CertificateFileReloader:
        if certificates.folder is not None and not certificates.own:
            return CertificateFileReloader(certificates.folder, self._show)
        store = FolderStore(certificates.folder) if certificates.folder else SecretStore(client, settings)
        host = urlsplit(certificates.url).hostname
        policy = policy_of(settings, (host,) if host else ())
        return CertificateController(store, policy, clock, self._show, Injector(client, settings))

    def _show(self, pair: Pair) -> None:
        self.server.show(pair)
        expires = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
        self.app.shown(expires.timestamp(), signing_key(pair.key))

    def _certificate(self) -> str:
        """Why the certificate could not be renewed or read last, empty when it could."""
        return self.keeper.error.message if self.keeper.error else ""

    def _keep(self) -> None:
        """Look after the certificate until stopped; what fails is logged and tried again."""
        while not self._stopping.wait(self._pause):
            try:
                self.keeper.step()
            except CotenantError as error:
                _log.warning("certificate not renewed", error=error.message, fix=error.fix)
            except Exception:  # noqa: BLE001 - the present certificate still serves
                _log.exception("certificate not renewed")
