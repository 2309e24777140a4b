"""EDGE: the files that record what the agent changed outside cgroups.

A file of version 1 has no field `version`; a later one is a JSON object with it. If an agent of a newer version wrote
the file, it is left as it is, and nothing that it records is changed, because saving the change would lose the newer
record. A damaged file is renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from cotenant.base.errors import UsageError

UNUSABLE: Final = (OSError, ValueError, UsageError, RecursionError, msgspec.DecodeError)
"""Errors that reading one of these files as JSON may raise, also if its content is nested too deeply."""
VERSION: Final = 1
"""Version of the files."""
NoteT = TypeVar("NoteT")


def set_aside(path: Path, why: object) -> str:
    """Rename an unusable file to NAME.damaged, and return a message about the file."""
    with contextlib.suppress(OSError):
        path.replace(path.with_name(f"{path.name}.damaged"))
    return f"{path} cannot be used ({why}); it was set aside as {path.name}.damaged"


@dataclass(frozen=True, slots=True)
class SurfaceNote(Generic[NoteT]):
    """Changes outside cgroups that a file records; `damaged`: why the file was renamed; `newer`: why it is not used."""

    records: NoteT
    damaged: str = ""
    newer: str = ""


class _NoteHead(msgspec.Struct):
    version: int = VERSION


def read_note(path: Path, decode: Callable[[bytes], NoteT], empty: NoteT) -> SurfaceNote[NoteT]:
    """Return the records of the file, or `empty` if it is missing, unreadable, damaged, or of a newer agent."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return SurfaceNote(empty)
    except OSError as refused:
        return SurfaceNote(empty, newer=f"{path} cannot be read ({refused.strerror}): nothing is set or restored")
    try:
        version = msgspec.json.decode(text, type=_NoteHead).version
    except UNUSABLE:
        version = VERSION
    if version > VERSION:
        return SurfaceNote(
            empty,
            newer=f"{path} was written by a newer agent (version {version}, this agent knows {VERSION}): nothing is "
            f"set or restored; run the newer agent again, or remove the file to discard its records",
        )
    try:
        return SurfaceNote(decode(text))
    except UNUSABLE as bad:
        return SurfaceNote(empty, damaged=set_aside(path, bad))
