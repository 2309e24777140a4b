"""What the API server shows laid over what history knows. Pure; for whoever has both an Inventory and a LiveCluster.

History (Prometheus) knows the pods that are gone; the API server knows labels, exact requests and autoscalers of those
that run. Where both speak of the same object the API server is believed, but a pod keeps the start that history saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cotenant.edges.kube.live import LiveCluster
from cotenant.model.cluster import Inventory, Node, Pod, Workload
from cotenant.model.identity import WorkloadRef

PodsOf = Mapping[WorkloadRef, Sequence[Pod]]


def overlay(inventory: Inventory, live: LiveCluster) -> Inventory:
    """The inventory with everything that runs as the API server tells it; what it could not read stays as it was."""
    running: dict[WorkloadRef, list[Pod]] = defaultdict(list)
    for pod in live.pods:
        running[pod.workload].append(pod)
    return replace(
        inventory,
        nodes=_nodes(inventory.nodes, live.nodes),
        pods=_pods(inventory.pods, live.pods),
        workloads=_workloads(inventory.workloads, running, live),
        notes=tuple(dict.fromkeys([*inventory.notes, *live.notes])),
    )


def _nodes(known: Sequence[Node], live: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(({n.name: n for n in known} | {n.name: n for n in live}).values())


def _pods(known: Sequence[Pod], live: Sequence[Pod]) -> tuple[Pod, ...]:
    before = {(p.namespace, p.name): p for p in known}
    now = {(p.namespace, p.name): p for p in live}
    merged = {
        key: replace(p, start_seconds=before[key].start_seconds) if key in before else p for key, p in now.items()
    }
    return tuple((before | merged).values())


def _workloads(known: Sequence[Workload], running: PodsOf, live: LiveCluster) -> tuple[Workload, ...]:
    """Known workloads in their order, brought up to date, then those that history has not seen yet."""
    before = {w.ref: w for w in known}
    refs = [*before, *(ref for ref in running if ref not in before)]
    return tuple(_workload(before.get(ref) or Workload(ref, 0, ()), running.get(ref, ()), live) for ref in refs)


def _workload(known: Workload, pods: Sequence[Pod], live: LiveCluster) -> Workload:
    """The youngest pod speaks for the template: during a rollout that is the new one."""
    autoscaler = live.autoscalers.get(known.ref, known.autoscaler)
    if not pods:
        return replace(known, autoscaler=autoscaler)
    youngest = max(pods, key=lambda p: (p.start_seconds, p.name))
    return replace(
        known,
        replicas=len(pods),
        containers=live.containers.get((youngest.namespace, youngest.name), known.containers),
        qos=youngest.qos,
        priority=youngest.priority,
        autoscaler=autoscaler,
    )
