"""From a request to a verb: paths, rights, and the documents by which clients discover the served kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant.base.process.clock import Clock
from cotenant_lab.simulation.api_server import core_events, tables
from cotenant_lab.simulation.api_server.kinds import ApiKind, built_in, of_definition
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.rights import AccessRequest, Account, access_review, self_review, subject_review
from cotenant_lab.simulation.api_server.schema import Json
from cotenant_lab.simulation.api_server.state import ObjectState
from cotenant_lab.simulation.api_server.verbs import APPLY, JSON_PATCH, ApiCall, Verbs
from cotenant_lab.simulation.api_server.watches import Stream, watch

VERSION: Final = {"major": "1", "minor": "35", "gitVersion": "v1.35.4-cotenant", "platform": "embedded"}
_REVIEWS: Final = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": "SelfSubjectReview",
}
"""Questions that are posted and not stored, and their kinds."""
_ACTS: Final = {"binding": "Binding", "eviction": "Eviction"}
"""Subresources that are only posted to, and the kind of what is posted."""
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class EmbeddedRequest:
    """One decoded HTTP request, with the account that sent it."""

    method: str
    path: str
    account: Account
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    body: Any = None
    agent: str = "unknown"
    accept: str = ""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The answer to a request: a JSON document, or a stream of watch events."""

    code: int
    body: Json | Stream
    warnings: tuple[str, ...] = ()


class Api:
    """The API server without HTTP: routes a request to the verb, the watch or the document at its path."""

    def __init__(self, state: ObjectState, clock: Clock, accounts: Callable[[], Iterable[Account]] = tuple) -> None:
        """Serves the built-in kinds, and those of CRDs that the state already holds. `known`: all accounts."""
        self.state = state
        self.known = accounts
        self._clock = clock
        self._verbs = Verbs(state, clock, self._follow_write)
        self._kinds: dict[tuple[str, str, str], ApiKind] = {}
        for kind in built_in():
            self._serve(kind)
        for definition in state.contents().get(("apiextensions.k8s.io", "customresourcedefinitions"), []):
            self._register_definition(definition)
        for name in ("default", "kube-system"):
            if state.get(("", "namespaces"), ("", name)) is None:
                self._verbs.create(ApiCall(self._kinds["", "v1", "namespaces"], body={"metadata": {"name": name}}))

    def answer(self, request: EmbeddedRequest) -> ApiAnswer:
        """Return the server's answer; raise Refusal for everything but success."""
        if request.path in _REVIEWS and request.method == "POST":
            # Everybody may ask about themselves; about others only who may create such reviews.
            body = {"kind": _REVIEWS[request.path], **(request.body or {})}
            if _REVIEWS[request.path] == "SelfSubjectReview":
                return ApiAnswer(201, self_review(body, request.account))
            if _REVIEWS[request.path] == "SelfSubjectAccessReview":
                return ApiAnswer(201, access_review(body, request.account))
            access = AccessRequest("create", "authorization.k8s.io", "subjectaccessreviews")
            if not request.account.allows(access.verb, access.group, access.resource):
                raise access.refusal(request.account)
            return ApiAnswer(201, subject_review(body, self.known()))
        parts = request.path.strip("/").split("/")
        root = 2 if parts[0] == "api" else 3
        if parts[0] not in ("api", "apis") or len(parts) <= root:
            return ApiAnswer(200, self._document(request.path.rstrip("/")))
        call = self._call(request, parts, root)
        self._authorise(request, call)
        return self._act(request, call)

    def _call(self, request: EmbeddedRequest, parts: list[str], root: int) -> ApiCall:
        group, version, rest = "" if root == 2 else parts[1], parts[root - 1], parts[root:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and (group, version, rest[2]) in self._kinds:
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.get((group, version, rest[0]))
        subresource = rest[2] if len(rest) > 2 else ""
        name = rest[1] if len(rest) > 1 else ""
        served = kind and len(rest) <= 3 and (not subresource or subresource in kind.subresources)
        if not kind or not served or (not kind.namespaced if namespace else kind.namespaced and name):
            raise Refusal(404, "the server could not find the requested resource")
        return ApiCall(kind, namespace, name, subresource, request.query, request.body, request.agent)

    def _authorise(self, request: EmbeddedRequest, call: ApiCall, verb: str = "") -> None:
        resource = "/".join(part for part in (call.kind.plural, call.subresource) if part)
        access = AccessRequest(verb or _verb(request, call), call.kind.group, resource, call.namespace, call.name)
        if not request.account.allows(access.verb, access.group, access.resource, access.namespace):
            raise access.refusal(request.account)

    def _act(self, request: EmbeddedRequest, call: ApiCall) -> ApiAnswer:
        if core_events.is_core_event(call.kind):
            events = self._kinds["events.k8s.io", "v1", "events"]
            reply = self._act(request, core_events.to_events_group(call, events))
            streamed, body = core_events.streamed_as_core, reply.body
            return replace(reply, body=core_events.listed_as_core(body) if isinstance(body, dict) else streamed(body))
        verb = _verb(request, call)
        if verb == "watch":
            return ApiAnswer(200, watch(self.state, call))
        if verb == "create" and call.subresource in _ACTS:
            acts = {"binding": self._verbs.bind, "eviction": self._verbs.evict}
            return ApiAnswer(201, acts[call.subresource](call), tuple(call.warnings))
        if verb == "create" and not call.subresource:
            return ApiAnswer(201, self._verbs.create(call), tuple(call.warnings))
        if verb == "patch" and request.content_type == APPLY:
            item, new = self._verbs.apply(call, lambda: self._authorise(request, call, "create"))
            return ApiAnswer(201 if new else 200, item, tuple(call.warnings))
        if verb == "patch" and request.content_type != JSON_PATCH:
            accepted = f"accepted media types include: {JSON_PATCH}, {APPLY}"
            raise Refusal(415, f"the body of the request was in an unknown format - {accepted}")
        plain = {"get": self._verbs.get, "list": self._verbs.list}
        changing = {"update": self._verbs.replace, "delete": self._verbs.delete, "patch": self._verbs.patch}
        if verb not in {**plain, **changing}:
            raise Refusal(405, "the server does not allow this method on the requested resource")
        body = {**plain, **changing}[verb](call)
        if verb in plain and tables.MEDIA_TYPE in request.accept:
            body = tables.table(body, call.kind.columns, self._clock.now_seconds())
        return ApiAnswer(200, body, tuple(call.warnings))

    # --- what is served -----------------------------------------------------------------------------------------------
    def _serve(self, kind: ApiKind) -> None:
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def _follow_write(self, kind: ApiKind, before: Json | None, after: Json | None) -> None:
        """A CRD serves its kind; a namespace or a CRD that goes takes its objects with it."""
        if kind.name == "CustomResourceDefinition":
            if after:
                self._register_definition(after)
                return
            for definition in list(of_definition(before or {})):
                for key, _ in self.state.items(definition.collection):
                    self.state.remove(definition.collection, key)
                self._kinds.pop((definition.group, definition.version, definition.plural), None)
        elif kind.name == "Namespace" and after is None and before:
            name = before["metadata"]["name"]
            for collection, items in self.state.contents().items():
                for item in items:
                    if item["metadata"].get("namespace") == name:
                        self.state.remove(collection, (name, item["metadata"]["name"]))

    def _register_definition(self, definition: Json) -> None:
        for kind in of_definition(definition):
            self._serve(kind)

    # --- discovery ----------------------------------------------------------------------------------------------------
    def _document(self, path: str) -> Json:
        groups = []
        for group in sorted({kind.group for kind in self._kinds.values()} - {""}):
            versions = sorted({kind.version for kind in self._kinds.values() if kind.group == group})
            listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
            groups.append({"name": group, "versions": listed, "preferredVersion": listed[0]})
        fixed: dict[str, Json] = {
            "/version": dict(VERSION),
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        }
        if path in fixed:
            return fixed[path]
        kinds = [k for k in self._kinds.values() if path == f"/api{'s' if k.group else ''}/{k.api_version}"]
        if not kinds:
            raise Refusal(404, "the server could not find the requested resource")
        resources = [resource for kind in kinds for resource in _resources(kind)]
        body = {"groupVersion": kinds[0].api_version, "resources": resources}
        return {"kind": "APIResourceList", "apiVersion": "v1", **body}


def _resources(kind: ApiKind) -> Iterator[Json]:
    """Entries of an APIResourceList for a kind: itself, then its subresources. An eviction can only be created."""
    base = {"namespaced": kind.namespaced, "kind": kind.name}
    first = {"name": kind.plural, "singularName": kind.name.lower(), **base, "verbs": list(_VERBS)}
    yield {**first, "shortNames": list(kind.short_names)}
    for subresource in kind.subresources:
        if subresource in _ACTS:
            act = {"namespaced": True, "kind": _ACTS[subresource], "verbs": ["create"]}
            yield {"name": f"{kind.plural}/{subresource}", "singularName": "", **act}
            continue
        yield {"name": f"{kind.plural}/{subresource}", "singularName": "", **base, "verbs": ["get", "patch", "update"]}


def _verb(request: EmbeddedRequest, call: ApiCall) -> str:
    """The word that rights use."""
    if request.method == "GET":
        watched = request.query.get("watch") in ("1", "true")
        return "watch" if watched and not call.subresource else "get" if call.name else "list"
    if request.method == "DELETE" and not call.name:
        return "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(request.method, "")
