"""Mutations of what somebody else writes: of JSON by its structure, of texts by characters, of bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

NASTY: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "-",
    "0",
    "-1",
    "1e999",
    "NaN",
    "1_000",
    "0x10",
    "٣",
    "200m",
    "1.5Gi",
    "9" * 400,
    "x" * 5000,
    "\x00",
    "a\nb",
    "<script>",
    "../../etc/passwd",
    "2026-11-27T00:00:00Z",
    "9999-99-99T99:99:99Z",
    "{}",
    "[",
    "[" * 3000,
    '{"a":' * 3000,
    "null",
    [],
    {},
    [None],
    [[[[]]]],
    {"": None},
    {"name": {}},
    {"__class__": "x"},
)
"""Values that somebody has written once: of another type, out of range, of another script, or too long."""
_DEEP: Final = (10, 60, 300)
_Change = Callable[[Any, Random], Any]


def mutated(document: Any, draw: Random) -> Any:
    """A copy of a JSON value with one to four changes."""
    copy = json.loads(json.dumps(document))
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        copy = _changed(copy, draw)
    return copy


def mutated_text(text: str, draw: Random) -> str:
    """A text with some characters replaced, doubled, left out or cut off."""
    characters = list(text)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(characters) + 1)
        match draw.randrange(5):
            case 0:
                characters[at : at + 1] = draw.choice(("", "\x00", '"', "\\", "{", "}", "[", ":", ",", "é", "\n", "9"))
            case 1:
                characters[at:at] = characters[max(0, at - draw.randrange(30)) : at]
            case 2:
                del characters[at : at + draw.randrange(12)]
            case 3:
                del characters[at:]
            case _:
                characters[at:at] = draw.choice(("-", "1e9", "Ki", "null", " ", "#", "&a *a", "\ufeff", "9" * 50))
    return "".join(characters)


def mutated_bytes(data: bytes, draw: Random) -> bytes:
    """Bytes with some flipped, left out, doubled or put in."""
    out = bytearray(data)
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(out) + 1)
        match draw.randrange(4):
            case 0 if at < len(out):
                out[at] ^= 1 << draw.randrange(8)
            case 1:
                del out[at : at + draw.randrange(20)]
            case 2:
                out[at:at] = out[max(0, at - draw.randrange(40)) : at]
            case _:
                out[at:at] = draw.randbytes(draw.randrange(1, 6))
    return bytes(out)


def encoded(document: Any) -> bytes:
    """JSON as Python writes it, with NaN and infinities."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _changed(value: Any, draw: Random) -> Any:
    """The value with one change at a place that is drawn on the way down."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        return draw.choices((_into, _replaced, _left_out, _renamed), (12, 4, 2, 1))[0](value, key, draw)
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        match draw.randrange(6):
            case 0:
                return [*value, draw.choice(NASTY)]
            case 1:
                return [*value[:at], *value[at + 1 :]]
            case 2:
                return value * draw.choice((2, 30))
        return [*value[:at], _changed(value[at], draw), *value[at + 1 :]]
    return _other(value, draw)


def _into(value: dict[str, Any], key: str, draw: Random) -> Any:
    return {**value, key: _changed(value[key], draw)}


def _replaced(value: dict[str, Any], key: str, draw: Random) -> Any:
    return {**value, key: _other(value[key], draw)}


def _left_out(value: dict[str, Any], key: str, _: Random) -> Any:
    return {name: child for name, child in value.items() if name != key}


def _renamed(value: dict[str, Any], key: str, draw: Random) -> Any:
    return {mutated_text(name, draw) if name == key else name: child for name, child in value.items()}


def _other(value: Any, draw: Random) -> Any:
    """Something else in a value's place: a nasty one, its own text mutated, or the value very deep."""
    chance = draw.random()
    if isinstance(value, str) and chance < 0.5:
        return mutated_text(value, draw)
    if isinstance(value, int | float) and chance < 0.3:
        return -value if chance < 0.1 else value * draw.choice((10, 10**9, 10**30))
    if chance > 0.97:
        for _ in range(draw.choice(_DEEP)):
            value = [value] if chance < 0.985 else {"a": value}
        return value
    return draw.choice(NASTY)


def pick(seeds: Sequence[Any], draw: Random) -> Any:
    """One of the seeds."""
    return seeds[draw.randrange(len(seeds))]
