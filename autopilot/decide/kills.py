"""Memory after an OOM kill that no scan has before it: at once, by the bump of the strategy `cotenant`. Pure.

A kill counts from the minute in which the pod's status has it, until a scan has seen it or a change of the workload
came after it. The container's request and limit, as new pods get them, both rise to what the bump asks for; the
annotation `cotenant.dev/max-memory` bounds that. A heap that would move too waits for the next scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.reasons import Reason
from cotenant.core.model.recommendation import Action, Field, Recommendation
from cotenant.core.model.resource import MIB, Resource
from cotenant.core.settings.sections.recommender import CotenantSettings
from recommender.base import rounded_up
from recommender.strategies.cotenant.annotations import parse
from recommender.strategies.cotenant.demand import after_kill

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

    def raised(one: Recommendation) -> Recommendation:
        killed_seconds = kills.get((one.container.workload, one.container.container), 0.0)
        limit = one.value(Resource.MEMORY, Field.LIMIT)
        if killed_seconds <= max(one.end_seconds, changed_seconds) or limit is None or limit.now is None:
            return one
        needed_bytes = int(min(rounded_up(after_kill(limit.now, own), MIB), most_bytes))
        if max(limit.now, limit.amount or 0) >= needed_bytes:
            return one
        values = tuple(
            replace(v, amount=needed_bytes, action=Action.SET, reason=Reason.OOM_BUMP, clamps=())
            if v.resource is Resource.MEMORY and v.now is not None and max(v.now, v.amount or 0) < needed_bytes
            else v
            for v in one.values
        )
        return replace(one, values=values, heap=None)

    return tuple(raised(one) for one in recommendations)
