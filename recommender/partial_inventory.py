"""No proposals for incompletely known workloads: missing names, owners, amounts or autoscalers. Pure.

Nor is an amount of a container proposed where its pod itself has one: that counts in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.base import withheld
from cotenant.recommender.incomplete import REST_ON_LITTLE_USE
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Action, Recommendation, Value

_DECREASES_ALONE: Final = Reason.KILLS_UNKNOWN
"""Does not touch raises, nor CPU: only that a smaller amount of memory killed nothing is not known."""
_ON_AMOUNTS: Final = frozenset({FindingKind.MISSING_REQUEST, FindingKind.MISSING_LIMIT, FindingKind.UNSCHEDULABLE})


def withhold_partial(recommendations: Sequence[Recommendation], workloads: Iterable[Workload]) -> list[Recommendation]:
    """The recommendations without the values that rest on a part of the workload, in their order.

    workloads: at least those of the recommendations.
    """
    partial = {w.ref: w for w in workloads if w.gaps or w.own.resources() or any(c.gaps for c in w.containers)}
    return [
        _withhold_unfounded_values(recommendation, partial)
        if recommendation.container.workload in partial
        else recommendation
        for recommendation in recommendations
    ]


def without_partial(findings: Iterable[ClusterFinding], inventory: Inventory) -> tuple[ClusterFinding, ...]:
    """The findings less those that something is not used, not set or too large, where that may be untrue or in part."""
    gaps = {w.ref: frozenset(w.gaps) for w in inventory.workloads if w.gaps}
    return tuple(finding for finding in findings if not _is_unfounded(finding, gaps))


def _is_unfounded(finding: ClusterFinding, gaps: Mapping[WorkloadRef, Collection[Reason]]) -> bool:
    subject = finding.subject.workload if isinstance(finding.subject, ContainerRef) else finding.subject
    own = gaps.get(subject, ()) if isinstance(subject, WorkloadRef) else ()
    if Reason.AMOUNTS_UNKNOWN in own and finding.kind in _ON_AMOUNTS:
        return True
    return not {Reason.OWNER_UNKNOWN, Reason.PODS_UNNAMED}.isdisjoint(own) and finding.kind in REST_ON_LITTLE_USE


def _withhold_unfounded_values(
    recommendation: Recommendation, partial: Mapping[WorkloadRef, Workload]
) -> Recommendation:
    workload = partial[recommendation.container.workload]
    container = workload.container(recommendation.container.container)
    gaps = (*workload.gaps, *(container.gaps if container else ()))
    reason = next((gap for gap in gaps if gap is not _DECREASES_ALONE), None)
    if reason is not None:
        values = tuple(_withhold(v, reason) for v in recommendation.values)
        return replace(recommendation, values=values, heap=None)
    # The recommendation without the values of resources of which the pod itself has an amount.
    named = workload.own.resources()
    values = tuple(_withhold(v, Reason.POD_AMOUNTS) if v.resource in named else v for v in recommendation.values)
    recommendation = replace(
        recommendation, values=values, heap=None if Resource.MEMORY in named else recommendation.heap
    )
    if _DECREASES_ALONE not in gaps:
        return recommendation
    values = tuple(
        _withhold(v, _DECREASES_ALONE) if v.resource is Resource.MEMORY and v.change is not None and v.change < 0 else v
        for v in recommendation.values
    )
    heap = recommendation.heap
    return replace(recommendation, values=values, heap=None if heap is not None and heap.change < 0 else heap)


def _withhold(value: Value, reason: Reason) -> Value:
    """Return the value without its proposal, for this reason; one that is withheld already keeps its own reason."""
    if value.action is Action.WITHHELD:
        return value
    return withheld(value.resource, value.field, value.now, reason, value.inputs)
