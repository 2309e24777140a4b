"""EDGE: return memory to the system: glibc keeps freed memory, and gives each of many threads a heap of its own.

The web process limits the number of heaps before its threads start; code that has read much returns the freed memory.
An analysis keeps very many objects, so Python's garbage collector is paused or runs rarely there.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ARENAS: Final = 2
"""Heaps of all threads together: they wait for Python's one lock anyway."""
OBJECTS_A_COLLECTION: Final = 50_000
"""New container objects after which the garbage collector runs, instead of CPython's 700."""
OWN_PAGES_BYTES: Final = 4 << 20
"""Arrays of this size or more have pages of their own, which the system gets back as soon as the array is freed."""
KEPT_FREE_BYTES: Final = 2 << 20
"""Free memory at the end of the heap that is kept for what comes next."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_CGROUP_FILES: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Limit, use and statistics of this container in cgroup v2 and v1, and the name of its cached files there."""
_UNLIMITED_BYTES: Final = 1 << 60
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h


def few_heaps() -> None:
    """Limit the number of glibc's heaps, so that the threads share them. Without glibc nothing happens."""
    if limit := _of_libc("mallopt"):
        limit(M_ARENA_MAX, ARENAS)


def return_early() -> None:
    """Return memory to the system as soon as it is freed, not at the next `release_memory`; this costs a little time.

    By default glibc keeps up to 64 MB of large arrays that were freed. Without glibc nothing happens.
    """
    if limit := _of_libc("mallopt"):
        limit(M_MMAP_THRESHOLD, OWN_PAGES_BYTES)
        limit(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def release_memory() -> None:
    """Return to the system the freed memory of Arrow, if it is loaded, and of glibc, if the process uses it."""
    # another thread may be importing it at this moment
    if pool := getattr(sys.modules.get("pyarrow"), "default_memory_pool", None):
        pool().release_unused()
    if trim := _of_libc("malloc_trim"):
        trim(0)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Suspend the cyclic garbage collector during work that creates no cycles.

    It is suspended for the whole process, until the last thread that requested it is done; no effect if it is off.
    """
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Run the garbage collector rarely, and not on existing objects, because most of them live to a command's end.

    This applies to the whole process; afterwards the collector handles all remaining objects again.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def free_bytes() -> int | None:
    """Return the bytes that this process and its children may still allocate; None if it is unknown.

    This is the machine's free memory or what the container's limit leaves, whichever is less.
    """
    free = [_meminfo("MemAvailable"), *(_left_of(*files) for files in _CGROUP_FILES)]
    return min((amount for amount in free if amount is not None), default=None)


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process in bytes; None if it has ended or /proc does not show it."""
    fields = _text_of(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def _meminfo(name: str) -> int | None:
    lines = (line.split() for line in _text_of(Path("/proc/meminfo")).splitlines())
    return next((int(fields[1]) * 1024 for fields in lines if fields[0] == f"{name}:"), None)


def _left_of(limit: str, used: str, statistics: str, cache: str) -> int | None:
    """Return the bytes that a cgroup's limit leaves, counting cached files as free; None without a limit."""
    most, now = (_text_of(_CGROUP / name).strip() for name in (limit, used))
    if not (most.isdigit() and now.isdigit()) or int(most) >= _UNLIMITED_BYTES:
        return None
    lines = (line.split() for line in _text_of(_CGROUP / statistics).splitlines())
    cached = next((int(fields[1]) for fields in lines if fields[0] == cache), 0)
    return int(most) - int(now) + cached


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class _Pause:
    """The number of threads that keep the garbage collector off, and whether it was on before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._threads:
                self._was_on = gc.isenabled()
                gc.disable()
            self._threads += 1

    def end(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads and self._was_on:
                gc.enable()


_pause: Final = _Pause()


def _of_libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
