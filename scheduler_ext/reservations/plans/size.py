"""The number of pods to reserve for: the newsvendor quantile of the demand in each half hour, with hysteresis. Pure.

Unused capacity costs c_idle per core-hour and missing capacity c_miss; the cheapest quantile of the demand to reserve
is tau = c_miss / (c_miss + c_idle) (newsvendor rule). It is taken per half hour and then maximised over a window: the
quantile of a day's maximum would be far above what any half hour needs.

`lead` is how long before a window its capacity is reserved, so that pods run when the demand begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings

Floats = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]

_LEVELS: Final = np.array(LEVELS)


def level_path(quantiles: Floats, tau: float) -> Floats:
    """Return the values at quantile `tau`, (..., H), interpolated between levels of `quantiles`, (..., H, len(LEVELS)).

    Above the highest level, values continue with the slope of the last two levels' normal scores, so that 0.99 is above
    0.98; below the lowest level, they are those of the lowest.
    """
    at = float(np.interp(tau, _LEVELS, np.arange(len(_LEVELS))))
    low, share = int(at), at - int(at)
    path = np.asarray(quantiles[..., low], dtype=np.float64)
    if share:
        path = path + share * (np.asarray(quantiles[..., low + 1], dtype=np.float64) - path)
    if tau > LEVELS[-1]:
        spread: Floats = np.asarray(quantiles[..., -1], dtype=np.float64) - quantiles[..., -2]
        path = path + (_score(tau) - _score(LEVELS[-1])) * (spread / (_score(LEVELS[-1]) - _score(LEVELS[-2])))
    return path


def pods(path: Floats, base: float | Floats, per_pod: float | Floats) -> Counts:
    """Return how many whole pods of `per_pod` cover `path` beyond `base`, all in one unit; 0 where the path is NaN."""
    above = np.nan_to_num(np.asarray(path, dtype=np.float64) - base)
    count: Counts = np.ceil(np.maximum(above, 0) / np.maximum(per_pod, 1e-9) - 1e-9).astype(np.int64)
    return count


def most(count: Counts, start_seconds: float, step_seconds: float, begin_seconds: float, end_seconds: float) -> int:
    """Return the maximum of `count` (pods per slot from `start_seconds` on) over a time span; 0 outside the slots."""
    first = int(np.floor((begin_seconds - start_seconds) / step_seconds))
    last = int(np.ceil((end_seconds - start_seconds) / step_seconds))
    touched = count[max(first, 0) : max(last, 0)]
    return int(touched.max(initial=0))


def _score(tau: float) -> float:
    """Return the normal score by the logistic approximation, good enough between 0.95 and 0.999."""
    return float(np.log(tau / (1 - tau)) / 1.702)


HYSTERESIS_FRACTION: Final = 0.2
"""Capacity is released only if this share less of it is wanted, but reserved at once. A fifth is above the forecast's
own noise from hour to hour."""
CHANGE_INTERVAL_SECONDS: Final = 600.0
"""Shortest time between two changes of the reserved capacity. Longer than placing a pod and reading the next metric."""


@dataclass(frozen=True, slots=True)
class ReservedPods:
    """The number of pods for which capacity is reserved, and the Unix time at which it last changed."""

    count: int
    changed_at_seconds: float = float("-inf")


def reserve_pods(current: ReservedPods, needed_pods: int, now_seconds: float) -> ReservedPods:
    """Return for how many pods to reserve if `needed_pods` are needed now.

    A higher need is followed at once. A lower need is followed only beyond the hysteresis, or at 0, and
    CHANGE_INTERVAL_SECONDS after the last change.
    """
    if needed_pods > current.count:
        return ReservedPods(needed_pods, now_seconds)
    enough = needed_pods < current.count * (1 - HYSTERESIS_FRACTION) or (needed_pods == 0 and current.count > 0)
    if enough and now_seconds - current.changed_at_seconds >= CHANGE_INTERVAL_SECONDS:
        return ReservedPods(needed_pods, now_seconds)
    return current


def replay_reserved_pods(needed_pods: Counts, step_seconds: float) -> Counts:
    """Apply `reserve_pods` slot by slot to the needed pods, (n, T), and return the reserved pods, (n, T)."""
    reserved_pods = np.zeros_like(needed_pods)
    for row, counts in enumerate(needed_pods.tolist()):
        current, reserved = ReservedPods(0), []
        for slot, count in enumerate(counts):
            if count != current.count:
                current = reserve_pods(current, count, slot * step_seconds)
            reserved.append(current.count)
        reserved_pods[row] = reserved
    return reserved_pods


CAPACITY_FREE_SECONDS: Final = 120.0
"""Time (p95) in which evicted batch pods free memory: their longest usual grace period and the eviction. They release
CPU at once."""

FEWEST_STARTS: Final = 3
"""Number of measured pod starts below which the setting is used."""
_P95: Final = 0.95


def lead_seconds(wish_seconds: float, starts_seconds: Sequence[float], settings: PlanSettings) -> int:
    """Return how many seconds before its window a plan's capacity has to be requested, rounded up.

    `wish_seconds` is the plan's own lead; `starts_seconds` are measured times from creation to ready of the workload's
    pods. Batch pods release CPU at once (it is compressible) and memory by eviction, which takes CAPACITY_FREE_SECONDS.
    """
    valid_starts_seconds = [s for s in starts_seconds if math.isfinite(s) and s >= 0]
    measured = len(valid_starts_seconds) >= FEWEST_STARTS
    start = float(np.quantile(valid_starts_seconds, _P95)) if measured else settings.pod_start_seconds
    return math.ceil(
        start + CAPACITY_FREE_SECONDS + settings.scheduler_seconds + settings.interval_seconds + wish_seconds
    )
