"""Kubernetes quantities as integers: text such as "250m" or "1.5Gi" to millicores and bytes, and back.

Used wherever amounts enter or leave: settings, Prometheus labels, the Kubernetes API, patches. Accepts, refuses and
values a text as the Kubernetes API server does (k8s.io/apimachinery `resource.ParseQuantity` behind
`Quantity.UnmarshalJSON`; fractions are rounded up as by `MilliValue` and `Value`), with these documented differences:

- longer than 64 characters, or a decimal exponent beyond +-30: refused before any arithmetic. The server accepts
  `1e999999`, stores it verbatim and takes seconds to add it up;
- above 2^63 - 1: that number. The server clamps only binary suffixes (`16Ei`) and lets the others overflow;
- negative: refused, as the server's validation of a pod does one step after its parser. `-0` is zero.

A JSON number is read as its text, because the server does so too; true, false and null are not quantities here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from cotenant.base.errors import QuantityError
from cotenant.base.resource import Resource
from cotenant.base.text import format_value

LENGTH_CAP: Final = 64
EXPONENT_CAP: Final = 30
LARGEST: Final = 2**63 - 1

_FIX: Final = 'Write a number with an optional suffix, such as "250m" or "2" for CPU and "512Mi" or "2Gi" for memory.'
# Unicode White_Space, which the server trims; but not what JSON must escape: it sees the escape, and refuses that.
_BLANKS: Final = " \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SHAPE: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST_VALUE: Final = 48
_HUMAN: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_millicores(text: str | float, what: str = "") -> int:
    """Parse a CPU quantity to millicores, rounded up; `what` names the object in the QuantityError."""
    return _parse(text, what, 3)


def parse_bytes(text: str | float, what: str = "") -> int:
    """Parse a memory quantity to bytes, rounded up; `what` names the object in the QuantityError."""
    return _parse(text, what, 0)


def parse_amount(resource: Resource, text: str | float, what: str = "") -> int:
    """Parse a quantity to the resource's unit (CPU: millicores, memory: bytes), rounded up."""
    return parse_millicores(text, what) if resource is Resource.CPU else parse_bytes(text, what)


def add(amounts: Iterable[int]) -> int:
    """Return the sum of amounts, at most LARGEST, so that totals fit into 64 bits, like each amount.

    LARGEST means "this much or more", both as a total and as an amount.
    """
    return min(sum(amounts), LARGEST)


def format_millicores(amount: int) -> str:
    """Return the shortest exact quantity of millicores: 250 -> "250m", 2000 -> "2"."""
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def format_bytes(amount: int) -> str:
    """Return the exact quantity of bytes, with the largest binary suffix possible: 2^29 -> "512Mi", 1000 -> "1000"."""
    for suffix, power in reversed(_BINARY.items()):
        if amount and amount % 2**power == 0:
            return f"{amount >> power}{suffix}"
    return str(amount)


def format_amount(resource: Resource, amount: int) -> str:
    """Return the exact quantity of an amount in the resource's unit (CPU: millicores, memory: bytes)."""
    return format_millicores(amount) if resource is Resource.CPU else format_bytes(amount)


def human_bytes(amount: float) -> str:
    """Return rounded bytes for people only: 1.25e9 -> "1.2 GiB"; never parse it as a quantity."""
    value, index = float(amount), 0
    while abs(value) >= 1023.95 and index < len(_HUMAN) - 1:  # 1023.95 would already print as 1024.0
        value, index = value / 1024, index + 1
    return f"{value:z.0f} B" if index == 0 else f"{value:z.1f} {_HUMAN[index]}"


def _parse(quantity: str | float, what: str, shift: int) -> int:
    """Return the quantity times 10^shift, rounded up to a whole number and capped at LARGEST."""
    try:
        return _value(_text(quantity, what).strip(_BLANKS), shift)
    except ValueError as error:
        raise _refusal(what, quantity, str(error)) from None


@lru_cache(maxsize=4096)
def _value(text: str, shift: int) -> int:
    """Return `_parse` of a text, or raise ValueError; cached, since the objects of a cluster repeat few texts."""
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        raise ValueError("is not a Kubernetes quantity")
    sign, integer, fraction, suffix = match[1], match[2], match[3] or "", match[4] or ""
    exponent = _exponent(suffix)
    if not integer + fraction and (suffix in ("Pi", "Ei") or exponent < -9):
        # The server reads a missing number as zero ("Ki", ".", "m"), except on the path these suffixes take.
        raise ValueError("is not a Kubernetes quantity: it has no digits")
    digits = int(integer + fraction or "0")
    if sign == "-" and digits:
        raise ValueError("is negative")
    if suffix in _BINARY:
        return min(_scale_decimal(digits << _BINARY[suffix], shift - len(fraction)), LARGEST)
    return min(_scale_decimal(digits, exponent + shift - len(fraction)), LARGEST)


def _text(quantity: str | float, what: str) -> str:
    """Return the text to parse; refuse a value that is no text or number, or is too long, without parsing it."""
    if isinstance(quantity, int) and not isinstance(quantity, bool) and quantity.bit_length() <= 4 * LENGTH_CAP:
        quantity = str(quantity)
    elif isinstance(quantity, float):
        quantity = repr(quantity)
    if not isinstance(quantity, str):
        raise _refusal(what, quantity, "is not a Kubernetes quantity")
    if len(quantity) > LENGTH_CAP:
        raise _refusal(what, quantity, f"is longer than {LENGTH_CAP} characters")
    return quantity


def _exponent(suffix: str) -> int:
    if suffix in _BINARY or suffix in _DECIMAL:
        return _DECIMAL.get(suffix, 0)
    exponent = int(suffix[1:])
    if abs(exponent) > EXPONENT_CAP:
        raise ValueError(f"has an exponent beyond +-{EXPONENT_CAP}")
    return exponent


def _scale_decimal(digits: int, exponent: int) -> int:
    power: int = 10 ** abs(exponent)
    return digits * power if exponent >= 0 else -(-digits // power)


def _refusal(what: str, quantity: object, because: str) -> QuantityError:
    text = format_value(quantity, _LONGEST_VALUE)
    return QuantityError(f"{what}: {text} {because}" if what else f"{text} {because}", fix=_FIX)
