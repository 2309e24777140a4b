"""The API server of the demo as a function: objects and a request give objects and an answer, for states of a model.

Versions are counted for each object by itself, so that states that differ in nothing but the order of writes to
different objects are one state. Its clock stands, and what it makes has a uid by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kube.writes import request_of
from cotenant.base.kubernetes.intent import Address, Create, Intent
from cotenant.base.process.clock import FixedClock
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR
from cotenant_lab.simulation.api_server.routes import Api, EmbeddedRequest
from cotenant_lab.simulation.api_server.state import ObjectState

Json: TypeAlias = dict[str, Any]
ApiAnswer: TypeAlias = tuple[int, bytes]
CRDS = "apiextensions.k8s.io/v1"
NOON = FixedClock(1_800_000_000.0)


class Key(NamedTuple):
    """Where an object lies; namespace: "" for one of the cluster."""

    group: str
    plural: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.plural, self.namespace, self.name) if part)


Objects: TypeAlias = tuple[tuple[Key, bytes], ...]


class PureApi:
    """A server with some definitions, and objects that never change; all others come with each request."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]], fixed: Iterable[Create] = ()) -> None:
        self._state = ObjectState()
        self._api = Api(self._state, NOON)
        creates = [
            Create(Address(CRDS, "customresourcedefinitions", ""), {**body, "kind": "CustomResourceDefinition"})
            for body in definitions
        ]
        for create in (*creates, *fixed):
            body = {**create.body, "apiVersion": create.address.api_version}
            status, response_body = self._ask(request_of(Create(create.address, body), "test"))
            assert status == 201, response_body
        self._fixed = self._state.contents()
        self.answer = lru_cache(maxsize=500_000)(self._answer)
        """The objects after a request, and the answer to it."""

    def after(self, objects: Objects, intent: Intent) -> Objects:
        """The objects after a write that must not fail."""
        after, (status, response_body) = self.answer(objects, request_of(intent, "test"))
        assert status in (200, 201), response_body
        return after

    def _answer(self, objects: Objects, request: ApiRequest) -> tuple[Objects, ApiAnswer]:
        before = {key: msgspec.json.decode(text) for key, text in objects}
        target = key_of(request.path)
        self._load(before, int(before[target]["metadata"]["resourceVersion"]) if target in before else 0)
        status, response_body = self._ask(request)
        if request.method == "GET" or status >= 300:
            return objects, (status, response_body)
        contents = self._contents()
        for key in contents.keys() - before.keys():
            uid = contents[key]["metadata"]["uid"]
            response_body = response_body.replace(uid.encode(), f"uid-{key.name}".encode())
            contents[key]["metadata"]["uid"] = f"uid-{key.name}"
        return encoded(contents), (status, response_body)

    def _load(self, objects: Mapping[Key, Json], version: int) -> None:
        contents: dict[tuple[str, str], list[Json]] = {collection: [] for collection in self._state.contents()}
        contents |= self._fixed
        for key, item in objects.items():
            contents.setdefault(key[:2], []).append(item)
        self._state.restore(version, contents)
        self._state.compact()

    def _contents(self) -> dict[Key, Json]:
        return {
            Key(*collection, item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
            for collection, items in self._state.contents().items()
            for item in items
            if collection not in self._fixed
        }

    def _ask(self, request: ApiRequest) -> ApiAnswer:
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query))
        body: Any = msgspec.json.decode(request.body) if request.body else None
        embedded_request = EmbeddedRequest(
            request.method, parts.path, ADMINISTRATOR, query, request.content_type, body, "test"
        )
        try:
            api_response = self._api.answer(embedded_request)
        except Refusal as refusal:
            return refusal.code, msgspec.json.encode(refusal.status())
        return api_response.code, msgspec.json.encode(api_response.body)


def encoded(objects: Mapping[Key, Json]) -> Objects:
    """The objects as a value."""
    return tuple(sorted((key, msgspec.json.encode(item, order="deterministic")) for key, item in objects.items()))


def decoded(objects: Objects) -> dict[Key, Json]:
    """The objects by key."""
    return {key: msgspec.json.decode(text) for key, text in objects}


def key_of(path: str) -> Key:
    """The object that a path of the API names; name "" for a collection, plural "" for what a group serves."""
    parts = urlsplit(path).path.strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return Key(group, rest[0] if rest else "", namespace, rest[1] if len(rest) > 1 else "")


def request_text(request: ApiRequest) -> str:
    """A request in words."""
    verb = {"GET": "reads", "POST": "creates", "PATCH": "writes", "DELETE": "deletes"}[request.method]
    key = key_of(request.path)
    part = urlsplit(request.path).path.partition(f"/{key.name}/")[2] if key.name else ""
    return f"{verb} {key}" + (f"/{part}" if part and key.name else "")
