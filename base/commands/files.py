"""EDGE: files that a command writes below a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cotenant.base.commands.output import message
from cotenant.base.errors import CotenantError
from cotenant.base.text import counted


def save(folder: Path, path: str, text: str) -> None:
    """Write one file below the folder: whole or not at all. CotenantError when it cannot be written."""
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".cotenant-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CotenantError(
            f"{target} cannot be written: {error.strerror}", fix="Name another --output-dir."
        ) from error


def save_all(folder: Path, files: Mapping[str, str]) -> None:
    """Write text by path below the folder, and tell how many files that are."""
    for path, text in files.items():
        save(folder, path, text)
    message(f"{counted(len(files), 'file')} written to {folder}")
