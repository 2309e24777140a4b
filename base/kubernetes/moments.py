"""Moments and durations as Kubernetes writes them. Pure.

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
    """Return which of two clocks' times to use: ours, unless the other one differs much; None = not known."""
    return ours if theirs is None or abs(ours - theirs) <= APART_SECONDS else theirs


def moment(seconds: float) -> str:
    """A moment as Kubernetes writes it: whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_moment(seconds: float) -> str:
    """A moment as Kubernetes' MicroTime: with microseconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str, what: str) -> float:
    """Seconds of a Go duration such as "24h" or "1m30s"; UsageError names `what`."""
    seconds = 0.0 if text in ("0", "") else duration_seconds(text)
    if seconds is None:
        raise UsageError(
            f"{what}: {format_value(text)} is not a duration", fix='Write "30m" or "1h30m"; 0 means forever.'
        )
    return seconds


def duration_seconds(text: Any) -> float | None:
    """Seconds of a Go duration without a sign, as Go's parser takes it; None for anything else."""
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
    """Unix time of a moment as Kubernetes writes it, in UTC where it names no zone; None for none.

    UsageError names `what` for a text that is no moment.
    """
    if not text:
        return None
    try:
        written = text if isinstance(text, str) else str(text) if isinstance(text, datetime) else ""
        parsed = datetime.fromisoformat(written.replace("Z", "+00:00") if len(written) <= LENGTH_CAP else "")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: {format_value(text)} is not a time", fix='Write "2026-11-20T18:00:00Z".') from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
