"""Computes recommendations and findings of every container, for some workloads at a time.

Strategies, back-tests and findings read the series of every pod. As matrices these are large if many pods come and go
(`base.usage.sparse_usage`), and no two workloads share a series. Evidence is therefore assembled, evaluated and dropped
for a bounded number of workloads, two such groups in parallel, with the same result as for all of them at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.cluster import Event, Inventory, Pod, PodRow, Workload
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import without_over
from cotenant.base.resource import Resource
from cotenant.base.threads import side_by_side
from cotenant.base.usage.plausible import plausible_signals
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.usage import Signal, Usage
from cotenant.pipeline import gpus
from cotenant.pipeline.analysis import History
from cotenant.profiler import portrait
from cotenant.profiler.pool import by_container, demand
from cotenant.recommender import incomplete
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.enrich import enrich, without_cache_raises
from cotenant.recommender.evidence import Evidence, assemble
from cotenant.recommender.findings import in_order, of_cluster, of_containers
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.sibling import Siblings
from cotenant.recommender.money import price_findings
from cotenant.recommender.unmeasured import withhold_unmeasured, without_unmeasured
from cotenant.settings import Settings

SERIES_AT_ONCE: Final = 256
"""Most series of a signal held as dense rows at the same time (4 MB for two weeks); a larger workload is held alone.

`day_risk` is calibrated over the containers of such a group.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ContainerResults:
    """Recommendations for some containers, and findings about these containers, their workloads and nodes."""

    recommendations: tuple[Recommendation, ...]
    findings: tuple[ClusterFinding, ...]

    def of_cluster(self, history: History, settings: Settings) -> ContainerResults:
        """Return the results of a whole cluster: with findings about nodes, GPUs and workloads that fit on no node.

        Recommendations are in the order of `WorkloadRef.place`; findings are the most severe first, without those for
        which history is missing.
        """
        own, lasting = settings.recommender.findings, without_over(history.inventory)
        above = of_cluster(lasting, history.node_usage, history.window, own)
        of_gpus = gpus.findings(replace(history, inventory=lasting), settings)
        every = [*above, *of_gpus, *self.findings]
        every = price_findings(every, history.inventory, settings.recommender.prices)
        all_results = incomplete.without_partial(in_order(every), history.inventory)
        findings = incomplete.founded_findings(all_results, history.unread_seconds)
        return ContainerResults(self.recommended(), tuple(findings))

    def recommended(self) -> tuple[Recommendation, ...]:
        """Return the recommendations ordered by namespace and name of their workloads."""
        return tuple(sorted(self.recommendations, key=lambda recommendation: recommendation.container.workload.place))


@dataclass(frozen=True, slots=True)
class Before:
    """Data that an earlier analysis stored: the lowest CPU margin of each container (`day_margins`), and siblings."""

    least_margins: Mapping[ContainerRef, float] = field(default_factory=dict)
    siblings: Siblings = field(default_factory=dict)

    def beside(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the earlier analysis' data on its containers added."""
        margins = np.array([self.least_margins.get(ref, np.nan) for ref in evidence.containers], dtype=np.float64)
        return replace(evidence, least_margins=margins, siblings=self.siblings)


NOTHING_BEFORE: Final = Before()


def assess(
    history: History,
    settings: Settings,
    server: ServerQuantiles | None = None,
    series_at_once: int = SERIES_AT_ONCE,
    before: Before = NOTHING_BEFORE,
) -> ContainerResults:
    """Return recommendations, ordered by workload, and findings, the most severe first, for a whole history."""
    deleted = incomplete.gone_workloads(history.inventory)
    container_results = evaluate_workloads(history, settings, deleted, server, series_at_once, before)
    return container_results.of_cluster(history, settings)


def evaluate_workloads(
    history: History,
    settings: Settings,
    deleted: Collection[WorkloadRef],
    server: ServerQuantiles | None = None,
    series_at_once: int = SERIES_AT_ONCE,
    before: Before = NOTHING_BEFORE,
) -> ContainerResults:
    """Return recommendations and findings for the workloads of the inventory, in its order.

    A workload that has ended is left out; every value of a `deleted` one is withheld.
    """
    own, strategy = settings.recommender, load_strategy(settings.recommender.strategy)
    history = replace(history, inventory=without_over(history.inventory))
    scrape = history.quality.slowest_seconds if history.quality else None
    parts = _ContainerParts.of(history, settings, server)
    requested = requested_by_all(history.inventory) if history.requested is None else history.requested

    def evaluate_part(workloads: Sequence[Workload]) -> ContainerResults:
        part = parts.evidence(workloads)
        evidence = before.beside(part)
        measured = withhold_unmeasured(recommend(strategy, evidence, own), evidence)
        complete = incomplete.withhold_partial(without_cache_raises(measured, evidence), workloads)
        proposed = incomplete.withhold_deleted(complete, deleted)
        founded = incomplete.without_decreases(proposed, history.unread_seconds)
        enriched = enrich(founded, evidence, history.inventory, own, scrape_seconds=scrape, requested=requested)
        container_results = of_containers(parts.without_garbage(part, workloads), own.findings, own.cotenant)
        return ContainerResults(tuple(enriched), tuple(without_unmeasured(container_results, evidence)))

    return concatenate_results(side_by_side(evaluate_part, parts.groups(series_at_once)))


def requested_by_all(inventory: Inventory) -> dict[Resource, float]:
    """Return the sum of the requests of all running pods, in each resource's unit."""
    running = [pod.requests for pod in inventory.pods if pod.running]
    return {resource: float(sum(requests.get(resource, 0) for requests in running)) for resource in Resource}


def concatenate_results(parts: Iterable[ContainerResults]) -> ContainerResults:
    """Join the results of several parts, in order."""
    parts = tuple(parts)
    return ContainerResults(
        tuple(recommendation for part in parts for recommendation in part.recommendations),
        tuple(finding for part in parts for finding in part.findings),
    )


def evidences(
    history: History, settings: Settings, server: ServerQuantiles | None, series_at_once: int
) -> Iterator[Evidence]:
    """Yield the evidence (usage, events, templates) of all containers in groups of whole workloads, in order."""
    parts = _ContainerParts.of(history, settings, server)
    return (parts.evidence(workloads) for workloads in parts.groups(series_at_once))


@dataclass(frozen=True, slots=True, eq=False)
class _ContainerParts:
    """A history, with the series, pods and events that belong to each workload."""

    history: History
    settings: Settings
    server: ServerQuantiles | None
    rows: Mapping[Signal, defaultdict[WorkloadRef, list[int]]]
    pods: defaultdict[WorkloadRef, list[Pod]]
    events: defaultdict[WorkloadRef, list[Event]]
    pod_rows: defaultdict[WorkloadRef, list[PodRow]]
    daemons: Sequence[Pod]

    @classmethod
    def of(cls, history: History, settings: Settings, server: ServerQuantiles | None) -> _ContainerParts:
        inventory = history.inventory
        owners = inventory.owners()
        pods, events = defaultdict[WorkloadRef, list[Pod]](list), defaultdict[WorkloadRef, list[Event]](list)
        for pod in inventory.pods:
            pods[pod.workload].append(pod)
        daemons = [pod for pod in inventory.pods if pod.workload.kind == "DaemonSet" and pod.running]
        for event in inventory.events:
            owner = owners.get((event.subject.namespace, event.subject.pod))
            if owner is not None:
                events[owner].append(event)
        pod_rows = defaultdict[WorkloadRef, list[PodRow]](list)
        for pod_row in inventory.pod_rows:
            owner = owners.get((pod_row.namespace, pod_row.name))
            if owner is not None:
                pod_rows[owner].append(pod_row)
        # Rows of each workload; most signals have the same series, which are looked up once.
        looked_up: list[tuple[tuple[PodContainerRef, ...], defaultdict[WorkloadRef, list[int]]]] = []
        by_signal: dict[Signal, defaultdict[WorkloadRef, list[int]]] = {}
        for signal, usage in history.usage.items():
            rows = next((rows for refs, rows in looked_up if refs == usage.refs), None)
            if rows is None:
                rows = defaultdict[WorkloadRef, list[int]](list)
                for row, ref in enumerate(usage.refs):
                    owner = owners.get((ref.namespace, ref.pod))
                    if owner is not None:
                        rows[owner].append(row)
                looked_up.append((usage.refs, rows))
            by_signal[signal] = rows
        return cls(history, settings, server, by_signal, pods, events, pod_rows, daemons)

    def groups(self, most_series: int) -> list[list[Workload]]:
        """Return groups of neighbouring workloads with at most so many series per signal; a larger workload is alone.

        Without workloads there is one empty group.
        """
        workloads, rows = self.history.inventory.workloads, self.rows
        counts = {w.ref: max((len(of.get(w.ref, ())) for of in rows.values()), default=0) for w in workloads}
        groups: list[list[Workload]] = [[]]
        series = 0
        for workload in workloads:
            if groups[-1] and series + counts[workload.ref] > most_series:
                groups.append([])
                series = 0
            groups[-1].append(workload)
            series += counts[workload.ref]
        return groups

    def evidence(self, workloads: Sequence[Workload]) -> Evidence:
        """Return the evidence of these workloads' containers."""
        refs = [w.ref for w in workloads]
        usage = {
            signal: self.history.usage[signal].select(
                np.array(sorted(i for r in refs for i in of.get(r, ())), dtype=np.intp)
            )
            for signal, of in self.rows.items()
        }
        return self._evidence(workloads, usage)

    def without_garbage(self, evidence: Evidence, workloads: Sequence[Workload]) -> Evidence:
        """Return the evidence without implausible samples (`base.usage.plausible`).

        A value that is withheld as implausible is no finding, and hides none.
        """
        usage = plausible_signals(evidence.usage, self.history.inventory)
        same = all(series.values is evidence.usage[signal].values for signal, series in usage.items())
        return evidence if same else self._evidence(workloads, usage)

    def _evidence(self, workloads: Sequence[Workload], usage: Mapping[Signal, Usage[PodContainerRef]]) -> Evidence:
        refs = {w.ref: None for w in workloads}
        part = replace(
            self.history.inventory,
            workloads=tuple(workloads),
            pods=tuple(pod for ref in refs for pod in self.pods.get(ref, ())),
            events=tuple(event for ref in refs for event in self.events.get(ref, ())),
            pod_rows=tuple(row for ref in refs for row in self.pod_rows.get(ref, ())),
        )
        evidence = _evidence(self.history, part, usage, self.settings, self.server)
        others = tuple(pod for pod in self.daemons if pod.workload not in refs)
        # nothing looks at pods of other groups; each group would go through all of them
        return replace(evidence, inventory=replace(part, pods=part.pods + others), unshown=self.history.unshown)


def _evidence(
    history: History,
    part: Inventory,
    usage: Mapping[Signal, Usage[PodContainerRef]],
    settings: Settings,
    server: ServerQuantiles | None,
) -> Evidence:
    """Return everything that strategies may use about a part of the inventory: usage, portraits, events, templates."""
    cpu_demand = demand(usage[Signal.CPU_USAGE_MEAN], usage[Signal.CPU_THROTTLED_MEAN])
    of_pods = {Resource.CPU: cpu_demand, Resource.MEMORY: usage[Signal.MEMORY_WORKING_SET_MAX]}
    portraits: dict[Resource, Portraits[ContainerRef]] = {}
    members = by_container(cpu_demand.refs, part)
    for resource, series in of_pods.items():
        if series.refs != cpu_demand.refs:
            members = by_container(series.refs, part)
        portraits[resource] = portrait.build(
            members.refs, members.rows, series, settings.portrait, members.start_seconds
        )
    return assemble(part, history.window, usage, portraits, server=server, silence=history.silence)
