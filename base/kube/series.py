"""Events that are not written yet: groups occurrences and selects the groups that may be written now. Pure.

A repeated Event is one object whose count grows; it is written at once when it is new, then at most once a minute, and
a token bucket limits the rate of all. A thousand groups are kept; those without an occurrence for longest are dropped.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

REPEAT_SECONDS: Final = 60.0
BURST: Final = 50
PER_SECOND: Final = 1.0
KEPT: Final = 1000
NOTHING_MORE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class EventSubject:
    """The identity of an Event: occurrences with the same object, reason and note (except numbers) are one Event."""

    regarding: Regarding
    reason: str
    template: str
    warning: bool = False

    def event_name(self, component: str) -> str:
        """Return the name of the Event object, which is the same in every process."""
        parts = (component, self.regarding, self.reason, self.template, self.warning)
        return f"{self.regarding.name[:200].rstrip('.-')}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class EventOccurrences:
    """The occurrences of one subject, of which `pending` have not been written. Times are Unix seconds."""

    note: str
    pending: int = 0
    first_seconds: float = 0.0
    """Unix time of the first occurrence that is not written yet."""
    last_seconds: float = 0.0
    told_seconds: float = float("-inf")
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the newest occurrence."""


@dataclass(slots=True)
class Backlog:
    """All Events of a process that may have unwritten occurrences, with the token bucket that limits their rate."""

    series: OrderedDict[EventSubject, EventOccurrences] = field(default_factory=OrderedDict)
    dropped: int = 0
    """Number of occurrences that were not reported."""
    _tokens: float = BURST
    _filled_seconds: float = float("-inf")

    def add(
        self, subject: EventSubject, note: str, now_seconds: float, annotations: Mapping[str, str] = NOTHING_MORE
    ) -> None:
        """Count an occurrence of a subject; the Event keeps its first note and gets the newest annotations."""
        series = self.series.setdefault(subject, EventOccurrences(note))
        series.annotations = annotations
        self.series.move_to_end(subject)
        if not series.pending:
            series.first_seconds = now_seconds
        series.pending += 1
        series.last_seconds = now_seconds
        if len(self.series) > KEPT:
            self.dropped += self.series.popitem(last=False)[1].pending

    def due(self, now_seconds: float) -> list[tuple[EventSubject, EventOccurrences]]:
        """Return copies of the Events that the rate limit permits to write now, the least recently repeated first."""
        passed = now_seconds - self._filled_seconds
        self._tokens = min(float(BURST), self._tokens + max(0.0, passed) * PER_SECOND)
        self._filled_seconds = now_seconds
        since = now_seconds - REPEAT_SECONDS  # one told in the future was told before the clock was set back
        waiting = [s for s, x in self.series.items() if x.pending and not since < x.told_seconds <= now_seconds]
        chosen = waiting[: int(self._tokens)]
        self._tokens -= len(chosen)
        return [(subject, replace(self.series[subject])) for subject in chosen]

    def told(self, subject: EventSubject, count: int, now_seconds: float) -> None:
        """Record that `count` pending occurrences of a subject have been written; 0 records a failed attempt."""
        series = self.series.get(subject)
        if series:
            series.pending -= count
            series.told_seconds = now_seconds
