"""A real HTTPS server on the loopback that speaks the Kubernetes API's list protocol over objects given to it.

It pages with `limit` and `continue`, forgets lists (410), refuses (401, 403), is busy (429), cuts answers, hangs. What
it was asked is kept in `requests`. Certificates are made by openssl.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Reply = Callable[["Handler"], None]


def make_certificate(folder: Path, name: str, authority: str | None = None, host: str = "127.0.0.1") -> None:
    """`<name>.pem` and `<name>.key`: an authority's own, or signed by one."""
    key, pem = folder / f"{name}.key", folder / f"{name}.pem"
    kind = "IP" if host[0].isdigit() else "DNS"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-keyout", str(key), "-out", str(pem), "-subj", f"/CN={name}"]
    if authority:
        signer = ["-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key")]
        command += [*signer, "-addext", f"subjectAltName={kind}:{host}", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ApiServer
    body = b""

    def do_GET(self) -> None:
        api = self.server
        api.connections.add(self.client_address)
        api.methods.add(self.command)
        api.requests.append((self.path, self.headers.get("Authorization", ""), self.certificate_name()))
        # Read in any case: what is left of a body would be taken for the next request of the connection.
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if api.once:
            api.once.pop(0)(self)
        elif api.tokens and self.headers.get("Authorization") not in api.tokens:
            self.status(401, "Unauthorized")
        elif target := next((url for prefix, url in api.proxies.items() if path.startswith(prefix)), ""):
            self.forward(target + self.path[self.path.index("/proxy") + len("/proxy") :])
        elif path in api.forbidden:
            self.status(403, f'{path.rsplit("/", 1)[-1]} is forbidden: User "jane" cannot list resource')
        elif api.quiet_watches and "watch=" in self.path:
            self.hold()
        elif path in api.objects:
            self.page(api.objects[path])
        else:
            self.status(404, "the server could not find the requested resource")

    do_POST = do_GET  # noqa: N815 - the name that the base class calls

    def forward(self, url: str) -> None:
        """As the API server's service proxy does."""
        kind = {"Content-Type": self.headers.get("Content-Type", "")} if self.body else {}
        request = urllib.request.Request(url, self.body or None, kind)
        with urllib.request.urlopen(request, timeout=60) as response:
            self.raw(response.status, response.read())

    def hold(self) -> None:
        """Take a watch up and say nothing."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.stopped.wait()
        self.close_connection = True

    def certificate_name(self) -> str:
        certificate = self.connection.getpeercert() if self.server.scheme == "https" else None
        return dict(part[0] for part in certificate["subject"])["commonName"] if certificate else ""

    def page(self, objects: list[Any] | dict[str, Any]) -> None:
        if isinstance(objects, dict):
            self.answer(200, objects)
            return
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        begin = int(query.get("continue", "0"))
        if begin and self.server.forget:
            self.server.forget -= 1
            self.status(410, "The provided continue parameter is too old")
            return
        end = min(len(objects), begin + int(query.get("limit", len(objects) or 1)))
        rest = {"continue": str(end), "remainingItemCount": len(objects) - end} if end < len(objects) else {}
        self.answer(
            200, {"kind": "List", "metadata": {"resourceVersion": "7", **rest}, "items": objects[begin:end] or None}
        )

    def status(self, code: int, message: str, **headers: str) -> None:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
        self.answer(code, body, **headers)

    def answer(self, code: int, document: object, **headers: str) -> None:
        self.raw(code, json.dumps(document).encode(), None, **headers)

    def raw(self, code: int, body: bytes, announced: int | None = None, **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.server.sent_bytes[urlsplit(self.path).path] += len(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class ApiServer(http.server.ThreadingHTTPServer):
    """Serves `objects[path]`; each reply in `once` is used up by one request, before anything else.

    quiet_watches: a watch is taken up and brings nothing; else it is answered as a list, so that it begins anew.
    """

    daemon_threads = True

    def __init__(self, certificate: Path | None, authority: Path | None, *, quiet_watches: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.quiet_watches, self.stopped = quiet_watches, threading.Event()
        self.objects: dict[str, list[Any] | dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.sent_bytes: Counter[str] = Counter()
        """Of bodies, by path."""
        self.connections: set[tuple[str, int]] = set()
        self.methods: set[str] = set()
        self.tokens: set[str] = set()
        self.forbidden: set[str] = set()
        self.once: list[Reply] = []
        self.proxies: dict[str, str] = {}
        self.forget = 0
        self.scheme = "https" if certificate else "http"
        if certificate:
            self.socket = server_tls(certificate, authority).wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken clients are part of the tests."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()


def server_tls(certificate: Path, authority: Path | None) -> ssl.SSLContext:
    """Serve a certificate (its key lies beside it); ask clients for one when there is an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    if authority:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Tunnel(http.server.ThreadingHTTPServer):
    """A proxy for HTTPS that keeps the targets that it was asked for; `user`: who may ask, as NAME:PASSWORD."""

    daemon_threads = True

    def __init__(self, user: str = "") -> None:
        super().__init__(("127.0.0.1", 0), TunnelHandler)
        self.targets: list[str] = []
        self.authorization = f"Basic {base64.b64encode(user.encode()).decode()}" if user else None


class TunnelHandler(http.server.BaseHTTPRequestHandler):
    """CONNECT: notes the target, then copies bytes both ways."""

    server: Tunnel

    def do_CONNECT(self) -> None:
        if self.server.authorization not in (None, self.headers.get("Proxy-Authorization")):
            self.send_error(407)
            return
        self.server.targets.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(far, self.connection), daemon=True)
            back.start()
            _copy(self.connection, far)
            back.join(5)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def busy(seconds: str) -> Reply:
    return lambda handler: handler.status(429, "too many requests", Retry_After=seconds)


def cut(handler: Handler) -> None:
    """Announces more than it sends, then hangs up."""
    handler.raw(200, b'{"items":[{"metadata":{"na', announced=5000)
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    handler.close_connection = True


def silence(handler: Handler) -> None:
    time.sleep(3)
    handler.close_connection = True


def trickle(handler: Handler) -> None:
    handler.raw(200, b"[", announced=1000)
    for _ in range(30):
        time.sleep(0.1)
        handler.wfile.write(b" ")
