"""Nothing is lowered on usage that nobody measured: a process that runs never uses 0 bytes of memory. Pure.

A sandboxed runtime, or a kernel without the memory cgroup, shows series of zeros for a container that works. Such zeros
are absence. They say nothing of CPU either, which comes from the same cgroup; there 0 alone may be true of a process
that sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.core.model.finding import ClusterFinding
from cotenant.core.model.identity import ContainerRef, WorkloadRef
from cotenant.core.model.reasons import Reason
from cotenant.core.model.recommendation import Action, Recommendation, Value
from cotenant.core.model.usage.usage import Signal
from recommender.base import withheld
from recommender.evidence import Evidence
from recommender.incomplete import REST_ON_LITTLE_USE

LEAST_SAMPLES: Final = 3
"""A container may show 0 in its first scrape, before its process has a page; three slots of 5 minutes are no start."""


def unmeasured_containers(evidence: Evidence) -> frozenset[ContainerRef]:
    """Containers of which a pod shows samples of memory, and all of them are 0."""
    memory = evidence.usage.get(Signal.MEMORY_WORKING_SET_MAX)
    if memory is None or not memory.values.size:
        return frozenset()
    known = np.isfinite(memory.values)
    zeros = (known.sum(axis=1) >= LEAST_SAMPLES) & ~((memory.values != 0) & known).any(axis=1)
    rows = evidence.usage_rows[Signal.MEMORY_WORKING_SET_MAX][zeros]
    return frozenset(evidence.containers[row] for row in rows if row >= 0)


def withhold_unmeasured(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """The recommendations, in their order, without values that rest on zeros; a raise, as after a kill, stays."""
    unmeasured = unmeasured_containers(evidence)
    if not unmeasured:
        return list(recommendations)
    return [_measured_part(one) if one.container in unmeasured else one for one in recommendations]


def without_unmeasured(findings: Iterable[ClusterFinding], evidence: Evidence) -> list[ClusterFinding]:
    """The findings without those that call something idle of which the usage is not measured."""
    unmeasured = unmeasured_containers(evidence)
    subjects: set[ContainerRef | WorkloadRef] = {*unmeasured, *(container.workload for container in unmeasured)}
    return [one for one in findings if one.kind not in REST_ON_LITTLE_USE or one.subject not in subjects]


def _measured_part(recommendation: Recommendation) -> Recommendation:
    heap = recommendation.heap
    return replace(
        recommendation,
        values=tuple(_measured(value) for value in recommendation.values),
        heap=None if heap is not None and heap.change < 0 else heap,
    )


def _measured(value: Value) -> Value:
    if value.action is Action.WITHHELD or (value.change is not None and value.change > 0):
        return value
    return withheld(value.resource, value.field, value.now, Reason.UNMEASURED, value.inputs)
