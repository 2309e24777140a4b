"""Every change of an object that a table of allowed fields forbids, made from the live object and the server's schema.

    changes(live, schema, allowed) -> ("spec.template.spec.hostPID", merge patch), ...

Each leaf that the object has gets another value, and each field that the schema has and the object has not gets one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster.api import Api

Json = dict[str, Any]
Steps = tuple[str | int, ...]
DEPTH = 9
"""Keys below which no absent field is added: a container's own fields are seven keys down in a CronJob."""
SERVER_OWNED = {
    "metadata": {
        "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generateName", "generation",
        "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid",
    },
    "": {"apiVersion", "kind"},
}  # fmt: skip
"""Fields that no request changes, by the path of the object that has them."""


class Schemas:
    """Schemas of kinds as the API server publishes them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._documents: dict[str, Json] = {}

    def of(self, api_version: str, kind: str) -> Json:
        """The schema of a kind; {} where the server has none."""
        group, _, version = api_version.rpartition("/")
        path = f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"
        if path not in self._documents:
            self._documents[path] = self._api.get(path)
        for schema in self._documents[path]["components"]["schemas"].values():
            names = schema.get("x-kubernetes-group-version-kind") or ()
            if any((name["group"], name["version"], name["kind"]) == (group, version, kind) for name in names):
                return Resolved(schema, self._documents[path]).schema
        return {}


class Resolved:
    """A schema with its references followed, one level at a time."""

    def __init__(self, schema: Mapping[str, Any], document: Json) -> None:
        self.schema = _followed(schema, document, DEPTH + 2)


def _followed(schema: Mapping[str, Any], document: Json, depth: int) -> Json:
    for part in (schema, *(schema.get("allOf") or ())):
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            return _followed(document["components"]["schemas"][name], document, depth)
    if depth <= 0:
        return {}
    resolved = dict(schema)
    if "properties" in schema:
        resolved["properties"] = {k: _followed(v, document, depth - 1) for k, v in schema["properties"].items()}
    if isinstance(schema.get("items"), Mapping):
        resolved["items"] = _followed(schema["items"], document, depth - 1)
    if isinstance(schema.get("additionalProperties"), Mapping):
        resolved["additionalProperties"] = _followed(schema["additionalProperties"], document, depth - 1)
    return resolved


def changes(live: Json, schema: Json, allowed: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """(path, merge patch) of every change outside of the allowed tree (see `tools.write_guards.tree`)."""
    for steps, value in [*_present(live, ()), *_absent(live, schema, ())]:
        if not _may(steps, allowed) and not _server_owned(steps):
            yield ".".join(map(str, steps)), _patch(live, steps, value)


def _present(value: Any, steps: Steps) -> Iterator[tuple[Steps, Any]]:
    """Every leaf with another value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _present(inner, (*steps, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, inner in enumerate(value):
            yield from _present(inner, (*steps, index))
    else:
        yield steps, _other(value)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    return [*value, "x"] if isinstance(value, list) else {"x": "y"}


def _absent(value: Any, schema: Json, steps: Steps) -> Iterator[tuple[Steps, Any]]:
    """Every field that the schema has and the object has not, at every object that it has."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _absent(inner, schema.get("items") or {}, (*steps, index))
    if not isinstance(value, dict) or len(steps) > DEPTH:
        return
    for key, part in (schema.get("properties") or {}).items():
        if key in value:
            yield from _absent(value[key], part, (*steps, key))
        elif (sample := _made(part)) is not None:
            yield (*steps, key), sample
    if isinstance(schema.get("additionalProperties"), dict):
        yield (*steps, "example.invalid/x"), _made(schema["additionalProperties"]) or "1"


def _made(schema: Json) -> Any:
    """A value of a schema with what it requires."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return 1
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        required = schema.get("required") or list(schema.get("properties") or ())[:1]
        fields = {key: _made((schema.get("properties") or {}).get(key, {})) for key in required}
        fields = {key: value for key, value in fields.items() if value is not None}
        return fields or ({"x": "y"} if "additionalProperties" in schema else {})
    if kind == "array":
        inner = _made(schema.get("items") or {})
        return [] if inner is None else [inner]
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        return 1
    return "2026-11-20T12:00:00Z" if schema.get("format") == "date-time" else "x" if kind == "string" else None


LOOKALIKES = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "c": "\u0441", "p": "\u0440"}
"""Latin letters -> the Cyrillic ones that look the same."""
ABSENT_OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "absent",
    "uid": "00000000-0000-4000-8000-000000000000",
}
"""Kubernetes deletes what belongs to objects that do not exist: a deletion by who may only patch."""


def near_names(name: str) -> Iterator[str]:
    """Names that a careless comparison takes for this one."""
    prefix, _, short = name.rpartition("/")
    yield from (f"{name}x", name[:-1], f"a.{name}", f"{name}.", f"{name}\u200b", f" {name}", f"{name}/x", f"{name}~1")
    yield f"{prefix}/{short.capitalize()}" if short != short.capitalize() else f"{prefix}/{short.upper()}"
    yield name.upper()
    yield short
    first = next(letter for letter in name if letter in LOOKALIKES)
    yield name.replace(first, LOOKALIKES[first], 1)
    yield f"{name}{'-' * 5}{'x' * 64}"


def tricks(allowed: Mapping[str, Any]) -> Iterator[tuple[Steps, Any]]:
    """(steps, value) of changes close to what a table allows, and of metadata that acts by itself."""
    for steps in _named_keys(allowed, ()):
        for name in near_names(str(steps[-1])):
            yield (*steps[:-1], name), "1"
    for part in ("labels", "annotations"):
        for name in ("cotenant.dev/x", "kubectl.kubernetes.io/last-applied-configuration", "x", "k" * 63):
            yield ("metadata", part, name), "1"
    yield ("metadata", "ownerReferences"), [ABSENT_OWNER]
    yield ("metadata", "ownerReferences"), [{**ABSENT_OWNER, "controller": True, "blockOwnerDeletion": True}]
    yield ("metadata", "finalizers"), ["example.invalid/for-ever"]
    yield ("metadata", "finalizers"), ["foregroundDeletion"]
    yield ("metadata", "generateName"), "stolen-"


def _named_keys(allowed: Mapping[str, Any], steps: Steps) -> Iterator[Steps]:
    """Keys of maps that a table names: labels, annotations, amounts."""
    for key, below in allowed.items():
        if below and key != "*":
            yield from _named_keys(below, (*steps, key))
        elif "/" in key:
            yield (*steps, key)


def by_each_door(live: Json, steps: Steps, value: Any) -> Iterator[tuple[str, str, Any]]:
    """(name of the kind of patch, its media type's name in `PATCHES`, body) of one change."""
    body = _patch(live, steps, value)
    yield "merge patch", "merge", body
    if not live["apiVersion"].partition("/")[0].endswith(".dev"):
        yield "strategic merge patch", "strategic", body
    parents = [steps[: n + 1] for n in range(len(steps) - 1) if not _exists(live, steps[: n + 1])]
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    creations = [{"op": "add", "path": "".join(f"/{step}" for step in parent), "value": {}} for parent in parents]
    yield "JSON patch", "json", [*creations, {"op": "add", "path": pointer, "value": value}]
    head = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
    metadata = {**body.get("metadata", {}), "name": live["metadata"]["name"]}
    yield "server-side apply", "apply", {**head, **body, "metadata": metadata}


def _exists(live: Any, steps: Steps) -> bool:
    for step in steps:
        if not isinstance(live, dict) or step not in live:
            return False
        live = live[step]
    return True


def _may(steps: Steps, allowed: Mapping[str, Any]) -> bool:
    """Whether the tree allows this very field, or one above it as a whole."""
    node: Mapping[str, Any] = allowed
    for step in steps:
        key = "*" if isinstance(step, int) else str(step)
        if key not in node:
            return False
        node = node[key]
        if not node:
            return True
    return True  # an object above allowed fields: what is new below it has steps of its own


def _server_owned(steps: Steps) -> bool:
    above = ".".join(map(str, steps[:1])) if len(steps) > 1 else ""
    return str(steps[min(1, len(steps) - 1)]) in SERVER_OWNED.get(above, set())


def _patch(live: Json, steps: Steps, value: Any) -> Json:
    """Merge patch that sets one field; a list on the way is written as a whole."""
    first = next((n for n, step in enumerate(steps) if isinstance(step, int)), None)
    if first is None:
        return _nested(steps, value)
    current: Any = live
    for step in steps[:first]:
        current = current[step]
    entries = copy.deepcopy(current)
    target: Any = entries
    for step in steps[first:-1]:
        target = target[step]
    target[steps[-1]] = value
    return _nested(steps[:first], entries)


def _nested(steps: Steps, value: Any) -> Json:
    for key in reversed(steps):
        value = {key: value}
    return value
