"""Label and field selectors: from the text of a query to a predicate on objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from cotenant_lab.simulation.api_server.refusal import Refusal

Predicate = Callable[[dict[str, Any]], bool]
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL: Final = re.compile(r"([^\s=!]+)\s*(!=|==?)\s*([^\s=!]*)")
_NAME: Final = re.compile(r"(!?)\s*([A-Za-z0-9][-\w./]*)")
_COMMA: Final = re.compile(r",(?![^(),]*\))")
_FIELDS: Final = {
    "": ("metadata.name", "metadata.namespace"),
    "pods": ("spec.nodeName", "status.phase", "spec.schedulerName", "spec.restartPolicy", "status.podIP"),
    "nodes": ("spec.unschedulable",),
    "events": (
        *("reason", "type", "involvedObject.name", "involvedObject.kind", "involvedObject.namespace"),
        *("reportingController", "regarding.name", "regarding.kind", "regarding.namespace"),
    ),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
}


def by_labels(text: str) -> Predicate:
    """Return the predicate of a label selector such as `app=web,tier in (a, b),!old`; 400 for an invalid text."""
    parts = [_label_term(part.strip()) for part in _COMMA.split(text) if part.strip()]
    return lambda item: all(part((item.get("metadata") or {}).get("labels") or {}) for part in parts)


def _label_term(text: str) -> Callable[[dict[str, str]], bool]:
    """Return the test of labels for one requirement of a label selector, such as `app in (a, b)`, `app!=a` or `!app`.

    Raises Refusal 400, as the API server does, for a text that is no requirement.
    """
    if match := _SET.fullmatch(text):
        key, values = match[1], {word.strip() for word in match[3].split(",")}
        inside = match[2] == "in"
        return lambda labels: (labels[key] in values) is inside if key in labels else not inside
    if match := _EQUAL.fullmatch(text):
        key, sign, value = match.groups()
        return lambda labels: (labels.get(key) == value) is (sign != "!=")
    if match := _NAME.fullmatch(text):
        absent, key = bool(match[1]), match[2]
        return lambda labels: (key in labels) is not absent
    raise Refusal(400, f"unable to parse requirement: {text!r}")


def by_fields(text: str, resource: str) -> Predicate:
    """Return the predicate of a field selector such as `spec.nodeName=n1`; 400 for a field that is not supported."""
    terms = []
    for part in filter(str.strip, text.split(",")):
        match = _EQUAL.fullmatch(part.strip())
        if not match:
            raise Refusal(400, f"invalid selector: {text!r}; can't understand {part!r}")
        if match[1] not in (*_FIELDS[""], *_FIELDS.get(resource, ())):
            raise Refusal(400, f"field label not supported: {match[1]}")
        terms.append((tuple(match[1].split(".")), match[2] != "!=", match[3]))
    return lambda item: all((_value(item, path) == value) is equal for path, equal, value in terms)


def _value(item: Any, path: tuple[str, ...]) -> str:
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    if item is None:
        return "false" if path[-1] == "unschedulable" else ""
    return str(item).lower() if isinstance(item, bool) else str(item)
