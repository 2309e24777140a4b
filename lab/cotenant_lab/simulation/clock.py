"""EDGE: the demo's clock: runs with the machine's clock, can be paused and moved ahead. Safe for many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SteeredClock:
    """A clock that begins at a given time. It never runs backwards, so that recorded times are always in the past."""

    def __init__(self, begin_seconds: float, machine: Callable[[], float] = time.monotonic) -> None:
        """Goes at once. machine: seconds that pass."""
        self._machine = machine
        self._lock = threading.Lock()
        self._shown, self._since = begin_seconds, machine()
        self._halted = False
        self._stills = 0

    def now_seconds(self) -> float:
        """Return the Unix time in seconds."""
        with self._lock:
            return self._now()

    @property
    def halted(self) -> bool:
        """True if the clock is halted."""
        return self._halted

    def halt(self, halted: bool = True) -> None:
        """Halt the clock, or let it run again."""
        with self._lock:
            self._shown, self._since, self._halted = self._now(), self._machine(), halted

    def move(self, to_seconds: float) -> None:
        """Set the clock to a later time (an earlier one is ignored); it runs on from there unless halted."""
        with self._lock:
            self._shown, self._since = max(self._now(), to_seconds), self._machine()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Let only `move` advance the clock within the context: the time of the computation does not count."""
        with self._lock:
            self._shown, self._stills = self._now(), self._stills + 1
        try:
            yield
        finally:
            with self._lock:
                self._stills -= 1
                self._since = self._machine()

    def _now(self) -> float:
        goes = not (self._halted or self._stills)
        return self._shown + self._machine() - self._since if goes else self._shown
