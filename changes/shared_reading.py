"""EDGE: caches of the cluster's answers: one kept for some seconds, one refreshed in the background.

reach = BackgroundRefresh(ask, first, every_seconds=10)
reach.now()  # the last answer; refreshes in the background if it is old
reach.fresh(2.0)  # waits up to 2 s for a new answer if the last one is old
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from cotenant.base.errors import CotenantError
from cotenant.base.process.clock import Clock

AnswerT = TypeVar("AnswerT")
FRESH_SECONDS: Final = 2.0
LONGEST_FRESH_SECONDS: Final = 60.0
IDLE_FACTOR: Final = 10
"""An answer is kept for so many times as long as it took to read: an open page costs the API server little."""


class SharedReading(Generic[AnswerT]):
    """A cache of the latest answer of `read`, which is called with the present time (Unix seconds). Thread-safe.

    Errors are cached too, so that an unreachable cluster is not queried by each page.
    """

    def __init__(self, clock: Clock, read: Callable[[float], AnswerT]) -> None:
        self._clock, self._read = clock, read
        self._lock = threading.Lock()
        self._latest: tuple[float, float, AnswerT | CotenantError] | None = None

    def answer(self) -> AnswerT:
        """Return the answer, at most some seconds old; raise CotenantError if it could not be read."""
        with self._lock:
            now = self._clock.now_seconds()
            if self._latest is None or not 0 <= now - self._latest[0] < self._latest[1]:
                try:
                    answer: AnswerT | CotenantError = self._read(now)
                except CotenantError as error:
                    answer = error
                fresh_seconds = max(FRESH_SECONDS, IDLE_FACTOR * (self._clock.now_seconds() - now))
                self._latest = (now, min(fresh_seconds, LONGEST_FRESH_SECONDS), answer)
            latest = self._latest[2]
        if isinstance(latest, CotenantError):
            raise latest
        return latest

    def forget(self) -> None:
        """Clear the cache, because something was changed."""
        with self._lock:
            self._latest = None


class BackgroundRefresh(Generic[AnswerT]):
    """A cache of one answer that a thread refreshes; `ask` must not raise. Thread-safe."""

    def __init__(self, ask: Callable[[], AnswerT], first: AnswerT, every_seconds: float) -> None:
        """Query nothing yet; `first` is the answer until the first query is answered."""
        self._ask = ask
        self._answer = first
        self._every_seconds = every_seconds
        self._asked_seconds = float("-inf")
        self._lock = threading.Lock()
        self._under_way: threading.Event | None = None

    def now(self) -> AnswerT:
        """Return the last answer, which may be old, and start a refresh if it is."""
        self._begin()
        return self._answer

    def fresh(self, wait_seconds: float) -> AnswerT:
        """Return an answer not older than `every_seconds` if it comes within `wait_seconds`, else the last one."""
        done = self._begin()
        if done is not None:
            done.wait(wait_seconds)
        return self._answer

    def forget(self) -> None:
        """Refresh the answer at the next call, because something was changed; a query that was asked before is void."""
        with self._lock:
            self._asked_seconds, self._under_way = float("-inf"), None

    def _begin(self) -> threading.Event | None:
        """Start a query if the answer is old, and return the event that ends the one under way, if there is one."""
        with self._lock:
            if self._under_way is None and time.monotonic() - self._asked_seconds >= self._every_seconds:
                self._asked_seconds, self._under_way = time.monotonic(), threading.Event()
                threading.Thread(target=self._run, args=(self._under_way,), name="glance", daemon=True).start()
            return self._under_way

    def _run(self, done: threading.Event) -> None:
        """Query on the thread, and wake those who wait for the answer, even after a failure."""
        try:
            answer = self._ask()
            with self._lock:
                self._answer = answer if self._under_way is done else self._answer
        finally:
            with self._lock:
                self._under_way = None if self._under_way is done else self._under_way
            done.set()
