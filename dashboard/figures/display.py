"""Amounts, times and codes as text for people: cores, GiB, percent, "4 min", and what a colour means. Pure.

The grid's cells are formatted by the same rules in `assets/grid.js`. Addresses, the API and exports have the codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cotenant.base import amount_text
from cotenant.base.amount_text import MISSING, binary_unit, gpus, three_digits
from cotenant.base.reasons import Reason
from cotenant.base.resource import MeasuredResource, Resource
from cotenant.base.text import counted, duration, moment
from cotenant.base.text import percent as finite_percent
from cotenant.base.text import share as finite_share
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.steps import Ready

__all__ = [
    "LABELS",
    "MISSING",
    "amount",
    "between",
    "clock",
    "cores",
    "counted",
    "css_share",
    "duration",
    "gib",
    "gpus",
    "label",
    "moment",
    "money",
    "of_kind",
    "percent",
    "signed",
    "signed_number",
    "true_minus",
]
LABELS: Final[Mapping[str, str]] = {
    **{code: code.value.removeprefix("autopilot-").replace("-", " ") for code in (*Reason, *FindingKind)},
    Ready.WHOLE: "ready",
    Ready.FIRST_STEP: "in steps",
    Ready.SECOND_PERSON: "second person",
    Ready.NOTHING: "no change",
    Reason.OBSERVED_MAXIMUM: "highest seen",
    Reason.WITHIN_DEAD_BAND: "too small a change",
    Reason.OOM_BUMP: "after an OOM kill",
    Reason.FLOOR: "smallest allowed",
    Reason.QOS_CLASS: "keeps QoS class",
    Reason.LIMIT_RANGE: "bound of LimitRange",
    Reason.HPA_SOLVED: "with its HPA",
    Reason.HPA_UNSOLVED: "HPA unsolved",
    Reason.HPA_ON_RESOURCE: "HPA on the resource",
    Reason.NO_PEAK: "no pronounced peak",
    Reason.NO_SKILL: "no better than last week",
    Reason.NO_WINDOW: "no more pods needed",
    Reason.UNCOVERED: "coverage too low",
    Reason.LADDER_RECOMMENDATION_ROSE: "more is recommended now",
    FindingKind.UNSCHEDULABLE: "fits on no node",
    FindingKind.IDLE_GPU: "idle GPU",
    FindingKind.OVERSIZED_GPU: "oversized GPU",
    FindingKind.UNMEASURED_GPU: "unmeasured GPU",
}
"""Code -> label of at most 25 characters, no two alike."""


def true_minus(text: str) -> str:
    """Replace the hyphen of a number by a typographic minus; command output, which programs read, keeps the hyphen."""
    return f"−{text[1:]}" if text.startswith("-") else text


def amount(value: float | None, resource: MeasuredResource) -> str:
    """Format an amount of a resource with its unit."""
    return true_minus(amount_text.amount(value, resource))


def cores(millicores: float | None) -> str:
    """Format millicores as cores: "250 m", "1.25"."""
    return true_minus(amount_text.cores(millicores))


def gib(size: float | None) -> str:
    """Format bytes in the largest binary unit that is not above them."""
    return true_minus(amount_text.gib(size))


def money(value: float | None, currency: str) -> str:
    """Format a sum of money: whole from 100 up, with cents below."""
    return true_minus(amount_text.money(value, currency))


def between(low: float, high: float, resource: Resource) -> str:
    """Format a range with one unit, that of the higher end: "0 to 4.8 cores", "20 to 250 m", "0.5 to 1.5 GiB".

    If both ends read the same, one amount is returned.
    """
    if amount(low, resource) == amount(high, resource):
        return amount(high, resource)
    if resource is Resource.MEMORY:
        unit, name = binary_unit(high)
    else:
        unit, name = (1000, "cores") if high >= 1000 else (1, "m")
    if unit == 1:
        return f"{low:,.0f} to {high:,.0f} {name}"
    return f"{three_digits(low / unit)} to {three_digits(high / unit)} {name}"


def signed(value: float | None, resource: Resource) -> str:
    """Format a change with its sign (a typographic minus); "0" if nothing changes."""
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    return ("+" if value > 0 else "−") + amount(abs(value), resource)


def percent(ratio: float | None, digits: int = 0) -> str:
    """Format a ratio in percent, with `digits` decimals."""
    return MISSING if ratio is None or math.isnan(ratio) else true_minus(finite_percent(ratio, digits))


def share(ratio: float | None) -> str:
    """Format a share that ought to be 100 % in percent, to one decimal, never rounded up."""
    return MISSING if ratio is None or math.isnan(ratio) else finite_share(ratio)


def signed_number(value: float | None) -> str:
    """Format a number without a unit, with its sign and two decimals."""
    return MISSING if value is None or math.isnan(value) else true_minus(f"{value:+z.2f}")


def clock(seconds: float) -> str:
    """Format a Unix time as the time of day in UTC: "18:00"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M")


def number(count: int) -> str:
    """Format a count with thousands separators: "1,234"."""
    return f"{count:,}"


def css_share(ratio: float) -> str:
    """Format a share of a width or height as a CSS percentage."""
    return format(ratio, ".2%")


def of_kind(number: int, word: str) -> str:
    """Format a number before an adjective: "12 critical"."""
    return f"{number:,} {word}"


def label(code: str) -> str:
    """Return the label of a code; any other text is returned unchanged."""
    return LABELS.get(code, code)
