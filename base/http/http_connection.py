"""EDGE: the server side of one HTTP/1.1 connection: httptools parses requests, each response is one write.

There is one write per response, and no task between a request's last byte and its response: on a busy machine every
further write or wake-up waits for the scheduler, while the API server waits for us to create a pod, or kube-scheduler
to place one. The cost of a client is bounded here: the size of head and body, the time for both, the number of
connections. `cotenant.base.http.http_server` accepts them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import httptools

HEAD_BYTES: Final = 16_384
HEADERS: Final = 200
KEEP_ALIVE_SECONDS: Final = 120.0
"""Longer than Kubernetes' clients keep an idle connection (90 s), so that none calls on one that we are closing."""
_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Request(NamedTuple):
    """One complete request; `last` is true if the client wants the connection closed after the response."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    last: bool
    query: str = ""

    def __repr__(self) -> str:
        """Return a text without headers, query and body, which may contain secrets."""
        return f"Request({self.method} {self.path}, {len(self.body)} bytes)"


class Response(NamedTuple):
    """An HTTP response; `kind` is its media type."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"


class Application(Protocol):
    """The handler of requests; none of its methods may raise."""

    def answer(self, request: Request) -> Response:
        """Return the response to a request."""

    def asks_elsewhere(self, path: str) -> bool:
        """Return whether requests for this path wait for another server; each of them then gets a thread of its own."""

    def refused(self, path: str) -> None:
        """Take note of a request that was refused before all of it was read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server: seconds to receive a request, bytes of its body, number of connections."""

    read_seconds: float
    body_bytes: int
    connections: int


class _Stage(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DEAF = auto()
    """The request was refused; further bytes are ignored."""


@dataclass(slots=True)
class _Incoming:
    """A request that is not complete yet."""

    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    chunks: list[bytes] = field(default_factory=list, repr=False)
    head_bytes: int = 0
    body_bytes: int = 0

    @property
    def target(self) -> tuple[str, str]:
        path, _, query = self.url.decode("latin-1").partition("?")
        return path, query


class Connection(asyncio.Protocol):
    """A client's connection in one event loop; it is in the set `others` while it is open."""

    def __init__(self, app: Application, limits: Limits, others: set[Connection]) -> None:
        self._app, self._limits, self._others = app, limits, others
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._stage, self._since = _Stage.HEAD, self._loop.time()
        self._incoming = _Incoming()
        self._asked: deque[Request] = deque()
        self._elsewhere = False
        self.closing = False
        """True if the connection is to be closed after the next response."""

    # --- called by the event loop -------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit for the client's first request."""
        self._transport = transport  # type: ignore[assignment]
        self._others.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """Forget the connection, which the client or the server has closed."""
        self._others.discard(self)
        self._stage = _Stage.DEAF
        self._asked.clear()

    def data_received(self, data: bytes) -> None:
        """Parse some bytes of one or more requests."""
        if self._stage is _Stage.DEAF:
            return
        incoming = self._incoming
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._close()  # answered; what follows would be another protocol
        except httptools.HttpParserError:
            self._refuse(400, "the bytes received are not an HTTP/1.1 request")
        if self._stage is _Stage.HEAD and self._incoming is incoming:
            incoming.head_bytes += len(data)
            if incoming.head_bytes > HEAD_BYTES:
                self._close()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its responses."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again from a client that reads its responses again, unless a request still waits for another server."""
        if not self._elsewhere:
            self._transport.resume_reading()

    # --- called by the parser -----------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """Begin a request, at its first byte."""
        if self._stage is not _Stage.DEAF:
            self._stage, self._since = _Stage.HEAD, self._loop.time()

    def on_url(self, url: bytes) -> None:
        """Append a part of the request's target."""
        self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header by its lower-case name; close the connection at one that is too long, or at too many."""
        self._incoming.headers[name.lower()] = value
        if len(name) + len(value) > HEAD_BYTES or len(self._incoming.headers) > HEADERS:
            self._close()

    def on_headers_complete(self) -> None:
        """Refuse a request on a connection too many, or with an encoded or too long body, before the body is read."""
        if self._stage is _Stage.DEAF:
            return
        self._stage = _Stage.BODY
        headers, cap = self._incoming.headers, self._limits.body_bytes
        if len(self._others) > self._limits.connections:
            self._refuse(503, "too many connections")
        elif headers.get(b"content-encoding", b"identity") != b"identity":
            self._refuse(415, "send the body without content-encoding")
        elif int(headers.get(b"content-length", b"0")) > cap:
            self._refuse(413, f"the body is larger than {cap} bytes")
        elif headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Append bytes to the request's body; respond with 413 if it is longer than the limit."""
        if self._stage is _Stage.DEAF:
            return
        self._incoming.chunks.append(body)
        self._incoming.body_bytes += len(body)
        if self._incoming.body_bytes > self._limits.body_bytes:
            self._refuse(413, f"the body is larger than {self._limits.body_bytes} bytes")

    def on_message_complete(self) -> None:
        """Respond to the complete request, after earlier ones of this connection."""
        if self._stage is _Stage.DEAF:
            return
        incoming, self._incoming = self._incoming, _Incoming()
        self._stage, self._since = _Stage.IDLE, self._loop.time()
        body = incoming.chunks[0] if len(incoming.chunks) == 1 else b"".join(incoming.chunks)
        method, last = self._parser.get_method().decode(), not self._parser.should_keep_alive()
        path, query = incoming.target
        self._asked.append(Request(method, path, incoming.headers, body, last, query))
        self._answer()

    # --- called by the server -----------------------------------------------------------------------------------------
    def check(self, now: float) -> None:
        """Disconnect a client that sends too slowly or is idle for too long; `now` is the event loop's time."""
        if self._elsewhere:
            return
        waited = now - self._since
        if self._stage is _Stage.BODY and waited > self._limits.read_seconds:
            self._refuse(408, f"the body took longer than {self._limits.read_seconds:g} seconds")
        elif waited > (KEEP_ALIVE_SECONDS if self._stage is _Stage.IDLE else self._limits.read_seconds):
            self._close()

    def end(self) -> None:
        """Close the connection now if no request is pending, else after the response."""
        self.closing = True
        if not self._elsewhere and self._stage is not _Stage.BODY:
            self._close()

    def abort(self) -> None:
        """Close the connection at once, without a response."""
        self._transport.abort()

    # --- answers ------------------------------------------------------------------------------------------------------
    def _answer(self) -> None:
        """Respond to the requests in their order."""
        while self._asked and not self._elsewhere:
            request = self._asked.popleft()
            if self._app.asks_elsewhere(request.path):
                self._elsewhere = True
                self._transport.pause_reading()
                threading.Thread(target=self._answer_elsewhere, args=(request,), daemon=True).start()
            else:
                self._write(request, self._app.answer(request))

    def _answer_elsewhere(self, request: Request) -> None:
        """Respond to a request in a separate thread, which the end of the process does not wait for."""
        response = self._app.answer(request)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send_answer, request, response)

    def _send_answer(self, request: Request, response: Response) -> None:
        self._elsewhere, self._since = False, self._loop.time()
        if self._transport.is_closing():
            return
        self._write(request, response)
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._answer()

    def _write(self, request: Request, response: Response) -> None:
        last = request.last or self.closing
        head = b"content-type: %b\r\ncontent-length: %d\r\n" % (response.kind.encode(), len(response.body))
        ended = b"connection: close\r\n\r\n" if last else b"\r\n"
        body = b"" if request.method == "HEAD" else response.body
        self._transport.write(b"".join((_STATUS_LINES[response.status], head, ended, body)))
        if last:
            self._close()

    def _refuse(self, status: int, message: str) -> None:
        """Respond with an error and close: the rest of the request is not read."""
        self._app.refused(self._incoming.target[0])
        if self._elsewhere:  # an earlier question is still open, and this is not its answer
            self._close()
        else:
            self._write(Request("", "", {}, b"", True), Response(status, f"{message}\n".encode()))

    def _close(self) -> None:
        self._stage = _Stage.DEAF
        self._asked.clear()
        self._transport.close()
