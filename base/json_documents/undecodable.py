"""What decoding raises when a text is not what it should be, and a reader for which such a text says nothing. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of msgspec, and two that it lets pass: of bytes or characters that are no UTF-8, and of a text that is nested
deeper than the interpreter allows. Who may annotate a pod can write the last."""


def readable_object(text: str) -> dict[str, Any]:
    """Return the JSON object of an annotation; {} for "" and for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except UNDECODABLE:
        return {}
