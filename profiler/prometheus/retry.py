"""EDGE: decides when a failed query is retried and when the server counts as unreachable.

A query without an answer, or with status 408, 429 or 5xx, is retried after a pause that doubles up to
LONGEST_PAUSE_SECONDS, or longer if the server sends Retry-After. There are at least `retries` retries, and more until
`outage_seconds` after the query's first failure, so that a restart of the server costs time and no data. A server that
never answered gets only `retries`: its address is more likely wrong than the server restarting.

A query that fails permanently must not cost this time for each other query: after the first one that was given up, the
others get only `retries`, until a query recovers.
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
"""Longest pause, unless the server asks for a longer one."""
SILENT_QUESTIONS: Final = 5
"""Number of successive queries without an answer after which the rest fail at once (if the outage is too long)."""
OPEN_SECONDS: Final = 30.0
"""Time between two queries to a server that counts as down, which show whether it is back."""

_log = structlog.get_logger(__name__)


class Timer(Protocol):
    """A source of monotonic time and of pauses between retries; replaced in tests."""

    def monotonic_seconds(self) -> float:
        """Return the seconds since a fixed time; they never decrease."""

    def pause(self, seconds: float) -> None:
        """Wait for this number of seconds, or until `stop` is called."""

    def stop(self) -> None:
        """End the present pause and skip all future ones."""


class MachineTimer:
    """The timer that uses the machine's monotonic clock."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def monotonic_seconds(self) -> float:
        """Return the seconds since the machine's start."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait for this number of seconds, or until `stop` is called."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """End the present pause and skip all future ones."""
        self._stopped.set()


@dataclass(slots=True)
class Attempts:
    """The failed attempts of one query: their number, and the timer's time of the first failure."""

    failures: int = 0
    first_failure_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The way in which one attempt of a query failed.

    `silent` means no answer at all; `slow` means no complete answer in time, so that a smaller query may succeed.
    """

    silent: bool
    slow: bool = False
    retry_after_seconds: float = 0.0


class RetryPolicy:
    """Decides on retries for all queries to one server; thread-safe."""

    def __init__(self, retries: int, backoff_seconds: float, outage_seconds: float, timer: Timer) -> None:
        """Create the policy; a query is retried for `outage_seconds` if the server has answered before."""
        self._retries, self._backoff_seconds, self._outage_seconds = retries, backoff_seconds, outage_seconds
        self.timer = timer
        self._lock = threading.Lock()
        self.silence = 0
        """Tries in a row that got no answer."""
        self._silent_since, self._ask_again_at = 0.0, 0.0
        self._answered_before = self._exhausted = self._stopped = False

    def may_ask(self) -> bool:
        """Return whether a query may be sent: the server is not known to be down, or it is time to try it again."""
        with self._lock:
            now = self.timer.monotonic_seconds()
            if self.silence < SILENT_QUESTIONS or now - self._silent_since < self._outage_seconds:
                return True
            due = now >= self._ask_again_at
            if due:
                self._ask_again_at = now + OPEN_SECONDS
            return due

    def answered(self, attempts: Attempts) -> None:
        """Record that a query was answered, which ends the series of failed attempts."""
        with self._lock:
            if attempts.failures or self.silence:
                self._exhausted = False
            self.silence, self._answered_before = 0, True

    def pause_seconds(self, attempts: Attempts, failure: FailedTry) -> float | None:
        """Record a failed attempt; return the seconds to wait before the next one, or None to give the query up."""
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
        """End all pauses and allow no further query, because the caller stops."""
        self._stopped = True
        self.timer.stop()


def retry_after_seconds(header: str | None, now_seconds: float) -> float:
    """Return the seconds in a Retry-After header, a number or a date (RFC 9110, 10.2.3); 0 without a valid one.

    `now_seconds` is the Unix time with which a date is compared.
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
