"""EDGE: work that outlasts a request: a job of the server in a thread, of which a page asks again until it is done.

A job rests while nobody asks for it and goes on when its page asks again, after a reload too; one that nobody asks for
any more ends. It lives in this process alone: another replica begins its own.
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
"""Number of jobs that are kept, the newest; an older one is stopped, and started again on request."""
VIEWER_GONE_SECONDS: Final = 3.0
"""How long a job continues after the last request; a page sends one each second."""
ABANDONED_SECONDS: Final = 900.0
"""How long a job rests before it ends: a browser asks for a tab in the background each minute only."""
log = structlog.get_logger(__name__)


class PageJob(ABC):
    """Work in a thread of its own; its progress may be read from any thread."""

    def __init__(self, name: str) -> None:
        """Begin the work at once: a subclass calls this last. name: what is done, for the log and an error's words."""
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
        """True once all was done, somebody stopped it, or it failed."""
        return self._ended.is_set()

    def elapsed_seconds(self) -> float:
        """Return how long it has worked so far."""
        return time.monotonic() - self._begun - self._rested_seconds

    def stop(self) -> None:
        """End it as soon as the question that is under way has its answer."""
        self._stopped.set()
        self.ask()

    def ask(self) -> None:
        """Note that its page asks for it; it goes on if it has rested."""
        with self._asked_again:
            self._asked_seconds = time.monotonic()
            self._asked_again.notify_all()

    def may_go_on(self) -> bool:
        """Return whether there is more to do, after a pause without requests; called between two parts of the work."""
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
        """Wait so long for the end; whether it is over."""
        return self._ended.wait(seconds)

    def require_success(self) -> None:
        """Raise the error that ended it; nothing where none did."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def _work(self) -> None:
        """Do it, and ask `may_go_on` between two parts of it."""

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
    """The jobs of one dashboard, by what they do and for whom. Safe for many threads."""

    def __init__(self) -> None:
        """Create a registry without any job."""
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, JobT] = {}

    def job(self, key: Hashable, begin: Callable[[], JobT]) -> JobT:
        """The job of that key, begun where there is none."""
        with self._lock:
            found = self._jobs.pop(key, None) or begin()
            found.ask()
            self._jobs[key] = found
            while len(self._jobs) > MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs))).stop()
            return found

    def found(self, key: Hashable) -> JobT | None:
        """Return the job of that key, or None; nothing begins."""
        with self._lock:
            return self._jobs.get(key)

    def last(self, belongs: Callable[[Hashable], bool]) -> JobT | None:
        """Return the job of somebody's work that was asked for last, or None; it is asked for by this."""
        with self._lock:
            found = next((job for key, job in reversed(self._jobs.items()) if belongs(key)), None)
        if found is not None:
            found.ask()
        return found

    def forget(self, key: Hashable) -> None:
        """Stop the job with this key; the next request starts it again."""
        with self._lock:
            found = self._jobs.pop(key, None)
        if found is not None:
            found.stop()
