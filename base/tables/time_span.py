"""A span of time in a page's address: `since=` and `until=` as RFC 3339 or Unix seconds, or `range=7d`. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from cotenant.base.errors import UsageError

KEYS: Final = ("since", "until")
COLUMN: Final = "time"
"""Of the tables that can be narrowed so; `since` is part of the span, `until` is not."""
FIX: Final = "Write 2026-11-19T12:00:00Z, or Unix seconds."
RANGE: Final = "range"
RANGE_FIX: Final = "Write 24h, 7d, 14d, all, or another in m, h or d."
WHOLE: Final = "all"
AHEAD: Final = "next"
"""Nothing of the past: of charts that end in a forecast."""
UNIT_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60}
DURATION: Final = re.compile(r"(?P<count>[1-9]\d{0,4})(?P<unit>[mhd])")


def range_seconds(text: str) -> float:
    """Return how far back a range reaches, in seconds; inf for all, 0 for what is ahead.

    Raises UsageError for text that is not a range.
    """
    if text in (WHOLE, AHEAD):
        return math.inf if text == WHOLE else 0.0
    duration = DURATION.fullmatch(text)
    if duration is None:
        raise UsageError(f"{text!r} is no time range.", fix=RANGE_FIX)
    return float(int(duration["count"]) * UNIT_SECONDS[duration["unit"]])


def range_text(back_seconds: float) -> str:
    """The one spelling of a range of whole minutes, which `range_seconds` reads back: days from two days on."""
    if back_seconds in (0.0, math.inf):
        return AHEAD if back_seconds == 0.0 else WHOLE
    whole = int(back_seconds)
    unit = next(u for u, size in UNIT_SECONDS.items() if whole % size == 0 and whole >= size * (2 if u == "d" else 1))
    return f"{whole // UNIT_SECONDS[unit]}{unit}"


def seconds(text: str) -> float:
    """Unix time; UsageError for what is not a time. Without a zone it is UTC."""
    try:
        if text.lstrip("-").replace(".", "", 1).isdecimal():
            unix_seconds = float(text)
        else:
            # A "+" of an offset is a blank in a query string.
            moment = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text)
            unix_seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time.", fix=FIX) from error
    if not math.isfinite(unix_seconds) or abs(unix_seconds) > 1e11:
        raise UsageError(f"{text!r} is not a time.", fix=FIX)
    return unix_seconds


def words(moment: float) -> str:
    """The one spelling in addresses, which `seconds` reads back to the millisecond."""
    try:
        text = datetime.fromtimestamp(round(moment, 3), UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return f"{moment:.3f}"
    return text.replace("+00:00", "Z").replace(".000Z", "Z")
