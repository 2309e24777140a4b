"""EDGE: write a command's files below a folder, and read the YAML or JSON documents of a file that a person names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.process.files import replace_atomically
from cotenant.base.text import counted


def save(folder: Path, path: str, text: str) -> None:
    """Write one file below the folder, completely or not at all; raise CotenantError if it cannot be written."""
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # No lock keeps two commands with one --output-dir apart.
        replace_atomically(target, text.encode(), on_disk=False, writer=f".{os.urandom(4).hex()}")
        target.chmod(0o644)
    except OSError as error:
        raise CotenantError(
            f"{target} cannot be written: {error.strerror}", fix="Name another --output-dir."
        ) from error


def save_all(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text to its path below the folder, and report the number of files on stderr."""
    from cotenant.base.commands.output import message  # needs typer, which a node's install has not

    for path, text in files.items():
        save(folder, path, text)
    message(f"{counted(len(files), 'file')} written to {folder}")


def documents(file: str) -> list[Any]:
    """Return the YAML or JSON documents of a file ("-" is stdin); raise UsageError if it is unreadable or empty."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", fix="Give the path of a YAML or JSON file.") from error
    try:
        parsed = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a day that no calendar has
        raise UsageError(f"{file} is not YAML: {error}", fix="Correct the line that the error names.") from error
    if not parsed:
        raise UsageError(f"{file} contains no object", fix="Give a file with an object in YAML or JSON.")
    return parsed
