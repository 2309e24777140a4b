"""Objects as they are after each write of an audit log, also where the answer was their metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import jsonpatch

_METADATA_ALONE: Final = "PartialObjectMetadata"
Document: TypeAlias = dict[str, Any]


class Objects:
    """Follows writes in the order of their answers.

    A writer of many objects asks for their metadata alone. What it wrote is then its request, carried out on what was
    known: a JSON patch by its operations, an apply by merging, without the fields that the same manager applied before
    and applies no more. An object that no earlier answer showed has its metadata and what was applied.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[tuple[str, ...], Document] = {}
        self._applied: dict[tuple[str, ...], Document] = {}

    def after(self, event: Mapping[str, Any]) -> Document:
        """The object after a write that was carried out; {} where the answer was a Status, or it is gone."""
        response_body: Document = event.get("responseObject") or {}
        target = event.get("objectRef") or {}
        name = target.get("name") or (response_body.get("metadata") or {}).get("name", "")
        key = (target.get("apiGroup", ""), target.get("resource", ""), target.get("namespace", ""), name)
        if response_body.get("kind") == "Status":
            return {}
        stored = (
            self._written(event, key, response_body) if response_body.get("kind") == _METADATA_ALONE else response_body
        )
        if event["verb"] == "delete":
            self._known.pop(key, None)
        elif stored:
            self._known[key] = stored
        return stored

    def _written(self, event: Mapping[str, Any], key: tuple[str, ...], response_body: Document) -> Document:
        before, sent = deepcopy(self._known.get(key, {})), event.get("requestObject")
        if isinstance(sent, list):
            try:
                before = jsonpatch.apply_patch(before, sent)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                before = {}
        elif isinstance(sent, dict) and event["verb"] in ("create", "patch"):
            manager = parse_qs(urlsplit(event.get("requestURI", "")).query).get("fieldManager", [""])[0]
            owner = (*key, (event.get("objectRef") or {}).get("subresource", ""), manager)
            before = merged(without(before, self._applied.get(owner, {}), sent), sent)
            self._applied[owner] = sent
        return {**before, "metadata": response_body["metadata"]}


def merged(before: Document, applied: Document) -> Document:
    """Objects within objects are merged, everything else is replaced."""
    out = dict(before)
    for name, value in applied.items():
        inner = out.get(name)
        out[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return out


def without(before: Document, earlier: Document, now: Document) -> Document:
    """An object without the fields that were applied earlier and are applied no more."""
    out = dict(before)
    for name, value in earlier.items():
        if isinstance(value, dict) and isinstance(out.get(name), dict):
            out[name] = without(out[name], value, now[name] if isinstance(now.get(name), dict) else {})
        elif name not in now:
            out.pop(name, None)
    return out
