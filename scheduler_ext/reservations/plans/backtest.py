"""Back-tests a plan: "would have reserved 310 core-hours, 84 % used; 2 of 11 peaks missed". Pure.

`need` are the pods beyond the baseline pods, `reserved` the pods for which capacity was reserved: both (n, T) or (T,)
on one time grid; NaN in `need` is unknown and not counted. Plans are compared with baselines: no reservation, a
constant number of pods, and the demand of the same time last week, as a cron schedule would reserve it.
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
    """Back-test result of one plan: pod-hours that were needed, reserved, used, idle and missed, and numbers of peaks.

    A peak is a run of slots in which pods are needed; it is missed if less than 90 % of its pod-time had capacity.
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
        """Share of the needed pod-time that had capacity; 1 if none was needed."""
        return plan_scores.coverage(self.used, self.needed)

    @property
    def hit_ratio(self) -> float:
        """Share of the reserved pod-time that was used; 0 if nothing was reserved."""
        return plan_scores.hit_ratio(self.used, self.reserved)

    def cost(self, miss_cost_ratio: float) -> float:
        """Return idle pod-hours plus missed pod-hours times `miss_cost_ratio`."""
        return self.idle + miss_cost_ratio * self.missed

    def words(self, cores_per_pod: float) -> str:
        """Return the account as a clause for people, in core-hours, for pods of `cores_per_pod`."""
        return (
            f"would have reserved {self.reserved * cores_per_pod:,.0f} core-hours, {percent(self.hit_ratio)} used; "
            f"{self.missed_peaks} of {counted(self.peaks, 'peak')} missed, "
            f"{percent(self.coverage, 1)} of the needed pod-time covered"
        )


ENOUGH = 0.9
"""Share of a peak's pod-time that must have capacity, otherwise the peak counts as missed."""


def account(need: Floats, reserved: npt.NDArray[Any], step_seconds: float) -> PlanAccount:
    """Return the back-test result of needed and reserved pods, both (T,), in slots of `step_seconds`.

    Slots with an unknown need (NaN) count neither as needed nor as reserved.
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
    """Return the share (0..1) of arriving pods that find no capacity; 0 if no pod arrives.

    Pods arrive if the need rises from one slot to the next. `need` and `reserved` are pods in each slot, (T,); slots
    with an unknown need (NaN) are ignored.
    """
    arriving = np.nan_to_num(np.maximum(np.diff(need), 0))
    waiting = np.minimum(arriving, np.maximum(np.nan_to_num(need[1:]) - reserved[1:], 0))
    total = float(arriving.sum())
    return float(waiting.sum()) / total if total else 0.0


def skill(plan: PlanAccount, baseline: PlanAccount, miss_cost_ratio: float) -> float:
    """Return 1 - the plan's cost / the baseline's cost; NaN if the baseline costs nothing."""
    other = baseline.cost(miss_cost_ratio)
    return 1 - plan.cost(miss_cost_ratio) / other if other > 0 else float("nan")


def none(need: Floats) -> Floats:
    """Return the baseline that reserves nothing: zeros in the shape of `need`."""
    return np.zeros_like(need)


def static(need: Floats, count: float | Floats) -> Floats:
    """Return the baseline that always reserves `count` pods, rounded up: one number, or (n, 1) for `need` (n, T)."""
    return np.zeros_like(need) + np.ceil(count)


def last_week(demand: Floats, slots_per_week: int, block: int) -> Floats:
    """Return last week's demand at the same time, an array (..., T): the maximum of each block of slots; NaN in week 1.

    A `block` is the number of slots for which a cron schedule keeps one size; T must be a multiple of it.
    """
    shifted = np.full_like(demand, np.nan)
    shifted[..., slots_per_week:] = demand[..., :-slots_per_week] if slots_per_week < demand.shape[-1] else np.nan
    blocks = shifted.reshape(*shifted.shape[:-1], -1, block)
    finite = np.isfinite(blocks)
    highest = np.where(finite, blocks, -np.inf).max(axis=-1)
    return np.repeat(np.where(np.isneginf(highest), np.nan, highest), block, axis=-1)
