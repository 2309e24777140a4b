"""The text of an AutopilotPolicy: written from its object, and read by a person's editor. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.base.errors import UsageError
from cotenant.base.settings.document import parse_single_document


def as_yaml(body: Mapping[str, Any]) -> str:
    """The object as text, in the order of its fields."""
    import yaml

    return str(yaml.safe_dump(dict(body), sort_keys=False, default_flow_style=None, width=100))


def parse_policy(text: str) -> dict[str, Any]:
    """The object of a text; UsageError names the line, or what is missing."""
    body = parse_single_document(text, "the policy")
    if not isinstance(body, dict):
        raise UsageError("the policy is not an object", fix="Begin with apiVersion, kind, metadata and spec.")
    for key in _keys(body):
        if not isinstance(key, str):
            raise UsageError(f"the policy has the key {key!r}, which is not a string", fix="Put it in quotes.")
    return body


def _keys(value: object) -> Iterator[object]:
    """Yield the keys of all objects nested in a value."""
    if isinstance(value, dict):
        yield from value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(child)
