"""The objects, their versions and their changes: one version counter, a bounded history, and the watches that read it.

Objects are never changed in place, so that a reader's object stays as it was. Everything here holds one lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from queue import SimpleQueue
from typing import Final, TypeAlias

from cotenant_lab.simulation.api_server.refusal import expired_refusal
from cotenant_lab.simulation.api_server.schema import Json

Collection: TypeAlias = tuple[str, str]
"""(API group, plural)."""
Key: TypeAlias = tuple[str, str]
"""(namespace, name)."""
KEEP: Final = 20_000


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One write: `before` is None for a creation, `after` None for a deletion."""

    version: int
    collection: Collection
    key: Key
    before: Json | None
    after: Json | None


Feed: TypeAlias = "SimpleQueue[StoredChange | None]"
"""Changes in order; None ends it."""


class ObjectState:
    """All objects of one server."""

    def __init__(self, keep: int = KEEP) -> None:
        """Empty, remembering the last `keep` changes."""
        self.lock = threading.RLock()
        self.version = 1
        self._objects: dict[Collection, dict[Key, Json]] = {}
        self._history: deque[StoredChange] = deque()
        self._changed: dict[Collection, int] = {}
        self._keep = keep
        self._oldest = 1
        self._feeds: set[tuple[Collection, Feed]] = set()

    def get(self, collection: Collection, key: Key) -> Json | None:
        """Return the present object, or None."""
        return self._objects.get(collection, {}).get(key)

    def items(self, collection: Collection) -> list[tuple[Key, Json]]:
        """Return all present objects of a collection with their keys."""
        return list(self._objects.get(collection, {}).items())

    def changed(self, collection: Collection) -> int:
        """Return the version of the collection's last change; 0 if it has not changed since the start."""
        return self._changed.get(collection, 0)

    def put(self, collection: Collection, key: Key, item: Json) -> Json:
        """Store a new or changed object under the next version; return it with its resourceVersion."""
        with self.lock:
            self.version += 1
            stored = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            objects = self._objects.setdefault(collection, {})
            self._record(StoredChange(self.version, collection, key, objects.get(key), stored))
            objects[key] = stored
            return stored

    def remove(self, collection: Collection, key: Key) -> None:
        """Remove an object, under the next version."""
        with self.lock:
            self.version += 1
            removed = self._objects[collection].pop(key)
            self._record(StoredChange(self.version, collection, key, removed, None))

    def at(self, collection: Collection, version: int) -> dict[Key, Json]:
        """Return the collection as it was at a version; raise Refusal (410) if the history no longer has it."""
        with self.lock:
            self._require(version)
            items = dict(self._objects.get(collection, {}))
            for change in takewhile(lambda change: change.version > version, reversed(self._history)):
                if change.collection == collection and change.before is None:
                    items.pop(change.key, None)
                elif change.collection == collection and change.before is not None:
                    items[change.key] = change.before
            return items

    def subscribe(self, collection: Collection, since: int) -> tuple[Feed, Callable[[], None]]:
        """Return a feed of the collection's changes after a version, and a function that ends it; 410 if too old."""
        with self.lock:
            self._require(since)
            feed: Feed = SimpleQueue()
            later = takewhile(lambda change: change.version > since, reversed(self._history))
            for change in reversed([change for change in later if change.collection == collection]):
                feed.put(change)
            self._feeds.add((collection, feed))

        def end() -> None:
            with self.lock:
                self._feeds.discard((collection, feed))

        return feed, end

    def compact(self) -> None:
        """Delete all history: continue tokens and watches of older versions get 410."""
        with self.lock:
            self._history.clear()
            self._oldest = self.version

    def end_watches(self) -> None:
        """End every watch, as a server does when it stops."""
        with self.lock:
            for _, feed in self._feeds:
                feed.put(None)

    def contents(self) -> dict[Collection, list[Json]]:
        """Return all objects by collection, for a snapshot."""
        with self.lock:
            return {collection: list(items.values()) for collection, items in self._objects.items()}

    def restore(self, version: int, contents: dict[Collection, list[Json]]) -> None:
        """Begin with the objects and the version of a snapshot."""
        with self.lock:
            self.version = self._oldest = version
            for collection, items in contents.items():
                pairs = ((item["metadata"], item) for item in items)
                self._objects[collection] = {(at.get("namespace", ""), at["name"]): item for at, item in pairs}

    def _require(self, version: int) -> None:
        if version < self._oldest:
            raise expired_refusal(version, self._oldest)

    def _record(self, change: StoredChange) -> None:
        self._history.append(change)
        self._changed[change.collection] = change.version
        while len(self._history) > self._keep:
            self._oldest = self._history.popleft().version
        for collection, feed in self._feeds:
            if collection == change.collection:
                feed.put(change)
