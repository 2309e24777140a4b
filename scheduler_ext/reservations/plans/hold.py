"""How many pods are reserved from moment to moment: raised at once, released with hysteresis. Pure.

Less is held only when so much less is wanted that a forecast's flicker does not explain it, and not twice within a
short time; nothing at all is wanted only when every wanted pod is gone. The live controller and the replay share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.scheduler_ext.reservations.plans.size import Counts

HYSTERESIS_FRACTION: Final = 0.2
"""Capacity is released only when so much less of it is wanted; more is reserved at once. A release of a fifth is
above the forecast's own noise from hour to hour."""
CHANGE_INTERVAL_SECONDS: Final = 600.0
"""Shortest time between two changes of the reserved capacity. Longer than placing a pod and reading the next
metric."""


@dataclass(frozen=True, slots=True)
class ReservedPods:
    """Pods that capacity is kept for, and when that was last changed."""

    count: int
    changed_at_seconds: float = float("-inf")


def reserve_pods(current: ReservedPods, needed_pods: int, now_seconds: float) -> ReservedPods:
    """Return what to reserve when `needed_pods` pods are needed now.

    A higher need is followed at once. A lower need is followed only beyond the hysteresis, or at 0, and once
    `change_interval_seconds` have passed since the last change.
    """
    if needed_pods > current.count:
        return ReservedPods(needed_pods, now_seconds)
    enough = needed_pods < current.count * (1 - HYSTERESIS_FRACTION) or (needed_pods == 0 and current.count > 0)
    if enough and now_seconds - current.changed_at_seconds >= CHANGE_INTERVAL_SECONDS:
        return ReservedPods(needed_pods, now_seconds)
    return current


def replay_reserved_pods(needed_pods: Counts, step_seconds: float) -> Counts:
    """The same over slots, (n, T): the pods that are reserved for `needed_pods`, slot by slot."""
    reserved_pods = np.zeros_like(needed_pods)
    for row, counts in enumerate(needed_pods.tolist()):
        current, reserved = ReservedPods(0), []
        for slot, count in enumerate(counts):
            if count != current.count:
                current = reserve_pods(current, count, slot * step_seconds)
            reserved.append(current.count)
        reserved_pods[row] = reserved
    return reserved_pods
