"""EDGE: the clock. Code that needs the present time takes a `Clock`, so that tests and the demo can shift it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now_seconds(self) -> float:
        """Unix time, UTC."""


class SystemClock:
    """The machine's clock."""

    def now_seconds(self) -> float:
        """Unix time, UTC."""
        return time.time()


@dataclass(frozen=True, slots=True)
class FixedClock:
    """A clock that stands still."""

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
