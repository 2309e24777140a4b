"""One run of the pipeline: reads history, computes all stages, publishes results.

`analyse` divides the workloads into shards, has an executor compute each from the store, joins them and computes the
results of nodes and the cluster; `publish` writes the tables and documents that are shown. No result depends on the
source of the history or on where a shard was computed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import structlog

from cotenant.base.controllers.isolation import Watched, compute_without_failing
from cotenant.base.errors import CotenantError, NoData, StoreConflict, StoreError
from cotenant.base.identity import ClusterRef, ContainerRef, NodeRef, WorkloadRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.process.clock import Clock
from cotenant.base.process.memory import pause_garbage_collection, release_memory
from cotenant.base.progress import Progress
from cotenant.base.resource import MeasuredResource, Resource
from cotenant.base.settings.base import digest
from cotenant.base.settings.sections import PipelineSettings
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.table import Table
from cotenant.base.text import moment
from cotenant.base.threads import side_by_side
from cotenant.base.usage.forecast import Forecasts, concatenate_forecasts
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.usage import Usage
from cotenant.changes.model.settings import ActionSettings
from cotenant.pipeline import browse, day_margins, gpus, known_siblings, learned, overview, tables, weeks
from cotenant.pipeline.analysis import Analysis, Division, Floats, History, WorkloadResults
from cotenant.pipeline.containers import Before, requested_by_all
from cotenant.pipeline.nodes import node_explanations, node_history
from cotenant.pipeline.nodes.node_peaks import prod_node_peaks
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL, lendable_lines, lenders, peak_forecasts, reclaimable
from cotenant.pipeline.shards import executors, judgements, plan
from cotenant.pipeline.shards.executors import Executor, Here
from cotenant.pipeline.shards.isolation import compute, compute_packed, described, version_of, without, without_objects
from cotenant.pipeline.shards.merge import Merger
from cotenant.pipeline.shards.plan import ShardSize, WorkloadShard
from cotenant.pipeline.shards.series import GroupForecast, SeriesTask, forecast_series, parts
from cotenant.pipeline.shards.work import ShardTask, cluster_wide_members
from cotenant.pipeline.stored_history import load_node_history
from cotenant.profiler.pool import total
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender import stored_recommendations
from cotenant.recommender.model.sibling import family
from cotenant.recommender.model.views import FORECASTS, RECOMMENDATION_LOG, Overview, portraits_of
from cotenant.scheduler_ext.reservations.plans import rehearsed_proposals
from cotenant.scheduler_ext.reservations.plans.proposals import Rehearsals
from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import MOST_PROPOSALS
from cotenant.settings import Settings

ResultT = TypeVar("ResultT")
PUBLICATIONS: Final = 3
"""Most attempts to publish results, if another run publishes its own results during each attempt."""
DIVISION: Final = "shards"
"""Name of the document that holds the division of the last run."""
REHEARSALS: Final = "rehearsals"
"""Name of the document that holds the rehearsals (back-tests) of plans."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """The executor that computes shards, and the maximum size of a shard."""

    executor: Executor
    size: ShardSize = field(default_factory=ShardSize)


@pause_garbage_collection()
def analyse(
    store: Store,
    settings: Settings,
    clock: Clock,
    progress: Progress,
    *,
    server: ServerQuantiles | None = None,
    sharding: Sharding | None = None,
) -> Analysis:
    """Analyse the stored history, from portraits to recommendations; raise NoData if there is none.

    `sharding` is the executor and the size of shards; None means those of the settings.
    """
    progress.stage("Read inventory and nodes", 1)
    sharding = sharding or Sharding(executors.choose_executor(settings.pipeline))
    # no result tells who computed it
    own = msgspec.structs.replace(settings, pipeline=PipelineSettings())
    run = _Run(store, own, sharding.executor, progress, clock.now_seconds())
    history = load_node_history(store, own)
    division = plan.divide(history.inventory, stored_division(store), sharding.size)
    tasks = run.tasks(history, plan.shards(history.inventory, division), server)
    with closing(sharding.executor):
        merger = run.merged(history, tasks)
        whole_history = replace(history, inventory=without(history.inventory, merger.failed))
        result = run.analysis_without_failing(whole_history, merger, division)
    release_memory()
    return result


def _worker_settings(settings: Settings) -> Settings:
    """Return the settings that workers need, with defaults for all others.

    No header, password or token is sent to them.
    """
    window_days = settings.profiler.window_days
    return Settings(
        profiler=ProfilerSettings(window_days=window_days, keep_days=window_days),
        actions=ActionSettings(guardrails=settings.actions.guardrails),
        portrait=settings.portrait,
        forecasting=settings.forecasting,
        node_peak=settings.node_peak,
        recommender=settings.recommender,
        plans=settings.plans,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """The data that all stages of one analysis need."""

    store: Store
    settings: Settings
    executor: Executor
    progress: Progress
    now_seconds: float

    def tasks(
        self, history: History, shards: Sequence[WorkloadShard], server: ServerQuantiles | None
    ) -> list[ShardTask]:
        """Return one task per shard."""
        margins = day_margins.read(self.store, self.settings, self.now_seconds)
        siblings_known = known_siblings.read(self.store, self.settings, history.inventory)
        tasks, facts = [], replace(history, usage={}, node_usage={}, requested=requested_by_all(history.inventory))
        for shard in shards:
            containers = [ContainerRef(w.ref, c.name) for w in shard.inventory.workloads for c in w.containers]
            own = {ref: margins[ref] for ref in containers if ref in margins}
            families = {name: siblings_known[name] for name in map(family, containers) if name in siblings_known}
            at = (self.store.url, self.store.cluster, _worker_settings(self.settings), shard)
            tasks.append(ShardTask(*at, replace(facts, inventory=shard.inventory), server, Before(own, families)))
        return tasks

    def merged(self, history: History, tasks: Sequence[ShardTask]) -> Merger:
        """Return the merged results of all shards; a single shard is computed in this process."""
        merger = Merger(history)
        if len(tasks) == 1:
            merger.add(compute(tasks[0], self.progress))
            return merger
        self.progress.stage("Workloads, shard by shard", len(tasks))
        with executors.run_in_order(self.executor, compute_packed, tasks) as results:
            # strict: a shard without a result must not go unnoticed
            for _, result in zip(tasks, results, strict=True):
                merger.add(result)
                self.progress.advance()
        release_memory()  # what the results were sent in
        return merger

    def analysis_without_failing(self, history: History, merger: Merger, division: Division) -> Analysis:
        """Return `analysis` without the nodes and workloads on which it fails; what runs on such a node is kept."""

        def analysis(failing: Collection[NodeRef | WorkloadRef]) -> Analysis:
            run = replace(self, executor=Here()) if failing else self  # the first try has closed the executor
            return run.analysis(without_objects(history, failing), merger, division)

        return _without_failing("analysis", history, analysis)

    def analysis(self, history: History, merger: Merger, division: Division) -> Analysis:
        """Return the analysis of the merged shards, completed with the results of nodes and the cluster."""
        settings, now_seconds = self.settings, self.now_seconds
        sums, clusters = merger.pod_sums(), merger.cluster_totals()
        # Sum over the nodes (the system's own share included); over the workloads where no node reports.
        for resource, signal in NODE_SIGNAL.items():
            nodes = history.node_usage[signal]
            if nodes.refs:
                clusters[resource] = total(nodes, cluster_wide_members(history.inventory.cluster, len(nodes.refs)))
        prod = {r: of.totals.prod for r, of in sums.items()}
        own = self.executor if division.firsts else Here()
        series = _series_above(history, prod, clusters)
        forecasts, groups = self.forecasts(series, own)
        self.executor.close()  # what follows needs the memory of its workers
        self.progress.stage("Reclaimable", 1)
        maxima = node_history.maxima_of_nodes(self.store, history, prod, settings.node_peak)
        running = {r: of.peaks for r, of in sums.items()}
        peaks = prod_node_peaks(history, prod, running, maxima, settings.node_peak)
        foreseen = {r: peak_forecasts(history, r, peaks[r], of.totals) for r, of in sums.items()}
        lending = lenders(history, sums, peaks, foreseen, settings.recommender.reclaimable, now_seconds)
        container_results = merger.container_results().of_cluster(history, settings)
        most, before = MOST_PROPOSALS, stored_rehearsals(self.store)
        proposed, rehearsed = rehearsed_proposals.proposals(merger.candidates().largest(most), settings, before)
        since = [*merger.since_seconds, *(group.since_seconds for group in groups if group.since_seconds is not None)]
        of_workloads, news = merger.results(), {group.group: group.news for group in groups if group.news is not None}
        of_all = replace(of_workloads, learned={**of_workloads.learned, **news})
        # The next day, by the hour, of the series that have a week ahead.
        days = {r: weeks.day_hours(forecasts["cluster", r], forecasts["cluster", r].refs) for r in Resource}
        cpu = days[Resource.CPU]
        days[Resource.CPU] = replace(cpu, paths={**cpu.paths, **merger.largest_ahead().paths})
        return Analysis(
            **inherited_fields(of_all, WorkloadResults),
            history=history,
            rows=merger.rows(),
            cluster_totals=clusters,
            pod_sums=sums,
            node_forecasts={r: forecasts["nodes", r] for r in Resource},
            prod_forecasts={r: forecasts["prod", r] for r in Resource},
            prod_peaks=peaks,
            peak_forecasts=foreseen,
            node_maxima=maxima,
            worst_days=node_history.worst_days(self.store, history, prod, maxima, peaks),
            cluster_forecasts={resource: of for (kind, resource), of in forecasts.items() if kind == "cluster"},
            reclaimable=reclaimable(lending, history),
            lendable={
                r: lendable_lines(history, lender, sums[r], forecasts["prod", r]) for r, lender in lending.items()
            },
            recommendations=container_results.recommendations,
            findings=container_results.findings,
            settings_digest=digest(settings),
            computed_seconds=int(now_seconds),
            replica_floors=tuple(merger.floors),
            proposals=proposed,
            rehearsals=rehearsed,
            weeks=weeks.analyse_weeks(clusters, merger.largest(), settings.forecasting, days),
            division=division,
            learned_seconds=min(since, default=None),
        )

    def forecasts(
        self, series: Sequence[tuple[str, Usage[Any], Floats | None]], executor: Executor
    ) -> tuple[dict[tuple[str, MeasuredResource], Forecasts[Any]], list[GroupForecast]]:
        """Return forecasts by kind and resource, and those of each group of series that one worker computed."""
        tasks: list[SeriesTask] = []
        kinds: list[tuple[str, MeasuredResource]] = []
        for kind, usage, allocatable in series:
            assert usage.resource is not None
            for group, part in parts(kind, usage):
                before = learned.read(self.store, group, learned.settings_of(group, self.settings.forecasting))
                tasks.append(SeriesTask(group, part, _worker_settings(self.settings), before, allocatable))
                kinds.append((kind, usage.resource))
        self.progress.stage("Forecasts of nodes and the cluster", len(tasks))
        groups: list[GroupForecast] = []
        with executors.run_in_order(executor, forecast_series, tasks) as results:
            for result in results:
                groups.append(result)
                self.progress.advance()
        by_kind: dict[tuple[str, MeasuredResource], list[Forecasts[Any]]] = defaultdict(list)
        for name, result in zip(kinds, groups, strict=True):
            by_kind[name].append(result.forecasts)
        return {name: concatenate_forecasts(of) for name, of in by_kind.items()}, groups


def _series_above(
    history: History, prod: Mapping[Resource, Usage[NodeRef]], clusters: Mapping[Resource, Usage[ClusterRef]]
) -> list[tuple[str, Usage[Any], Floats | None]]:
    """Return series of nodes, of prod pods on them, of the cluster and, if known, of its GPUs.

    Each comes with what is allocatable in the cluster, (1,).
    """
    series: list[tuple[str, Usage[Any], Floats | None]] = []
    series += [("nodes", history.node_usage[signal], None) for signal in NODE_SIGNAL.values()]
    series += [("prod", usage, None) for usage in prod.values()]
    for resource, usage in clusters.items():
        capacity = np.array([overview.allocatable(history.inventory, resource) or np.nan])
        series.append(("cluster", usage, capacity))
    if (of_gpus := gpus.cluster_total(history)) is not None:
        series.append(("cluster", of_gpus, None))
    return series


def stored_division(store: Store) -> Division | None:
    """Return how the last run divided workloads into shards; None if there was none."""
    return store.read_document(DIVISION, Division)


def stored_rehearsals(store: Store) -> Rehearsals | None:
    """Return the rehearsals (back-tests) of reservation plans of the last run; None if none can be read."""
    try:
        return store.read_document(REHEARSALS, Rehearsals)
    except StoreError as error:
        structlog.get_logger(__name__).info("plans are rehearsed anew", reason=str(error))
        return None


@pause_garbage_collection()
def publish(analysis: Analysis, store: Store, settings: Settings) -> None:
    """Write tables, explanations and the overview document; readers see all of them at once, or none.

    If another run publishes its results meanwhile, everything is written again, because the log of recommendations
    continues from that run. Raises StoreConflict, and keeps that run's results, if their history ends later than that
    of `analysis`, or if this happens PUBLICATIONS times.
    """
    before, facts = stored_division(store), store.read_document(FACTS, StoreFacts) or StoreFacts()
    for tries_left in reversed(range(PUBLICATIONS)):
        try:
            with store.publishing() as run:
                _write_without_failing(analysis, run, settings, demo=facts.demo)
            break
        except StoreConflict as error:
            other = store.read_document("overview", Overview)
            if other and (not tries_left or other.time_seconds > overview.newest_seconds(analysis)):
                raise StoreConflict(
                    f"another run published results of {store.cluster} meanwhile: computed "
                    f"{moment(other.computed_seconds)}, from a history until {moment(other.time_seconds)}. They are "
                    "kept, and the results of this run are not stored",
                    fix="`cotenant recs list` shows the stored results.",
                ) from error
    if before != analysis.division:
        learned.forget(store, "workloads-", analysis.learned)
        judgements.forget(store, analysis.judgements)


def _write_without_failing(analysis: Analysis, store: Store, settings: Settings, *, demo: bool) -> None:
    """Write all results; of nodes and workloads on which that fails, write only the names."""

    def write(failing: Collection[NodeRef | WorkloadRef]) -> None:
        lent = tuple(of for of in analysis.reclaimable if NodeRef(of.node) not in failing)
        history = without_objects(analysis.history, failing)
        _write(replace(analysis, history=history, reclaimable=lent), store, settings, demo=demo)

    _without_failing("publication", analysis.history, write)


def _without_failing(
    name: str, history: History, compute: Callable[[Collection[NodeRef | WorkloadRef]], ResultT]
) -> ResultT:
    """Return the result of `compute` without the nodes and workloads of the history on which it fails or hung."""
    objects = described(history.inventory)
    watched: Watched[NodeRef | WorkloadRef] = Watched(name, lambda ref: version_of(ref, objects[ref]), math.inf)
    result, failed = compute_without_failing(list(objects), compute, (CotenantError, MemoryError), watched)
    for ref, why in failed.items():
        structlog.get_logger(__name__).error("an object is left out", object=str(ref), why=why)
    return result


def _write(analysis: Analysis, store: Store, settings: Settings, *, demo: bool) -> None:
    store.write_document(DIVISION, analysis.division)
    store.write_document(REHEARSALS, analysis.rehearsals)
    # each is written through to the disk, and one waits there while the next is encoded
    of_workloads = [parts_of_table for name, parts_of_table in analysis.rows.items() if name != FORECASTS.name]
    side_by_side(lambda of: store.write_parts(of.schema, of.stored()), of_workloads)
    store.write_parts(FORECASTS, tables.forecast_parts(analysis))
    # One after another: together they take more memory than the largest.
    store.write_table(tables.nodes(analysis))
    present = {r: of.present for r, of in analysis.pod_sums.items()}
    store.write_table(tables.pods(analysis.history.inventory, present))
    store.write_table(tables.reclaimable(analysis.reclaimable))
    store.write_table(tables.findings(analysis.findings))
    store.write_table(tables.replicas(analysis.replica_floors))
    store.write_table(rehearsed_proposals.table(analysis.proposals))
    store.write_table(weeks.table(analysis.weeks))
    browsable = set(analysis.rows)
    for table in _browsable_tables(analysis, store):
        store.write_table(table)
        browsable.add(table.schema.name)
    store.remove_others(browsable, portraits_of("").name)
    node_history.write(store, analysis.node_maxima)
    for name, lessons in analysis.learned.items():
        learned.write(store, name, lessons, learned.settings_of(name, settings.forecasting))
    for name, of in analysis.judgements.items():
        judgements.write(store, name, of)
    day_margins.write(store, settings, analysis.recommendations, analysis.computed_seconds)
    known_siblings.write(store, settings, analysis.recommendations, analysis.history.inventory)
    stored_recommendations.write(store, analysis.recommendations)
    node_explanations.write(store, analysis, settings.recommender.reclaimable)
    summed = overview.overview(analysis, demo=demo, strategy=settings.recommender.strategy)
    store.write_document("overview", summed)


def _browsable_tables(analysis: Analysis, store: Store) -> Iterator[Table]:
    yield browse.events(analysis)
    yield browse.node_history(analysis)
    # A table of the run before, None when there was none.
    try:
        previous_table = store.read_table(RECOMMENDATION_LOG)
    except NoData:
        previous_table = None
    yield browse.extend_recommendation_log(previous_table, analysis.recommendations)
    yield from browse.coverage(analysis)
