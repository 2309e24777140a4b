"""Reclaimable capacity of nodes by the recommender's formulas: now, in past hours, and in the next 24 hours. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.colocation.reclaim_policies import Band, Reclaimable
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.sparse_usage import AnyUsage
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.forecasting.node_peaks.koordinator_peaks import koordinator_peaks
from cotenant.forecasting.node_peaks.node_peak import FALLBACK, NodePeaks, mid_peaks
from cotenant.pipeline.analysis import Floats, History, PodSums, PodTotals
from cotenant.pipeline.nodes.pod_hours import (
    PRESENT_SLOTS,
    PROD,
    HoursOfPods,
    PodHours,
    hours_of,
    last_slots,
    pod_hours,
)
from cotenant.profiler.pool import PartialTotals, PoolMembers, TotalOfParts, by_node, partial_totals
from cotenant.recommender.colocation import lendable
from cotenant.recommender.colocation.columns import NO_FORECAST, PeakForecast
from cotenant.recommender.colocation.formulas import Parameters, prod_reclaimable
from cotenant.recommender.colocation.inventory import Usages, node_columns, pod_columns, strategies
from cotenant.recommender.colocation.lendable import FORMULAS, Lender, PastUse, known_amounts
from cotenant.recommender.colocation.model.lendable import LEVELS, LendableLines
from cotenant.recommender.colocation.strategy import ColocationConfig
from cotenant.recommender.incomplete import with_incomplete_noted
from cotenant.recommender.settings import ReclaimableSettings

POD_SIGNAL: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
NODE_SIGNAL: Final = {Resource.CPU: Signal.NODE_CPU_USAGE_MEAN, Resource.MEMORY: Signal.NODE_MEMORY_WORKING_SET_MAX}
HIGH: Final = tuple(c for c in PriorityClass if not c.is_reclaimer)
"""Classes whose use is never lent: prod, mid and pods without a class."""


@dataclass(frozen=True, slots=True, eq=False)
class PartialPodSums:
    """Sums over some of the pods, a part of `PodSums`: node totals of prod, of others above batch, and of the rest.

    `hours` is what these pods used and requested at the end of each hour.
    """

    prod: PartialTotals
    above_batch: PartialTotals
    rest: PartialTotals
    present: Mapping[tuple[str, str], float]
    peaks: Floats
    hours: PodHours


def partial_sums(
    usage: AnyUsage[PodContainerRef],
    inventory: Inventory,
    peaks: Callable[[PoolMembers[NodeRef], PartialTotals], Floats],
    pods: Sequence[Pod] = (),
) -> PartialPodSums:
    """Return the sums over the series of some pods; all containers of a pod must be among them.

    `inventory` has at least these pods, and all nodes. `peaks` returns the sum of the peaks of pods on each node,
    (nodes,), from the node of each series and the totals of prod pods. Hourly sums are computed for `pods`,
    whose series are in `usage`; each pod may be in `pods` of only one of the results that are added up.
    """
    everything = by_node(usage.refs, inventory, node_refs(inventory))
    # The group of each series' pod: 0 of prod, 1 of what else is never lent, 2 of the rest, 3 not known.
    groups: dict[tuple[str, str], int] = {}
    for pod in inventory.pods:
        name, priority = (pod.namespace, pod.name), pod.effective_priority
        groups[name] = min(groups.get(name, 3), 0 if priority in PROD else 1 if priority in HIGH else 2)
    group = np.array([groups.get((ref.namespace, ref.pod), 3) for ref in usage.refs], dtype=np.int64)
    of_prod, of_above, of_rest = (
        partial_totals(usage, replace(everything, rows=np.where(group == number, everything.rows, -1)))
        for number in range(3)
    )
    hours = pod_hours(usage, inventory, pods)
    return PartialPodSums(of_prod, of_above, of_rest, pods_now(usage), peaks(everything, of_prod), hours)


class SumsOfPods:
    """Joins the sums over parts of the pods (`PartialPodSums`) to those over all pods, for one resource."""

    def __init__(self, inventory: Inventory, grid: TimeGrid) -> None:
        """Start without any pod."""
        refs = node_refs(inventory)
        self._prod, self._above, self._rest = (TotalOfParts(refs, grid) for _ in range(3))
        self._present: dict[tuple[str, str], float] = {}
        self._peaks = np.zeros(len(refs))
        self._hours = HoursOfPods(len(refs), grid)

    def add(self, part: PartialPodSums) -> None:
        """Add the sums over some pods; each pod may be in only one of the added parts."""
        self._prod.add(part.prod)
        self._above.add(part.above_batch)
        self._rest.add(part.rest)
        self._present.update(part.present)
        self._peaks += part.peaks
        self._hours.add(part.hours)

    def sums(self, resource: Resource) -> PodSums:
        """Return the sums over all added parts as the `PodSums` of a resource."""
        spec = POD_SIGNAL[resource].spec
        prod = self._prod.usage(spec.resource, spec.statistic)
        # where nobody has batch or mid pods, the groups are the same and one sum serves them all
        above = self._prod if self._above.empty else self._prod.with_part(self._above)
        high = prod if self._above.empty else above.usage(spec.resource, spec.statistic)
        pods = high if self._rest.empty else above.with_part(self._rest).usage(spec.resource, spec.statistic)
        return PodSums(PodTotals(prod, high, pods), self._present, self._peaks, self._hours.terms)


def pod_totals(history: History, resource: Resource) -> PodTotals:
    """Return usage summed over each node's pods, by group of priority classes, in the inventory's order of nodes."""
    usage, inventory = history.usage[POD_SIGNAL[resource]], history.inventory
    sums = SumsOfPods(inventory, usage.grid)
    sums.add(partial_sums(usage, inventory, lambda members, _: np.zeros(len(members.refs))))
    return sums.sums(resource).totals


def node_refs(inventory: Inventory) -> tuple[NodeRef, ...]:
    """Return the references of all nodes, in the inventory's order."""
    return tuple(NodeRef(n.name) for n in inventory.nodes)


def of_classes(
    members: PoolMembers[NodeRef],
    series: Sequence[PodContainerRef],
    inventory: Inventory,
    classes: Collection[PriorityClass],
) -> PoolMembers[NodeRef]:
    """Return the assignment of series to nodes in which series of pods of other priority classes have no node."""
    chosen = _pods_of(inventory, classes)
    owns = np.array([(ref.namespace, ref.pod) in chosen for ref in series], dtype=bool)
    return replace(members, rows=np.where(owns, members.rows, -1))


def lenders(
    history: History,
    sums: Mapping[Resource, PodSums],
    prod: Mapping[Resource, NodePeaks[NodeRef]],
    forecasts: Mapping[Resource, Mapping[str, PeakForecast]],
    settings: ReclaimableSettings,
    now_seconds: float,
) -> dict[Resource, Lender]:
    """Return by resource the present terms of the formulas and the settings' colocation strategy for every node."""
    inventory = history.inventory
    chosen = strategies(inventory, ColocationConfig.of_settings(settings))
    pods = pod_columns(inventory, {resource: of.present for resource, of in sums.items()})
    lender_by_resource: dict[Resource, Lender] = {}
    for resource in Resource:
        nodes = history.node_usage[NODE_SIGNAL[resource]]
        values, measured = newest(nodes)
        names = [ref.name for ref in nodes.refs]
        usages = Usages(
            nodes=dict(zip(names, (float(v) for v in values), strict=True)),
            measured_seconds=dict(zip(names, (float(t) for t in measured), strict=True)),
            prod_reclaimable=_prod_reclaimable(inventory, resource, prod[resource], forecasts[resource]),
            prod_peaks=forecasts[resource],
        )
        columns = node_columns(inventory, resource, usages, pods)
        allocatable = np.array([n.allocatable.get(resource, 0) for n in inventory.nodes], dtype=np.float64)
        lender_by_resource[resource] = Lender.of(columns, Parameters.of(chosen, resource), allocatable, now_seconds)
    return lender_by_resource


def reclaimable(lending: Mapping[Resource, Lender], history: History) -> tuple[Reclaimable, ...]:
    """Return the capacity that every node can lend to batch and to mid pods now, by resource."""
    messages = [
        message
        for lender in lending.values()
        for formula in FORMULAS.values()
        for message in formula(lender.now, lender.given, 0.0).messages()
    ]
    return with_incomplete_noted(messages, history.unread_seconds)


def newest(usage: Usage[Any]) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return (newest value of each series, Unix time of its slot's end), (n,); NaN for a series without any value."""
    if not usage.grid.size:
        return np.full(len(usage.refs), np.nan), np.full(len(usage.refs), np.nan)
    present = np.isfinite(usage.values)
    last = usage.grid.size - 1 - np.argmax(present[:, ::-1], axis=1)
    some = present.any(axis=1)
    values = np.where(some, usage.values[np.arange(len(usage.refs)), last], np.nan)
    return values, np.where(some, usage.grid.times()[last] + usage.grid.step_seconds, np.nan)


def _pods_of(inventory: Inventory, classes: Collection[PriorityClass]) -> set[tuple[str, str]]:
    return {(p.namespace, p.name) for p in inventory.pods if p.effective_priority in classes}


def peak_forecasts(
    history: History, resource: Resource, prod: NodePeaks[NodeRef], totals: PodTotals
) -> dict[str, PeakForecast]:
    """Return by node prod's 24-hour peak at its first risk, its violation and tested days, and peaks of system and mid.

    Nodes without a peak are left out. Batch amounts under the policy `forecast` are computed from these, here and in
    the manager.
    """
    system = system_peaks(history, resource, totals.pods)
    highest = mid_peaks(totals.high.values, totals.prod.values, totals.prod.grid.slots_per_day)
    mid = dict(zip((ref.name for ref in totals.high.refs), highest.tolist(), strict=True))
    rows = zip(prod.peaks[:, 0].tolist(), prod.violation[:, 0].tolist(), prod.days.tolist(), strict=True)
    return {
        ref.name: PeakForecast(peak, violation, days, system.get(ref.name, np.nan), mid.get(ref.name, 0.0))
        for ref, (peak, violation, days) in zip(prod.refs, rows, strict=True)
        if np.isfinite(peak)
    }


def pods_now(usage: AnyUsage[PodContainerRef]) -> dict[tuple[str, str], float]:
    """Return present usage by (namespace, pod), containers summed; pods without a present sample are missing."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for ref, value in zip(usage.refs, newest(usage.tail(PRESENT_SLOTS))[0], strict=True):
        if np.isfinite(value):
            sums[ref.namespace, ref.pod] += float(value)
    return dict(sums)


def _prod_reclaimable(
    inventory: Inventory, resource: Resource, prod: NodePeaks[NodeRef], forecasts: Mapping[str, PeakForecast]
) -> dict[str, float]:
    """Return what prod requests minus its calibrated 24-hour peak, by node with a peak.

    A node whose record is too short uses the smaller result of Koordinator's two predictors: one subtracts the sum of
    its pods' peaks, the other the peaks of the class and of the system. If the system has no sample, its usage is not
    known, so that the node lends nothing of what prod requested.
    """
    requested: dict[str, float] = defaultdict(float)
    owned = _pods_of(inventory, PROD)
    for pod in inventory.pods:
        if pod.running and not pod.placeholder and (pod.namespace, pod.name) in owned:
            requested[pod.node] += pod.requests.get(resource, 0)
    allocatable_by_node = {n.name: float(n.allocatable.get(resource, 0)) for n in inventory.nodes}
    names = [ref.name for ref in prod.refs]
    young = np.array([model == FALLBACK for model in prod.model], dtype=bool)
    system = np.array([forecasts.get(name, NO_FORECAST).system_peak for name in names], dtype=np.float64)
    peaks = prod.peaks[:, 0].astype(np.float64)
    of_class = peaks if prod.class_peaks is None else prod.class_peaks.astype(np.float64)
    amounts = prod_reclaimable(
        np.array([requested[name] for name in names]),
        np.array([allocatable_by_node[name] for name in names]),
        np.where(young, np.maximum(peaks, of_class + system), peaks),
    )
    rows = zip(names, amounts.tolist(), np.isfinite(prod.peaks[:, 0]).tolist(), strict=True)
    return {name: amount for name, amount, has_peak in rows if has_peak}


def system_peaks(history: History, resource: Resource, pods: Usage[NodeRef]) -> dict[str, float]:
    """Return by node Koordinator's peak of what runs outside of pods.

    This is the usage of the node minus that of its `pods`, at least 0. Slots without a measurement of the node's pods
    do not count; if its pods were never measured, their usage counts as 0. NaN for a node without a slot that counts.
    """
    rest = system_usage(history, resource, pods)
    peaks = koordinator_peaks(rest.values, rest.grid.slots_per_day, resource)
    return {ref.name: float(peak) for ref, peak in zip(rest.refs, peaks, strict=True)}


def system_usage(history: History, resource: Resource, pods: Usage[NodeRef]) -> Usage[NodeRef]:
    """Return the usage of each node minus that of its `pods`, at least 0; nodes without a row in both are left out."""
    nodes = history.node_usage[NODE_SIGNAL[resource]]
    row_of = {ref: row for row, ref in enumerate(pods.refs)}
    rows = [row for row, ref in enumerate(nodes.refs) if ref in row_of]
    refs = tuple(nodes.refs[row] for row in rows)
    of_pods = pods.values[[row_of[ref] for ref in refs]]
    empty = np.isnan(of_pods).all(axis=1, keepdims=True)
    rest = np.maximum(nodes.values[rows] - np.where(empty, np.float32(0), of_pods), np.float32(0))
    return Usage(refs, nodes.grid, rest, nodes.resource, nodes.statistic)


_NODES_AT_ONCE: Final = 512


def lendable_lines(history: History, lender: Lender, sums: PodSums, prod: Forecasts[NodeRef]) -> LendableLines:
    """Return what all nodes could lend in past hours and can lend in coming ones, for one resource, by node.

    `lender` has the present terms of the formula; `prod` forecasts what prod pods use on each node. The prod usage of a
    node counts as 0 if it has no prod pod and the history has no usage of prod pods there.
    """
    assert isinstance(prod.resource, Resource)
    # Newest sample of each node at the end of each hour, and the sums over its pods.
    nodes = history.node_usage[NODE_SIGNAL[prod.resource]]
    hours = sums.hours
    slots, step = last_slots(nodes.grid), nodes.grid.step_seconds
    shape = len(lender.now.nodes), len(slots)
    node_used, ages = np.full(shape, np.nan), np.full(shape, np.nan)
    row_of = {ref.name: row for row, ref in enumerate(nodes.refs)}
    places = np.array([i for i, name in enumerate(lender.now.nodes) if name in row_of], dtype=np.int64)
    for first in range(0, len(places), _NODES_AT_ONCE):
        some = places[first : first + _NODES_AT_ONCE]
        values = nodes.values[[row_of[lender.now.nodes[i]] for i in some.tolist()]]
        sampled = np.where(np.isfinite(values), np.arange(nodes.grid.size, dtype=np.int32), np.int32(-1))
        last = np.maximum.accumulate(sampled, axis=1)[:, slots]
        newest = np.take_along_axis(values, np.maximum(last, 0), axis=1)
        node_used[some] = np.where(last >= 0, newest, np.nan)
        ages[some] = np.where(last >= 0, (slots - last) * float(step), np.nan)
    use = PastUse(hours, node_used, ages)
    now = {band: known_amounts(formula(lender.now, lender.given, 0.0)) for band, formula in FORMULAS.items()}
    past = lendable.past(lender, use)
    for band, line in past.amounts.items():
        # results may be older than a report may be: then the last hour stays as it was
        line[:, -1:] = np.where(np.isfinite(now[band]), now[band], line[:, -1:].T).T
    without_prod = np.isnan(sums.totals.prod.values).all(axis=1)
    without_prod &= (lender.now.prod_used == 0) & (lender.now.prod_request == 0)
    ahead: dict[tuple[Band, str], Floats] = {}
    # Rows in the order of the nodes, NaN for a node without a forecast.
    forecast_row = {ref.name: row for row, ref in enumerate(prod.refs)}
    in_order = [forecast_row.get(name, -1) for name in lender.now.nodes]
    for level in LEVELS:
        padded = np.append(prod.level(float(level)), np.full((1, prod.grid.size), np.nan), axis=0)
        path = np.where(without_prod[:, None], 0.0, padded[in_order])
        ahead |= {(band, level): amounts for band, amounts in lendable.ahead(lender, path).items()}
    # From each node's first hour with a report to its last.
    reports = use.age_seconds <= lender.given.degrade_seconds[:, None]
    has_begun, goes_on = (np.logical_or.accumulate(flags, axis=1) for flags in (reports, reports[:, ::-1]))
    return LendableLines(
        hours=hours_of(history.window),
        half_hours=prod.grid,
        now=now,
        past=past.amounts,
        past_reasons={band: past.reasons(band) for band in Band},
        ahead=ahead,
        capacity=lender.now.capacity.astype(np.float64),
        reported=np.asarray(has_begun & goes_on[:, ::-1]),
    )
