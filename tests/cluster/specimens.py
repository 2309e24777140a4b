"""Objects that fill every field of a schema, to see which of them a server drops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBERS = {"Lower": 20, "Start": 10, "Min": 5}
"""Parts of names whose field must be below its neighbour."""
TEXTS = {"date-time": "2026-11-20T12:00:00Z"}


def specimen(schema: Mapping[str, Any], chosen: Mapping[str, Any], path: str = "") -> Any:
    """A value with every property that the schema declares; `chosen` gives values by path (None leaves it out)."""
    if path in chosen:
        return chosen[path]
    if schema.get("x-kubernetes-int-or-string"):
        return "20%" if path.endswith("probability") else "1"
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema["type"]
    if kind == "array":
        item = specimen(schema["items"], chosen, f"{path}[]")
        return [item] * schema.get("minItems", 1)
    if kind == "object":
        return _object(schema, chosen, path)
    return _scalar(schema, path)


def _object(schema: Mapping[str, Any], chosen: Mapping[str, Any], path: str) -> dict[str, Any]:
    if isinstance(schema.get("additionalProperties"), Mapping):
        return {"key": specimen(schema["additionalProperties"], chosen, f"{path}{{}}")}
    fields = {n: specimen(s, chosen, f"{path}.{n}".lstrip(".")) for n, s in schema.get("properties", {}).items()}
    return {name: value for name, value in fields.items() if value is not None}


def _scalar(schema: Mapping[str, Any], path: str) -> Any:
    if schema["type"] == "boolean":
        return True
    if schema["type"] in ("integer", "number"):
        name = path.rpartition(".")[2]
        number = next((n for word, n in NUMBERS.items() if word in name), 50)
        return max(schema.get("minimum", 0), min(schema.get("maximum", 10_000), number))
    return TEXTS.get(schema.get("format", ""), "5m" if "pattern" in schema else "x")


def dropped(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Paths of what was sent and does not exist any more, or is another value."""
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        return [p for key, value in sent.items() for p in dropped(value, stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [p for first, other in zip(sent, stored, strict=True) for p in dropped(first, other, f"{path}[]")]
    return [] if sent == stored else [path]
