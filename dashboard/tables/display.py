"""Amounts, moments and codes in words for people: cores, GiB, percent, "4 min", and what a colour means. Pure.

The grid's cells are formatted by the same rules in `assets/grid.js`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from cotenant.core.model.resource import GIB, KIB, MIB, PERCENT_PER_DEVICE, DeviceResource, MeasuredResource, Resource
from cotenant.core.model.text import percent as finite_percent

MISSING: Final = "–"


def cores(millicores: float | None) -> str:
    """Millicores as cores with three significant digits at most: "250 m", "1.25", "310"."""
    if millicores is None or math.isnan(millicores):
        return MISSING
    if abs(millicores) < 1000:
        return f"{millicores:,.0f} m"
    return _digits(millicores / 1000)


def gib(amount: float | None) -> str:
    """Bytes in the largest binary unit below it: "512 MiB", "1.5 GiB", "2.3 TiB"."""
    if amount is None or math.isnan(amount):
        return MISSING
    unit, name = _binary(amount)
    return f"{_digits(amount / unit)} {name}" if unit > 1 else f"{amount:,.0f} B"


def gpus(percent_of_one: float | None) -> str:
    """Percent of one device as devices: "0.3 GPUs", "1 GPU"."""
    if percent_of_one is None or math.isnan(percent_of_one):
        return MISSING
    text = _digits(percent_of_one / PERCENT_PER_DEVICE)
    return f"{text} GPU{'' if text == '1' else 's'}"


def amount(value: float | None, resource: MeasuredResource) -> str:
    """An amount of a resource with its unit."""
    if isinstance(resource, DeviceResource):
        return gpus(value)
    if resource is Resource.MEMORY:
        return gib(value)
    text = cores(value)
    return text if text == MISSING or text.endswith("m") else f"{text} core{'' if text.lstrip('-') == '1' else 's'}"


def between(low: float, high: float, resource: Resource) -> str:
    """A range whose unit, the higher end's, is said once: "0 to 4.8 cores", "20 to 250 m", "0.5 to 1.5 GiB".

    Ends that read alike are one amount.
    """
    if amount(low, resource) == amount(high, resource):
        return amount(high, resource)
    if resource is Resource.MEMORY:
        unit, name = _binary(high)
    else:
        unit, name = (1000, "cores") if high >= 1000 else (1, "m")
    if unit == 1:
        return f"{low:,.0f} to {high:,.0f} {name}"
    return f"{_digits(low / unit)} to {_digits(high / unit)} {name}"


def signed(value: float | None, resource: Resource) -> str:
    """A change with its sign (a true minus), "0" when nothing changes."""
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    return ("+" if value > 0 else "−") + amount(abs(value), resource)


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio in percent, of so many digits behind the point."""
    return MISSING if ratio is None or math.isnan(ratio) else finite_percent(ratio, digits)


def money(value: float | None, currency: str) -> str:
    """A sum of money: whole from 100 up, with cents below."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:,.0f} {currency}" if abs(value) >= 100 else f"{value:,.2f} {currency}"


def moment(seconds: float) -> str:
    """A moment in UTC: "Thu 12 Nov 18:00 UTC"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %H:%M UTC")


def clock(seconds: float) -> str:
    """Time of day in UTC: "18:00"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M")


def duration(seconds: float) -> str:
    """A length of time in its largest unit: "42 s", "4 min", "3 h", "2 d"."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or (seconds >= unit and name == "min"):
            return f"{seconds // unit:.0f} {name}"
    return f"{max(0, seconds):.0f} s"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where due."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _binary(amount: float) -> tuple[int, str]:
    """The largest binary unit not above an amount of bytes."""
    units = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return next(((unit, name) for unit, name in units if abs(amount) >= unit), (1, "B"))


def _digits(value: float) -> str:
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
