"""The state of a mirrored collection: takes lists and events, returns the current items and what changed. Pure.

API servers number what they write to a kind in ascending order, and a watch from a list's version sends it in that
order, once (Kubernetes' KEP 5504). So an event with a lower number raises a doubt, as does one that fits no object; a
new list settles it, so that a watch which repeats or reorders its events, as those from version 0 may
(kubernetes/kubernetes#74022), cannot leave a wrong state behind. Other versions are compared for equality alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

ValueT = TypeVar("ValueT")
Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


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
    """Keys of objects whose value differs, or may differ, from that at the last `take_changes`."""
    doubt: bool = False
    """True if the stream contradicted itself; only a new list resolves it."""
    _highest: int = 0

    def replace(self, items: Mapping[Key, Item[ValueT]], version: str = "") -> None:
        """Replace all objects by a complete list; only objects that differ from the previous ones count as changed."""
        for key, stored in self.items.items():
            if key not in items:
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
        if self._goes_back(item.version):
            return
        self.doubt |= stored is None and not added
        self.items[key] = item
        self._report(key, stored.value if stored else None, item.value, again=bool(stored and stored.uid != item.uid))

    def remove(self, key: Key, uid: str, version: str) -> None:
        """Remove the object of a DELETED event, which has the deletion's `version`; set `doubt` on a contradiction."""
        stored = self.items.get(key)
        if stored and stored.uid != uid:
            self.doubt = True
        elif not self._goes_back(version) and stored:
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

    def _goes_back(self, version: str) -> bool:
        """Return whether an event's version is below one that was seen, which raises a doubt."""
        number = _number(version)
        back = 0 < number < self._highest
        self.doubt |= back
        self._highest = max(self._highest, number)
        return back


def _number(version: str) -> int:
    """Return a version as a number; 0 if it does not look like one."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 25 else 0
