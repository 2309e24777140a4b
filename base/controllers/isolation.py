"""Finds the few of many things on which a computation fails, so that all others are computed without them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)
MOST_TRIES: Final = 40
"""Parts that are tried alone; after that a part that fails is left out as a whole."""


def failing_items(items: Sequence[ItemT], works: Callable[[Collection[ItemT]], bool]) -> set[ItemT]:
    """Return items without which the others can be computed together. works: whether it does without some items.

    Parts are added to those that can, the failing ones by halves: a few among a thousand are found in some twenty tries
    each.
    """
    left_out, tries, parts = set(items), 0, _halves(items)
    while parts:
        part, tries = parts.pop(), tries + 1
        if works(left_out.difference(part)):
            left_out.difference_update(part)
        elif len(part) > 1 and tries < MOST_TRIES:
            parts += _halves(part)
    return left_out


def _halves(items: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """The second half, and then the first one; none of a single item, which was tried as a whole."""
    middle = len(items) // 2
    return [items[middle:], items[:middle]] if middle else []
