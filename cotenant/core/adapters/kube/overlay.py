"""Merges a LiveCluster into an Inventory from history. Pure.

History (Prometheus) knows the pods that are gone; the API server knows labels, annotations, exact requests, roles and
bounds of what is there. Where both speak of the same object the API server is believed, but a pod keeps the start that
history saw. What the API server could list and does not show is gone: a node, an autoscaler, a bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cotenant.core.adapters.kube.live import LiveCluster, Marks
from cotenant.core.model.cluster import Container, Inventory, Pod, Workload
from cotenant.core.model.identity import WorkloadRef

PodsOf = Mapping[WorkloadRef, Sequence[Pod]]


def overlay(inventory: Inventory, live: LiveCluster) -> Inventory:
    """The inventory with everything that runs as the API server tells it; what it could not read stays as it was."""
    running: dict[WorkloadRef, list[Pod]] = defaultdict(list)
    for pod in live.pods:
        running[pod.workload].append(pod)
    pods = _pods(inventory.pods, live.pods)
    owners = {pod.workload for pod in pods}
    # A pod that only its usage showed stood for itself; now its owner is known.
    workloads = [workload for workload in inventory.workloads if workload.described or workload.ref in owners]
    return replace(
        inventory,
        nodes=inventory.nodes if live.nodes is None else live.nodes,
        pods=pods,
        workloads=_workloads(workloads, running, live),
        limit_ranges=inventory.limit_ranges if live.limit_ranges is None else live.limit_ranges,
        quotas=inventory.quotas if live.quotas is None else live.quotas,
        server_version=live.server_version or inventory.server_version,
        notes=tuple(dict.fromkeys([*inventory.notes, *live.notes])),
    )


def _pods(recorded: Sequence[Pod], live: Sequence[Pod]) -> tuple[Pod, ...]:
    before = {(p.namespace, p.name): p for p in recorded}
    now = {(p.namespace, p.name): p for p in live}
    merged = {
        key: replace(p, start_seconds=before[key].start_seconds) if key in before else p for key, p in now.items()
    }
    return tuple((before | merged).values())


def _workloads(recorded: Sequence[Workload], running: PodsOf, live: LiveCluster) -> tuple[Workload, ...]:
    """Known workloads in their order, brought up to date, then those that history has not seen yet."""
    before = {w.ref: w for w in recorded}
    refs = [*before, *(ref for ref in running if ref not in before)]
    return tuple(_workload(before.get(ref) or Workload(ref, 0, ()), running.get(ref, ()), live) for ref in refs)


def _workload(recorded: Workload, pods: Sequence[Pod], live: LiveCluster) -> Workload:
    """The youngest pod speaks for the template: during a rollout that is the new one."""
    marks = live.marks.get(recorded.ref, Marks(recorded.labels, recorded.annotations))
    current = replace(
        recorded,
        autoscaler=recorded.autoscaler if live.autoscalers is None else live.autoscalers.get(recorded.ref),
        labels=marks.labels,
        annotations=marks.annotations,
    )
    if not pods:
        return current
    youngest = max(pods, key=lambda p: (p.start_seconds, p.name))
    return replace(
        current,
        replicas=len(pods),
        containers=_with_heaps(live.containers.get((youngest.namespace, youngest.name)), recorded.containers),
        qos=youngest.qos,
        priority=youngest.priority,
    )


def _with_heaps(live: tuple[Container, ...] | None, recorded: Sequence[Container]) -> tuple[Container, ...]:
    """Containers as the API server has them, with the heaps that metrics alone tell of."""
    heaps = {one.name: one.heap for one in recorded}
    return tuple(recorded) if live is None else tuple(replace(one, heap=heaps.get(one.name)) for one in live)
