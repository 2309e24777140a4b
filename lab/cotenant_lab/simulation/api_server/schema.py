"""The schema of a kind's fields, sufficient to merge server-side applies and to refuse unknown fields and wrong types.

One tree serves both: built-in kinds come from the table of `builtin`, custom ones from their CRD's OpenAPI schema. CEL
rules and formats are ignored; only the real server checks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True)
class FieldSchema:
    """One field's type.

    `shape`: "object", "list", "scalar" or "any" (nothing known: maps merge key by key, lists are one value). `values`:
    type of a map's values. `keys`: names of a list's keys, each with its default. `limits`: OpenAPI's keywords.
    `is_kept`: an object that is a Go struct in a built-in kind, so that it is `{}` if nothing sets it.
    """

    shape: str = "any"
    scalar: str = ""
    fields: Mapping[str, FieldSchema] = field(default_factory=dict)
    values: FieldSchema | None = None
    items: FieldSchema | None = None
    atomic: bool = False
    keys: tuple[tuple[str, Any], ...] = ()
    is_set: bool = False
    is_open: bool = False
    is_kept: bool = False
    required: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    def child(self, name: str) -> FieldSchema:
        """Return the type of a field or of a map's value; ANY if none is declared."""
        return self.fields.get(name) or self.values or ANY

    def declares(self, name: str) -> bool:
        """Return whether the schema has the field."""
        return self.shape == "any" or self.is_open or self.values is not None or name in self.fields

    def merges_map(self, value: object) -> bool:
        """Return whether two values of this type are merged key by key."""
        return isinstance(value, dict) and not self.atomic and self.shape in ("object", "any")

    def merges_list(self, value: object) -> bool:
        """Return whether two values of this type are merged item by item."""
        return isinstance(value, list) and (bool(self.keys) or self.is_set)

    def element(self, item: Any) -> tuple[str, str]:
        """Return the path element of an item of a mergeable list.

        It is ("k", its keys) or ("v", the value), as canonical JSON. Raises ValueError for an item of a keyed list
        that is no object or has none of the keys.
        """
        if self.is_set:
            return "v", canonical(item)
        if not isinstance(item, dict):
            raise ValueError("associative list requires that items are objects")
        keys = {name: item.get(name, default) for name, default in self.keys}
        keys = {name: value for name, value in keys.items() if value is not None}
        if not keys:
            raise ValueError(f"associative list with keys has an element that omits key field {self.keys[0][0]!r}")
        return "k", canonical(keys)


ANY: Final = FieldSchema()


def canonical(value: Any) -> str:
    """Return a value as JSON text, which is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_openapi(node: Json, metadata: FieldSchema | None = None) -> FieldSchema:
    """Return the schema of a CRD's openAPIV3Schema; `metadata` is the type of the root's metadata."""
    fields = {name: from_openapi(child) for name, child in (node.get("properties") or {}).items()}
    if metadata:
        fields |= {"apiVersion": _STRING, "kind": _STRING, "metadata": metadata}
    extra, list_type = node.get("additionalProperties"), node.get("x-kubernetes-list-type", "atomic")
    items = node.get("items")
    names = node.get("x-kubernetes-list-map-keys", ()) if list_type == "map" else ()
    of_items = (items or {}).get("properties") or {}
    kind, either = node.get("type", ""), bool(node.get("x-kubernetes-int-or-string"))
    keeps_unknown = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    shape = {"object": "object", "array": "list", "": "scalar" if either else "any"}.get(kind, "scalar")
    bare = "properties" not in node and "additionalProperties" not in node
    return FieldSchema(
        shape="any" if kind == "object" and bare and keeps_unknown else shape,
        scalar="" if either else kind,
        fields=fields,
        values=from_openapi(extra) if isinstance(extra, dict) else None,
        items=from_openapi(items) if items else None,
        atomic=node.get("x-kubernetes-map-type") == "atomic",
        keys=tuple((name, of_items.get(name, {}).get("default")) for name in names),
        is_set=list_type == "set",
        is_open=keeps_unknown or extra is True or bool(node.get("x-kubernetes-embedded-resource")),
        required=tuple(node.get("required", ())),
        limits={key: node[key] for key in _LIMITS if key in node},
    )


_STRING: Final = FieldSchema("scalar", "string")
_LIMITS: Final = (
    *("enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems"),
    *("maxProperties", "nullable", "default"),
)


def unknown_fields(schema: FieldSchema, value: Any, at: str = "") -> Iterator[str]:
    """Yield the paths that the schema does not declare, such as `spec.template.spec.containers[0].nme`."""
    if isinstance(value, dict):
        for name, child in value.items():
            path = f"{at}.{name}" if at else name
            if schema.shape == "object" and not schema.declares(name):
                yield path
            else:
                yield from unknown_fields(schema.child(name), child, path)
    elif isinstance(value, list) and schema.items:
        for index, item in enumerate(value):
            yield from unknown_fields(schema.items, item, f"{at}[{index}]")


def prune_value(schema: FieldSchema, value: Any) -> Any:
    """Return the value without undeclared fields, and with declared defaults, which also replace nulls."""
    if isinstance(value, dict) and schema.shape == "object":
        declared = {name: child for name, child in value.items() if schema.declares(name)}
        declared = {name: prune_value(schema.child(name), child) for name, child in declared.items()}
        for name, child in schema.fields.items():
            if "default" in child.limits and (name not in declared or declared[name] is None):
                declared[name] = prune_value(child, json.loads(json.dumps(child.limits["default"])))
        return declared
    if isinstance(value, list) and schema.items:
        return [prune_value(schema.items, item) for item in value]
    return value


def compact_value(schema: FieldSchema, value: Any) -> Any:
    """Return the value as a built-in kind stores it: without nulls, empty lists and empty maps, with its structs."""
    if isinstance(value, dict):
        with_kept = {**value, **{name: value.get(name) or {} for name, child in schema.fields.items() if child.is_kept}}
        compacted = {name: compact_value(schema.child(name), child) for name, child in with_kept.items()}
        maps = {name for name in with_kept if schema.child(name).values is not None}
        empty = [name for name, child in compacted.items() if child in (None, []) or (child == {} and name in maps)]
        return {name: child for name, child in compacted.items() if name not in empty}
    if isinstance(value, list):
        return [compact_value(schema.items or ANY, item) for item in value]
    return value
