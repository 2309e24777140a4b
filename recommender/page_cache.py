"""Memory is not raised for pages of files that fill a limit: the kernel gives them back when it needs them. Pure.

A process that reads more files than its limit holds has a working set as large as the limit, whatever that is: each
raise is filled again. What the kernel cannot take back (`PodRow.held`) tells what the container needs. A kill for lack
of memory says that it needs more, whatever the pages are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.base import withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

LEAST_HELD: Final = 0.5
"""Share of the limit from which on what is held is the reason to raise it."""


def without_cache_raises(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """The recommendations, in their order, without raises of memory for pages that the kernel gives back."""
    held: dict[tuple[str, str, str], int] = {}
    for row in evidence.inventory.pod_rows:
        held |= {(row.namespace, row.name, container): amount for container, amount in row.held.items()}
    owners = evidence.inventory.owners() if held else {}
    most: dict[object, int] = {}
    for (namespace, pod, container), amount in held.items():
        key = owners.get((namespace, pod)), container
        most[key] = max(most.get(key, 0), amount)
    killed = {c for c, kills in zip(evidence.containers, evidence.oom_kills, strict=True) if kills}

    def checked(one: Recommendation) -> Recommendation:
        amount = most.get((one.container.workload, one.container.container))
        limit = evidence.now(evidence.containers.index(one.container), Resource.MEMORY, Field.LIMIT) if amount else None
        if amount is None or not limit or amount >= LEAST_HELD * limit or one.container in killed:
            return one
        heap = one.heap if one.heap is None or one.heap.change <= 0 else None
        return replace(one, values=tuple(map(_without_raise, one.values)), heap=heap)

    return [checked(one) for one in recommendations] if most else list(recommendations)


def _without_raise(value: Value) -> Value:
    raised = value.resource is Resource.MEMORY and value.action is Action.SET and (value.change or 0) > 0
    return withheld(value.resource, value.field, value.now, Reason.PAGE_CACHE, value.inputs) if raised else value
