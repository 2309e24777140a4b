"""EDGE: decides when a failed query is retried and when the server counts as unreachable.

A question that nobody answered, or that was answered with 408, 429 or 5xx, is asked again after a pause that doubles up
to LONGEST_PAUSE_SECONDS; a server's Retry-After makes it longer. There are at least `retries` further tries, and while
`outage_seconds` since the question's first failure are not over there are more, so that a restart of the server costs
time and no data. An address where nobody ever answered gets the `retries` alone: it is rather mistyped than restarting.

One question that fails for good must not cost this time again for each other question: after the first that was given
up the others get `retries` alone, until a question recovers.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

import structlog

LONGEST_PAUSE_SECONDS: Final = 10.0
"""Longest pause that we choose ourselves."""
SILENT_QUESTIONS: Final = 5
"""Questions in a row without any answer before the rest fail at once (when the patience is over too)."""
OPEN_SECONDS: Final = 30.0
"""A server that counts as gone is asked one question in so many seconds: it may have come back."""

_log = structlog.get_logger(__name__)


class Timer(Protocol):
    """Monotonic time and pauses; replaced in tests."""

    def monotonic_seconds(self) -> float:
        """Seconds since some moment; never goes back."""

    def pause(self, seconds: float) -> None:
        """Wait, less when `stop` is called."""

    def stop(self) -> None:
        """End all pauses, present and future."""


class MachineTimer:
    """The machine's time."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def monotonic_seconds(self) -> float:
        """Seconds since the machine's start."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait, less when `stop` is called."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """End all pauses, present and future."""
        self._stopped.set()


@dataclass(slots=True)
class Attempts:
    """Failed tries of one question. first_failure_seconds: by the timer's clock."""

    failures: int = 0
    first_failure_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The kind of a failed try.

    silent: there was no answer at all. slow: there was no complete answer in time, so a smaller one may succeed.
    """

    silent: bool
    slow: bool = False
    retry_after_seconds: float = 0.0


class RetryPolicy:
    """Decides for all questions to one server; safe to use from several threads."""

    def __init__(self, retries: int, backoff_seconds: float, outage_seconds: float, timer: Timer) -> None:
        """outage_seconds: how long one question is asked again when the server was there before."""
        self._retries, self._backoff_seconds, self._outage_seconds = retries, backoff_seconds, outage_seconds
        self.timer = timer
        self._lock = threading.Lock()
        self.silence = 0
        """Tries in a row that got no answer."""
        self._silent_since, self._ask_again_at = 0.0, 0.0
        self._answered_before = self._exhausted = self._stopped = False

    def may_ask(self) -> bool:
        """Return whether a question may be sent: the server is not known to be gone, or it is time to try again."""
        with self._lock:
            now = self.timer.monotonic_seconds()
            if self.silence < SILENT_QUESTIONS or now - self._silent_since < self._outage_seconds:
                return True
            due = now >= self._ask_again_at
            if due:
                self._ask_again_at = now + OPEN_SECONDS
            return due

    def answered(self, attempts: Attempts) -> None:
        """Note that a query was answered: the failures in a row are over."""
        with self._lock:
            if attempts.failures or self.silence:
                self._exhausted = False
            self.silence, self._answered_before = 0, True

    def pause_seconds(self, attempts: Attempts, failure: FailedTry) -> float | None:
        """Note a failed try; how long to wait before the next one, None to give the question up."""
        with self._lock:
            now = self.timer.monotonic_seconds()
            if not attempts.failures:
                attempts.first_failure_seconds = now
                # A server that never answered is given up soon, and the error says all; for others there is a wait.
                log = _log.warning if self._answered_before or not failure.silent else _log.info
                log("prometheus_failed", silent=failure.silent, retry_after_seconds=failure.retry_after_seconds)
            attempts.failures += 1
            if failure.silent:
                self._silent_since = self._silent_since if self.silence else now
                self.silence += 1
            self._ask_again_at = now + OPEN_SECONDS
            if failure.slow or self._stopped:
                return None
            own = min(self._backoff_seconds * 2 ** (attempts.failures - 1), LONGEST_PAUSE_SECONDS)
            pause = max(own, failure.retry_after_seconds)
            alive = self._answered_before or not failure.silent
            patience = self._outage_seconds if alive and not self._exhausted else 0.0
            few = attempts.failures <= self._retries and pause <= max(patience, LONGEST_PAUSE_SECONDS)
            if few or now + pause - attempts.first_failure_seconds <= patience:
                return pause
            self._exhausted = True
            return None

    def stop(self) -> None:
        """Ask nothing again and end all pauses: the caller goes."""
        self._stopped = True
        self.timer.stop()


def retry_after_seconds(header: str | None, now_seconds: float) -> float:
    """Seconds of a Retry-After header, which is a number or a date (RFC 9110, 10.2.3); 0 without a valid one.

    now_seconds: Unix time.
    """
    if not header:
        return 0.0
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp() - now_seconds)
