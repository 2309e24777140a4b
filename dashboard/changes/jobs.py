"""EDGE: work that takes longer than a request: a job of the server in a thread, which a page polls until it is done.

A job pauses while no page polls it, continues when its page polls again, also after a reload, and ends if that does not
happen for ABANDONED_SECONDS. It exists in this process only: another replica starts its own.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from cotenant.base.errors import CotenantError

JobT = TypeVar("JobT", bound="PageJob")
MOST_JOBS: Final = 8
"""Most jobs that are kept, the newest ones; an older one is stopped, and started again on request."""
VIEWER_GONE_SECONDS: Final = 3.0
"""Time for which a job continues after the last request; a page sends one each second."""
ABANDONED_SECONDS: Final = 900.0
"""Longest pause of a job before it ends: a browser asks for a tab in the background each minute only."""
log = structlog.get_logger(__name__)


class PageJob(ABC):
    """A job that runs in its own thread; its progress may be read from any thread."""

    def __init__(self, name: str) -> None:
        """Start the work at once, so a subclass calls this last; `name` stands in the log and in an error's message."""
        self._name = name
        self._error: CotenantError | None = None
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._asked_again = threading.Condition()
        self._begun = self._asked_seconds = time.monotonic()
        self._rested_seconds = 0.0
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_over(self) -> bool:
        """True once the job is complete, stopped or failed."""
        return self._ended.is_set()

    def elapsed_seconds(self) -> float:
        """Return how long the job has worked so far, without its pauses."""
        return time.monotonic() - self._begun - self._rested_seconds

    def stop(self) -> None:
        """Stop the job as soon as its current part is complete."""
        self._stopped.set()
        self.ask()

    def ask(self) -> None:
        """Record that the page polls the job, and continue the job if it is paused."""
        with self._asked_again:
            self._asked_seconds = time.monotonic()
            self._asked_again.notify_all()

    def may_go_on(self) -> bool:
        """Pause while no page polls; then return whether to continue: False once the job is stopped or abandoned."""
        paused = time.monotonic()
        with self._asked_again:
            is_wanted = self._asked_again.wait_for(
                lambda: self._stopped.is_set() or time.monotonic() - self._asked_seconds < VIEWER_GONE_SECONDS,
                ABANDONED_SECONDS,
            )
            if not is_wanted:
                self._stopped.set()
        self._rested_seconds += time.monotonic() - paused
        return not self._stopped.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the job to end, and return whether it has ended."""
        return self._ended.wait(seconds)

    def require_success(self) -> None:
        """Raise the error that ended the job, if there is one."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def _work(self) -> None:
        """Do the work, and call `may_go_on` between two parts of it."""

    def _run(self) -> None:
        try:
            self._work()
        except CotenantError as error:
            self._error = error
        except Exception as error:
            log.exception("job_failed", job=self._name)
            self._error = CotenantError(f"the {self._name} failed: {error}", fix="Start it again; the log has details.")
        finally:
            self._ended.set()


class Jobs(Generic[JobT]):
    """The last polled MOST_JOBS jobs of one dashboard, by a key that names the work and the person. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, JobT] = {}

    def job(self, key: Hashable, begin: Callable[[], JobT]) -> JobT:
        """Return the job with this key, and start it with `begin` if there is none."""
        with self._lock:
            present_job = self._jobs.pop(key, None) or begin()
            present_job.ask()
            self._jobs[key] = present_job
            while len(self._jobs) > MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs))).stop()
            return present_job

    def found(self, key: Hashable) -> JobT | None:
        """Return the job with this key, or None; do not start one."""
        with self._lock:
            return self._jobs.get(key)

    def last(self, belongs: Callable[[Hashable], bool]) -> JobT | None:
        """Return the most recently polled job whose key passes `belongs`, or None; this counts as a poll."""
        with self._lock:
            last_job = next((job for key, job in reversed(self._jobs.items()) if belongs(key)), None)
        if last_job is not None:
            last_job.ask()
        return last_job

    def forget(self, key: Hashable) -> None:
        """Stop the job with this key; the next request starts it again."""
        with self._lock:
            job = self._jobs.pop(key, None)
        if job is not None:
            job.stop()
