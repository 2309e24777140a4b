"""What is not proposed while part of the history could not be read: nothing is lowered. Pure.

A peak, or a kill for lack of memory, may lie in the part that is missing; a raise is as well founded as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.model.reasons import Reason
from cotenant.model.recommendation import Action, Recommendation, Value
from cotenant.model.resource import Resource
from cotenant.model.usage import Signal
from recommender.base import withheld

RESTS_ON: Final[Mapping[Resource, frozenset[Signal]]] = {
    Resource.CPU: frozenset({Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN}),
    Resource.MEMORY: frozenset({Signal.MEMORY_WORKING_SET_MAX, Signal.OOM_KILLS}),
}
"""Signals without which a smaller amount of a resource is not founded."""


def without_decreases(
    recommendations: Sequence[Recommendation], unread: Collection[Signal]
) -> tuple[Recommendation, ...]:
    """The recommendations with each decrease that rests on a signal of `unread` withheld, in their order.

    A request that moved together with an autoscaler's target is withheld too: the pair may take capacity away.
    """
    affected = {resource for resource, signals in RESTS_ON.items() if not signals.isdisjoint(unread)}
    if not affected:
        return tuple(recommendations)
    return tuple(replace(r, values=tuple(_founded(v, affected) for v in r.values)) for r in recommendations)


def _founded(value: Value, affected: Collection[Resource]) -> Value:
    lowered = value.change is not None and value.change < 0
    if value.resource not in affected or value.action is not Action.SET:
        return value
    if not lowered and value.reason is not Reason.HPA_SOLVED:
        return value
    return withheld(value.resource, value.field, value.now, Reason.HISTORY_INCOMPLETE, value.inputs)
