"""EDGE: the audit log: append-only rows in SQLite, each with a hash over all earlier rows.

A row is on disk before the cluster is changed (WAL, synchronous=FULL). Rows are never changed: triggers refuse it, and
the chain of keyed hashes (`chain`) reveals a change that bypassed them. A chain that was cut, or rewritten by somebody
who has its key, is consistent in itself: therefore its signed head is anchored elsewhere (`Anchor`), and compared. One
process writes at a time; others wait for `BUSY_SECONDS`. A process that acts on a ledger's file holds its lock
(`turn`): the kernel's lock on a file next to it, whose text is for people only and names the holder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from cotenant.base.errors import StoreBusy, StoreCorrupt, StoreError, StoreForbidden
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
    verify_chain,
)
from cotenant.base.process.files import FOLDER_MODE, LOCAL_OR_BUCKET, make_private_file, restrict_permissions, try_lock

BUSY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY, seconds REAL NOT NULL, actor TEXT NOT NULL, event TEXT NOT NULL, subject TEXT NOT NULL,
    body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""
_COLUMNS: Final = "seq, seconds, actor, event, subject, body, previous, hash"


class Ledger:
    """An audit log in an SQLite file, created with its key if there is none; for one thread.

    `bucket_ledger.BucketLedger` keeps the same rows in a bucket; `bucket_ledger.open_ledger` opens either.
    """

    path: Path | str
    turn_lapses: ClassVar[bool] = False
    """True if a process that pauses may lose its turn (`bucket_ledger.ledger_turn`) and continue without noticing."""
    _key: bytes

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        """Open the ledger; raise StoreForbidden, StoreCorrupt or StoreError if that fails; nothing is overwritten.

        With `reading`, nothing is created or locked, and a missing file is an empty ledger.
        """
        self.path = self._file = path
        key = path.with_suffix(".key")
        with _translate_errors(path):
            if reading:
                self._key = key.read_bytes() if key.exists() else b""
                self._db = self._read_only()
                return
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            make_private_file(path)
            for name in ("-wal", "-shm"):  # SQLite makes new ones with the mode of the file
                restrict_permissions(path.with_name(path.name + name))
            self._key = _key(key)
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._known_version(self._db)
            self._write_ahead()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA + f"PRAGMA user_version={VERSION};")

    def _read_only(self) -> sqlite3.Connection:
        """Return a connection that cannot write."""
        if not self._file.exists():
            return _empty()
        address = f"{self._file.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
        self._known_version(connection)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone():
            return connection
        connection.close()  # somebody is making it at this moment
        return _empty()

    def _known_version(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreError(
                f"the ledger {self.path} has version {version}; this cotenant knows version {VERSION}. "
                "Nothing was changed",
                fix="Use the cotenant that wrote the ledger or a newer one, or name another file in actions.ledger.",
            )

    def _write_ahead(self) -> None:
        """Turn on WAL with retries: SQLite itself does not wait if another process is creating the file."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError:
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def close(self) -> None:
        """Close the file; an open ledger is consistent at any time."""
        self._db.close()

    @property
    def id(self) -> str:
        """The identifier of the ledger, a digest of its key: a new file with the same key has the same identifier."""
        return hashlib.sha256(b"ledger " + self._key).hexdigest()[:12]

    def is_current(self) -> bool:
        """Return whether no other process has appended since the ledger was opened; StoreError if that is unknown.

        Always true for a file: the holder of its lock keeps it until the process ends, however long it pauses.
        """
        return True

    def holds(self, head: Anchor) -> bool:
        """Return whether the ledger still has the row of an anchor that was kept elsewhere, unchanged."""
        row = self.row(head.seq)
        return row.hash == head.hash if row else head.seq == 0

    def append(self, seconds: float, actor: str, rows: Sequence[tuple[str, str, object]]) -> list[LedgerRow]:
        """Write rows (event, subject, body) to the disk, all or none, and return the rows as written."""
        seconds = float(seconds)  # the file gives whole seconds back as 5.0, which is what the hash must be of
        with _translate_errors(self._file):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                entries = chain_rows(self._key, self._last(), seconds, actor, rows)
                self._db.executemany(
                    f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
                    [astuple(entry) for entry in entries],
                )
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite has ended it already when the disk is full
                    self._db.execute("ROLLBACK")
                raise
        return entries

    def _last(self) -> tuple[int, str]:
        """Return the number and hash of the last row; (0, GENESIS) if there is none."""
        row = self._db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return (int(row[0]), str(row[1])) if row else (0, GENESIS)

    def entries(self, subject: str | None = None, after: int = 0) -> Iterator[LedgerRow]:
        """Yield the rows in order, of one subject or of all, with a number above `after`."""
        where: str = "WHERE seq > ?"
        parameters: tuple[object, ...] = (after,)
        if subject is not None:
            where, parameters = f"{where} AND subject = ?", (after, subject)
        with _translate_errors(self._file):
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM entries {where} ORDER BY seq", parameters)  # noqa: S608
            for row in rows:
                yield LedgerRow(*row)

    def row(self, seq: int) -> LedgerRow | None:
        """Return the row with this number, or None."""
        with _translate_errors(self._file):
            columns = self._db.execute(f"SELECT {_COLUMNS} FROM entries WHERE seq = ?", (seq,)).fetchone()  # noqa: S608
        return LedgerRow(*columns) if columns else None

    def head(self) -> Anchor:
        """Return the signed head; its `seq` is 0 if the ledger is empty."""
        with _translate_errors(self._file):
            seq, digest = self._last()
        return Anchor(seq, digest, signature_of(self._key, seq, digest))

    def verify(self, anchor: Anchor | None = None) -> ChainVerification:
        """Verify the whole chain, and that the row of `anchor`, which was kept elsewhere, is unchanged.

        Raise StoreError if there are rows but no key to verify them.
        """
        return verify_chain(self.entries(), self._key, anchor, str(self.path))


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    return connection


def _key(path: Path) -> bytes:
    """Return the ledger's signing key, which is created once and readable only by its owner."""
    if not path.exists():
        # Write a new key, which the owner alone may read, to `path`. Whole or not at all, also when the process is
        # killed; of several who do so at the same time the first one's stays.
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(new_key())
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return checked_key(path.read_bytes(), str(path))


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and of the system to store errors."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "full" in text:
            fix = FIX_OF_FULL_DISK
        elif "readonly" in text or "unable to open" in text:
            fix = OTHER_FILE
        else:
            fix = "Another process may be writing the ledger: try again. Nothing was done."
        raise StoreError(f"the ledger {path} cannot be written: {error}", fix=fix) from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(
            f"the ledger {path} is damaged: {error}",
            fix="Move the ledger's file away and restore a backup; nothing was overwritten.",
        ) from error
    except PermissionError as error:
        raise StoreForbidden(
            f"the ledger {path} may not be opened: {error.strerror}", fix=fix_of_ledger(error)
        ) from error
    except OSError as error:
        raise StoreError(f"the ledger {path} cannot be opened: {error.strerror}", fix=fix_of_ledger(error)) from error


FIX_OF_FULL_DISK: Final = "Free some space on the ledger's disk; nothing was done."
OTHER_FILE: Final = "Name a ledger file that can be written (--set actions.ledger=FILE); nothing was done."


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of the lock: its machine or pod, process, purpose, and start (Unix time)."""

    host: str
    pid: int
    what: str
    since_seconds: float


@contextmanager
def turn(path: Path, what: str, patience_seconds: float) -> Iterator[None]:
    """Hold the ledger's lock; raise StoreBusy, naming the holder, if it is not free within `patience_seconds`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise StoreForbidden(f"{path} may not be opened: {error.strerror}", fix=fix_of_ledger(error)) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}", fix=fix_of_ledger(error)) from error
    try:
        _wait(handle, path, patience_seconds)
        who = Holder(socket.gethostname(), os.getpid(), what, time.time())
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(who), 0)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}", fix="Nothing was done.") from error
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def holder(path: Path) -> Holder | None:
    """Return the holder that the lock file names, or None if there is none or the file is unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, *UNDECODABLE):
        return None


def fix_of_ledger(error: OSError) -> str:
    """Return the advice for an error in opening or writing the ledger or its lock."""
    return FIX_OF_FULL_DISK if error.errno in (errno.ENOSPC, errno.EDQUOT) else OTHER_FILE


def _wait(handle: int, path: Path, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while not try_lock(handle, path, LOCAL_OR_BUCKET):
        if time.monotonic() >= deadline:
            who = holder(path)
            fix = "Try again in a moment; nothing was done."
            if who is None:
                raise StoreBusy("another process is writing the ledger", fix=fix)
            seconds = max(0.0, time.time() - who.since_seconds)
            message = f"process {who.pid} on {who.host} has been writing the ledger for {seconds:.0f} s: {who.what}"
            raise StoreBusy(message, fix=fix)
        time.sleep(PAUSE_SECONDS)
