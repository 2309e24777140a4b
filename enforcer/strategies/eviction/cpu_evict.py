"""Detects that best effort gets so little CPU that some of its pods should run on another node.

BECPUEvict (satisfaction), over a window of cpuEvictTimeWindowSeconds with samples of at least a third of it:

    limit   = what best effort can get; request = batch-cpu of BE pods; satisfaction = limit / request
    fires   : limit < 1 core or use / limit >= cpuEvictBEUsageThresholdPercent (90), and satisfaction <= lower %
    release = request * upper % - limit, once of the window's means and once of now: the smaller result
    order   : priority ascending, then use / request descending

With evictByRealLimit, the limit is the smallest of the tier's CPUs, its quota, and what the others leave of the machine
(the last is our addition: a tier of the smallest weight starves without any limit); with evictByAllocatable it is the
node's batch-cpu. `fullness` has CPUEvict and CPUAllocatableEvict. Without present measurements no eviction is wanted.
Source: Koordinator's koordlet, `cpuevict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.enforcer.contract import Knob, Observation, Verdict
from cotenant.enforcer.decide.knobs import MICROSECONDS_PER_MILLICORE
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.strategies.eviction.victims import (
    EvictionCandidate,
    Task,
    TaskName,
    best_effort_only,
    candidate,
    priority_value,
)
from cotenant.enforcer.strategies.suppression.suppress_target import demand

DEFAULT_USAGE_PERCENT: Final = 90
LARGEST_WINDOW_SAMPLES: Final = 3600
LARGEST_LOWER_PERCENT: Final = 60
BATCH_CPU: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.CPU]


@dataclass(frozen=True, slots=True)
class Sample:
    """Best effort's CPU in one tick that lasted `seconds`; usage, limit and request in millicores."""

    at_seconds: float
    seconds: float
    usage: int
    limit: int
    request: int


def window(observation: Observation, thresholds: Thresholds, before: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return the samples of the policy's window, including this tick's if it is measured.

    A sample's limit is what best effort can use now, or with evictByAllocatable the node's batch-cpu.
    """
    span = max(thresholds.cpu_evict_time_window_seconds or 0, observation.elapsed_seconds)
    recent = [s for s in before if 0 <= observation.at_seconds - s.at_seconds < span]
    use, limit = demand(observation), None
    if use is not None and thresholds.cpu_evict_policy == "evictByAllocatable":
        limit = observation.node.allocatable.get(BATCH_CPU)
    elif use is not None:
        limit = real_limit(observation, use.capacity - use.online)
    if limit is not None:
        here = [p for p in observation.pods if best_effort_only(p.spec) and p.spec.phase in ("Running", "Pending")]
        pods = [candidate(p) for p in here]
        usage, request = sum(p.use(Resource.CPU) for p in pods), sum(_request(p) for p in pods)
        recent.append(Sample(observation.at_seconds, observation.elapsed_seconds, usage, limit, request))
    return tuple(recent)[-LARGEST_WINDOW_SAMPLES:]


def satisfaction(
    observation: Observation, thresholds: Thresholds, samples: Sequence[Sample]
) -> tuple[Task | None, tuple[Verdict, ...]]:
    """Return an eviction task if best effort gets too little of its requested CPU, and a verdict on invalid bounds."""
    lower = thresholds.cpu_evict_be_satisfaction_lower_percent
    upper = thresholds.cpu_evict_be_satisfaction_upper_percent
    if not thresholds.enable or lower is None or upper is None:
        return None, ()
    if not (0 < lower <= LARGEST_LOWER_PERCENT and lower < upper < 100):
        rule = "0 < lower <= 60 and lower < upper < 100"
        text = f"the policy's bounds for CPU satisfaction, {lower} % and {upper} %, violate {rule}: no eviction"
        return None, (Verdict(observation.node.name, "EvictionBoundsInvalid", text, warning=True),)
    span = max(thresholds.cpu_evict_time_window_seconds or 0, observation.elapsed_seconds)
    if not samples or samples[-1].at_seconds != observation.at_seconds or sum(s.seconds for s in samples) * 3 < span:
        return None, ()
    last, n = samples[-1], len(samples)
    # Means are cut off to whole millicores.
    usage, limit, request = (sum(getattr(s, name) for s in samples) // n for name in ("usage", "limit", "request"))
    threshold = thresholds.cpu_evict_be_usage_threshold_percent
    percent = DEFAULT_USAGE_PERCENT if threshold is None else threshold
    amounts = []  # millicores of requests that shall leave, by the means and by now; 0 when it does not fire
    for sample in (Sample(last.at_seconds, last.seconds, usage, limit, request), last):
        high = sample.limit < MILLICORES_PER_CORE or sample.usage * 100 >= sample.limit * percent
        fires = sample.request > 0 and high and sample.limit * 100 <= sample.request * lower
        amounts.append(sample.request * upper // 100 - sample.limit if fires else 0)
    if min(amounts) <= 0:
        return None, ()
    pods = [candidate(p) for p in observation.pods if best_effort_only(p.spec)]
    with_figures = (c for c in pods if c.uses.get(Resource.CPU) is not None)
    ordered = sorted(
        with_figures, key=lambda c: (priority_value(c.pod), -c.use(Resource.CPU) / max(_request(c), 1), c.pod.key)
    )
    why = f"best effort can use {limit} m of the {request} m it requested, and uses {usage} m"
    return Task(TaskName.BE_CPU, Resource.CPU, min(amounts), why, ordered, _request, best_effort_only), ()


def _request(candidate: EvictionCandidate) -> int:
    return candidate.requests[Resource.CPU]


def real_limit(observation: Observation, left_millicores: int) -> int:
    """Return the millicores that best effort can get: by its CPUs, its quota, and what other pods leave."""
    tier = observation.best_effort_root
    knobs = tier.knobs if tier is not None else {}
    bounds = [max(left_millicores, 0)]
    quota, cpus = knobs.get(Knob.CPU_QUOTA), knobs.get(Knob.CPUSET_CPUS)
    if isinstance(quota, int) and quota > 0:
        bounds.append(quota // MICROSECONDS_PER_MILLICORE)
    try:
        count = len(parse_cpus(str(cpus))) if cpus else 0
    except UsageError:
        count = 0
    if count:
        bounds.append(MILLICORES_PER_CORE * count)
    return min(bounds)
