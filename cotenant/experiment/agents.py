"""The node agents in each step: how much CPU batch gets, and which batch pods are evicted for memory. Pure.

The suppression target and the choice of pods are the enforcer's own code. A step of five minutes is long compared with
its tick of a second, so that the target is reached within the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer import contract
from cotenant.enforcer.model.node_policy import Thresholds
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.eviction.fullness import MemoryTrend, best_effort_memory
from cotenant.enforcer.strategies.eviction.victims import Choices, choose
from cotenant.enforcer.strategies.suppression.suppress_target import headroom

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

SETTINGS: Final = BestEffortSettings()


def batch_cpu_millicores(capacity: Floats, online: Floats, policy: Thresholds) -> Floats:
    """Return the millicores that the node agents let batch pods use on each node, (n,), at least 0."""
    millicores = capacity.astype(np.int64), np.ceil(online).astype(np.int64)
    target = headroom(*millicores, policy.cpu_suppress_threshold_percent)
    batch_millicores: Floats = np.maximum(target, 0).astype(np.float64)
    return batch_millicores


def nodes_short_of_memory(capacity: Floats, used: Floats, policy: Thresholds) -> Indices:
    """Return the nodes whose agents may evict: memory use has reached the threshold, or too little memory is free."""
    percent = used * 100 // capacity
    emergency = capacity - used < capacity * SETTINGS.memory_emergency_percent / 100
    return np.flatnonzero((percent >= policy.memory_evict_threshold_percent) | emergency)


def jobs_to_evict(
    capacity_bytes: float, used_bytes: float, pods: Sequence[tuple[int, float]], policy: Thresholds
) -> list[int]:
    """Return the jobs whose batch pods a node's agent evicts now; `pods` has (job, bytes in use) of each there."""
    node = contract.NodeReading("node", (), int(capacity_bytes), max(int(capacity_bytes - used_bytes), 0))
    readings = []
    for job, in_use in pods:
        spec = contract.PodSpec(
            "batch", f"job-{job}", str(job), qos_class=QosClass.BE, priority_class=PriorityClass.BATCH
        )
        memory = contract.MemoryUse(int(in_use), int(in_use), int(in_use))
        readings.append(
            contract.PodReading(spec, contract.GroupReading("", contract.Level.POD, contract.CpuUse(0.0), memory))
        )
    observation = contract.Observation(0.0, 0.0, node, pods=tuple(readings))
    task, _ = best_effort_memory(observation, policy, MemoryTrend(), SETTINGS)
    if task is None:
        return []
    evictions, _ = choose([task], observation, Choices(), SETTINGS)
    return [int(eviction.uid) for eviction in evictions]
