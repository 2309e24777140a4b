"""The synthetic cluster as it stands on a real one: its nodes, the demo's namespaces, whole bound CPUs. Pure.

`objects` makes Kubernetes objects of the inventory, `demo.refill` stores the history of the very same workloads, and
`present` says what their pods use now: the three agree in every name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from msgspec import structs

from cotenant.base.cluster import Container, Event, Inventory, Node, Pod, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, fleet, generate

PREFIX: Final = "cotenant-demo-"
CPU_REQUESTED, MEMORY_REQUESTED = 0.70, 0.65
"""Shares of allocatable: less than in a demo without a cluster, so that a real scheduler places every pod."""
BINDING: Final = frozenset({QosClass.LSE, QosClass.LSR})


def fake_nodes(spec: SyntheticSpec) -> tuple[Node, ...]:
    """The spec's own nodes under the names that they get on a cluster."""
    return tuple(replace(node, name=f"{PREFIX}{node.name}") for node in fleet.nodes(spec))


def resident(spec: SyntheticSpec, nodes: Sequence[Node]) -> SyntheticCluster:
    """A cluster of the spec on these nodes, to the end of the spec's last hour, with the generator's names."""
    end = -(-spec.end_seconds // HOUR_SECONDS) * HOUR_SECONDS
    fitted = replace(
        spec, nodes=len(nodes), end_seconds=end, cpu_requested=CPU_REQUESTED, memory_requested=MEMORY_REQUESTED
    )
    cluster = generate(fitted, nodes)
    workloads = tuple(_with_integer_cpus(workload) for workload in cluster.inventory.workloads)
    return replace(cluster, inventory=replace(cluster.inventory, workloads=workloads))


def present_cluster(synthetic: SyntheticCluster, cluster: str, now_seconds: int) -> SyntheticCluster:
    """Up to now, with the names that its objects have there; autoscalers, bounds and quotas are not created."""
    usage = {
        signal: _truncate_usage(_name_series(signal, series), now_seconds) for signal, series in synthetic.usage.items()
    }
    return replace(synthetic, inventory=_inventory(synthetic.inventory, cluster, now_seconds), usage=usage)


def _truncate_usage(usage: Usage[Any], now_seconds: int) -> Usage[Any]:
    """Whole slots before now; of an hourly signal the present hour too, whose amounts hold already."""
    grid = usage.grid
    reach = now_seconds if grid.step_seconds < HOUR_SECONDS else now_seconds + HOUR_SECONDS - 1
    size = min(max(grid.index_of(reach), 0), grid.size)
    past = TimeGrid(grid.start_seconds, grid.step_seconds, size)
    return replace(usage, grid=past, values=np.ascontiguousarray(usage.values[:, :size]))


def _inventory(inventory: Inventory, cluster: str, now_seconds: int) -> Inventory:
    now_seconds = min(now_seconds, inventory.time_seconds)
    return replace(
        inventory,
        cluster=cluster,
        time_seconds=now_seconds,
        workloads=tuple(replace(w, ref=_workload(w.ref), autoscaler=None) for w in inventory.workloads),
        pods=tuple(_pod(pod, now_seconds) for pod in inventory.pods if pod.start_seconds < now_seconds),
        events=tuple(_event(event) for event in inventory.events if event.time_seconds < now_seconds),
        limit_ranges=(),
        quotas=(),
    )


def _name_series(signal: Signal, usage: Usage[Any]) -> Usage[Any]:
    return usage if signal.spec.per_node else replace(usage, refs=tuple(_series(ref) for ref in usage.refs))


def _workload(ref: WorkloadRef) -> WorkloadRef:
    return structs.replace(ref, namespace=f"{PREFIX}{ref.namespace}")


def _series(ref: PodContainerRef) -> PodContainerRef:
    return structs.replace(ref, namespace=f"{PREFIX}{ref.namespace}")


def _pod(pod: Pod, now_seconds: int) -> Pod:
    ended = pod.end_seconds is not None and pod.end_seconds <= now_seconds
    end_seconds = pod.end_seconds if ended else None
    return replace(pod, end_seconds=end_seconds, namespace=f"{PREFIX}{pod.namespace}", workload=_workload(pod.workload))


def _event(event: Event) -> Event:
    return replace(event, subject=_series(event.subject))


def _with_integer_cpus(workload: Workload) -> Workload:
    """A pod whose class binds CPUs asks for a whole number of them: the first container takes what is missing."""
    requested = sum(c.requests.get(Resource.CPU, 0) for c in workload.staying)
    missing = max(-requested % MILLICORES_PER_CORE, 0 if requested else MILLICORES_PER_CORE)
    if workload.qos not in BINDING or not missing:
        return workload
    first, *others = workload.containers
    return replace(workload, containers=(_with_cpu(first, missing), *others))


def _with_cpu(container: Container, more: int) -> Container:
    requests = _more(container.requests, more)
    limits = _more(container.limits, more) if Resource.CPU in container.limits else container.limits
    return replace(container, requests=requests, limits=limits)


def _more(amounts: Mapping[Resource, int], more: int) -> dict[Resource, int]:
    return {**amounts, Resource.CPU: amounts.get(Resource.CPU, 0) + more}
