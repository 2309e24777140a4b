"""Fragments of CEL, the language of admission policies: literals, label selectors, JSON patch operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes.selector import LabelSelector, Operator, Requirement

LARGEST_NUMBER: Final = 2**53
"""Numbers of a JSON patch pass through a 64-bit float in the API server; whole numbers below this stay exact."""
LABELS: Final = "variables.labels"
NAMESPACE_LABELS: Final = "variables.namespaceLabels"
"""Not for matchConditions: there the API server gives no namespaceObject."""
NO_OPERATION: Final = "[]"

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def text(value: str) -> str:
    """Return a string as an ASCII literal of CEL; non-ASCII characters are escaped by their code point."""
    plain = (_ESCAPES.get(c) or (c if " " <= c <= "~" else f"\\U{ord(c):08x}") for c in value)
    return f'"{"".join(plain)}"'


def literal(value: Any) -> str:
    """Return a JSON value as a CEL expression; members of lists and objects become dyn(), so that types may differ."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(k)}: dyn({literal(v)})" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({literal(item)})" for item in value) + "]"
    return str(value)


def selector_conditions(selector: LabelSelector | None, labels: str) -> list[str]:
    """Return the CEL conditions under which a selector matches `labels` (a CEL expression); none if it matches all."""
    return [_condition(r, labels) for r in (selector.requirements or ())] if selector is not None else []


def _condition(requirement: Requirement, labels: str) -> str:
    key = text(requirement.key)
    if requirement.operator is Operator.EXISTS:
        return f"{key} in {labels}"
    if requirement.operator is Operator.DOES_NOT_EXIST:
        return f"!({key} in {labels})"
    values = "[" + ", ".join(text(value) for value in sorted(requirement.values)) + "]"
    if requirement.operator is Operator.IN:
        return f"({key} in {labels} && {labels}[{key}] in {values})"
    return f"!({key} in {labels} && {labels}[{key}] in {values})"


def selector_body(selector: LabelSelector | None, *more: Requirement) -> dict[str, Any]:
    """Return a label selector with further requirements as a JSON object; {} matches everything."""
    requirements = [*more, *((selector.requirements or ()) if selector else ())]
    expressions = [
        {"key": r.key, "operator": r.operator.value} | ({"values": sorted(r.values)} if r.values else {})
        for r in requirements
    ]
    return {"matchExpressions": expressions} if expressions else {}


def pointer(*steps: str) -> str:
    """Return a JSON pointer (RFC 6901) as a CEL literal."""
    return text("".join(f"/{escape_pointer_key(step)}" for step in steps))


def add(path: str, value: str) -> str:
    """Return a CEL list with one JSON patch operation that sets a field; `path` and `value` are CEL."""
    return f'[JSONPatch{{op: "add", path: {path}, value: {value}}}]'


def remove(path: str) -> str:
    """Return a CEL list with one JSON patch operation that removes a field; `path` is CEL."""
    return f'[JSONPatch{{op: "remove", path: {path}}}]'


def conditional_operations(condition: str, operations: str) -> str:
    """Return a CEL expression: the list of operations if the condition holds, else an empty list."""
    return f"({condition} ? {operations} : {NO_OPERATION})"


def concatenate_operations(operations: Iterable[str]) -> str:
    """Return a CEL expression that concatenates lists of operations, with one list on each line."""
    return " +\n".join(operations)
