"""EDGE: a review of many workloads as a job of the server: how far it is, how long it still takes, and a way to stop.

The page asks again until it is done. What was reviewed when somebody stops it is a review of its own, which says what
it leaves out. A job lives in this process alone: another replica begins its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import structlog

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.changes.model.service import WorkloadReview

CHUNK: Final = 10
"""Workloads of one question to the cluster: a stop takes effect after it."""
AT_ONCE: Final = 40
"""Workloads up to which a review is answered at once, without a job."""
MOST_JOBS: Final = 8
"""Jobs that are kept, the newest ones; an older one is stopped and made anew when its page asks again."""

Ask = Callable[[Sequence[WorkloadRef]], list[WorkloadReview]]
log = structlog.get_logger(__name__)


class ReviewJob:
    """One pass over workloads, in a thread of its own; its progress may be read from any thread."""

    def __init__(self, refs: Sequence[WorkloadRef], ask: Ask) -> None:
        """Begin the reviews at once, in a thread."""
        self.total = len(refs)
        self._refs, self._ask = tuple(refs), ask
        self._looks: list[WorkloadReview] = []
        self._error: CotenantError | None = None
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._begun = time.monotonic()
        threading.Thread(target=self._run, name="review", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """True once all was reviewed, somebody stopped it, or it failed."""
        return self._ended.is_set()

    @property
    def is_partial(self) -> bool:
        """True if it ended before all was reviewed."""
        return self.is_over and len(self._looks) < self.total

    @property
    def done(self) -> int:
        """The number of workloads that were reviewed so far."""
        return len(self._looks)

    def left_seconds(self) -> float | None:
        """About how long it still takes, by its speed so far; None before the first answer."""
        done_ratio = measures.ratio_of(self.done, self.total)
        return measures.remaining_seconds(time.monotonic() - self._begun, done_ratio)

    def stop(self) -> None:
        """End it after the question that is under way."""
        self._stopped.set()

    def looks(self) -> list[WorkloadReview]:
        """Return the reviews made so far, in the order of the workloads. Raises the error that ended it."""
        if self._error is not None:
            raise self._error
        return list(self._looks)

    def wait(self, seconds: float) -> bool:
        """Wait so long for the end; whether it is over."""
        return self._ended.wait(seconds)

    def _run(self) -> None:
        try:
            for start in range(0, self.total, CHUNK):
                if self._stopped.is_set():
                    break
                self._looks += self._ask(self._refs[start : start + CHUNK])
        except CotenantError as error:
            self._error = error
        except Exception as error:
            log.exception("review_failed")
            self._error = CotenantError(f"the review failed: {error}", fix="Begin it anew; the log says more.")
        finally:
            self._ended.set()


class ReviewJobs:
    """The jobs of one dashboard, by what they review and for whom. Safe for many threads."""

    def __init__(self) -> None:
        """Create a registry without any job."""
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, ReviewJob] = {}

    def job(self, key: Hashable, refs: Sequence[WorkloadRef], ask: Ask) -> ReviewJob:
        """The job of that key, begun where there is none."""
        with self._lock:
            found = self._jobs.pop(key, None) or ReviewJob(refs, ask)
            self._jobs[key] = found
            while len(self._jobs) > MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs))).stop()
            return found

    def stop(self, belongs: Callable[[Hashable], bool]) -> None:
        """Stop the jobs whose key belongs to somebody's review."""
        with self._lock:
            for key, job in self._jobs.items():
                if belongs(key):
                    job.stop()
