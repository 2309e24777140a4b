"""Merge a LiveCluster into an Inventory from history. Pure.

History (Prometheus) knows the pods that are gone; the API server knows labels, annotations, exact requests, roles and
bounds of existing objects. For an object that is in both, the API server's facts count, but a pod keeps the start that
history has. An object of a listed kind that the API server does not list is gone: a node, an autoscaler, a bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cotenant.base.cluster import Inventory, OwnAmounts, Pod, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.inventory.partial_inventory import with_parts_marked
from cotenant.base.inventory.pod_templates import template
from cotenant.base.kube.live import LiveCluster, Marks
from cotenant.base.reasons import Reason

PodsOf = Mapping[WorkloadRef, Sequence[Pod]]


def overlay(inventory: Inventory, live: LiveCluster) -> Inventory:
    """Return the inventory with the current objects of the API server; unreadable ones keep their previous state."""
    now = _add_recorded_owners(live.pods, inventory.pods)
    running: dict[WorkloadRef, list[Pod]] = defaultdict(list)
    for pod in (pod for pod in now if not pod.placeholder):  # these are no workload's, but for the plan that wants them
        running[pod.workload].append(pod)
    pods = _pods(inventory, now, live.unread)
    owners = {pod.workload for pod in pods}
    named_pods = {(pod.namespace, pod.name) for pod in pods} | live.unread
    # A pod that only its usage showed stood for itself; now its owner is known.
    workloads = {w.ref: w for w in inventory.workloads if w.described or w.ref in owners}
    # Those of which every known pod has ended run no more; then those that history has not seen yet.
    ended = owners - {pod.workload for pod in pods if pod.running}
    workloads |= {ref: replace(w, replicas=0) for ref, w in workloads.items() if ref in ended}
    workloads |= {ref: Workload(ref, 0, ()) for ref in running if ref not in workloads}
    unlisted = (ref for ref in inventory.controllers if ref.kind not in live.listed_kinds)
    updated = replace(
        inventory,
        nodes=inventory.nodes if live.nodes is None else live.nodes,
        pods=pods,
        workloads=tuple(_workload(w, running.get(ref, ()), live) for ref, w in workloads.items()),
        limit_ranges=inventory.limit_ranges if live.limit_ranges is None else live.limit_ranges,
        quotas=inventory.quotas if live.quotas is None else live.quotas,
        controllers=tuple(sorted({*live.controllers, *unlisted})),
        listed_kinds=tuple(sorted({*inventory.listed_kinds, *live.listed_kinds})),
        vpa_histories=live.vpa_histories,
        server_version=live.server_version or inventory.server_version,
        notes=tuple(dict.fromkeys([*inventory.notes, *live.notes])),
        unnamed=tuple(pod for pod in inventory.unnamed if (pod.namespace, pod.name) not in named_pods),
    )
    return with_parts_marked(updated)


def _add_recorded_owners(live: Sequence[Pod], recorded: Sequence[Pod]) -> tuple[Pod, ...]:
    before = {(p.namespace, p.name): p.workload for p in recorded if p.owner_known}
    return tuple(
        p if p.owner_known or (p.namespace, p.name) not in before
        else replace(p, workload=before[p.namespace, p.name], owner_known=True)
        for p in live
    )  # fmt: skip


def _pods(inventory: Inventory, live: Sequence[Pod], unread: Collection[tuple[str, str]]) -> tuple[Pod, ...]:
    """Return all pods; a running pod of history that the API server does not list has ended.

    If the server lists no pod at all, nothing is concluded: it would list at least cotenant's own.
    """
    before = {(p.namespace, p.name): p for p in inventory.pods}
    now = {(p.namespace, p.name): p for p in live}
    merged = {
        key: replace(p, start_seconds=before[key].start_seconds) if key in before else p for key, p in now.items()
    }
    ended = {
        key: replace(p, end_seconds=inventory.time_seconds)
        for key, p in before.items()
        if now and p.running and key not in now and key not in unread
    }
    return tuple((before | ended | merged).values())


def _workload(recorded: Workload, pods: Sequence[Pod], live: LiveCluster) -> Workload:
    """Return the workload updated by its live pods; during a rollout the youngest pod has the new template."""
    marks = live.marks.get(recorded.ref, Marks(recorded.labels, recorded.annotations, recorded.operator))
    answered = {
        *(() if live.autoscalers is None else (Reason.AUTOSCALER_UNKNOWN,)),
        *((Reason.ANNOTATIONS_UNKNOWN,) if recorded.ref in live.marks else ()),
        *(() if live.limit_ranges is None else (Reason.LIMIT_RANGE_UNKNOWN,)),
    }
    current = replace(
        recorded,
        autoscaler=recorded.autoscaler if live.autoscalers is None else live.autoscalers.get(recorded.ref),
        labels=marks.labels,
        annotations=marks.annotations,
        operator=marks.operator,
        vertical=recorded.vertical if live.verticals is None else live.verticals.get(recorded.ref, ""),
        replicas=sum(pod.serving for pod in pods) if pods else recorded.replicas,
        gaps=tuple(gap for gap in recorded.gaps if gap not in answered),
    )
    if not pods:
        return current
    youngest, *older = sorted(pods, key=lambda p: (p.start_seconds, p.name), reverse=True)
    containers = template(pods, live.containers)
    sampled_pods = [youngest] if all(c.pods is None for c in containers) else [youngest, *older]
    heaps = {container.name: container.heap for container in recorded.containers}  # metrics alone tell of them
    own = (live.own_amounts.get((pod.namespace, pod.name)) for pod in sampled_pods)
    return replace(
        current,
        containers=tuple(replace(c, heap=heaps.get(c.name)) for c in containers) or recorded.containers,
        own=next((amounts for amounts in own if amounts), OwnAmounts()),
        qos=youngest.qos,
        priority=youngest.priority,
        gaps=tuple(gap for gap in current.gaps if not containers or gap is not Reason.AMOUNTS_UNKNOWN),
    )
