"""EDGE: the objects of a YAML or JSON file that somebody names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cotenant.base.errors import UsageError


def documents(file: str) -> list[Any]:
    """The documents of a file, or of stdin for "-"; UsageError when it cannot be read, is no YAML or is empty."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", fix="Give the path of a YAML or JSON file.") from error
    try:
        parsed = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a day that no calendar has
        raise UsageError(f"{file} is not YAML: {error}", fix="Look at the line that is named.") from error
    if not parsed:
        raise UsageError(f"{file} holds no object", fix="Give a file with an object in YAML or JSON.")
    return parsed


def mapping_or_empty(value: Any) -> dict[str, Any]:
    """The value where it is a mapping, else an empty one: what people write may be anything."""
    return value if isinstance(value, dict) else {}
