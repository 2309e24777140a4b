"""Coverage of usage: the share of expected samples that are present, by namespace and by UTC day. Pure.

Beside the flow: the pipeline stores the rows, the data-quality page shows them. A container counts as alive from its
pod's start to its end where the inventory knows the pod, and in any case from its first to its last sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.cluster import Inventory
from cotenant.core.model.identity import PodContainerRef
from cotenant.core.model.usage.sparse_usage import AnyUsage
from cotenant.core.model.usage.usage import DAY_SECONDS, TimeGrid

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
_CHUNK: Final = 512
"""Rows judged at once, so that working memory stays small."""
_EDGE_SLOTS: Final = 2
"""A rate needs two scrapes: so many slots without a sample at either end of a pod's life are no gap."""


@dataclass(frozen=True, slots=True)
class NamespaceCoverage:
    """Series of one namespace, slots in which they were alive and in which they had a sample, in all of them together.

    longest: slots of the longest gap of any; last: the last slot with a sample.
    """

    series: int
    alive: int
    seen: int
    longest: int
    last: int

    def joined(self, other: NamespaceCoverage) -> NamespaceCoverage:
        """Of both series."""
        return NamespaceCoverage(
            self.series + other.series,
            self.alive + other.alive,
            self.seen + other.seen,
            max(self.longest, other.longest),
            max(self.last, other.last),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """How complete some series are: by namespace (those with any sample), and how many were alive and seen by slot.

    alive_by_slot, seen_by_slot: (grid.size,).
    """

    grid: TimeGrid
    by_namespace: Mapping[str, NamespaceCoverage]
    alive_by_slot: Integers
    seen_by_slot: Integers

    def joined(self, other: Coverage) -> Coverage:
        """Of the series of both, which are others."""
        namespaces = dict(self.by_namespace)
        for name, of in other.by_namespace.items():
            namespaces[name] = namespaces[name].joined(of) if name in namespaces else of
        alive, seen = self.alive_by_slot + other.alive_by_slot, self.seen_by_slot + other.seen_by_slot
        return Coverage(self.grid, namespaces, alive, seen)

    def namespace_rows(self) -> list[dict[str, Any]]:
        """Rows of `cotenant.core.model.views.COVERAGE`, sorted by namespace."""
        return [
            {
                "namespace": name,
                "series": of.series,
                "coverage": of.seen / of.alive,
                "longest_gap_seconds": of.longest * self.grid.step_seconds,
                "newest": self.grid.start_seconds + (of.last + 1) * self.grid.step_seconds,
            }
            for name, of in sorted(self.by_namespace.items())
        ]

    def day_rows(self) -> list[dict[str, Any]]:
        """Rows of `model.views.COVERAGE_BY_DAY`, oldest first; coverage is None on a day when nobody was alive.

        A slot is silent when containers were alive and none of them had a sample: the source was down, not one pod.
        """
        days = self.grid.times() // DAY_SECONDS * DAY_SECONDS
        rows = []
        for day in np.unique(days):
            slots = days == day
            alive, present = self.alive_by_slot[slots], self.seen_by_slot[slots]
            rows.append(
                {
                    "day": int(day),
                    "series": int(alive.max()),
                    "coverage": float(present.sum() / alive.sum()) if alive.sum() else None,
                    "gap_seconds": int(((alive > 0) & (present == 0)).sum()) * self.grid.step_seconds,
                }
            )
        return rows


def coverage(usage: AnyUsage[PodContainerRef], inventory: Inventory) -> Coverage:
    """How complete the series are, some hundred rows looked at at a time."""
    count, size = len(usage.refs), usage.grid.size
    first, end = _lives(usage, inventory)
    by_slot = np.zeros((2, size), dtype=np.int64)
    namespaces: dict[str, NamespaceCoverage] = {}
    for begin in range(0, count if size else 0, _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        present = ~np.isnan(usage.rows(rows))
        alive = _alive(present, first[rows], end[rows])
        by_slot += np.stack([alive.sum(axis=0), present.sum(axis=0)])
        columns = np.stack(_per_series(present, alive), axis=1).tolist()
        for ref, (lifetime, samples, longest, last) in zip(usage.refs[rows], columns, strict=True):
            if last >= 0:
                one = NamespaceCoverage(1, lifetime, samples, longest, last)
                others = namespaces.get(ref.namespace)
                namespaces[ref.namespace] = others.joined(one) if others else one
    return Coverage(usage.grid, namespaces, by_slot[0], by_slot[1])


def _per_series(present: Flags, alive: Flags) -> tuple[Integers, Integers, Integers, Integers]:
    """Slots alive, slots with a sample, longest run of alive slots without one, last slot with one."""
    size = present.shape[1]
    last = np.where(present.any(axis=1), size - 1 - present[:, ::-1].argmax(axis=1), -1)
    return alive.sum(axis=1), present.sum(axis=1), _longest_run(alive & ~present), last


def _longest_run(flags: Flags) -> Integers:
    """Length of the longest stretch of True in each row, (rows,)."""
    longest = np.zeros(len(flags), dtype=np.int64)
    some = np.flatnonzero(flags.any(axis=1))  # few series have a gap
    slots = np.arange(1, flags.shape[1] + 1, dtype=np.int32)
    before = np.maximum.accumulate(np.where(flags[some], 0, slots), axis=1, dtype=np.int32)
    longest[some] = (slots - before).max(axis=1, initial=0)
    return longest


def _alive(present: Flags, first: Integers, end: Integers) -> Flags:
    """Slots of each row's life: [first, end) of its pod, widened to its own samples."""
    size = present.shape[1]
    some: Flags = np.asarray(present.any(axis=1))
    sample_first = np.where(some, present.argmax(axis=1), size)
    sample_end = np.where(some, size - present[:, ::-1].argmax(axis=1), 0)
    slots = np.arange(size)
    begin = np.where(sample_first - first <= _EDGE_SLOTS, sample_first, np.minimum(first, sample_first))
    stop = np.where(end - sample_end <= _EDGE_SLOTS, sample_end, np.maximum(end, sample_end))
    inside: Flags = (slots >= begin[:, None]) & (slots < stop[:, None]) & some[:, None]
    return inside


def _lives(usage: AnyUsage[PodContainerRef], inventory: Inventory) -> tuple[Integers, Integers]:
    """[first, end) slot of each series' pod inside the grid; an empty life where the inventory does not know it."""
    grid: TimeGrid = usage.grid
    pods = {(p.namespace, p.name): p for p in inventory.pods}
    first, end = np.full(len(usage.refs), grid.size), np.zeros(len(usage.refs), dtype=np.int64)
    for row, ref in enumerate(usage.refs):
        if (pod := pods.get((ref.namespace, ref.pod))) and pod.start_seconds:
            first[row] = max(0, grid.index_of(pod.start_seconds))
            end[row] = grid.size if pod.running else min(grid.size, grid.index_of(pod.end_seconds or 0))
    return first, end
