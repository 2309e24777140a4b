"""EDGE: the note of original values that outlives the agent, so that its death leaves nothing behind.

    with Journal(folder, boot_id) as journal:
        journal.save(notes)             before the first write of what they note

One JSON file, replaced whole (temporary file, fsync, rename), so it is never half written. A new value of a knob that
is noted already is not worth an fsync: the page cache outlives the agent, and no cgroup outlives a reboot. A file that
cannot be read is set aside and told in `damaged`, by whoever reads next, until new notes are saved; the applier then
gives back by what the kubelet would have set. A file of another boot is nothing: its cgroups are gone. One agent a
folder: the second is refused, the kernel lets go of the lock when the first dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from cotenant.model.errors import StoreError, UsageError
from enforcer.changes import Note, Notes, Place
from enforcer.knobs import objection
from enforcer.layout import checked_path
from enforcer.whole_files import UNUSABLE, replace_whole, set_aside

FILE: Final = "originals.json"
LOCK: Final = "agent.lock"


class _File(msgspec.Struct, frozen=True):
    boot: str
    notes: list[Note]


class Journal:
    """One file, one agent. `damaged`: why the file of the run before could not be used, "" = it could."""

    def __init__(self, folder: Path, boot_id: str = "", wait_for_lock: bool = True) -> None:
        """Take the folder and read what is there.

        UsageError when another agent holds it; StoreError when the folder cannot be used at all. wait_for_lock False:
        the watchdog's way to read what an agent that stands still has left.
        """
        self._folder, self._boot = folder, boot_id
        self.damaged = ""
        self._lock = _locked(folder) if wait_for_lock else -1
        self.notes: Notes = {}
        try:
            self.notes = self._read()
        except UNUSABLE as bad:
            self.damaged = set_aside(folder / FILE, bad)
        self._stamp = self._stat()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> dict[Place, Note]:
        try:
            text = (self._folder / FILE).read_bytes()
        except FileNotFoundError:
            if (self._folder / f"{FILE}.damaged").exists():
                self.damaged = f"{self._folder / FILE}.damaged was set aside, and nothing was noted since"
            return {}
        found = msgspec.json.decode(text, type=_File)
        if found.boot != self._boot:
            return {}
        return {note.place: _checked(note) for note in found.notes}

    def save(self, notes: Notes) -> None:
        """Replace the file whole. StoreError when it cannot be written: what it does not note must not be touched."""
        if notes != self.notes or self._stamp != self._stat():
            self.begin(notes)

    def begin(self, notes: Notes) -> None:
        """`save` also what is noted already, or nothing: after that a damaged file is made good."""
        target = self._folder / FILE
        text = msgspec.json.encode(_File(self._boot, list(notes.values())))
        try:
            replace_whole(target, text, on_disk=bool(notes.keys() - self.notes.keys()))
        except OSError as refused:
            raise StoreError(
                f"{target}: original values cannot be saved: {refused.strerror}",
                fix="Free space in, or give the agent the right to write, enforcer.state_dir.",
            ) from None
        self.notes, self._stamp = dict(notes), self._stat()

    def _stat(self) -> tuple[int, int] | None:
        """Which file stands there: a watchdog may have replaced it while the agent stood still."""
        try:
            found = (self._folder / FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def beat(self) -> None:
        """Say that the agent lives: `watchdog` looks at the lock file's time."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):  # a disk gone bad: the watchdog may then step in, the agent goes on
                os.utime(self._lock)

    def close(self) -> None:
        """Let another agent have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StoreError(f"{folder}: {refused.strerror}", fix="Set enforcer.state_dir to a writable folder.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(f"{folder}: another agent runs on this node", fix="End it first, or use its folder.") from None
    return lock


def _checked(note: Note) -> Note:
    """UsageError for what no agent of ours writes."""
    checked_path(note.path)
    for value in (note.original, *note.written):
        wrong = "" if value == "" else objection(note.knob, value)
        if wrong:
            raise UsageError(f"{note.path}: {wrong}")
    return note
