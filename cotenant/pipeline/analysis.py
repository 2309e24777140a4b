"""The data that the stages of one pipeline run exchange, before they are written or shown."""

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
"""Length of a block, six hours: each has one maximum of a node's usage, and one decision on the node's peak."""


def next_border(seconds: int) -> int:
    """Return the first UTC multiple of six hours at or after a time (Unix seconds)."""
    return -(-seconds // BLOCK_SECONDS) * BLOCK_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The stored data of a time window: usage by signal (metric), inventory, and quality record of the last scan."""

    inventory: Inventory
    window: TimeGrid
    usage: Mapping[Signal, AnyUsage[PodContainerRef]]
    node_usage: Mapping[Signal, Usage[NodeRef]]
    quality: QualityRecord | None
    since_seconds: int | None = None
    """Start of the first stored slot, which may be long before the window; None = nothing is stored before it."""
    silence: SourceSilence | None = None
    """Periods without data from the source in the whole cluster, whatever pods `usage` has; None = not known."""
    unshown: UnshownUse | None = None
    """The usage of nodes beyond that of their containers; None = not known."""
    requested: Mapping[Resource, float] | None = None
    """Requests of all running pods of the cluster, in the resource's unit; None if `inventory` has them all."""

    @property
    def unread_seconds(self) -> Mapping[Signal, int]:
        """Seconds of history by signal (metric) that the source failed to return; empty if everything was read."""
        return self.quality.unread_seconds if self.quality else {}


@dataclass(frozen=True, slots=True, eq=False)
class NodeMaxima:
    """Highest usage that the prod pods of each of n nodes had together, in blocks of six hours from `start_seconds` on.

    `values` is (n, blocks) float32 in the unit of usage, NaN = unknown. Blocks start at UTC multiples of six hours.
    """

    refs: tuple[NodeRef, ...]
    start_seconds: int
    values: npt.NDArray[Any]

    @property
    def end_seconds(self) -> int:
        """The Unix time at which the last block ends."""
        return self.start_seconds + int(self.values.shape[1]) * BLOCK_SECONDS

    def starts_before(self, end_seconds: int) -> tuple[int, ...]:
        """Return the start (Unix seconds) of each block that has ended by `end_seconds`."""
        count = self.before(end_seconds).shape[1]
        return tuple(self.start_seconds + BLOCK_SECONDS * block for block in range(count))

    def before(self, end_seconds: int) -> npt.NDArray[Any]:
        """Return the values of the blocks that have ended by `end_seconds`, (n, blocks)."""
        return self.values[:, : max(0, end_seconds - self.start_seconds) // BLOCK_SECONDS]

    def take(self, other: NodeMaxima) -> None:
        """Overwrite values by those that `other` has for the same nodes and blocks."""
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
    """Usage in 5-minute slots summed over each node's pods; all three have one row per node.

    `prod` sums pods of class prod or without class, `high` those whose usage is never lent, `pods` all.
    """

    prod: Usage[NodeRef]
    high: Usage[NodeRef]
    pods: Usage[NodeRef]


@dataclass(frozen=True, slots=True, eq=False)
class PodSums:
    """Sums over all pods, for one resource: totals of usage by node, and the present usage of each pod.

    `present` is by (namespace, pod). `peaks`, (nodes,), is Koordinator's sum of the peaks of running prod pods on each
    node. `hours` has what pods used and requested at the end of each hour, (nodes, hours), by name of a formula's term.
    """

    totals: PodTotals
    present: Mapping[tuple[str, str], float]
    peaks: Floats
    hours: Mapping[str, Floats]


class Division(msgspec.Struct, frozen=True):
    """A division of the workloads into shards: (namespace, name) of the first workload of each shard but the first."""

    firsts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Judgements:
    """The inputs behind the results of n containers, by which the next analysis finds which results are still valid.

    `names` and `facts`, (n,), are digests of the container's name, and of all that is known of its workload except its
    usage. `begin_seconds` and `end_seconds`, (n,), span the history that was read; `highest`, (n, signals), is its
    highest usage. `basis` is a digest of the data that concern all containers, `until_seconds` the end of the usage
    that was read, `rows` the recommendations as `recommendation_rows` stores them.
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
        """Metadata that all files of these judgements share, by which a reader finds that the files belong together."""
        return {"basis": self.basis, "until_seconds": str(self.until_seconds)}


@dataclass(frozen=True, slots=True, eq=False)
class WeekAnalysis:
    """Forecasts of the next week for some series, and the decomposition of those series' past where it was possible."""

    weeks: Weeks[Any]
    parts: Mapping[Any, WeekDecomposition]


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadAnalysis:
    """Totals, usage portraits and forecasts of some workloads, with one row per workload in the same order.

    `history` has the series of their pods, and an inventory of at least these workloads with their pods and events.
    `totals` are 5-minute sums over a workload's pods; `throttled`, (n,), is the share of its CPU demand that was
    throttled, 0..1; `samples` is the number of samples of CPU usage, by workload with any.
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
        """The analysed workloads, in the order of the rows."""
        return self.owners.workloads


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadColumns:
    """Statistics that the table of workloads lacks, of all n workloads that are known or have stored usage.

    `mean` and `p95`, (n,), are of the summed usage in the resource's unit, `variation`, (n,), is its standard deviation
    / mean; NaN without usage. `medians`, (n, grid.size), are the workloads' forecast medians at the slots of `grid`.
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
    """Sums over series for each slot of the grid, (T,); `some` says for which slots any series had a value."""

    grid: TimeGrid
    sums: Floats
    some: npt.NDArray[np.bool_]

    def joined(self, other: HourlySum) -> HourlySum:
        """Return the hourly sums over the series of this object and of the other."""
        return HourlySum(self.grid, self.sums + other.sums, self.some | other.some)


@dataclass(frozen=True, slots=True, eq=False)
class PackedTable:
    """A table encoded as its file, which takes a third of the memory and is faster to send between processes."""

    schema: Schema
    content: bytes

    @classmethod
    def of(cls, table: Table) -> PackedTable:
        """Return the packed form of a table, which the caller no longer needs."""
        return cls(table.schema, stored_tables.encode(table))

    def unpacked(self) -> Table:
        """Return the decoded table."""
        return stored_tables.decode(self.content, self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class TableParts:
    """The rows of one table in parts, one per shard of the analysis."""

    schema: Schema
    parts: tuple[Table | PackedTable, ...]

    def __iter__(self) -> Iterator[Table]:
        return (part.unpacked() if isinstance(part, PackedTable) else part for part in self.parts)

    def stored(self) -> Iterator[stored_tables.Part]:
        """Yield the parts in the form that the store writes; packed ones stay packed."""
        return (part.content if isinstance(part, PackedTable) else part for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadResults:
    """The results about workloads, of one shard of the analysis or of all shards."""

    workloads: WorkloadColumns
    coverage: Coverage
    """Coverage of the containers' CPU usage."""
    savings: PlannedSavings
    """Savings of all recommendations, at the next step and after all steps."""
    requested: Mapping[Resource, HourlySum]
    """Requests of all pods, by hour."""
    learned: Mapping[str, Learned]
    """By group of series: the fit that its forecasts learned in this run, for later runs."""
    judgements: Mapping[str, Judgements]
    """By shard: the inputs of recommendations and findings, so that the next analysis may keep the results."""


@dataclass(frozen=True, slots=True, eq=False)
class Analysis(WorkloadResults):
    """The result of one pipeline run."""

    history: History
    """The history with usage of nodes and GPUs only; the pods' series are never in memory together."""
    rows: Mapping[str, TableParts]
    """By table name: workloads, their recommendations and forecasts, and the portraits of each namespace."""
    cluster_totals: Mapping[Resource, Usage[ClusterRef]]
    pod_sums: Mapping[Resource, PodSums]
    node_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    prod_forecasts: Mapping[Resource, Forecasts[NodeRef]]
    """Forecasts of the usage of prod pods and pods without a class together on each node."""
    prod_peaks: Mapping[Resource, NodePeaks[NodeRef]]
    """The highest usage of the pods of `prod_forecasts` in the next 24 hours, at the risk of the settings."""
    peak_forecasts: Mapping[Resource, Mapping[str, PeakForecast]]
    """The peak of each node at the first risk, and the other terms of batch amounts, as the manager receives them."""
    node_maxima: Mapping[Resource, NodeMaxima]
    """The maxima on which peaks are calibrated, also of days before the window; the next analysis continues them."""
    cluster_forecasts: Mapping[MeasuredResource, Forecasts[ClusterRef]]
    """Forecasts of CPU and memory, and of GPUs if their usage is known."""
    reclaimable: tuple[Reclaimable, ...]
    """The amounts that each node lends now."""
    lendable: Mapping[Resource, LendableLines]
    """The lendable amounts over the window and the next 24 hours, by the same formulas."""
    recommendations: tuple[Recommendation, ...]
    findings: tuple[ClusterFinding, ...]
    settings_digest: str
    computed_seconds: int
    replica_floors: tuple[ReplicaFloor, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """Proposed reservations for the next peaks, with a reason where nothing is proposed."""
    rehearsals: Rehearsals = field(default_factory=lambda: Rehearsals("", ()))
    """The back-tests behind `proposals`, for later runs."""
    weeks: tuple[WeekAnalysis, ...] = ()
    """The forecast of the next week for the cluster and the largest workloads."""
    division: Division = field(default_factory=Division)
    """The division of workloads into shards; the next analysis keeps it, because models were learned by shard."""
    worst_days: Mapping[Resource, WorstDay] = field(default_factory=dict)
    """The 24 hours of the tested decisions in which the most nodes exceeded their peaks."""
    learned_seconds: int | None = None
    """End of the history from which the oldest model in use was learned; None if no series could be tested."""

    @property
    def pod_totals(self) -> Mapping[Resource, PodTotals]:
        """The totals of each node's pods, by resource."""
        return {resource: sums.totals for resource, sums in self.pod_sums.items()}
