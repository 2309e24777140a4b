"""EDGE: keeps the last answer to a slow question and refreshes it in a background thread, for callers that cannot wait.

reach = BackgroundRefresh(ask, first, every_seconds=10)
reach.now()          # the last answer; refreshes in the background when it is old
reach.fresh(2.0)     # waits up to 2 s for a new answer when the last one is old, then returns the last one
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

AnswerT = TypeVar("AnswerT")


class BackgroundRefresh(Generic[AnswerT]):
    """One question; `ask` must not raise. Safe for many threads."""

    def __init__(self, ask: Callable[[], AnswerT], first: AnswerT, every_seconds: float) -> None:
        """Ask nothing yet; `first` is the answer until the first question is answered."""
        self._ask = ask
        self._answer = first
        self._every_seconds = every_seconds
        self._asked_seconds = float("-inf")
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._done.set()

    def now(self) -> AnswerT:
        """Return the last answer; it may be old."""
        self._begin()
        return self._answer

    def fresh(self, wait_seconds: float) -> AnswerT:
        """The answer to a question not older than `every_seconds`, if it comes in time; else the last one."""
        self._begin()
        self._done.wait(wait_seconds)
        return self._answer

    def forget(self) -> None:
        """Read again in the next round: something has changed."""
        self._asked_seconds = float("-inf")

    def _begin(self) -> None:
        with self._lock:
            old = time.monotonic() - self._asked_seconds >= self._every_seconds
            if not old or not self._done.is_set():
                return
            self._asked_seconds = time.monotonic()
            self._done.clear()
        threading.Thread(target=self._run, name="glance", daemon=True).start()

    def _run(self) -> None:
        """Ask on the thread, and wake those who wait for the answer, after a failure too."""
        try:
            self._answer = self._ask()
        finally:
            self._done.set()
