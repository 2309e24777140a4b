"""EDGE: record which foreign object this process is reading, in a note that outlives the process.

An object on which a program hangs blocks all others, and the restarted program would read it again. So each object is
noted before it is read, in a file that is mapped into memory; a timer in C, which needs no interpreter, writes to a
second file if Python's lock was not free for long. From both files the next process knows which version of an object to
leave out; so does this process if reading it takes too much processor time.

    keep_notes("manager")          once, at the start of a program that serves
    with in_hand(version): ...     around whatever reads the object; LeftOut if it is left out

If several objects were noted when the program hung, each is a suspect: the next process reads them one at a time, with
a note that says so. The one on which it hangs then is left out, the others are cleared.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

import msgspec
import structlog

from cotenant.base.errors import CotenantError, StoreError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.process.files import make_private_file, make_private_folder, try_lock

MOST_SECONDS: Final = 2.0
"""Limit of processor time for one object: a thousand times that of an ordinary object, and more than a garbage
collection that happens meanwhile."""
STILL_SECONDS: Final = 10.0
"""Time without running Python code after which the timer writes; a kubelet ends such a process only later."""
BEAT_SECONDS: Final = 1.0
_NOTES: Final = 64  # objects that may be read at the same time; further ones are not recorded
_NOTE_BYTES: Final = 2048
_DELIVERY_TRIES: Final = 100
MOST_LEFT_OUT: Final = 1000
"""Objects that are remembered; the oldest are forgotten, and tried again."""
_STILL_WORDS: Final = f"the program hung for {STILL_SECONDS:.0f} s on this object, and was stopped"
_SUSPECT_WORDS: Final = f"the program hung for {STILL_SECONDS:.0f} s while it processed this object and others"
log = structlog.get_logger(__name__)


class ObjectVersion(NamedTuple):
    """One version of an object in a collection of the API server."""

    collection: str
    namespace: str
    name: str
    version: str

    def __str__(self) -> str:
        """Return kind and name, as in messages."""
        return "/".join(filter(None, (self.collection.rpartition("/")[2], self.namespace, self.name)))


class LeftOut(CotenantError):
    """The error for an object that is left out, because reading its current version took too long or hung."""


class SlowObject(LeftOut):
    """The error for an object that took too much processor time."""

    def __init__(self, seconds: float = MOST_SECONDS, of_object: bool = True) -> None:
        """Create the error; all arguments have defaults, because it is raised by its class in another thread."""
        what = "reading the object" if of_object else "a computation with this object"
        super().__init__(f"{what} took more than {seconds:g} s of processor time")


class Notes:
    """The objects that this process reads now, and those that it leaves out; stored in files only after `keep`."""

    def __init__(self) -> None:
        self.left_out: dict[tuple[str, str, str], tuple[str, str]] = {}
        """Collection, namespace and name -> the version that is left out, by earlier processes too, and why."""
        self.lock, self.alone = threading.Lock(), threading.RLock()
        self.reading: set[in_hand] = set()
        self.free: list[int] = []
        self.memory: mmap.mmap | None = None
        self._folder = Path()
        self._lock_file, self._still = -1, -1
        self.ends_after_seconds = 0.0
        """Seconds for which the program may hang before it is ended; 0 if something else ends it."""

    def keep(self, folder: Path) -> bool:
        """Store notes in a folder, after reading those of an earlier process; return False if that is impossible."""
        try:
            make_private_folder(folder)
            if folder.stat().st_uid != os.geteuid():
                return False
            self._lock_file = os.open(folder / "in-hand", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not try_lock(self._lock_file, folder / "in-hand"):
                return False
            os.ftruncate(self._lock_file, _NOTES * _NOTE_BYTES)
            memory = mmap.mmap(self._lock_file, _NOTES * _NOTE_BYTES)
            self._folder = folder
            self._take_over(memory)
            self._still = os.open(folder / "still", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            self.arm()
        except (OSError, ValueError, StoreError) as error:
            log.info("the objects being read are not recorded", folder=str(folder), why=str(error))
            return False
        self.memory, self.free = memory, list(range(_NOTES))
        return True

    def _take_over(self, memory: mmap.mmap) -> None:
        """Read the notes of an earlier process, and leave out the objects on which it hung."""
        with suppress(OSError, *UNDECODABLE):
            stored = msgspec.json.decode((self._folder / "left-out").read_bytes(), type=list[tuple[ObjectVersion, str]])
            self.left_out = {tuple(version[:3]): (version.version, why) for version, why in stored}  # type: ignore[misc]
        still = (self._folder / "still").read_text(errors="replace") if (self._folder / "still").exists() else ""
        noted: list[tuple[ObjectVersion, bool]] = []
        for start in range(0, len(memory) if still else 0, _NOTE_BYTES):
            length = int.from_bytes(memory[start : start + 2], "big")
            with suppress(*UNDECODABLE):
                body = memory[start + 2 : start + 2 + length]
                noted.append(msgspec.msgpack.decode(body, type=tuple[ObjectVersion, bool]))
        guilty = [version for version, is_suspect in noted if is_suspect or len(noted) == 1]
        for version in guilty or [version for version, _ in noted]:
            why = _STILL_WORDS if guilty else _SUSPECT_WORDS
            log.error("an object is left out", object=str(version), why=why, stood_in=still[:2000])
            self.leave_out(version, why)
        memory[:] = bytes(len(memory))

    def leave_out(self, version: ObjectVersion, why: str) -> None:
        """Record that this version of the object is not to be read any more, and the reason `why`."""
        self.left_out[version[:3]] = version.version, why
        for oldest in list(self.left_out)[:-MOST_LEFT_OUT]:
            del self.left_out[oldest]
        self._write()

    def reason(self, version: ObjectVersion) -> str:
        """Return why this version of the object is left out, or "" if it is to be read."""
        note = self.left_out.get(version[:3])
        if note is None:
            return ""
        if note[0] == version.version:
            return note[1]
        self.forget(version)
        return ""

    def forget(self, version: ObjectVersion) -> None:
        """Allow every version of the object to be read again."""
        if self.left_out.pop(version[:3], None):
            self._write()

    def _write(self) -> None:
        if self._lock_file < 0:
            return
        stored = [(ObjectVersion(*key, version), why) for key, (version, why) in list(self.left_out.items())]
        with suppress(OSError):
            make_private_file(self._folder / "left-out")
            (self._folder / "left-out").write_bytes(msgspec.json.encode(stored))

    def arm(self) -> None:
        """Restart the timer that reports a program that hangs, and may also end it."""
        ends = self.ends_after_seconds
        faulthandler.dump_traceback_later(ends or STILL_SECONDS, file=self._still, exit=bool(ends))

    def beat(self) -> None:
        """Restart the timer once a second while Python runs, and interrupt reads that take too long."""
        while True:
            time.sleep(BEAT_SECONDS)
            faulthandler.cancel_dump_traceback_later()
            if os.fstat(self._still).st_size:
                log.warning("the program stood still", reading=[str(reader.version) for reader in self.reading])
                os.ftruncate(self._still, 0)
            with self.lock:
                for reader in self.reading:
                    reader.interrupt()
            self.arm()


notes: Final = Notes()


def keep_notes(program: str, ends_after_seconds: float = 0.0) -> None:
    """Start to record which objects this process of `program` reads; leave out those on which an earlier one hung.

    If this process hangs for `ends_after_seconds`, at least STILL_SECONDS, it is ended; with 0 something else ends it.
    """
    notes.ends_after_seconds = ends_after_seconds
    with suppress(FileNotFoundError):  # a machine without a folder for such files
        if notes.keep(Path(tempfile.gettempdir()) / f"cotenant-{program}-{os.geteuid()}"):
            threading.Thread(target=notes.beat, name="in hand", daemon=True).start()


def stood_still_on(thing: ObjectVersion) -> tuple[str, bool]:
    """Return the version of the object on which an earlier process hung, and whether that is only a suspicion."""
    version, why = notes.left_out.get(thing[:3], ("", ""))
    return version, why == _SUSPECT_WORDS


def leave_out_standing(version: ObjectVersion) -> str:
    """Record that the program hung on an object's version, so that nobody reads it again; return the reason."""
    notes.leave_out(version, _STILL_WORDS)
    return _STILL_WORDS


class in_hand:  # noqa: N801 - it is used like a function
    """A context to read others' objects; raises SlowObject if one is slow, LeftOut if it was slow or hung before."""

    __slots__ = ("_began", "_interrupted", "_is_object", "_is_suspect", "_most_seconds", "_note", "_thread", "version")

    def __init__(
        self, version: ObjectVersion, most_seconds: float = MOST_SECONDS, is_suspect: bool | None = None
    ) -> None:
        """Create the context for one version of an object; `most_seconds` is the limit of processor time.

        `is_suspect` is for a computation over many objects, which is never left out itself: whether it is suspected.
        """
        self.version, self._most_seconds = version, most_seconds
        self._interrupted, self._is_object, self._is_suspect = False, is_suspect is None, bool(is_suspect)

    def __enter__(self) -> None:
        if self._is_object and notes.left_out and (why := notes.reason(self.version)):
            if why != _SUSPECT_WORDS:
                raise LeftOut(why)
            self._is_suspect = True
        if self._is_suspect:
            notes.alone.acquire()
        self._note = -1
        if notes.memory is not None:
            text = msgspec.msgpack.encode((self.version, self._is_suspect))
            with notes.lock:
                if notes.free and len(text) <= _NOTE_BYTES - 2:
                    self._note = notes.free.pop() * _NOTE_BYTES
                    notes.memory[self._note : self._note + 2 + len(text)] = len(text).to_bytes(2, "big") + text
                self._thread = threading.get_ident()
                self._began = time.thread_time()
                notes.reading.add(self)
        else:
            self._began = time.thread_time()

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        slow = kind is SlowObject
        try:
            self._end()
            for _try in range(_DELIVERY_TRIES if self._interrupted and not slow else 0):
                time.sleep(0.001)  # an interruption that is on its way must reach nobody else
        except SlowObject:
            slow = True
            self._end()
        if self._is_suspect:
            notes.alone.release()
            if self._is_object:
                notes.forget(self.version)
        if slow or self._interrupted or time.thread_time() - self._began > self._most_seconds:
            if self._is_object:
                notes.leave_out(self.version, SlowObject().message)
                log.error("an object is left out", object=str(self.version), why=SlowObject().message)
            raise SlowObject(self._most_seconds, self._is_object) from None

    def _end(self) -> None:
        if notes.memory is None:
            return
        with notes.lock:
            notes.reading.discard(self)
            if self._note >= 0:
                notes.memory[self._note : self._note + 2] = b"\0\0"
                notes.free.append(self._note // _NOTE_BYTES)
                self._note = -1

    def interrupt(self) -> None:
        """Raise SlowObject in the reading thread if it has taken too long; the caller has the lock."""
        clock = time.pthread_getcpuclockid(self._thread)  # it is alive: it would not be among those that read else
        if time.clock_gettime(clock) - self._began > self._most_seconds:
            self._interrupted = True
            thread = ctypes.c_ulong(self._thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(SlowObject))
