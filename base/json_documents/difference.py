"""Differences of JSON documents as a short text or by path, and pointers into them (RFC 6901), as in patches. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base import measures
from cotenant.base.json_documents.json_decoders import UNDECODABLE

LONGEST: Final = 160
"""Characters of a difference."""
LONGEST_WORD: Final = 40
ELLIPSIS: Final = "..."


def difference(old: str, new: str) -> str:
    """Return the leaves of `new` that differ from `old`, as text: "batch-cpu 9157 -> 9987, mid-cpu 100 -> 90".

    Leaves are compared by the last key of their path, because `old` may be a summary of another shape; if `old` has any
    of the changed keys, only these are reported. If `old` is empty, all leaves of `new` are listed; if `new` is empty,
    all of `old`, as "gone". A text that is not JSON is returned, cut.
    """
    try:
        before = dict(_leaves(msgspec.json.decode(old))) if old else {}
        after = dict(_leaves(msgspec.json.decode(new))) if new else {}
    except UNDECODABLE:
        return cut(new or old, LONGEST)
    changed_names = [name for name, value in after.items() if before.get(name) != value]
    names = [name for name in changed_names if name in before] or changed_names
    changed = [_change_text(name, before.get(name), after[name]) for name in names]
    removed = [f"{name} gone" for name in before if name not in after] if not new else []
    # Join as many parts as fit, and add how many more there are
    parts = [*changed, *removed]
    text = ""
    for number, part in enumerate(parts):
        longer = f"{text}, {part}" if text else part
        if len(longer) > LONGEST:
            return f"{text or cut(part, LONGEST)} and {len(parts) - max(number, 1)} more"
        text = longer
    return text


def cut(text: str, longest: int) -> str:
    """Return the text, cut to `longest` characters with an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - len(ELLIPSIS)]}{ELLIPSIS}"


def _change_text(name: str, before: str | None, after: str) -> str:
    short = cut(after, LONGEST_WORD)
    return f"{name} {short}" if before is None else f"{name} {cut(before, LONGEST_WORD)} -> {short}"


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (last key of the path, value as text) of all that is not an object; a list of plain values is one leaf."""
    if isinstance(value, Mapping) and {"op", "path"} <= value.keys():  # an operation of a JSON patch
        if value["op"] != "test":
            last = last_key(str(value["path"]))
            yield from _leaves(value.get("value", "gone"), last)
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _leaves(child, key)
    elif isinstance(value, list) and any(isinstance(child, Mapping) for child in value):
        for child in value:
            yield from _leaves(child, name)
    else:
        yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two JSON values differ; lists of different lengths differ as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (first, second) in enumerate(zip(before, after, strict=True)):
            yield from differences(first, second, f"{path}[{index}]")
    elif before != after:
        yield path


def abbreviate_list(parts: list[str], most: int = 3) -> str:
    """Return the first `most` parts of a list as text, and how many more there are."""
    more = f" and {measures.left_out_count(len(parts), most)} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
"""An index of a list as RFC 6901 writes it: ASCII digits without a leading zero; at most nine, because no list is
longer and `int` raises ValueError for a text of more than 4,300 digits."""


def escape_pointer_key(key: str) -> str:
    """Return a key as one step of a JSON pointer: "cotenant.dev/plan" -> "cotenant.dev~1plan"."""
    return key.replace("~", "~0").replace("/", "~1")


def last_key(pointer: str) -> str:
    """Return the last key of a JSON pointer."""
    return _key(pointer.rpartition("/")[2])


def value_at_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a pointer into parsed JSON, or None if there is none."""
    value = document
    for step in pointer.split("/")[1:]:
        key = _key(step)
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = value[int(key)] if _INDEX.fullmatch(key) and int(key) < len(value) else None
        else:
            return None
    return value


def _key(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
