"""EDGE: a review of many workloads as a job of the server, with its progress, the time left, and a way to stop it.

The page polls until it is done. If somebody stops it, the workloads reviewed so far form a complete review of their
own, which lists the others as left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from cotenant.base import measures
from cotenant.base.identity import WorkloadRef
from cotenant.changes.model.service import Method, WorkloadReview
from cotenant.dashboard.changes.jobs import PageJob
from cotenant.dashboard.changes.review import default_method

CHUNK: Final = 10
"""Number of workloads in the first question to the cluster; a stop takes effect after the question under way."""
CHUNK_SECONDS: Final = 1.0
"""Time that a question should take: each reads nodes, budgets and quotas anew, so that larger ones cost less."""
MOST_OF_A_CHUNK: Final = 200
AT_ONCE: Final = 40
"""Workloads up to which a review is answered at once, without a job."""

Ask = Callable[[Sequence[WorkloadRef], Method], list[WorkloadReview]]
Answer = tuple[list[WorkloadReview], Method]


def way_of(method: Method) -> Method:
    """Return the method by which to review: TEMPLATE in place of BUNDLE, which has the same values; else `method`."""
    return Method.TEMPLATE if method is Method.BUNDLE else method


class ReviewPass:
    """Reviews of many workloads, all by one method; a method that no person chose is known after the last review."""

    def __init__(self, ask: Ask, method: Method | None) -> None:
        """Store the chosen `method`; if it is None, `default_method` chooses it at the end."""
        self._ask, self._method = ask, method
        self._by_way: dict[Method, list[WorkloadReview]] = {}

    def add(self, some: Sequence[WorkloadRef]) -> None:
        """Review more workloads, by the chosen method, or by each method that may still become the default."""
        way = way_of(self._method or Method.TEMPLATE)
        looks = self._ask(some, way)
        self._by_way.setdefault(way, []).extend(looks)
        if self._method is None:
            suggested = {review.suggested for review in self._by_way[Method.TEMPLATE] if not review.error}
            # A workload with another suggestion rules IN_PLACE out as the default of all.
            if suggested <= {Method.BUNDLE, Method.IN_PLACE}:
                self._by_way.setdefault(Method.IN_PLACE, []).extend(self._ask(some, Method.IN_PLACE))

    def answer(self, method: Method | None = None) -> Answer | None:
        """Return the reviews so far and their method; None if some workloads were not reviewed by that method."""
        by_template = self._by_way.get(Method.TEMPLATE, [])
        chosen = method or self._method or default_method(by_template)
        looks = self._by_way.get(way_of(chosen), [])
        is_whole = not by_template or len(looks) == len(by_template)  # one that became impossible midway is not
        return (looks, chosen) if is_whole else None


class ReviewJob(PageJob):
    """A job that reviews workloads namespace by namespace, so that the stored results of each are read only once."""

    def __init__(self, refs: Sequence[WorkloadRef], ask: Ask, method: Method | None = None) -> None:
        """Start the reviews at once, in a thread."""
        self.total, self.done = len(refs), 0
        self._refs, self._pass = tuple(refs), ReviewPass(ask, method)
        super().__init__("review")

    @property
    def is_partial(self) -> bool:
        """True if the job ended before all workloads were reviewed."""
        return self.is_over and self.done < self.total

    def left_seconds(self) -> float | None:
        """Estimate the remaining seconds from the speed so far; None before the first workload is reviewed."""
        return measures.remaining_seconds(self.elapsed_seconds(), measures.ratio_of(self.done, self.total))

    def answer(self, method: Method | None = None) -> Answer | None:
        """Return the reviews so far and their method (`ReviewPass.answer`); raise the error that ended the job."""
        self.require_success()
        job_answer = self._pass.answer(method)
        if job_answer is None:
            return None
        looks, method = job_answer
        place = {ref: index for index, ref in enumerate(self._refs)}
        return sorted(looks, key=lambda review: place[review.workload]), method

    def _work(self) -> None:
        rank = {namespace: place for place, namespace in enumerate(dict.fromkeys(ref.namespace for ref in self._refs))}
        refs = sorted(self._refs, key=lambda ref: rank[ref.namespace])
        size = CHUNK
        while self.done < self.total and self.may_go_on():
            begun_seconds = time.monotonic()
            some = refs[self.done : self.done + size]
            self._pass.add(some)
            self.done += len(some)
            took = max(time.monotonic() - begun_seconds, 1e-3)
            size = max(CHUNK, min(MOST_OF_A_CHUNK, round(len(some) * CHUNK_SECONDS / took)))
