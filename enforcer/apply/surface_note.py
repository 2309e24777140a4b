"""EDGE: reads the note of what the agent changed beyond cgroups, without losing one that it cannot use.

Version 1 of these notes has no field `version`; a later one is a JSON object with it. A note of a newer agent is left
as it is, and its keeper then changes nothing: what it set could not be noted without losing what the newer agent noted.
A damaged note is set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from cotenant.enforcer.apply.atomic_write import UNUSABLE, set_aside

VERSION: Final = 1

NoteT = TypeVar("NoteT")


@dataclass(frozen=True, slots=True)
class SurfaceNote(Generic[NoteT]):
    """A note. damaged: what was set aside, for people; newer: why nothing may be changed; else ""."""

    records: NoteT
    damaged: str = ""
    newer: str = ""


class _NoteHead(msgspec.Struct):
    version: int = VERSION


def read_note(path: Path, decode: Callable[[bytes], NoteT], empty: NoteT) -> SurfaceNote[NoteT]:
    """The note's records; `empty` when there is none, when it is damaged, or when a newer agent wrote it."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return SurfaceNote(empty)
    except OSError as refused:
        return SurfaceNote(empty, newer=f"{path} cannot be read ({refused.strerror}): nothing is set or restored")
    version = _version(text)
    if version > VERSION:
        return SurfaceNote(
            empty,
            newer=f"{path} was written by a newer agent (version {version}, this one knows {VERSION}): nothing is "
            f"set or restored; run the newer agent again, or remove the file to discard its records",
        )
    try:
        return SurfaceNote(decode(text))
    except UNUSABLE as bad:
        return SurfaceNote(empty, damaged=set_aside(path, bad))


def _version(text: bytes) -> int:
    """The number in the field `version`; 1 for anything else."""
    try:
        return msgspec.json.decode(text, type=_NoteHead).version
    except UNUSABLE:
        return VERSION
