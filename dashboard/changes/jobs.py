"""EDGE: work that outlasts a request: a job of the server in a thread, of which a page asks again until it is done.

A job lives in this process alone: another replica begins its own.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from cotenant.base.errors import CotenantError

JobT = TypeVar("JobT", bound="Job")
MOST_JOBS: Final = 8
"""Jobs that are kept, the newest ones; an older one is stopped and made anew when its page asks again."""
log = structlog.get_logger(__name__)


class Job(ABC):
    """Work in a thread of its own; its progress may be read from any thread."""

    def __init__(self, name: str) -> None:
        """Begin the work at once: a subclass calls this last. name: what is done, for the log and an error's words."""
        self._name = name
        self._error: CotenantError | None = None
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._begun = time.monotonic()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_over(self) -> bool:
        """True once all was done, somebody stopped it, or it failed."""
        return self._ended.is_set()

    def elapsed_seconds(self) -> float:
        """Return how long it has taken so far."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """End it as soon as the question that is under way has its answer."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long for the end; whether it is over."""
        return self._ended.wait(seconds)

    def require_success(self) -> None:
        """Raise the error that ended it; nothing where none did."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def _work(self) -> None:
        """Do it; `_stopped` says that it is to end."""

    def _run(self) -> None:
        try:
            self._work()
        except CotenantError as error:
            self._error = error
        except Exception as error:
            log.exception("job_failed", job=self._name)
            self._error = CotenantError(f"the {self._name} failed: {error}", fix="Begin it anew; the log says more.")
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
            self._jobs[key] = found
            while len(self._jobs) > MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs))).stop()
            return found

    def forget(self, key: Hashable) -> None:
        """Stop the job of that key, and begin it anew the next time."""
        with self._lock:
            found = self._jobs.pop(key, None)
        if found is not None:
            found.stop()

    def stop(self, belongs: Callable[[Hashable], bool]) -> None:
        """Stop the jobs whose key belongs to somebody's work."""
        with self._lock:
            for key, job in self._jobs.items():
                if belongs(key):
                    job.stop()
