"""Change windows: the weekdays, times and time zone in which changes may be made. Pure.

A window is a text such as `mon-fri 20:00-06:00 Europe/Berlin`: weekdays (one, a range, several joined by `+`, or
`daily`), a time of day and an IANA zone. A window that passes midnight belongs to the day on which it begins. Times are
the zone's wall-clock times: when clocks change, an hour that occurs twice counts twice, a skipped hour not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cotenant.base.errors import UsageError

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES: Final = 24 * 60
EXAMPLE: Final = "Write a change window as in `mon-fri 20:00-06:00 Europe/Berlin` or `sat+sun 00:00-24:00 UTC`."
_TEXT: Final = re.compile(r"(\S+)\s+(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s+(\S+)")


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """A weekly window: weekdays (0 is Monday) on which it begins, `start` and `end` (exclusive) in minutes of the day.

    It passes midnight if `end` is not after `start`.
    """

    days: frozenset[int]
    start: int
    end: int
    zone: str

    def holds(self, seconds: float) -> bool:
        """Return whether the time (Unix seconds) is in the window."""
        local_time = datetime.fromtimestamp(seconds, UTC).astimezone(ZoneInfo(self.zone))
        minute, today = local_time.hour * 60 + local_time.minute, local_time.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or ((today - 1) % 7 in self.days and minute < self.end)


def parse_window(text: str) -> ChangeWindow:
    """Return the window that a text describes; raise UsageError that names an invalid part."""
    match = _TEXT.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a change window", fix=EXAMPLE)
    start, end = _minutes(match[2], match[3], text), _minutes(match[4], match[5], text)
    if start == DAY_MINUTES:
        raise UsageError(f"{text!r}: a window has to begin before 24:00", fix=EXAMPLE)
    name = match[6]
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"{text!r}: {name!r} is not a time zone", fix="Use an IANA name such as Europe/Berlin, or UTC."
        ) from None
    weekdays = match[1].lower()
    if weekdays in ("daily", "*"):
        return ChangeWindow(frozenset(range(7)), start, end, name)
    days: set[int] = set()
    for part in weekdays.split("+"):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise UsageError(f"{text!r}: {part!r} is not a weekday or a range", fix=f"Use {', '.join(DAYS)} or daily.")
        begin, stop = DAYS.index(first), DAYS.index(last or first)
        days |= {day % 7 for day in range(begin, stop + 1 if stop >= begin else stop + 8)}
    return ChangeWindow(frozenset(days), start, end, name)


def opens(windows: Sequence[ChangeWindow], seconds: float) -> float | None:
    """Return when the next change window opens (Unix time, whole minutes): now if one is open or no window is set.

    Return None if no window opens within eight days, which happens only if no window has a weekday.
    """
    if not windows or any(window.holds(seconds) for window in windows):
        return seconds
    first = (int(seconds) // 60 + 1) * 60
    moments = (first + 60 * minute for minute in range(8 * DAY_MINUTES))
    return next((float(m) for m in moments if any(window.holds(m) for window in windows)), None)


def is_open(texts: Iterable[str], seconds: float) -> bool:
    """Return whether changes may be made at that time (Unix seconds); always True if no window is set."""
    windows = [parse_window(text) for text in texts]
    return not windows or any(window.holds(seconds) for window in windows)


def next_opening_text(texts: Iterable[str], seconds: float) -> str:
    """Return when the next window opens, as text: "Fri 20:00 UTC, in 3.5 hours", or "never"."""
    moment = opens([parse_window(text) for text in texts], seconds)
    if moment is None:
        return "never"
    hours_left = timedelta(seconds=moment - seconds).total_seconds() / 3600
    return f"{datetime.fromtimestamp(moment, UTC):%a %H:%M} UTC, in {hours_left:.1f} hours"


def _minutes(hours: str, minutes: str, text: str) -> int:
    minute_of_day = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute_of_day > DAY_MINUTES:
        raise UsageError(f"{text!r}: {hours}:{minutes} is not a time of day", fix=EXAMPLE)
    return minute_of_day
