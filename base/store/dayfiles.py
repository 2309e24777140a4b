"""EDGE: the files of usage: one for each signal and UTC day, and next to it the parts that were appended since.

    usage/<signal>/2026-11-21.parquet               the day, as of the last compaction
    usage/<signal>/2026-11-21.part-000001.parquet   what was appended after it, in this order

Appending a block writes a part of the block's size; a day that grows by many blocks is rewritten only when it is
compacted, so that the cost of a day is a small multiple of its size. Merging is idempotent and a later file wins
(`days.merge_days`): a process that is killed at any moment leaves files with the same content as before. A compaction
replaces the day's file and then removes its parts, oldest first, because a part must never outlive a later one. Readers
read the parts before the day's file: a part that vanishes meanwhile is in the day's file that they read next.

In a bucket every write is conditional, because a lease may pass to another writer unnoticed: a part has a number that
nobody used before, and a compaction replaces the day's file only if it is the same as before the parts were read.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import structlog

from cotenant.base.errors import StoreConflict, StoreCorrupt, StoreError
from cotenant.base.store import days, parquet
from cotenant.base.store.days import Between, Day, Key, PartOfDay, SharedKeys, Slots
from cotenant.base.store.files import CheckedFolder, Opened
from cotenant.base.usage.usage import Signal

MOST_PARTS: Final = 32
"""Parts of a day from which on an append compacts it: bounds what a reader has to merge."""
OPENINGS: Final = 3
"""Most openings of a file that is replaced while it is read."""

ValueT = TypeVar("ValueT")
Listing = Mapping[int, tuple[str, ...]]
"""Parts by the day's midnight, oldest first; a day without parts has an empty tuple."""

_log = structlog.get_logger(__name__)


class DayFiles:
    """The usage files below one folder. A writer must hold the cluster's lock."""

    def __init__(self, files: CheckedFolder, root: str) -> None:
        """Create the access; `root` is the name of the folder that has one folder for each signal."""
        self._files, self._root = files, root
        self._shared_keys = SharedKeys()

    def listing(self, signal: Signal) -> dict[int, tuple[str, ...]]:
        """Return the stored days (midnight in Unix seconds), ascending, each with the names of its parts."""
        parts: dict[int, list[tuple[int, str]]] = {}
        for name in self._files.names(self.folder(signal)):
            file = days.file_of(name)
            if file is not None:
                start, number = file
                parts.setdefault(start, []).extend([(number, name)] if number else [])
        return {start: tuple(name for _, name in sorted(parts[start])) for start in sorted(parts)}

    def folder(self, signal: Signal) -> str:
        """Return the folder of a signal."""
        return f"{self._root}/{signal.value}"

    def append(self, signal: Signal, new: Iterable[tuple[int, PartOfDay]]) -> None:
        """Add series to days, given by their midnight (Unix seconds); days without series are skipped.

        A day that has a file gets a further part, which costs less than rewriting the file; MOST_PARTS are merged.
        """
        listing = self.listing(signal)
        for start, part in new:
            if not part.keys:
                continue
            parts = listing.get(start)
            name = days.day_name(start) if parts is None else days.part_name(start, self._next_number(parts))
            self._files.replace(f"{self.folder(signal)}/{name}", days.encode_pieces(signal, start, part), None)
            if parts is not None and len(parts) + 1 >= MOST_PARTS:
                self._compact(signal, start, (*parts, name))

    def compact(self, signal: Signal, most_parts_of_newest: int) -> None:
        """Merge all parts into their days' files; the newest day's only if it has more than `most_parts_of_newest`."""
        listing = self.listing(signal)
        for start, parts in listing.items():
            if len(parts) > (most_parts_of_newest if start == max(listing) else 0):
                self._compact(signal, start, parts)

    def _compact(self, signal: Signal, start_seconds: int, parts: tuple[str, ...]) -> None:
        """Rewrite the day's file from all of its files, then remove the parts; start again without a corrupt file.

        A corrupt file is set aside before anything is written.
        """
        name = f"{self.folder(signal)}/{days.day_name(start_seconds)}"
        guard = self._files.guard(name)
        merged = _MergedDay(self._files, self.folder(signal), signal, start_seconds, parts)
        try:
            if next(iter(merged), None) is not None:
                self._files.replace(name, days.encode_pieces(signal, start_seconds, merged), guard)
        except StoreCorrupt as error:
            _log.warning("store_day_lost", signal=signal.value, day=days.day_name(start_seconds), error=error.message)
            self._compact(signal, start_seconds, parts)
            return
        for part in parts:
            self._files.remove(f"{self.folder(signal)}/{part}")

    def _next_number(self, parts: tuple[str, ...]) -> int:
        """Return the newest part's number plus one; in a bucket a number from the clock that was never used."""
        newest = days.file_of(parts[-1]) if parts else None
        number = newest[1] + 1 if newest else 1
        return max(number, time.time_ns() // 1000) if self._files.shared else number

    def remove(self, signal: Signal, start_seconds: int, parts: tuple[str, ...]) -> None:
        """Remove a day's files, the oldest first."""
        for name in (days.day_name(start_seconds), *parts):
            self._files.remove(f"{self.folder(signal)}/{name}")

    def read(self, signal: Signal, start_seconds: int, parts: tuple[str, ...]) -> Day | None:
        """Return a day's series; None if there is no file, or if all were corrupt and were now set aside."""
        day_parts = self._decode_files(signal, start_seconds, parts, lambda b: days.decode(b, signal, start_seconds))
        return days.merge_days(day_parts) if day_parts else None

    def keys(self, signal: Signal, start_seconds: int, parts: tuple[str, ...]) -> tuple[Key, ...]:
        """Return the keys of a day's series, sorted, without reading the values."""
        key_sets = self._decode_files(
            signal, start_seconds, parts, lambda b: days.decode_keys(b, signal, start_seconds)
        )
        return key_sets[0] if len(key_sets) == 1 else tuple(sorted(set().union(*key_sets)))

    def read_between(self, signal: Signal, start_seconds: int, parts: tuple[str, ...], between: Between) -> Day | None:
        """Return a day's series of a range of keys, reading little else of its files; None if no file is readable."""

        def decode(file: parquet.File) -> Day:
            return days.decode_between(file, signal, start_seconds, between, self._shared_keys)

        day_parts = self._decode_each(signal, start_seconds, parts, decode)
        return days.merge_days(day_parts) if day_parts else None

    def slots(self, signal: Signal, start_seconds: int, parts: tuple[str, ...]) -> Slots | None:
        """Return the slots [first, end) of a day outside of which no series has a value; None if none has any.

        They are in the files' metadata: values are neither read nor checked, except in files without this metadata.
        """
        of_files = self._decode_each(
            signal, start_seconds, parts, lambda file: days.slots_of(file, signal, start_seconds)
        )
        spans = [(first, last) for first, last in of_files if first < last]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def _decode_files(
        self, signal: Signal, start_seconds: int, parts: tuple[str, ...], decode: Callable[[bytes], ValueT]
    ) -> list[ValueT]:
        """Return the decoded content of the day's files, oldest first."""

        def read(name: str) -> ValueT | None:
            path = f"{self.folder(signal)}/{name}"
            return _unless_corrupt(signal, name, lambda: self._files.decode_file(path, decode))

        return _read_each(read, start_seconds, parts)

    def _decode_each(
        self, signal: Signal, start_seconds: int, parts: tuple[str, ...], decode: Callable[[parquet.File], ValueT]
    ) -> list[ValueT]:
        """Return the results of `decode` for the day's files, opened but not read completely, oldest first."""
        return _read_each(lambda name: self._decode_file(signal, name, decode), start_seconds, parts)

    def _decode_file(self, signal: Signal, name: str, decode: Callable[[parquet.File], ValueT]) -> ValueT | None:
        """Return the result of `decode` for one file; None if the file is missing or corrupt.

        The content of a file that vanishes while it is read is in the day's file, which is read next; one that is
        replaced is opened again (StoreConflict after OPENINGS times).
        """
        for attempt in range(1, OPENINGS + 1):
            try:
                return self._decode_opened_file(signal, name, decode)
            except StoreConflict:
                if attempt == OPENINGS:
                    raise
        return None

    def _decode_opened_file(self, signal: Signal, name: str, decode: Callable[[parquet.File], ValueT]) -> ValueT | None:
        """Decode a file that is opened, but not read completely.

        A read that fails inside the Parquet library looks like a corrupt file, so `decode_checked` also gets the
        failure of the handle and does not set such a file aside.
        """
        path = f"{self.folder(signal)}/{name}"
        handle = self._files.open(path)
        if handle is None:
            return None

        def decode_handle() -> ValueT:
            return decode(parquet.open_parquet(handle))

        with handle:
            try:
                return _unless_corrupt(
                    signal, name, lambda: self._files.decode_checked(path, decode_handle, lambda: handle.failure)
                )
            except StoreError:
                if isinstance(handle.failure, FileNotFoundError):
                    return None
                raise


class _MergedDay:
    """The series of a day, merged from all of its files, one row group at a time; each iteration reads again."""

    def __init__(
        self, files: CheckedFolder, folder: str, signal: Signal, start_seconds: int, parts: tuple[str, ...]
    ) -> None:
        self._files, self._signal, self._start_seconds = files, signal, start_seconds
        self._paths = [f"{folder}/{name}" for name in reversed(_newest_first(start_seconds, parts))]

    def __iter__(self) -> Iterator[Day]:
        """Yield the series in the order of keys; raise StoreCorrupt for a file that was now set aside."""
        with ExitStack() as stack:
            files = []
            for path in self._paths:
                if (handle := self._open(path)) is not None:
                    stack.enter_context(handle)
                    files.append((path, handle, self._read(path, handle, partial(_with_firsts, handle))))
            firsts = max((firsts for _, _, (_, firsts) in files), key=len, default=())
            bounds = [None, *firsts[1:], None]
            for between in pairwise(bounds):
                shared = SharedKeys()
                pieces = [
                    self._read(path, handle, partial(self._decode, file, between, shared))
                    for path, handle, (file, _) in files
                ]
                if any(piece.keys for piece in pieces):
                    yield days.merge_days(pieces)

    def _decode(self, file: parquet.File, between: Between, shared: SharedKeys) -> Day:
        return days.decode_between(file, self._signal, self._start_seconds, between, shared)

    def _open(self, path: str) -> Opened | None:
        """Open a file; in a bucket read it completely, because each read is a request."""
        if not self._files.shared:
            return self._files.open(path)
        content = self._files.read(path)
        return None if content is None else Opened(io.BytesIO(content))

    def _read(self, path: str, handle: Opened, decode: Callable[[], ValueT]) -> ValueT:
        return self._files.decode_checked(path, decode, lambda: handle.failure)


def _with_firsts(handle: Opened) -> tuple[parquet.File, tuple[Key, ...]]:
    """Open a day's file and return it with the first key of each of its row groups."""
    file = parquet.open_parquet(handle)
    return file, days.first_keys(file)


def _read_each(read: Callable[[str], ValueT | None], start_seconds: int, parts: tuple[str, ...]) -> list[ValueT]:
    """Read those of a day's files that exist, the newest first, and return them oldest first."""
    values = [value for name in _newest_first(start_seconds, parts) if (value := read(name)) is not None]
    return values[::-1]


def _newest_first(start_seconds: int, parts: tuple[str, ...]) -> tuple[str, ...]:
    return (*reversed(parts), days.day_name(start_seconds))


def _unless_corrupt(signal: Signal, name: str, read: Callable[[], ValueT | None]) -> ValueT | None:
    """Return the result of `read`; log a warning and return None if the file had to be set aside."""
    try:
        return read()
    except StoreCorrupt as error:
        _log.warning("store_day_lost", signal=signal.value, day=name, error=error.message)
        return None
