"""Joins the results of all shards, in their order, to results of the whole cluster. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import ClusterRef, WorkloadRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.usage.usage import Usage
from cotenant.pipeline import containers
from cotenant.pipeline.analysis import (
    History,
    HourlySum,
    PackedTable,
    PodSums,
    TableParts,
    WorkloadColumns,
    WorkloadResults,
)
from cotenant.pipeline.containers import ContainerResults
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL, SumsOfPods
from cotenant.pipeline.shards.work import ShardResult
from cotenant.pipeline.weeks import DayHours
from cotenant.profiler.coverage import Coverage
from cotenant.profiler.pool import TotalOfParts
from cotenant.recommender.model.savings import joined_plans
from cotenant.recommender.replicas import ReplicaFloor
from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import Candidates


class Merger:
    """Adds up the results of one shard after another, so that no two shards are in memory at once."""

    def __init__(self, history: History) -> None:
        """Start without any shard."""
        grid = history.window
        self._history = history
        self._pods = {r: SumsOfPods(history.inventory, grid) for r in Resource}
        self._totals = {r: TotalOfParts((ClusterRef(history.inventory.cluster),), grid) for r in Resource}
        self._tables: dict[str, list[Table | PackedTable]] = defaultdict(list)
        self._results: list[WorkloadResults] = []
        self._container_results: list[ContainerResults] = []
        self._largest: list[Usage[WorkloadRef]] = []
        self._largest_ahead: list[DayHours] = []
        self._candidates: list[Candidates] = []
        self.floors: list[ReplicaFloor] = []
        self.since_seconds: list[int] = []
        self.failed: set[WorkloadRef] = set()

    def add(self, result: ShardResult) -> None:
        """Add the results of the next shard to the sums."""
        for resource in Resource:
            self._pods[resource].add(result.pods[resource])
            self._totals[resource].add(result.totals[resource])
        for table in result.tables:
            self._tables[table.schema.name].append(table)
        self._results.append(WorkloadResults(**inherited_fields(result, WorkloadResults)))
        self._container_results.append(result.container_results)
        self._largest.append(result.largest)
        self._largest_ahead.append(result.largest_ahead)
        self._candidates.append(result.candidates)
        self.floors += result.floors
        self.since_seconds += result.since_seconds
        self.failed |= result.failed

    def pod_sums(self) -> dict[Resource, PodSums]:
        """Return the usage of all pods by resource, summed by node, and the present usage of each pod."""
        return {resource: sums.sums(resource) for resource, sums in self._pods.items()}

    def cluster_totals(self) -> dict[Resource, Usage[ClusterRef]]:
        """Return usage summed over all workloads, by resource."""
        specs = {r: POD_SIGNAL[r].spec for r in Resource}
        return {r: of.usage(specs[r].resource, specs[r].statistic) for r, of in self._totals.items()}

    def rows(self) -> dict[str, TableParts]:
        """Return the rows of all shards by table name."""
        return {name: TableParts(parts[0].schema, tuple(parts)) for name, parts in self._tables.items()}

    def results(self) -> WorkloadResults:
        """Return the results of the workloads of all added shards."""
        parts, results = [result.workloads for result in self._results], self._results
        columns = WorkloadColumns(
            tuple(ref for part in parts for ref in part.refs),
            tuple(pattern for part in parts for pattern in part.patterns),
            _concatenate_by_resource([part.mean for part in parts]),
            _concatenate_by_resource([part.p95 for part in parts]),
            _concatenate_by_resource([part.variation for part in parts]),
            parts[0].grid,
            {r: np.concatenate([part.medians[r] for part in parts]) for r in Resource},
        )
        return WorkloadResults(
            workloads=columns,
            coverage=reduce(Coverage.merge, [result.coverage for result in results]),
            savings=joined_plans([result.savings for result in results]),
            requested={r: reduce(HourlySum.joined, [result.requested[r] for result in results]) for r in Resource},
            learned={group: news for result in results for group, news in result.learned.items()},
            judgements={shard: of for result in results for shard, of in result.judgements.items()},
        )

    def container_results(self) -> ContainerResults:
        """Return the results of all containers, in no particular order."""
        return containers.concatenate_results(self._container_results)

    def largest(self) -> Usage[WorkloadRef]:
        """Return the usage of the workloads that are the largest of their shards."""
        first = self._largest[0]
        refs = tuple(ref for part in self._largest for ref in part.refs)
        return replace(first, refs=refs, values=np.concatenate([part.values for part in self._largest]))

    def largest_ahead(self) -> DayHours:
        """Return the next day's forecast of the workloads that `largest` returns."""
        first = self._largest_ahead[0]
        return replace(first, paths={ref: path for part in self._largest_ahead for ref, path in part.paths.items()})

    def candidates(self) -> Candidates:
        """Return the workloads of all shards for which a reservation plan may be proposed."""
        return reduce(Candidates.joined, self._candidates)


def _concatenate_by_resource(
    parts: Sequence[Mapping[Resource, npt.NDArray[np.float64]]],
) -> dict[Resource, npt.NDArray[np.float64]]:
    return {r: np.concatenate([part[r] for part in parts]) for r in Resource}
