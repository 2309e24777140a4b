"""The paths at which two JSON documents differ, and how many of them to show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.base import measures


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Paths at which two JSON values differ; a list is one value unless its length stayed."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (first, second) in enumerate(zip(before, after, strict=True)):
            yield from differences(first, second, f"{path}[{index}]")
    elif before != after:
        yield path


def abbreviate_list(parts: list[str], most: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {measures.left_out_count(len(parts), most)} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more
