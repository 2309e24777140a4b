"""EDGE: how many nodes a cluster needs at each level of requests, from the stored scan and the live cluster.

    report = size_report(Asked(state, stored, options, prices), levels, now_seconds, progress)
    keep(store, report)          # for the pages, REST and the Python API

The caller reads the cluster (`read_cluster`), with the proposals of `StoredScan.proposals`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.amount_text import cores, gib
from cotenant.base.errors import NoData
from cotenant.base.identity import ContainerRef
from cotenant.base.kubernetes.quantity import add
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.text import counted, moment
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.recommender.model.views import NODES, RECOMMENDATIONS, BandSeries, Overview
from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.scheduler_ext.cluster_size import demand
from cotenant.scheduler_ext.cluster_size.autoscalers.model import NodeAutoscalers
from cotenant.scheduler_ext.cluster_size.autoscalers.obstacles import find_obstacles
from cotenant.scheduler_ext.cluster_size.cluster_bound import fewest_nodes
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.demand import Amounts, BusiestMoment, services_of, state_at
from cotenant.scheduler_ext.cluster_size.machines.bills import batch_alone
from cotenant.scheduler_ext.cluster_size.machines.mix import cheapest_mix
from cotenant.scheduler_ext.cluster_size.machines.prototypes import Prototypes, prototypes_of
from cotenant.scheduler_ext.cluster_size.machines.shapes import MachineType
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, RequestLevel, SizedCluster, SizedNode, SizeOptions
from cotenant.scheduler_ext.cluster_size.prices import NodePrices, capacity_of, machine_of
from cotenant.scheduler_ext.cluster_size.report import REPORT, PeakUse, SizedLevel, SizeReport, level_words, with_prices
from cotenant.scheduler_ext.cluster_size.steps import ProposedChanges, Route, StepPace, autoscaler_sentences, plan_steps

NO_TYPES: Final = "no node has both a machine type and a price, and no list of machine types was given (--shapes)"
NO_SCAN: Final = "no scan of this cluster is stored; run `cotenant scan`"
OTHER_CLUSTER: Final = "the stored scan is of another cluster: it has no node in common with this one"
TOMORROW: Final = f"tomorrow's forecast peak ({PEAK_NAME})"


@dataclass(frozen=True, slots=True)
class StoredScan:
    """The data of a cluster's last scan; `reason` says why there are none, "" if there are data.

    `busiest` has the pods that ran when the requests were highest, None if unknown.
    """

    cluster: str = ""
    proposals: dict[ContainerRef, dict[RequestLevel, Amounts]] = field(default_factory=dict)
    overview: Overview | None = None
    nodes: frozenset[str] = frozenset()
    reason: str = ""
    proposed: ProposedChanges = field(default_factory=ProposedChanges)
    busiest: BusiestMoment | None = None


def read_scan(store: Store) -> StoredScan:
    """Read recommendations, overview, node names and busiest moment of a store's last scan."""
    overview = store.read_document("overview", Overview)
    if overview is None:
        return StoredScan(store.cluster, reason=NO_SCAN)
    try:
        recommendations, nodes = store.read_table(RECOMMENDATIONS), store.read_table(NODES)
        inventory = store.read_inventory()
    except NoData as error:
        return StoredScan(store.cluster, reason=error.message)
    return StoredScan(
        store.cluster,
        demand.proposals_of(recommendations.rows()),
        overview,
        frozenset(str(row["node"]) for row in nodes.rows()),
        proposed=demand.proposed_of(recommendations.rows()),
        busiest=None if inventory is None else demand.busiest_moment(inventory),
    )


def reason_without(scan: StoredScan, state: SizedCluster) -> str:
    """Return why a scan cannot be used for this cluster; "" if it can."""
    if scan.reason:
        return scan.reason
    return "" if any(node.name in scan.nodes for node in state.nodes) else OTHER_CLUSTER


@dataclass(frozen=True, slots=True)
class Asked:
    """The inputs of a report: the live cluster, its last scan, the reserve, prices, autoscalers and machine types."""

    state: SizedCluster
    scan: StoredScan
    options: SizeOptions
    prices: NodePrices
    autoscalers: NodeAutoscalers = field(default_factory=NodeAutoscalers)
    pace: StepPace = field(default_factory=StepPace)
    types: tuple[MachineType, ...] = ()  # allowed machine types; none where no list of them was given


def size_report(question: Asked, levels: Sequence[RequestLevel], now_seconds: float, progress: Progress) -> SizeReport:
    """Compute the report at these levels of requests, with prices, bounds and peaks."""
    scan, reason = question.scan, reason_without(question.scan, question.state)
    busy = None if reason else scan.busiest
    returning: tuple[str, ...] = ()
    if busy is not None:
        recorded = demand.as_recorded(question.state, busy)
        question = replace(question, state=demand.with_returning(recorded, busy))
        if more := question.state.pods[len(recorded.pods) :]:
            cpu, memory = (add(pod.requests.get(resource.value, 0) for pod in more) for resource in Resource)
            ran = f"{counted(len(more), 'pod')} that ran at the busiest moment, {moment(busy.seconds)}"
            returning = (f"counted in addition to running pods: {ran} ({cores(cpu)} cores, {gib(memory)})",)
    state = question.state
    obstacles = find_obstacles(state, question.autoscalers)
    allowed = prototypes_of(state, question.types)
    route = Route(state.nodes, question.autoscalers, obstacles, scan.proposed, question.pace, now_seconds)
    sized_levels: list[SizedLevel] = []
    for level in levels:
        if level is not RequestLevel.NOW and reason:
            sized_levels.append(SizedLevel(level, reason=reason))
        elif sized_levels and level is not RequestLevel.NOW and not any(level in pod.later for pod in state.pods):
            sized_levels.append(replace(sized_levels[0], level=level))
        else:
            sized_levels.append(_sized_level(question, level, allowed, progress))
    # The batch work on nodes of its own: of the list where there is one, else of the machine types of today.
    own = allowed.found
    if not question.types:
        own = prototypes_of(state, types_of_today(state.nodes, question.prices.monthly)).found
    batch = batch_alone(state, own, progress)
    if not question.types and not own and batch.mix is not None:
        batch = replace(batch, mix=replace(batch.mix, reason=NO_TYPES))
    return SizeReport(
        cluster=scan.cluster,
        computed_seconds=int(now_seconds),
        currency=question.prices.currency,
        levels=tuple(replace(s, steps=plan_steps(s.size, s.level, route)) if s.size else s for s in sized_levels),
        peaks=_peaks(scan, reason),
        notes=(*question.prices.notes, *returning),
        obstacles=obstacles,
        autoscaler_notes=tuple(autoscaler_sentences(state, question.autoscalers)),
        batch=batch,
        machine_notes=allowed.left_out,
    )


def _sized_level(question: Asked, level: RequestLevel, allowed: Prototypes, progress: Progress) -> SizedLevel:
    state = state_at(services_of(question.state), level)
    progress.stage(f"Size of the cluster {level_words(level)}", 0)
    size = with_prices(decide_size(state, question.options, progress), question.prices)
    bound = fewest_nodes(state, uncounted=size.waiting)
    mix = None
    if question.types:
        monthly = question.prices.monthly
        mix = cheapest_mix(state, allowed.found, monthly, question.options, size.waiting, progress)
    beside = beside_batch(question, level, size, progress)
    return SizedLevel(level, size, bound=bound.nodes or None, bound_reason=bound.reason, mix=mix, beside_batch=beside)


def beside_batch(question: Asked, level: RequestLevel, size: ClusterSize, progress: Progress) -> int | None:
    """Return how many nodes could be removed while batch pods stay where they are; None without batch pods."""
    if not size.leaving or not any(pod.batch and pod.node for pod in question.state.pods):
        return None
    fixed = state_at(demand.with_batch_fixed(question.state), level)
    return min(len(decide_size(fixed, question.options, progress).leaving), len(size.leaving))


def _peaks(scan: StoredScan, reason: str) -> tuple[PeakUse, ...]:
    """Return tomorrow's forecast peak, and the highest hour of the stored weeks."""
    overview = scan.overview
    if overview is None or reason:
        return (PeakUse(TOMORROW, reason=reason), PeakUse("the highest hour of the last weeks", reason=reason))
    cpu, memory = overview.cpu.peak, overview.memory.peak
    why = (overview.peak_reason or "no forecast is stored") if cpu is None and memory is None else ""
    highest = _highest(overview.cpu), _highest(overview.memory)
    weeks = f"the highest hour of the last {overview.window_days:.0f} days"
    unknown = "no hourly usage is stored" if highest == (None, None) else ""
    return (PeakUse(TOMORROW, cpu, memory, why), PeakUse(weeks, *highest, unknown))


def _highest(series: BandSeries) -> float | None:
    usage = np.array(series.usage, dtype=np.float64)
    return float(np.nanmax(usage)) if np.isfinite(usage).any() else None


def keep(store: Store, report: SizeReport) -> None:
    """Store a report in place of the previous one."""
    store.write_document(REPORT, report)


def types_of_today(nodes: Sequence[SizedNode], monthly: Mapping[str, float]) -> tuple[MachineType, ...]:
    """Return the priced machine types in the nodes' labels, each with the price of its most expensive node."""
    prices: dict[tuple[str, str], list[float]] = defaultdict(list)
    for node in nodes:
        labels = node.facts.labels
        if machine_of(labels) and node.name in monthly:
            prices[machine_of(labels), capacity_of(labels)].append(monthly[node.name])
    return tuple(
        MachineType(name, capacity, max(costs) / HOURS_PER_MONTH) for (name, capacity), costs in sorted(prices.items())
    )
