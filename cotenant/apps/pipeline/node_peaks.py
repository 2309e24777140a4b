"""The calibrated peak of prod's usage on each node: totals, limits and cold pods for `forecasting.node_peak`. Pure.

A node's total goes on through roll-outs, for the pods that went are part of it. What it cannot know is a pod more: a
pod younger than a day counts with its request unless a pod of the same workload left the same node within that day; of
CPU only what is beyond the node's usual coming and going, which its total has known all along (bench.decisions_churn:
with all of it the risk came out a fifth of what was asked for).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.apps.pipeline.analysis import BLOCK_SECONDS, History, NodeMaxima
from cotenant.apps.pipeline.nodes import PROD
from cotenant.core.model.cluster import Inventory, Pod
from cotenant.core.model.identity import NodeRef, WorkloadRef
from cotenant.core.model.resource import Resource
from cotenant.core.model.sparse_usage import AnyUsage
from cotenant.core.model.usage.usage import DAY_SECONDS, Usage
from cotenant.core.settings.sections.node_peak import NodePeakSettings
from forecasting.node_peak import NodeLimits, NodePeaks, node_peaks, pod_peaks
from profiler.pool import by_node
from recommender.incomplete import node_forecast_incomplete

Floats = npt.NDArray[np.float64]

USUAL_DAYS = 14


def prod_node_peaks(
    history: History,
    totals: Mapping[Resource, Usage[NodeRef]],
    pods: Mapping[Resource, AnyUsage[Any]],
    maxima: Mapping[Resource, NodeMaxima],
    settings: NodePeakSettings,
) -> dict[Resource, NodePeaks[NodeRef]]:
    """By resource: peaks of prod's totals at the one risk of the settings.

    pods: usage of pod containers; maxima: of nodes, of which the blocks before the totals count. Where part
    of the history could not be read, no tested decision counts: such a peak does not decide alone.
    """
    peaks = {
        resource: node_peaks(
            total,
            _room(history.inventory, total),
            (settings.risk(resource),),
            settings,
            _pods(history, pods[resource], total),
            maxima[resource].before(total.grid.start_seconds),
        )
        for resource, total in totals.items()
    }
    return {
        r: replace(p, days=np.zeros_like(p.days)) if node_forecast_incomplete(r, history.unread_seconds) else p
        for r, p in peaks.items()
    }


def cold_requests(inventory: Inventory, resource: Resource, now_seconds: float) -> dict[str, float]:
    """By node: what prod pods younger than a day request, beyond those that took another's place on the node."""
    pods = _Pods.of(inventory, resource)
    return {node: float(amount) for node, amount in zip(pods.nodes, pods.cold(now_seconds), strict=True) if amount > 0}


def unusually_cold(
    inventory: Inventory, resource: Resource, now_seconds: float, since_seconds: float
) -> dict[str, float]:
    """The same beyond what was cold on the node at the mean of six-hourly moments since then, at most 14 days.

    What comes as it always came is in the totals that the peak was calibrated on. Without a day of history: all of it.
    """
    pods = _Pods.of(inventory, resource)
    first = max(since_seconds + DAY_SECONDS, now_seconds - USUAL_DAYS * DAY_SECONDS)
    moments = np.arange(now_seconds - BLOCK_SECONDS, first, -BLOCK_SECONDS)
    usual = np.mean([pods.cold(moment) for moment in moments], axis=0) if len(moments) else 0.0
    more = np.maximum(pods.cold(now_seconds) - usual, 0.0)
    return {node: float(amount) for node, amount in zip(pods.nodes, more, strict=True) if amount > 0}


@dataclass(frozen=True, slots=True, eq=False)
class _Pods:
    """Prod pods as columns, (n,); a place is a workload on a node. node_of: (places,), node of each place."""

    nodes: tuple[str, ...]
    node_of: npt.NDArray[np.intp]
    place: npt.NDArray[np.intp]
    start: Floats
    end: Floats
    request: Floats

    @classmethod
    def of(cls, inventory: Inventory, resource: Resource) -> _Pods:
        prod = [p for p in inventory.pods if p.effective_priority in PROD]
        places = {place: number for number, place in enumerate(dict.fromkeys(_place(p) for p in prod))}
        nodes = {node: number for number, node in enumerate(dict.fromkeys(node for _, node in places))}
        return cls(
            nodes=tuple(nodes),
            node_of=np.array([nodes[node] for _, node in places], dtype=np.intp),
            place=np.array([places[_place(p)] for p in prod], dtype=np.intp),
            start=np.array([p.start_seconds for p in prod], dtype=np.float64),
            end=np.array([np.inf if p.end_seconds is None else p.end_seconds for p in prod], dtype=np.float64),
            request=np.array([p.requests.get(resource, 0) for p in prod], dtype=np.float64),
        )

    def cold(self, moment: float) -> Floats:
        """Requests of young pods at a moment beyond as many as left their place within the day before, (nodes,)."""
        count, since = len(self.node_of), moment - DAY_SECONDS
        young = (self.start >= since) & (self.start <= moment) & (self.end > moment)
        ended = (self.end >= since) & (self.end <= moment)
        came = np.bincount(self.place[young], minlength=count)
        went = np.bincount(self.place[ended], minlength=count)
        requested = np.bincount(self.place[young], weights=self.request[young], minlength=count)
        beyond = requested * np.maximum(came - went, 0) / np.maximum(came, 1)
        return np.bincount(self.node_of, weights=beyond, minlength=len(self.nodes)).astype(np.float64)


def _place(pod: Pod) -> tuple[WorkloadRef, str]:
    return pod.workload, pod.node


def _room(inventory: Inventory, total: Usage[NodeRef]) -> NodeLimits:
    """Allocatable of each node, and its cold pods; a node that states none is bounded by what it ever used."""
    assert total.resource is not None
    room = {n.name: float(n.allocatable.get(total.resource, 0)) for n in inventory.nodes}
    now = total.grid.end_seconds
    if total.resource is Resource.CPU:
        cold = unusually_cold(inventory, total.resource, now, total.grid.start_seconds)
    else:  # what memory was lent in error comes back by eviction alone
        cold = cold_requests(inventory, total.resource, now)
    stated = np.array([room.get(ref.name, 0.0) for ref in total.refs], dtype=np.float64)
    used = np.nan_to_num(total.values).max(axis=1, initial=0.0)
    return NodeLimits(
        limits=np.where(stated > 0, stated, used),
        cold=np.array([cold.get(ref.name, 0.0) for ref in total.refs], dtype=np.float64),
    )


def _pods(history: History, usage: AnyUsage[Any], total: Usage[NodeRef]) -> Floats:
    """Koordinator's sum of the peaks of running prod pods on each node; young ones count as cold pods elsewhere."""
    assert total.resource is not None
    members = by_node(usage.refs, history.inventory, total.refs)
    prod = {(p.namespace, p.name) for p in history.inventory.pods if p.running and p.effective_priority in PROD}
    rows = np.array([(ref.namespace, ref.pod) in prod for ref in usage.refs], dtype=bool) & (members.rows >= 0)
    peaks = pod_peaks(usage.rows(rows), np.zeros(int(rows.sum())), usage.grid.slots_per_day, total.resource)
    sums = np.bincount(members.rows[rows], weights=peaks.astype(np.float64), minlength=len(total.refs))
    return sums.astype(np.float64)
