"""The smallest RFC 6902 patch between two JSON documents: what a mutating webhook answers with. Pure.

Only fields that differ are named, so that what other webhooks and the API server wrote stays as they wrote it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from cotenant.base.json_documents.difference import escape_pointer_key

Operation: TypeAlias = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Operations that turn `before` into `after`; none when they are equal. List elements are compared by place."""
    operations: list[Operation] = []
    _compare(operations, "", before, after)
    return operations


def _compare(operations: list[Operation], path: str, before: Any, after: Any) -> None:
    if before is after:  # what was not touched is still the same object
        return
    if isinstance(before, dict) and isinstance(after, dict):
        gone = before.keys() - after.keys()
        operations += [{"op": "remove", "path": f"{path}/{escape_pointer_key(key)}"} for key in gone]
        for key, value in after.items():
            if key not in before:
                operations.append({"op": "add", "path": f"{path}/{escape_pointer_key(key)}", "value": value})
            elif before[key] is not value:
                _compare(operations, f"{path}/{escape_pointer_key(key)}", before[key], value)
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip(before, after, strict=False)):
            _compare(operations, f"{path}/{index}", old, new)
        operations += [{"op": "remove", "path": f"{path}/{len(after)}"}] * (len(before) - len(after))
        operations += [{"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :]]
    elif type(before) is not type(after) or before != after:
        operations.append({"op": "replace", "path": path, "value": after})
