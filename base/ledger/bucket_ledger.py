"""EDGE: the audit log in a bucket, for processes on several machines; and the functions that open and lock either kind.

    <address>/rows-<first row, 12 digits>.jsonl   a header line, then one row per line; the last object grows
    <address>/ledger.key                          the signing key, made once
    <address>/lock                                who acts now (`bucket_lease`)

Rows are those of the file (`ledger.Ledger`): the same hash over all earlier rows, the same signed head. An append
replaces the last object only if it is unchanged since it was read, or creates the next one: if another process wrote
meanwhile, even one that took the lease over from a paused holder, it is refused and nothing is written. An append of
several rows is one write, so that readers see all of them or none.
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
    """Open the ledger at this place; with `reading`, create and lock nothing; raise StoreError if that fails."""
    return Ledger(place, reading=reading) if isinstance(place, Path) else BucketLedger(place, reading=reading)


def ledger_turn(place: LedgerPlace, what: str, patience_seconds: float) -> AbstractContextManager[None]:
    """Hold the exclusive right to act on a ledger; raise StoreBusy, naming its holder, after `patience_seconds`."""
    if isinstance(place, Path):
        return turn(place.with_suffix(".lock"), what, patience_seconds)
    return Folder(place, INTERACTIVE).exclusive("lock", what, patience_seconds)


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """One object of a bucket's ledger: its mark (entity tag), its content, and the rows in it."""

    mark: str
    content: bytes
    rows: tuple[LedgerRow, ...]


class BucketLedger(Ledger):
    """A ledger in a bucket: the rows at the time of opening, and those appended through it since; for one thread."""

    turn_lapses = True

    def __init__(self, url: str, *, reading: bool = False) -> None:
        """Read the ledger; raise StoreForbidden, StoreCorrupt or StoreError if that fails; nothing is overwritten."""
        if not is_bucket(url):
            raise StoreError(f"the ledger cannot be stored at {url}", fix="Name a file, or s3://bucket/folder.")
        self.path = url
        self._folder = Folder(url, INTERACTIVE)
        self._key = self._signing_key(reading)
        self._segments = _read(self._folder)
        self._rows = self._all_rows()

    def _signing_key(self, reading: bool) -> bytes:
        """Return the stored key or create one; if several processes create it at once, the first one's counts."""
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
        """Write rows (event, subject, body), all or none, and return them; they are stored when it returns.

        Raise StoreConflict if another process appended since this ledger was opened: nothing was written. Raise another
        StoreError if the bucket does not respond: opening the ledger again shows whether the rows are stored.
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
        """Write this content, which continues the segment, and return the new segment; StoreConflict if it was refused.

        A refused write succeeded all the same if the stored content begins with it: its response was lost, and another
        process has appended since. No other writer's rows have the same time, actor and texts.
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
        """Return whether the bucket still has exactly the objects that this ledger has read."""
        return _segment_marks(self._folder) == {name: segment.mark for name, segment in self._segments.items()}

    def entries(self, subject: str | None = None, after: int = 0) -> Iterator[LedgerRow]:
        """Yield the rows in order, of one subject or of all, with a number above `after`."""
        return (row for row in self._rows if row.seq > after and (subject is None or row.subject == subject))

    def row(self, seq: int) -> LedgerRow | None:
        """Return the row with this number, or None."""
        row = self._rows[seq - 1] if 0 < seq <= len(self._rows) else None
        return row if row is None or row.seq == seq else next((r for r in self._rows if r.seq == seq), None)

    def head(self) -> Anchor:
        """Return the signed head; its `seq` is 0 if the ledger is empty."""
        seq, digest = self._last()
        return Anchor(seq, digest, signature_of(self._key, seq, digest))

    def _last(self) -> tuple[int, str]:
        return (self._rows[-1].seq, self._rows[-1].hash) if self._rows else (0, GENESIS)

    def verify(self, anchor: Anchor | None = None) -> ChainVerification:
        """Read every object again, verify the whole chain, and compare it with a head that was kept elsewhere."""
        self._segments = _read(self._folder, fresh=True)
        self._rows = self._all_rows()
        return super().verify(anchor)


_segments: dict[tuple[str, str], LedgerSegment] = {}
"""Objects that this process has read, by address and name: a ledger is opened for every click."""
_segments_lock = threading.Lock()


def _read(folder: Folder, *, fresh: bool = False) -> dict[str, LedgerSegment]:
    """Return the ledger's objects by name; an unchanged object is not read again."""
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
    """Return the mark of each object with rows, by name."""
    marks = folder.marks("").items()
    return {name: mark for name, mark in marks if name.startswith("rows-") and name.endswith(".jsonl")}


class _Header(msgspec.Struct):
    version: int


def _decode_segment(path: str, content: bytes, mark: str) -> LedgerSegment:
    try:
        header, *lines = content.splitlines()
        if msgspec.json.decode(header, type=_Header).version > VERSION:
            raise StoreError(f"{path} was written by a newer version", fix="Use the cotenant that wrote it.")
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
