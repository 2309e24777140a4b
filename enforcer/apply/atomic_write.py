"""EDGE: the files that record what the agent changed outside cgroups.

    {"boot": "...", "records": ..., "version": 1}

A file of another boot is ignored, because the kernel's settings and groups end with it: what has these names now is of
somebody else. If an agent of a newer version wrote the file, it is left as it is, and nothing that it records is
changed, because saving the change would lose the newer record. A damaged file is renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.process.files import replace_atomically

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
    """Changes outside cgroups, read from a file; `damaged` says why the file was renamed, `newer` why it is ignored."""

    records: NoteT
    damaged: str = ""
    newer: str = ""


class _NoteFile(msgspec.Struct):
    boot: str = ""
    records: msgspec.Raw = msgspec.Raw(b"null")
    version: int = VERSION


def save_note(path: Path, boot_id: str, records: object) -> None:
    """Replace the file's records, which must be on disk before what they record is changed; raise OSError."""
    replace_atomically(path, msgspec.json.encode(_NoteFile(boot_id, msgspec.Raw(msgspec.json.encode(records)))))


def read_note(path: Path, boot_id: str, decode: Callable[[bytes], NoteT], empty: NoteT) -> SurfaceNote[NoteT]:
    """Return this boot's records, or `empty` if the file is missing, unreadable, damaged, or of a newer agent."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return SurfaceNote(empty)
    except OSError as refused:
        return SurfaceNote(empty, newer=f"{path} cannot be read ({refused.strerror}): nothing is set or restored")
    try:
        file = msgspec.json.decode(text, type=_NoteFile)
        if file.version <= VERSION:
            return SurfaceNote(decode(bytes(file.records)) if file.boot == boot_id else empty)
    except UNUSABLE as bad:
        return SurfaceNote(empty, damaged=set_aside(path, bad))
    return SurfaceNote(
        empty,
        newer=f"{path} was written by a newer agent (version {file.version}, this agent knows {VERSION}): nothing is "
        f"set or restored; run the newer agent again, or remove the file to discard its records",
    )
