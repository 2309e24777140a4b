"""EDGE: finds the items on which a computation fails or hangs, so that it runs without them.

What fails is found by halves. A process that stands still says nothing any more: each computation that is `Watched` is
noted where the note outlives the process, as the parts of its items that may be guilty, by the first characters of
their digests. The next process tries part after part, each with its note: from 10,000 items three processes find one.
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
"""Items that a computation does without although there are no others: it is no fault of theirs if there are more."""
MOST_TRIES: Final = 40
"""Parts that are added to the others; after that a part that fails is left out as a whole."""
MOST_SECONDS_OF_MANY: Final = 120.0
"""Of processor time for one computation: a hundred times what a decision about 5,000 nodes takes."""
AS_LONG: Final = 10.0
"""As long as without any item may it take with some, once it took too long."""
MOST_NAMED: Final = 16
"""Items that may be guilty and are noted each; of more all are."""
_EACH: Final = "*"  # the part of all items; a longer one has those whose digests begin so
_LONGEST: Final = 9  # characters of the smallest part: of a part of several items with one digest all are left out
_TOGETHER: Final = "+"  # noted before parts that are in the computation together; else the first one was added last
_NONE: Final = "-"  # noted, with the hour, while the computation is tried without all that may be guilty


@dataclass(frozen=True, slots=True)
class Watched(Generic[ItemT]):
    """A computation that is recorded as running."""

    name: str
    version_of: Callable[[ItemT], ObjectVersion]
    most_seconds: float = MOST_SECONDS_OF_MANY

    def note(self, parts: Iterable[str], is_suspect: bool = False) -> in_hand:
        """Return the note of a computation with the parts of its items that may be guilty."""
        return in_hand(self.thing(" ".join(parts)), self.most_seconds, is_suspect)

    def thing(self, parts: str = "") -> ObjectVersion:
        """The computation as a thing on which a process can stand still."""
        return ObjectVersion("computations", "", self.name, parts)

    def part_of(self, item: ItemT) -> str:
        """Return the key of the smallest part that contains the item: "*" and the digest of its name."""
        name = "/".join(self.version_of(item)[:3]).encode(errors="surrogatepass")
        return _EACH + b32encode(blake2b(name, digest_size=5).digest()).decode()

    def parts_of(self, changed: Collection[ItemT]) -> list[str]:
        """Return the parts that may be guilty where these items changed: they if they are few, else all."""
        few = 0 < len(changed) <= MOST_NAMED
        return [_TOGETHER, *(self.part_of(item) for item in changed)] if few else [_TOGETHER, _EACH]

    def stood_still(self) -> bool:
        """Return whether an earlier process hung in the computation; then call `standing_items`."""
        return bool(stood_still_on(self.thing())[0])


def standing_items(
    watched: Watched[ItemT],
    items: Collection[ItemT],
    compute: Callable[[Collection[ItemT]], object],
    of_others: tuple[type[Exception], ...],
) -> dict[ItemT, str]:
    """Return the items on which processes hung in a computation, and why each is left out.

    The search goes on where the last process stood still, which this one may do too. LeftOut, for an hour, where it
    stands still whatever items it is made without.
    """
    left = {item: why for item in items if (why := notes.reason(watched.version_of(item)))} if notes.left_out else {}
    stored, is_suspect = stood_still_on(watched.thing())
    if not stored:
        return left
    parts_of = {item: watched.part_of(item) for item in items}
    first, *parts = stored.split()
    if first == _TOGETHER and len(parts) == 1:
        first, *parts = parts

    def members(*parts: str) -> set[ItemT]:
        return {item for item, of in parts_of.items() if of.startswith(parts)} - left.keys()

    here = f"{_NONE}{SystemClock().now_seconds() // 3600:.0f}"
    if is_suspect or first == _TOGETHER:
        parts = [part for part in (first, *parts) if part.startswith(_EACH)]
    elif first == here and len(members(*parts)) == len(items) - len(left):
        raise LeftOut(notes.reason(watched.thing(stored)))
    elif first.startswith(_NONE):
        parts = [_EACH]
    elif len(guilty := members(first)) > 1 and len(first) < _LONGEST:
        parts = [*sorted({parts_of[item][: len(first) + 1] for item in guilty}), *parts]
    else:
        left |= {item: leave_out_standing(watched.version_of(item)) for item in guilty}
    for tried in ("", *parts):
        waiting = parts[parts.index(tried) :] if tried else [here, *parts]
        try:
            with watched.note(waiting, is_suspect=True):
                compute({*left, *(members(*waiting) - members(tried) if tried else members(*parts))})
        except Exception as error:
            if _is_of_others(error, of_others):
                raise  # else it ends at least: what it fails on is found by who asked
    notes.forget(watched.thing())
    return left


def failing_items(items: Sequence[ItemT], works: Callable[[Collection[ItemT]], bool]) -> set[ItemT]:
    """Return items without which the others can be computed together. works: whether it does without some items.

    Parts are tried without all others, the failing ones by halves: that costs as much as a few computations of all,
    however many fail. Then those that fail alone are added to the others, since they may but need them.
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
    """The second half, and then the first one; none of a single item, which was tried as a whole."""
    middle = len(items) // 2
    return [items[middle:], items[:middle]] if middle else []


def compute_without_failing(
    items: Sequence[ItemT],
    compute: Callable[[Collection[ItemT]], ResultT],
    of_others: tuple[type[Exception], ...],
    watched: Watched[ItemT] | None = None,
) -> tuple[ResultT, dict[ItemT, str]]:
    """Return what `compute` makes without some of the items, and why each is left out.

    compute: given the items that it is to do without. of_others: errors that are no item's fault, which are raised as
    is any other error if it fails on each item, or on none alone. watched: names it for who stands still in it.
    """
    left = {} if watched is None else standing_items(watched, items, compute, of_others)

    def compute_beside(without: Collection[ItemT]) -> ResultT:
        without = {*left, *without} if left else without
        if watched is None:
            return compute(without)
        with watched.note(watched.parts_of(())):
            return compute(without)

    try:
        return compute_beside(()), left
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
        found = failing_items(items, works) - left.keys()
        if len(found) > MOST_LEFT_OUT and isinstance(error, SlowObject):
            return compute(left), left  # all of it takes its time
        if len(found) > MOST_LEFT_OUT and len(found) == len(items) - len(left):
            raise
        return compute_beside(found), left | dict.fromkeys(found, _why(error))


def _is_of_others(error: Exception, of_others: tuple[type[Exception], ...]) -> bool:
    """Return whether it is no item's fault."""
    return isinstance(error, of_others) and not isinstance(error, SlowObject)


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
