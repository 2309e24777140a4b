"""What a plan would have done: "would have reserved 310 core-hours, 84 % used; 2 of 11 peaks missed". Pure.

need: pods beyond what runs anyway; reserved: pods that capacity was reserved for; both (n, T) or (T,) on one grid, NaN
need = not known and not counted. Baselines: nothing, a static headroom, last week's same time as a cron would hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.text import counted, percent
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model import plan_scores

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class PlanAccount:
    """The back-test account of one plan over a period, in pod-hours unless a field says otherwise.

    peaks: runs of slots in which pods were needed; missed_peaks: those of which less than nine tenths found capacity.
    """

    needed: float
    reserved: float
    used: float
    idle: float
    missed: float
    peaks: int
    missed_peaks: int

    @property
    def coverage(self) -> float:
        """Share of the needed pod-time that found capacity; 1 when nothing was needed."""
        return plan_scores.coverage(self.used, self.needed)

    @property
    def hit_ratio(self) -> float:
        """Share of the held pod-time that was used; 0 when nothing was held."""
        return plan_scores.hit_ratio(self.used, self.reserved)

    def cost(self, miss_cost_ratio: float) -> float:
        """Idle pod-hours plus missed ones at their price in idle ones."""
        return self.idle + miss_cost_ratio * self.missed

    def words(self, cores_per_pod: float) -> str:
        """The account as one sentence for people, in core-hours. cores_per_pod: size of the plan's pods."""
        return (
            f"would have reserved {self.reserved * cores_per_pod:,.0f} core-hours, {percent(self.hit_ratio)} used; "
            f"{self.missed_peaks} of {counted(self.peaks, 'peak')} missed, "
            f"{percent(self.coverage, 1)} of the needed core-time covered"
        )


ENOUGH = 0.9
"""Share of a peak's need that capacity must have been there for, or it was missed."""


def account(need: Floats, reserved: npt.NDArray[Any], step_seconds: float) -> PlanAccount:
    """The account of one series: need and reserved pods, (T,), every `step_seconds`; sums are in pod-hours.

    Slots whose need is not known (NaN) count neither as needed nor as held.
    """
    finite = np.isfinite(need)
    needed_pods, reserved_pods = np.where(finite, need, 0.0), np.where(finite, reserved, 0.0)
    used = np.minimum(needed_pods, reserved_pods)
    hours = step_seconds / HOUR_SECONDS
    # runs of slots with a need, as [first, after)
    inside = np.concatenate([[0], (needed_pods > 0).astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(inside)).reshape(-1, 2)
    sums = [np.concatenate([[0.0], np.cumsum(amounts)]) for amounts in (needed_pods, used)]
    total, covered = (running_sum[edges[:, 1]] - running_sum[edges[:, 0]] for running_sum in sums)
    return PlanAccount(
        needed=float(needed_pods.sum()) * hours,
        reserved=float(reserved_pods.sum()) * hours,
        used=float(used.sum()) * hours,
        idle=float((reserved_pods - used).sum()) * hours,
        missed=float((needed_pods - used).sum()) * hours,
        peaks=len(edges),
        missed_peaks=int((covered < ENOUGH * total).sum()),
    )


def waiting_share(need: Floats, reserved: npt.NDArray[Any]) -> float:
    """Return the share of arriving pods that finds no capacity; 0 when no pod arrives.

    Pods arrive as the need rises from slot to slot. need, reserved: pods in each slot, (T,); slots whose need is not
    known (NaN) count for nothing.
    """
    arriving = np.nan_to_num(np.maximum(np.diff(need), 0))
    waiting = np.minimum(arriving, np.maximum(np.nan_to_num(need[1:]) - reserved[1:], 0))
    total = float(arriving.sum())
    return float(waiting.sum()) / total if total else 0.0


def skill(plan: PlanAccount, baseline: PlanAccount, miss_cost_ratio: float) -> float:
    """1 - cost / the baseline's cost; NaN where the baseline cost nothing."""
    other = baseline.cost(miss_cost_ratio)
    return 1 - plan.cost(miss_cost_ratio) / other if other > 0 else float("nan")


def none(need: Floats) -> Floats:
    """No reservation at all."""
    return np.zeros_like(need)


def static(need: Floats, count: float | Floats) -> Floats:
    """The same capacity at all times; `count` of each row, (n, 1), or of all."""
    return np.zeros_like(need) + np.ceil(count)


def last_week(demand: Floats, slots_per_week: int, block: int) -> Floats:
    """Demand of the same time last week, the highest of each block of slots, (..., T); NaN in the first week.

    `block`: slots that a cron holds at one size; T must be whole blocks.
    """
    shifted = np.full_like(demand, np.nan)
    shifted[..., slots_per_week:] = demand[..., :-slots_per_week] if slots_per_week < demand.shape[-1] else np.nan
    blocks = shifted.reshape(*shifted.shape[:-1], -1, block)
    finite = np.isfinite(blocks)
    highest = np.where(finite, blocks, -np.inf).max(axis=-1)
    return np.repeat(np.where(np.isneginf(highest), np.nan, highest), block, axis=-1)
