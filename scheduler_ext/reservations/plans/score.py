"""How an occurrence went, from what was seen of it round by round. Pure.

`observe` adds one look to the progress that the plan's status keeps; `score` closes the account.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.plan import OccurrenceProgress, Plan, Score


@dataclass(frozen=True, slots=True)
class ReservationUse:
    """Present counts: reserved pods, of these used (the pod that took it is there), and pods that wait without one."""

    reserved: int
    used: int
    missed: int
    complete: bool
    """Whether all wanted capacity is there."""
    others_waiting: int | None = None
    """Pods of others that no node has place for and that fit into one pod's share; None: not known."""
    lent_cores: float | None = None
    """Cores of the reserved capacity in which batch runs; None: not known."""
    running: int | None = None
    """Pods of the workload beyond those that run anyway, with a reservation or without; None: not known."""

    @property
    def free(self) -> int:
        """Reservations that no pod uses."""
        return self.reserved - self.used

    @property
    def present(self) -> int:
        """Pods that need no capacity any more."""
        return self.used if self.running is None else self.running


def lent_cores(reserved_cores: float, batch: float, lendable: float) -> float:
    """Reserved cores of a node that batch uses: what batch requests beyond what could be lent without the reservation.

    reserved_cores: reserved and unused; batch: what batch pods request on the node; lendable: what the node offers
    them, the reserved cores included.
    """
    return min(reserved_cores, max(0.0, batch - max(0.0, lendable - reserved_cores)))


def observe(progress: OccurrenceProgress, use: ReservationUse, now_seconds: float, counts: bool) -> OccurrenceProgress:
    """The progress with the time since the last observation added; `counts`: whether the window has begun.

    What is seen now is taken for the whole time since the last look, which is one control period.
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
    """Return the score of the present occurrence, which ends now; ValueError for a plan without a window."""
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
