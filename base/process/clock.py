"""EDGE: the clock. Code that needs the current time gets a `Clock`, so that tests and the demo can shift it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol

from cotenant.base.kubernetes.moments import believable_seconds


class Clock(Protocol):
    """A source of the current time, real or simulated."""

    def now_seconds(self) -> float:
        """Return the Unix time in seconds."""


class SystemClock:
    """The machine's clock."""

    def now_seconds(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()


@dataclass(frozen=True, slots=True)
class FixedClock:
    """A clock that always shows the same time."""

    seconds: float

    def now_seconds(self) -> float:
        """Return the fixed Unix time."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """A clock that is `ahead_seconds` ahead of the machine's, to fast-forward a test cluster."""

    ahead_seconds: float

    def now_seconds(self) -> float:
        """Return the shifted Unix time."""
        return time.time() + self.ahead_seconds


class ServerClock:
    """The time by a server's latest response, independent of changes to the machine's clock; thread-safe.

    A response has its time in whole seconds; the time since then is measured by a monotonic clock.
    """

    def __init__(self) -> None:
        """Create a clock without a time; `observe` sets it."""
        self._ahead_of_monotonic: float | None = None

    def observe(self, date: str) -> None:
        """Set the clock by the Date header of a response that has just arrived; ignore a text that is not a time."""
        try:
            self._ahead_of_monotonic = parsedate_to_datetime(date).timestamp() - time.monotonic()
        except (TypeError, ValueError, OverflowError):
            return

    def now_seconds(self) -> float | None:
        """Return the Unix time, or None before the first response."""
        ahead = self._ahead_of_monotonic
        return None if ahead is None else ahead + time.monotonic()

    def believable_clock(self) -> Clock:
        """Return the machine's clock, or one with the server's time if they differ by more than APART_SECONDS.

        Objects are stamped with the server's time, so a wrong clock of this machine would give them wrong ages.
        """
        ours = time.time()
        ahead = believable_seconds(ours, self.now_seconds()) - ours
        return ShiftedClock(ahead) if ahead else SystemClock()


@dataclass(frozen=True, slots=True)
class BelievableClock:
    """The machine's clock, or the server's while they differ by more than APART_SECONDS.

    Objects and deadlines have the server's time. `server` is None if that is not available.
    """

    ours: Clock
    server: ServerClock | None

    def now_seconds(self) -> float:
        """Return the Unix time by the clock in use."""
        theirs = self.server.now_seconds() if self.server is not None else None
        return believable_seconds(self.ours.now_seconds(), theirs)
