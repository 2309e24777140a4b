"""EDGE: mirror one collection of the API server in memory: a paginated list, then a watch, in its own thread.

Decisions read snapshots of mirrors and never query the API server themselves. A mirror never gives up: it lists again
when the server has forgotten its version (410), when the watch is silent or doubtful, and after every failure with a
growing pause; `error` and `age_seconds` tell how reliable the content is. A missing right or CRD is retried slowly.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
import structlog

from cotenant.base.errors import ClusterAbsent, ClusterError, ClusterExpired, ClusterForbidden, CotenantError
from cotenant.base.json_documents.json_decoders import decode_shallow, decoder_of, make_ready
from cotenant.base.kube.client import KubeClient
from cotenant.base.kube.connection import Stream
from cotenant.base.kube.reflection import Item, Key, Reflection
from cotenant.base.kubernetes.models.metadata import ObjectIdentity
from cotenant.base.process.in_hand import ObjectVersion, in_hand

RELIST_SECONDS: Final = 3600.0
"""Interval at which a mirror is compared with a fresh list, in case the watch lost an event."""

ValueT = TypeVar("ValueT")

FIRST_PAUSE_SECONDS: Final = 0.25
WATCH_SECONDS: Final = (300, 600)
"""Requested duration of a watch; spread, so that not all end at once."""
RELIST_AFTER: Final = 5
"""Silent watches in a row: our version may be newer than a restored etcd snapshot."""
SILENT_WATCHES: Final = 3
"""Accepted, silent watches in a row: a proxy may drop the server's events, so a list follows."""
RENEWAL_SHARE: Final = 0.75
"""Share of the time after which the mirror counts as stale: a silent watch is restarted before that."""
SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner without a message was probably closed by something that will close the next one, too."""
GONE: Final = 410
LONGEST_WHY: Final = 300
"""Most characters of the reason why an object is left out, which may contain text that a person wrote."""
log = structlog.get_logger(__name__)


class _Head(msgspec.Struct):
    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _WatchStatus(msgspec.Struct):
    code: int = 0
    message: str = ""


def read_each(
    client: KubeClient, path: str, kind: Any, project: Callable[[Any], ValueT], **query: str
) -> tuple[dict[Key, ValueT], dict[Key, str]]:
    """Read a collection once: its values by (namespace, name), and the reason for each object that is left out.

    `kind` decodes an object and `project` makes its value; it is left out if either fails. `query` has labelSelector
    and fieldSelector. Raise ClusterError if the collection cannot be listed.
    """
    values: dict[Key, ValueT] = {}
    refused: dict[Key, str] = {}
    for page in client.pages(
        path, msgspec.Raw, limit=None, **query
    ):  # page by page, so that their JSON is not all in memory
        if page is None:
            values.clear()
            refused.clear()
            continue
        for raw in page.items or ():
            meta = decoder_of(_Head).decode(raw).metadata
            try:
                values[meta.key] = _value_of(path, meta, raw, kind, project)
            except UnreadableObject as error:
                refused[meta.key] = str(error)[:LONGEST_WHY]
    return values, refused


class _CutWatchError(ClusterError):
    """The connection of a watch was broken: by a balancer that drops quiet ones, a server that restarts, or a fault."""


class UnreadableObject(Exception):
    """The reason why one object is unreadable, without the object's name."""


def _value_of(
    path: str, meta: ObjectIdentity, raw: msgspec.Raw, kind: Any, project: Callable[[Any], ValueT] | None
) -> ValueT:
    """Return the value of one object; raise UnreadableObject for any failure, which must not hide all other objects."""
    try:
        with in_hand(ObjectVersion(path, *meta.key, f"{meta.uid}/{meta.resource_version}")):
            thing = decoder_of(kind).decode(raw)
            value: ValueT = project(thing) if project else thing
    except CotenantError as error:
        raise UnreadableObject(str(error)) from error
    except Exception as error:
        raise UnreadableObject(f"{type(error).__name__}: {error}") from error
    return value


class Mirror(Generic[ValueT]):
    """A collection that is kept up to date in memory; every method may be called from any thread.

    An object is decoded into `kind`, which has only the fields that are read, and `project` makes the value that is
    kept of it; an object on which either fails is left out and listed in `refusals`. `wake` is set at each change;
    several mirrors may share it. Events may wait `gather_seconds` to be handled together. `query` has labelSelector and
    fieldSelector.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        kind: Any = dict[str, Any],
        project: Callable[[Any], ValueT] | None = None,
        wake: threading.Event | None = None,
        gather_seconds: float = 0.0,
        **query: str,
    ) -> None:
        """Create a mirror; nothing is requested before `start`, and the caller remains responsible for `client`."""
        self.path = path
        self.lists = 0
        """Complete lists so far."""
        self.error: CotenantError | None = None
        """The error because of which the mirror is not up to date, or None."""
        self._refused: dict[Key, str] = {}
        self._hidden = threading.local()
        self._client = client.sibling()
        self._settings = client.settings
        self._kind = kind
        self._project = project
        self._wake = wake
        self._gather_seconds = gather_seconds
        self._query = query
        self._jitter = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._lock = threading.Lock()
        self._state: Reflection[ValueT] = Reflection()
        self._copy: Mapping[Key, ValueT] | None = None
        self._synced, self._stopping = threading.Event(), threading.Event()
        self._stream: Stream | None = None
        self._version = ""
        self._idle_seconds = self._settings.watch_idle_seconds
        self._fresh_at = -float("inf")
        self._failures, self._silent, self._broken = 0, 0, False
        self._thread = threading.Thread(target=self._run, name=f"mirror {path}", daemon=True)

    def renew_within(self, stale_seconds: float) -> None:
        """Let a silent watch restart before its content is older than `stale_seconds`; call this before `start`.

        A server need not send a bookmark more often than every two minutes.
        """
        self._idle_seconds = min(self._idle_seconds, RENEWAL_SHARE * stale_seconds)

    def start(self) -> None:
        """Begin to list and watch."""
        make_ready()
        self._thread.start()

    def list_once(self) -> None:
        """List the collection once in the caller's thread, in place of `start`; raise ClusterError if that fails.

        An object whose version is already known is not decoded again.
        """
        self._list(self._state.items)
        self.error = None

    def confirm(self) -> None:
        """Mark the content as fresh; for a caller of `list_once` that knows that nothing was written since the list."""
        self._fresh_at = time.monotonic()

    def stop(self) -> None:
        """End the watch and its thread."""
        self._stopping.set()
        if stream := self._stream:
            stream.stop()
        if self._thread.is_alive():
            self._thread.join(2 * self._settings.timeout_seconds)

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first list; return whether it is complete."""
        return self._synced.wait(timeout_seconds)

    @property
    def refusals(self) -> Mapping[Key, str]:
        """The existing objects that are not in the snapshot, and why: unreadable, or hidden from this thread."""
        return {**self._refused.copy(), **self._hidden_keys}

    @contextmanager
    def hide(self, keys: Mapping[Key, str]) -> Iterator[None]:
        """Hide these objects from this thread's snapshots, each for a reason."""
        before, self._hidden.keys = self._hidden_keys, keys
        try:
            yield
        finally:
            self._hidden.keys = before

    @property
    def _hidden_keys(self) -> Mapping[Key, str]:
        return getattr(self._hidden, "keys", MappingProxyType({}))

    def snapshot(self) -> Mapping[Key, ValueT]:
        """Return all objects but hidden ones by (namespace, name), as a mapping that later changes do not touch."""
        with self._lock:
            if self._copy is None:
                items = self._state.items.items()
                self._copy = MappingProxyType({key: i.value for key, i in items if i.value is not None})
            copy = self._copy
        hidden = self._hidden_keys
        return MappingProxyType({key: v for key, v in copy.items() if key not in hidden}) if hidden else copy

    def changes(self) -> set[Key]:
        """Return the keys of objects that were added, removed or changed (their decoded value) since the last call."""
        with self._lock:
            return self._state.take_changes()

    def changed(self) -> dict[Key, ValueT | None]:
        """Return `changes` as a mapping to the objects' current values, None if vanished or unreadable."""
        with self._lock:
            items = self._state.items
            return {key: items[key].value if key in items else None for key in self._state.take_changes()}

    def versions(self, keys: Collection[Key]) -> list[ObjectVersion]:
        """Return the current versions of these objects, except deleted and unreadable ones."""
        with self._lock:
            items = [(key, self._state.items[key]) for key in keys if key in self._state.items]
        return [ObjectVersion(self.path, *key, f"{i.uid}/{i.version}") for key, i in items if i.value is not None]

    def version(self, key: Key) -> ObjectVersion:
        """Return the current version of an object; an empty version if the object is deleted or unreadable."""
        return next(iter(self.versions([key])), ObjectVersion(self.path, *key, ""))

    def age_seconds(self) -> float:
        """Return the seconds since the server last sent an event, a bookmark or a list, or accepted the watch.

        A quiet kind has no events, and the server decides when it sends bookmarks. A watch that the server accepts at
        the known version shows that it will send every change since that version.
        """
        return time.monotonic() - self._fresh_at

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._list()
                self._follow()
            except CotenantError as error:
                self._pause(error)
            except Exception as error:  # noqa: BLE001 - a mirror that dies silently would serve the past for ever
                self._pause(ClusterError(f"{self.path}: {type(error).__name__}: {error}"))
        self._client.close()

    def _pause(self, error: CotenantError) -> None:
        """Store the error, then wait: long for a kind that is not installed, else longer after each failure."""
        if not isinstance(error, ClusterExpired):
            self.error = error
        longest = self._settings.watch_backoff_seconds
        # a missing right too is asked for soon again at first: a server that restarts knows no rights for a moment
        slow = isinstance(error, ClusterAbsent)
        wait = longest if slow else min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 20))
        self._failures += 1
        self._stopping.wait(wait * (0.5 + 0.5 * self._jitter.random()))

    def _list(self, previous: Mapping[Key, Item[ValueT]] = MappingProxyType({})) -> None:
        """Replace the content by a complete list; an object of `previous` of the same version keeps its value."""
        items: dict[Key, Item[ValueT]] = {}
        refused: dict[Key, str] = {}
        version = ""
        for page in self._client.pages(self.path, msgspec.Raw, limit=None, **self._query):
            if page is None:
                items.clear()
                refused.clear()
                continue
            version = page.version
            for raw in page.items or []:
                meta = decoder_of(_Head).decode(raw).metadata
                before = previous.get(meta.key)
                is_known = before is not None and (before.uid, before.version) == (meta.uid, meta.resource_version)
                if before is not None and is_known and before.value is not None:
                    items[meta.key] = before
                else:
                    items[meta.key] = Item(meta.uid, meta.resource_version, self._value(meta, raw, refused))
        with self._lock:
            self._state.replace(items, version)
            self._refused = refused
            self._note_change()
        self._version = version
        self._silent, self._broken = 0, False
        self.lists += 1
        self._fresh_at = time.monotonic()
        self._synced.set()

    def _follow(self) -> None:
        """Watch, and reconnect as long as the server knows the version; return if a new list is needed."""
        due = time.monotonic() + RELIST_SECONDS
        while not self._stopping.is_set() and time.monotonic() < due and self._silent < SILENT_WATCHES:
            try:
                self._watch(due)
            except (ClusterExpired, ClusterForbidden, ClusterAbsent):
                raise
            except ClusterError as error:
                if self._failures >= RELIST_AFTER:
                    raise
                self._broken = True
                self._pause(error)
            if self._state.doubt:
                raise ClusterError(f"{self.path}: the watch repeats events or sends them out of order")

    def _watch(self, due: float) -> None:
        """Run one watch until the server ends it or is silent; raise ClusterError if it breaks or contradicts itself.

        A silent watch, or a long one that is cut, is no error: the next watch shows whether the server is reachable.
        """
        if self._broken:
            # After a break, ClusterExpired if the server's version is older than ours: its etcd was restored. From a
            # version of its future a server sends nothing until it has written as much again, and says no word of it.
            page = next(page for page in self._client.pages(self.path, msgspec.Raw, limit=1, **self._query) if page)
            self._broken = False
            if page.version.isdecimal() and self._version.isdecimal() and int(page.version) < int(self._version):
                raise ClusterExpired(
                    f"{self.path}: the API server is at version {page.version}, but {self._version} was already read: "
                    f"its etcd was restored from an earlier state"
                )
        lasting = max(1, min(self._jitter.randint(*WATCH_SECONDS), int(due - time.monotonic())))
        parameters = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        query = urlencode({**self._query, **parameters, "timeoutSeconds": str(lasting)})
        self._stream = stream = self._client.stream(f"{self.path}?{query}", self._idle_seconds)
        accepted, before, self.error = time.monotonic(), self._fresh_at, None
        self._fresh_at = accepted
        end: ClusterError | None = None
        try:
            self._read_quietly(stream)
        except ClusterError as error:
            end = error
        finally:
            self._stream = None
            self._client.close()
        silent = self._fresh_at == accepted
        if time.monotonic() - accepted >= min(SHORT_SECONDS, lasting, self._idle_seconds):
            self._failures = 0
            self._silent += silent
            if isinstance(end, _CutWatchError):
                self._broken, end = True, None
        elif silent and not self._stopping.is_set():
            # what was taken up and failed without a word was not followed from there
            self._fresh_at = before
            end = end or ClusterError(f"{self.path}: the server closed the watch at once, without an error")
        if end is not None:
            raise end

    def _read_quietly(self, stream: Stream) -> None:
        """Handle events until the server ends the watch or is silent; ClusterError if it breaks without `stop`."""
        try:
            if not self._stopping.is_set():
                self._read(stream)
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._stopping.is_set():
                kind = ClusterError if isinstance(error, ValueError) else _CutWatchError
                raise kind(f"{self.path}: the watch's connection broke: {error or type(error).__name__}") from error

    def _read(self, stream: Stream) -> None:
        for line in stream.lines(self._gather_seconds):
            event = decode_shallow(decoder_of(_Event), line)
            if event.type == "ERROR":
                status = decoder_of(_WatchStatus).decode(event.object)
                kind = ClusterExpired if status.code == GONE else ClusterError
                raise kind(f"watch {self.path}: {status.code}: {status.message}")
            # Apply an event or bookmark to the copy, then remember its version, from which the next watch goes on.
            meta = decoder_of(_Head).decode(event.object).metadata
            if event.type == "DELETED":
                with self._lock:
                    self._refused.pop(meta.key, None)
                    self._state.remove(meta.key, meta.uid, meta.resource_version)
                    self._note_change()
            elif event.type != "BOOKMARK":
                value = self._value(
                    meta, event.object, self._refused
                )  # it may take its time; readers wait for the lock
                with self._lock:
                    self._state.put(meta.key, Item(meta.uid, meta.resource_version, value), added=event.type == "ADDED")
                    self._note_change()
            self._version = meta.resource_version or self._version
            if self._state.doubt:
                return
            self._fresh_at = time.monotonic()
            self._failures, self._silent = 0, 0

    def _value(self, meta: ObjectIdentity, raw: msgspec.Raw, refused: dict[Key, str]) -> ValueT | None:
        try:
            value: ValueT = _value_of(self.path, meta, raw, self._kind, self._project)
        except UnreadableObject as error:
            why = str(error)[:LONGEST_WHY]
            if why != self._refused.get(meta.key):
                log.warning("an object is left out", object="/".join((self.path, *meta.key)), why=why)
            refused[meta.key] = why
            return None
        refused.pop(meta.key, None)
        return value

    def _note_change(self) -> None:
        if self._state.changed:
            self._copy = None
            if self._wake:
                self._wake.set()
