"""EDGE: the extender process and its server: TLS with client certificates, around `cotenant.base.http.http_server`.

Answers have a Content-Length and are never chunked: the scheduler's client drops a connection whose end it has not
read. Certificates are read again when their files change.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any, Final

import structlog
from cryptography import x509

from cotenant.base.allocation.allocator import Allocator
from cotenant.base.allocation.device_allocator import DeviceAllocator
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.http.http_connection import Application, Limits
from cotenant.base.http.http_server import Listener, ServerTls, bound
from cotenant.base.kube import KubeClient
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.scheduler_ext.extender.cpus import cpu_allocator
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import RESERVING
from cotenant.scheduler_ext.extender.watch.feed import Feed, SnapshotFeed

CONNECTIONS: Final = 128
RELOAD_SECONDS: Final = 5.0
_FILES: Final = ("tls.crt", "tls.key", "ca.crt")
_log = structlog.get_logger(__name__)


class ExtenderServer:
    """The extender's server; its port is bound at creation, and `start` serves from a thread."""

    def __init__(
        self,
        app: Application,
        settings: ExtenderSettings,
        *beside: Callable[[], Coroutine[Any, Any, None]],
        shown: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Bind the port; raise UsageError if it is taken, or if others could reach it without a certificate.

        `beside` are coroutines that run in the server's thread between answers; `shown` is called with the expiry (Unix
        time) of each certificate that comes into use.
        """
        self._folder, self._beside, self._shown = settings.certificate_folder, beside, shown
        try:
            is_loopback = ip_address(settings.host).is_loopback
        except ValueError:
            is_loopback = settings.host == "localhost"
        if not self._folder and not is_loopback:
            raise UsageError(
                f"extender.host is {settings.host}, open to other machines, but extender.certificate_folder is empty",
                fix="Give --cert-dir, or set extender.host to 127.0.0.1.",
            )
        self._tls = ServerTls(self._context()) if self._folder else None
        self._host = settings.host
        limits = Limits(settings.read_seconds, settings.max_body_bytes, CONNECTIONS)
        try:
            listening = bound(settings.host, settings.port)
        except OSError as error:
            problem = f"cannot listen on {settings.host}:{settings.port}: {error}"
            raise UsageError(problem, fix="Set extender.port to a free port.") from error
        self._listener = Listener("extender", app, limits, listening)

    @property
    def url(self) -> str:
        """The URL at which the server listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._folder else 'http'}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port that is served; the chosen one if 0 was requested."""
        return self._listener.port

    def start(self) -> None:
        """Start serving; raise CotenantError if that fails."""
        self._listener.start(self._tls, self._reload, *self._beside)
        if not self._listener.running:
            raise CotenantError("the extender did not start; the error above says why")

    def stop(self) -> None:
        """Answer pending requests, then stop."""
        self._listener.stop()

    def wait(self) -> None:
        """Block until the server ends."""
        self._listener.wait()

    async def _reload(self) -> None:
        """Use a renewed certificate for new connections."""
        loaded_stamps = self._stamps()
        while self._tls is not None:
            await asyncio.sleep(RELOAD_SECONDS)
            now = self._stamps()
            if now == loaded_stamps:
                continue
            try:
                self._tls.replace(self._context())
                loaded_stamps = now
                _log.info("certificate read again")
            except (OSError, UsageError) as error:
                _log.warning("the new certificate cannot be used; the old one stays in use", error=str(error))

    def _context(self) -> ssl.SSLContext:
        """Return a TLS context from the present files; raise UsageError or OSError if they cannot be used.

        The certificate's expiry is reported if it can be read.
        """
        folder = Path(self._folder)
        context = _context(folder)
        with suppress(ValueError):  # OpenSSL took the file, so that only the date is not known
            certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
            self._shown(certificate.not_valid_after_utc.timestamp())
        return context

    def _stamps(self) -> list[int]:
        paths = [Path(self._folder, name) for name in _FILES]
        return [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]


def _context(folder: Path) -> ssl.SSLContext:
    missing = [folder / name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"{missing[0]} is missing", fix="--cert-dir needs tls.crt, tls.key and ca.crt in PEM format.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    return context


def allocators(settings: ExtenderSettings) -> tuple[Allocator, ...]:
    """Return the allocators of CPUs and devices that the settings enable; by default none."""
    cpus: tuple[Allocator, ...] = (cpu_allocator(),) if settings.cpus.on else ()
    return (*cpus, DeviceAllocator()) if settings.devices.on else cpus


class ExtenderService:
    """A running `cotenant serve extender`."""

    def __init__(
        self,
        client: KubeClient,
        settings: ExtenderSettings,
        clock: Clock,
        metrics: Metrics,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        """Bind the port; the cluster is not read yet."""
        self.view = SnapshotFeed()
        allocation = HardwareAllocation(allocators(settings))
        self.app = ExtenderApp(
            ExtenderDependencies(self.view, settings, clock, metrics, Binder(client.sibling, allocation))
        )
        shown = self.app.counts.certificate_expires.set
        self.server = ExtenderServer(self.app, settings, self.app.collect_garbage, shown=shown)
        self.feed = Feed(self.view, client, settings, telemetry)
        self._settings = settings
        self.app.checks.ready["view"] = self._wrong

    def start(self) -> None:
        """Start serving; rules apply as soon as the view of the cluster is complete."""
        self.feed.start()
        self.server.start()

    def stop(self) -> None:
        """Stop the server and the watcher."""
        self.app.checks.draining = True
        self.server.stop()
        self.feed.stop()

    def __enter__(self) -> ExtenderService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wrong(self) -> str:
        """Return why rules do not apply yet, or ""."""
        snapshot = self.view.snapshot
        if problem := snapshot.problem():
            return problem
        age = snapshot.age_seconds(monotonic(), RESERVING)
        return "" if age <= self._settings.stale_seconds else f"the view of the cluster is {age:.0f} s old"
