"""EDGE: a review of many workloads as a job of the server: how far it is, how long it still takes, and a way to stop.

The page asks again until it is done. What was reviewed when somebody stops it is a review of its own, which says what
it leaves out.
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
"""Workloads of the first question to the cluster: a stop takes effect after a question."""
CHUNK_SECONDS: Final = 1.0
"""How long a question should take: each reads nodes, budgets and quotas anew, so that larger ones cost less."""
MOST_OF_A_CHUNK: Final = 200
AT_ONCE: Final = 40
"""Workloads up to which a review is answered at once, without a job."""

Ask = Callable[[Sequence[WorkloadRef], Method], list[WorkloadReview]]
Answer = tuple[list[WorkloadReview], Method]


def way_of(method: Method) -> Method:
    """The method by which workloads are asked about: a bundle's values are the template's."""
    return Method.TEMPLATE if method is Method.BUNDLE else method


class ReviewPass:
    """The reviews of workloads by one method, or by the one that suits all of them, which shows at the end alone."""

    def __init__(self, ask: Ask, method: Method | None) -> None:
        """method: the one in force; None: the default of `default_method`."""
        self._ask, self._method = ask, method
        self._by_way: dict[Method, list[WorkloadReview]] = {}

    def add(self, some: Sequence[WorkloadRef]) -> None:
        """Review some more; without a method by each that may still be the default."""
        way = way_of(self._method or Method.TEMPLATE)
        found = self._ask(some, way)
        self._by_way.setdefault(way, []).extend(found)
        if self._method is None:
            suggested = {review.suggested for review in self._by_way[Method.TEMPLATE] if not review.error}
            # A workload with another suggestion rules IN_PLACE out as the default of all.
            if suggested <= {Method.BUNDLE, Method.IN_PLACE}:
                self._by_way.setdefault(Method.IN_PLACE, []).extend(self._ask(some, Method.IN_PLACE))

    def answer(self, method: Method | None = None) -> Answer | None:
        """The reviews made so far and their method; of `method` where it is given, None where that was not asked."""
        by_template = self._by_way.get(Method.TEMPLATE, [])
        chosen = method or self._method or default_method(by_template)
        looks = self._by_way.get(way_of(chosen), [])
        is_whole = not by_template or len(looks) == len(by_template)  # one that became impossible midway is not
        return (looks, chosen) if is_whole else None


class ReviewJob(PageJob):
    """One pass over workloads, namespace by namespace: what is stored of each is read once."""

    def __init__(self, refs: Sequence[WorkloadRef], ask: Ask, method: Method | None = None) -> None:
        """Begin the reviews at once, in a thread."""
        self.total, self.done = len(refs), 0
        self._refs, self._pass = tuple(refs), ReviewPass(ask, method)
        super().__init__("review")

    @property
    def is_partial(self) -> bool:
        """True if it ended before all was reviewed."""
        return self.is_over and self.done < self.total

    def left_seconds(self) -> float | None:
        """About how long it still takes, by its speed so far; None before the first answer."""
        return measures.remaining_seconds(self.elapsed_seconds(), measures.ratio_of(self.done, self.total))

    def answer(self, method: Method | None = None) -> Answer | None:
        """Return `ReviewPass.answer` in the order of the workloads; raises what ended it."""
        self.require_success()
        found = self._pass.answer(method)
        if found is None:
            return None
        looks, method = found
        place = {ref: index for index, ref in enumerate(self._refs)}
        return sorted(looks, key=lambda review: place[review.workload]), method

    def _work(self) -> None:
        rank = {namespace: place for place, namespace in enumerate(dict.fromkeys(ref.namespace for ref in self._refs))}
        refs = sorted(self._refs, key=lambda ref: rank[ref.namespace])
        size = CHUNK
        while self.done < self.total and self.may_go_on():
            begun = time.monotonic()
            some = refs[self.done : self.done + size]
            self._pass.add(some)
            self.done += len(some)
            took = max(time.monotonic() - begun, 1e-3)
            size = max(CHUNK, min(MOST_OF_A_CHUNK, round(len(some) * CHUNK_SECONDS / took)))
