"""Nothing is lowered on usage that nobody measured, or not the whole of it. Pure.

A sandboxed runtime, or a kernel without the memory cgroup, shows series of zeros for a container that works. Such zeros
are absence: a process that runs never uses 0 bytes of memory, and it used CPU at some time. Zeros of memory say nothing
of CPU either, which comes from the same cgroup. Zeros of CPU alone are true of a process that sleeps; then its counter,
or its pod's, stands still above zero (`PodRow.idle`), and only then they are believed.

A pod whose own row is clearly larger than its containers' rows together (`PodRow.beyond`) has something running that
they do not show: of which container, nobody can say.

A pod that runs beside others of its workload and has no series of memory is on a node whose kubelet is not scraped, or
its containers never last. What it uses may be more than all that the others show. Where it has none of CPU alone, this
is so of CPU.

CPU is a rate over five minutes at least. Where every pod of a container ends sooner, its rate is spread over time in
which the pod was not there, and is less than what it used while it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import unmeasured_pods
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.recommender.base import withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.incomplete import REST_ON_LITTLE_USE
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.model.recommendation import Action, Recommendation, Value

LEAST_SAMPLES: Final = 3
"""A container may show 0 in its first scrape, before its process has a page; three slots of 5 minutes are no start."""

BRIEF_SLOTS: Final = 2
"""A pod with samples in no more slots lived for less than five minutes, or little longer: none of them may be full."""

Doubts = Mapping[ContainerRef, Mapping[Resource, Reason]]
"""Containers whose usage is not known, and why."""


def doubts(evidence: Evidence) -> Doubts:
    """Why usage of a resource is not what it seems, by container; those without any doubt are left out."""
    found: dict[ContainerRef, dict[Resource, Reason]] = {}
    for ref, resource in _pods_above_containers(evidence):
        found.setdefault(ref, {})[resource] = Reason.POD_USES_MORE
    awake = (ref for series, ref in _zeros(evidence, Signal.CPU_USAGE_MEAN) if not _sleeps(series, evidence))
    for ref in (*_of_silent_pods(evidence, Signal.CPU_USAGE_MEAN), *awake, *_of_brief_pods(evidence)):
        found.setdefault(ref, {})[Resource.CPU] = Reason.CPU_UNMEASURED
    zeros = (ref for _, ref in _zeros(evidence, Signal.MEMORY_WORKING_SET_MAX))
    for ref in (*_of_silent_pods(evidence, Signal.MEMORY_WORKING_SET_MAX), *zeros):
        found[ref] = dict.fromkeys(Resource, Reason.UNMEASURED)
    return found


def withhold_unmeasured(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """The recommendations, in their order, without values that rest on zeros or on a part of the usage.

    A raise, as after a kill, stays.
    """
    why = doubts(evidence)
    return [
        _measured_part(recommendation, why[recommendation.container])
        if recommendation.container in why
        else recommendation
        for recommendation in recommendations
    ]


def without_unmeasured(findings: Iterable[ClusterFinding], evidence: Evidence) -> list[ClusterFinding]:
    """The findings without those that call something idle of which the usage is not measured."""
    why = doubts(evidence)
    subjects: set[ContainerRef | WorkloadRef] = {*why, *(container.workload for container in why)}
    return [
        finding for finding in findings if finding.kind not in REST_ON_LITTLE_USE or finding.subject not in subjects
    ]


def _of_silent_pods(evidence: Evidence, signal: Signal) -> list[ContainerRef]:
    """Containers of workloads with a pod that has run for long and has no sample of a signal in the window."""
    usage = evidence.usage.get(signal)
    if usage is None or not usage.values.size:
        return []
    sampled = np.isfinite(usage.values)
    newest = (
        usage.grid.start_seconds + int(np.flatnonzero(sampled.any(axis=0)).max(initial=0)) * usage.grid.step_seconds
    )
    measured = {(usage.refs[i].namespace, usage.refs[i].pod) for i in np.flatnonzero(sampled.any(axis=1))}
    silent = {pod.workload for pod in unmeasured_pods(evidence.inventory, measured, newest)}
    return [ref for ref in evidence.containers if ref.workload in silent]


def _of_brief_pods(evidence: Evidence) -> list[ContainerRef]:
    """Containers of which no pod lived long enough for a slot that its CPU fills."""
    usage = evidence.usage.get(Signal.CPU_USAGE_MEAN)
    if usage is None or not usage.values.size:
        return []
    longest = np.zeros(len(evidence.containers), dtype=np.int64)
    rows = evidence.usage_rows[Signal.CPU_USAGE_MEAN]
    np.maximum.at(longest, rows[rows >= 0], np.isfinite(usage.values).sum(axis=1)[rows >= 0])
    return [evidence.containers[i] for i in np.flatnonzero((longest > 0) & (longest <= BRIEF_SLOTS))]


def _zeros(evidence: Evidence, signal: Signal) -> Iterable[tuple[PodContainerRef, ContainerRef]]:
    """Series of which samples are known, and all of them are 0, with their container."""
    usage = evidence.usage.get(signal)
    if usage is None or not usage.values.size:
        return ()
    known = np.isfinite(usage.values)
    zeros = (known.sum(axis=1) >= LEAST_SAMPLES) & ~((usage.values != 0) & known).any(axis=1)
    rows = evidence.usage_rows[signal]
    return [(usage.refs[i], evidence.containers[rows[i]]) for i in np.flatnonzero(zeros) if rows[i] >= 0]


def _sleeps(series: PodContainerRef, evidence: Evidence) -> bool:
    """Return whether a counter that does not move above zero proves that the container's zeros of CPU are real.

    The pod's row names such containers; "" in it means all containers of the pod.
    """
    rows = (r for r in evidence.inventory.pod_rows if (r.namespace, r.name) == (series.namespace, series.pod))
    return any(not {"", series.container}.isdisjoint(row.idle) for row in rows)


def _pods_above_containers(evidence: Evidence) -> Iterable[tuple[ContainerRef, Resource]]:
    """Return containers whose workload has a pod that uses more than its containers together, and in which resource."""
    rows = [row for row in evidence.inventory.pod_rows if row.beyond]
    owners = evidence.inventory.owners() if rows else {}
    doubtful: dict[WorkloadRef | None, set[Resource]] = {}
    for row in rows:
        doubtful.setdefault(owners.get((row.namespace, row.name)), set()).update(row.beyond)
    return [(ref, resource) for ref in evidence.containers for resource in doubtful.get(ref.workload, ())]


def _measured_part(recommendation: Recommendation, why: Mapping[Resource, Reason]) -> Recommendation:
    heap = recommendation.heap
    lowered = heap is not None and heap.change < 0 and Resource.MEMORY in why
    return replace(
        recommendation,
        values=tuple(_withhold_unmeasured(value, why) for value in recommendation.values),
        heap=None if lowered else heap,
    )


def _withhold_unmeasured(value: Value, why: Mapping[Resource, Reason]) -> Value:
    if value.resource not in why or value.action is Action.WITHHELD or (value.change is not None and value.change > 0):
        return value
    return withheld(value.resource, value.field, value.now, why[value.resource], value.inputs)
