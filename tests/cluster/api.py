"""A plain client of a Kubernetes API server for tests: JSON in, JSON out, one connection, no retries.

It shares no code with the product, so that a test sees what the server holds, not what our client makes of it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.cluster.bindings import is_binding, wait_until_it_counts

Json = dict[str, Any]
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TIMEOUT_SECONDS = 60.0
IDLE_SECONDS = 30.0
"""The server closes a connection that was idle for 90 s: one that was idle for longer than this is opened anew."""
INITIALIZING_SECONDS = 30.0
"""How long a question is put again while the server's storage begins anew, as it does after etcd was killed."""
_INITIALIZING = b"storage is (re)initializing"
_CHUNK = 1 << 16


class ApiError(Exception):
    """The server refused: `status` is the HTTP code, `body` its Status object."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status}: {body.get('message', body)}")
        self.status = status
        self.body = body


class Api:
    """For one thread. `tls` None speaks plain HTTP; a `token` speaks for us where no certificate does."""

    def __init__(
        self, server: str, tls: ssl.SSLContext | None, timeout: float = TIMEOUT_SECONDS, token: str = ""
    ) -> None:
        parts = urlsplit(server)
        self.server = server
        self._headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        if tls is None:
            self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        else:
            self._connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout, context=tls
            )
        self._asked_at = 0.0

    def get(self, path: str, **query: str) -> Json:
        """One object or one list."""
        return self.ask("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Json]:
        """The objects of a collection."""
        return self.get(path, **query)["items"] or []

    def create(self, path: str, body: Json, **query: str) -> Json:
        """POST to a collection; a role binding counts when this returns."""
        created = self.ask("POST", path, body, query=query)
        if is_binding(path) and "dryRun" not in query:
            self._until_it_counts(path, created)
        return created

    def _until_it_counts(self, path: str, binding: Json) -> None:
        try:
            wait_until_it_counts(self.ask, path, binding)
        except ApiError as error:
            if error.status not in (403, 404):  # whoever may not ask does not wait, and the role may come later
                raise

    def replace(self, path: str, body: Json, **query: str) -> Json:
        """PUT an object."""
        return self.ask("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Json:
        """PATCH an object; `kind` is a name of `PATCHES`."""
        return self.ask("PATCH", path, body, PATCHES[kind], query)

    def delete(self, path: str, **query: str) -> Json:
        """DELETE an object or a collection."""
        return self.ask("DELETE", path, query=query)

    def exists(self, path: str) -> bool:
        """Whether the server knows the object."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def text(self, path: str) -> str:
        """What is not JSON, such as /metrics."""
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse().read().decode()

    def watch(self, path: str, **query: str) -> Iterator[Json]:
        """Events until the server ends the answer; for this time the client is used for nothing else.

        A connection that is cut instead raises IncompleteRead, as a read of the whole answer would.
        """
        address = f"{path}?{urlencode({'watch': '1', **query})}"
        self._connection.request("GET", address, headers=self._headers)
        response = self._connection.getresponse()
        if response.status != 200:
            raise ApiError(response.status, _decoded(response.read()))
        rest = b""
        while content := response.read1(_CHUNK):  # readline() would take a cut for an orderly end
            *lines, rest = (rest + content).split(b"\n")
            yield from map(json.loads, lines)
        if rest:
            yield json.loads(rest)

    def table(self, path: str) -> Json:
        """A list as the server prints it: columns and rows."""
        return self.ask("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        query: Json | None = None,
        accept: str = "",
    ) -> Json:
        """One exchange; ApiError unless it succeeded."""
        address = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else json.dumps(body).encode()
        headers = {
            **self._headers,
            **({"Content-Type": kind} if content else {}),
            **({"Accept": accept} if accept else {}),
        }
        if time.monotonic() - self._asked_at > IDLE_SECONDS:
            self._connection.close()
        reused = self._connection.sock is not None
        try:
            response, text = self._exchange(method, address, content, headers)
        except (http.client.RemoteDisconnected, ConnectionError):
            # A server that was killed since has closed the kept connection: what may be asked twice is asked anew.
            if not reused or method not in ("GET", "DELETE"):
                raise
            response, text = self._exchange(method, address, content, headers)
        until = time.monotonic() + INITIALIZING_SECONDS
        while method == "GET" and response.status == 429 and _INITIALIZING in text and time.monotonic() < until:
            time.sleep(float(response.headers.get("Retry-After") or 1))
            response, text = self._exchange(method, address, content, headers)
        self._asked_at = time.monotonic()
        if response.status >= 300:
            raise ApiError(response.status, _decoded(text))
        return _decoded(text)

    def _exchange(
        self, method: str, address: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            self._connection.request(method, address, content, headers)
            response = self._connection.getresponse()
            return response, response.read()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()


def client_tls(authority: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Trust one authority only and show a client certificate."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def _decoded(text: bytes) -> Json:
    try:
        document = json.loads(text)
    except ValueError:
        return {"message": text[:300].decode(errors="replace")}
    return document if isinstance(document, dict) else {"message": str(document)}
