"""The format version in every stored file; it grows when older code would misread the new layout."""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 1


class NewerVersionError(Exception):
    """The file was written by a newer cotenant; the argument is its version."""


def check(version: int) -> None:
    """Refuse what this code does not know; older layouts are the reader's business."""
    if version > SCHEMA_VERSION:
        raise NewerVersionError(version)
