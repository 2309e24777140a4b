"""Finds the few of many things on which a computation fails, so that all others are computed without them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)
AnyT = TypeVar("AnyT")
ResultT = TypeVar("ResultT")
MOST_LEFT_OUT: Final = 10
"""Items on which a computation fails: it is no fault of theirs if there are more."""
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


def compute_without_failing(
    items: Sequence[ItemT], compute: Callable[[Collection[ItemT]], ResultT], of_others: tuple[type[Exception], ...]
) -> tuple[ResultT, dict[ItemT, str]]:
    """Return what `compute` makes without a few of the items, and why each is left out.

    compute: given the items that it is to do without. of_others: errors that are no item's fault, which are raised as
    is any other error if no few items explain it.
    """
    try:
        return compute(()), {}
    except of_others:
        raise
    except Exception as error:

        def works(without: Collection[ItemT]) -> bool:
            try:
                compute(without)
            except of_others:
                raise
            except Exception:  # noqa: BLE001 - it may be any error, and is what the search is for
                return False
            return True

        if not items or not works(items):
            raise
        found = failing_items(items, works)
        if len(found) > MOST_LEFT_OUT:
            raise
        return compute(found), dict.fromkeys(found, _why(error))


def take_each(items: Iterable[AnyT], take: Callable[[AnyT], object]) -> list[tuple[AnyT, str]]:
    """Take each item alone; return those on which that failed, and why."""
    failed = []
    for item in items:
        try:
            take(item)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it may be any error, of one item
            failed.append((item, _why(error)))
    return failed


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
