"""How long before a window its capacity is reserved, so that pods are running when the demand begins. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.scheduler_ext.reservations.model.settings import PlanSettings

CAPACITY_FREE_SECONDS: Final = 120.0
"""Time (p95) that batch pods take to leave when their memory is needed. CPU is given back at once. Longest usual
grace period of batch pods, with the time of its eviction."""

FEWEST_STARTS: Final = 3
"""Measured pod starts below which the setting stands in."""
_P95: Final = 0.95


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead and what it is made of, in seconds; measured: whether the pod start is this workload's own."""

    pod_start_seconds: float
    free_seconds: float
    scheduler_seconds: float
    period_seconds: float
    wish_seconds: float = 0.0
    measured: bool = False

    @property
    def seconds(self) -> int:
        """The sum of the parts and the plan's own lead, in whole seconds."""
        parts = (self.pod_start_seconds, self.free_seconds, self.scheduler_seconds, self.period_seconds)
        return math.ceil(sum(parts) + self.wish_seconds)

    def explain(self) -> str:
        """Return the lead as a sum of its parts, in words."""
        start = "measured" if self.measured else "assumed"
        return (
            f"{self.seconds} s = pod start {self.pod_start_seconds:.0f} ({start} p95) + capacity freed "
            f"{self.free_seconds:.0f} + scheduler {self.scheduler_seconds:.0f} + control period "
            f"{self.period_seconds:.0f} + plan's lead {self.wish_seconds:.0f}"
        )


def lead(wish_seconds: float, starts_seconds: Sequence[float], settings: PlanSettings) -> Lead:
    """Return how long before its window a plan's capacity has to be asked for.

    wish_seconds: the plan's own lead; starts_seconds: creation to ready of the workload's pods, as measured.
    Batch pods give CPU back at once (it is compressible) and memory by eviction: `room_free_seconds` is that lead.
    """
    valid_starts_seconds = [s for s in starts_seconds if math.isfinite(s) and s >= 0]
    measured = len(valid_starts_seconds) >= FEWEST_STARTS
    start = float(np.quantile(valid_starts_seconds, _P95)) if measured else settings.pod_start_seconds
    return Lead(
        start, CAPACITY_FREE_SECONDS, settings.scheduler_seconds, settings.interval_seconds, wish_seconds, measured
    )
