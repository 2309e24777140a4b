"""EDGE: find the items on which a computation fails or hangs, so that it runs without them.

Items that fail are found by bisection. A process that hangs cannot report: a `Watched` computation is recorded, in a
note that outlives the process, with the groups of items that may be the cause (by the first characters of their
digests). The next process tries group after group, each with its note: of 10,000 items three processes find one.
"""

from __future__ import annotations

import time
from base64 import b32encode
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from cotenant.base.process.clock import SystemClock
from cotenant.base.process.in_hand import (
    MOST_SECONDS,
    LeftOut,
    ObjectVersion,
    SlowObject,
    in_hand,
    leave_out_standing,
    notes,
    stood_still_on,
)

ItemT = TypeVar("ItemT", bound=Hashable)
AnyT = TypeVar("AnyT")
ResultT = TypeVar("ResultT")
MOST_LEFT_OUT: Final = 10
"""Most items that are left out if all items fail; if there are more, the items are not the cause."""
MOST_TRIES: Final = 40
"""Parts that are added to the others; after that a part that fails is left out as a whole."""
MOST_SECONDS_OF_MANY: Final = 120.0
"""Limit of processor time for one computation: a hundred times that of a decision about 5,000 nodes."""
AS_LONG: Final = 10.0
"""After a computation took too long, its limit is this many times its time without any item."""
MOST_NAMED: Final = 16
"""Most suspected items that are noted one by one; if there are more, all items are noted."""
_EACH: Final = "*"  # the part of all items; a longer one has those whose digests begin so
_LONGEST: Final = 9  # characters of the smallest part: of a part of several items with one digest all are left out
_TOGETHER: Final = "+"  # noted before parts that are in the computation together; else the first one was added last
_NONE: Final = "-"  # noted, with the hour, while the computation is tried without all that may be guilty


@dataclass(frozen=True, slots=True)
class Watched(Generic[ItemT]):
    """A computation that is recorded while it runs, so that a later process knows if it hung."""

    name: str
    version_of: Callable[[ItemT], ObjectVersion]
    most_seconds: float = MOST_SECONDS_OF_MANY

    def note(self, parts: Iterable[str], is_suspect: bool = False) -> in_hand:
        """Return a context that records the computation with the groups of items that may make it hang."""
        return in_hand(self.thing(" ".join(parts)), self.most_seconds, is_suspect)

    def thing(self, parts: str = "") -> ObjectVersion:
        """Return the identity under which the computation is recorded."""
        return ObjectVersion("computations", "", self.name, parts)

    def part_of(self, item: ItemT) -> str:
        """Return the key of the smallest group that contains the item: "*" and the digest of the item's name."""
        name = "/".join(self.version_of(item)[:3]).encode(errors="surrogatepass")
        return _EACH + b32encode(blake2b(name, digest_size=5).digest()).decode()

    def parts_of(self, changed: Collection[ItemT]) -> list[str]:
        """Return the parts to suspect if the computation hangs: of a few changed items each, else that of all items."""
        few = 0 < len(changed) <= MOST_NAMED
        return [_TOGETHER, *(self.part_of(item) for item in changed)] if few else [_TOGETHER, _EACH]

    def stood_still(self) -> bool:
        """Return whether an earlier process hung in this computation; `standing_items` then finds the causes."""
        return bool(stood_still_on(self.thing())[0])


def standing_items(
    watched: Watched[ItemT],
    items: Collection[ItemT],
    compute: Callable[[Collection[ItemT]], object],
    of_others: tuple[type[Exception], ...],
) -> dict[ItemT, str]:
    """Return the items on which earlier processes hung in this computation, each with the reason to leave it out.

    If the last process hung, `compute`, which gets the items to leave out, tries group after group, and may hang again;
    of its errors only `of_others` are raised. Raise LeftOut for the rest of the hour if it hung without any of `items`.
    """
    left_out = (
        {item: why for item in items if (why := notes.reason(watched.version_of(item)))} if notes.left_out else {}
    )
    stored, is_suspect = stood_still_on(watched.thing())
    if not stored:
        return left_out
    parts_of = {item: watched.part_of(item) for item in items}
    first, *parts = stored.split()
    if first == _TOGETHER and len(parts) == 1:
        first, *parts = parts

    def members(*parts: str) -> set[ItemT]:
        return {item for item, of in parts_of.items() if of.startswith(parts)} - left_out.keys()

    here = f"{_NONE}{SystemClock().now_seconds() // 3600:.0f}"
    if is_suspect or first == _TOGETHER:
        parts = [part for part in (first, *parts) if part.startswith(_EACH)]
    elif first == here and len(members(*parts)) == len(items) - len(left_out):
        raise LeftOut(notes.reason(watched.thing(stored)))
    elif first.startswith(_NONE):
        parts = [_EACH]
    elif len(guilty := members(first)) > 1 and len(first) < _LONGEST:
        parts = [*sorted({parts_of[item][: len(first) + 1] for item in guilty}), *parts]
    else:
        left_out |= {item: leave_out_standing(watched.version_of(item)) for item in guilty}
    for tried in ("", *parts):
        waiting = parts[parts.index(tried) :] if tried else [here, *parts]
        try:
            with watched.note(waiting, is_suspect=True):
                compute({*left_out, *(members(*waiting) - members(tried) if tried else members(*parts))})
        except Exception as error:
            if _is_of_others(error, of_others):
                raise  # else it ends at least: what it fails on is found by who asked
    notes.forget(watched.thing())
    return left_out


def failing_items(items: Sequence[ItemT], works: Callable[[Collection[ItemT]], bool]) -> set[ItemT]:
    """Return a set of items without which the computation succeeds; `works` tests it without the given items.

    First, groups are tried alone, and groups that fail are halved, down to single items. Items that fail alone are then
    tried together with the others, which they may need. All this costs a few computations of all items, however many
    fail.
    """
    everything, alone, parts = set(items), list[ItemT](), _halves(items)
    while parts:
        if not works(everything.difference(part := parts.pop())):
            parts += _halves(part)
            alone += part if len(part) == 1 else ()
    suspects: Sequence[ItemT] = alone if works(set(alone)) else items
    left_out, tries, parts = set(suspects), 0, [suspects]
    while parts:
        part, tries = parts.pop(), tries + 1
        if works(left_out.difference(part)):
            left_out.difference_update(part)
        elif tries < MOST_TRIES:
            parts += _halves(part)
    return left_out


def _halves(items: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """Return the second half, then the first one; none for a single item, which was already tried."""
    middle = len(items) // 2
    return [items[middle:], items[:middle]] if middle else []


def compute_without_failing(
    items: Sequence[ItemT],
    compute: Callable[[Collection[ItemT]], ResultT],
    of_others: tuple[type[Exception], ...],
    watched: Watched[ItemT] | None = None,
) -> tuple[ResultT, dict[ItemT, str]]:
    """Return the result of `compute` without the items on which it fails, and why each of them is left out.

    `compute` gets the items to leave out. An error is raised if it is one of `of_others`, which are no item's fault, if
    it occurs without any item, too, or if each of many items causes it. `watched` records the computation in case it
    hangs.
    """
    left_out = {} if watched is None else standing_items(watched, items, compute, of_others)

    def compute_beside(without: Collection[ItemT]) -> ResultT:
        without = {*left_out, *without} if left_out else without
        if watched is None:
            return compute(without)
        with watched.note(watched.parts_of(())):
            return compute(without)

    try:
        return compute_beside(()), left_out
    except Exception as error:
        if _is_of_others(error, of_others):
            raise

        def works(without: Collection[ItemT]) -> bool:
            try:
                compute_beside(without)
            except Exception as other:
                if _is_of_others(other, of_others):
                    raise
                return False
            return True

        began = time.thread_time()
        if not items or not works(items):
            raise
        if watched is not None and isinstance(error, SlowObject):
            most = max(MOST_SECONDS, AS_LONG * (time.thread_time() - began))
            watched = replace(watched, most_seconds=min(watched.most_seconds, most))
        failing = failing_items(items, works) - left_out.keys()
        if len(failing) > MOST_LEFT_OUT and isinstance(error, SlowObject):
            return compute(left_out), left_out  # all of it takes its time
        if len(failing) > MOST_LEFT_OUT and len(failing) == len(items) - len(left_out):
            raise
        return compute_beside(failing), left_out | dict.fromkeys(failing, _why(error))


def _is_of_others(error: Exception, of_others: tuple[type[Exception], ...]) -> bool:
    """Return whether the error is no item's fault."""
    return isinstance(error, of_others) and not isinstance(error, SlowObject)


def take_each(items: Iterable[AnyT], take: Callable[[AnyT], object]) -> list[tuple[AnyT, str]]:
    """Call `take` for each item; return the items for which the call failed, each with the error's text."""
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
