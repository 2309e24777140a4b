"""Quantities as the API server stores them, however they were written: "1000000000" becomes "1G", "1e3" "1k". Pure.

Source: k8s.io/apimachinery, `Quantity.CanonicalizeBytes`: without trailing zeros, in the largest suffix of its own
family in which it is a whole number; a binary amount below 1024, or with a fraction of a byte, is a decimal one. A "+",
a point without digits after it and an upper-case exponent, which the server keeps, are not supported.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Any, Final

from cotenant_lab.simulation.api_server.schema import ANY, FieldSchema

_SHAPE: Final = re.compile(r"([+-]?)([0-9]*(?:\.[0-9]*)?)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS: Final = {suffix: power for power, suffix in _DECIMAL.items()}
_LEAST: Final = Fraction(1, 10**9)


def canonical_quantities(schema: FieldSchema, value: Any) -> Any:
    """Return the value with every quantity in it as the server stores it; invalid quantities stay unchanged."""
    if isinstance(value, dict):
        return {name: canonical_quantities(schema.child(name), child) for name, child in value.items()}
    if isinstance(value, list):
        return [canonical_quantities(schema.items or ANY, item) for item in value]
    return canonical_quantity(value) if schema.scalar == "quantity" and value is not None else value


def canonical_quantity(value: str | float) -> str | float:
    """Return a quantity in the server's form: "0.8" is "800m", "1000000000" is "1G"; an invalid one is unchanged."""
    match = _SHAPE.fullmatch(str(value).strip())
    if match is None or not match[2].strip("."):
        return value
    suffix = match[3] or ""
    amount = Fraction(f"0{match[2]}0" if "." in match[2] else match[2])
    if suffix in _BINARY[1:]:
        amount *= 1024 ** _BINARY.index(suffix)
    else:
        amount *= Fraction(10) ** (_POWERS[suffix] if suffix in _POWERS else int(suffix[1:]))
    amount = ceil(amount / _LEAST) * _LEAST  # nothing is finer than a billionth
    sign = "-" if match[1] == "-" and amount else ""
    if suffix in _BINARY[1:] and amount >= 1024 and amount.denominator == 1:
        number, power = amount.numerator, 0
        while number % 1024 == 0 and power < len(_BINARY) - 1:
            number, power = number // 1024, power + 1
        return f"{sign}{number}{_BINARY[power]}"
    if not amount:
        return "0"
    power = next(power for power in sorted(_DECIMAL, reverse=True) if (amount / Fraction(10) ** power).denominator == 1)
    exponent = f"e{power}" if power else ""
    unit = exponent if suffix[:1] in ("e", "E") and suffix != "E" else _DECIMAL[power]
    return f"{sign}{int(amount / Fraction(10) ** power)}{unit}"
