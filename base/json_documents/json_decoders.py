"""Decoding JSON that anybody may have written, in many threads.

The first decoding of a type makes msgspec 0.22 look through its fields, and it shows the unfinished result to other
threads: two that do it at once for the same type end the process by a segmentation fault. So one thread at a time,
under one lock, makes types ready: `make_ready` all Structs that are defined where threads are about to begin,
`decoder_of` what comes into being later, such as a generic Struct of a certain type. A decoder that is built may be
shared.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import msgspec

_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_ready: Final[WeakSet[type[Any]]] = WeakSet()
_building: Final = threading.Lock()


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, for any thread; its `decode` raises msgspec's errors."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _building:
            decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return decoder


def make_ready() -> None:
    """Work out the fields of every Struct that is defined by now; types that are ready cost nothing again.

    Call it where threads that decode are about to begin. A type that msgspec cannot decode is left for who uses it.
    """
    with _building:
        waiting: list[type[Any]] = [msgspec.Struct]
        while waiting:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            if kind not in _ready:
                _ready.add(kind)
                with suppress(TypeError, NameError, AttributeError, ValueError):
                    msgspec.json.Decoder(kind)


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


def mapping_or_empty(value: Any) -> dict[str, Any]:
    """The value where it is a mapping, else an empty one: what people write may be anything."""
    return value if isinstance(value, dict) else {}


UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of msgspec, and two that it lets pass: of bytes or characters that are no UTF-8, and of a text that is nested
deeper than the interpreter allows. Who may annotate a pod can write the last."""


def readable_object(text: str) -> dict[str, Any]:
    """Return the JSON object of an annotation; {} for "" and for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except UNDECODABLE:
        return {}
