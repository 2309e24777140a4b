"""EDGE: the clock. Code that needs the present time takes a `Clock`, so that tests and the demo can shift it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol

from cotenant.base.kubernetes.moments import believable_seconds


class Clock(Protocol):
    """A source of the present time, real or simulated."""

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
        """Always the same moment."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """A clock that goes with the machine's, `ahead_seconds` before it: what a test cluster is fast-forwarded with."""

    ahead_seconds: float

    def now_seconds(self) -> float:
        """Unix time, UTC, shifted."""
        return time.time() + self.ahead_seconds


class ServerClock:
    """The time by the newest answer of a server, independent of changes to the machine's clock; thread-safe.

    An answer carries its time in seconds without fraction; the time since then is measured by a monotonic clock.
    """

    def __init__(self) -> None:
        """No answer has come yet."""
        self._ahead_of_monotonic: float | None = None

    def observe(self, date: str) -> None:
        """Set the clock by the Date header of an answer that has just come; a text that is no time is ignored."""
        try:
            self._ahead_of_monotonic = parsedate_to_datetime(date).timestamp() - time.monotonic()
        except (TypeError, ValueError, OverflowError):
            return

    def now_seconds(self) -> float | None:
        """Unix time, UTC; None before the first answer."""
        ahead = self._ahead_of_monotonic
        return None if ahead is None else ahead + time.monotonic()

    def believable_clock(self) -> Clock:
        """Return the machine's clock, or one that goes with the server's where the two are far apart.

        Objects carry the server's time: ages by a machine that is wrong, or beside the demo's cluster, would be others
        than those of a page that is served beside the cluster.
        """
        ours = time.time()
        ahead = believable_seconds(ours, self.now_seconds()) - ours
        return ShiftedClock(ahead) if ahead else SystemClock()


@dataclass(frozen=True, slots=True)
class BelievableClock:
    """Our clock; the server's while the two are far apart, because objects and the ends of promises have its time.

    server: None where there is none to go by.
    """

    ours: Clock
    server: ServerClock | None

    def now_seconds(self) -> float:
        """Unix time, UTC, by the clock in use."""
        theirs = self.server.now_seconds() if self.server is not None else None
        return believable_seconds(self.ours.now_seconds(), theirs)
