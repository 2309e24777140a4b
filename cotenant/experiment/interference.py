"""A model of how batch work on a node slows its latency-sensitive pods down. Pure.

    p99 ratio = queueing * contention * memory

    queueing   : waiting for a CPU, of a queue with c servers (Sakasegawa's approximation of M/M/c):
                 1 + tail_weight * u^(sqrt(2 (c + 1)) - 1) / (c (1 - u)), u = online + preemption_leak * batch
    contention : hyper-threads, last-level cache and memory bandwidth, which no CPU weight divides:
                 1 + hardware_share * batch ratio
    memory     : direct reclaim as memory fills up: 1 + reclaim_penalty * max(0, (m - start) / (1 - start))

If a quota instead of a list of CPUs limits batch, this is multiplied by 1 + quota_penalty: threads that the quota
stopped return to all CPUs at once in each of its periods, whatever their weight.

Batch runs in the best-effort tier, whose weight is the smallest, so that latency-sensitive tasks lose little CPU time
to it (`preemption_leak`); what remains is shared hardware. Sources: H. Sakasegawa, "An approximation formula L_q = a
rho^b / (1 - rho)" (1977); D. Lo et al., "Heracles" (ISCA 2015), for shared hardware as the rest that CPU weights leave;
X. Zhang et al., "CPI2" (EuroSys 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

FULLEST: Final = 0.98
"""Highest utilisation with which the queueing formula is computed; near 1 the queue has no equilibrium."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Constants of the latency model, each a share or factor >= 0; the module describes their use.

    Those of CPU are fitted on a real node (`bench closed_loop_node`); those of memory reclaim are assumptions.
    """

    tail_weight: float = 3.6
    preemption_leak: float = 0
    hardware_share: float = 0.04
    quota_penalty: float = 0.42
    reclaim_penalty: float = 0.5
    reclaim_start: float = 0.9


def latency_multiplier(
    model: Interference, cores: Floats, online_ratio: Floats, batch_ratio: Floats, memory_ratio: Floats
) -> Floats:
    """Return the p99 latency of latency-sensitive pods divided by that of an idle node, (nodes,), at least 1.

    The ratios, clipped to 0..1, are (nodes,): shares of each node's `cores` used by latency-sensitive pods with the
    system (online) and by batch, and the share of its memory in use.
    """
    seen_load = np.clip(online_ratio + model.preemption_leak * batch_ratio, 0.0, FULLEST)
    waiting = seen_load ** (np.sqrt(2 * (cores + 1)) - 1) / (cores * (1 - seen_load))
    fullness = np.clip((memory_ratio - model.reclaim_start) / (1 - model.reclaim_start), 0.0, 1.0)
    multiplier: Floats = (
        (1 + model.tail_weight * waiting)
        * (1 + model.hardware_share * np.clip(batch_ratio, 0.0, 1.0))
        * (1 + model.reclaim_penalty * fullness)
    )
    return multiplier


def latency_ratio(
    model: Interference,
    cores: Floats,
    online_ratio: Floats,
    batch_ratio: Floats,
    memory_ratios: tuple[Floats, Floats],
    *,
    by_quota: bool = False,
) -> Floats:
    """Return the p99 latency with batch divided by that without it, (nodes,), at least 1 if batch adds memory.

    `memory_ratios` are with and without batch; with `by_quota` policy `cfsQuota` limits batch instead of `cpuset`.
    """
    alone = latency_multiplier(model, cores, online_ratio, np.zeros_like(batch_ratio), memory_ratios[1])
    stopped = 1 + model.quota_penalty * (batch_ratio > 0) * by_quota
    result: Floats = latency_multiplier(model, cores, online_ratio, batch_ratio, memory_ratios[0]) / alone * stopped
    return result


def batch_progress(model: Interference, online_ratio: Floats) -> Floats:
    """Return the work that batch does per second of CPU, relative to an idle node, (nodes,), 0..1.

    Services slow batch down on shared hardware as batch slows them down: 1 / (1 + hardware_share * online ratio).
    """
    progress: Floats = 1 / (1 + model.hardware_share * np.clip(online_ratio, 0.0, 1.0))
    return progress
