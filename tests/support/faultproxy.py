"""An HTTP proxy between client and Prometheus that counts, delays and breaks: the network's bad days, on demand.

    with FaultProxy(server.url, delay_seconds=0.05) as proxy:
        proxy.fault = lambda count, query: "500" if count == 3 else None

A fault is a name of `FAULTS` or None; it is chosen by the request's number and its PromQL text.
"""

from __future__ import annotations

import gzip
import http.client
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

_READ = re.compile(rb'"totalQueryableSamples":(\d+)')
Fault = Callable[[int, str], str | None]
HANG_SECONDS = 30.0


def _none(_count: int, _query: str) -> None:
    """No fault."""


_HTML = b"<html><head><title>Bad gateway</title></head><body>try later</body></html>"
_ERROR = b'{"status":"error","errorType":"internal","error":"expanding series: broken"}'
_STORE_AWAY = (
    b'{"status":"error","errorType":"execution","error":"expanding series: proxy Series(): fetch series: '
    b'rpc error: code = Unavailable desc = connection error"}'
)
"""Thanos without one of its stores, where a part is no answer."""
_TIMEOUT = b'{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}'
_DUPLICATE = b'{"status":"error","errorType":"execution","error":"found duplicate series for the match group"}'
_TOO_LARGE = b'{"status":"error","errorType":"execution","error":"the request exceeded the limit of chunks"}'
FAULTS: dict[str, tuple[int, str, bytes]] = {
    "500": (500, "application/json", _ERROR),
    "502-html": (502, "text/html", _HTML),
    "503-html": (503, "text/html", _HTML),
    "422-store": (422, "application/json", _STORE_AWAY),
    "503-timeout": (503, "application/json", _TIMEOUT),
    "429": (429, "text/plain", b"slow down"),
    "401": (401, "text/plain", b"who are you"),
    "403": (403, "text/plain", b"no"),
    "200-html": (200, "text/html", _HTML),
    "200-error": (200, "application/json", _ERROR),
    "422-too-large": (422, "application/json", _TOO_LARGE),
    "422-duplicate": (422, "application/json", _DUPLICATE),
}
"""Answers made up by the proxy; besides them: hang, close, truncate, redirect."""


@dataclass(slots=True)
class FaultProxy:
    """Started on entry on a free loopback port, stopped on exit."""

    target: str
    delay_seconds: float = 0.0
    bytes_per_second: float = math.inf
    fault: Fault = _none
    statistics: bool = False
    """Ask the server for each query's cost and add it up in `samples_read`."""
    samples_read: int = 0
    sent_bytes: int = 0
    """Size of all answers that were passed on, as they went over the wire."""
    count: int = 0
    most_in_flight: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """(path, PromQL or selector, headers) of every request in order."""
    url: str = ""
    _in_flight: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: ThreadingHTTPServer | None = None
    _released: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> FaultProxy:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def enter(self, path: str, query: str, headers: dict[str, str]) -> int:
        """A request begins; returns its number, from 1."""
        with self._lock:
            self.count += 1
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            self.requests.append((path, query, headers))
            return self.count

    def passed_on(self, body: bytes, encoding: str) -> None:
        """Note an answer's size and, with statistics, the samples that the server says it read for it."""
        plain = gzip.decompress(body) if self.statistics and encoding == "gzip" else body
        match = _READ.search(plain[-1000:])
        with self._lock:
            self.samples_read += int(match[1]) if match else 0
            self.sent_bytes += len(body)

    def leave(self) -> None:
        """A request ends: nothing of its answer is to come but the sign of its end."""
        with self._lock:
            self._in_flight -= 1

    def hang(self) -> None:
        """Say nothing until the proxy stops."""
        self._released.wait(HANG_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """One connection; requests on it are passed on or broken."""

    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _is_open = False

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _handle(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        fields = parse_qs(body.decode() or parts.query)
        query = (fields.get("query") or fields.get("match[]") or [""])[0]
        number = self.owner.enter(parts.path, query, dict(self.headers.items()))
        self._is_open = True
        try:
            time.sleep(self.owner.delay_seconds)
            self._answer(self.owner.fault(number, query), body)
        except ConnectionError:  # the caller went, or the server is away
            self.close_connection = True
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._is_open:
            self._is_open = False
            self.owner.leave()

    def _answer(self, fault: str | None, body: bytes) -> None:
        if fault is None or fault == "truncate":
            self._pass_on(body, truncate=fault is not None)
        elif fault == "hang":
            self.owner.hang()
            self.close_connection = True
        elif fault == "close":
            self.close_connection = True
        elif fault == "redirect":
            self._send(302, "text/plain", b"", {"Location": "http://login.invalid/sign-in"})
        else:
            self._send(*FAULTS[fault], {})

    def _pass_on(self, body: bytes, truncate: bool) -> None:
        upstream = http.client.HTTPConnection(urlsplit(self.owner.target).netloc, timeout=300)
        dropped = ("host", "content-length", "connection")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
        if self.owner.statistics and body:
            body += b"&stats=all"
        upstream.request(self.command, self.path, body or None, headers)
        response = upstream.getresponse()
        extra = {k: v for k, v in response.getheaders() if k.lower() == "content-encoding"}
        kind = response.headers.get("Content-Type", "")
        if truncate:
            content = response.read()
            self._head(response.status, kind, {"Content-Length": str(len(content)), **extra})
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self._head(response.status, kind, {"Transfer-Encoding": "chunked", **extra})
            self._stream(response)
        upstream.close()

    def _stream(self, response: http.client.HTTPResponse) -> None:
        """Pass the pieces on as they come, like a network; the end is told when all is in the account."""
        content = bytearray()
        while piece := response.read1(1 << 16):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            content += piece
            time.sleep(len(piece) / self.owner.bytes_per_second)
        self.owner.passed_on(bytes(content), response.headers.get("Content-Encoding", ""))
        self._leave()  # first: whoever has seen the end may send the next request
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, kind: str, content: bytes, extra: dict[str, str]) -> None:
        self._leave()
        self._head(status, kind, {"Content-Length": str(len(content)), **extra})
        self.wfile.write(content)

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": kind, **headers}.items():
            self.send_header(key, value)
        self.end_headers()
