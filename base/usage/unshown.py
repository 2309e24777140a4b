"""Usage of nodes that the usage of their containers does not explain, because a kubelet reports incompletely. Pure.

A kubelet may repeat one value of each container until it restarts, or omit some containers, while the node's own usage
continues. An allowance for the node's system is subtracted: a constant part, and one that grows with the node. A pod on
an unknown node may be on any node: its usage counts on each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid, Usage

Floats = npt.NDArray[np.float64]

ALWAYS: Final[Mapping[Resource, int]] = {Resource.CPU: 250, Resource.MEMORY: GIB}
GROWING: Final[Mapping[Resource, float]] = {Resource.CPU: 0.02, Resource.MEMORY: 0.1}
"""A node's system may use ALWAYS, in the resource's unit, plus this share of the node's capacity."""
LARGE_SHARE: Final = 0.25
LARGE: Final[Mapping[Resource, float]] = {Resource.CPU: 2.0 * MILLICORES_PER_CORE, Resource.MEMORY: float("inf")}
"""Unexplained usage above LARGE_SHARE of the capacity, or above LARGE, is too much for a system if pods show less."""
LEAST_HOURS: Final = 2
LEAST_SHARE: Final = 0.1
"""Least hours, and least share of the examined hours, that are no accident: a backup or an update ends sooner."""


@dataclass(frozen=True, slots=True, eq=False)
class UnshownUse:
    """The hourly usage of each node beyond that of its pods and its system, in the resource's unit.

    `amounts` has an array of shape (hours.size,) for each node with such usage in any hour. `parted` are the nodes
    whose usage beyond that of their pods was `often` large, and above that of the pods.
    """

    hours: TimeGrid
    amounts: Mapping[Resource, Mapping[str, Floats]] = field(default_factory=dict)
    parted: Mapping[Resource, frozenset[str]] = field(default_factory=dict)

    def mean(self, resource: Resource, node: str) -> float:
        """Return a node's mean usage in `amounts`, over the hours with any, in the resource's unit; else 0."""
        amounts = self.amounts.get(resource, {}).get(node, np.zeros(1))
        return float(amounts[amounts > 0].mean()) if (amounts > 0).any() else 0.0


def often(hours: int, looked_at: int) -> bool:
    """Return whether a condition held in too many of the hours `looked_at` to be an accident."""
    return hours >= LEAST_HOURS and hours > LEAST_SHARE * looked_at


def shown_by_node(parts: Iterable[SparseUsage[PodContainerRef]], inventory: Inventory, nodes: Usage[NodeRef]) -> Floats:
    """Return the summed usage of each node's pods, with the rows and slots of `nodes`.

    `parts` have all pods' usage, day by day. A pod without a node in `inventory` counts on every node of `nodes`.
    """
    place = {ref.name: row for row, ref in enumerate(nodes.refs)}
    of_pod = {(pod.namespace, pod.name): place.get(pod.node, -2 if pod.node else -1) for pod in inventory.pods}
    # the last two rows: of nodes without usage, and of no known node
    sums = np.zeros((len(nodes.refs) + 2, nodes.grid.size))
    size = nodes.grid.size
    for part in parts:
        rows = np.array([of_pod.get((ref.namespace, ref.pod), -1) for ref in part.refs], dtype=np.int64)
        offset = (part.grid.start_seconds - nodes.grid.start_seconds) // nodes.grid.step_seconds
        first = (rows % len(sums)) * size + part.first - part.bounds[:-1] + offset
        places = np.arange(len(part.cells)) + np.repeat(first, np.diff(part.bounds))
        values = np.where(np.isfinite(part.cells), part.cells, np.float32(0))
        sums += np.bincount(places, values, sums.size).reshape(sums.shape)
    return np.asarray(sums[:-2] + sums[-1])


def unshown_use(
    nodes: Mapping[Resource, Usage[NodeRef]], shown: Mapping[Resource, Floats], inventory: Inventory, hours: TimeGrid
) -> UnshownUse:
    """Return each node's hourly usage beyond that of its pods (`shown`) and system; `hours` cover the grid of usage."""
    amounts: dict[Resource, dict[str, Floats]] = {}
    parted: dict[Resource, frozenset[str]] = {}
    capacity = {node.name: node.capacity for node in inventory.nodes}
    for resource, usage in nodes.items():
        amounts[resource], node_names = {}, set()
        hour_of_slot = (usage.grid.times() - hours.start_seconds) // HOUR_SECONDS
        for ref, own, pods in zip(usage.refs, usage.values, shown[resource], strict=True):
            is_measured, of_node = np.isfinite(own), capacity.get(ref.name, {}).get(resource, 0)
            if not of_node or not is_measured.any():
                continue
            count = np.bincount(hour_of_slot[is_measured], minlength=hours.size)
            of_pods, of_all = (
                np.bincount(hour_of_slot[is_measured], values[is_measured], hours.size) / np.maximum(count, 1)
                for values in (pods, own.astype(np.float64))
            )
            more = of_all - of_pods
            beyond = np.maximum(more - ALWAYS[resource] - GROWING[resource] * of_node, 0.0)
            large = (more > of_pods) & (more > min(LARGE_SHARE * of_node, LARGE[resource]) + ALWAYS[resource])
            if beyond.any():
                amounts[resource][ref.name] = beyond
            if often(int((large & (beyond > 0)).sum()), int((count > 0).sum())):
                node_names.add(ref.name)
        parted[resource] = frozenset(node_names)
    return UnshownUse(hours, amounts, parted)


def unproven_hours(
    values: npt.NDArray[np.floating[Any]], hour_of_slot: npt.NDArray[np.int64], beyond: Floats, least: float
) -> tuple[int, int]:
    """Return the number of suspicious hours of a series, and of its hours with samples.

    In a suspicious hour all samples are 0, but the node's unexplained usage, `beyond`, is > 0 and at least `least`.
    """
    is_measured = np.isfinite(values)
    counts = np.bincount(hour_of_slot[is_measured], minlength=len(beyond))
    some = np.bincount(hour_of_slot[is_measured & (values != 0)], minlength=len(beyond))
    return int(((counts > 0) & (some == 0) & (beyond > 0) & (beyond >= least)).sum()), int((counts > 0).sum())
