"""The synthetic cluster as it is created on a real one: its nodes, the demo's namespaces, whole bound CPUs. Pure.

`objects` makes Kubernetes objects of the inventory, `demo.refill` stores the history of the same workloads, and
`usage_now` computes the present usage of their pods: the three use the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
from msgspec import structs

from cotenant.base.cluster import Node, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, fleet, generate

PREFIX: Final = "cotenant-demo-"
CPU_REQUESTED, MEMORY_REQUESTED = 0.70, 0.65
"""Shares of allocatable: less than in a demo without a cluster, so that a real scheduler places every pod."""
RefT = TypeVar("RefT", WorkloadRef, PodContainerRef)
BINDING: Final = frozenset({QosClass.LSE, QosClass.LSR})


def fake_nodes(spec: SyntheticSpec) -> tuple[Node, ...]:
    """Return the spec's own nodes under the names that they get on a cluster."""
    return tuple(replace(node, name=f"{PREFIX}{node.name}") for node in fleet.nodes(spec))


def resident(spec: SyntheticSpec, nodes: Sequence[Node]) -> SyntheticCluster:
    """Return the spec's synthetic cluster on these nodes until the end of its last hour, with the generator's names."""
    end = -(-spec.end_seconds // HOUR_SECONDS) * HOUR_SECONDS
    fitted = replace(
        spec, nodes=len(nodes), end_seconds=end, cpu_requested=CPU_REQUESTED, memory_requested=MEMORY_REQUESTED
    )
    cluster = generate(fitted, nodes)
    workloads = tuple(_with_integer_cpus(workload) for workload in cluster.inventory.workloads)
    return replace(cluster, inventory=replace(cluster.inventory, workloads=workloads))


def present_cluster(synthetic: SyntheticCluster, cluster: str, now_seconds: int) -> SyntheticCluster:
    """Return the cluster up to now, under its objects' names, without autoscalers, bounds and quotas."""
    usage = {}
    for signal, of in synthetic.usage.items():
        # Whole slots before now; of an hourly signal the present hour too, whose amounts hold already.
        grid, refs = of.grid, of.refs if signal.spec.per_node else tuple(map(_prefixed, of.refs))
        reach = now_seconds if grid.step_seconds < HOUR_SECONDS else now_seconds + HOUR_SECONDS - 1
        past = TimeGrid(grid.start_seconds, grid.step_seconds, min(max(grid.index_of(reach), 0), grid.size))
        usage[signal] = replace(of, refs=refs, grid=past, values=np.ascontiguousarray(of.values[:, : past.size]))
    inventory, now = synthetic.inventory, min(now_seconds, synthetic.inventory.time_seconds)
    pods = []
    for pod in inventory.pods:
        end_seconds = pod.end_seconds if pod.end_seconds is not None and pod.end_seconds <= now else None
        namespace, workload = f"{PREFIX}{pod.namespace}", _prefixed(pod.workload)
        if pod.start_seconds < now:
            pods.append(replace(pod, end_seconds=end_seconds, namespace=namespace, workload=workload))
    present = replace(
        inventory,
        cluster=cluster,
        time_seconds=now,
        workloads=tuple(replace(w, ref=_prefixed(w.ref), autoscaler=None) for w in inventory.workloads),
        pods=tuple(pods),
        events=tuple(replace(e, subject=_prefixed(e.subject)) for e in inventory.events if e.time_seconds < now),
        limit_ranges=(),
        quotas=(),
    )
    return replace(synthetic, inventory=present, usage=usage)


def _prefixed(ref: RefT) -> RefT:
    return structs.replace(ref, namespace=f"{PREFIX}{ref.namespace}")


def _with_integer_cpus(workload: Workload) -> Workload:
    """A pod whose class binds CPUs asks for a whole number of them: the first container takes what is missing."""
    requested = sum(c.requests.get(Resource.CPU, 0) for c in workload.staying)
    missing = max(-requested % MILLICORES_PER_CORE, 0 if requested else MILLICORES_PER_CORE)
    if workload.qos not in BINDING or not missing:
        return workload
    first, *others = workload.containers
    requests, limits = (
        {**amounts, Resource.CPU: amounts.get(Resource.CPU, 0) + missing} for amounts in (first.requests, first.limits)
    )
    first = replace(first, requests=requests, limits=limits if Resource.CPU in first.limits else first.limits)
    return replace(workload, containers=(first, *others))
