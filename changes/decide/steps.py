"""Split a large cut into steps: the first one now, the others after the cool-down. Pure.

The largest cut of one step is a guardrail (`cpu-step`, `memory-step`); a person who overrides it takes the whole cut at
once. The last but one step leaves no rest that another guardrail (`dead-band`) would reject as too small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from cotenant.base.resource import MIB, Resource
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.checks.capacity import RunningRequests, containers
from cotenant.changes.decide.field_changes import on_new_pods, template_containers
from cotenant.changes.decide.heap_flags import rebased_heap
from cotenant.changes.decide.rule import STEP_RULES
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Clamp, Field, Recommendation, Value
from cotenant.recommender.model.savings import request_now, total_change
from cotenant.recommender.model.steps import NextStep

COARSE_BYTES: Final = 64 * MIB
"""Size from which memory changes in steps of whole MiB."""
ValueKey = tuple[Resource, Field]
MOST_STEPS: Final = 20
"""Largest number of steps that are planned."""
ROUNDING: Final = 1e-6


def least_amount(now: int, most_cut: float) -> int:
    """Return the lowest request after one step, in the unit of `now`; `most_cut` is a share 0 to 1."""
    return ceil(now * (1 - most_cut) - ROUNDING)


def step_base(recommendation: Recommendation, resource: Resource) -> int:
    """Return the request that a cut starts from; while a resize is deferred, at most the mean request in force now."""
    now, running = request_now(recommendation, resource), recommendation.running.get(resource)
    return min(now, running.mean_in_force) if running and running.in_force < running.counted else now


def least_step(recommendation: Recommendation, resource: Resource, settings: GuardrailSettings) -> int:
    """Return the lowest request (millicores or bytes) that one step may set, at most the running pods' mean request.

    A request above that mean would raise the sum over the pods.
    """
    least = least_amount(step_base(recommendation, resource), largest_cut(resource, settings))
    running = recommendation.running.get(resource)
    return min(least, running.mean_in_force) if running else least


def largest_cut(resource: Resource, settings: GuardrailSettings) -> float:
    """Return the largest share of a request that one step may cut."""
    return settings.most_cpu_cut if resource is Resource.CPU else settings.most_memory_cut


def first_step(
    recommendations: Sequence[Recommendation], settings: GuardrailSettings, at_once: Collection[str] = ()
) -> tuple[Recommendation, ...]:
    """Return the recommendations with large cuts reduced to their first step, and limits raised to the requests.

    `at_once` names overridden guardrails on step sizes: cuts of their resource are not reduced. The last clamp of a
    reduced value has the name of its guardrail. Savings in money follow the requests.
    """
    return tuple(_first_of(recommendation, settings, at_once) for recommendation in recommendations)


def later_steps(
    recommendations: Sequence[Recommendation],
    first: Sequence[Recommendation],
    settings: GuardrailSettings,
    now_seconds: float,
) -> tuple[NextStep, ...]:
    """Return the steps that follow the first one: one entry per request and step, the earliest first."""
    steps = []
    for recommendation, first_recommendation in zip(recommendations, first, strict=True):
        for resource, amounts in _requests(recommendation, first_recommendation):
            for number, (now, amount) in enumerate(_walk(resource, *amounts, settings), 1):
                from_seconds = now_seconds + number * settings.cool_down_hours * HOUR_SECONDS
                steps.append(NextStep(from_seconds, recommendation.container.container, resource, now, amount))
    return tuple(sorted(steps, key=lambda step: step.from_seconds))


def steps_count(
    recommendations: Sequence[Recommendation], first: Sequence[Recommendation], settings: GuardrailSettings
) -> int:
    """Return the number of steps of one workload, the first included; a step changes all containers together."""
    return 1 + len({step.from_seconds for step in later_steps(recommendations, first, settings, 0.0)})


def is_out_of_reach(recommendation: Recommendation, resource: Resource, settings: GuardrailSettings) -> bool:
    """Return whether a cut needs several steps, but the first one would be too small for the guardrail `dead-band`."""
    request, now = recommendation.value(resource, Field.REQUEST), step_base(recommendation, resource)
    if request is None or request.action is not Action.SET or not now or request.amount is None:
        return False
    is_too_far = request.amount < least_amount(now, largest_cut(resource, settings))
    return is_too_far and next(_walk(resource, now, request.amount, settings), None) is None


def planned_steps(
    settings: GuardrailSettings, recommendations: Sequence[Recommendation], now_seconds: float
) -> tuple[NextStep, ...]:
    """Return all steps of cuts that need several, the first one due now; empty if everything changes at once."""
    first = first_step(recommendations, settings)
    first_steps = [
        NextStep(now_seconds, r.container.container, resource, request_now(r, resource), amount)
        for r, step in zip(recommendations, first, strict=True)
        for resource, (amount, _) in _requests(r, step)
    ]
    return (*first_steps, *later_steps(recommendations, first, settings, now_seconds))


def rebase_on_live(
    live: Mapping[str, Any], running: RunningRequests, recommendations: Sequence[Recommendation]
) -> tuple[Recommendation, ...]:
    """Return the recommendations computed again from the present values, which an earlier step may have changed.

    Present requests are the highest of the running pods (`running_requests`); limits, and requests of a workload
    without pods, are what new pods get from the template or its annotation. Unreadable values stay as scanned.
    """
    kind = recommendations[0].container.workload.kind
    new_pods = [{"name": name, "resources": resources} for name, resources in on_new_pods(live, kind)]
    present = {c.name: c for c in containers({"containers": new_pods})}

    def now(name: str, value: Value) -> Value:
        container = present.get(name)
        if container is None or "hpa" in value.inputs:
            return value
        amounts = container.requests if value.field is Field.REQUEST else container.limits
        amount = amounts.get(value.resource)
        if value.field is Field.REQUEST and amount is not None:
            amount = running[name, value.resource][0] if (name, value.resource) in running else amount
        return replace(value, now=amount)

    template = template_containers(live, kind)

    def over_now(recommendation: Recommendation) -> Recommendation:
        name, proposed = recommendation.container.container, recommendation.heap
        heap = rebased_heap(template[name], proposed) if proposed and name in template else proposed
        values = tuple(now(name, v) for v in recommendation.values)
        if heap and proposed and heap.amount_bytes > proposed.amount_bytes:  # somebody has given it a larger one
            values = tuple(({(v.resource, v.field): v for v in values} | _heap_floor_values(values, heap)).values())
        limits = present[name].limits if name in present else recommendation.present_limits
        of_pods = {r: running[name, r] for r in Resource if (name, r) in running}
        sums = {r: total for r, (highest, total) in of_pods.items() if total.differs_from(highest)}
        return replace(recommendation, values=values, heap=heap, present_limits=limits, running=sums)

    return tuple(_rescale_savings(r, over_now(r)) for r in recommendations)


def _first_of(recommendation: Recommendation, settings: GuardrailSettings, at_once: Collection[str]) -> Recommendation:
    values = {(v.resource, v.field): v for v in recommendation.values}
    for resource in Resource:
        request = values.get((resource, Field.REQUEST))
        if request is None or STEP_RULES[resource] in at_once:
            continue
        target = request.amount
        if not request.changes_template or request.action is not Action.SET or target is None:
            continue
        # A request that is set first falls from the limit, which the scheduler has counted until then.
        _, amount = next(_walk(resource, step_base(recommendation, resource), target, settings), (0, target))
        if amount > target and resource in recommendation.running:
            amount = max(target, min(amount, least_step(recommendation, resource, settings)))
        if amount == target:
            continue
        values[resource, Field.REQUEST] = _with_step_amount(request, amount)
        limit = values.get((resource, Field.LIMIT))
        if limit is not None and limit.action is Action.SET and limit.amount is not None and limit.amount < amount:
            values[resource, Field.LIMIT] = _with_step_amount(limit, amount)
    # The heap after one step, which is as large as one of the memory request.
    heap = recommendation.heap
    if heap is not None and STEP_RULES[Resource.MEMORY] not in at_once:
        least = -(-least_amount(heap.now_bytes, settings.most_memory_cut) // MIB) * MIB
        heap = replace(heap, amount_bytes=max(heap.amount_bytes, min(least, heap.now_bytes)))
    if heap is not None and heap != recommendation.heap:
        values |= _heap_floor_values(values.values(), heap)
    return _rescale_savings(recommendation, replace(recommendation, values=tuple(values.values()), heap=heap))


def _heap_floor_values(values: Iterable[Value], heap: HeapProposal) -> dict[ValueKey, Value]:
    """Return memory values raised to hold a heap above the proposed one; a request is not raised above now."""
    raised_values = {}
    for value in values:
        if value.resource is not Resource.MEMORY or value.action is not Action.SET or value.amount is None:
            continue
        is_limit = value.field is Field.LIMIT
        least = heap.floor_bytes if is_limit else min(heap.floor_bytes, value.now or heap.floor_bytes)
        if value.amount < least:
            raised_values[Resource.MEMORY, value.field] = _with_step_amount(value, least)
    return raised_values


def _walk(resource: Resource, now: int, target: int, settings: GuardrailSettings) -> Iterator[tuple[int, int]]:
    """Yield the request before and after each step.

    A step is smaller than the largest if that would leave a rest within the dead band, so that the last one passes. It
    ends before a step within the dead band, and at amounts too small to be cut by the share.
    """
    least_change = settings.least_change
    for _ in range(MOST_STEPS):
        least = least_amount(now, largest_cut(resource, settings))
        unit = MIB if resource is Resource.MEMORY and now >= COARSE_BYTES else 1
        amount = target if target >= least else -(-least // unit) * unit
        if amount >= now or (now - amount) / now < least_change:
            return
        if amount and 0 < (amount - target) / amount < least_change:
            higher = ceil(target / (1 - least_change) / unit - ROUNDING) * unit
            higher += unit if (higher - target) / higher < least_change else 0
            amount = higher if (now - higher) / now >= least_change else amount
        yield now, amount
        now = amount


def _requests(recommendation: Recommendation, start: Recommendation) -> Iterator[tuple[Resource, tuple[int, int]]]:
    """Yield each stepped request: the resource, and the amounts of the first step and of the full proposal."""
    for resource in Resource:
        target, first = (r.value(resource, Field.REQUEST) for r in (recommendation, start))
        if target and first and first.amount is not None and target.amount is not None and first.amount > target.amount:
            yield resource, (first.amount, target.amount)


def _with_step_amount(value: Value, amount: int) -> Value:
    clamp = Clamp(STEP_RULES[value.resource], value.amount or 0, amount)
    return replace(value, amount=amount, clamps=(*value.clamps, clamp))


def _rescale_savings(before: Recommendation, after: Recommendation) -> Recommendation:
    """Return the recommendation with its savings in money scaled to its new requests.

    An unset request counts as the scheduler counts it.
    """
    if before.monthly_saving is None:
        return after
    savings = {}
    for resource, money in before.monthly_savings.items():
        old, new = (total_change(recommendation, resource) for recommendation in (before, after))
        savings[resource] = money * (new or 0) / old if old else money
    return replace(after, monthly_saving=sum(savings.values()), monthly_savings=savings) if savings else after
