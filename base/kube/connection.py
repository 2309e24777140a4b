"""EDGE: one HTTP exchange with an API server: connect, send, read the complete response or fail.

`client` decides what a response means and what is retried; here a response is complete or there is none. A watch's
response never ends: `stream` yields its lines as they arrive.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from cotenant.base.errors import ClusterError
from cotenant.base.http.tls import accept_older_authorities
from cotenant.base.settings.catalogue import mask_secrets
from cotenant.base.settings.sections import KubeSettings

if TYPE_CHECKING:
    from cotenant.base.kube.auth import Access

CHUNK_BYTES: Final = 1 << 16
SIZE_BYTES: Final = 1024
"""Longest line that says the size of a chunk, with its extensions."""
SIZE_DIGITS: Final = 12
FRAME_BYTES: Final = 64 << 20
"""Longest line of a watch; an object in etcd is far smaller."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to the API; `body` is JSON in the format of `content_type`."""

    path: str
    method: str = "GET"
    body: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete response; header names are in lower case."""

    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class ApiConnection:
    """A kept-alive connection to one API server; for one thread."""

    def __init__(self, access: Access, settings: KubeSettings) -> None:
        """Create a connection that opens later: plain or TLS, direct or by CONNECT through the kubeconfig's http proxy.

        Raise ClusterError if the address, the certificate files or the proxy cannot be used.
        """
        self._access = access
        self._settings = settings
        self._base = urlsplit(access.server)
        if self._base.scheme not in ("https", "http") or not self._base.hostname:
            raise ClusterError(
                f"{access.server!r} is not the address of an API server", fix="Correct the kubeconfig's server."
            )
        self._socket: socket.socket | None = None
        self.sent = False
        # A port always: without one http.client takes the end of an IPv6 address for it.
        usual = http.client.HTTPS_PORT if self._base.scheme == "https" else http.client.HTTP_PORT
        host, port = self._base.hostname, self._base.port or usual
        proxy = urlsplit(access.proxy) if access.proxy else None
        if proxy and (proxy.scheme != "http" or not proxy.hostname):
            shown = mask_secrets("proxy", access.proxy)
            raise ClusterError(f"proxy {shown!r} is not supported", fix="Use an http:// proxy-url.")
        near = (proxy.hostname or "", proxy.port or http.client.HTTP_PORT) if proxy else (host, port)
        timeout = settings.timeout_seconds
        if self._base.scheme == "http":
            self._connection: _Whole = _Whole(*near, timeout=timeout)
        else:
            try:
                context = cluster_tls(access, access.ca_file, verify=access.verify)
            except (OSError, ssl.SSLError) as error:
                raise ClusterError(
                    f"certificates for {access.server} cannot be used: {error}",
                    fix="Check the kubeconfig's certificate entries.",
                ) from error
            self._connection = secure = _NamedHTTPSConnection(*near, timeout=timeout, context=context)
            secure.server_name = access.server_name
        if proxy:
            user = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
            basic = {"Proxy-Authorization": f"Basic {base64.b64encode(user).decode()}"} if proxy.username else {}
            self._connection.set_tunnel(host, port, basic)

    def exchange(self, request: ApiRequest, before: Callable[[], None] | None = None) -> ApiResponse:
        """Send a request and return the complete response; after a failure, `self.sent` tells if the request was sent.

        Raise OSError or HTTPException if there is no complete response. `before` is called with the connection open,
        right before the first byte is sent; if it raises, nothing is sent.
        """
        deadline = time.monotonic() + self._settings.deadline_seconds
        try:
            response = self._ask(request, before)
            return _whole_response(response, deadline)
        except BaseException:
            self.close()
            raise

    def stream(self, path: str, idle_seconds: float) -> ApiResponse | Stream:
        """Open a response without end, such as a watch; return a complete ApiResponse if the server refuses."""
        try:
            response = self._ask(ApiRequest(path), None)
            if response.status != 200:
                deadline = time.monotonic() + self._settings.deadline_seconds
                return _whole_response(response, deadline)
        except BaseException:
            self.close()
            raise
        return Stream(response, self._socket, idle_seconds)

    def close(self) -> None:
        """Close the connection; the next exchange opens a new one."""
        self._connection.close()

    def _ask(self, request: ApiRequest, before: Callable[[], None] | None) -> http.client.HTTPResponse:
        """Send the request and read the response's status and headers."""
        self.sent = False
        headers = {"Accept": request.accept, "User-Agent": "cotenant"}
        authorization = self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if request.body:
            headers["Content-Type"] = request.content_type
        # Open the connection, anew when the server has closed the kept one: then nothing is lost on the way
        if self._connection.sock is not None and _readable(self._connection.sock):
            self.close()
        if self._connection.sock is None:
            self._connection.connect()
        self._socket = self._connection.sock
        path = self._base.path.rstrip("/") + request.path
        with self._connection.buffer_writes() as flush:
            self._connection.request(request.method, path, request.body or None, headers)
            if before:
                before()
            self.sent = True
            flush()
        return self._connection.getresponse()


class Stream:
    """The lines of a watch's response; one thread reads them, any thread may stop them."""

    def __init__(
        self, response: http.client.HTTPResponse, connected: socket.socket | None, idle_seconds: float
    ) -> None:
        """Prepare to read; `lines` raises TimeoutError after `idle_seconds` without a complete line."""
        self._response = response
        self._socket = connected
        self._idle_seconds = idle_seconds
        if connected is not None:
            connected.settimeout(idle_seconds)

    def lines(self, gather_seconds: float = 0.0) -> Iterator[bytes]:
        """Yield complete lines, however the server split them; raise IncompleteRead if the last line has no end.

        Raise TimeoutError if a line takes longer than the idle time to arrive. Once everything that has arrived is
        read, wait `gather_seconds` and read the next lines together, because each wake-up costs more than a line. The
        first line after a quiet period is not delayed.
        """
        rest, since = bytearray(), time.monotonic()
        for chunk in self._pieces():
            first, *more = chunk.split(b"\n")
            rest += first
            for piece in more:
                if rest:
                    yield bytes(rest)
                rest, since = bytearray(piece), time.monotonic()
            if time.monotonic() - since > self._idle_seconds:
                raise TimeoutError("no complete watch event within the idle timeout")
            if len(rest) > FRAME_BYTES:
                raise http.client.HTTPException(f"a watch event is longer than {FRAME_BYTES} bytes")
            if gather_seconds and not self._more():
                time.sleep(gather_seconds)
        if rest:
            raise http.client.IncompleteRead(bytes(rest))

    def _pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives; raise IncompleteRead if it breaks off."""
        if not self._response.chunked:
            while piece := self._response.read1(CHUNK_BYTES):
                yield piece
            return
        chunks = Chunks()
        while not chunks.ended:
            # more than its buffer holds: what was not read then lies in the socket, where `_more` looks
            data = self._response.fp.read1(CHUNK_BYTES)
            if not data:
                raise http.client.IncompleteRead(b"")
            yield chunks.payload(data)

    def _more(self) -> bool:
        connected = self._socket
        if connected is None:
            return False
        return bool(isinstance(connected, ssl.SSLSocket) and connected.pending()) or _readable(connected)

    def stop(self) -> None:
        """End `lines`, even while its thread waits for data."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The plain socket's shutdown: that of TLS would change the object under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Chunks:
    """A decoder of the chunked transfer coding (RFC 9112, 7.1) for a body that arrives in pieces, without trailers."""

    def __init__(self) -> None:
        self.ended = False
        """True if the last chunk, which is empty, has arrived."""
        self._rest = bytearray()
        self._left = 0
        """Unread bytes of the current chunk, with the line end after it; 0 if the next chunk's size follows."""

    def payload(self, data: bytes) -> bytes:
        """Return the part of the body in these bytes; raise HTTPException if they are not in chunked coding."""
        rest, parts = self._rest, bytearray()
        rest += data
        while not self.ended:
            if self._left == 0:
                end = rest.find(b"\r\n")
                if end < 0:
                    self._require_valid_chunk(len(rest) < SIZE_BYTES)
                    break
                size = bytes(rest[:end]).partition(b";")[0].strip()
                self._require_valid_chunk(0 < len(size) <= SIZE_DIGITS and not size.strip(b"0123456789abcdefABCDEF"))
                del rest[: end + 2]
                self._left = int(size, 16) + 2
                self.ended = self._left == 2
            else:
                body = min(self._left - 2, len(rest)) if self._left > 2 else 0
                parts += rest[:body]
                del rest[:body]
                self._left -= body
                if self._left > 2 or len(rest) < self._left:
                    break
                self._require_valid_chunk(rest.startswith(b"\r\n"))
                del rest[:2]
                self._left = 0
        return bytes(parts)

    def _require_valid_chunk(self, right: bool) -> None:
        if not right:
            raise http.client.HTTPException("the answer's body is not chunked, although its header says so")


class _Whole(http.client.HTTPConnection):
    """Sends head and body together: one packet if possible, and never only half of what a guard permitted."""

    _parts: list[bytes] | None = None

    @contextlib.contextmanager
    def buffer_writes(self) -> Iterator[Callable[[], None]]:
        """Buffer what is sent until the yielded function is called."""
        parts: list[bytes] = []
        self._parts = parts

        def flush() -> None:
            self._parts = None
            self.send(b"".join(parts))

        try:
            yield flush
        finally:
            self._parts = None

    def send(self, data: Any) -> None:
        if self._parts is None:
            super().send(data)
        else:
            self._parts.append(data)


class _NamedHTTPSConnection(_Whole, http.client.HTTPSConnection):
    """HTTPS with a certificate that may be issued for another name than the host's (kubeconfig's tls-server-name)."""

    server_name = ""

    def connect(self) -> None:
        if not self.server_name:
            super().connect()
            return
        http.client.HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(self.sock, server_hostname=self.server_name)


def _readable(connected: socket.socket) -> bool:
    """Return whether unrequested data has arrived; on an idle connection this means that the server closed it."""
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def cluster_tls(access: Access, ca_file: str, *, verify: bool) -> ssl.SSLContext:
    """Return the TLS context for connections to servers of the cluster, with our client certificate if there is one.

    `ca_file` is the authority to verify with, "" for the machine's own. Raise OSError or SSLError for an unusable file.
    """
    context = accept_older_authorities(ssl.create_default_context(cafile=ca_file or None))
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _whole_response(response: http.client.HTTPResponse, deadline: float) -> ApiResponse:
    """Return the response; raise IncompleteRead if its body was cut, TimeoutError if it arrived past the deadline."""
    chunks = []
    while chunk := response.read1(CHUNK_BYTES):
        chunks.append(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError("the API server's answer took longer than the deadline")
    body = b"".join(chunks)
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    response.close()  # read1 does not notice that a body of known length is complete; the connection stays open
    return ApiResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, body)
