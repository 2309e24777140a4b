"""Memory after an OOM kill that no scan has before it: at once, by the bump of the strategy `cotenant`. Pure.

A kill counts from the minute in which the pod's status has it, until a scan has seen it or a change of the workload
came after it. The container's request and limit, as new pods get them, both rise to what the bump asks for, or to what
the scan proposed where that is more; the annotation `cotenant.dev/max-memory` bounds that. What waits for the next
scan: a heap that would move too, and memory whose request was solved together with an autoscaler's target, which holds
for the solved amount alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import rounded_up
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant.annotations import parse
from cotenant.recommender.strategies.cotenant.demand import after_kill

OomKills = Mapping[tuple[WorkloadRef, str], float]
"""When (Unix time) a container of a workload was killed for lack of memory last, by the workload and its name."""


def raised_after_kills(
    live: Mapping[str, Any],
    recommendations: Iterable[Recommendation],
    kills: OomKills,
    changed_seconds: float,
    own: CotenantSettings,
) -> tuple[Recommendation, ...]:
    """The recommendations, over the values of now, with more memory for containers that were killed since their scan.

    changed_seconds: when the workload was changed last (Unix time).
    """
    wishes, _ = parse((live.get("metadata") or {}).get("annotations") or {})
    most_bytes = wishes.get("max-memory", float("inf"))

    def raise_memory(recommendation: Recommendation) -> Recommendation:
        killed_seconds = kills.get((recommendation.container.workload, recommendation.container.container), 0.0)
        limit = recommendation.value(Resource.MEMORY, Field.LIMIT)
        if killed_seconds <= max(recommendation.end_seconds, changed_seconds) or limit is None or limit.now is None:
            return recommendation
        is_solved = any(v.resource is Resource.MEMORY and "hpa" in v.inputs for v in recommendation.values)
        needed_bytes = int(min(rounded_up(after_kill(limit.now, own), MIB), most_bytes))
        if is_solved or limit.now >= needed_bytes:
            return recommendation
        return replace(
            recommendation, values=tuple(_at_least(needed_bytes, v) for v in recommendation.values), heap=None
        )

    return tuple(raise_memory(recommendation) for recommendation in recommendations)


def _at_least(needed_bytes: int, value: Value) -> Value:
    """A value of memory that is set at so much or more, because of the kill; others as they are."""
    if value.resource is not Resource.MEMORY or value.now is None:
        return value
    if value.amount is not None and value.amount >= needed_bytes:
        return replace(value, reason=Reason.OOM_BUMP)
    return replace(value, amount=needed_bytes, action=Action.SET, reason=Reason.OOM_BUMP, clamps=())
