"""EDGE: /livez, /readyz and /metrics for processes that serve nothing else; the dashboard can mount the same checks.

A process that works in intervals registers the checks that it needs to be useful (a source responds, a store can be
written) and starts a `HealthServer`; Kubernetes probes and Prometheus query it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from cotenant.base.errors import UsageError
from cotenant.base.http.listening import bind
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import TelemetrySettings

Page = Callable[[], tuple[bytes, str]]
"""A function that returns a page's bytes and their content type."""
Check = Callable[[], str]
"""A function that returns the problem in a few words, or "", within a second. An exception counts as a problem."""


@dataclass(slots=True)
class Checks:
    """The readiness and liveness checks of a process; liveness has only checks of what a restart would fix."""

    ready: dict[str, Check] = field(default_factory=dict)
    alive: dict[str, Check] = field(default_factory=dict)
    draining: bool = False
    """True as soon as a shutdown begins, so that clients go elsewhere before the listener closes."""

    def report(self, endpoint: str) -> tuple[bool, str]:
        """Return whether all checks of "livez" or "readyz" pass, and a line for each."""
        checks = self.alive if endpoint == "livez" else self.ready
        outcomes = {name: _outcome(check) for name, check in checks.items()}
        if endpoint == "readyz" and self.draining:
            outcomes["draining"] = "shutting down"
        lines = [f"[-]{name} failed: {wrong}" if wrong else f"[+]{name} ok" for name, wrong in outcomes.items()]
        passed = not any(outcomes.values())
        return passed, "\n".join([*lines, f"{endpoint} check {'passed' if passed else 'failed'}", ""])


def _outcome(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a check that breaks is a check that fails, whatever it raised
        return f"{type(error).__name__}: {error}"


class HealthServer:
    """A server of the checks and metrics in a separate thread; also a context manager."""

    def __init__(self, checks: Checks, metrics: Metrics, settings: TelemetrySettings, own_port: int = 0) -> None:
        """Bind at once, so that a port in use is an error at start-up and not a silent probe failure.

        `own_port` is the program's default if the settings name none; 0 takes any free port.
        """
        self.pages: dict[str, Page] = {}
        """Further pages by path, such as "/status"; may be added while it serves."""
        handler = type("BoundHandler", (_Handler,), {"checks": checks, "metrics": metrics, "pages": self.pages})
        address = (settings.health_host, own_port if settings.health_port is None else settings.health_port)
        try:
            self._server = _Server(address, handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]}: {error}", fix="Set telemetry.health_port to a free port."
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port that is served, even if port 0 was requested."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and release the port."""
        with contextlib.suppress(OSError):  # not every system wakes a listener so; then its next round does
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bind(*address)
        self.server_address = self.socket.getsockname()
        self.server_activate()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a prober that closes the connection."""


class _Handler(BaseHTTPRequestHandler):
    checks: ClassVar[Checks]
    metrics: ClassVar[Metrics]
    pages: ClassVar[dict[str, Page]]
    timeout = 5.0
    server_version = "cotenant"
    sys_version = ""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/metrics":
            self._answer(200, *self.metrics.exposition(self.headers.get("Accept", "")))
            return
        if url.path in self.pages:
            self._answer(200, *self.pages[url.path]())
            return
        endpoint = {"/livez": "livez", "/healthz": "livez", "/readyz": "readyz"}.get(url.path)
        if endpoint is None:
            self._answer(404, b"not found: try /livez, /readyz?verbose or /metrics\n")
            return
        passed, report = self.checks.report(endpoint)
        verbose = "verbose" in parse_qs(url.query, keep_blank_values=True) or not passed
        self._answer(200 if passed else 503, report.encode() if verbose else b"ok\n")

    do_HEAD = do_GET  # noqa: N815 - the standard library's name for a method

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Log nothing: probes come every few seconds."""
