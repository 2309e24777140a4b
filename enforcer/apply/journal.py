"""EDGE: the journal, a file of original values that outlives the agent, so that they can be restored after its death.

    with OriginalValues(folder, boot_id) as journal:
        journal.save(notes)             before the first write of the knobs that they list

It is one JSON file that is replaced as a whole (temporary file, fsync, rename), so it is never half written. A new
value of a knob that the file already lists needs no fsync: the page cache outlives the agent, and no cgroup outlives a
reboot. A file of another boot is ignored, because its cgroups are gone. Only one agent uses a folder: a second one is
refused, and the kernel releases the lock of the first one however it dies.

    {"version": 2, "boot": "...", "notes": [{"path", "knob", "level", "original", "written", "strategy"}, ...]}

Notes are read one by one, whichever version wrote the file: a note that this version cannot use (a knob of a newer
agent, a value that no agent writes) is named in `complaints` and kept unchanged in the file, for the agent that
understands it. A file that is not such JSON is renamed, and named in `damaged` at every reading until new notes are
saved. In both cases the applier also restores the values that the kubelet would have set. Version 1 had no field
`version` and is read likewise; raise VERSION when the meaning of a field changes, and never reuse a field's name.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from cotenant.base.errors import CotenantError, StoreError, UsageError
from cotenant.base.process.files import replace_atomically, try_lock
from cotenant.enforcer.apply.atomic_write import UNUSABLE, set_aside
from cotenant.enforcer.decide.changes import Notes, OriginalValue, Place
from cotenant.enforcer.decide.knobs import objection
from cotenant.enforcer.decide.write_order import SETS
from cotenant.enforcer.observe.layout import checked_path

FILE: Final = "originals.json"
LOCK: Final = "agent.lock"
VERSION: Final = 2
_Identity = tuple[int, int, int]
_SHOWN: Final = 120


class _File(msgspec.Struct, frozen=True):
    boot: str
    notes: list[msgspec.Raw]
    version: int = 1


class _Entry(msgspec.Struct, frozen=True):
    path: str = "?"
    knob: str = "?"


class OriginalValues:
    """The journal of one agent: the original value of each cgroup setting (knob) that it has changed, saved in a file.

    `damaged` says why the file of the previous run could not be used; "" if it could. `lost` is True if an agent
    may have set values without a usable entry: the file has no entries of this boot, or one cannot be read.
    """

    def __init__(self, folder: Path, boot_id: str = "", wait_for_lock: bool = True) -> None:
        """Lock the folder and read its file; UsageError if another agent has it, StoreError if it is unusable.

        With `wait_for_lock` False the folder is not locked, so that the watchdog can read the values of an agent that
        hangs.
        """
        self._folder, self._boot = folder, boot_id
        self.damaged, self.lost = "", False
        self.complaints: tuple[str, ...] = ()
        """Findings about the file of the previous run, for people."""
        self._unusable: tuple[msgspec.Raw, ...] = ()
        self._lock = _lock_folder(folder) if wait_for_lock else -1
        self.notes: Notes = {}
        self._stamp: _Identity | None = None
        """The file that `notes` are in."""
        try:
            self.notes = self._read()
        except UNUSABLE as bad:
            self.damaged, self._stamp = set_aside(folder / FILE, bad), None
        if self.damaged:
            self.lost, self.complaints = True, (self.damaged,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> dict[Place, OriginalValue]:
        try:
            with (self._folder / FILE).open("rb") as opened:
                self._stamp, text = _identity(os.fstat(opened.fileno())), opened.read()
        except FileNotFoundError:
            self.lost = True
            if (self._folder / f"{FILE}.damaged").exists():
                self.damaged = f"{self._folder / FILE}.damaged was unusable, and no original value was recorded since"
            return {}
        file = msgspec.json.decode(text, type=_File)
        if file.boot != self._boot:
            self.lost = True
            return {}
        # The notes that this version knows; the others are set apart and named.
        notes: dict[Place, OriginalValue] = {}
        unusable, complaints, path = [], [], self._folder / FILE
        if file.version > VERSION:
            versions = f"version {file.version}, this agent knows {VERSION}"
            complaints.append(f"{path} was written by a newer agent ({versions})")
        for raw in file.notes:
            try:
                note = msgspec.json.decode(raw, type=OriginalValue)
                checked_path(note.path)
                for value in (note.original, *note.written):
                    wrong = "" if value == "" and note.knob in SETS else objection(note.knob, value)
                    if wrong:
                        raise UsageError(f"{note.path}: {wrong}")
            except UNUSABLE as bad:
                unusable.append(raw.copy())
                complaints.append(f"{path}: {_describe_entry(raw)} cannot be used and is not changed: {bad}")
            else:
                notes[note.place] = note
        self._unusable, self.complaints, self.lost = tuple(unusable), tuple(complaints), bool(unusable)
        return notes

    def save(self, notes: Notes) -> None:
        """Save the original values if they changed; after a StoreError the settings in `notes` must not be changed."""
        present = None
        with contextlib.suppress(OSError):  # a watchdog may have replaced it while the agent was suspended
            present = _identity((self._folder / FILE).stat())
        if notes != self.notes or self._stamp != present:
            self.begin(notes)

    def begin(self, notes: Notes) -> None:
        """Write the original values even if they have not changed, so that a valid file replaces a damaged one."""
        target = self._folder / FILE
        entries = [msgspec.Raw(msgspec.json.encode(note)) for note in notes.values()]
        text = msgspec.json.encode(_File(self._boot, [*entries, *self._unusable], VERSION))
        try:
            status = replace_atomically(target, text, on_disk=bool(notes.keys() - self.notes.keys()))
        except OSError as refused:
            raise StoreError(
                f"{target}: original values cannot be saved: {refused.strerror}",
                fix="Free disk space for enforcer.state_dir, or make the folder writable.",
            ) from None
        self.notes, self._stamp = dict(notes), _identity(status)

    def beat(self) -> None:
        """Update the heartbeat: the lock file's time, which `watchdog` checks."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):  # a disk gone bad: the watchdog may then step in, the agent goes on
                os.utime(self._lock)

    def close(self) -> None:
        """Release the lock of the journal so that another agent may use it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _identity(status: os.stat_result) -> _Identity:
    """Return inode, time and size of a file: an inode is reused, and two files may have the same time."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _lock_folder(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StoreError(f"{folder}: {refused.strerror}", fix="Set enforcer.state_dir to a writable folder.") from None
    try:
        if try_lock(lock, folder / LOCK):
            return lock
        raise UsageError(f"another agent uses the state folder {folder}", fix="Stop the other agent first.")
    except CotenantError:
        os.close(lock)
        raise


def _describe_entry(raw: msgspec.Raw) -> str:
    """Return the knob and cgroup of an entry that cannot be used, if it can be decoded that far."""
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
    except UNUSABLE:
        return "an entry"
    return f"{entry.knob[:_SHOWN]} of {entry.path[:_SHOWN]}"
