"""Thread-safe decoding of JSON from untrusted sources.

The first decoding of a type makes msgspec 0.22 inspect its fields, and it shows the unfinished result to other threads:
two first decodings of a type at once end the process by a segmentation fault. So types are made ready by one thread at
a time, under one lock: `make_ready` prepares all Structs that exist before threads begin, `decoder_of` those that are
created later, such as a generic Struct with a type parameter. A finished decoder may be shared between threads.
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
    """Return the decoder of a type, for use in any thread; its `decode` raises msgspec's errors."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _building:
            decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return decoder


def make_ready() -> None:
    """Prepare every Struct that is defined so far for decoding in threads; a second call prepares only new ones.

    Call this before starting threads that decode. A type that msgspec cannot decode is skipped.
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
    """Return the decoded text; values that are nested too deep are replaced by null.

    Whoever may create a Reservation can write such a value, because its template keeps unknown fields.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(without_depths(text))


def without_depths(text: bytes) -> bytes:
    """Return the JSON text with null in place of each value nested deeper than MOST_LEVELS, in linear time."""
    pieces, depth, end, quoted, escaped = [], 0, 0, False, -1
    for match in _MARK.finditer(text):
        mark, at = match.group(), match.start()
        if at == escaped:
            continue
        if mark == b"\\":
            escaped = at + 1
        elif mark == b'"':
            quoted = not quoted
        elif not quoted and mark in b"[{":
            depth += 1
            if depth == MOST_LEVELS + 1:
                pieces += [text[end:at], b"null"]
        elif not quoted:
            if depth == MOST_LEVELS + 1:
                end = at + 1
            depth -= 1
    return b"".join([*pieces, text[end:]])


def mapping_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else {}: JSON written by people may have any type there."""
    return value if isinstance(value, dict) else {}


UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of msgspec, and two that it does not convert: for text that is not UTF-8, and for a text that is nested deeper
than the interpreter allows, which anybody can write who may annotate a pod."""


def readable_object(text: str) -> dict[str, Any]:
    """Return the JSON object in an annotation's text, or {} if the text is not a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except UNDECODABLE:
        return {}
