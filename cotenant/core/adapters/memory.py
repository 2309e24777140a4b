"""EDGE: how a process holds memory: glibc keeps what was freed, and gives each of many threads a heap of its own.

The web process asks for few heaps before its threads start; code that has read much returns the freed memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Final

ARENAS: Final = 2
"""Heaps of all threads together: they wait for Python's one lock anyway."""
M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def few_heaps() -> None:
    """Let the threads share heaps. Elsewhere than on glibc nothing happens."""
    if limit := _of_libc("mallopt"):
        limit(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Return to the system what was freed, of Arrow's pool too where it is in use. Without glibc that pool alone."""
    # another thread may be importing it at this moment
    if pool := getattr(sys.modules.get("pyarrow"), "default_memory_pool", None):
        pool().release_unused()
    if trim := _of_libc("malloc_trim"):
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
