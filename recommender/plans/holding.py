"""How much room is kept from moment to moment: raised at once, given back slowly. Pure.

Less is held only when so much less is wanted that a forecast's flicker does not explain it, and not twice within a
short time; nothing at all is wanted only when every wanted pod is gone. The live controller and the replay share it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.settings.plans import PlanSettings
from recommender.plans.sizing import Counts


@dataclass(frozen=True, slots=True)
class Held:
    """Pods that room is kept for, and when that was last changed."""

    count: int
    changed_at_seconds: float = float("-inf")


def hold(held: Held, wanted: int, now_seconds: float, settings: PlanSettings) -> Held:
    """What to keep when `wanted` pods are wanted now."""
    if wanted > held.count:
        return Held(wanted, now_seconds)
    enough = wanted < held.count * (1 - settings.hysteresis_fraction) or (wanted == 0 and held.count > 0)
    if enough and now_seconds - held.changed_at_seconds >= settings.change_interval_seconds:
        return Held(wanted, now_seconds)
    return held


def replayed(wanted: Counts, step_seconds: float, settings: PlanSettings) -> Counts:
    """The same over slots, (n, T): what is kept when `wanted` was wanted slot by slot."""
    kept = np.zeros_like(wanted)
    for row, counts in enumerate(wanted.tolist()):
        held = Held(0)
        for slot, count in enumerate(counts):
            if count != held.count:
                held = hold(held, count, slot * step_seconds, settings)
            kept[row, slot] = held.count
    return kept
