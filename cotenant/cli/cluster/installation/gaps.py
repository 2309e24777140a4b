"""What a CustomResourceDefinition that is there lacks of the one that we ship. Pure.

Koordinator's own definitions are left alone where they are installed: what matters is only that each field we write or
read is known to them, because the API server drops the others in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

KEEPS_ALL = "x-kubernetes-preserve-unknown-fields"


def gaps(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return in words what their definition lacks compared with ours; empty when it lacks nothing.

    It may lack a served version, the status subresource or fields, given by their paths. With another scope nothing
    else is compared.
    """
    if theirs["spec"]["scope"] != ours["spec"]["scope"]:
        return [f"its scope is {theirs['spec']['scope']}"]
    problems = []
    for version in ours["spec"]["versions"]:
        same = next((v for v in theirs["spec"]["versions"] if v["name"] == version["name"] and v["served"]), None)
        if same is None:
            problems.append(f"it does not serve {version['name']}")
            continue
        if version.get("subresources", {}).get("status") is not None and "status" not in same.get("subresources", {}):
            problems.append("it has no status subresource")
        problems += [f"it lacks {path}" for path in missing_fields(_schema(same), _schema(version))]
    return problems


def missing_fields(theirs: Schema, ours: Schema, path: str = "") -> Iterator[str]:
    """Paths of fields that ours declares and theirs would drop; nothing below a missing one is named."""
    if path in {".metadata", ".apiVersion", ".kind"}:
        return
    for name, inner in ours.get("properties", {}).items():
        below = theirs.get("properties", {}).get(name)
        if below is not None:
            yield from missing_fields(below, inner, f"{path}.{name}")
        elif not theirs.get(KEEPS_ALL) and not theirs.get("additionalProperties"):
            yield f"{path}.{name}".lstrip(".")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(ours.get(key), Mapping) and isinstance(theirs.get(key), Mapping):
            yield from missing_fields(theirs[key], ours[key], path + mark)


def _schema(version: Mapping[str, Any]) -> Schema:
    schema: Schema = version.get("schema", {}).get("openAPIV3Schema", {})
    return schema
