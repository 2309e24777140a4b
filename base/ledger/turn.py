"""EDGE: the turn at a ledger's file: one process, and one thread in it, writes at a time; its lock file names which.

The lock is the kernel's (`file_lock`); the file's text is for people only. Waiting too long raises StoreBusy, which
names the holder and since when.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cotenant.base.errors import StoreBusy, StoreError, StoreForbidden
from cotenant.base.json_documents.undecodable import UNDECODABLE
from cotenant.base.process.file_lock import LOCAL_OR_BUCKET, try_lock

FIX_OF_FULL_DISK: Final = "Free some space; nothing was done."
OTHER_FILE: Final = "Name a file that can be written (--set actions.ledger=FILE); nothing was done."
PAUSE_SECONDS: Final = 0.02
"""Between two tries."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of the lock: its machine or pod, process, purpose, and start (Unix time)."""

    host: str
    pid: int
    what: str
    since_seconds: float


@contextmanager
def turn(path: Path, what: str, patience_seconds: float) -> Iterator[None]:
    """Hold the lock; StoreBusy names who has it when it is not free within so many seconds."""
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
    """Return the holder that the lock file names; None if there is none or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, *UNDECODABLE):
        return None


def fix_of_ledger(error: OSError) -> str:
    """Return what helps where the ledger or its lock cannot be opened or written."""
    return FIX_OF_FULL_DISK if error.errno in (errno.ENOSPC, errno.EDQUOT) else OTHER_FILE


def _wait(handle: int, path: Path, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while not try_lock(handle, path, LOCAL_OR_BUCKET):
        if time.monotonic() >= deadline:
            raise _busy(path)
        time.sleep(PAUSE_SECONDS)


def _busy(path: Path) -> StoreBusy:
    who = holder(path)
    fix = "Try again in a moment; nothing was done."
    if who is None:
        return StoreBusy("somebody else is writing the ledger", fix=fix)
    seconds = max(0.0, time.time() - who.since_seconds)
    message = f"process {who.pid} on {who.host} has been writing the ledger for {seconds:.0f} s: {who.what}"
    return StoreBusy(message, fix=fix)
