"""A proxy between client and API server that delays, refuses, cuts, truncates and falls silent on demand.

    with FaultProxy(plane, folder, certified(plane, NAME)) as proxy:
        client = plane.client(proxy.kubeconfig)
        proxy.fault = first(3, TOO_MANY)                 # three 429, then all is well
        proxy.fault = silent_watch(after_events=2)
        proxy.sever()                                    # every connection is cut now

It ends TLS with the cluster's own authority and speaks to the API server as the user of the kubeconfig it is made from.
Answers are passed on as they come, so that a watch lives through it; on top, one fault a request is chosen by `fault`.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.cluster.api import client_tls
from tests.cluster.control_plane import ControlPlane
from tests.support.api_server import server_tls

_CHUNK = 1 << 16
_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked: its number from 1, method, path and query."""

    number: int
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def watch(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.query.get("watch", "") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request. The end of a stream comes after `after_events` whole events."""

    delay_seconds: float = 0.0
    status: int = 0
    """Answered by the proxy itself; the API server is not asked."""
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "a fault of the test"
    end: str = ""
    """before: cut before the API server is asked; lost: it is asked, the answer is cut; hang: it is never asked or
    answered; cut, truncate (half an event, then an orderly end), silence (nothing more, the connection stays)."""
    after_events: int = 0


Choice = Callable[[Request], Fault | None]

TOO_MANY = Fault(status=429, headers={"Retry-After": "1"}, message="too many requests, please try again later")
BROKEN = Fault(status=500, message="etcdserver: leader changed")
UNAVAILABLE = Fault(status=503, message="apiserver is shutting down")
CUT = Fault(end="before")
LOST_ANSWER = Fault(end="lost")
HANG = Fault(end="hang")


def none(_request: Request) -> None:
    """No fault."""


def always(fault: Fault, where: Callable[[Request], bool] = lambda _request: True) -> Choice:
    """The fault for every request that `where` is true for."""
    return lambda request: fault if where(request) else None


def first(count: int, fault: Fault, where: Callable[[Request], bool] = lambda _request: True) -> Choice:
    """The fault for the first `count` requests that `where` is true for."""
    faults = [fault] * count

    def choose(request: Request) -> Fault | None:
        return faults.pop() if faults and where(request) else None

    return choose


def delayed(seconds: float) -> Choice:
    """Every answer comes later."""
    return always(Fault(delay_seconds=seconds))


def cut_watch(after_events: int) -> Choice:
    """The next watch is cut after so many events."""
    return first(1, Fault(end="cut", after_events=after_events), lambda request: request.watch)


def truncated_watch(after_events: int) -> Choice:
    """The next watch ends in an orderly way, but in the middle of an event."""
    return first(1, Fault(end="truncate", after_events=after_events), lambda request: request.watch)


def silent_watch(after_events: int) -> Choice:
    """The next watch says nothing any more after so many events, and is not closed."""
    return first(1, Fault(end="silence", after_events=after_events), lambda request: request.watch)


class FaultProxy:
    """Started on entry on a free loopback port, stopped on exit. `kubeconfig` leads clients through it."""

    def __init__(self, plane: ControlPlane, folder: Path, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.fault: Choice = none
        self.requests: list[Request] = []
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.url = ""
        self._document = document
        self._upstream = urlsplit(plane.server).netloc
        self._client = client_tls(cluster["certificate-authority"], user["client-certificate"], user["client-key"])
        self._serving = server_tls(plane.folder / "pki" / "apiserver.crt", None)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._stopped = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> FaultProxy:
        self._flowing.set()
        self._listen(0)
        self._document["clusters"][0]["cluster"]["server"] = self.url
        self.kubeconfig.write_text(yaml.safe_dump(self._document))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._flowing.set()
        self.refuse()

    def sever(self) -> None:
        """Cut every connection at once, as a dying load balancer does."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            _reset(connection)

    def freeze(self) -> None:
        """Say nothing on any connection until `thaw`; nothing is closed, new ones are accepted."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything flow again."""
        self._flowing.set()

    def refuse(self) -> None:
        """Cut everything and refuse new connections until `accept`."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self.sever()

    def accept(self) -> None:
        """Listen again on the same port."""
        if self._server is None:
            self._listen(int(urlsplit(self.url).port or 0))

    # --- what handlers need -------------------------------------------------------------------------------------------
    def enter(self, connection: socket.socket) -> None:
        """A connection is open."""
        with self._lock:
            self._open.add(connection)

    @property
    def connections(self) -> frozenset[socket.socket]:
        """Those of clients that are open now."""
        with self._lock:
            return frozenset(self._open)

    def leave(self, connection: socket.socket) -> None:
        """A connection is closed."""
        with self._lock:
            self._open.discard(connection)

    def note(self, method: str, address: str, headers: dict[str, str]) -> Request:
        """Number a request and remember it."""
        parts = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            request = Request(len(self.requests) + 1, method, parts.path, query, headers)
            self.requests.append(request)
        return request

    def flow(self) -> None:
        """Wait while everything is frozen; ConnectionError when the proxy stopped meanwhile."""
        self._flowing.wait()
        if self._stopped.is_set():
            raise ConnectionError("the proxy stopped")

    def hang(self) -> None:
        """Say nothing until the proxy stops."""
        self._stopped.wait()
        raise ConnectionError("the proxy stopped")

    def upstream(self) -> http.client.HTTPSConnection:
        """A new connection to the API server."""
        return http.client.HTTPSConnection(self._upstream, context=self._client, timeout=3600)

    def _listen(self, port: int) -> None:
        proxy, tls = self, self._serving

        class Handler(_Handler):
            owner = proxy

        self._server = _Listener(("127.0.0.1", port), Handler)
        self._server.tls = tls
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


class _Listener(ThreadingHTTPServer):
    """Shakes hands in the connection's own thread, so that one slow client holds up nobody."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    tls: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        with self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one of its own to the API server."""

    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.owner.enter(self.connection)
        self.upstream = self.owner.upstream()

    def finish(self) -> None:
        self.owner.leave(self.connection)
        self.upstream.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        request = self.owner.note(self.command, self.path, headers)
        try:
            self.owner.flow()
            self._serve(self.owner.fault(request) or Fault(), body, headers)
        except (OSError, http.client.HTTPException):
            self._cut()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that the base class calls

    def _serve(self, fault: Fault, body: bytes, headers: dict[str, str]) -> None:
        time.sleep(fault.delay_seconds)
        if fault.status:
            self._refuse(fault)
        elif fault.end == "hang":
            self.owner.hang()
        elif fault.end == "before":
            self._cut()
        else:
            sent_headers = {k: v for k, v in headers.items() if k.lower() not in _HOP}
            self.upstream.request(self.command, self.path, body or None, sent_headers)
            self._pass_on(self.upstream.getresponse(), fault)

    def _refuse(self, fault: Fault) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        content = json.dumps({**status, "message": fault.message, "code": fault.status}).encode()
        self._head(
            fault.status, {"Content-Type": "application/json", "Content-Length": str(len(content)), **fault.headers}
        )
        self.wfile.write(content)

    def _pass_on(self, response: http.client.HTTPResponse, fault: Fault) -> None:
        headers = {k: v for k, v in response.getheaders() if k.lower() not in _HOP}
        if fault.end == "lost":
            response.read()
            self._cut()
        elif response.length is not None:
            content = response.read()
            self.owner.flow()
            self._head(response.status, {**headers, "Content-Length": str(len(content))})
            self.wfile.write(content)
        else:
            self._head(response.status, {**headers, "Transfer-Encoding": "chunked"})
            self._stream(response, fault)

    def _stream(self, response: http.client.HTTPResponse, fault: Fault) -> None:
        """Chunks as they come; with a fault of streams whole events until its turn."""
        if not fault.end:
            while content := response.read1(_CHUNK):
                self._chunk(content)
            self._chunk(b"")
            return
        for _ in range(fault.after_events):
            self._chunk(response.readline())
        if fault.end == "silence":
            self.owner.hang()
        elif fault.end == "truncate":
            event = response.readline()
            self._chunk(event[: len(event) // 2])
            self._chunk(b"")
            response.close()
            self.close_connection = True
        else:
            self._cut()

    def _chunk(self, content: bytes) -> None:
        self.owner.flow()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _cut(self) -> None:
        self.close_connection = True
        _reset(self.connection)


def _reset(connection: socket.socket) -> None:
    """End a connection at once, without a word of TLS or HTTP."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
