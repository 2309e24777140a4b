"""EDGE: one HTTP exchange with an API server: connect, ask, read the whole answer or fail.

`client` decides what an answer means and what is tried again; here an answer is complete or there is none.
"""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cotenant.model.errors import ClusterError
from cotenant.settings.kube import KubeSettings

if TYPE_CHECKING:
    from cotenant.edges.kube.auth import Access

CHUNK_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A kept-alive connection to one API server; for one thread."""

    def __init__(self, access: Access, settings: KubeSettings) -> None:
        """Nothing is opened yet; ClusterError when the address or the certificate files cannot be used."""
        self._access = access
        self._settings = settings
        self._base = urlsplit(access.server)
        if self._base.scheme not in ("https", "http") or not self._base.hostname:
            raise ClusterError(
                f"{access.server!r} is no address of an API server", fix="Correct the kubeconfig's server."
            )
        self._connection = self._opened()

    def exchange(self, path: str) -> Answer:
        """GET a path with query; OSError or HTTPException when no complete answer came."""
        headers = {"Accept": "application/json", "User-Agent": "cotenant"}
        authorization = self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        deadline = time.monotonic() + self._settings.deadline_seconds
        try:
            self._connection.request("GET", self._base.path.rstrip("/") + path, headers=headers)
            response = self._connection.getresponse()
            body = _body(response, deadline)
        except BaseException:
            self.close()
            raise
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)

    def close(self) -> None:
        """Drop the connection; the next exchange opens a new one."""
        self._connection.close()

    def _opened(self) -> http.client.HTTPConnection:
        host, port = self._base.hostname or "", self._base.port
        proxy = urlsplit(self._access.proxy) if self._access.proxy else None
        if proxy and (proxy.scheme != "http" or not proxy.hostname):
            raise ClusterError(f"proxy {self._access.proxy!r} is not supported", fix="Use an http:// proxy-url.")
        near = (proxy.hostname or "", proxy.port) if proxy else (host, port)
        timeout = self._settings.timeout_seconds
        if self._base.scheme == "http":
            opened = http.client.HTTPConnection(*near, timeout=timeout)
        else:
            opened = _NamedHTTPSConnection(*near, timeout=timeout, context=_tls(self._access))
            opened.server_name = self._access.server_name
        if proxy:
            opened.set_tunnel(host, port)
        return opened


class _NamedHTTPSConnection(http.client.HTTPSConnection):
    """HTTPS whose certificate may be issued for another name than the host's (kubeconfig's tls-server-name)."""

    server_name = ""

    def connect(self) -> None:
        if not self.server_name:
            super().connect()
            return
        http.client.HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(self.sock, server_hostname=self.server_name)


def _tls(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        if access.cert_file:
            context.load_cert_chain(access.cert_file, access.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ClusterError(
            f"certificates for {access.server} cannot be used: {error}",
            fix="Check the kubeconfig's certificate entries.",
        ) from error
    # Python 3.13 asks for extensions that many clusters' own authorities lack; the chain is verified all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _body(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body; IncompleteRead when it was cut, TimeoutError when it trickled past the deadline."""
    chunks = []
    while chunk := response.read1(CHUNK_BYTES):
        chunks.append(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took longer than the deadline")
    body = b"".join(chunks)
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    response.close()  # read1 does not notice that a body of known length is complete; the connection stays open
    return body
