"""Withholds proposals and findings whose history or workload is known only in part, or no longer exists. Pure.

If history could not be read, nothing is lowered or called idle, because a peak or an OOM kill may be in the missing
part. A raise stays valid, and so does a finding on what was measured, which states how many hours are missing. The
forecast of a node's lendable amount may be too high: its amounts note that, and the forecast does not decide alone.

If names, owners, amounts or autoscalers of a workload are missing, nothing is proposed for it. Nothing is proposed
either for a resource whose amount is set on the pod itself, which counts instead of the container's, or for a workload
that is still in the history but no longer in the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory, Workload
from cotenant.base.colocation.reclaim_policies import TERMS, Reclaimable
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal
from cotenant.recommender.base import withheld
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Action, Recommendation, Value
from cotenant.recommender.trust import EPISODIC

RESTS_ON: Final[Mapping[Resource, frozenset[Signal]]] = {
    Resource.CPU: frozenset({Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN}),
    Resource.MEMORY: frozenset({Signal.MEMORY_WORKING_SET_MAX, Signal.OOM_KILLS}),
}
"""Signals without which a smaller amount of a resource is not founded."""
_CPU_DEMAND: Final = frozenset({Signal.CPU_USAGE_MEAN, Signal.CPU_THROTTLED_MEAN})
_MEMORY_USE: Final = frozenset({Signal.MEMORY_WORKING_SET_MAX})
FINDINGS_REST_ON: Final[Mapping[FindingKind, frozenset[Signal]]] = {
    FindingKind.IDLE_WORKLOAD: _CPU_DEMAND,
    # where nodes report no usage of their own, the sum of their pods stands for it
    FindingKind.IDLE_NODE: frozenset({Signal.NODE_CPU_USAGE_MEAN, Signal.CPU_USAGE_MEAN}),
    FindingKind.MISSING_REQUEST: _CPU_DEMAND | _MEMORY_USE,
    FindingKind.MISSING_LIMIT: _MEMORY_USE,
    FindingKind.UNSCHEDULABLE: frozenset(),
    FindingKind.LEAK: _MEMORY_USE,
    **dict.fromkeys((FindingKind.LARGE_HEAP, FindingKind.HEAP_ABOVE_LIMIT, FindingKind.HEAP_PRESSURE), _MEMORY_USE),
    FindingKind.SKEW: frozenset({Signal.CPU_USAGE_MEAN}) | _MEMORY_USE,
    FindingKind.IDLE_GPU: frozenset({Signal.GPU_CORE_MEAN}),
    FindingKind.OVERSIZED_GPU: frozenset({Signal.GPU_CORE_MEAN, Signal.GPU_MEMORY_MAX}),
    FindingKind.UNMEASURED_GPU: frozenset({Signal.GPU_CORE_MEAN}),
}
"""Signals behind the figures of each kind of finding."""
_OF_GPUS: Final = (FindingKind.IDLE_GPU, FindingKind.OVERSIZED_GPU, FindingKind.UNMEASURED_GPU)
REST_ON_LITTLE_USE: Final = frozenset({FindingKind.IDLE_WORKLOAD, FindingKind.IDLE_NODE, *_OF_GPUS})
"""Kinds that state that something was not used."""
NODE_FORECASTS_REST_ON: Final[Mapping[Resource, frozenset[Signal]]] = {
    Resource.CPU: frozenset({Signal.CPU_USAGE_MEAN, Signal.NODE_CPU_USAGE_MEAN}),
    Resource.MEMORY: frozenset({Signal.MEMORY_WORKING_SET_MAX, Signal.NODE_MEMORY_WORKING_SET_MAX}),
}
SILENT_SECONDS: Final = 3 * DAY_SECONDS
"""Without a list of its kind a workload counts as gone after so long without a pod: longer than a weekend at zero."""
_DECREASES_ALONE: Final = Reason.KILLS_UNKNOWN
"""Does not touch raises, nor CPU: only that a smaller amount of memory killed nothing is not known."""
_ON_AMOUNTS: Final = frozenset({FindingKind.MISSING_REQUEST, FindingKind.MISSING_LIMIT, FindingKind.UNSCHEDULABLE})
NOTE: Final = "part of the history behind the forecast could not be read: the peak may be higher"


def without_decreases(
    recommendations: Sequence[Recommendation], unread: Collection[Signal]
) -> tuple[Recommendation, ...]:
    """Return the recommendations, in their order, without decreases that depend on a signal in `unread`.

    A request that changed together with an autoscaler's target is withheld too: the pair may reduce capacity.
    """
    affected = {resource for resource, signals in RESTS_ON.items() if not signals.isdisjoint(unread)}
    if not affected:
        return tuple(recommendations)
    founded = []
    for r in recommendations:
        values = tuple(
            withheld(v.resource, v.field, v.now, Reason.HISTORY_INCOMPLETE, v.inputs)
            if v.resource in affected and v.action is Action.SET and (_falls(v) or v.reason is Reason.HPA_SOLVED)
            else v
            for v in r.values
        )
        # A heap goes only with the memory request.
        heap_goes = r.heap is not None and r.heap.change < 0 and Resource.MEMORY in affected
        founded.append(replace(r, values=values, heap=None if heap_goes else r.heap))
    return tuple(founded)


def founded_findings(
    findings: Iterable[ClusterFinding], unread_seconds: Mapping[Signal, int]
) -> tuple[ClusterFinding, ...]:
    """Return the findings, in their order, without those on unused resources whose usage may be in unread history.

    The remaining findings state how many hours of the signals that they are based on were not read.
    """
    founded = []
    for finding in findings:
        lost = max((unread_seconds.get(signal, 0) for signal in FINDINGS_REST_ON[finding.kind]), default=0)
        if lost and finding.kind in REST_ON_LITTLE_USE:
            continue
        figures = {**finding.evidence, "history_not_read_hours": round(lost / HOUR_SECONDS, 1)}
        founded.append(replace(finding, evidence=figures) if lost else finding)
    return tuple(founded)


def node_forecast_incomplete(resource: Resource, unread: Collection[Signal]) -> bool:
    """Return whether history of a signal that a node's forecast of the resource depends on could not be read."""
    return not NODE_FORECASTS_REST_ON[resource].isdisjoint(unread)


def with_incomplete_noted(amounts: Sequence[Reclaimable], unread: Collection[Signal]) -> tuple[Reclaimable, ...]:
    """Return the lendable amounts, with a note on each amount that depends on an incomplete forecast."""
    noted = []
    for amount in amounts:
        by_forecast = any(TERMS[name].from_forecast for name in amount.terms if name in TERMS)
        if by_forecast and node_forecast_incomplete(amount.resource, unread):
            noted.append(replace(amount, note=f"{amount.note}; {NOTE}" if amount.note else NOTE))
        else:
            noted.append(amount)
    return tuple(noted)


def gone_workloads(inventory: Inventory) -> frozenset[WorkloadRef]:
    """Return workloads that do not run and are not in the list of their kind or, without such a list, silent for days.

    Jobs have no pods between their runs: without a list of jobs none counts as gone.
    """
    listed = frozenset(inventory.controllers)
    kinds = {ref.kind for ref in listed} | {*inventory.listed_kinds}
    running = {pod.workload for pod in inventory.pods if pod.end_seconds is None}
    ends: dict[WorkloadRef, int] = {}
    for pod in inventory.pods:
        end = inventory.time_seconds if pod.end_seconds is None else pod.end_seconds
        ends[pod.workload] = max(end, ends.get(pod.workload, 0))
    since = inventory.time_seconds - SILENT_SECONDS

    def is_gone(workload: Workload) -> bool:
        ref = workload.ref
        if ref.kind in kinds:
            return ref not in listed and ref not in running
        if workload.replicas:
            return False
        return ref.kind not in EPISODIC and (ref.kind == "Pod" or ends.get(ref, 0) < since)

    return frozenset(workload.ref for workload in inventory.workloads if is_gone(workload))


def withhold_deleted(
    recommendations: Sequence[Recommendation], deleted: Collection[WorkloadRef]
) -> list[Recommendation]:
    """Return the recommendations with every value of the deleted workloads withheld."""
    return _withhold(recommendations, deleted, Reason.DELETED)


def withhold_failed(recommendations: Sequence[Recommendation], failed: Collection[WorkloadRef]) -> list[Recommendation]:
    """Return the recommendations with every value withheld for workloads whose analysis failed."""
    return _withhold(recommendations, failed, Reason.FAILED)


def _withhold(
    recommendations: Sequence[Recommendation], workloads: Collection[WorkloadRef], reason: Reason
) -> list[Recommendation]:
    adjusted = list(recommendations)
    for place, r in enumerate(recommendations):
        if r.container.workload in workloads:
            values = tuple(withheld(v.resource, v.field, v.now, reason, {}) for v in r.values)
            adjusted[place] = replace(r, values=values)
    return adjusted


def withhold_partial(recommendations: Sequence[Recommendation], workloads: Iterable[Workload]) -> list[Recommendation]:
    """Return the recommendations, in their order, with values withheld where facts about their workload are missing.

    Unknown OOM kills withhold only decreases of memory, an amount set on the pod itself only values of its resource.
    `workloads` includes at least those of the recommendations.
    """
    partial = {w.ref: w for w in workloads if w.gaps or w.own.resources() or any(c.gaps for c in w.containers)}
    return [_withhold_unfounded_values(r, partial.get(r.container.workload)) for r in recommendations]


def without_partial(findings: Iterable[ClusterFinding], inventory: Inventory) -> tuple[ClusterFinding, ...]:
    """Return the findings without those that may be wrong because facts about their workload are missing."""
    gaps, founded = {w.ref: frozenset(w.gaps) for w in inventory.workloads if w.gaps}, []
    for finding in findings:
        subject = finding.subject.workload if isinstance(finding.subject, ContainerRef) else finding.subject
        own = gaps.get(subject, frozenset()) if isinstance(subject, WorkloadRef) else frozenset()
        on_amounts = Reason.AMOUNTS_UNKNOWN in own and finding.kind in _ON_AMOUNTS
        has_others = not own.isdisjoint({Reason.OWNER_UNKNOWN, Reason.PODS_UNNAMED})
        if not on_amounts and not (has_others and finding.kind in REST_ON_LITTLE_USE):
            founded.append(finding)
    return tuple(founded)


def _withhold_unfounded_values(recommendation: Recommendation, workload: Workload | None) -> Recommendation:
    if workload is None:
        return recommendation
    container = workload.container(recommendation.container.container)
    gaps = (*workload.gaps, *(container.gaps if container else ()))
    reason = next((gap for gap in gaps if gap is not _DECREASES_ALONE), None)
    pod_resources, heap = workload.own.resources(), recommendation.heap

    def judge(value: Value) -> Value:
        if reason is not None:
            return _without_proposal(value, reason)
        if value.resource in pod_resources:  # the pod itself has an amount
            return _without_proposal(value, Reason.POD_AMOUNTS)
        is_doubtful = _DECREASES_ALONE in gaps and value.resource is Resource.MEMORY and _falls(value)
        return _without_proposal(value, _DECREASES_ALONE) if is_doubtful else value

    values = tuple(map(judge, recommendation.values))
    heap_falls = heap is not None and heap.change < 0 and _DECREASES_ALONE in gaps
    heap_goes = reason is not None or Resource.MEMORY in pod_resources or heap_falls
    return replace(recommendation, values=values, heap=None if heap_goes else heap)


def _falls(value: Value) -> bool:
    return value.change is not None and value.change < 0


def _without_proposal(value: Value, reason: Reason) -> Value:
    """Return the value without its proposal, for this reason; an already withheld value keeps its own reason."""
    if value.action is Action.WITHHELD:
        return value
    return withheld(value.resource, value.field, value.now, reason, value.inputs)
