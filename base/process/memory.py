"""EDGE: how a process holds memory: glibc keeps what was freed, and gives each of many threads a heap of its own.

The web process asks for few heaps before its threads start; code that has read much returns the freed memory. Python
looks for cycles of garbage by how many objects there are, and an analysis has very many that stay.
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
"""Containers that are made before garbage is looked for, instead of CPython's 700."""
OWN_PAGES_BYTES: Final = 4 << 20
"""Arrays from this size on have pages of their own, which go back to the system with them."""
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
    """Let the threads share heaps. Elsewhere than on glibc nothing happens."""
    if limit := _of_libc("mallopt"):
        limit(M_ARENA_MAX, ARENAS)


def return_early() -> None:
    """Return what is freed from now on at once, not at the next `release_memory`, for a little more time.

    By itself glibc keeps up to 64 MB of large arrays that were freed. Elsewhere than on glibc nothing happens.
    """
    if limit := _of_libc("mallopt"):
        limit(M_MMAP_THRESHOLD, OWN_PAGES_BYTES)
        limit(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def release_memory() -> None:
    """Return to the system what was freed, of Arrow's pool too where it is in use. Without glibc that pool alone."""
    # another thread may be importing it at this moment
    if pool := getattr(sys.modules.get("pyarrow"), "default_memory_pool", None):
        pool().release_unused()
    if trim := _of_libc("malloc_trim"):
        trim(0)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Suspend the cyclic garbage collector: work that creates no cycles is not interrupted by it.

    For the whole process, until the last of the threads that ask for it is done; nothing where the collector is off.
    """
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage seldom for a while, and not among what is there: most of it stays to a command's end.

    For the whole process; what is still there comes under the collector's eyes again afterwards.
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
    """Return the memory that this process and its children may still take; None where the system does not say it.

    It is the machine's, or what the limit of this container leaves, whichever is less.
    """
    free = [_meminfo("MemAvailable"), *(_left_of(*files) for files in _CGROUP_FILES)]
    return min((amount for amount in free if amount is not None), default=None)


def resident_bytes(pid: int) -> int | None:
    """Return the memory that a process has; None where it has ended, or the system does not say it."""
    fields = _text_of(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def _meminfo(name: str) -> int | None:
    lines = (line.split() for line in _text_of(Path("/proc/meminfo")).splitlines())
    return next((int(fields[1]) * 1024 for fields in lines if fields[0] == f"{name}:"), None)


def _left_of(limit: str, used: str, statistics: str, cache: str) -> int | None:
    """Return what a cgroup's limit leaves, its cached files counted as free; None without a limit."""
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
