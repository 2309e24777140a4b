"""EDGE: a review of many workloads as a job of the server: how far it is, how long it still takes, and a way to stop.

The page asks again until it is done. What was reviewed when somebody stops it is a review of its own, which says what
it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cotenant.base import measures
from cotenant.base.identity import WorkloadRef
from cotenant.changes.model.service import WorkloadReview
from cotenant.dashboard.changes.jobs import Job

CHUNK: Final = 10
"""Workloads of one question to the cluster: a stop takes effect after it."""
AT_ONCE: Final = 40
"""Workloads up to which a review is answered at once, without a job."""

Ask = Callable[[Sequence[WorkloadRef]], list[WorkloadReview]]


class ReviewJob(Job):
    """One pass over workloads."""

    def __init__(self, refs: Sequence[WorkloadRef], ask: Ask) -> None:
        """Begin the reviews at once, in a thread."""
        self.total = len(refs)
        self._refs, self._ask = tuple(refs), ask
        self._looks: list[WorkloadReview] = []
        super().__init__("review")

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
        return measures.remaining_seconds(self.elapsed_seconds(), measures.ratio_of(self.done, self.total))

    def looks(self) -> list[WorkloadReview]:
        """Return the reviews made so far, in the order of the workloads. Raises the error that ended it."""
        self.require_success()
        return list(self._looks)

    def _work(self) -> None:
        for start in range(0, self.total, CHUNK):
            if self._stopped.is_set():
                break
            self._looks += self._ask(self._refs[start : start + CHUNK])
