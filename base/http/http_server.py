"""EDGE: an HTTP server: an event loop in its own thread around `cotenant.base.http.http_connection`.

When it ends, every answer still given says so, what was asked is answered, and a caller that stays is cut off: the
whole takes a few seconds at most.
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
"""How long callers may still ask once the end has begun; they are told with each answer to call no more."""
DRAIN_SECONDS: Final = 2.5
"""How long a caller has then to take its answer."""
START_SECONDS: Final = 30.0


def bound(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is an error (OSError) at start-up; port 0: a free one."""
    listener = bind(host, port)
    listener.listen(BACKLOG)
    return listener


class ServerTls:
    """The TLS context of a server, replaceable as a whole while it serves: each handshake uses the newest one.

    Loading a renewed certificate into the context that serves is no replacement: OpenSSL drops the former key before it
    finds that the new one does not fit (a file that is half written), and adds authorities without removing the former.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        """context: with the first certificate."""
        self.entrance = context
        """What the event loop accepts connections with."""
        self._newest = context
        context.sni_callback = self._choose  # called in every handshake, also of callers that name no server

    def replace(self, context: ssl.SSLContext) -> None:
        """Use this one from the next connection on; from any thread."""
        self._newest = context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _entrance: ssl.SSLContext) -> None:
        connection.context = self._newest


class Listener:
    """Serves an application on a bound socket from `start` to `stop`."""

    def __init__(self, name: str, app: Application, limits: Limits, opened: socket.socket) -> None:
        """Create the listener; nothing is served yet; `name` is that of the thread."""
        self._app, self._limits, self._socket = app, limits, opened
        self._tls: ServerTls | None = None
        self._beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
        self.connections: set[Connection] = set()
        """Those that are open; they change in the server's thread."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ready, self._ended = threading.Event(), threading.Event()

    @property
    def port(self) -> int:
        """Port that is served, also when 0 was asked."""
        return int(self._socket.getsockname()[1])

    @property
    def running(self) -> bool:
        """True if the listener serves callers."""
        return self._loop is not None and not self._ended.is_set()

    def start(self, tls: ServerTls | None, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Serve from now on, plain HTTP without `tls`; beside: tasks of the same loop, ended with it."""
        make_ready()
        self._tls, self._beside = tls, beside
        self._thread.start()
        self._ready.wait(START_SECONDS)

    def stop(self) -> None:
        """Answer what was asked, then stop."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(LINGER_SECONDS + DRAIN_SECONDS + 1)
        self._socket.close()

    def wait(self) -> None:
        """Block until the server ends."""
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
        """Cut off callers that take too long: one timer for all of them."""
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
