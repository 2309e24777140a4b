"""Workloads that are not in the cluster any more: history still knows them, nothing is proposed for them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.base import withheld
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.trust import EPISODIC

SILENT_SECONDS: Final = 3 * DAY_SECONDS
"""Without a list of its kind a workload counts as gone after so long without a pod: longer than a weekend at zero."""


def gone_workloads(inventory: Inventory) -> frozenset[WorkloadRef]:
    """Workloads that the list of their kind lacks and that run no more; without such a list those silent for days.

    Jobs have no pods between their runs: without a list of them nothing is said.
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
    """The recommendations with every value of the deleted workloads withheld."""
    return _withhold(recommendations, deleted, Reason.DELETED)


def withhold_failed(recommendations: Sequence[Recommendation], failed: Collection[WorkloadRef]) -> list[Recommendation]:
    """The recommendations with every value of workloads withheld that could not be analysed."""
    return _withhold(recommendations, failed, Reason.FAILED)


def _withhold(
    recommendations: Sequence[Recommendation], workloads: Collection[WorkloadRef], reason: Reason
) -> list[Recommendation]:
    return [
        replace(r, values=tuple(withheld(v.resource, v.field, v.now, reason, {}) for v in r.values))
        if r.container.workload in workloads
        else r
        for r in recommendations
    ]
