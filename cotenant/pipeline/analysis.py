"""The messages of all stages of one run, before they are written or shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory
from cotenant.base.colocation.reclaim_policies import Reclaimable
from cotenant.base.identity import ClusterRef, NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import MeasuredResource, Resource
from cotenant.base.store import tables as stored_tables
from cotenant.base.table import Schema, Table
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.lives import SourceSilence
from cotenant.base.usage.peak import WorstDay
from cotenant.base.usage.portrait import Pattern, Portraits
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.sparse_usage import AnyUsage
from cotenant.base.usage.unshown import UnshownUse
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid, Usage
from cotenant.base.usage.week import WeekDecomposition, Weeks
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.node_peaks.node_peak import NodePeaks
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY
from cotenant.profiler.coverage import Coverage, SampleCount
from cotenant.profiler.pool import Owners
from cotenant.recommender.colocation.columns import PeakForecast
from cotenant.recommender.colocation.model.lendable import LendableLines
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import PlannedSavings
from cotenant.recommender.replicas import ReplicaFloor
from cotenant.scheduler_ext.reservations.model.plan import Proposal
from cotenant.scheduler_ext.reservations.plans.proposals import Rehearsals

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.uint64]

BLOCK_SECONDS: Final = DAY_SECONDS // BLOCKS_PER_DAY
"""Six hours: of one maximum of a node's total, and between two decisions on its peak."""


def next_border(seconds: int) -> int:
    """The first UTC border of six hours from a moment on, Unix seconds."""
    return -(-seconds // BLOCK_SECONDS) * BLOCK_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The store's data for one window: usage by signal, the inventory, and the record of the last pull."""

    inventory: Inventory
    window: TimeGrid
    usage: Mapping[Signal, AnyUsage[PodContainerRef]]
    node_usage: Mapping[Signal, Usage[NodeRef]]
    quality: QualityRecord | None
    since_seconds: int | None = None
    """Start of the first slot that is stored, which may lie long before the window; None = nothing lies before it."""
    silence: SourceSilence | None = None
    """When the source told nothing, in the whole cluster, whichever pods `usage` has; None = not known."""
    unshown: UnshownUse | None = None
    """What nodes use that none of their containers shows; None = not known."""
    requested: Mapping[Resource, float] | None = None
    """By all running pods of the cluster, in the resource's unit; None: `inventory` is the whole cluster's."""

    @property
    def unread_seconds(self) -> Mapping[Signal, int]:
        """Time that a signal's source failed to answer for; empty where all was read."""
        return self.quality.unread_seconds if self.quality else {}


@dataclass(frozen=True, slots=True, eq=False)
class NodeMaxima:
    """Highest total of prod's pods on n nodes in blocks of six hours from `start_seconds` on, a UTC border of blocks.

    values: (n, blocks) float32 in the unit of usage, NaN = unknown.
    """

    refs: tuple[NodeRef, ...]
    start_seconds: int
    values: npt.NDArray[Any]

    @property
    def end_seconds(self) -> int:
        """End of the last block."""
        return self.start_seconds + int(self.values.shape[1]) * BLOCK_SECONDS

    def starts_before(self, end_seconds: int) -> tuple[int, ...]:
        """Begin of each block that is over by then, Unix seconds."""
        count = self.before(end_seconds).shape[1]
        return tuple(self.start_seconds + BLOCK_SECONDS * block for block in range(count))

    def before(self, end_seconds: int) -> npt.NDArray[Any]:
        """Values of the blocks that are over by then, (n, blocks)."""
        return self.values[:, : max(0, end_seconds - self.start_seconds) // BLOCK_SECONDS]

    def take(self, other: NodeMaxima) -> None:
        """Write the other's values over those of the same nodes and blocks."""
        first, last = (max(self.start_seconds, other.start_seconds), min(self.end_seconds, other.end_seconds))
        if last <= first:
            return
        row_of = {ref: row for row, ref in enumerate(other.refs)}
        mine, theirs = (
            slice((first - of.start_seconds) // BLOCK_SECONDS, (last - of.start_seconds) // BLOCK_SECONDS)
            for of in (self, other)
        )
        for row, ref in enumerate(self.refs):
            if ref in row_of:
                self.values[row, mine] = other.values[row_of[ref], theirs]


@dataclass(frozen=True, slots=True, eq=False)
class PodTotals:
    """5-minute sums of each node's pods, rows alike.

    prod: of prod and pods without a class; high: of all whose use is never lent; pods: of all.
    """

    prod: Usage[NodeRef]
    high: Usage[NodeRef]
    pods: Usage[NodeRef]


@dataclass(frozen=True, slots=True, eq=False)
class PodSums:
    """Sums over the pods of one resource: totals by node, and the present usage of each pod.

    present: by (namespace, pod); peaks: (nodes,), Koordinator's sum of the peaks of running prod pods on each node;
    hours: by name the terms of `pod_hours` at the end of each hour, (nodes, hours).
    """

    totals: PodTotals
    present: Mapping[tuple[str, str], float]
    peaks: Floats
    hours: Mapping[str, Floats]


class Division(msgspec.Struct, frozen=True):
    """Shards of workloads by (namespace, name): the first of each shard but the first one, ascending."""

    firsts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Judgements:
    """The inputs behind the results of n containers; of a workload's containers all or none are kept.

    names, facts: (n,) digests of the container's name, and of all that is known of its workload except its usage;
    begin_seconds, end_seconds: (n,) of the history that was read; highest: (n, signals) float32, in the unit of each
    signal. basis: digest of the data that concern all containers; until_seconds: usage was read up to this time. rows:
    of their recommendations, as `recommendation_rows` stores them.
    """

    basis: str
    until_seconds: int
    names: Numbers = field(repr=False)
    facts: Numbers = field(repr=False)
    begin_seconds: npt.NDArray[np.int64] = field(repr=False)
    end_seconds: npt.NDArray[np.int64] = field(repr=False)
    highest: npt.NDArray[np.float32] = field(repr=False)
    findings: tuple[ClusterFinding, ...] = field(repr=False)
    rows: bytes = field(repr=False, default=b"")

    @property
    def stamp(self) -> dict[str, str]:
        """Return the stamp of all their files, which belong together."""
        return {"basis": self.basis, "until_seconds": str(self.until_seconds)}


@dataclass(frozen=True, slots=True, eq=False)
class WeekAnalysis:
    """Weeks of some series, and the parts of those whose past could be taken apart."""

    weeks: Weeks[Any]
    parts: Mapping[Any, WeekDecomposition]


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadAnalysis:
    """Totals, portraits and forecasts of some workloads, rows in their order.

    history: with the series of their pods, and an inventory of at least these workloads with their pods and events;
    totals: 5-minute sums over a workload's pods; throttled: (n,) share of its demand, 0..1. samples: of CPU usage, of
    each workload that has any.
    """

    history: History
    owners: Owners
    totals: Mapping[Signal, Usage[WorkloadRef]]
    portraits: Mapping[Resource, Portraits[WorkloadRef]]
    forecasts: Mapping[Resource, Forecasts[WorkloadRef]]
    throttled: Floats
    samples: Mapping[WorkloadRef, SampleCount]

    @property
    def workloads(self) -> tuple[WorkloadRef, ...]:
        """The workloads, in order."""
        return self.owners.workloads


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadColumns:
    """Columns of every workload that is known or left usage, beside its rows of tables.

    In the resource's unit: mean, p95 (n,) of the total's samples, variation (n,) their standard deviation / mean; NaN
    for none. medians: (n, grid.size), of the forecast.
    """

    refs: tuple[WorkloadRef, ...]
    patterns: tuple[Pattern, ...]
    mean: Mapping[Resource, Floats]
    p95: Mapping[Resource, Floats]
    variation: Mapping[Resource, Floats]
    grid: TimeGrid
    medians: Mapping[Resource, FloatMatrix]


@dataclass(frozen=True, slots=True, eq=False)
class HourlySum:
    """Sum over series by slot of the grid: sums (T,) float64, and whether any had a value."""

    grid: TimeGrid
    sums: Floats
    some: npt.NDArray[np.bool_]

    def joined(self, other: HourlySum) -> HourlySum:
        """Return the hourly sums over the series of both."""
        return HourlySum(self.grid, self.sums + other.sums, self.some | other.some)


@dataclass(frozen=True, slots=True, eq=False)
class PackedTable:
    """A table as the content of its file: a third of the memory, and quicker from process to process."""

    schema: Schema
    content: bytes

    @classmethod
    def of(cls, table: Table) -> PackedTable:
        """Return the packed form of a table that is then no longer needed."""
        return cls(table.schema, stored_tables.encode(table))

    def unpacked(self) -> Table:
        """The table."""
        return stored_tables.decode(self.content, self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class TableParts:
    """Rows of one table, a shard's after another's."""

    schema: Schema
    parts: tuple[Table | PackedTable, ...]

    def __iter__(self) -> Iterator[Table]:
        return (part.unpacked() if isinstance(part, PackedTable) else part for part in self.parts)

    def stored(self) -> Iterator[stored_tables.Part]:
        """The same as the store takes them: what is packed stays so."""
        return (part.content if isinstance(part, PackedTable) else part for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadResults:
    """Results of the workloads of a shard, or of all of them."""

    workloads: WorkloadColumns
    coverage: Coverage
    """Of the containers' CPU usage."""
    savings: PlannedSavings
    """Of all recommendations, at the next step and after all."""
    requested: Mapping[Resource, HourlySum]
    """What all pods requested, by hour."""
    learned: Mapping[str, Learned]
    """By group of series: what its forecasts learned in this run, for the next ones."""
    judgements: Mapping[str, Judgements]
    """By shard: what recommendations and findings rested on, so that the next analysis may keep them."""


@dataclass(frozen=True, slots=True, eq=False)
class Analysis(WorkloadResults):
    """The result of one run."""

    history: History
    """Of usage, that of nodes and GPUs alone; pods' series are in no one's memory at once."""
    rows: Mapping[str, TableParts]
    """By name: the tables of workloads, their recommendations and forecasts, and the portraits of each namespace."""
    cluster_totals: Mapping[Resource, Usage[ClusterRef]]
    pod_sums: Mapping[Resource, PodSums]
    node_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    prod_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    """Of what prod pods, and pods without a class, use together on each node."""
    prod_peaks: Mapping[Resource, NodePeaks[NodeRef]]
    """The highest use of them in the next 24 hours, at the risk of the settings."""
    peak_forecasts: Mapping[Resource, Mapping[str, PeakForecast]]
    """By node: the same at the first risk with all that batch amounts rest on beside it, as the manager gets it."""
    node_maxima: Mapping[Resource, NodeMaxima]
    """What their peaks are calibrated on, days before the window included; the next analysis goes on from it."""
    cluster_forecasts: Mapping[MeasuredResource, Forecasts[ClusterRef]]
    """Of CPU and memory, and of GPUs where their use is known."""
    reclaimable: tuple[Reclaimable, ...]
    """What each node lends now."""
    lendable: Mapping[Resource, LendableLines]
    """The same over the window and the next 24 hours, by the same formulas."""
    recommendations: tuple[Recommendation, ...]
    findings: tuple[ClusterFinding, ...]
    settings_digest: str
    computed_seconds: int
    replica_floors: tuple[ReplicaFloor, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """Proposed reservations for the next peaks, with a reason where nothing is proposed."""
    rehearsals: Rehearsals = field(default_factory=lambda: Rehearsals("", ()))
    """What they rest on, for the next ones."""
    weeks: tuple[WeekAnalysis, ...] = ()
    """The week ahead of the cluster and the largest workloads."""
    division: Division = field(default_factory=Division)
    """How the workloads were divided into shards; the next analysis keeps to it, because models were learned so."""
    worst_days: Mapping[Resource, WorstDay] = field(default_factory=dict)
    """The 24 hours in which most nodes passed their peaks, of the tested decisions."""
    learned_seconds: int | None = None
    """End of the history that the oldest model in use was learned from; None where no series could be tested."""

    @property
    def pod_totals(self) -> Mapping[Resource, PodTotals]:
        """Totals of each node's pods, by resource."""
        return {resource: sums.totals for resource, sums in self.pod_sums.items()}
