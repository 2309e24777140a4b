"""Best effort leaves before the node runs out of memory.

    BEMemoryEvict : use * 100 // capacity >= memoryEvictThresholdPercent (70)
    release       = capacity * (use % - lower %) / 100, lower = threshold - 2 unless set
    order         : pods labelled BE; priority ascending, resident memory descending, name descending

MemoryEvict and MemoryAllocatableEvict are `fullness`. An emergency does not wait for the cool-down: less than
`memory_emergency_percent` is available, or all of it would be gone within the cool-down at the speed of this tick, in
use over the threshold. The kernel would then choose a victim, and does not know whom batch pods are there for.
Use is what the kernel does not count as available (MemAvailable), so that page cache is no use.
Source: Koordinator's koordlet, `memoryevict`; the emergency is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.base.resource import Resource
from cotenant.enforcer.contract import Observation
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.eviction.fullness import to_release, use_bounds
from cotenant.enforcer.strategies.eviction.victims import (
    MEMORY_COOLDOWN_SECONDS,
    Task,
    TaskName,
    best_effort_only,
    candidate,
    priority_value,
)


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """The available memory in the previous tick; None = no previous tick."""

    available_bytes: int | None = None


def best_effort_memory(
    observation: Observation, thresholds: Thresholds, trend: MemoryTrend, settings: BestEffortSettings
) -> tuple[Task | None, MemoryTrend]:
    """The task, None when there is enough memory; and what to remember."""
    after = MemoryTrend(observation.node.memory_available_bytes)
    threshold, lower = use_bounds(thresholds, Resource.MEMORY)
    if not thresholds.enable or threshold is None or observation.node.memory_total_bytes <= 0:
        return None, after
    amount, percent = to_release(observation, Resource.MEMORY, threshold, lower)
    # Bytes that are missing to what shall always be available.
    least = observation.node.memory_total_bytes * settings.memory_emergency_percent // 100
    short = max(least - observation.node.memory_available_bytes, 0)
    urgent = short > 0 or (amount > 0 and _runs_out(observation, trend))
    amount = max(amount, short)
    if amount <= 0:
        return None, after
    pods = (candidate(p) for p in observation.pods if best_effort_only(p.spec))
    by_name = sorted(pods, key=lambda c: c.pod.key, reverse=True)
    ordered = sorted(by_name, key=lambda c: (priority_value(c.pod), -c.use(Resource.MEMORY)))
    why = f"{percent} % of the node's memory is used, {threshold} % allowed" + (", and it runs out" if urgent else "")
    return Task(
        TaskName.BE_MEMORY, Resource.MEMORY, amount, why, ordered, lambda c: c.use(Resource.MEMORY), urgent=urgent
    ), after


def _runs_out(observation: Observation, trend: MemoryTrend) -> bool:
    """Return whether memory, falling as fast as since the last tick, ends within `memory_cooldown_seconds`."""
    available = observation.node.memory_available_bytes
    if trend.available_bytes is None or observation.elapsed_seconds <= 0:
        return False
    falls = (trend.available_bytes - available) / observation.elapsed_seconds
    return falls > 0 and available <= falls * MEMORY_COOLDOWN_SECONDS
