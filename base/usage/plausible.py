"""Plausible samples of usage: none is far above a node's capacity, and no process has 0 bytes of memory. Pure.

An invalid sample, a mistaken unit or a counter that decreased for a moment appears as usage that no machine can have.
If a container's value depends on such a sample, nothing is proposed (reason `implausible`); sums, forecasts and pages
leave the sample out, as if it were missing. They also leave out zeros of memory, which appear if a runtime or kernel
does not measure it (reason `unmeasured`), and a node's zeros, even of CPU: a reporting node is never completely idle. A
container's 0 millicores may be true.

The bound is the largest node of the window, including nodes that have left. If a pod's node is unknown, because it left
before the first scan, its usage is bounded by the largest machine that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import GoneNode, Inventory, Node, Pod
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.resource import BEYOND_CAPACITY, LARGEST_MACHINE, MeasuredResource, Resource
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import FloatMatrix, Signal, Statistic, Usage

UsageT = TypeVar("UsageT", bound=Usage[Any] | SparseUsage[Any])
_LARGEST_QUANTITY: Final = 2.0**63  # what no Kubernetes quantity reaches
_MOST_PERCENT_OF_DEVICES: Final = 12_800.0
"""Percent of 128 GPUs, more than any node has. DCGM writes 2147483632 or 140737488355328 if it has no value."""


_OF_USAGE: Final = frozenset(
    {
        *(Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX),
        *(Signal.GPU_CORE_MEAN, Signal.GPU_MEMORY_MAX),
    }
)


def largest_capacity(nodes: Iterable[Node | GoneNode], resource: Resource) -> int:
    """Return the capacity of the largest node, in the resource's unit; 0 if unknown."""
    return max((node.capacity.get(resource, 0) for node in nodes), default=0)


def largest_use(inventory: Inventory, resource: Resource) -> float:
    """Return the most of a resource that one pod can have used on any node of the inventory, in the resource's unit."""
    return _bound(largest_capacity(_nodes(inventory), resource), resource)


def beyond_any_node(
    highest: npt.NDArray[np.float64], workloads: Sequence[WorkloadRef], inventory: Inventory, resource: Resource
) -> npt.NDArray[np.bool_]:
    """Return (n,) booleans: whether a workload's `highest` use, in the resource's unit, is more than any node has."""
    beyond = highest > largest_use(inventory, resource)
    suspects = {workloads[row] for row in np.flatnonzero(beyond).tolist()}
    if suspects:
        names = _node_names(inventory)
        unknown = {p.workload for p in inventory.pods if p.workload in suspects and not _is_placed(p, names)}
        beyond &= (highest > LARGEST_MACHINE[resource]) | np.array([ref not in unknown for ref in workloads])
    return beyond


def plausible_of_pods(usage: UsageT, inventory: Inventory) -> UsageT:
    """Return the containers' series with gaps in place of samples that exceed every node, are negative, or 0 bytes."""
    positive = usage.resource is Resource.MEMORY
    values = _values_of(usage)
    if isinstance(usage.resource, Resource):
        wrong = values > largest_use(inventory, usage.resource)
        if wrong.any():
            wrong &= (values > LARGEST_MACHINE[usage.resource]) | _on_known_nodes(usage, wrong, inventory)
    else:
        wrong = values > (_LARGEST_QUANTITY if usage.resource is None else _MOST_PERCENT_OF_DEVICES)
    return _with_values(usage, _without(values, wrong | _not_above_zero(values, positive)))


def _values_of(usage: Usage[Any] | SparseUsage[Any]) -> npt.NDArray[np.float32]:
    return usage.cells if isinstance(usage, SparseUsage) else usage.values


def _with_values(usage: UsageT, values: npt.NDArray[np.float32]) -> UsageT:
    return replace(usage, cells=values) if isinstance(usage, SparseUsage) else replace(usage, values=values)


def _on_known_nodes(
    usage: Usage[Any] | SparseUsage[Any], wrong: npt.NDArray[np.bool_], inventory: Inventory
) -> npt.NDArray[np.bool_]:
    """Return whether each sample's pod ran on a node of the inventory, in the samples' shape or (n, 1).

    `wrong` flags samples; only the series with flagged samples are looked up, the result of others is False.
    """
    if isinstance(usage, SparseUsage):
        rows = np.searchsorted(usage.bounds, np.flatnonzero(wrong), side="right") - 1
    else:
        rows = np.flatnonzero(wrong.any(axis=1))
    suspects = {(usage.refs[row].namespace, usage.refs[row].pod): None for row in rows.tolist()}
    names = _node_names(inventory)
    known_pods = {
        (pod.namespace, pod.name)
        for pod in inventory.pods
        if (pod.namespace, pod.name) in suspects and _is_placed(pod, names)
    }
    of_row = np.array([(ref.namespace, ref.pod) in known_pods for ref in usage.refs], dtype=bool)
    return np.repeat(of_row, np.diff(usage.bounds)) if isinstance(usage, SparseUsage) else of_row[:, None]


def _node_names(inventory: Inventory) -> frozenset[str]:
    return frozenset(node.name for node in _nodes(inventory))


def _nodes(inventory: Inventory) -> tuple[Node | GoneNode, ...]:
    return (*inventory.nodes, *inventory.gone_nodes)


def _is_placed(pod: Pod, node_names: Set[str]) -> bool:
    """Return whether the pod's node is known; a running pod's node always counts as known."""
    return pod.node in node_names or (pod.running and not pod.node)


def plausible_signals(usage: Mapping[Signal, UsageT], inventory: Inventory) -> dict[Signal, UsageT]:
    """Return the containers' signals without implausible usage, and without impossible requests and limits.

    A request may exceed any node, but is neither negative nor above the largest quantity. Counts are unchanged.
    """

    def plausible(signal: Signal, series: UsageT) -> UsageT:
        if signal in _OF_USAGE:
            return plausible_of_pods(series, inventory)
        if signal.spec.statistic is Statistic.LAST:
            # The series with gaps for what is no Kubernetes quantity.
            values = _values_of(series)
            return _with_values(series, _without(values, (values > _LARGEST_QUANTITY) | (values < 0)))
        return series

    return {signal: plausible(signal, series) for signal, series in usage.items()}


def plausible_of_nodes(usage: Usage[NodeRef], inventory: Inventory) -> Usage[NodeRef]:
    """Return the nodes' series with gaps in place of samples that are 0, negative or clearly above the capacity."""
    capacities: dict[str, int] = {}
    for node in _nodes(inventory):
        if isinstance(usage.resource, Resource):
            capacities[node.name] = max(capacities.get(node.name, 0), node.capacity.get(usage.resource, 0))
    bounds = np.array([_bound(capacities.get(ref.name, 0), usage.resource) for ref in usage.refs], dtype=np.float64)
    wrong = (usage.values > bounds.reshape(-1, 1)) | _not_above_zero(usage.values, positive=True)
    return replace(usage, values=_without(usage.values, wrong))


def _not_above_zero(values: FloatMatrix, positive: bool) -> npt.NDArray[np.bool_]:
    """Return flags of values below zero, and also of zeros if values must be positive."""
    below: npt.NDArray[np.bool_] = values <= 0 if positive else values < 0
    return below


def _without(values: FloatMatrix, wrong: npt.NDArray[np.bool_]) -> FloatMatrix:
    """Return the values with gaps where flagged; the same array if nothing is, to avoid a copy."""
    return np.where(wrong, np.float32(np.nan), values) if wrong.any() else values


def _bound(capacity: int, resource: MeasuredResource | None) -> float:
    """Return the most that can have been used of a capacity (0 = unknown), in the resource's unit."""
    if not isinstance(resource, Resource):
        return _LARGEST_QUANTITY
    return BEYOND_CAPACITY * capacity if capacity else float(LARGEST_MACHINE[resource])
