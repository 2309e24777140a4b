"""Samples present of CPU usage: the share of those due that are there, by workload, namespace and UTC day. Pure.

Beside the flow: the pipeline stores the rows, pages show them. Samples are due of the slots in which pods lived
(`cotenant.base.usage.samples`): what is switched off at night misses none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.usage.lives import Lives
from cotenant.base.usage.samples import ContainerLife, Members
from cotenant.base.usage.sparse_usage import AnyUsage
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class SampleCount(NamedTuple):
    """Samples that were due of some pods, and how many are there."""

    due: float
    present: int

    def merge(self, other: SampleCount) -> SampleCount:
        """Return the counts of the pods of both."""
        return SampleCount(self.due + other.due, self.present + other.present)

    @property
    def samples_present(self) -> float:
        """Samples that are present / samples that were due, 0..1; NaN if none was due."""
        return self.present / self.due if self.due else float("nan")


NO_SAMPLES: Final = SampleCount(0.0, 0)


@dataclass(frozen=True, slots=True)
class NamespaceCoverage:
    """Series of one namespace, and the samples of them all.

    longest: slots of the longest gap of any; last: the last slot with a sample.
    """

    series: int
    samples: SampleCount
    longest: int
    last: int

    def merge(self, other: NamespaceCoverage) -> NamespaceCoverage:
        """Return the coverage of the series of both."""
        return NamespaceCoverage(
            self.series + other.series,
            self.samples.merge(other.samples),
            max(self.longest, other.longest),
            max(self.last, other.last),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The completeness of some series, by namespace and by slot.

    by_namespace: of the series with any sample; due_by_slot, lived_by_slot, seen_by_slot: number of samples that were
    due, of series that were alive, and of series that had a sample, (grid.size,).
    """

    grid: TimeGrid
    by_namespace: Mapping[str, NamespaceCoverage]
    due_by_slot: Floats
    lived_by_slot: Integers
    seen_by_slot: Integers
    by_workload: Mapping[WorkloadRef, SampleCount] = field(default_factory=dict)

    def merge(self, other: Coverage) -> Coverage:
        """Return the coverage of the series of both; no series may be in both."""
        namespaces = dict(self.by_namespace)
        for name, of in other.by_namespace.items():
            namespaces[name] = namespaces[name].merge(of) if name in namespaces else of
        due = self.due_by_slot + other.due_by_slot
        lived, seen = self.lived_by_slot + other.lived_by_slot, self.seen_by_slot + other.seen_by_slot
        return Coverage(self.grid, namespaces, due, lived, seen)

    @property
    def total(self) -> SampleCount:
        """Return the counts over all series."""
        counts = (of.samples for _, of in sorted(self.by_namespace.items()))
        return reduce(SampleCount.merge, counts, NO_SAMPLES)

    def namespace_rows(self) -> list[dict[str, Any]]:
        """Rows of `cotenant.recommender.model.views.COVERAGE`, sorted by namespace."""
        rows, step = [], self.grid.step_seconds
        for name, of in sorted(self.by_namespace.items()):
            row = {"namespace": name, "series": of.series, "coverage": of.samples.samples_present}
            newest = self.grid.start_seconds + (of.last + 1) * step
            rows.append({**row, "longest_gap_seconds": of.longest * step, "newest": newest})
        return rows

    def day_rows(self) -> list[dict[str, Any]]:
        """Rows of `model.views.COVERAGE_BY_DAY`, oldest first; coverage is None on a day when none was due.

        A slot is silent when samples were due and none is there: the source was down, not one pod.
        """
        days = self.grid.times() // DAY_SECONDS * DAY_SECONDS
        rows = []
        for day in np.unique(days):
            slots = days == day
            due, present = self.due_by_slot[slots], self.seen_by_slot[slots]
            samples = SampleCount(float(due.sum()), int(present.sum()))
            row = {"day": int(day), "series": int(self.lived_by_slot[slots].max())}
            gap_seconds = int(((due > 0) & (present == 0)).sum()) * self.grid.step_seconds
            coverage = samples.samples_present if samples.due else None
            rows.append({**row, "coverage": coverage, "gap_seconds": gap_seconds})
        return rows


def coverage(usage: AnyUsage[PodContainerRef], inventory: Inventory, lives: Lives) -> Coverage:
    """Return the coverage of the series, computed over some hundred rows at a time."""
    owners, size = inventory.owners(), usage.grid.size

    def key_of(ref: PodContainerRef) -> ContainerRef | PodContainerRef:
        return inventory.container_of(ref, owners) or ref

    keys = [key_of(ref) for ref in usage.refs]
    members: Members[ContainerRef | PodContainerRef] = Members.of(lives, usage, keys, key_of)
    slots = _Slots.of(members, size)
    gap_count, longest_gap = np.diff(members.missed.bounds), members.missed.longest()
    gaps_alone: list[int] = []
    namespaces: dict[str, NamespaceCoverage] = {}
    workloads: dict[WorkloadRef, SampleCount] = defaultdict(lambda: NO_SAMPLES)
    for key, rows in members.own.items():
        present, longest = int(members.ends.counts[rows].sum()), int(longest_gap[rows].max())
        samples = SampleCount(float(present + int(gap_count[rows].sum())), present)
        if members.misses_gaps_alone(key):
            gaps_alone += rows
        elif (life := members.life(key)) is not None:
            samples, longest = SampleCount(float(life.due.sum()), present), life.longest
            slots.add_missing(life)
        last = int(members.ends.end[rows].max()) - 1
        coverage = NamespaceCoverage(len(rows), samples, longest, last)
        name = key.workload.namespace if isinstance(key, ContainerRef) else key.namespace
        namespaces[name] = namespaces[name].merge(coverage) if name in namespaces else coverage
        if isinstance(key, ContainerRef):
            workloads[key.workload] = workloads[key.workload].merge(samples)
    slots.add_gaps(members.missed.of_rows(sorted(row for row in gaps_alone if gap_count[row]))[0])
    return Coverage(usage.grid, namespaces, slots.due, slots.lived, slots.seen, dict(workloads))


@dataclass(frozen=True, slots=True, eq=False)
class _Slots:
    """Samples due, containers that lived and samples there of all series, (slots,) each; filled in place."""

    due: Floats
    lived: Integers
    seen: Integers

    @classmethod
    def of(cls, members: Members[Any], size: int) -> _Slots:
        """Create the slots from the samples that were seen; missing ones are added later."""
        ends, gaps = members.ends, members.gaps
        begun, ended = (np.bincount(edge[ends.counts > 0], minlength=size + 1) for edge in (ends.first, ends.end))
        seen = np.cumsum(begun - ended)[:size] - np.bincount(gaps.places % (size + 1), minlength=size)
        return cls(seen.astype(np.float64), seen.copy(), seen)

    def add_gaps(self, count: Integers) -> None:
        """Add so many samples of each slot, (slots,), that were due of pods that lived and are missing."""
        self.due[:] += count
        self.lived[:] += count

    def add_missing(self, life: ContainerLife) -> None:
        """Add the samples of a container that were due and are missing."""
        within = slice(life.first_slot, life.first_slot + len(life.seen))
        self.due[within] += life.due - life.seen
        self.lived[within] += life.unseen
