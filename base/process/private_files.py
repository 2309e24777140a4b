"""EDGE: files that other users of the machine cannot read: mode 0600 in folders of 0700.

Where a folder or file is writable by its group, somebody shares it on purpose: then only the others lose their rights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o007
_GROUP_AND_OTHERS: Final = 0o077
_GROUP_WRITES: Final = 0o020


def make_private_folder(path: Path) -> None:
    """Make the folder, with its parents, or tighten the one that is there. OSError when it cannot be made."""
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    restrict_permissions(path)


def open_private(path: str | Path, flags: int) -> int:
    """Opener for `open`: what it makes is 0600."""
    return os.open(path, flags, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Make an empty file, or tighten the one that is there. OSError when it cannot be made."""
    os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    restrict_permissions(path)


def restrict_permissions(path: Path) -> None:
    """Take away the rights of other users from what is ours and is there; what is somebody else's stays."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    mode = status.st_mode & 0o7777
    closed = mode & ~(_OTHERS if mode & _GROUP_WRITES else _GROUP_AND_OTHERS)
    if closed != mode and status.st_uid == os.geteuid():
        path.chmod(closed)
