"""How many pods are reserved from moment to moment: raised at once, released with hysteresis. Pure.

Less is held only when so much less is wanted that a forecast's flicker does not explain it, and not twice within a
short time; nothing at all is wanted only when every wanted pod is gone. The live controller and the replay share it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.base.settings.sections.reservations import PlanSettings
from cotenant.scheduler_ext.reservations.plans.size import Counts


@dataclass(frozen=True, slots=True)
class ReservedPods:
    """Pods that capacity is kept for, and when that was last changed."""

    count: int
    changed_at_seconds: float = float("-inf")


def reserve_pods(current: ReservedPods, needed_pods: int, now_seconds: float, settings: PlanSettings) -> ReservedPods:
    """Return what to reserve when `needed_pods` pods are needed now.

    A higher need is followed at once. A lower need is followed only beyond the hysteresis, or at 0, and once
    `change_interval_seconds` have passed since the last change.
    """
    if needed_pods > current.count:
        return ReservedPods(needed_pods, now_seconds)
    enough = needed_pods < current.count * (1 - settings.hysteresis_fraction) or (
        needed_pods == 0 and current.count > 0
    )
    if enough and now_seconds - current.changed_at_seconds >= settings.change_interval_seconds:
        return ReservedPods(needed_pods, now_seconds)
    return current


def replay_reserved_pods(needed_pods: Counts, step_seconds: float, settings: PlanSettings) -> Counts:
    """The same over slots, (n, T): the pods that are reserved for `needed_pods`, slot by slot."""
    reserved_pods = np.zeros_like(needed_pods)
    for row, counts in enumerate(needed_pods.tolist()):
        current, reserved = ReservedPods(0), []
        for slot, count in enumerate(counts):
            if count != current.count:
                current = reserve_pods(current, count, slot * step_seconds, settings)
            reserved.append(current.count)
        reserved_pods[row] = reserved
    return reserved_pods
