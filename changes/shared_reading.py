"""EDGE: an answer of the cluster that serves everybody who looks within some seconds."""

from __future__ import annotations

import threading
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
    """The latest answer of `read`, which gets the present moment (Unix time). Thread-safe.

    An error serves everybody for a while too: a cluster that is away is not asked by each page.
    """

    def __init__(self, clock: Clock, read: Callable[[float], AnswerT]) -> None:
        self._clock, self._read = clock, read
        self._lock = threading.Lock()
        self._latest: tuple[float, float, AnswerT | CotenantError] | None = None

    def answer(self) -> AnswerT:
        """Return the present answer, or that of some seconds ago. Raises CotenantError if it could not be read."""
        with self._lock:
            now = self._clock.now_seconds()
            if self._latest is None or not 0 <= now - self._latest[0] < self._latest[1]:
                answer = self._answer_or_error(now)
                fresh_seconds = max(FRESH_SECONDS, IDLE_FACTOR * (self._clock.now_seconds() - now))
                self._latest = (now, min(fresh_seconds, LONGEST_FRESH_SECONDS), answer)
            latest = self._latest[2]
        if isinstance(latest, CotenantError):
            raise latest
        return latest

    def forget(self) -> None:
        """Read again next time: something was changed."""
        with self._lock:
            self._latest = None

    def _answer_or_error(self, now_seconds: float) -> AnswerT | CotenantError:
        try:
            return self._read(now_seconds)
        except CotenantError as error:
            return error
