"""The two API servers that every test of the contract runs on, behind one face."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cotenant_lab.simulation.api_server import AccessRule, Account, EmbeddedServer
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

GROUP = "contract.cotenant.dev"
WIDGETS = f"/apis/{GROUP}/v1"
_TEXT = {"type": "string"}
_STEP = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _TEXT, "image": _TEXT, "count": {"type": "integer"}},
}
_SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "mode": {"type": "string", "enum": ["slow", "fast"]},
        "steps": {
            "type": "array",
            "items": _STEP,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": _TEXT},
        "words": {"type": "object", "additionalProperties": _TEXT},
        "whole": {"type": "object", "additionalProperties": _TEXT, "x-kubernetes-map-type": "atomic"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "pace": {"type": "string", "default": "steady"},
    },
}
_STATUS = {"type": "object", "properties": {"ready": {"type": "integer"}, "note": _TEXT}}
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}},
            }
        ],
    },
}


@dataclass
class Target:
    """An API server under test. `forget()` makes it forget history, `user(name, rules)` gives a client."""

    name: str
    api: Callable[[], Api]
    forget: Callable[[], object]
    user: Callable[[str, list[Json]], Api]
    namespace: str = ""
    admin: Api = field(init=False)

    def __post_init__(self) -> None:
        self.admin = self.api()

    def path(self, resource: str, name: str = "", subresource: str = "") -> str:
        """Path of a namespaced resource in the test's namespace: `configmaps`, `apps/v1/deployments`, `widgets`."""
        *api_version, plural = resource.split("/")
        root = WIDGETS if plural == "widgets" else f"/apis/{'/'.join(api_version)}" if api_version else "/api/v1"
        return "/".join(part for part in (f"{root}/namespaces/{self.namespace}/{plural}", name, subresource) if part)

    def apply(self, path: str, body: Json, manager: str = "one", **query: str) -> Json:
        """Server-side apply."""
        return self.admin.patch(path, body, "apply", fieldManager=manager, **query)


def embedded_api(server: EmbeddedServer, token: str = "") -> Api:
    """A plain client, as the administrator unless a token is given."""
    tls = ssl.create_default_context(cadata=server.authority)
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return Api(server.url, tls, token=token or server.token)


def embedded_target(server: EmbeddedServer) -> Target:
    """The server of cotenant_lab.simulation."""

    def api() -> Api:
        return embedded_api(server)

    def user(name: str, rules: list[Json]) -> Api:
        access_rules = tuple(AccessRule(tuple(r["verbs"]), tuple(r["apiGroups"]), tuple(r["resources"])) for r in rules)
        return embedded_api(server, server.account(name, Account(name, access_rules)))

    return Target("embedded", api, server.state.compact, user)


def real_target(plane: ControlPlane) -> Target:
    """A real kube-apiserver."""

    def user(name: str, rules: list[Json]) -> Api:
        api = plane.api()
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        api.patch(
            f"{role}/{name}", {**head, "kind": "ClusterRole", "rules": rules}, "apply", fieldManager="t", force="1"
        )
        subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": reference}
        api.patch(role.replace("roles", f"rolebindings/{name}"), binding, "apply", fieldManager="t", force="1")
        return plane.api(plane.user(name))

    return Target("real", plane.api, plane.compact, user)


def serve_widgets(api: Api) -> None:
    """Apply the test's CRD and wait until its kind is served."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION['metadata']['name']}"
    api.patch(path, DEFINITION, "apply", fieldManager="tests", force="true")

    def served() -> bool:
        with contextlib.suppress(ApiError):
            return "items" in api.get(f"{WIDGETS}/widgets")
        return False

    wait_for("the test's kind", served)


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Json:
    """A ConfigMap to apply."""
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body if data is None else {**body, "data": data}


def widget(name: str, spec: Json | None = None, **metadata: Any) -> Json:
    """A Widget to apply."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": spec or {},
    }


def refused(target: Target, method: str, path: str, body: object = None, kind: str = "apply", **query: str) -> ApiError:
    """The refusal of a request that must not pass."""
    with pytest.raises(ApiError) as error:
        if method == "PATCH":
            target.admin.patch(path, body, kind, **query)
        else:
            target.admin.ask(method, path, body, query=query)
    return error.value
