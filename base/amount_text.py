"""Amounts for people: cores, GiB, GPUs and money with three significant digits at most. Pure, without numpy.

A value rounded to zero has no sign (the `z` of the formats); the pages' scripts format numbers by the same rules.
"""

from __future__ import annotations

import math
from typing import Final

from cotenant.base.resource import GIB, KIB, MIB, PERCENT_PER_DEVICE, DeviceResource, MeasuredResource, Resource

MISSING: Final = "–"


def cores(millicores: float | None) -> str:
    """Return millicores as text, from 1000 on in cores without a unit: "250 m", "1.25", "310"."""
    if millicores is None or math.isnan(millicores):
        return MISSING
    if abs(millicores) < 1000:
        return f"{millicores:z,.0f} m"
    return three_digits(millicores / 1000)


def gib(amount: float | None) -> str:
    """Return bytes in the largest binary unit not above the amount: "512 MiB", "1.5 GiB", "2.3 TiB"."""
    if amount is None or math.isnan(amount):
        return MISSING
    unit, name = binary_unit(amount)
    return f"{three_digits(amount / unit)} {name}" if unit > 1 else f"{amount:z,.0f} B"


def gpus(percent_of_one: float | None) -> str:
    """Return a percent of one device as a number of devices: "0.3 GPUs", "1 GPU"."""
    if percent_of_one is None or math.isnan(percent_of_one):
        return MISSING
    text = three_digits(percent_of_one / PERCENT_PER_DEVICE)
    return f"{text} GPU{'' if text == '1' else 's'}"


def amount(value: float | None, resource: MeasuredResource) -> str:
    """Return an amount of a resource with its unit."""
    if isinstance(resource, DeviceResource):
        return gpus(value)
    if resource is Resource.MEMORY:
        return gib(value)
    text = cores(value)
    return text if text == MISSING or text.endswith("m") else f"{text} core{'' if text.lstrip('-') == '1' else 's'}"


def money(value: float | None, currency: str) -> str:
    """Return a sum of money as text: whole from 100 up, with cents below."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:z,.0f} {currency}" if abs(value) >= 100 else f"{value:z,.2f} {currency}"


def binary_unit(amount: float) -> tuple[int, str]:
    """Return the size and name of the largest binary unit not above an amount of bytes."""
    units = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return next(((unit, name) for unit, name in units if abs(amount) >= unit), (1, "B"))


def three_digits(value: float) -> str:
    """Return a number with 2 decimals below 10, 1 below 100, else none; zeros at the end of decimals are cut off."""
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:z,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
