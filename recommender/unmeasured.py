"""Withholds decreases that are based on usage that was not measured, or not completely. Pure.

A sandboxed runtime, or a kernel without the memory cgroup, reports zeros for a container that works. Such zeros mean
that nothing was measured: a running process never uses 0 bytes of memory, and it used CPU at some time. With zeros of
memory the CPU value is not trusted either, because it comes from the same cgroup. Zeros of CPU alone are true for a
sleeping process: its counter, or its pod's, stays at a value above zero (`PodRow.idle`), and only then are they
believed. A kubelet may report the same counter value until it restarts: zeros of any time are not believed while the
node uses half of the container's request or more beyond all usage that is attributed on it (`UnshownUse`). If most of a
node's usage is not attributed, no zeros are believed.

If a pod's own row is clearly larger than the sum of its containers' rows (`PodRow.beyond`), something runs in it that
they do not include, and no container can be named for it.

A running pod without memory samples, whose workload has other pods with samples, is on a node whose kubelet is not
scraped, or its containers never last. It may use more than all that the others show. If only its CPU samples are
missing, the same applies to CPU; and to a pod without samples for a part of its life in which other pods had some
(`Evidence.gaps`).

CPU is a rate over at least five minutes. If every pod of a container ends sooner, its rate is averaged over time in
which the pod did not exist, and is less than what it used while it ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.cluster import Pod
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import MEASURED_AFTER_SECONDS, unmeasured_pods
from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.text import duration, percent
from cotenant.base.usage.unshown import UnshownUse, often, unproven_hours
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.recommender.base import withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.incomplete import REST_ON_LITTLE_USE
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.model.recommendation import Action, Recommendation
from cotenant.recommender.trust import EPISODIC

LEAST_SAMPLES: Final = 3
"""A container may show 0 in its first scrape, before its process has a page; three slots of 5 minutes are no start."""

LEAST_MEASURED: Final = 0.9
"""Share of the time from which on the rest may be like it: the least of the guardrails, too."""
BRIEF_SLOTS: Final = 2
"""A pod with samples in no more slots lived for less than five minutes, or little longer: none of them may be full."""

Doubts = Mapping[ContainerRef, Mapping[Resource, Reason]]
"""Containers whose usage is not known, and why."""


class _Doubt(NamedTuple):
    """Why usage of some resources of a container may be incomplete; `part` is a sentence on what is not measured."""

    container: ContainerRef
    resources: tuple[Resource, ...]
    reason: Reason
    part: str = ""


def doubts(evidence: Evidence) -> Doubts:
    """Return by container why its usage of a resource may be incomplete; skip containers with complete usage."""
    return _by_container(_all_doubts(evidence))


def _by_container(every: Iterable[_Doubt]) -> Doubts:
    reasons: dict[ContainerRef, dict[Resource, Reason]] = {}
    for doubt in every:
        reasons.setdefault(doubt.container, {}).update(dict.fromkeys(doubt.resources, doubt.reason))
    return reasons


def _all_doubts(evidence: Evidence) -> Iterator[_Doubt]:
    both, cpu, memory = tuple(Resource), Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX
    # Containers whose workload has a pod that uses more than its containers together, and in which resource.
    rows = [row for row in evidence.inventory.pod_rows if row.beyond]
    owners = evidence.inventory.owners() if rows else {}
    doubtful: dict[WorkloadRef | None, set[Resource]] = {}
    for row in rows:
        doubtful.setdefault(owners.get((row.namespace, row.name)), set()).update(row.beyond)
    above = ((ref, resource) for ref in evidence.containers for resource in doubtful.get(ref.workload, ()))
    yield from (_Doubt(ref, (resource,), Reason.POD_USES_MORE) for ref, resource in above)
    # A counter that does not move proves zeros of CPU; "" in the row of a pod stands for all of its containers.
    asleep = {(row.namespace, row.name, name) for row in evidence.inventory.pod_rows for name in row.idle}
    zeros = ((ref, (pod.namespace, pod.pod), pod.container) for pod, ref in _zeros(evidence, cpu))
    awake = (ref for ref, pod, name in zeros if asleep.isdisjoint({(*pod, name), (*pod, "")}))
    yield from (_Doubt(ref, (Resource.CPU,), Reason.CPU_UNMEASURED) for ref in (*awake, *_of_brief_pods(evidence)))
    for ref, pod in _of_silent_pods(evidence, cpu):
        yield _Doubt(ref, (Resource.CPU,), Reason.CPU_UNMEASURED, _unseen_pods(pod, "at all"))
    # The containers that run for long and were not measured for a part of it, whoever else was.
    for resource in evidence.gaps:  # their lives are known
        for ref, covered in zip(evidence.containers, evidence.coverage[resource].tolist(), strict=True):
            if 0 < covered < LEAST_MEASURED and ref.workload.kind not in EPISODIC:
                seldom_part = f"the pods were measured in {percent(covered)} of the time in which they ran"
                yield _Doubt(ref, (resource,), Reason.LOW_COVERAGE, seldom_part)
    # The containers of which a pod lived for long without a sample, while some node reported. A shorter time is a few
    # scrapes that were lost.
    pods = {(pod.namespace, pod.name): pod for pod in evidence.inventory.pods} if evidence.gaps else {}
    for resource, gaps in evidence.gaps.items():
        for ref, gap in gaps.items():
            seconds = gap.slots * evidence.window.step_seconds
            if gap.is_long and seconds > MEASURED_AFTER_SECONDS:
                gaps_part = _unseen_pods(pods[gap.pod.namespace, gap.pod.pod], f"for {duration(seconds)}")
                yield _Doubt(ref, (resource,), Reason.PART_UNMEASURED, gaps_part)
    # The containers with a pod on a node that swaps, where nothing tells what of that is the pod's.
    swapping = {(row.namespace, row.name) for row in evidence.inventory.pod_rows if row.swaps}
    nodes = {pod.workload: pod.node for pod in evidence.inventory.pods if (pod.namespace, pod.name) in swapping}
    for ref in (ref for ref in evidence.containers if ref.workload in nodes):
        part = f"node {nodes[ref.workload]} swaps memory, and no metric shows which containers' memory it swapped"
        yield _Doubt(ref, (Resource.MEMORY,), Reason.SWAP_UNKNOWN, part)
    yield from _of_parted_nodes(evidence)
    yield from (_Doubt(ref, both, Reason.UNMEASURED) for _, ref in _zeros(evidence, memory))
    for ref, pod in _of_silent_pods(evidence, memory):
        yield _Doubt(ref, both, Reason.UNMEASURED, _unseen_pods(pod, "at all"))


def withhold_unmeasured(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """Return the recommendations, in their order; withhold values of resources with unmeasured or incomplete usage.

    Values that rise, for example after an OOM kill, are kept. A cut of the maximum heap is removed.
    """
    every = list(_all_doubts(evidence))
    why, parts = _by_container(every), defaultdict[ContainerRef, dict[str, None]](dict)
    for doubt in every:
        parts[doubt.container] |= {doubt.part: None} if doubt.part else {}
    checked = list(recommendations)
    for place, recommendation in enumerate(recommendations):
        if recommendation.container not in why:
            continue
        of_container, heap = why[recommendation.container], recommendation.heap
        values = tuple(
            withheld(v.resource, v.field, v.now, of_container[v.resource], v.inputs)
            if v.resource in of_container and v.action is not Action.WITHHELD and (v.change or 0) <= 0
            else v
            for v in recommendation.values
        )
        lowered = heap is not None and heap.change < 0 and Resource.MEMORY in of_container
        notes = (*recommendation.notes, *parts[recommendation.container])
        checked[place] = replace(recommendation, values=values, heap=None if lowered else heap, notes=notes)
    return checked


def without_unmeasured(findings: Iterable[ClusterFinding], evidence: Evidence) -> list[ClusterFinding]:
    """Return the findings without those that state little use of a container or workload with unmeasured usage."""
    why = doubts(evidence)
    subjects: set[ContainerRef | WorkloadRef] = {*why, *(container.workload for container in why)}
    return [row for row in findings if row.kind not in REST_ON_LITTLE_USE or row.subject not in subjects]


def _unseen_pods(pod: Pod, how_long: str) -> str:
    node = f" on node {pod.node}" if pod.node else ""
    return f"pod {pod.namespace}/{pod.name}{node} was not measured {how_long}"


def _of_parted_nodes(evidence: Evidence) -> Iterator[_Doubt]:
    """Yield the containers with a pod on a node that uses more than is attributed on it."""
    unshown, owners = evidence.unshown, defaultdict[str, set[WorkloadRef]](set)
    if unshown is None or not any(unshown.amounts.values()):
        return
    for pod in evidence.inventory.pods:
        owners[pod.node].add(pod.workload)
    for resource, names in unshown.parted.items():
        resources = tuple(Resource) if resource is Resource.CPU else (resource,)
        for name in sorted(names & owners.keys()):
            for ref in (ref for ref in evidence.containers if ref.workload in owners[name]):
                yield _Doubt(ref, resources, Reason.NODE_USES_MORE, _more(unshown, resource, name))
    for ref, name in _unproven_zeros(evidence, unshown):
        yield _Doubt(ref, tuple(Resource), Reason.NODE_USES_MORE, _more(unshown, Resource.CPU, name))


def _more(unshown: UnshownUse, resource: Resource, node: str) -> str:
    mean = unshown.mean(resource, node)
    amount = f"{mean:,.0f} m" if resource is Resource.CPU else human_bytes(mean)
    return f"node {node} used {amount} of {resource} more than its system and all measured containers together"


def _unproven_zeros(evidence: Evidence, unshown: UnshownUse) -> Iterator[tuple[ContainerRef, str]]:
    """Yield containers, with their node, whose counter did not change while the node used half of their request."""
    usage, nodes = evidence.usage.get(Signal.CPU_USAGE_MEAN), unshown.amounts.get(Resource.CPU, {})
    if usage is None or not usage.values.size or not nodes:
        return
    node_of = {(pod.namespace, pod.name): pod.node for pod in evidence.inventory.pods if pod.node in nodes}
    hour_of_slot = (usage.grid.times() - unshown.hours.start_seconds) // HOUR_SECONDS
    requests, rows = evidence.effective_request(Resource.CPU), evidence.usage_rows[Signal.CPU_USAGE_MEAN]
    for row in np.flatnonzero((usage.values == 0).any(axis=1) & (rows >= 0)).tolist():
        node = node_of.get((usage.refs[row].namespace, usage.refs[row].pod))
        if node is not None:
            least = float(np.nan_to_num(requests[rows[row]])) / 2
            if often(*unproven_hours(usage.values[row], hour_of_slot, nodes[node], least)):
                yield evidence.containers[rows[row]], node


def _of_silent_pods(evidence: Evidence, signal: Signal) -> list[tuple[ContainerRef, Pod]]:
    """Return containers with a pod that has run for long without a sample of a signal in the window, and that pod."""
    usage = evidence.usage.get(signal)
    if usage is None or not usage.values.size:
        return []
    sampled = np.isfinite(usage.values)
    last_slot = int(np.flatnonzero(sampled.any(axis=0)).max(initial=0))
    newest = usage.grid.start_seconds + last_slot * usage.grid.step_seconds
    measured = {(usage.refs[i].namespace, usage.refs[i].pod) for i in np.flatnonzero(sampled.any(axis=1))}
    silent = {pod.workload: pod for pod in unmeasured_pods(evidence.inventory, measured, newest)}
    return [(ref, silent[ref.workload]) for ref in evidence.containers if ref.workload in silent]


def _of_brief_pods(evidence: Evidence) -> list[ContainerRef]:
    """Return containers whose pods all ended before their CPU filled one slot."""
    usage = evidence.usage.get(Signal.CPU_USAGE_MEAN)
    if usage is None or not usage.values.size:
        return []
    longest = np.zeros(len(evidence.containers), dtype=np.int64)
    rows = evidence.usage_rows[Signal.CPU_USAGE_MEAN]
    np.maximum.at(longest, rows[rows >= 0], np.isfinite(usage.values).sum(axis=1)[rows >= 0])
    return [evidence.containers[i] for i in np.flatnonzero((longest > 0) & (longest <= BRIEF_SLOTS))]


def _zeros(evidence: Evidence, signal: Signal) -> Iterable[tuple[PodContainerRef, ContainerRef]]:
    """Yield series whose known samples are all 0, with their container."""
    usage = evidence.usage.get(signal)
    if usage is None or not usage.values.size:
        return ()
    is_measured = np.isfinite(usage.values)
    zeros = (is_measured.sum(axis=1) >= LEAST_SAMPLES) & ~((usage.values != 0) & is_measured).any(axis=1)
    rows = evidence.usage_rows[signal]
    return [(usage.refs[i], evidence.containers[rows[i]]) for i in np.flatnonzero(zeros) if rows[i] >= 0]
