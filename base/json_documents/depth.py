"""JSON without what is nested deeper than a reader can go, so that one deep object hides no other one. Pure.

The API server takes objects of 10,000 levels where a definition keeps unknown fields; msgspec takes as many as the
interpreter allows calls, some hundreds, and refuses the whole text.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

MOST_LEVELS: Final = 200
"""Levels that are kept: no field that is read lies half as deep."""
_MARK: Final = re.compile(rb'["\\\[\]{}]')


def decode_shallow(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    """Return the decoded text; of one that is too deep what is not, with null in place of the rest."""
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(without_depths(text))


def without_depths(text: bytes) -> bytes:
    """The text with null in place of each value below MOST_LEVELS, in linear time."""
    kept, depth, end, quoted, escaped = [], 0, 0, False, -1
    for found in _MARK.finditer(text):
        mark, at = found.group(), found.start()
        if at == escaped:
            continue
        if mark == b"\\":
            escaped = at + 1
        elif mark == b'"':
            quoted = not quoted
        elif not quoted and mark in b"[{":
            depth += 1
            if depth == MOST_LEVELS + 1:
                kept += [text[end:at], b"null"]
        elif not quoted:
            if depth == MOST_LEVELS + 1:
                end = at + 1
            depth -= 1
    return b"".join([*kept, text[end:]])
