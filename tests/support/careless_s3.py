"""An S3 server as some are: busy or slow, or without conditions of writes."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass
class CarelessServer:
    """Objects by path. So many answers are a 503 (busy).

    kib_seconds: so long each KiB of a content takes, on its way in and out.
    """

    conditions: bool = False
    objects: dict[str, bytes] = field(default_factory=dict)
    busy: int = 0
    kib_seconds: float = 0.0
    address: str = ""


class _Handler(BaseHTTPRequestHandler):
    careless: CarelessServer

    def do_GET(self) -> None:
        server = self.careless
        if self._busy():
            return
        if "list-type=2" in self.path:
            self._list()
            return
        content = server.objects.get(self.path)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
            return
        tag = _tag(content)
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
            first, last = int(match[1]), int(match[2])
            self._answer(206, content[first : last + 1], tag, f"bytes {first}-{last}/{len(content)}")
            return
        self._answer(200, content, tag)

    def _busy(self) -> bool:
        """Whether this request has been answered by a 503."""
        if self.careless.busy:
            self.careless.busy -= 1
            self._answer(503, b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")
            return True
        return False

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self) -> None:
        url = urlsplit(self.path)
        prefix = dict(parse_qsl(url.query)).get("prefix", "")
        keys = {path.removeprefix(f"{url.path}/"): content for path, content in self.careless.objects.items()}
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-22T00:00:00.000Z</LastModified><Size>{len(content)}</Size>"
            f"<ETag>{_tag(content)}</ETag></Contents>"
            for key, content in sorted(keys.items())
            if key.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode())

    def do_PUT(self) -> None:
        server = self.careless
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(server.kib_seconds * len(content) / 1024)
        if self._busy():
            return
        present = server.objects.get(self.path)
        expected = self.headers.get("If-Match")
        refused = present is not None and self.headers.get("If-None-Match") == "*"
        refused = refused or (expected is not None and (present is None or _tag(present) != expected))
        if server.conditions and refused:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code><Message>changed</Message></Error>")
            return
        server.objects[self.path] = content
        self._answer(200, b"", _tag(content))

    def do_DELETE(self) -> None:
        self.careless.objects.pop(self.path, None)
        self._answer(204, b"")

    def _answer(self, status: int, body: bytes, tag: str = "", span: str = "") -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", tag)
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT")
        if span:
            self.send_header("Content-Range", span)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the client has heard enough
            for start in range(0, len(body) if self.command != "HEAD" else 0, 1024):
                self.wfile.write(body[start : start + 1024])
                time.sleep(self.careless.kib_seconds)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
        """Nothing is printed."""


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


@contextmanager
def running(server: CarelessServer) -> Iterator[CarelessServer]:
    """The server on a free port of the loopback."""
    handler = type("Bound", (_Handler,), {"careless": server})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    server.address = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
