"""EDGE: compare the custom resources that an API server serves (OpenAPI) with the CRDs of this version.

Every account may read the OpenAPI, so that the manager needs no right to read CRDs. The server refuses (server-side
apply) or drops a field that its schema lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from cotenant.base.kube.client import KubeClient
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.base.process.shipped_manifests import deploy

Schema = Mapping[str, Any]
KEEPS_ALL: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
MOST_NAMED: Final = 3
_OWN: Final = OWN_GROUP.partition("/")[0]
_BOUNDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("maximum", "maxLength", "maxItems", "maxProperties"), ">"),
    **dict.fromkeys(("minimum", "minLength", "minItems", "minProperties"), "<"),
}
"""A bound of a schema -> the side on which values are refused."""
_MEASURES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("maxLength", "minLength"), " characters"),
    **dict.fromkeys(("maxItems", "minItems", "maxProperties", "minProperties"), " entries"),
}


def older_definitions(client: KubeClient) -> list[str]:
    """Return a sentence for each of our kinds that the cluster serves in an older form; a missing kind is not reported.

    Raise ClusterError if the OpenAPI cannot be read.
    """
    documents: dict[str, Schema | None] = {}
    problems = []
    for definition in shipped_definitions():
        spec, name = definition["spec"], definition["metadata"]["name"]
        for version in spec["versions"]:
            path = f"/openapi/v3/apis/{spec['group']}/{version['name']}"
            if path not in documents:
                documents[path] = client.get(path)
            served = served_schema(documents[path] or {}, spec["group"], version["name"], spec["names"]["kind"])
            ours, shared = version["schema"]["openAPIV3Schema"], spec["group"] != _OWN
            missing = list(missing_fields(ours, served, is_shared=shared)) if served is not None else []
            if missing:
                more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
                fields = ", ".join(missing[:MOST_NAMED])
                problems.append(
                    f"{name} {version['name']} is older than this program: it does not accept {fields}{more}"
                )
    return problems


def shipped_definitions() -> Iterator[Mapping[str, Any]]:
    """Yield the CustomResourceDefinitions of this version, sorted by name."""
    for file in sorted((deploy() / "crds").iterdir(), key=lambda path: path.name):
        if file.name.endswith(".yaml"):
            yield yaml.safe_load(file.read_text("utf-8"))


def served_schema(document: Schema, group: str, version: str, kind: str) -> Schema | None:
    """Return the schema of a kind in an OpenAPI document, or None if the kind is not served."""
    gvk = {"group": group, "version": version, "kind": kind}
    schemas = (document.get("components") or {}).get("schemas") or {}
    return next(
        (schema for schema in schemas.values() if gvk in schema.get("x-kubernetes-group-version-kind", ())), None
    )


def missing_fields(ours: Schema, served: Schema, path: str = "", *, is_shared: bool = False) -> Iterator[str]:
    """Yield the paths of the fields, values, types and bounds of our schema that the served schema does not accept.

    A field that only the served schema requires is one of them. A served schema that preserves unknown fields accepts
    every field; one that describes no entries of a map or list accepts none of them. With `is_shared`, the kind is also
    Koordinator's: a bound that only the served schema has is then accepted (a message of 32,768 characters, say),
    because cotenant's values are far within it.
    """
    if served.get(KEEPS_ALL):
        return
    if not _takes_type(ours, served):
        yield f"{path}:{ours.get('type', 'integer or string')}"
        return
    if served.get("enum"):
        yield from (f"{path}={value}" for value in ours.get("enum") or () if value not in served["enum"])
    yield from _narrower_bounds(ours, served, path, is_shared=is_shared)
    demanded = {*(served.get("required") or ())} - {*(ours.get("required") or ())}
    yield from (f"{path} without {name}" for name in sorted(demanded))
    served_fields = served.get("properties") or {}
    for name, field in (ours.get("properties") or {}).items():
        if not path and name == "metadata":
            continue
        if name in served_fields:
            yield from missing_fields(field, served_fields[name], f"{path}.{name}", is_shared=is_shared)
        elif "additionalProperties" not in served:
            yield f"{path}.{name}"
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        our_field, served_field = ours.get(inner), served.get(inner)
        if isinstance(our_field, Mapping) and isinstance(served_field, Mapping):
            yield from missing_fields(our_field, served_field, f"{path}{mark}", is_shared=is_shared)
        elif our_field and served_field is None:
            yield f"{path}{mark}"


def _narrower_bounds(ours: Schema, served: Schema, path: str, *, is_shared: bool) -> Iterator[str]:
    """Yield the bounds of the served schema that refuse values which ours allows."""
    for name, sign in _BOUNDS.items():
        bound, own = served.get(name), ours.get(name)
        if bound is None or (own is None and is_shared):
            continue
        if own is None or (own > bound if sign == ">" else own < bound):
            yield f"{path}{sign}{bound:g}{_MEASURES.get(name, '')}"


def _takes_type(ours: Schema, served: Schema) -> bool:
    """Return whether the served schema accepts the type of ours; a schema without a type accepts all."""
    if served.get(INT_OR_STRING) or not served.get("type"):
        return True
    if ours.get(INT_OR_STRING):
        return False
    return ours.get("type") in (None, served["type"]) or (ours["type"], served["type"]) == ("integer", "number")
