"""A span of time in a page's address: `since=` and `until=`, as RFC 3339 or Unix seconds. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from cotenant.core.model.errors import UsageError

KEYS: Final = ("since", "until")
COLUMN: Final = "time"
"""Of the tables that can be narrowed so; `since` is part of the span, `until` is not."""
FIX: Final = "Write 2026-11-19T12:00:00Z, or Unix seconds."


def seconds(text: str) -> float:
    """Unix time; UsageError for what is no moment. Without a zone it is UTC."""
    try:
        unix_seconds = float(text) if text.lstrip("-").replace(".", "", 1).isdecimal() else _of_words(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is no moment.", fix=FIX) from error
    if not math.isfinite(unix_seconds) or abs(unix_seconds) > 1e11:
        raise UsageError(f"{text!r} is no moment.", fix=FIX)
    return unix_seconds


def _of_words(text: str) -> float:
    # A "+" of an offset is a blank in a query string.
    moment = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def words(moment: float) -> str:
    """The one spelling in addresses, which `seconds` reads back to the millisecond."""
    try:
        text = datetime.fromtimestamp(round(moment, 3), UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return f"{moment:.3f}"
    return text.replace("+00:00", "Z").replace(".000Z", "Z")
