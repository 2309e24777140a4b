"""EDGE: get and list on a Kubernetes API server, decoded straight into the types that the caller names.

A caller passes a msgspec type with just the fields it needs, so that a list of 5,000 pods never exists as Python
dictionaries; without one it gets the raw JSON. What goes wrong becomes a ClusterError with the path; a refusal names
the missing right.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload
from urllib.parse import urlencode

import msgspec

from cotenant.edges.kube.connection import Answer, Connection
from cotenant.model.errors import ClusterError, ClusterForbidden
from cotenant.settings.kube import KubeSettings

if TYPE_CHECKING:
    from cotenant.edges.kube.auth import Access

ItemT = TypeVar("ItemT")
Json = dict[str, Any]
Many: TypeAlias = list[ItemT]
"""A list, also inside the class whose method is called list."""

LONGEST_WAIT_SECONDS = 30.0


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _Page(msgspec.Struct, Generic[ItemT]):
    items: list[ItemT] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Status(msgspec.Struct):
    message: str = ""


class KubeClient:
    """Reads from one API server; for one thread. `reload` gives fresh credentials after a 401."""

    def __init__(self, access: Access, settings: KubeSettings, *, reload: Callable[[], Access] | None = None) -> None:
        """Nothing is asked yet."""
        self.access = access
        self._settings = settings
        self._reload = reload
        self._connection = Connection(access, settings)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    @overload
    def get(self, path: str) -> Json | None: ...
    @overload
    def get(self, path: str, kind: type[ItemT]) -> ItemT | None: ...
    def get(self, path: str, kind: Any = Json) -> Any:
        """One object; None when the server does not know it (404)."""
        answer = self._ask("get", path)
        return None if answer.status == 404 else _decoded(answer, kind, path)

    @overload
    def list(self, path: str, *, limit: int | None = None, **query: str) -> Many[Json]: ...
    @overload
    def list(self, path: str, kind: type[ItemT], *, limit: int | None = None, **query: str) -> Many[ItemT]: ...
    def list(self, path: str, kind: Any = Json, *, limit: int | None = None, **query: str) -> Any:
        """All objects of a collection, page by page; `query` takes labelSelector and fieldSelector.

        When the server forgets the list between two pages (410) everything is asked again in one answer, because pages
        of two moments do not make one list.
        """
        pages = self._pages(path, kind, query, self._settings.page_size if limit is None else limit)
        found: Many[Any] = []
        for page in pages:
            if page is None:
                found.clear()
            else:
                found.extend(page)
        return found

    def _pages(self, path: str, kind: Any, query: dict[str, str], limit: int) -> Iterator[Many[Any] | None]:
        """Items page by page; None means "forget what came so far"."""
        token = ""
        while True:
            words = {**query, **({"limit": str(limit)} if limit else {}), **({"continue": token} if token else {})}
            answer = self._ask("list", f"{path}?{urlencode(words)}" if words else path)
            if answer.status == 410 and token:
                token, limit = "", 0
                yield None
                continue
            if answer.status == 404:
                raise ClusterError(
                    f"{self.access.server} does not serve {path}", fix="Check the API group and version."
                )
            page = _decoded(answer, _Page[kind], path)
            yield page.items or []
            token = page.metadata.token
            if not token:
                return

    def _ask(self, verb: str, path: str) -> Answer:
        """An answer of 200, 404 or 410; after a 401 once more with fresh credentials; else an error."""
        answer = self._patiently(path)
        if answer.status == 401 and self._reload:
            self.close()
            self.access = self._reload()
            self._connection = Connection(self.access, self._settings)
            answer = self._patiently(path)
        if answer.status in (401, 403):
            raise _forbidden(verb, path, answer, self.access)
        if answer.status not in (200, 404, 410):
            raise ClusterError(f"{verb} {path}: the API server answered {answer.status}: {_message(answer)}")
        return answer

    def _patiently(self, path: str) -> Answer:
        """Ask again after a busy server (when it says, at most 30 s) or a broken connection; silence is final."""
        attempts = self._settings.retries + 1
        for attempt in range(attempts):
            last = attempt == attempts - 1
            try:
                answer = self._connection.exchange(path)
            except (ssl.SSLCertVerificationError, TimeoutError) as error:
                raise _unreachable(path, self.access, error) from error
            except (OSError, http.client.HTTPException) as error:
                if last:
                    raise _unreachable(path, self.access, error) from error
                time.sleep(0.1 * 2**attempt)
                continue
            if last or answer.status not in (429, 503):
                return answer
            time.sleep(_wait_seconds(answer, attempt))
        raise AssertionError("the last attempt returns or raises")


def _wait_seconds(answer: Answer, attempt: int) -> float:
    """Retry-After in seconds when the server says it, else 0.5 s doubling; never more than 30 s."""
    said = answer.headers.get("retry-after", "")
    wait = float(said) if said.isascii() and said.isdigit() else 0.5 * 2.0**attempt
    return min(wait, LONGEST_WAIT_SECONDS)


def _decoded(answer: Answer, kind: Any, path: str) -> Any:
    if answer.status != 200:
        raise ClusterError(f"{path}: the API server answered {answer.status}: {_message(answer)}")
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClusterError(
            f"{path}: the answer is not the API's JSON: {error}",
            fix="Check that the kubeconfig's server is an API server.",
        ) from error


def _message(answer: Answer) -> str:
    """The Status object's message, or the beginning of whatever came."""
    try:
        found = msgspec.json.decode(answer.body, type=_Status).message
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = ""
    return found or answer.body[:200].decode("utf-8", "replace")


def _unreachable(path: str, access: Access, error: Exception) -> ClusterError:
    return ClusterError(
        f"{path}: no complete answer from {access.server}: {error or type(error).__name__}",
        fix="Check the network, the VPN and the kubeconfig's certificate-authority.",
    )


def _forbidden(verb: str, path: str, answer: Answer, access: Access) -> ClusterForbidden:
    group, resource = _resource_of(path)
    what = f"{resource}.{group}" if group else resource
    if answer.status == 401:
        sent = "does not accept our credentials" if access.authorization() or access.cert_file else "got no credentials"
        return ClusterForbidden(
            f"{verb} {what}: {access.server} {sent} (401)",
            fix=f"Log in again for cluster {access.cluster}, then try `kubectl {verb} {what}`.",
        )
    return ClusterForbidden(
        f"cannot {verb} {what} in {access.cluster}: {_message(answer)}",
        fix=f'Grant it in a ClusterRole: apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"].',
    )


def _resource_of(path: str) -> tuple[str, str]:
    """(API group, resource) of a path: /api/v1/namespaces/shop/pods -> ("", "pods")."""
    parts = path.partition("?")[0].strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return "", path
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return group, "/".join([rest[0], *rest[2:3]])
