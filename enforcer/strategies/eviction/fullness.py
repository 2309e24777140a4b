"""Evictions from a node whose usage, or whose mid or batch requests, exceed a threshold; for CPU and memory. Pure.

    BEMemoryEvict                : as MemoryEvict, of pods labelled BE, threshold memoryEvictThresholdPercent (70);
                                   order: priority ascending, resident memory descending, name descending
    CPUEvict, MemoryEvict        : if use % (truncated) >= threshold, release capacity * (use % - lower %) / 100
    ...AllocatableEvict          : if requested / allocatable of mid or of batch > threshold %,
                                   release requested - lower % * allocatable; allocatable 0 counts as 1
    candidates                   : label eviction-enabled "true", priority <= the policy's threshold for it
    order                        : eviction-priority, priority, sub-priority ascending; then use (request) descending

If `lower` is not set, it is the threshold - 2; for ...AllocatableEvict it is 100, or the threshold if that is less. A
task is off if its threshold, or the highest priority of pods that it may evict, is not set. A node that offers no mid
or no batch resource at all (the manager withdraws them without fresh metrics) is not a node that offers 0: no pod is
evicted for that class.

Evictions in a memory emergency do not wait for the cool-down, because the kernel would choose a victim without knowing
which pods are batch. In an emergency, less than `memory_emergency_percent` is available; or usage is over the
threshold, and all memory would be used up within the cool-down at the rate of this tick. Memory usage is what the
kernel does not count as available (MemAvailable), so page cache is not usage. The emergency is our addition. Source:
Koordinator's koordlet, `cpuevict` and `memoryevict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import Observation, PodSpec, Verdict
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.eviction.victims import (
    BANDS,
    MEMORY_COOLDOWN_SECONDS,
    Task,
    TaskName,
    best_effort_only,
    candidate,
    opted_in,
    priority_value,
    rank,
)

LOWER_GAP_PERCENT: Final = 2
ALLOCATABLE_LOWER_PERCENT: Final = 100
_BOUNDS: Final = ("threshold", "lower")
_BY_USE: Final = {Resource.CPU: TaskName.CPU, Resource.MEMORY: TaskName.MEMORY}
_BY_ALLOCATABLE: Final = {Resource.CPU: TaskName.CPU_ALLOCATABLE, Resource.MEMORY: TaskName.MEMORY_ALLOCATABLE}


def used_and_total(observation: Observation, resource: Resource) -> tuple[int | None, int]:
    """Return the machine's used and total amount of a resource; the used amount is None if not known."""
    node = observation.node
    if resource is Resource.CPU:
        return (None if node.cpu.millicores is None else int(node.cpu.millicores)), node.cpu_millicores
    return (node.memory_total_bytes - node.memory_available_bytes or None), node.memory_total_bytes


def to_release(observation: Observation, resource: Resource, threshold: int, lower: int | None) -> tuple[int, int]:
    """Return the amount to release, 0 below the threshold, and usage in percent; ignore a `lower` >= `threshold`."""
    amount, capacity = used_and_total(observation, resource)
    if amount is None or capacity <= 0:
        return 0, 0
    percent = amount * 100 // capacity
    bound = threshold - LOWER_GAP_PERCENT if lower is None or lower >= threshold else lower
    return (capacity * max(percent - max(bound, 0), 0) // 100 if percent >= threshold else 0), percent


def by_use(observation: Observation, thresholds: Thresholds, resource: Resource) -> Task | None:
    """Return an eviction task if the node's usage reaches the threshold; None if not, or if the threshold is off."""
    highest = thresholds.evict_enabled_priority_threshold
    threshold, lower = bounds(thresholds, resource.value)
    if not thresholds.enable or threshold is None or highest is None:
        return None
    amount, percent = to_release(observation, resource, threshold, lower)
    if amount <= 0:
        return None
    pods = [candidate(p) for p in observation.pods if opted_in(p.spec, highest)]
    with_figures = (c for c in pods if c.uses.get(resource) is not None)
    ordered = sorted(with_figures, key=lambda c: (*rank(c.pod), -c.use(resource), c.pod.key))
    why = f"{percent} % of the node's {resource} is used, {threshold} % allowed"
    return Task(_BY_USE[resource], resource, amount, why, ordered, lambda c: c.use(resource))


def bounds(thresholds: Thresholds, measure: str) -> tuple[int | None, int | None]:
    """Return threshold and lower bound in percent: of usage for `measure` "cpu", of requests for "cpu_allocatable"."""
    threshold, lower = (getattr(thresholds, f"{measure}_evict_{name}_percent") for name in _BOUNDS)
    return threshold, lower


def by_allocatable(observation: Observation, thresholds: Thresholds, resource: Resource) -> Iterator[Task]:
    """Yield tasks that evict opted-in pods, down to the lower bound, if mid or batch requests exceed the threshold."""
    highest = thresholds.allocatable_evict_priority_threshold
    threshold, lower = bounds(thresholds, f"{resource.value}_allocatable")
    if not thresholds.enable or threshold is None or highest is None:
        return
    bound = min(ALLOCATABLE_LOWER_PERCENT if lower is None else lower, threshold)
    for cls, band in BANDS.items():
        allocatable = observation.node.allocatable.get(EXTENDED_RESOURCES[band, resource])
        if allocatable is None:
            continue
        offered = max(allocatable, 1)
        mine = (p for p in observation.pods if _belongs_to_class(cls, p.spec))
        pods = [candidate(p) for p in mine if p.spec.phase in ("Running", "Pending")]
        requested = sum(c.requests[resource] for c in pods)
        amount = requested - bound * offered // 100
        if requested * 100 > threshold * offered and amount > 0:
            willing = [c for c in pods if opted_in(c.pod, highest)]
            ordered = sorted(willing, key=lambda c: (*rank(c.pod), -c.requests[resource], c.pod.key))
            why = f"{cls} requests are {requested * 100 // offered} % of what the node offers, {threshold} % allowed"
            name, counts = _BY_ALLOCATABLE[resource], partial(_belongs_to_class, cls)
            yield Task(name, resource, amount, why, ordered, lambda c: c.requests[resource], counts)


def withdrawn_classes(observation: Observation, thresholds: Thresholds) -> Iterator[Verdict]:
    """Yield a verdict if a mid or batch resource with a threshold is requested by pods, but not offered by the node."""
    for resource in Resource:
        if not thresholds.enable or bounds(thresholds, f"{resource.value}_allocatable")[0] is None:
            continue
        for cls, band in BANDS.items():
            name = EXTENDED_RESOURCES[band, resource]
            mine = (p for p in observation.pods if _belongs_to_class(cls, p.spec))
            requested = any(candidate(p).requests[resource] for p in mine)
            if requested and name not in observation.node.allocatable:
                text = f"pods request {name}, which the node does not offer now: no pod is evicted for it"
                yield Verdict(observation.node.name, "ClassWithdrawn", text)


def _belongs_to_class(cls: PriorityClass, pod: PodSpec) -> bool:
    return pod.effective_priority is cls


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """The available memory in the previous tick, in bytes; None if there was no previous tick."""

    available_bytes: int | None = None


def best_effort_memory(
    observation: Observation, thresholds: Thresholds, trend: MemoryTrend, settings: BestEffortSettings
) -> tuple[Task | None, MemoryTrend]:
    """Return a task that evicts best-effort pods, None if there is enough memory, and the state for the next tick."""
    after = MemoryTrend(observation.node.memory_available_bytes)
    threshold, lower = bounds(thresholds, Resource.MEMORY.value)
    if not thresholds.enable or threshold is None or observation.node.memory_total_bytes <= 0:
        return None, after
    amount, percent = to_release(observation, Resource.MEMORY, threshold, lower)
    # Bytes that are missing to what shall always be available.
    least = observation.node.memory_total_bytes * settings.memory_emergency_percent // 100
    available = observation.node.memory_available_bytes
    short, falls = max(least - available, 0), 0.0
    if trend.available_bytes is not None and observation.elapsed_seconds > 0:
        falls = (trend.available_bytes - available) / observation.elapsed_seconds
    # Falling as fast as since the last tick, memory ends before the next eviction for it may be asked for.
    runs_out = falls > 0 and available <= falls * MEMORY_COOLDOWN_SECONDS
    urgent = short > 0 or (amount > 0 and runs_out)
    amount = max(amount, short)
    if amount <= 0:
        return None, after
    pods = (candidate(p) for p in observation.pods if best_effort_only(p.spec))
    by_name = sorted(pods, key=lambda c: c.pod.key, reverse=True)
    ordered = sorted(by_name, key=lambda c: (priority_value(c.pod), -c.use(Resource.MEMORY)))
    why = f"{percent} % of the node's memory is used, {threshold} % allowed{', and memory runs out' if urgent else ''}"
    name, memory = TaskName.BE_MEMORY, Resource.MEMORY
    return Task(name, memory, amount, why, ordered, lambda c: c.use(memory), urgent=urgent), after
