"""One run of the pipeline: reads history, computes all stages, publishes results.

`analyse` reads the store and decides; `publish` writes what surfaces show. Nothing here knows where history came from.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.apps.pipeline import (
    browse,
    day_margins,
    explain,
    gpus,
    learned,
    node_explanations,
    node_history,
    overview,
    plans,
    pods,
    tables,
    weeks,
)
from cotenant.apps.pipeline.analysis import Analysis, History
from cotenant.apps.pipeline.containers import assess
from cotenant.apps.pipeline.node_peaks import prod_node_peaks
from cotenant.apps.pipeline.nodes import NODE_SIGNAL, POD_SIGNAL, peak_forecasts, pod_totals, reclaimable
from cotenant.core.adapters.clock import Clock
from cotenant.core.adapters.store import Store
from cotenant.core.model.errors import NoData
from cotenant.core.model.identity import ClusterRef, PodContainerRef, WorkloadRef
from cotenant.core.model.progress import Progress
from cotenant.core.model.resource import DeviceResource, MeasuredResource, Resource
from cotenant.core.model.sparse_usage import SparseUsage
from cotenant.core.model.table import Schema, Table
from cotenant.core.model.usage.forecast import Forecasts
from cotenant.core.model.usage.portrait import Portraits
from cotenant.core.model.usage.server_quantiles import ServerQuantiles
from cotenant.core.model.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.core.model.views import RECOMMENDATION_LOG, portraits_of
from cotenant.core.settings.base import digest
from cotenant.core.settings.root import Settings
from forecasting.engine import forecast_and_learn
from forecasting.learned import Learned
from profiler import portrait
from profiler.pool import Members, by_workload, total
from recommender.replicas import replica_floors

UNREAD = frozenset({Signal.CPU_PRESSURE_MEAN})
"""Stored signals that no analysis looks at; each one of five minutes would take a fifth of the memory."""
TOTALS = (Signal.CPU_USAGE_MEAN, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX)


def analyse(
    store: Store, settings: Settings, clock: Clock, progress: Progress, *, server: ServerQuantiles | None = None
) -> Analysis:
    """The whole analysis of the stored history, from portraits to recommendations; NoData when there is none."""
    progress.stage("Read history", 1)
    history = load(store, settings)
    progress.stage("Workload portraits", len(POD_SIGNAL))
    workloads, totals = _totals(history)
    portraits = {r: _portraits(totals[s], settings, progress) for r, s in POD_SIGNAL.items()}
    progress.stage("Forecasts", 4 * len(POD_SIGNAL))
    nodes = {r: history.node_usage[s] for r, s in NODE_SIGNAL.items()}
    models = _LearnedForecasts(store, settings, progress)
    clusters = {r: _cluster_total(history, totals, r) for r in Resource}
    forecasts = {r: models.forecast("workloads", totals[s], portraits[r]) for r, s in POD_SIGNAL.items()}
    node_forecasts = {r: models.forecast("nodes", u) for r, u in nodes.items()}
    sums = {r: pod_totals(history, r) for r in Resource}
    prod = {r: of_node.prod for r, of_node in sums.items()}
    prod_forecasts = {r: models.forecast("prod", u) for r, u in prod.items()}
    cluster_forecasts = _cluster_forecasts(history, clusters, models)
    progress.stage("Reclaimable and recommendations", 2)
    now_seconds = clock.now_seconds()
    containers = {r: history.usage[s] for r, s in POD_SIGNAL.items()}
    maxima = node_history.maxima_of_nodes(store, history, prod, settings.node_peak)
    peaks = prod_node_peaks(history, prod, containers, maxima, settings.node_peak)
    foreseen = {r: peak_forecasts(history, r, peaks[r], sums[r]) for r in Resource}
    lendable = reclaimable(history, peaks, foreseen, settings.recommender.reclaimable, now_seconds)
    progress.advance()
    judgement = assess(history, settings, server, least_margins=day_margins.read(store, settings, now_seconds))
    progress.advance()
    week = weeks.foreseen(clusters, totals[POD_SIGNAL[Resource.CPU]], settings.forecasting)
    proposals = plans.proposals(history.inventory, totals[POD_SIGNAL[Resource.CPU]], forecasts[Resource.CPU], settings)
    return Analysis(
        history=history,
        workloads=workloads,
        totals=totals,
        cluster_totals=clusters,
        pod_totals=sums,
        portraits=portraits,
        forecasts=forecasts,
        node_forecasts=node_forecasts,
        prod_forecasts=prod_forecasts,
        prod_peaks=peaks,
        peak_forecasts=foreseen,
        node_maxima=maxima,
        cluster_forecasts=cluster_forecasts,
        reclaimable=lendable,
        recommendations=judgement.recommendations,
        findings=judgement.findings,
        settings_digest=digest(settings),
        computed_seconds=int(now_seconds),
        replica_floors=tuple(replica_floors(history.inventory.workloads, forecasts, settings.recommender.replicas)),
        proposals=proposals,
        weeks=week,
        learned=models.learned,
        learned_seconds=models.since_seconds(),
    )


def publish(analysis: Analysis, store: Store, settings: Settings, *, demo: bool = False) -> None:
    """Write tables, explanations and the overview document; readers see all of them at once, or none.

    StoreConflict when another run was published meanwhile.
    """
    with store.publishing() as run:
        _write(analysis, run, settings, demo=demo)


def _write(analysis: Analysis, store: Store, settings: Settings, *, demo: bool) -> None:
    for table in _result_tables(analysis, settings):
        store.write_table(table)
    lines = browse.node_lines(analysis, settings.recommender.reclaimable)
    browsable = set()
    for table in _browsable_tables(analysis, store, lines):
        store.write_table(table)
        browsable.add(table.schema.name)
    store.remove_others(browsable, portraits_of("").name)
    node_history.write(store, analysis.node_maxima)
    for name, lessons in analysis.learned.items():
        learned.write(store, name, lessons, learned.settings_of(name, settings.forecasting))
    day_margins.write(store, settings, analysis.recommendations, analysis.computed_seconds)
    explain.write(store, analysis.recommendations)
    node_explanations.write(store, analysis, settings.recommender.reclaimable)
    summed = overview.overview(analysis, lines, demo=demo, strategy=settings.recommender.strategy)
    store.write_document("overview", summed)


def _result_tables(analysis: Analysis, settings: Settings) -> Iterator[Table]:
    """One after another: together they take more memory than the largest."""
    yield tables.workloads(analysis)
    yield tables.recommendations(analysis.recommendations, settings.actions.guardrails)
    yield tables.nodes(analysis)
    yield pods.pods(analysis.history)
    yield tables.forecasts(analysis)
    yield tables.reclaimable(analysis.reclaimable)
    yield tables.findings(analysis.findings)
    yield tables.replicas(analysis.replica_floors)
    yield plans.table(analysis.proposals)
    yield weeks.table(analysis.weeks)


def _browsable_tables(analysis: Analysis, store: Store, lines: browse.NodeLines) -> Iterator[Table]:
    yield browse.events(analysis)
    yield browse.node_history(analysis, lines)
    yield browse.logged(_stored(store, RECOMMENDATION_LOG), analysis.recommendations)
    yield from browse.coverage(analysis)
    yield from browse.portraits(analysis)


def _stored(store: Store, schema: Schema) -> Table | None:
    """A table of the run before, None when there was none."""
    try:
        return store.read_table(schema)
    except NoData:
        return None


def load(store: Store, settings: Settings) -> History:
    """The last `profiler.window_days` of everything stored; NoData when no usage is."""
    inventory, span = store.read_inventory(), store.span(Signal.CPU_USAGE_MEAN)
    if inventory is None or span is None:
        raise NoData(
            f"no usage of cluster {store.cluster} is stored at {store.url}",
            fix="Run cotenant scan --prometheus URL, or cotenant doctor to see what is missing.",
        )
    start = max(span[0], span[1] - settings.profiler.window_days * DAY_SECONDS)
    window = TimeGrid.between(start, span[1], FIVE_MINUTES_SECONDS)
    hours = TimeGrid.between(
        start // HOUR_SECONDS * HOUR_SECONDS, math.ceil(span[1] / HOUR_SECONDS) * HOUR_SECONDS, HOUR_SECONDS
    )
    grids = {FIVE_MINUTES_SECONDS: window, HOUR_SECONDS: hours}
    read = [s for s in Signal if s not in UNREAD]
    quality = store.read_quality()
    return History(
        inventory=inventory,
        window=window,
        usage=_usage_of_pods(store, [s for s in read if not s.spec.per_node], grids),
        node_usage={s: store.read(s, grids[s.spec.step_seconds]) for s in read if s.spec.per_node},
        quality=quality[-1] if quality else None,
        since_seconds=span[0],
    )


def _usage_of_pods(
    store: Store, signals: Iterable[Signal], grids: Mapping[int, TimeGrid]
) -> dict[Signal, SparseUsage[PodContainerRef]]:
    """Stored usage on the grid of each signal's step; signals of the same series share one tuple of references."""
    usage: dict[Signal, SparseUsage[PodContainerRef]] = {}
    for signal in signals:
        series = store.read_sparse(signal, grids[signal.spec.step_seconds])
        same = next((other.refs for other in usage.values() if other.refs == series.refs), series.refs)
        usage[signal] = dataclasses.replace(series, refs=same)
    return usage


def _totals(history: History) -> tuple[tuple[WorkloadRef, ...], Mapping[Signal, Usage[WorkloadRef]]]:
    """5-minute sums per workload, for every workload that is known or left usage, in one order."""
    inventory = history.inventory
    usage = {s: history.usage[s] for s in TOTALS}
    cpu = usage[Signal.CPU_USAGE_MEAN].refs
    refs = tuple(sorted({*by_workload(cpu, inventory).refs, *(w.ref for w in inventory.workloads)}))
    members = by_workload(cpu, inventory, refs)
    return refs, {
        s: total(u, members if u.refs == cpu else by_workload(u.refs, inventory, refs)) for s, u in usage.items()
    }


def workload_totals(history: History) -> Usage[WorkloadRef]:
    """5-minute CPU sums per workload."""
    return _totals(history)[1][POD_SIGNAL[Resource.CPU]]


def _cluster_total(
    history: History, totals: Mapping[Signal, Usage[WorkloadRef]], resource: Resource
) -> Usage[ClusterRef]:
    """Sum over the nodes (the system's own share included); over the workloads where no node reports."""
    nodes: Usage[Any] = history.node_usage[NODE_SIGNAL[resource]]
    parts = nodes if nodes.refs else totals[POD_SIGNAL[resource]]
    count = len(parts.refs)
    unknown = np.full(count, np.nan)
    everything = Members(
        (ClusterRef(history.inventory.cluster),),
        np.zeros(count, dtype=np.int64),
        start_seconds=unknown,
        first_seconds=np.full(count, -np.inf),
        end_seconds=np.full(count, np.inf),
    )
    return total(parts, everything)


def _cluster_forecasts(
    history: History, clusters: Mapping[Resource, Usage[ClusterRef]], models: _LearnedForecasts
) -> dict[MeasuredResource, Forecasts[ClusterRef]]:
    """Of the cluster's totals, and of its GPUs where their use is known."""
    capacity = {r: np.array([overview.allocatable(history.inventory, r) or np.nan]) for r in Resource}
    forecasts: dict[MeasuredResource, Forecasts[ClusterRef]] = {
        r: models.forecast("cluster", u, allocatable=capacity[r]) for r, u in clusters.items()
    }
    if (of_gpus := gpus.cluster_total(history)) is not None:
        forecasts[DeviceResource.GPU_CORE] = models.forecast("cluster", of_gpus)
    return forecasts


def _portraits(usage: Usage[Any], settings: Settings, progress: Progress | None = None) -> Portraits[Any]:
    """Portraits of totals: one row each, no start-up phase."""
    portraits = portrait.build(usage.refs, np.arange(len(usage.refs)), usage, settings.portrait)
    if progress:
        progress.advance()
    return portraits


class _LearnedForecasts:
    """Forecasts groups of series by what earlier analyses learned, and collects what this one learned."""

    def __init__(self, store: Store, settings: Settings, progress: Progress) -> None:
        self.learned: dict[str, Learned] = {}
        self._used: list[int] = []
        self._store, self._settings, self._progress = store, settings, progress

    def forecast(
        self,
        group: str,
        usage: Usage[Any],
        portraits: Portraits[Any] | None = None,
        allocatable: npt.NDArray[np.float64] | None = None,
    ) -> Forecasts[Any]:
        """Forecasts of one group's usage of a resource; portraits are made where none are given."""
        assert usage.resource is not None
        settings = self._settings
        if portraits is None:
            portraits = _portraits(usage, settings)
        own = learned.settings_of(group, settings.forecasting)
        name = f"{group}-{usage.resource.value}"
        before = learned.read(self._store, name, own)
        forecasts, now = forecast_and_learn(usage, portraits, own, before, allocatable=allocatable)
        if now.names:
            self._used.append(now.end_seconds)
        if now is not before:
            self.learned[name] = now
        self._progress.advance()
        return forecasts

    def since_seconds(self) -> int | None:
        """End of the history that the oldest of what was used was learned from; None where nothing was."""
        return min(self._used, default=None)
