"""The calibrated peak of prod usage on each node: totals, limits and cold pods for `forecasting.node_peaks`. Pure.

A node's total continues through roll-outs, because it includes the pods that went. It does not include an additional
(cold) pod: a pod younger than a day counts with its request unless a pod of the same workload left the same node within
that day. For CPU only what exceeds the node's usual turnover counts, which its total has always included (bench
decisions_churn: with all of it the resulting risk was a fifth of the requested one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import AnyUsage
from cotenant.base.usage.usage import DAY_SECONDS, Usage
from cotenant.forecasting.node_peaks.koordinator_peaks import pod_peaks
from cotenant.forecasting.node_peaks.node_peak import NodeLimits, NodePeaks, has_own_record, node_peaks
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.pipeline.analysis import BLOCK_SECONDS, History, NodeMaxima
from cotenant.pipeline.nodes.pod_hours import PROD
from cotenant.profiler.pool import PartialTotals, PoolMembers
from cotenant.recommender.colocation.model.prod_peaks import Place, PodCensus, unreplaced_requests
from cotenant.recommender.incomplete import node_forecast_incomplete

Floats = npt.NDArray[np.float64]

USUAL_DAYS = 14
_PODS_AT_ONCE: Final = 256
"""Series of pods whose dense rows exist at the same time."""


def prod_node_peaks(
    history: History,
    totals: Mapping[Resource, Usage[NodeRef]],
    pods: Mapping[Resource, Floats],
    maxima: Mapping[Resource, NodeMaxima],
    settings: NodePeakSettings,
) -> dict[Resource, NodePeaks[NodeRef]]:
    """Return by resource the expected peaks of each node's prod usage, at the one risk of the settings.

    `pods`, (nodes,), is the sum of the peaks of running prod pods; of `maxima` those before the totals are used. If a
    part of the history could not be read, the number of tested days is 0, so that no peak counts as proven.
    """
    peaks = {}
    for resource, total in totals.items():
        # Allocatable of each node, and its cold pods; a node that states none is bounded by what it ever used.
        inventory = history.inventory
        assert isinstance(total.resource, Resource)
        allocatable_by_node = {n.name: float(n.allocatable.get(total.resource, 0)) for n in inventory.nodes}
        now = total.grid.end_seconds
        cold = cold_pods(inventory, total.resource, now, total.grid.start_seconds)
        stated = np.array([allocatable_by_node.get(ref.name, 0.0) for ref in total.refs], dtype=np.float64)
        used = np.nan_to_num(total.values).max(axis=1, initial=0.0)
        node_limits = NodeLimits(
            limits=np.where(stated > 0, stated, used),
            cold=np.array([cold.get(ref.name, 0.0) for ref in total.refs], dtype=np.float64),
        )
        peaks[resource] = node_peaks(
            total,
            node_limits,
            (settings.risk(resource),),
            settings,
            pods[resource],
            maxima[resource].before(total.grid.start_seconds),
        )
    return {
        r: replace(p, days=np.zeros_like(p.days)) if node_forecast_incomplete(r, history.unread_seconds) else p
        for r, p in peaks.items()
    }


def cold_requests(inventory: Inventory, resource: Resource, now_seconds: float) -> dict[str, float]:
    """Return by node the requests of cold pods: prod pods younger than a day that replaced no other pod there."""
    pods = _Pods.of(inventory, resource)
    return {node: float(amount) for node, amount in zip(pods.nodes, pods.cold(now_seconds), strict=True) if amount > 0}


def unusually_cold(
    inventory: Inventory, resource: Resource, now_seconds: float, since_seconds: float
) -> dict[str, float]:
    """Return by node how far the requests of cold (new) pods exceed their mean; other nodes are left out.

    The mean is over at most the last 14 days, 0 with less than a day of history. The node's total contains it.
    """
    pods = _Pods.of(inventory, resource)
    more = pods.cold(now_seconds) - pods.usually_cold(now_seconds, since_seconds)
    return {node: float(amount) for node, amount in zip(pods.nodes, more, strict=True) if amount > 0}


def cold_pods(inventory: Inventory, resource: Resource, now_seconds: float, since_seconds: float) -> dict[str, float]:
    """Return the requests of cold (too new) prod pods by node; for CPU only the excess over their 14-day mean."""
    if resource is Resource.CPU:
        return unusually_cold(inventory, resource, now_seconds, since_seconds)
    return cold_requests(inventory, resource, now_seconds)  # memory lent in error comes back by eviction alone


def prod_census(inventory: Inventory, now_seconds: float, since_seconds: float) -> PodCensus:
    """Return the prod pods that each node has now, by which the manager later tells which pods are new (cold) there.

    For CPU it also has by node how far the mean requests of cold pods exceed the present ones, where they do.
    """
    pods = _Pods.of(inventory, Resource.CPU)
    less = pods.usually_cold(now_seconds, since_seconds) - pods.cold(now_seconds)
    usual = {node: float(amount) for node, amount in zip(pods.nodes, less, strict=True) if amount > 0}
    counts = zip(pods.places, pods.known(now_seconds).tolist(), strict=True)
    return PodCensus(now_seconds, {place: count for place, count in counts if count}, {Resource.CPU: usual})


@dataclass(frozen=True, slots=True, eq=False)
class _Pods:
    """Prod pods as columns, (n,); `node_of`: (places,), the number of each place's node.

    `place`: number of each pod's place; `start`, `end`: Unix seconds, `end` is infinite while it runs; `request`:
    millicores or bytes, 0 = not set.
    """

    nodes: tuple[str, ...]
    places: tuple[Place, ...]
    node_of: npt.NDArray[np.intp]
    place: npt.NDArray[np.intp]
    start: Floats
    end: Floats
    request: Floats

    @classmethod
    def of(cls, inventory: Inventory, resource: Resource) -> _Pods:
        """Return the prod pods of an inventory, also ended ones, without placeholders of reservations."""
        prod = [p for p in inventory.pods if p.effective_priority in PROD and p.namespace != PLACEHOLDER_NAMESPACE]
        places = {place: number for number, place in enumerate(dict.fromkeys(_node_and_workload(p) for p in prod))}
        nodes = {node: number for number, node in enumerate(dict.fromkeys(node for node, _ in places))}
        return cls(
            nodes=tuple(nodes),
            places=tuple(places),
            node_of=np.array([nodes[node] for node, _ in places], dtype=np.intp),
            place=np.array([places[_node_and_workload(p)] for p in prod], dtype=np.intp),
            start=np.array([p.start_seconds for p in prod], dtype=np.float64),
            end=np.array([np.inf if p.end_seconds is None else p.end_seconds for p in prod], dtype=np.float64),
            request=np.array([p.requests.get(resource, 0) for p in prod], dtype=np.float64),
        )

    def cold(self, moment: float) -> Floats:
        """Return the requests of young pods at a time, beyond as many as left their place the day before, (nodes,)."""
        young = self._young(moment)
        requested = np.bincount(self.place[young], weights=self.request[young], minlength=len(self.places))
        beyond = unreplaced_requests(self._count(young), self._count(self._ended_in_day(moment)), requested)
        return np.bincount(self.node_of, weights=beyond, minlength=len(self.nodes)).astype(np.float64)

    def usually_cold(self, now_seconds: float, since_seconds: float) -> Floats:
        """Return the mean of `cold` at six-hourly times in at most 14 days, (nodes,); 0 without a day of history."""
        first = max(since_seconds + DAY_SECONDS, now_seconds - USUAL_DAYS * DAY_SECONDS)
        moments = np.arange(now_seconds - BLOCK_SECONDS, first, -BLOCK_SECONDS)
        if not len(moments):
            return np.zeros(len(self.nodes))
        usual: Floats = np.mean([self.cold(moment) for moment in moments], axis=0)
        return usual

    def known(self, moment: float) -> npt.NDArray[np.intp]:
        """Return the numbers of running pods, and of pods that left in the last day without replacement, (places,).

        The totals of the last day include all of them; a later pod replaces one that is missing.
        """
        running = self._count((self.start <= moment) & (self.end > moment))
        unreplaced = self._count(self._ended_in_day(moment)) - self._count(self._young(moment))
        return np.asarray(running + np.maximum(unreplaced, 0))

    def _young(self, moment: float) -> npt.NDArray[np.bool_]:
        return (self.start >= moment - DAY_SECONDS) & (self.start <= moment) & (self.end > moment)

    def _ended_in_day(self, moment: float) -> npt.NDArray[np.bool_]:
        return (self.end >= moment - DAY_SECONDS) & (self.end <= moment)

    def _count(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        return np.bincount(self.place[chosen], minlength=len(self.places))


def _node_and_workload(pod: Pod) -> Place:
    return pod.node, pod.workload


def running_peaks(
    inventory: Inventory,
    usage: AnyUsage[PodContainerRef],
    settings: NodePeakSettings,
    members: PoolMembers[NodeRef],
    prod_totals: PartialTotals,
) -> Floats:
    """Return Koordinator's sum of the peaks of running prod pods on each node, without pods too young to have a peak.

    `usage` has the series of some pods, `members` says on which node each series is, and `prod_totals` are these pods'
    sums by node. The sum is 0 for a node on which these pods alone have a sufficiently long history, because the peak
    of such a node is not computed from single pods.
    """
    assert isinstance(usage.resource, Resource)
    prod = {(p.namespace, p.name) for p in inventory.pods if p.running and p.effective_priority in PROD}
    needs_sum = np.ones(len(members.refs), dtype=bool)
    needs_sum[prod_totals.groups[has_own_record(prod_totals.reported, usage.grid.slots_per_day, settings)]] = False
    rows = np.array([(ref.namespace, ref.pod) in prod for ref in usage.refs], dtype=bool)
    rows &= (members.rows >= 0) & np.append(needs_sum, False)[members.rows]
    running, sums = np.flatnonzero(rows), np.zeros(len(members.refs))
    for first in range(0, len(running), _PODS_AT_ONCE):
        some = running[first : first + _PODS_AT_ONCE]
        peaks = pod_peaks(usage.rows(some), np.zeros(len(some)), usage.grid.slots_per_day, usage.resource)
        sums += np.bincount(members.rows[some], weights=peaks.astype(np.float64), minlength=len(members.refs))
    return sums
