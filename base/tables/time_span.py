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
FIX: Final = "Write a time such as 2026-11-19T12:00:00Z, or Unix seconds."
RANGE: Final = "range"
RANGE_FIX: Final = "Write a number of m, h or d, such as 24h or 7d, or write all."
WHOLE: Final = "all"
AHEAD: Final = "next"
"""The range without any past, for charts that end in a forecast."""
UNIT_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60}
DURATION: Final = re.compile(r"(?P<count>[1-9]\d{0,4})(?P<unit>[mhd])")


def range_seconds(text: str) -> float:
    """Return how many seconds a range such as "7d" reaches back; inf for "all", 0 for "next" (the forecast only).

    Raise UsageError if the text is not a range.
    """
    if text in (WHOLE, AHEAD):
        return math.inf if text == WHOLE else 0.0
    duration = DURATION.fullmatch(text)
    if duration is None:
        raise UsageError(f"{text!r} is not a time range.", fix=RANGE_FIX)
    return float(int(duration["count"]) * UNIT_SECONDS[duration["unit"]])


def range_text(back_seconds: float) -> str:
    """Return the text of a range of whole minutes, such as "90m" or "2d"; "next" for 0, "all" for infinity."""
    if back_seconds in (0.0, math.inf):
        return AHEAD if back_seconds == 0.0 else WHOLE
    total = int(back_seconds)
    unit = next(u for u, size in UNIT_SECONDS.items() if total % size == 0 and total >= size * (2 if u == "d" else 1))
    return f"{total // UNIT_SECONDS[unit]}{unit}"


def seconds(text: str) -> float:
    """Parse a time to Unix seconds, in UTC if it has no zone; raise UsageError if the text is not a time."""
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
    """Return the canonical text of a time for URLs, which `seconds` parses to the same millisecond."""
    try:
        text = datetime.fromtimestamp(round(moment, 3), UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return f"{moment:.3f}"
    return text.replace("+00:00", "Z").replace(".000Z", "Z")
