"""What is not proposed while part of the history could not be read: nothing is lowered or called idle. Pure.

A peak, or a kill for lack of memory, may lie in the part that is missing; a raise is as well founded as before, and so
is a finding of what was seen, which says how much was not. A forecast of what a node can lend may be too low: its
amounts say so, and it does not decide alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.colocation.reclaim_policies import TERMS, Reclaimable
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.recommender.base import withheld
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Action, Recommendation, Value

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
REST_ON_LITTLE_USE: Final = frozenset(
    {
        *(FindingKind.IDLE_WORKLOAD, FindingKind.IDLE_NODE),
        *(FindingKind.IDLE_GPU, FindingKind.OVERSIZED_GPU, FindingKind.UNMEASURED_GPU),
    }
)
"""Kinds that state that something was not used."""
NODE_FORECASTS_REST_ON: Final[Mapping[Resource, frozenset[Signal]]] = {
    Resource.CPU: frozenset({Signal.CPU_USAGE_MEAN, Signal.NODE_CPU_USAGE_MEAN}),
    Resource.MEMORY: frozenset({Signal.MEMORY_WORKING_SET_MAX, Signal.NODE_MEMORY_WORKING_SET_MAX}),
}
NOTE: Final = "part of the history behind the forecast could not be read: the peak may be higher"


def without_decreases(
    recommendations: Sequence[Recommendation], unread: Collection[Signal]
) -> tuple[Recommendation, ...]:
    """The recommendations with each decrease that rests on a signal of `unread` withheld, in their order.

    A request that moved together with an autoscaler's target is withheld too: the pair may take capacity away.
    """
    affected = {resource for resource, signals in RESTS_ON.items() if not signals.isdisjoint(unread)}
    if not affected:
        return tuple(recommendations)
    # A heap goes only with the memory request.
    return tuple(
        replace(
            r,
            values=tuple(_withhold_unfounded_value(v, affected) for v in r.values),
            heap=None if r.heap is not None and r.heap.change < 0 and Resource.MEMORY in affected else r.heap,
        )
        for r in recommendations
    )


def founded_findings(
    findings: Iterable[ClusterFinding], unread_seconds: Mapping[Signal, int]
) -> tuple[ClusterFinding, ...]:
    """The findings in their order, less those that something was not used where that may lie in what is missing.

    The others say in their figures how many hours of a signal behind them were not read.
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
    """Return whether part of the signals that a node's forecast of the resource rests on could not be read."""
    return not NODE_FORECASTS_REST_ON[resource].isdisjoint(unread)


def with_incomplete_noted(amounts: Sequence[Reclaimable], unread: Collection[Signal]) -> tuple[Reclaimable, ...]:
    """The amounts that nodes can lend; those with a term of an incomplete forecast say so in their note."""
    return tuple(_add_forecast_note(a) if node_forecast_incomplete(a.resource, unread) else a for a in amounts)


def _add_forecast_note(amount: Reclaimable) -> Reclaimable:
    if not any(TERMS[name].from_forecast for name in amount.terms if name in TERMS):
        return amount
    return replace(amount, note=f"{amount.note}; {NOTE}" if amount.note else NOTE)


def _withhold_unfounded_value(value: Value, affected: Collection[Resource]) -> Value:
    lowered = value.change is not None and value.change < 0
    if value.resource not in affected or value.action is not Action.SET:
        return value
    if not lowered and value.reason is not Reason.HPA_SOLVED:
        return value
    return withheld(value.resource, value.field, value.now, Reason.HISTORY_INCOMPLETE, value.inputs)
