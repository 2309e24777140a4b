"""Quantities and requests as the scheduler counts them, once more in plain Python: exact fractions, no shared code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from tests.support.invariants.records import Json

Amounts = Mapping[str, Fraction]
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(text: object) -> Fraction:
    """A quantity in its unit: cores, bytes, pieces. ValueError for what is none."""
    number_text = str(text).strip()
    for suffix, factor in _BINARY.items():
        if number_text.endswith(suffix):
            return Fraction(Decimal(number_text.removesuffix(suffix))) * Fraction(factor)
    if number_text[-1:] in _DECIMAL:
        return Fraction(Decimal(number_text[:-1])) * Fraction(Decimal(10) ** _DECIMAL[number_text[-1]])
    return Fraction(Decimal(number_text))


def amounts(quantities: Mapping[str, object] | None) -> dict[str, Fraction]:
    """Every quantity of a list of resources."""
    return {name: amount(text) for name, text in (quantities or {}).items()}


def total(parts: Iterable[Amounts]) -> dict[str, Fraction]:
    """The sum, resource by resource."""
    summed: Counter[str] = Counter()
    for part in parts:
        for name, value in part.items():
            summed[name] += value  # type: ignore[assignment]  # a Counter adds fractions as well
    return dict(summed)  # type: ignore[arg-type]


def pod_request(spec: Json) -> dict[str, Fraction]:
    """What a pod takes of its node: containers and sidecars together, or one init container, whichever is more."""
    all_fractions = [_asked(container) for container in spec.get("containers") or ()]
    sidecars: list[Amounts] = []
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.append(_asked(container))
            momentary = total(sidecars)
        else:
            momentary = total([*sidecars, _asked(container)])
        peak = {name: max(peak.get(name, Fraction(0)), momentary.get(name, Fraction(0))) for name in peak | momentary}
    running = total([*all_fractions, *sidecars])
    most = {name: max(running.get(name, Fraction(0)), peak.get(name, Fraction(0))) for name in running | peak}
    return total([most, amounts(spec.get("overhead")), {"pods": Fraction(1)}])


def _asked(container: Json) -> dict[str, Fraction]:
    return amounts((container.get("resources") or {}).get("requests"))
