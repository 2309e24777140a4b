"""EDGE: the audit log in a bucket, for processes on several machines; and the one way to open and lock either kind.

    <address>/rows-<first row, 12 digits>.jsonl   a header line, then one row per line; the last object grows
    <address>/ledger.key                          the signing key, made once
    <address>/lock                                who acts now (`bucket_lease`)

Rows are those of the file (`ledger.Ledger`): the same hash over all earlier rows, the same signed head. An append
replaces the last object only as it was read, or creates the next one: when another process wrote meanwhile, also one
that took the lease over from a paused holder, it is refused and nothing is written. An append of several rows is one
write, so that readers see all of them or none.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import msgspec

from cotenant.base.errors import StoreConflict, StoreCorrupt, StoreError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.ledger.chain import (
    GENESIS,
    VERSION,
    Anchor,
    ChainVerification,
    LedgerRow,
    chain_rows,
    checked_key,
    new_key,
    signature_of,
)
from cotenant.base.ledger.ledger import Ledger, turn
from cotenant.base.store.buckets import INTERACTIVE, is_bucket
from cotenant.base.store.files import Folder

LedgerPlace = Path | str
"""A file, or an s3:// address."""
SEGMENT_BYTES: Final = 256 * 1024
"""An object of this size or more is not continued: it bounds what one append sends."""
_KEY: Final = "ledger.key"


def open_ledger(place: LedgerPlace, *, reading: bool = False) -> Ledger:
    """The ledger there; reading: neither makes nor locks anything. Errors as `Ledger`."""
    return Ledger(place, reading=reading) if isinstance(place, Path) else BucketLedger(place, reading=reading)


def ledger_turn(place: LedgerPlace, what: str, patience_seconds: float) -> AbstractContextManager[None]:
    """Be the only one who acts on that ledger; StoreBusy names who does when it is not free within so many seconds."""
    if isinstance(place, Path):
        return turn(place.with_suffix(".lock"), what, patience_seconds)
    return Folder(place, INTERACTIVE).exclusive("lock", what, patience_seconds)


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """One object: its mark in the bucket, its content, and the rows in it."""

    mark: str
    content: bytes
    rows: tuple[LedgerRow, ...]


class BucketLedger(Ledger):
    """A ledger in a bucket: its rows at the opening, and those that it has appended since. For one thread."""

    turn_lapses = True

    def __init__(self, url: str, *, reading: bool = False) -> None:
        """StoreForbidden, StoreCorrupt or StoreError when it cannot be read; nothing is overwritten."""
        if not is_bucket(url):
            raise StoreError(f"the ledger cannot be stored at {url}", fix="Name a file, or s3://bucket/folder.")
        self.path = url
        self._folder = Folder(url, INTERACTIVE)
        self._key = self._signing_key(reading)
        self._segments = _read(self._folder)
        self._rows = self._all_rows()

    def _signing_key(self, reading: bool) -> bytes:
        """The key there, or a new one; of several who make one at the same time the first one's stands."""
        key = self._folder.read(_KEY)
        if key is None and reading:
            return b""
        if key is None:
            key = new_key()
            try:
                self._folder.swap(_KEY, key, None)
            except StoreConflict:
                key = self._folder.read(_KEY) or b""
        return checked_key(key, self._folder.path(_KEY))

    def _all_rows(self) -> list[LedgerRow]:
        return [row for name in sorted(self._segments) for row in self._segments[name].rows]

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def append(self, seconds: float, actor: str, rows: Sequence[tuple[str, str, object]]) -> list[LedgerRow]:
        """Write (event, subject, body) rows, all or none; stored when it returns.

        StoreConflict when somebody else appended since this ledger was opened: nothing was written. Another StoreError
        when the bucket does not answer: whether the rows are stored is found out by opening the ledger again.
        """
        entries = chain_rows(self._key, self._last(), float(seconds), actor, rows)
        if not entries:
            return entries
        name = max(self._segments, default="")
        segment = self._segments.get(name)
        if segment is None or len(segment.content) >= SEGMENT_BYTES:
            name, segment = f"rows-{entries[0].seq:012d}.jsonl", None
        before = segment.content if segment else _line({"version": VERSION, "writer": secrets.token_hex(8)})
        content = before + b"".join(_line(astuple(entry)) for entry in entries)
        self._segments[name] = self._stored_segment(name, content, segment, entries)
        self._rows = self._all_rows()
        return entries

    def _stored_segment(
        self, name: str, content: bytes, segment: LedgerSegment | None, entries: Sequence[LedgerRow]
    ) -> LedgerSegment:
        """The object after writing this content, which continues the segment; StoreConflict when it was not written.

        A refused write was ours all the same when what is stored begins with it: its answer was lost, and somebody has
        appended since. No other writer's rows have the same moment, person and texts.
        """
        try:
            mark = self._folder.swap(name, content, segment.mark if segment else None)
        except StoreConflict:
            stored = self._folder.read_marked(name)
            if stored is None or not stored[0].startswith(content):
                raise
            return _decode_segment(self._folder.path(name), *stored)
        return LedgerSegment(mark, content, (*(segment.rows if segment else ()), *entries))

    def is_current(self) -> bool:
        """Ask the bucket whether its objects are those that this ledger has."""
        return _segment_marks(self._folder) == {name: segment.mark for name, segment in self._segments.items()}

    def entries(self, subject: str | None = None, after: int = 0) -> Iterator[LedgerRow]:
        """Rows in order, of one subject or of all, with a number above `after`."""
        return (row for row in self._rows if row.seq > after and (subject is None or row.subject == subject))

    def row(self, seq: int) -> LedgerRow | None:
        """One row; None when there is none of that number."""
        row = self._rows[seq - 1] if 0 < seq <= len(self._rows) else None
        return row if row is None or row.seq == seq else next((r for r in self._rows if r.seq == seq), None)

    def head(self) -> Anchor:
        """The signed head; seq 0 of an empty ledger."""
        seq, digest = self._last()
        return Anchor(seq, digest, signature_of(self._key, seq, digest))

    def _last(self) -> tuple[int, str]:
        return (self._rows[-1].seq, self._rows[-1].hash) if self._rows else (0, GENESIS)

    def verify(self, anchor: Anchor | None = None) -> ChainVerification:
        """Verify the chain as for a file; every object is read again."""
        self._segments = _read(self._folder, fresh=True)
        self._rows = self._all_rows()
        return super().verify(anchor)


_segments: dict[tuple[str, str], LedgerSegment] = {}
"""Objects that this process has read, by address and name: a ledger is opened for every click."""
_segments_lock = threading.Lock()


def _read(folder: Folder, *, fresh: bool = False) -> dict[str, LedgerSegment]:
    """The ledger's objects by name; one that has not changed since it was read is not read again."""
    segments: dict[str, LedgerSegment] = {}
    for name, mark in _segment_marks(folder).items():
        with _segments_lock:
            segment = _segments.get((folder.url, name))
        if fresh or segment is None or segment.mark != mark:
            stored = folder.read_marked(name)
            if stored is None:
                continue
            segment = _decode_segment(folder.path(name), *stored)
            with _segments_lock:
                _segments[folder.url, name] = segment
        segments[name] = segment
    return segments


def _segment_marks(folder: Folder) -> dict[str, str]:
    """The mark of each object with rows, by name."""
    marks = folder.marks("").items()
    return {name: mark for name, mark in marks if name.startswith("rows-") and name.endswith(".jsonl")}


class _Header(msgspec.Struct):
    version: int


def _decode_segment(path: str, content: bytes, mark: str) -> LedgerSegment:
    try:
        header, *lines = content.splitlines()
        if msgspec.json.decode(header, type=_Header).version > VERSION:
            raise StoreError(f"{path} was written by a newer version", fix="Use the version that wrote it.")
        kind = tuple[int, float, str, str, str, str, str, str]
        rows = tuple(LedgerRow(*msgspec.json.decode(line, type=kind)) for line in lines)
    except (ValueError, *UNDECODABLE) as error:
        raise StoreCorrupt(
            f"the ledger {path} is damaged: {error}",
            fix="Restore an earlier version of the object; nothing was written.",
        ) from error
    return LedgerSegment(mark, content, rows)


def _line(document: object) -> bytes:
    return msgspec.json.encode(document) + b"\n"
