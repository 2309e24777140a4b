"""Times and durations as Kubernetes writes them. Pure.

Source: Kubernetes API conventions (RFC 3339 in UTC, whole seconds) and Go's time.ParseDuration.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.text import format_value

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LENGTH_CAP: Final = 64
"""Characters of a moment or a duration: longer ones are refused before anything looks inside."""
LONGEST_SECONDS: Final = (2**63 - 1) / 1e9
"""Of a duration, some 292 years: Go counts nanoseconds in 64 bits and refuses more."""
APART_SECONDS: Final = 120.0
"""Clocks that differ by more are not both right."""


def believable_seconds(ours: float, theirs: float | None) -> float:
    """Return the local time `ours`, or, if the known times differ by more than APART_SECONDS, the time `theirs`."""
    return ours if theirs is None or abs(ours - theirs) <= APART_SECONDS else theirs


def moment(seconds: float) -> str:
    """Return a Unix time as Kubernetes' Time: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_moment(seconds: float) -> str:
    """Return a Unix time as Kubernetes' MicroTime: RFC 3339 in UTC, with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str, what: str) -> float:
    """Parse a Go duration such as "1m30s" to seconds, "0" and "" to 0; raise UsageError, naming `what`, if invalid."""
    seconds = 0.0 if text in ("0", "") else duration_seconds(text)
    if seconds is None:
        raise UsageError(
            f"{what}: {format_value(text)} is not a duration", fix='Write a duration like "1h30m"; 0 is forever.'
        )
    return seconds


def duration_seconds(text: Any) -> float | None:
    """Parse an unsigned Go duration with units to seconds; return None for anything else, also for "0"."""
    if not isinstance(text, str) or not 0 < len(text) <= LENGTH_CAP:
        return None
    at, seconds = 0, 0.0
    while at < len(text):
        part = _DURATION.match(text, at)
        if part is None:
            return None
        at, seconds = part.end(), seconds + float(part[1]) * _UNITS[part[2]]
    return seconds if seconds <= LONGEST_SECONDS else None


def moment_of(text: Any, what: str) -> float | None:
    """Parse an RFC 3339 time to Unix time, in UTC if it has no zone; return None for an empty text.

    Raise UsageError, which names `what`, if the text is not a time.
    """
    if not text:
        return None
    try:
        written = text if isinstance(text, str) else str(text) if isinstance(text, datetime) else ""
        parsed = datetime.fromisoformat(written.replace("Z", "+00:00") if len(written) <= LENGTH_CAP else "")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: {format_value(text)} is not a time", fix='Write "2026-11-20T18:00:00Z".') from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
