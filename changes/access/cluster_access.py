"""EDGE: access to the cluster with the rights of the calling person; one client factory for each kind of login.

    loopback   the kubeconfig of the person at this machine
    OIDC       the person's own token of the login; the API server authorizes it, and its audit log names the person
    proxy      cotenant's account, after a SubjectAccessReview of the person for each request; no impersonation

A caller without a name is the program itself: it reads the cluster and stores the ledger's head.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import msgspec

from cotenant.base.errors import ClusterForbidden
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kube import Access, KubeClient, review
from cotenant.base.kube.auth import load_access
from cotenant.base.kube.client import SELF_REVIEWS, Pause
from cotenant.base.kube.connection import ApiRequest, ApiResponse, Stream
from cotenant.base.kube.writes import APPLY_TYPE
from cotenant.base.kubernetes.protocol import OWN_GROUP, RESERVATION_PLANS
from cotenant.base.people import IdentitySource, NotAllowed, Person
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.access.settings import AccessMode, AccessSettings
from cotenant.changes.audited_acts import ClusterAccess

REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUTHENTICATED: Final = "system:authenticated"
KEPT_SECONDS: Final = 60.0
"""How long the kubeconfig's or service account's credentials are used before they are read again."""
DISCOVERY: Final = frozenset({"version", "api", "apis", "openapi"})
APPROVE: Final = "approve"
"""The verb that the plans' admission policy checks for the writer, which is cotenant's account."""
_DECISIONS: Final = ("approval", "policy")
"""Fields of a plan's spec whose change needs the right to approve."""
_ROLES: Final[Mapping[str, str]] = {
    RESERVATION_PLANS: "cotenant-planner",
    "podmigrationjobs": "cotenant-mover",
    "nodes": "cotenant-emptier",
    "autopilotpolicies": "cotenant-autopilot-approver",
}
"""Resource -> the shipped role with the right to write it; for any other: cotenant-applier."""
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})
"""Subresources of namespaces; any other word there is a resource inside the namespace."""


def by_way(kube: KubeSettings, access: AccessSettings, own: ClusterAccess) -> ClusterAccess:
    """Return access with the rights of whoever logged in; `own` serves cotenant itself, and all if nobody logs in."""
    credentials = _KubeCredentials(kube)

    @contextmanager
    def door(who: Person) -> Iterator[KubeClient]:
        if not who.name or (who.way is IdentitySource.LOOPBACK and access.mode is AccessMode.NONE):
            with own(who) as client:
                yield client
            return
        if who.way is IdentitySource.OIDC:
            if not who.token:
                raise NotAllowed(f"the login of {who.name} has no token any more", fix="Log in again.")
            client = KubeClient(with_token(credentials.access(), who.token), credentials.settings)
        elif who.way is IdentitySource.PROXY:
            groups = tuple(f"{access.proxy.cluster_group_prefix}{group}" for group in who.groups)
            subject = ReviewSubject(f"{access.proxy.cluster_user_prefix}{who.name}", (*groups, AUTHENTICATED))
            client = ReviewedClient(credentials.access(), credentials.settings, subject, reload=credentials.renewed)
        else:
            raise NotAllowed(f"{who.name} did not log in by the method that access.mode requires", fix="Log in.")
        try:
            yield client
        finally:
            client.close()

    return door


def with_token(access: Access, token: str) -> Access:
    """Return access to the same API server with this token as the only credentials."""
    return replace(access, authorization=lambda: f"Bearer {token}", cert_file="", key_file="")


@dataclass(frozen=True, slots=True)
class ReviewSubject:
    """The user and groups of a person, as RBAC rules of the cluster name them."""

    user: str
    groups: tuple[str, ...] = ()


class ReviewedClient(KubeClient):
    """A client of cotenant's account that sends a request only if a SubjectAccessReview allows it to the person.

    Allowed requests are cached for the client's lifetime, which is one action.
    """

    def __init__(
        self,
        access: Access,
        settings: KubeSettings,
        subject: ReviewSubject,
        *,
        reload: Callable[[], Access] | None = None,
        pause: Pause | None = None,
    ) -> None:
        super().__init__(access, settings, reload=reload, pause=pause)
        self._subject = subject
        self._asker = KubeClient(access, settings, reload=reload)
        self._allowed: set[bytes] = set()

    def sibling(self, settings: KubeSettings | None = None) -> KubeClient:
        """Return another reviewed client for the same person."""
        pause = None if settings else self._pause
        return ReviewedClient(self.access, settings or self.settings, self._subject, reload=self._reload, pause=pause)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._asker.close()

    def request(
        self, verb: str, request: ApiRequest, *, repeatable: bool = False, before: Callable[[], None] | None = None
    ) -> ApiResponse:
        """Send the request if the person may make it; a SelfSubjectAccessReview is turned into one about the person."""
        if request.path == SELF_REVIEWS:
            body = about(self._subject, msgspec.json.decode(request.body)["spec"])
            subject_review = replace(request, path=REVIEWS, body=msgspec.json.encode(body))
            return self._asker.request(verb, subject_review, repeatable=repeatable)
        for attributes in wishes(request):
            self._require(attributes)
        return super().request(verb, request, repeatable=repeatable, before=before)

    def stream(self, path: str, idle_seconds: float) -> Stream:
        """Open a watch on the path if the person may watch it."""
        for attributes in wishes(ApiRequest(path)):
            self._require(attributes)
        return super().stream(path, idle_seconds)

    def _require(self, attributes: Mapping[str, Any]) -> None:
        """Raise ClusterForbidden with a fix unless the API server allows the person this."""
        key = msgspec.json.encode(attributes, order="sorted")
        if key in self._allowed:
            return
        answer = review(self._asker, REVIEWS, about(self._subject, attributes), _SubjectReview)
        if not answer.status.allowed:
            target = attributes.get("resourceAttributes") or attributes["nonResourceAttributes"]
            plural = "/".join(filter(None, (target.get("resource") or target.get("path"), target.get("subresource"))))
            what = f"{plural}.{target['group']}" if target.get("group") else plural
            user, namespace, resource = self._subject.user, target.get("namespace", ""), target.get("resource", "")
            where = f" in namespace {namespace}" if namespace else ""
            detail = f" ({answer.status.reason})" if answer.status.reason else ""
            approves = target["verb"] == APPROVE
            role = "cotenant-plan-approver" if approves else _ROLES.get(resource, "cotenant-applier")
            everywhere = not namespace and resource in ("podmigrationjobs", "nodes")
            binding = "clusterrolebinding NAME" if everywhere else f"rolebinding NAME -n {namespace or 'NAMESPACE'}"
            raise ClusterForbidden(
                f"the cluster does not let {user} {target['verb']} {what}{where}{detail}",
                fix=f"Bind a role to this user: kubectl create {binding} --clusterrole={role} --user={user}",
            )
        self._allowed.add(key)


class _Status(msgspec.Struct):
    allowed: bool = False
    reason: str = ""


class _SubjectReview(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class _KubeCredentials:
    """The API server's address and cotenant's credentials, read again after `KEPT_SECONDS`."""

    def __init__(self, settings: KubeSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._read: tuple[float, Access] | None = None

    def access(self) -> Access:
        """Return the address and the credentials as they were read at most a minute ago."""
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] > KEPT_SECONDS:
                self._read = (time.monotonic(), load_access(self.settings))
            return self._read[1]

    def renewed(self) -> Access:
        """Read address and credentials again, after the API server refused the old ones."""
        with self._lock:
            self._read = (time.monotonic(), load_access(self.settings))
            return self._read[1]


def about(subject: ReviewSubject, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a SubjectAccessReview for the person; `attributes` holds resourceAttributes or nonResourceAttributes."""
    spec = {**attributes, "user": subject.user, "groups": list(subject.groups)}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def wishes(request: ApiRequest) -> list[dict[str, Any]]:
    """Return the authorization attributes that the API server checks for a request, as parts of a review's spec.

    A server-side apply may create the object, so it needs the rights to patch and to create; a decision on a plan needs
    the right to approve too. Discovery (the server's version and list of kinds) needs none: the result is empty.
    """
    path, _, query = request.path.partition("?")
    resource = _resource(path)
    if resource is None and request.method == "GET" and path.strip("/").partition("/")[0] in DISCOVERY:
        return []
    if resource is None:
        return [{"nonResourceAttributes": {"path": path, "verb": request.method.lower()}}]
    of_collection = "name" not in resource
    if request.method == "DELETE":
        verbs = ["deletecollection" if of_collection else "delete"]
    elif request.method in _VERBS:
        verbs = [_VERBS[request.method]]
    elif parse_qs(query).get("watch", [""])[-1] in ("1", "true"):
        verbs = ["watch"]
    else:
        verbs = ["list" if of_collection else "get"]
    if request.content_type == APPLY_TYPE and verbs == ["patch"]:
        try:
            body = msgspec.json.decode(request.body or b"null")
        except UNDECODABLE:
            body = None
        # An applied object with a uid is one that is there: the API server refuses to create it.
        if not (isinstance(body, dict) and (body.get("metadata") or {}).get("uid")):
            verbs.append("create")
    if _decides_on_plan(request, resource):
        verbs.append(APPROVE)
    return [{"resourceAttributes": {**resource, "verb": verb}} for verb in verbs]


def _decides_on_plan(request: ApiRequest, resource: Mapping[str, str]) -> bool:
    """Return whether a write sets or removes a reservation plan's approval or policy, in any form of patch.

    An unreadable body counts as deciding: one review too many is better than one too few.
    """
    of_plan = (resource.get("group"), resource.get("resource")) == (OWN_GROUP.partition("/")[0], RESERVATION_PLANS)
    if request.method not in _VERBS or not of_plan or "subresource" in resource:
        return False
    try:
        body = msgspec.json.decode(request.body or b"null")
    except UNDECODABLE:
        return True
    if isinstance(body, list):
        for pointer in (str(operation.get(key, "-")) for operation in body for key in ("path", "from")):
            parts = pointer.split("/")[1:]  # it decides where it names a decision, a part of one, or a parent of one
            if not pointer or parts == ["spec"] or (parts[:1] == ["spec"] and parts[1] in _DECISIONS):
                return True
        return False
    spec = body.get("spec") if isinstance(body, dict) else {}
    return not isinstance(spec, dict) or any(name in spec for name in _DECISIONS)


def _resource(path: str) -> dict[str, str] | None:
    """Return group, version, namespace, resource, name and subresource of a path; None if it names no resource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in _OF_NAMESPACES else rest
    padded = [*rest, "", ""]
    names = dict(zip(("resource", "name", "subresource"), (padded[0], padded[1], "/".join(rest[2:])), strict=True))
    attributes = {"group": group, "version": version, "namespace": namespace, **names}
    return {key: value for key, value in attributes.items() if value}
