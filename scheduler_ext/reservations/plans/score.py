"""Scores an occurrence from what the controller observed of it in each run. Pure.

`observe` adds one observation to the progress in the plan's status; `score` computes the final score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.plan import OccurrenceProgress, Plan, Score


@dataclass(frozen=True, slots=True)
class ReservationUse:
    """Numbers of pods of a plan now: `reserved` have reserved capacity, `used` use it, `missed` wait without it."""

    reserved: int
    used: int
    missed: int
    complete: bool
    """Whether all wanted capacity is reserved."""
    others_waiting: int | None = None
    """Pods of other workloads that found no node and would fit into the capacity of one pod; None if unknown."""
    lent_cores: float | None = None
    """Cores of the reserved capacity that batch pods use; None if unknown."""
    running: int | None = None
    """Pods of the workload beyond the baseline pods, with or without a reservation; None if unknown."""

    @property
    def free(self) -> int:
        """Number of Reservations that no pod uses."""
        return self.reserved - self.used

    @property
    def present(self) -> int:
        """Number of pods that run beyond the baseline pods; if unknown, those that use a Reservation."""
        return self.used if self.running is None else self.running


def lent_cores(reserved_cores: float, batch: float, lendable: float) -> float:
    """Return how many of a node's reserved cores batch pods use: their requests beyond its other lendable cores.

    `reserved_cores` are reserved and unused, `batch` are the cores that batch pods request on the node, and `lendable`
    the cores that it offers them, including `reserved_cores`.
    """
    return min(reserved_cores, max(0.0, batch - max(0.0, lendable - reserved_cores)))


def observe(progress: OccurrenceProgress, use: ReservationUse, now_seconds: float, counts: bool) -> OccurrenceProgress:
    """Return the progress after the observation `use`; missed pods are counted only if `counts` (the window has begun).

    The numbers in `use` are assumed for the whole time since the last observation, which is one control period.
    """
    passed = max(0.0, now_seconds - progress.as_of_seconds) if progress.as_of_seconds else 0.0
    missed = use.missed if counts else 0
    available = progress.available_at_seconds
    lent, others = progress.lent_core_seconds, use.others_waiting
    if use.lent_cores is not None:
        lent = (lent or 0.0) + passed * use.lent_cores
    if progress.most_others_waiting is not None:
        others = max(progress.most_others_waiting, others or 0)
    return replace(
        progress,
        as_of_seconds=now_seconds,
        reserved_pod_seconds=progress.reserved_pod_seconds + passed * use.reserved,
        used_pod_seconds=progress.used_pod_seconds + passed * use.used,
        missed_pod_seconds=progress.missed_pod_seconds + passed * missed,
        most_reserved=max(progress.most_reserved, use.reserved),
        most_used=max(progress.most_used, use.used),
        most_missed=max(progress.most_missed, missed),
        most_needed=max(progress.most_needed or 0, use.used + missed),
        most_others_waiting=others,
        available_at_seconds=now_seconds if available is None and use.complete else available,
        lent_core_seconds=lent,
    )


def score(plan: Plan, end_seconds: float, price_per_core_hour: float) -> Score:
    """Return the score of the present occurrence, which ends at `end_seconds`; ValueError if the plan has no window."""
    progress, window = plan.status.progress, plan.status.window
    if window is None:
        raise ValueError(f"plan {plan.key} has no occurrence to score")
    idle = (progress.reserved_pod_seconds - progress.used_pod_seconds) / HOUR_SECONDS * plan.cores_per_pod
    needed = progress.used_pod_seconds + progress.missed_pod_seconds
    lent = progress.lent_core_seconds
    return Score(
        start_seconds=window.start_seconds,
        end_seconds=max(end_seconds, window.start_seconds + 1),
        reserved=progress.most_reserved,
        used=progress.most_used,
        missed=progress.most_missed,
        hit_ratio=plan_scores.hit_ratio(progress.used_pod_seconds, progress.reserved_pod_seconds),
        coverage=plan_scores.coverage(progress.used_pod_seconds, needed),
        idle_core_hours=max(0.0, idle),
        cost=max(0.0, idle) * price_per_core_hour,
        missed_core_minutes=progress.missed_pod_seconds / 60 * plan.cores_per_pod,
        lead_seconds=plan_scores.lead_seconds(window.start_seconds, progress.available_at_seconds),
        lent_core_hours=None if lent is None else lent / HOUR_SECONDS,
        planned=plan.count,
        needed=progress.most_needed,
        others_waiting=progress.most_others_waiting,
    )
