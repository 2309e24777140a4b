"""Computes one shard: reads its series, builds portraits, forecasts, recommends, and sums the usage of its nodes.

The result consists of table rows and sums: the series stay in the process that read them. Idempotent; nothing is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory
from cotenant.base.identity import ClusterRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import without_over
from cotenant.base.process.memory import release_memory, return_early
from cotenant.base.progress import Progress, Silent
from cotenant.base.resource import Resource
from cotenant.base.settings.base import SettingSections
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.base.usage.plausible import plausible_of_pods, plausible_signals
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.usage import Signal, Usage
from cotenant.pipeline import browse, learned, stored_history, tables, weeks
from cotenant.pipeline.analysis import (
    Floats,
    History,
    HourlySum,
    Judgements,
    PackedTable,
    WorkloadAnalysis,
    WorkloadColumns,
    WorkloadResults,
)
from cotenant.pipeline.containers import Before, ContainerResults, concatenate_results, evaluate_workloads
from cotenant.pipeline.nodes.node_peaks import running_peaks
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL, PartialPodSums, partial_sums
from cotenant.pipeline.shards import judgements, recommendation_rows
from cotenant.pipeline.shards.judgements import Usages
from cotenant.pipeline.shards.plan import WorkloadShard
from cotenant.pipeline.shards.series import GroupForecast, SeriesTask, forecast_series, group_name, portraits_of
from cotenant.pipeline.stored_history import load
from cotenant.pipeline.tables import p95_while_running
from cotenant.pipeline.weeks import DayHours
from cotenant.profiler.coverage import Coverage, coverage
from cotenant.profiler.pool import Owners, PartialTotals, PoolMembers, by_workload, partial_totals, total
from cotenant.recommender.incomplete import withhold_failed
from cotenant.recommender.model.savings import PlannedSavings, When, summed_savings
from cotenant.recommender.replicas import ReplicaFloor, replica_floors
from cotenant.scheduler_ext.reservations.commands.workload_history import WorkloadHistory
from cotenant.scheduler_ext.reservations.plans import rehearsed_proposals
from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import Candidates
from cotenant.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class ShardTask:
    """A shard, and everything that a worker needs to compute it."""

    url: str = field(repr=False)
    """URL of the store, which may contain a password."""
    cluster: str
    settings: Settings = field(repr=False)
    shard: WorkloadShard
    history: History = field(repr=False)
    """History of the shard without usage, which its worker reads from the store."""
    server: ServerQuantiles | None = field(repr=False, default=None)
    before: Before = field(repr=False, default_factory=Before)
    """What the previous analysis knew about the shard's containers."""
    failed: frozenset[WorkloadRef] = frozenset()
    """Workloads of the shard that cannot be analysed: the inventory has only their names."""

    def __str__(self) -> str:
        return str(self.shard)


@dataclass(frozen=True, slots=True, eq=False)
class ShardResult(WorkloadResults):
    """The results of a shard's workloads, and the shard's part of the sums over the cluster.

    `tables` has rows of workloads, their recommendations and forecasts, and portraits of each namespace; `totals` sums
    over the workloads. `largest` is the usage of those that may be the cluster's largest, `largest_ahead` their next
    day's forecast; `candidates` may get a proposed plan. `since_seconds` has the end of each fit's history.
    """

    tables: tuple[Table | PackedTable, ...]
    container_results: ContainerResults
    floors: tuple[ReplicaFloor, ...]
    pods: Mapping[Resource, PartialPodSums]
    totals: Mapping[Resource, PartialTotals]
    largest: Usage[WorkloadRef]
    largest_ahead: DayHours
    candidates: Candidates
    since_seconds: tuple[int, ...]
    failed: frozenset[WorkloadRef] = frozenset()
    """Workloads that could not be analysed."""

    def packed(self) -> ShardResult:
        """Return the result with packed tables, to be sent to and kept by another process."""
        return replace(self, tables=tuple(PackedTable.of(table) for table in self.tables if isinstance(table, Table)))


def compute(task: ShardTask, progress: Progress | None = None) -> ShardResult:
    """Compute one shard; raise StoreError if the store fails."""
    progress = progress or Silent()

    def stage(name: str) -> None:
        release_memory()  # what one stage freed must not stand beside what the next one takes
        progress.stage(name, 1)

    store, shard, settings = Store(task.url, task.cluster), task.shard, task.settings
    stage("Read history")
    # by a store of its own: the keys that it keeps between signals are needed no more
    of_pods = stored_history.of_shard(Store(task.url, task.cluster), shard, task.history.window)
    history = replace(task.history, inventory=shard.inventory, usage=of_pods)
    stage("Workload portraits")
    usage = plausible_signals(of_pods, shard.inventory)
    counted = replace(history, usage=usage)
    owners, totals = workload_totals(counted)
    throttled = throttled_ratios(usage, owners)
    portraits = {r: portraits_of(totals[s], settings) for r, s in POD_SIGNAL.items()}
    stage("Recommendations")
    evaluated = _evaluate_containers(task, store, history, of_pods)
    own = shard.own_pods()
    sums = _SumsOfPods(
        {
            r: partial_sums(of, shard.inventory, partial(running_peaks, shard.inventory, of, settings.node_peak), own)
            for r, of in ((r, counted.usage[s]) for r, s in POD_SIGNAL.items())
        },
        coverage(counted.usage[POD_SIGNAL[Resource.CPU]], counted.inventory, stored_history.lives(counted)),
        {r: browse.requested_by_hour(counted.usage[s], counted.inventory, r) for r, s in browse.REQUEST_SIGNAL.items()},
    )
    # back-tests take as much memory as the series of pods, which are needed no more
    del of_pods, counted, usage
    history = replace(history, usage={s: history.usage[s] for s in browse.REQUEST_SIGNAL.values()})
    stage("Forecasts")
    of_groups: dict[Resource, GroupForecast] = {}
    for resource, signal in POD_SIGNAL.items():
        of_workloads = totals[signal]
        group = group_name("workloads", of_workloads, shard.index)
        before = learned.read(store, group, learned.settings_of(group, settings.forecasting))
        most_hours = settings.forecasting.relearn_hours
        if before is None or not before.serves(before.names, of_workloads.grid.end_seconds, most_hours):
            return_early()  # back-tests, which come now, and the libraries that learn take more memory than all else
        most = ceilings(shard.inventory, of_workloads)
        series = SeriesTask(group, of_workloads, settings, before, portraits=portraits[resource], ceiling=most)
        of_groups[resource] = forecast_series(series)
        del before, series  # what was learned before must not stand beside what the next one takes
        release_memory()
    forecasts = {r: group_forecast.forecasts for r, group_forecast in of_groups.items()}
    stage("Sums and tables")
    analysis = WorkloadAnalysis(history, owners, totals, portraits, forecasts, throttled, sums.coverage.by_workload)
    return replace(_result(analysis, evaluated, sums, list(of_groups.values()), settings), failed=task.failed)


def workload_totals(history: History) -> tuple[Owners, Mapping[Signal, Usage[WorkloadRef]]]:
    """Return 5-minute sums of usage for every workload that is known or left usage, ordered by name."""
    inventory = history.inventory
    usage = {s: plausible_of_pods(history.usage[s], inventory) for s in POD_SIGNAL.values()}
    refs = {*by_workload(usage[Signal.CPU_USAGE_MEAN].refs, inventory).refs, *(w.ref for w in inventory.workloads)}
    owners = Owners(inventory, sorted(refs))
    return owners, {s: total(u, owners.of(u.refs)) for s, u in usage.items()}


def throttled_ratios(usage: Usages, owners: Owners) -> Floats:
    """Return throttled CPU time / CPU demand of each workload, over all samples of its pods, (n,); 0 without demand.

    Usage is only summed for workloads that were throttled: these are few, and the ratio of the others is 0.
    """

    def summed(signal: Signal, chosen: npt.NDArray[np.bool_]) -> Floats:
        rows = owners.of(usage[signal].refs).rows
        own = np.flatnonzero((rows >= 0) & np.append(chosen, False)[rows])
        of_workloads: Floats = np.bincount(rows[own], usage[signal].take(own).sums(), size).astype(np.float64)
        return of_workloads

    size = len(owners.workloads)
    refused = summed(Signal.CPU_THROTTLED_MEAN, np.ones(size, dtype=bool))
    if not refused.any():
        return refused
    demand = summed(Signal.CPU_USAGE_MEAN, refused != 0) + refused
    ratios: Floats = np.divide(refused, demand, out=np.zeros(size), where=demand > 0)
    return ratios


def cluster_wide_members(cluster: str, count: int) -> PoolMembers[ClusterRef]:
    """Return the assignment of all `count` series to the cluster, for sums over the whole cluster."""
    return PoolMembers(
        (ClusterRef(cluster),),
        np.zeros(count, dtype=np.int64),
        start_seconds=np.full(count, np.nan),
        first_seconds=np.full(count, -np.inf),
        end_seconds=np.full(count, np.inf),
    )


def ceilings(inventory: Inventory, usage: Usage[WorkloadRef]) -> Floats:
    """Return what each workload's pods can use at most, (n,) in the resource's unit; NaN if that is not known.

    A pod can use what its limits allow, or the largest node's allocatable if a container has no limit. This is
    multiplied by the larger of the number of running pods (at least 1) and the maxReplicas of the autoscaler.
    """
    resource = usage.resource
    if not isinstance(resource, Resource):  # limits of devices bound no use of them
        return np.full(len(usage.refs), np.nan)
    largest = max((node.allocatable.get(resource, 0) for node in inventory.nodes), default=0)
    most: dict[WorkloadRef, float] = {}
    for workload in inventory.workloads:
        scaled = workload.autoscaler.max_replicas if workload.autoscaler else 0
        limited = resource in workload.own.limits or all(resource in c.limits for c in workload.staying)
        limit = workload.pod_amount(resource, "limits") if limited and workload.described else 0
        most[workload.ref] = max(workload.replicas, scaled, 1) * (limit or largest or float("nan"))
    return np.array([most.get(ref, float("nan")) for ref in usage.refs], dtype=np.float64)


class _Evaluated(NamedTuple):
    """The results of a shard's containers with their rows, and what the next analysis needs to keep them."""

    results: ContainerResults
    rows: Table
    group: str
    judgements: Judgements


def _evaluate_containers(task: ShardTask, store: Store, history: History, of_pods: Usages) -> _Evaluated:
    """Return recommendations and findings: kept ones for workloads without relevant new samples, the others anew."""
    settings, shard, until_seconds = task.settings, task.shard, history.window.end_seconds
    group, basis = f"workloads-{shard.index:05d}", judgements.basis(history, settings)
    lasting = without_over(shard.inventory)
    containers = judgements.Containers.of(lasting, of_pods, shard.deleted)
    before, now = judgements.read(store, group, basis), containers.noted(of_pods, basis, until_seconds)
    # what a server's quantiles say is asked anew by every scan
    renew_hours = 0.0 if task.server else settings.recommender.renew_hours
    reused = judgements.reuse_results(store, containers, of_pods, before, now, renew_hours)
    rest = tuple(workload for workload in lasting.workloads if workload.ref not in reused.workloads)
    inventory, usage = replace(lasting, workloads=rest), containers.others(of_pods, reused.rows >= 0)
    open_ones = replace(history, inventory=inventory, usage=usage)
    evaluated = evaluate_workloads(open_ones, settings, shard.deleted, task.server, before=task.before)
    anew = replace(evaluated, recommendations=tuple(withhold_failed(evaluated.recommendations, task.failed)))
    noted = judgements.merge_kept_results(before, reused, now, anew.findings)
    results = concatenate_results((reused.results, anew))
    stored = recommendation_rows.read(store, judgements.FOLDER, group, before.stamp) if before else None
    recommended, limits = results.recommended(), settings.actions.guardrails
    rows = recommendation_rows.rows_of(recommended, limits, shard.inventory.workloads, reused.workloads, stored)
    return _Evaluated(results, rows, group, replace(noted, rows=recommendation_rows.encode(rows, noted.stamp)))


class _SumsOfPods(NamedTuple):
    """The sums over the pods' series: see ShardResult."""

    pods: Mapping[Resource, PartialPodSums]
    coverage: Coverage
    requested: Mapping[Resource, HourlySum]


def _result(
    analysis: WorkloadAnalysis,
    evaluated: _Evaluated,
    sums: _SumsOfPods,
    groups: list[GroupForecast],
    settings: Settings,
) -> ShardResult:
    inventory, cpu = analysis.history.inventory, POD_SIGNAL[Resource.CPU]
    rows = [evaluated.rows]
    rows += [tables.forecast_table(analysis.forecasts[resource]) for resource in Resource]
    cluster = cluster_wide_members(inventory.cluster, len(analysis.workloads))
    largest = weeks.largest(analysis.totals[cpu], settings.forecasting.week_workloads)
    portraits, forecasts = analysis.portraits, analysis.forecasts
    workloads = WorkloadColumns(
        analysis.workloads,
        portraits[Resource.CPU].pattern,
        {r: p.mean for r, p in portraits.items()},
        {r: p95_while_running(analysis, r) for r in portraits},
        {r: _variation(p) for r, p in portraits.items()},
        forecasts[Resource.CPU].grid,
        {r: f.level(0.5).copy() for r, f in forecasts.items()},
    )
    return ShardResult(
        workloads=workloads,
        tables=(tables.workloads(analysis), *rows, *browse.portraits(analysis)),
        container_results=evaluated.results,
        floors=tuple(replica_floors(inventory.workloads, analysis.forecasts, settings.recommender.replicas)),
        pods=sums.pods,
        totals={r: partial_totals(analysis.totals[s], cluster) for r, s in POD_SIGNAL.items()},
        coverage=replace(sums.coverage, by_workload={}),
        savings=PlannedSavings(*(summed_savings(evaluated.rows.columns, when) for when in When)),
        requested=sums.requested,
        largest=largest,
        largest_ahead=weeks.day_hours(analysis.forecasts[Resource.CPU], largest.refs),
        candidates=rehearsed_proposals.candidates(
            inventory, analysis.totals[cpu], analysis.forecasts[Resource.CPU], settings
        ),
        learned={group.group: group.news for group in groups if group.news is not None},
        judgements={evaluated.group: evaluated.judgements},
        since_seconds=tuple(group.since_seconds for group in groups if group.since_seconds is not None),
    )


def _variation(portraits: Portraits[WorkloadRef]) -> Floats:
    """Return standard deviation / mean of the samples, (n,); NaN without samples or for a mean of 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = portraits.mean
        variance = np.maximum(portraits.square_sums / portraits.samples - mean**2, 0.0)
        ratio: Floats = np.sqrt(variance) / np.where(mean > 0, mean, np.nan)
    return ratio


def workload_history() -> WorkloadHistory:
    """Return the reader of a workload's usage for `cotenant reservations backtest`, summed as in an analysis."""
    return WorkloadHistory(_read_cpu_totals)


def _read_cpu_totals(store: Store, settings: SettingSections) -> tuple[Inventory, Usage[WorkloadRef]]:
    history = load(store, Settings.of(settings))
    return history.inventory, workload_totals(history)[1][POD_SIGNAL[Resource.CPU]]
