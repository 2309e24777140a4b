"""EDGE: the API over HTTP on the loopback, with a kubeconfig for `kubectl` and for our own client.

For laptops, the demo and tests. The kubeconfig's account is administrator; further accounts have their own tokens. It
binds to the loopback only, with TLS, since clients send no tokens without TLS. Bodies are JSON or YAML, not protobuf.
Objects live in memory; `save` writes them to a file as one snapshot.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, urlsplit

from cotenant.base.errors import StoreCorrupt, StoreError
from cotenant.base.process.clock import Clock, SystemClock
from cotenant_lab.simulation.api_server.certificate import loopback
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR, Account
from cotenant_lab.simulation.api_server.routes import Api, ApiAnswer, EmbeddedRequest
from cotenant_lab.simulation.api_server.schema import Json
from cotenant_lab.simulation.api_server.state import KEEP, ObjectState
from cotenant_lab.simulation.api_server.verbs import APPLY, JSON_PATCH
from cotenant_lab.simulation.api_server.watches import Stream

SNAPSHOT_FORMAT: Final = 1
"""Of the file that `save` writes; one without the field is of format 1."""
LARGEST_BODY_BYTES: Final = 3 * 1024 * 1024
"""The real server's cap."""


class EmbeddedServer:
    """An API server in this process; also as a context manager."""

    def __init__(
        self, port: int = 0, clock: Clock | None = None, keep: int = KEEP, snapshot: Path | None = None
    ) -> None:
        """Binds at once. `keep`: changes that watches can go back to. `snapshot`: a file of `save` to begin with."""
        self.state = ObjectState(keep)
        if snapshot and snapshot.exists():
            self.state.restore(*_load_snapshot(snapshot))
        self.token = secrets.token_urlsafe(24)
        self.accounts: dict[str, Account] = {self.token: ADMINISTRATOR}
        own = clock or SystemClock()
        self.api = Api(self.state, own, self.accounts.values)
        handler = type("BoundHandler", (_ApiHandler,), {"api": self.api, "accounts": self.accounts, "clock": own})
        self._server = _ApiHttpServer(("127.0.0.1", port), handler)
        self.authority, context = loopback()
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api-server", daemon=True)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End watches and connections that are kept open, stop serving, and release the port."""
        self.state.end_watches()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def account(self, name: str, account: Account) -> str:
        """Set the rights of a user; return its token, which is the same for the same name."""
        tokens = [token for token, owner in self.accounts.items() if owner.name == name]
        token = tokens[0] if tokens else secrets.token_urlsafe(24)
        self.accounts[token] = account
        return token

    def write_kubeconfig(self, path: Path, token: str = "", name: str = "embedded") -> Path:
        """Write a kubeconfig only its owner can read, for the administrator unless a token is given; return its path.

        `name` is that of its context, its cluster and its user. The file is JSON, which is YAML too.
        """
        trusted = base64.b64encode(self.authority.encode()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority-data": trusted}}],
            "users": [{"name": name, "user": {"token": token or self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        return _write(path, document)

    def save(self, path: Path) -> Path:
        """Write all objects to a file, atomically; return its path."""
        with self.state.lock:
            contents = [[*collection, items] for collection, items in self.state.contents().items()]
            return _write(path, {"format": SNAPSHOT_FORMAT, "version": self.state.version, "objects": contents})


def _write(path: Path, document: Json) -> Path:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(document, file)
    return part.replace(path)


def _load_snapshot(path: Path) -> tuple[int, dict[tuple[str, str], list[Json]]]:
    try:
        document = json.loads(path.read_text())
        if int(document.get("format", 1)) > SNAPSHOT_FORMAT:
            raise StoreError(
                f"{path} is a snapshot of format {document['format']}; this cotenant reads format {SNAPSHOT_FORMAT}",
                fix="Use the cotenant version that wrote the snapshot, or start without a snapshot.",
            )
        return int(document["version"]), {(group, plural): items for group, plural, items in document["objects"]}
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} is not a snapshot of the embedded API server: {error}") from error


class _ApiHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Close open connections: their threads would go on answering clients that keep them."""
        with self._changing:
            for request in self._open:
                with contextlib.suppress(OSError):
                    # The plain socket's shutdown: that of TLS would change the object under its reader.
                    socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


class _ApiHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: ClassVar[Api]
    accounts: ClassVar[dict[str, Account]]
    clock: ClassVar[Clock]

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header Date: the cluster's own time, by which commands count the ages of its objects."""
        return super().date_time_string(self.clock.now_seconds() if timestamp is None else timestamp)

    def do_GET(self) -> None:
        try:
            if self.path in ("/readyz", "/livez", "/healthz"):
                self._send(200, b"ok", "text/plain")
                return
            response = self.api.answer(self._request())
        except Refusal as error:
            response = ApiAnswer(error.code, error.status())
        except Exception as error:  # noqa: BLE001 - whatever a request breaks, its client hears of it
            response = ApiAnswer(500, Refusal(500, f"{type(error).__name__}: {error}").status())
        if isinstance(response.body, dict):
            self._send(response.code, json.dumps(response.body).encode(), warnings=response.warnings)
        else:
            self._stream(response.body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that http.server calls

    def _request(self) -> EmbeddedRequest:
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_BODY_BYTES:
            self.close_connection = True
            problem = f"Request entity too large: limit is {LARGEST_BODY_BYTES}"
            raise Refusal(413, problem, reason="RequestEntityTooLarge")
        text = self.rfile.read(length)
        split = urlsplit(self.path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.accounts:
            raise Refusal(401, "Unauthorized")
        content_type = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return EmbeddedRequest(
            *(self.command, split.path, self.accounts[token], dict(parse_qsl(split.query)), content_type),
            _parse_body(text, content_type),
            self.headers.get("User-Agent", "unknown").partition("/")[0],
            self.headers.get("Accept", ""),
        )

    def _send(self, code: int, body: bytes, kind: str = "application/json", warnings: tuple[str, ...] = ()) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for warning in warnings:
            self.send_header("Warning", f"299 - {json.dumps(warning)}")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Stream) -> None:
        """Events as chunks of one line each; an idle moment shows whether the client is still there."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                if event is not None:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                elif select.select([self.connection], [], [], 0)[0]:
                    self.close_connection = True
                    return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            close = getattr(events, "close", None)
            if close:
                close()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _parse_body(text: bytes, content_type: str) -> Any:
    if not text:
        return None
    if content_type not in ("", "application/json", APPLY, JSON_PATCH):
        raise Refusal(415, f"the body of the request was in an unknown format: {content_type}")
    try:
        return json.loads(text)
    except ValueError as error:
        if content_type != APPLY:
            raise Refusal(400, f"the body is not JSON: {error}") from error
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Refusal(400, f"error decoding YAML: {error}") from error
