"""EDGE: a lease in an object store: one writer at a time, by conditional writes of one small object.

The holder renews the object every RENEW_SECONDS. A waiting process takes it over if it has not changed for
LEASE_SECONDS by that process's own clock, so that no two clocks are compared (the rule of client-go's leader election).
A holder that was paused for longer may still believe that it holds the lease: therefore every write under a lease is
conditional itself, and the lease only keeps writers from hindering each other.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from cotenant.base.errors import StoreBusy, StoreConflict, StoreError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.store.buckets import NO_CONDITIONS_FIX, QUICK

if TYPE_CHECKING:
    from cotenant.base.store.files import Folder

LEASE_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = (0.05, 0.25)
_threads: defaultdict[tuple[int, str], threading.Lock] = defaultdict(threading.Lock)
"""Threads of one process wait here, so that only one of them asks the bucket. Keys: process, address."""
_conditional: set[str] = set()  # roots whose server has correctly refused a conflicting write


class LeaseHolder(msgspec.Struct):
    """A lease's content: `holding` is one acquisition's id, `host` is "" if nobody has it, `beats` counts renewals."""

    holding: str
    host: str = ""
    pid: int = 0
    what: str = ""
    since_seconds: float = 0.0
    beats: int = 0


@contextlib.contextmanager
def acquire_lease(folder: Folder, name: str, what: str, patience_seconds: float) -> Iterator[None]:
    """Hold the lease of this name; raise StoreBusy, naming the holder, if it is not free within `patience_seconds`."""
    deadline = time.monotonic() + patience_seconds
    local = _threads[os.getpid(), folder.path(name)]
    if not local.acquire(timeout=patience_seconds):
        raise StoreBusy(f"this process is still writing {folder.path(name)}", fix="Try again in a moment.")
    try:
        lease = _Lease(folder, name, what)
        lease.acquire(deadline)
        try:
            yield
        finally:
            lease.release()
    finally:
        local.release()


class _Lease:
    """One process's holding of a lease."""

    def __init__(self, folder: Folder, name: str, what: str) -> None:
        self._folder, self._name = folder, name
        self._quick = folder.with_patience(QUICK)  # a late renewal is worth nothing
        self._holder = LeaseHolder(secrets.token_hex(8), socket.gethostname(), os.getpid(), what, time.time())
        self._mark = ""
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lease", daemon=True)

    def acquire(self, deadline: float) -> None:
        """Block until this process holds the lease; raise StoreBusy at the deadline (monotonic clock, seconds)."""
        unchanged_mark, unchanged_since = "", 0.0
        while True:
            stored = self._folder.read_marked(self._name)
            now = time.monotonic()
            if stored and stored[1] != unchanged_mark:
                unchanged_mark, unchanged_since = stored[1], now
            holder = _decode_holder(stored[0]) if stored else None
            if holder is None or not holder.host or now - unchanged_since >= LEASE_SECONDS:
                with contextlib.suppress(StoreConflict):  # somebody else was faster
                    self._mark = self._folder.swap(self._name, self._text(), stored[1] if stored else None)
                    break
            if now >= deadline:
                path = self._folder.path(self._name)
                who = holder or LeaseHolder("", "an unknown host")
                raise StoreBusy(
                    f"process {who.pid} on {who.host} holds the lease {path}: {who.what or 'it is writing'}",
                    fix=f"Wait for the process to end; a dead process loses the lease after {LEASE_SECONDS:.0f} s.",
                )
            time.sleep(random.SystemRandom().uniform(*_PAUSE_SECONDS))
        self._check_server()
        self._renewal.start()

    def _check_server(self) -> None:
        """Check once per process that the server honours conditions: otherwise two writers could both succeed."""
        if self._folder.url in _conditional:
            return
        try:
            self._folder.swap(self._name, b"{}", None)
        except StoreConflict:
            _conditional.add(self._folder.url)
            return
        self._folder.remove(self._name)
        raise StoreError(f"the server of {self._folder.url} has no conditional writes", fix=NO_CONDITIONS_FIX)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            self._holder.beats += 1
            with contextlib.suppress(StoreError):
                if not self._write_holder():
                    return  # it was taken over: our conditional writes will be refused

    def _write_holder(self) -> bool:
        """Store the holder; return False if the lease has been taken over.

        An earlier write may have been stored although it seemed to fail: then its mark is the one to replace.
        """
        try:
            self._mark = self._quick.swap(self._name, self._text(), self._mark)
        except StoreConflict:
            stored = self._quick.read_marked(self._name)
            if stored is None or _decode_holder(stored[0]).holding != self._holder.holding:
                return False
            self._mark = self._quick.swap(self._name, self._text(), stored[1])
        return True

    def release(self) -> None:
        """Release the lease, unless another process has taken it over."""
        self._ended.set()
        self._renewal.join(QUICK.retry_seconds + QUICK.timeout_seconds)
        self._holder = LeaseHolder(self._holder.holding)
        with contextlib.suppress(StoreError):
            self._write_holder()

    def _text(self) -> bytes:
        return msgspec.json.encode(self._holder)


def _decode_holder(content: bytes) -> LeaseHolder:
    """Decode a lease's holder; unreadable content yields an unknown one, whose lease expires as a dead process's."""
    try:
        return msgspec.json.decode(content, type=LeaseHolder)
    except UNDECODABLE:
        return LeaseHolder("", "an unknown host")
