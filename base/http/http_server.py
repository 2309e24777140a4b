"""EDGE: an HTTP server: an event loop in a separate thread around `cotenant.base.http.http_connection`.

When it stops, its responses tell clients to close the connection, pending requests are answered, and remaining clients
are disconnected: this takes a few seconds at most.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from cotenant.base.http.http_connection import Application, Connection, Limits
from cotenant.base.http.listening import bind
from cotenant.base.json_documents.json_decoders import make_ready

BACKLOG: Final = 1024
LINGER_SECONDS: Final = 0.5
"""Time for which requests are still accepted after the stop has begun; each response asks the client to disconnect."""
DRAIN_SECONDS: Final = 2.5
"""Time after that in which a client may still receive its response."""
START_SECONDS: Final = 30.0


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the port is in use, so that start-up fails. Port 0: any free port."""
    listener = bind(host, port)
    listener.listen(BACKLOG)
    return listener


class ServerTls:
    """The TLS context of a server, which can be replaced while it serves: each handshake uses the newest one.

    A renewed certificate is not loaded into the existing context: OpenSSL would drop the old key before it finds that
    the new one does not match (a file that is half written), and would add authorities without removing old ones.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.entrance = context
        """The context with which the event loop accepts connections."""
        self._newest = context
        context.sni_callback = self._choose  # called in every handshake, also of callers that name no server

    def replace(self, context: ssl.SSLContext) -> None:
        """Use this context from the next connection on; thread-safe."""
        self._newest = context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _entrance: ssl.SSLContext) -> None:
        connection.context = self._newest


class Listener:
    """A server that passes requests to an application, on a bound socket, from `start` to `stop`."""

    def __init__(self, name: str, app: Application, limits: Limits, opened: socket.socket) -> None:
        """Create the listener; nothing is served yet; `name` is the thread's name."""
        self._app, self._limits, self._socket = app, limits, opened
        self._tls: ServerTls | None = None
        self._beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
        self.connections: set[Connection] = set()
        """The open connections; only the server's thread changes the set."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ready, self._ended = threading.Event(), threading.Event()

    @property
    def port(self) -> int:
        """The port that is served, even if port 0 was requested."""
        return int(self._socket.getsockname()[1])

    @property
    def running(self) -> bool:
        """True if the listener serves clients."""
        return self._loop is not None and not self._ended.is_set()

    def start(self, tls: ServerTls | None, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start to serve, plain HTTP if `tls` is None; `beside` are further tasks of the server's event loop."""
        make_ready()
        self._tls, self._beside = tls, beside
        self._thread.start()
        self._ready.wait(START_SECONDS)

    def stop(self) -> None:
        """Stop serving; pending requests have LINGER_SECONDS + DRAIN_SECONDS to get their responses."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(LINGER_SECONDS + DRAIN_SECONDS + 1)
        self._socket.close()

    def wait(self) -> None:
        """Block until the server ends."""
        while not self._ended.wait(1.0):
            pass

    def _run(self) -> None:
        import uvloop

        try:
            uvloop.run(self._serve())
        finally:
            self._ready.set()
            self._ended.set()

    async def _serve(self) -> None:
        loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await loop.create_server(
            lambda: Connection(self._app, self._limits, self.connections),
            sock=self._socket,
            backlog=BACKLOG,
            ssl=self._tls.entrance if self._tls else None,
            ssl_handshake_timeout=self._limits.read_seconds if self._tls else None,
            ssl_shutdown_timeout=1.0 if self._tls else None,
        )
        tasks = [asyncio.ensure_future(watch()) for watch in (self._watch, *self._beside)]
        self._loop = loop
        self._ready.set()
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        server.close()
        for connection in self.connections:
            connection.closing = True
        await _wait_until(lambda: not self.connections, LINGER_SECONDS)
        for connection in tuple(self.connections):
            connection.end()
        await _wait_until(lambda: not self.connections, DRAIN_SECONDS)
        for connection in tuple(self.connections):
            connection.abort()

    async def _watch(self) -> None:
        """Disconnect clients that take too long, by one timer for all of them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, self._limits.read_seconds / 4))
            for connection in tuple(self.connections):
                connection.check(loop.time())


async def _wait_until(condition: Callable[[], bool], most_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + most_seconds
    while not condition() and loop.time() < ends:
        await asyncio.sleep(0.01)
