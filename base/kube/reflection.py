"""The state of a mirrored collection: takes lists and events, returns the current items and what changed. Pure.

A resourceVersion is opaque: only equality decides what is already known. Numbers that decrease only raise a doubt, as
does a repeated event or one that fits no object; a doubt is settled by a new list, so that a watch which repeats or
reorders its events cannot leave a wrong state behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

ValueT = TypeVar("ValueT")
Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""

REMEMBERED: Final = 20_000
"""Overwritten versions that are recognised when they come again."""


class Item(NamedTuple, Generic[ValueT]):
    """One object at a version; `value` is None if the object is unreadable and therefore left out."""

    uid: str
    version: str
    value: ValueT | None


@dataclass(slots=True)
class Reflection(Generic[ValueT]):
    """The current objects of a collection, built from lists and watch events."""

    items: dict[Key, Item[ValueT]] = field(default_factory=dict)
    changed: set[Key] = field(default_factory=set)
    """Objects whose value differs from what was last drained by `take_changes`, or may do so."""
    doubt: bool = False
    """The stream said something that cannot be; only a list settles it."""
    _old: set[int] = field(default_factory=set)
    """Hashes of (uid, version), in half of the texts' memory. Two events with one hash, of 64 bits, cost a list."""
    _old_in_order: deque[int] = field(default_factory=deque)
    _highest: int = 0

    def replace(self, items: Mapping[Key, Item[ValueT]], version: str = "") -> None:
        """Replace all objects by a complete list; only those that differ are reported as changed."""
        for key, stored in self.items.items():
            now = items.get(key)
            if now is None or now.version != stored.version:
                self._remember(stored.uid, stored.version)
            if now is None:
                self._report(key, stored.value, None)
        for key, now in items.items():
            before = self.items.get(key)
            self._report(key, before.value if before else None, now.value, again=bool(before and before.uid != now.uid))
        self.items = dict(items)
        self.doubt = False
        self._highest = _number(version)

    def put(self, key: Key, item: Item[ValueT], added: bool) -> None:
        """Store the object of an ADDED or MODIFIED event; set `doubt` if the event contradicts the known state."""
        stored = self.items.get(key)
        if stored and (stored.uid, stored.version) == (item.uid, item.version):
            return
        if hash((item.uid, item.version)) in self._old:
            self.doubt = True
            return
        self._track_version(item.version)
        self.doubt |= stored is None and not added
        if stored:
            self._remember(stored.uid, stored.version)
        self.items[key] = item
        self._report(key, stored.value if stored else None, item.value, again=bool(stored and stored.uid != item.uid))

    def remove(self, key: Key, uid: str, version: str) -> None:
        """Remove the object of a DELETED event, which has the deletion's `version`; set `doubt` on a contradiction."""
        stored = self.items.get(key)
        if hash((uid, version)) in self._old or (stored and stored.uid != uid):
            self.doubt |= stored is not None
            return
        self._track_version(version)
        self._remember(uid, version)
        if stored is None:
            return
        self._remember(uid, stored.version)
        del self.items[key]
        self._report(key, stored.value, None)

    def take_changes(self) -> set[Key]:
        """Return the keys that changed since the last call, and clear them."""
        taken, self.changed = self.changed, set()
        return taken

    def _report(self, key: Key, before: ValueT | None, now: ValueT | None, again: bool = False) -> None:
        """Mark the key as changed; `again` means another object of the same name, a change even if it is equal."""
        if again or before != now:
            self.changed.add(key)

    def _track_version(self, version: str) -> None:
        number = _number(version)
        self.doubt |= 0 < number < self._highest
        self._highest = max(self._highest, number)

    def _remember(self, uid: str, version: str) -> None:
        event = hash((uid, version))
        if event in self._old:
            return
        self._old.add(event)
        self._old_in_order.append(event)
        if len(self._old) > REMEMBERED:
            self._old.remove(self._old_in_order.popleft())


def _number(version: str) -> int:
    """Return a version as a number; 0 if it does not look like one."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 25 else 0
