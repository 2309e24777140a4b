"""EDGE: the webhook server: TLS and an event loop in a thread of its own, around `admission.connection`.

The certificate can be replaced while serving: new connections get the new one. When it ends, every answer still given
says so, what was asked is answered, and a caller that stays is cut off: the whole takes a few seconds at most.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from admission.app import WebhookApp
from admission.authority import Pair
from admission.connection import Connection, Limits
from cotenant.model.errors import UsageError
from cotenant.settings.admission import AdmissionSettings

BACKLOG: Final = 1024
LINGER_SECONDS: Final = 0.5
"""How long callers may still ask once the end has begun; they are told with each answer to call no more."""
DRAIN_SECONDS: Final = 2.5
"""How long a caller has then to take its answer."""
START_SECONDS: Final = 30.0


class WebhookServer:
    """`show` gives it its first certificate and every later one."""

    def __init__(self, app: WebhookApp, settings: AdmissionSettings) -> None:
        """Bind at once, so that a taken port is an error at start-up."""
        self._app, self._settings = app, settings
        try:
            self._socket = socket.create_server(
                (settings.host, settings.port), backlog=BACKLOG, family=_family(settings.host)
            )
        except OSError as error:
            raise UsageError(
                f"cannot listen on {settings.host}:{settings.port}: {error}", fix="Set admission.port to a free port."
            ) from error
        self._context: ssl.SSLContext | None = None
        self.connections: set[Connection] = set()
        """Those that are open; they change in the server's thread."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._ready, self._ended = threading.Event(), threading.Event()

    @property
    def port(self) -> int:
        """Port that is served, also when 0 was asked."""
        return int(self._socket.getsockname()[1])

    def show(self, pair: Pair) -> None:
        """Use this certificate from the next connection on; ValueError when it cannot be used."""
        context = _context(pair)
        if self._context is None or self._loop is None:
            self._context = context
            return
        # In the server's own thread, so that no handshake meets a half-changed context.
        loading = asyncio.run_coroutine_threadsafe(_reload(self._context, pair), self._loop)
        loading.result(self._settings.read_seconds)

    def start(self) -> None:
        """Serve from now on; `show` must have been called."""
        if self._context is None:
            raise UsageError("the webhook server has no certificate yet", fix="Call show first.")
        self._thread.start()
        self._ready.wait(START_SECONDS)

    def stop(self) -> None:
        """Answer what was asked, then stop."""
        self._app.checks.draining = True
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(LINGER_SECONDS + DRAIN_SECONDS + 1)
        self._socket.close()

    def wait(self) -> None:
        """Until the server ends."""
        while not self._ended.wait(1.0):
            pass

    def _run(self) -> None:
        """The server's thread."""
        import uvloop

        try:
            uvloop.run(self._serve())
        finally:
            self._ready.set()
            self._ended.set()

    async def _serve(self) -> None:
        read_seconds = self._settings.read_seconds
        limits = Limits(read_seconds, self._settings.max_body_bytes, self._settings.max_connections)
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(
            lambda: Connection(self._app, limits, self.connections),
            sock=self._socket,
            backlog=BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=read_seconds,
            ssl_shutdown_timeout=1.0,
        )
        watching = asyncio.ensure_future(self._watch(min(1.0, read_seconds / 4)))
        self._ready.set()
        await self._stopping.wait()
        watching.cancel()
        server.close()
        await self._drain()

    async def _watch(self, pause_seconds: float) -> None:
        """Cut off callers that take too long: one timer for all of them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(pause_seconds)
            for connection in tuple(self.connections):
                connection.check(loop.time())

    async def _drain(self) -> None:
        for connection in self.connections:
            connection.closing = True
        await _until(lambda: not self.connections, LINGER_SECONDS)
        for connection in tuple(self.connections):
            connection.end()
        await _until(lambda: not self.connections, DRAIN_SECONDS)
        for connection in tuple(self.connections):
            connection.abort()


async def _until(condition: Callable[[], bool], most_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + most_seconds
    while not condition() and loop.time() < ends:
        await asyncio.sleep(0.01)


def _context(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _load(context, pair)
    except OSError as error:
        raise ValueError(f"the certificate cannot be used: {error}") from error
    return context


async def _reload(context: ssl.SSLContext, pair: Pair) -> None:
    _load(context, pair)


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """By way of files, which OpenSSL wants; they are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cotenant-webhook-") as folder:  # mode 0700
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
