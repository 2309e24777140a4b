"""EDGE: atomic replacement of small files: a reader gets the old text or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from cotenant.base.errors import UsageError

UNUSABLE: Final = (OSError, ValueError, UsageError, RecursionError, msgspec.DecodeError)
"""What reading such a file as JSON may raise, also one that is nested for its own sake."""


def replace_atomically(path: Path, data: bytes, on_disk: bool = True) -> os.stat_result:
    """Temporary file, rename. on_disk: only return once it outlives a power cut. OSError leaves the old file.

    Returns the status of the new file before it had its name: another process may have replaced it since.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            if on_disk:
                os.fsync(file.fileno())
            status = os.fstat(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    return status


def set_aside(path: Path, why: object) -> str:
    """Keep a file that cannot be used as NAME.damaged; what to tell a person."""
    with contextlib.suppress(OSError):
        path.replace(path.with_name(f"{path.name}.damaged"))
    return f"{path} cannot be used ({why}); it was set aside as {path.name}.damaged"
