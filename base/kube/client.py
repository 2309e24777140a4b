"""EDGE: get, list and other requests to a Kubernetes API server, decoded into the types that the caller names.

A caller passes a msgspec type with just the fields it needs, so that a list of 5,000 pods never exists as Python
dictionaries; without one it gets the raw JSON. A failure becomes a ClusterError with the path; a refusal names the
missing right. `writes`, `watch` and `access` are based on `request` and `stream`.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload
from urllib.parse import urlencode

import msgspec
import structlog

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterConflict,
    ClusterDenied,
    ClusterError,
    ClusterExpired,
    ClusterForbidden,
    ClusterInvalid,
    ClusterNamespaceGone,
    ClusterObjectGone,
    ClusterUnreachable,
)
from cotenant.base.json_documents.json_decoders import UNDECODABLE, decode_shallow, decoder_of, make_ready
from cotenant.base.kube.connection import ApiConnection, ApiRequest, ApiResponse, Stream
from cotenant.base.kubernetes.models.metadata import NamedObject
from cotenant.base.process.clock import Clock, ServerClock
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.base.settings.sections import KubeSettings

if TYPE_CHECKING:
    from cotenant.base.kube.auth import Access

PAGE_SIZE: Final = 500
"""Objects per page of a list. The page of client-go's pager (500)."""

SELF_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ItemT = TypeVar("ItemT")
KindT = TypeVar("KindT")
ErrorT = TypeVar("ErrorT", bound=ClusterError)
Json = dict[str, Any]
Many: TypeAlias = list[ItemT]
"""The built-in list, under a name that can be used inside a class with a method called list."""

LONGEST_WAIT_SECONDS: Final = 30.0
OLD_DEFINITION: Final = (
    "The definition (CRD) in the cluster is older than this program: update it by `helm upgrade` with this version's "
    "chart, or by `cotenant install --apply`."
)
ADMISSION_FIX: Final = (
    "The cluster's admission refuses this object: the message names the rule, or the right that is needed."
)
NOT_INSTALLED: Final = (
    "Install the kind's definition (CRD): `cotenant install --apply`, or `helm upgrade` with this version's chart."
)
SHIPPED_GROUPS: Final = (
    "cotenant.dev",
    "slo.koordinator.sh",
    "config.koordinator.sh",
    "analysis.koordinator.sh",
    "scheduling.koordinator.sh",
    "quota.koordinator.sh",
    "scheduling.sigs.k8s.io",
)
"""API groups whose definitions an installation of ours brings."""

_IN_NAMESPACE: Final = re.compile(r"/.*/namespaces/(?P<namespace>[^/]+)/[^/?]+(?:/(?P<name>[^/?]+))?")
_BY_NAME: Final = frozenset({"configmaps", "leases", "secrets"})
_READING: Final = frozenset({"get", "list", "watch"})
"""Verbs that no admission judges: their 403 is one of rights, whatever a proxy's words are."""
_MISSING_RIGHT: Final = ('User "', '" cannot ')
"""Every authorizer's refusal is worded so by the API server (`apiserver/pkg/endpoints/handlers/responsewriters`)."""
_BUSY: Final = frozenset({429, 503})  # answers of a server that has done nothing
BUDGET_CAUSE: Final = "DisruptionBudget"
"""Cause of a refusal by a PodDisruptionBudget."""

_KINDS: Final[dict[int, type[ClusterError]]] = {
    400: ClusterInvalid,
    404: ClusterAbsent,
    409: ClusterConflict,
    410: ClusterExpired,
    413: ClusterInvalid,
    422: ClusterInvalid,
}
_unread: Final[dict[str, dict[str, str]]] = {}  # path of a collection -> objects that its newest list left out, and why
log = structlog.get_logger(__name__)


class _ListMeta(msgspec.Struct, rename={"token": "continue", "version": "resourceVersion"}):
    token: str = ""
    version: str = ""


class ListPage(msgspec.Struct, Generic[ItemT]):
    """One page of a list of objects."""

    items: list[ItemT] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)

    @property
    def version(self) -> str:
        """The resourceVersion of the whole list."""
        return self.metadata.version


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    name: str = ""
    causes: list[_Cause] | None = None


class _ErrorStatus(msgspec.Struct):
    message: str = ""
    details: _Details | None = None


@dataclass(slots=True)
class Pause:
    """The time until which a busy server must not be sent requests; shared by all clients that write together."""

    until_seconds: float = 0.0
    """Monotonic time at which the pause ends."""
    jitter: random.Random = field(default_factory=random.Random)
    """Random numbers that spread the tries of many processes; a test seeds them."""
    answered: bool = False
    """True if the server has ever responded with success."""
    refused_since: float | None = None
    """Monotonic time since which requests and /readyz have been refused; None if the last response was no refusal."""

    def wait(self) -> None:
        """Sleep until requests may be sent again."""
        while (remaining_seconds := self.until_seconds - time.monotonic()) > 0:
            time.sleep(remaining_seconds)

    def extend(self, seconds: float) -> None:
        """Send no requests for this many seconds, and for up to a tenth more at random."""
        wait = seconds * (1 + 0.1 * self.jitter.random())
        self.until_seconds = max(self.until_seconds, time.monotonic() + wait)


STARTING_SECONDS: Final = 30.0
"""An API server has loaded its roles in this time."""


class KubeClient:
    """A client of one API server, for one thread; `reload` returns new credentials after a 401."""

    def __init__(
        self,
        access: Access,
        settings: KubeSettings,
        *,
        reload: Callable[[], Access] | None = None,
        pause: Pause | None = None,
        server_clock: ServerClock | None = None,
    ) -> None:
        make_ready()
        self.server_clock = server_clock or ServerClock()
        self.access = access
        self.settings = settings
        self._reload = reload
        self._pause = pause or Pause()
        self._connection = ApiConnection(access, settings)
        self._left_out: dict[str, dict[str, str]] = {}

    def sibling(self, settings: KubeSettings | None = None) -> KubeClient:
        """Return a client for another thread, with its own connection.

        A client with other settings serves another purpose: it does not share the pause that a busy server requested.
        """
        pause = None if settings else self._pause
        return KubeClient(
            self.access, settings or self.settings, reload=self._reload, pause=pause, server_clock=self.server_clock
        )

    def at(self, server: str, settings: KubeSettings | None = None) -> KubeClient:
        """Return a client with the same account for another API server of this cluster, by its URL `server`."""
        reload = self._reload
        again = (lambda: replace(reload(), server=server)) if reload else None
        return KubeClient(replace(self.access, server=server), settings or self.settings, reload=again)

    def gaps(self) -> list[str]:
        """Return a sentence for each object that the last list of its collection left out because it is unreadable."""
        return [f"{subject}: {why}" for reasons in self._left_out.values() for subject, why in reasons.items()]

    def clock(self) -> Clock:
        """Return the API server's clock, for ages of the cluster's objects; ask the server if its time is unknown."""
        if self.server_clock.now_seconds() is None:
            with contextlib.suppress(ClusterError):
                self.get("/version")
        return self.server_clock.believable_clock()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @overload
    def get(self, path: str) -> Json | None: ...
    @overload
    def get(self, path: str, kind: type[ItemT]) -> ItemT | None: ...
    def get(self, path: str, kind: Any = Json) -> Any:
        """Return one object, or None if the server does not have it (404)."""
        answer = self._ask("get", path)
        return None if answer.status == 404 else _decode_successful(answer, kind, path)

    @overload
    def list(self, path: str, *, limit: int | None = None, **query: str) -> Many[Json]: ...
    @overload
    def list(self, path: str, kind: type[ItemT], *, limit: int | None = None, **query: str) -> Many[ItemT]: ...
    def list(self, path: str, kind: Any = Json, *, limit: int | None = None, **query: str) -> Any:
        """Return all objects of a collection; `query` has parameters such as labelSelector and fieldSelector.

        If the server forgets the list between two pages (410), the whole list is requested again in one response,
        because pages of two moments do not make one list.
        """
        items: Many[Any] = []
        for page in self.pages(path, kind, limit=limit, **query):
            if page is None:
                items.clear()
            else:
                items.extend(page.items or [])
        return items

    def pages(self, path: str, kind: Any, *, limit: int | None = None, **query: str) -> Iterator[ListPage[Any] | None]:
        """Yield a list page by page; None means that all pages so far are to be discarded."""
        token, limit = "", PAGE_SIZE if limit is None else limit
        while True:
            parameters = {**query, **({"limit": str(limit)} if limit else {}), **({"continue": token} if token else {})}
            answer = self._ask("list", f"{path}?{urlencode(parameters)}" if parameters else path)
            if answer.status == 410 and token:
                token, limit = "", 0
                yield None
                continue
            if answer.status == 404:
                is_shipped = path.startswith(tuple(f"/apis/{group}/" for group in SHIPPED_GROUPS))
                fix = NOT_INSTALLED if is_shipped else "Check the API group and version."
                raise ClusterAbsent(f"{self.access.server} does not serve {path}", fix=fix)
            if not token:
                _unread[path] = self._left_out[path] = {}
            page = _decode_page(answer, kind, path, self._left_out[path])
            yield page
            token = page.metadata.token
            if not token:
                return

    def request(
        self, verb: str, request: ApiRequest, *, repeatable: bool = False, before: Callable[[], None] | None = None
    ) -> ApiResponse:
        """Send a request and return the response; a 401 is retried once with new credentials, 401 and 403 raise errors.

        A request is retried if the server is busy (429, 503) or the connection cannot be opened; with `repeatable`, or
        if it only reads, also after a broken connection and a failing server (500, 502, 504). `before` is called right
        before each try; if it raises, no further try follows. `verb` names the right in an error.
        """
        answer = self._send_with_retries(request, repeatable, before)
        if answer.status == 401 and self._reload:
            self._renew()
            answer = self._send_with_retries(request, repeatable, before)
        if answer.status in (401, 403):
            raise self._refusal_error(verb, request.path, answer)
        self._pause.answered, self._pause.refused_since = True, None
        return answer

    def stream(self, path: str, idle_seconds: float) -> Stream:
        """Open a watch and return its lines; retry only after a 401; raise ClusterExpired (410) or another error."""
        try:
            opened = self._connection.stream(path, idle_seconds)
            if isinstance(opened, ApiResponse) and opened.status == 401 and self._reload:
                self._renew()
                opened = self._connection.stream(path, idle_seconds)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(path, self.access, error) from error
        if isinstance(opened, Stream):
            return opened
        if opened.status in (401, 403):
            raise self._refusal_error("watch", path, opened)
        raise refusal(f"watch {path}", opened)

    def _refusal_error(self, verb: str, path: str, answer: ApiResponse) -> ClusterError:
        """Return the error for a 401 or 403; a server that still loads roles and accounts refuses valid clients."""
        if self._is_starting():
            return ClusterUnreachable(
                f"{path}: {self.access.server} is starting and cannot check rights yet ({answer.status})",
                fix="The request is repeated automatically; `kubectl get --raw /readyz?verbose` shows the cause.",
            )
        cluster, what, why = self.access.cluster, f"{verb} {_kind_of(path)}", _status_of(answer).message
        if answer.status == 401:
            has_any = self.access.authorization() or self.access.cert_file
            sent = "does not accept our credentials" if has_any else "got no credentials"
            return ClusterForbidden(
                f"{what}: {self.access.server} {sent} (401)",
                fix=f"Log in again for cluster {cluster}, or create the account again if it was deleted, then try "
                f"`kubectl {what}`.",
            )
        refused = f"cannot {what} in {cluster}: {message_of(answer)}"
        # A rule refuses the very object; an answer of authorization names the user instead.
        if verb not in _READING and why and _MISSING_RIGHT[1] not in why.partition(_MISSING_RIGHT[0])[2]:
            return _with_answer(ClusterDenied(refused, fix=ADMISSION_FIX), answer)
        # The narrowest role with this right: of one namespace, and by name for kinds that hold others' secrets.
        group, resource = _resource_of(path)
        rule, within = f'apiGroups: ["{group}"], resources: ["{resource}"]', _IN_NAMESPACE.match(path)
        if within and within["name"] and resource in _BY_NAME:
            rule = f'{rule}, resourceNames: ["{within["name"]}"]'
        role = f"a Role of namespace {within['namespace']}" if within else "a ClusterRole"
        return _with_answer(
            ClusterForbidden(refused, fix=f'Grant the right in {role}: {rule}, verbs: ["{verb}"].'), answer
        )

    def _is_starting(self) -> bool:
        """Return whether the server reports that it is not ready.

        While it loads roles it may refuse /readyz too, and it may do so permanently if nobody may read that path: a
        server that has responded before therefore counts as starting for a limited time.
        """
        try:
            status = self._connection.exchange(ApiRequest("/readyz")).status
        except (OSError, http.client.HTTPException):
            return True
        if status not in (401, 403):
            self._pause.refused_since = None
            return status >= 500
        now = time.monotonic()
        since = self._pause.refused_since = self._pause.refused_since or now
        is_early = self._pause.answered and now - since < STARTING_SECONDS
        # a server that is ready, and knows not who we are, has lost our account
        return is_early and not (status == 401 and self._is_ready_for_anybody())

    def _is_ready_for_anybody(self) -> bool:
        """Return whether the server reports readiness to a client without credentials, as it does by default."""
        nobody = replace(self.access, authorization=lambda: None, cert_file="", key_file="")
        connection = ApiConnection(nobody, self.settings)
        try:
            return connection.exchange(ApiRequest("/readyz")).status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _ask(self, verb: str, path: str) -> ApiResponse:
        """Return a response with status 200, 404 or 410; raise an error for any other."""
        answer = self.request(verb, ApiRequest(path))
        if answer.status not in (200, 404, 410):
            raise ClusterError(f"{verb} {path}: the API server answered {answer.status}: {message_of(answer)}")
        return answer

    def _renew(self) -> None:
        assert self._reload is not None
        self.close()
        self.access = self._reload()
        self._connection = ApiConnection(self.access, self.settings)

    def _send_with_retries(
        self, request: ApiRequest, repeatable: bool, before: Callable[[], None] | None
    ) -> ApiResponse:
        """Send a request, and retry it where that is safe; a server that does not respond is not waited for twice."""
        repeatable = repeatable or request.method == "GET"
        again = _BUSY | {500, 502, 504} if repeatable else _BUSY
        for attempt in range(self.settings.retries + 1):
            last = attempt == self.settings.retries
            self._pause.wait()
            try:
                answer = self._connection.exchange(request, before)
            except (ssl.SSLCertVerificationError, TimeoutError) as error:
                raise _unreachable(request.path, self.access, error) from error
            except (OSError, http.client.HTTPException) as error:
                if last or not (repeatable or not self._connection.sent):
                    raise _unreachable(request.path, self.access, error) from error
                time.sleep(0.1 * 2**attempt)
                continue
            self.server_clock.observe(answer.headers.get("date", ""))
            if last or answer.status not in again or _is_schema_mismatch(answer) or _is_budget(answer):
                return answer
            # Retry-After in seconds when the server says it, else 0.5 s doubling; never more than 30 s
            retry_after = _retry_after_seconds(answer)
            wait = min(0.5 * 2.0**attempt if retry_after is None else retry_after, LONGEST_WAIT_SECONDS)
            if answer.status in _BUSY:
                self._pause.extend(wait)
            else:  # one object's webhook may be the cause: nobody else waits for it
                time.sleep(wait)
        raise AssertionError("the last attempt of a request returns or raises")


def _retry_after_seconds(answer: ApiResponse) -> float | None:
    """Return the header Retry-After in seconds, or None if it is missing or a date."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _with_answer(error: ErrorT, answer: ApiResponse) -> ErrorT:
    """Return the error with the server's status, message and Retry-After."""
    error.status, error.answer = answer.status, message_of(answer)
    error.retry_after_seconds = _retry_after_seconds(answer) or 0.0
    return error


def unread_objects() -> dict[str, str]:
    """Return the unreadable objects that this process's last list of each collection left out, each with the reason."""
    return {subject: why for reasons in list(_unread.values()) for subject, why in reasons.items()}


def _decode_page(answer: ApiResponse, kind: Any, path: str, unread: dict[str, str]) -> ListPage[Any]:
    """Decode a page without its unreadable objects, whose reasons go to `unread`; ClusterError if none is readable."""
    try:
        page: ListPage[Any] = _decode_successful(answer, ListPage[kind], path)
    except ClusterError:
        raws: ListPage[msgspec.Raw] = _decode_successful(answer, ListPage[msgspec.Raw], path)
        page = ListPage([], raws.metadata)
        for raw in raws.items or []:
            try:
                page.items.append(decoder_of(kind).decode(raw))  # type: ignore[union-attr]
            except UNDECODABLE as error:
                meta = decoder_of(NamedObject).decode(raw).metadata
                subject = str(ObjectVersion(path, meta.namespace, meta.name, ""))
                unread[subject] = f"the object cannot be read: {error}"
                log.warning("an object is left out", object=subject, why=str(error))
        if not page.items:
            raise
    return page


def _decode_successful(answer: ApiResponse, kind: Any, path: str) -> Any:
    if answer.status != 200:
        raise ClusterError(f"{path}: the API server answered {answer.status}: {message_of(answer)}")
    return decode_answer(answer, kind, path)


def decode_answer(answer: ApiResponse, kind: Any, path: str) -> Any:
    """Return the decoded body of a successful response; raise ClusterError if it is not JSON of the API."""
    try:
        return decode_shallow(decoder_of(kind), answer.body)
    except UNDECODABLE as error:
        raise ClusterError(
            f"{path}: the answer is not the API's JSON: {error}",
            fix="Check that the kubeconfig's server is an API server.",
        ) from error


def message_of(answer: ApiResponse) -> str:
    """Return the message of a response's Status object, or the beginning of any other body."""
    return _status_of(answer).message or answer.body[:200].decode("utf-8", "replace")


def _status_of(answer: ApiResponse) -> _ErrorStatus:
    try:
        return decoder_of(_ErrorStatus).decode(answer.body)
    except UNDECODABLE:
        return _ErrorStatus()


def refusal(what: str, answer: ApiResponse) -> ClusterError:
    """Return the error for a failure that is not a missing right; `what` is the request, such as "watch PATH"."""
    kind = ClusterInvalid if _is_schema_mismatch(answer) else _KINDS.get(answer.status, ClusterError)
    if kind is ClusterAbsent:
        status = _status_of(answer)
        if status.message.startswith("namespaces "):
            kind = ClusterNamespaceGone
        else:
            kind = ClusterObjectGone if status.details and status.details.name else ClusterAbsent
    fix = OLD_DEFINITION if _is_schema_mismatch(answer) and b"not declared in schema" in answer.body else ""
    return _with_answer(kind(f"{what}: the API server answered {answer.status}: {message_of(answer)}", fix=fix), answer)


def _is_schema_mismatch(answer: ApiResponse) -> bool:
    """Return whether an apply did not match the schema: the server returns 500 for it instead of 422."""
    return answer.status == 500 and b"failed to create typed patch object" in answer.body


def _is_budget(answer: ApiResponse) -> bool:
    """Return whether a disruption budget refused an eviction: a 429 of a server that is not busy.

    The server marks it by a cause of its Status, in every version (`kubernetes/pkg/registry/core/pod/storage`).
    """
    details = _status_of(answer).details if answer.status == 429 else None
    return details is not None and any(cause.reason == BUDGET_CAUSE for cause in details.causes or ())


def _unreachable(path: str, access: Access, error: Exception) -> ClusterUnreachable:
    return ClusterUnreachable(
        f"{path}: no complete answer from {access.server}: {error or type(error).__name__}",
        fix="Check the network, the VPN and the kubeconfig's certificate-authority.",
    )


def _kind_of(path: str) -> str:
    """Return the resource of a path as kubectl writes it: pods, deployments.apps."""
    group, resource = _resource_of(path)
    return f"{resource}.{group}" if group else resource


def _resource_of(path: str) -> tuple[str, str]:
    """Return (API group, resource) of a path: /api/v1/namespaces/shop/pods -> ("", "pods")."""
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


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _SelfReview(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def review(client: KubeClient, path: str, body: object, kind: type[KindT]) -> KindT:
    """Send a review (such as a SubjectAccessReview) and decode its answer; always retried, for it stores nothing."""
    request = ApiRequest(path, "POST", msgspec.json.encode(body))
    answer = client.request("create", request, repeatable=True)
    if answer.status not in (200, 201):
        raise refusal(f"review {path}", answer)
    decoded_review: KindT = decode_answer(answer, kind, f"review {path}")
    return decoded_review


def access_review(
    client: KubeClient, verb: str, resource: str, group: str = "", namespace: str = "", subresource: str = ""
) -> bool:
    """Return whether our account may `verb` the resource in `namespace`, or in all namespaces if that is "".

    `resource` is the plural, `group` its API group without version.
    """
    fields = {"verb": verb, "resource": resource, "group": group, "namespace": namespace, "subresource": subresource}
    attributes = {name: value for name, value in fields.items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return review(client, SELF_REVIEWS, body, _SelfReview).status.allowed
