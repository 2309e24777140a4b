"""Share of the expected CPU usage samples that are stored, by workload, namespace and UTC day. Pure.

The pipeline stores the rows, pages show them; nothing else depends on them. Samples are due for slots in which pods
lived (`cotenant.base.usage.samples`): a workload that is switched off at night misses none.
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
    """Number of samples that some series should have (`due`), and number of these that are present."""

    due: float
    present: int

    def merge(self, other: SampleCount) -> SampleCount:
        """Return the sum of both counts."""
        return SampleCount(self.due + other.due, self.present + other.present)

    @property
    def samples_present(self) -> float:
        """Samples that are present / samples that were due, 0..1; NaN if none was due."""
        return self.present / self.due if self.due else float("nan")


NO_SAMPLES: Final = SampleCount(0.0, 0)


@dataclass(frozen=True, slots=True)
class NamespaceCoverage:
    """The number of series in one namespace, and their samples.

    `longest` is the length of the longest gap of any series, in slots; `last` is the index of the last sampled slot.
    """

    series: int
    samples: SampleCount
    longest: int
    last: int

    def merge(self, other: NamespaceCoverage) -> NamespaceCoverage:
        """Return the coverage of the series of both objects; no series may be counted in both."""
        return NamespaceCoverage(
            self.series + other.series,
            self.samples.merge(other.samples),
            max(self.longest, other.longest),
            max(self.last, other.last),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The completeness of a set of series, by namespace and by slot.

    `by_namespace` covers series with any sample. `due_by_slot`, `lived_by_slot` and `seen_by_slot`, one value per slot
    of the grid, count samples due, series whose pod lived, and series with a sample. `merge` empties `by_workload`.
    """

    grid: TimeGrid
    by_namespace: Mapping[str, NamespaceCoverage]
    due_by_slot: Floats
    lived_by_slot: Integers
    seen_by_slot: Integers
    by_workload: Mapping[WorkloadRef, SampleCount] = field(default_factory=dict)

    def merge(self, other: Coverage) -> Coverage:
        """Return the coverage of the series of both objects; no series may be counted in both."""
        namespaces = dict(self.by_namespace)
        for name, of in other.by_namespace.items():
            namespaces[name] = namespaces[name].merge(of) if name in namespaces else of
        due = self.due_by_slot + other.due_by_slot
        lived, seen_by_slot = self.lived_by_slot + other.lived_by_slot, self.seen_by_slot + other.seen_by_slot
        return Coverage(self.grid, namespaces, due, lived, seen_by_slot)

    @property
    def total(self) -> SampleCount:
        """Sample counts over all series."""
        counts = (of.samples for _, of in sorted(self.by_namespace.items()))
        return reduce(SampleCount.merge, counts, NO_SAMPLES)

    def namespace_rows(self) -> list[dict[str, Any]]:
        """Return the rows of `cotenant.recommender.model.views.COVERAGE`, sorted by namespace."""
        rows, step = [], self.grid.step_seconds
        for name, of in sorted(self.by_namespace.items()):
            row = {"namespace": name, "series": of.series, "coverage": of.samples.samples_present}
            newest = self.grid.start_seconds + (of.last + 1) * step
            rows.append({**row, "longest_gap_seconds": of.longest * step, "newest": newest})
        return rows

    def day_rows(self) -> list[dict[str, Any]]:
        """Return the rows of `recommender.model.views.COVERAGE_BY_DAY`, oldest first.

        `coverage` is None if no samples were due; `gap_seconds` is the time in which every sample due is missing.
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
    """Return the coverage of the series, computed in blocks of some hundred rows."""
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
    """Samples due, containers alive and samples present in each slot over all series, (slots,); filled in place."""

    due: Floats
    lived: Integers
    seen: Integers

    @classmethod
    def of(cls, members: Members[Any], size: int) -> _Slots:
        """Create the counts from the samples that are present; missing ones are added later."""
        ends, gaps = members.ends, members.gaps
        begins, ended = (np.bincount(edge[ends.counts > 0], minlength=size + 1) for edge in (ends.first, ends.end))
        seen_by_slot = np.cumsum(begins - ended)[:size] - np.bincount(gaps.places % (size + 1), minlength=size)
        return cls(seen_by_slot.astype(np.float64), seen_by_slot.copy(), seen_by_slot)

    def add_gaps(self, count: Integers) -> None:
        """Add the number of missing samples of living pods in each slot, (slots,)."""
        self.due[:] += count
        self.lived[:] += count

    def add_missing(self, life: ContainerLife) -> None:
        within = slice(life.first_slot, life.first_slot + len(life.seen))
        self.due[within] += life.due - life.seen
        self.lived[within] += life.unseen
