"""Check values against a schema: types, enumerations, required fields and bounds, in the real server's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from cotenant_lab.simulation.api_server.schema import ANY, FieldSchema, canonical

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "quantity": lambda value: isinstance(value, str | int | float) and not isinstance(value, bool),
    "number or string": lambda value: isinstance(value, str | int) and not isinstance(value, bool),
}
_LARGER: Final[dict[str, Callable[[Any], float]]] = {"minimum": float, "minLength": len, "minItems": len}
_SMALLER: Final[dict[str, Callable[[Any], float]]] = {
    "maximum": float,
    "maxLength": lambda value: len(value) if isinstance(value, str) else 0,  # a quantity may be an integer
    **dict.fromkeys(("maxItems", "maxProperties"), len),
}


def wrong_types(schema: FieldSchema, value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, what is wrong) of values that are not of the declared type; null passes as "not set"."""
    expected = {"object": "object", "list": "array"}.get(schema.shape, schema.scalar)
    if value is not None and expected and not _TYPES[expected](value):
        yield at, f"Invalid value: {_kind_of(value)}: {at} in body must be of type {expected}: {_kind_of(value)}"
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from wrong_types(schema.child(name), child, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and schema.items:
        for index, item in enumerate(value):
            yield from wrong_types(schema.items, item, f"{at}[{index}]")


def violations(schema: FieldSchema, value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, what is wrong) of values of the right type that break a rule of the schema."""
    yield from _broken_limits(schema, value, at)
    if isinstance(value, dict):
        for name in schema.required:
            if name not in value:
                yield f"{at}.{name}" if at else name, "Required value"
        for name, child in value.items():
            if child is None and schema.child(name) is not ANY and not schema.child(name).limits.get("nullable"):
                yield f"{at}.{name}" if at else name, "Invalid value: null"
            yield from violations(schema.child(name), child, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        elements = set()
        for index, item in enumerate(value if schema.merges_list(value) else ()):
            try:
                element = schema.element(item)
            except ValueError as error:
                yield f"{at}[{index}]", str(error)
                continue
            if element in elements:
                yield f"{at}[{index}]", f"Duplicate value: {element[1]}"
            elements.add(element)
        for index, item in enumerate(value):
            yield from violations(schema.items or FieldSchema(), item, f"{at}[{index}]")


def _broken_limits(schema: FieldSchema, value: Any, at: str) -> Iterator[tuple[str, str]]:
    limits = schema.limits
    if value is None or not limits:
        return
    if "enum" in limits and value not in limits["enum"]:
        supported = ", ".join(f'"{word}"' for word in limits["enum"])
        yield at, f"Unsupported value: {canonical(value)}: supported values: {supported}"
    if "pattern" in limits and isinstance(value, str) and not re.search(limits["pattern"], value):
        yield at, f"Invalid value: {canonical(value)}: {at} in body should match '{limits['pattern']}'"
    for name, size in _LARGER.items():
        if name in limits and size(value) < limits[name]:
            yield at, f"Invalid value: {canonical(value)}: {at} in body should be at least {limits[name]}"
    for name, size in _SMALLER.items():
        if name in limits and size(value) > limits[name]:
            yield at, f"Invalid value: {canonical(value)}: {at} in body should be at most {limits[name]}"


def _kind_of(value: Any) -> str:
    kind = next((name for name, fits in _TYPES.items() if fits(value)), "null")
    return f'"{kind}"'
