"""The fields that admission changed in a write, beyond what was sent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.difference import escape_pointer_key, value_at_pointer
from cotenant.changes.decide.field_changes import CHANGE_ANNOTATION
from cotenant.changes.model.annotated_resources import same
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import FieldMove

Json = Mapping[str, Any]

_NOTE: Final = f"/metadata/annotations/{escape_pointer_key(CHANGE_ANNOTATION)}"
_WATCHED: Final = ("/spec", "/metadata/labels", "/metadata/annotations")
"""JSON pointers that are compared; the rest of an object is maintained by the server."""


def admission_additions(live: Json, answer: Json, write: Write) -> list[FieldMove]:
    """Return the sent fields that admission changed, and other fields that it set or changed; an absent value is ""."""
    sent = {**write.after, _NOTE: None}
    additions = []
    for root in _WATCHED:
        for pointer in _differences(value_at_pointer(live, root), value_at_pointer(answer, root), root):
            # One of the fields that were sent, below one of them or above one of them, is no addition.
            if not any(pointer == f or pointer.startswith(f"{f}/") or f.startswith(f"{pointer}/") for f in sent):
                before, after = (_text(value_at_pointer(document, pointer)) for document in (live, answer))
                additions.append(FieldMove(str(write.address), pointer, before, after))
    for pointer, sent_value in write.after.items():
        answered_value = value_at_pointer(answer, pointer)
        alike = same(sent_value, answered_value) if pointer.endswith("/resources") else sent_value == answered_value
        if not alike:
            additions.append(FieldMove(str(write.address), pointer, _text(sent_value), _text(answered_value)))
    return additions


def _differences(first: Any, second: Any, pointer: str) -> Iterator[str]:
    """Yield the pointers of the topmost values that differ and are not both objects or both lists."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in {**first, **second}:
            inner = f"{pointer}/{escape_pointer_key(key)}"
            yield from _differences(first.get(key), second.get(key), inner)
    elif isinstance(first, Sequence) and isinstance(second, Sequence) and not isinstance(first, str):
        for index in range(max(len(first), len(second))):
            before, after = (sequence[index] if index < len(sequence) else None for sequence in (first, second))
            yield from _differences(before, after, f"{pointer}/{index}")
    elif (first or None) != (second or None):
        yield pointer


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
