"""Which samples can be usage at all: none is far beyond what a node has, and no process has 0 bytes of memory. Pure.

A garbage sample, a slip of units or a counter that fell back for a moment shows as usage that no machine can give.
Where a container's value rests on it nothing is proposed (reason `implausible`); sums, forecasts and pages leave it
out, as if it were not there. So they do with zeros of memory, which stand where a runtime or a kernel does not measure
it (reason `unmeasured`), and with a node's zeros, of CPU too: a node that reports is not idle to the last nanosecond.
A container's 0 millicores may be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Node
from cotenant.base.identity import NodeRef
from cotenant.base.resource import BEYOND_CAPACITY, DeviceResource, MeasuredResource, Resource
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import FloatMatrix, Signal, Statistic, Usage

UsageT = TypeVar("UsageT", bound=Usage[Any] | SparseUsage[Any])
_LARGEST_QUANTITY: Final = 2.0**63
"""What no Kubernetes quantity reaches; the bound where no node is known."""
_MOST_PERCENT_OF_DEVICES: Final = 12_800.0
"""128 GPUs, more than any node has. DCGM writes 2147483632 or 140737488355328 where it has no value."""


_OF_USAGE: Final = frozenset(
    {
        *(Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX),
        *(Signal.GPU_CORE_MEAN, Signal.GPU_MEMORY_MAX),
    }
)


def largest_capacity(nodes: Iterable[Node], resource: Resource) -> int:
    """Capacity of the largest node, in the resource's unit; 0 = unknown."""
    return max((node.capacity.get(resource, 0) for node in nodes), default=0)


def plausible_of_pods(usage: UsageT, nodes: Iterable[Node]) -> UsageT:
    """The series of containers without the samples beyond any node and zeros of memory, which become gaps."""
    of_devices, positive = isinstance(usage.resource, DeviceResource), usage.resource is Resource.MEMORY
    bound = _MOST_PERCENT_OF_DEVICES if of_devices else _bound(_largest(nodes, usage.resource))
    if isinstance(usage, SparseUsage):
        return replace(usage, cells=_possible(usage.cells, bound, positive))
    return replace(usage, values=_possible(usage.values, bound, positive))


def plausible_signals(usage: Mapping[Signal, UsageT], nodes: Iterable[Node]) -> dict[Signal, UsageT]:
    """All signals of containers: usage without the samples that cannot be, requests and limits without what none is.

    A request may be beyond any node, and is not below zero or beyond the largest quantity. Counts stay.
    """
    listed = tuple(nodes)

    def plausible(signal: Signal, series: UsageT) -> UsageT:
        if signal in _OF_USAGE:
            return plausible_of_pods(series, listed)
        return _quantities(series) if signal.spec.statistic is Statistic.LAST else series

    return {signal: plausible(signal, series) for signal, series in usage.items()}


def _quantities(usage: UsageT) -> UsageT:
    """The series with gaps for what is no Kubernetes quantity."""
    if isinstance(usage, SparseUsage):
        return replace(usage, cells=_quantity_or_gap(usage.cells))
    return replace(usage, values=_quantity_or_gap(usage.values))


def _quantity_or_gap(values: FloatMatrix) -> FloatMatrix:
    wrong: npt.NDArray[np.bool_] = (values > _LARGEST_QUANTITY) | (values < 0)
    return np.where(wrong, np.float32(np.nan), values) if wrong.any() else values


def plausible_of_nodes(usage: Usage[NodeRef], nodes: Iterable[Node]) -> Usage[NodeRef]:
    """The series of nodes without zeros and the samples beyond the node itself, which become gaps."""
    known = {node.name: _largest([node], usage.resource) for node in nodes}
    bounds = np.array([_bound(known.get(ref.name, 0)) for ref in usage.refs], dtype=np.float64).reshape(-1, 1)
    return replace(usage, values=_possible(usage.values, bounds, positive=True))


def _possible(values: FloatMatrix, bound: npt.NDArray[np.float64] | float, positive: bool) -> FloatMatrix:
    """The same array where all values are possible: series of all pods are not copied for nothing."""
    wrong: npt.NDArray[np.bool_] = (values > bound) | (values <= 0 if positive else values < 0)
    return np.where(wrong, np.float32(np.nan), values) if wrong.any() else values


def _largest(nodes: Iterable[Node], resource: MeasuredResource | None) -> int:
    return largest_capacity(nodes, resource) if isinstance(resource, Resource) else 0


def _bound(capacity: int) -> float:
    return BEYOND_CAPACITY * capacity if capacity else _LARGEST_QUANTITY
