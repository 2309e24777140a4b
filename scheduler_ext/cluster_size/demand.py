"""The cluster with the requests of a level: present ones, after ready recommendations, or after all steps. Pure.

    state = as_recorded(state, busiest_moment(inventory))      # whatever an autoscaler runs at this hour
    state = with_returning(state, busiest_moment(inventory))   # pods of the busiest moment that no longer run
    state_at(services_of(state), level)          # batch pods run on capacity that these pods lend
    state_at(with_batch_fixed(state), level)     # batch pods stay where they are today

Proposals come from the recommendations of the last scan, container by container. A pod of a workload without
recommendations keeps its requests. If raised requests exceed a node, raised pods lose their place on it, the largest
rise first, and are placed anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.models.pod import ContainerWire, PodSpecWire, ResourcesWire
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL, workload_by_name
from cotenant.base.kubernetes.qos import with_default
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Action
from cotenant.recommender.model.steps import Ready
from cotenant.scheduler_ext.cluster_size.model import PODS, RequestLevel, SizedCluster, SizedPod, Stay
from cotenant.scheduler_ext.cluster_size.steps import ProposedChanges

Amounts = Mapping[str, int]
Proposals = Mapping[ContainerRef, Mapping[RequestLevel, Amounts]]
"""Container -> level -> its requests by resource name (millicores, bytes), for the levels that change them."""
NOT_RETURNING: Final = frozenset({"DaemonSet", "Node", "Pod"})
"""Kinds of workloads whose pods come with a node, or are not created again."""
READY: Final = frozenset(ready.value for ready in Ready if ready.now)


def proposals_of(rows: Iterable[Mapping[str, Any]]) -> dict[ContainerRef, dict[RequestLevel, Amounts]]:
    """Return the proposed requests in the rows of the table of recommendations, by container and level."""
    result = {}
    for row in rows:
        ref = ContainerRef(WorkloadRef(row["namespace"], row["kind"], row["workload"]), row["container"])
        step = {r.value: row[f"{r.value}_step"] for r in Resource} if row["ready"] in READY else {}
        later = {r.value: row[f"{r.value}_request"] for r in Resource if row[f"{r.value}_action"] == Action.SET.value}
        levels = {RequestLevel.READY: _known_amounts(step), RequestLevel.ALL_STEPS: _known_amounts(later)}
        if any(levels.values()):
            result[ref] = levels
    return result


def proposed_of(rows: Iterable[Mapping[str, Any]]) -> ProposedChanges:
    """Return the numbers of containers with recommendations, of ready and stopped ones, and the most steps of one."""
    changing = [row for row in rows if any(row[f"{r.value}_action"] == Action.SET.value for r in Resource)]
    ready = sum(row["ready"] in READY for row in changing)
    steps = max((row.get("steps") or 1 for row in changing), default=1)
    stopped = sum(row["ready"] == Ready.BLOCKED.value for row in changing)
    return ProposedChanges(ready, len(changing), steps, stopped)


def _known_amounts(amounts: Mapping[str, int | None]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def proposed_spec(spec: PodSpecWire, amounts: Mapping[str, Amounts]) -> PodSpecWire:
    """Return the pod spec with the requests of `amounts`, by container name, in place of its own."""

    def with_proposals(containers: Sequence[ContainerWire] | None) -> list[ContainerWire]:
        changed = []
        for container in containers or ():
            own, proposed = container.resources or ResourcesWire(), amounts.get(container.name, {})
            texts = {name: f"{n}m" if name == Resource.CPU.value else str(n) for name, n in proposed.items()}
            resources = msgspec.structs.replace(own, requests={**(own.requests or {}), **texts})
            changed.append(msgspec.structs.replace(container, resources=resources) if texts else container)
        return changed

    return msgspec.structs.replace(
        spec, containers=with_proposals(spec.containers), init_containers=with_proposals(spec.init_containers)
    )


def state_at(state: SizedCluster, level: RequestLevel) -> SizedCluster:
    """Return the cluster with its pods' requests at this level; pods that no longer fit on their node have no node."""
    if level is RequestLevel.NOW:
        return state
    pods = [replace(pod, requests=pod.later[level]) if level in pod.later else pod for pod in state.pods]
    on_node: dict[str, list[int]] = defaultdict(list)
    for number, pod in enumerate(pods):
        on_node[pod.node].append(number)
    homeless: set[int] = set()
    for node in state.nodes:
        numbers = on_node.get(node.name, [])
        for name in (resource.value for resource in Resource):
            requests = {number: pods[number].requests.get(name, 0) for number in numbers}
            rises = {number: requests[number] - state.pods[number].requests.get(name, 0) for number in numbers}
            capacity_left = node.allocatable.get(name, 0) - sum(requests[n] for n in numbers if n not in homeless)
            for number in sorted(numbers, key=lambda number: (-rises[number], number)):
                if capacity_left >= 0 or rises[number] <= 0:
                    break
                if number not in homeless and pods[number].stays is None and not pods[number].goes_with_node:
                    homeless.add(number)
                    capacity_left += requests[number]
    return replace(state, pods=tuple(replace(pod, node="") if n in homeless else pod for n, pod in enumerate(pods)))


def services_of(state: SizedCluster) -> SizedCluster:
    """Return the cluster without batch pods, which run on capacity that other pods request but do not use."""
    return replace(state, pods=tuple(pod for pod in state.pods if not pod.batch))


def with_batch_fixed(state: SizedCluster) -> SizedCluster:
    """Return the cluster in which every batch pod that has a node stays on it."""

    def fixed(pod: SizedPod) -> SizedPod:
        if not (pod.batch and pod.node):
            return pod
        return replace(pod, stays=Stay(Reason.BATCH_WORK, f"{pod.address} is batch work", pod.address))

    return replace(state, pods=tuple(map(fixed, state.pods)))


@dataclass(frozen=True, slots=True)
class BusiestMoment:
    """The pods at the busiest moment of the usage history, those at its end (`standing`), and the workload of each."""

    seconds: int
    pods: tuple[Pod, ...]
    workloads: Mapping[tuple[str, str], WorkloadRef]  # (namespace, name) -> workload
    standing: tuple[Pod, ...] = ()  # the pods that ran when the record ended


def busiest_moment(inventory: Inventory) -> BusiestMoment | None:
    """Return the time with the largest requested share of the nodes' CPU or memory; None if there are no pods.

    Placeholder, batch, DaemonSet and static pods and pods without a controller do not count.
    """
    pods = []
    for pod in inventory.pods:
        batch = with_default(pod.qos, pod.priority).is_reclaimer or pod.batch_millicores
        if pod.workload.kind not in NOT_RETURNING and not pod.placeholder and not batch:
            pods.append(pod)
    capacity = np.array([sum(node.allocatable.get(resource, 0) for node in inventory.nodes) for resource in Resource])
    if not pods or not capacity.all():
        return None
    starts = np.array([pod.start_seconds for pod in pods])
    ends = np.array([inventory.time_seconds + 1 if pod.end_seconds is None else pod.end_seconds for pod in pods])
    requests = np.array([[pod.requests.get(resource, 0) for resource in Resource] for pod in pods]) / capacity
    changes = np.concatenate([requests, -requests])
    moments = np.concatenate([starts, ends])
    order = np.lexsort((np.repeat([1, 0], len(pods)), moments))  # who ends at a moment makes room for who starts then
    busiest = int(moments[order[np.cumsum(changes[order], axis=0).max(axis=1).argmax()]])
    ran = tuple(pod for pod, start, end in zip(pods, starts, ends, strict=True) if start <= busiest < end)
    workloads = {(pod.namespace, pod.name): pod.workload for pod in pods}
    return BusiestMoment(busiest, ran, workloads, tuple(pod for pod in pods if pod.running))


def as_recorded(state: SizedCluster, moment: BusiestMoment) -> SizedCluster:
    """Return the cluster with the pods that each still running ReplicaSet had at the end of the usage history.

    Newer pods of such a ReplicaSet are left out. Its pods that have ended since then are added on their nodes, with
    present requests and rules. So an autoscaler's changes since then affect neither the busiest moment nor other pods'
    places. Batch pods are not changed.
    """
    recorded: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for gone_pod in moment.standing:
        recorded[gone_pod.namespace, gone_pod.name.rpartition("-")[0]].append(gone_pod)
    siblings: dict[tuple[str, str], SizedPod] = {}
    addresses, pods_kept = set[str](), list[SizedPod]()
    for pod in sorted(state.pods, key=lambda pod: pod.address):
        template = pod.namespace, pod.owner.rpartition("/ReplicaSet/")[2]
        if template not in recorded or pod.batch:
            pods_kept.append(pod)
            continue
        siblings.setdefault(template, pod)
        if any(gone_pod.name == pod.name for gone_pod in recorded[template]):
            pods_kept.append(pod)
            addresses.add(pod.address)
    nodes = {node.name for node in state.nodes}
    for template, sibling in siblings.items():
        for gone_pod in recorded[template]:
            address = f"{gone_pod.namespace}/{gone_pod.name}"
            if address not in addresses:
                stay = sibling.stays
                if stay is not None:
                    stay = replace(stay, words=stay.words.replace(sibling.address, address), pod=address)
                node = gone_pod.node if gone_pod.node in nodes else ""  # without a node where its own is gone
                pods_kept.append(replace(sibling, name=gone_pod.name, node=node, stays=stay))
    return replace(state, pods=tuple(sorted(pods_kept, key=lambda pod: pod.address)))


def with_returning(state: SizedCluster, moment: BusiestMoment) -> SizedCluster:
    """Return the cluster with additional pods that have no node: those of the busiest moment that workloads now lack.

    These pods have the requests and rules of a running pod of the workload; if none runs, only their recorded requests.
    """
    running: dict[WorkloadRef, SizedPod] = {}
    surplus: Counter[WorkloadRef] = Counter()
    for pod in state.pods:
        ref = moment.workloads.get((pod.namespace, pod.name))
        if ref is None and (owner := WorkloadRef.parse(pod.owner)) is not None:
            hashed, config = pod.labels.get(TEMPLATE_HASH_LABEL, ""), pod.labels.get(DEPLOYMENT_CONFIG_LABEL, "")
            ref = workload_by_name(owner, hashed, config)
        if ref is not None:
            surplus[ref] += 1
            running.setdefault(ref, pod)
    present = {(pod.namespace, pod.name) for pod in state.pods}
    surplus.subtract(pod.workload for pod in moment.pods)
    returning = []
    for lost in moment.pods:
        if surplus[lost.workload] < 0 and (lost.namespace, lost.name) not in present:
            surplus[lost.workload] += 1
            sibling = running.get(lost.workload)
            if sibling is not None:
                returning.append(replace(sibling, name=lost.name, node="", stays=None))
            else:
                requests = {**{resource.value: amount for resource, amount in lost.requests.items()}, PODS: 1}
                returning.append(SizedPod(lost.namespace, lost.name, "", requests, owner=str(lost.workload)))
    return replace(state, pods=(*state.pods, *returning))
