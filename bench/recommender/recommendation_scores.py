"""Scores of recommended requests: each container's request of a day against the usage of that day. Pure.

Scores (per contender, over all days for which every contender has a request):
- *under-provision days*: share of days on which the highest 5-minute demand was above the request;
- *slack*: mean over days of the time-mean of max(0, request - usage) / request; *slack of the sum*: the same of all
  requests and usage together, where a large container counts more;
- *OOM-risk days*: share of days on which the memory peak was above the memory limit;
- *churn*: requests that moved by more than 10 % to the next day, per container and week.

A slack means nothing without its share of under-provision days: `matched` moves a contender's one knob (a factor, or
the margin of `day_risk`) until at most a given share of days is short, and scores it there. Knobs are found in
hindsight, for every contender alike; what a contender's own calibration came to stands beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.recommender.strategies.cotenant import day_risk

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MOVED: Final = 0.1
STEPS: Final = 50
FULL_DAY: Final = 0.5
"""Share of a day's slots without which a day is not judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Days:
    """Demand of n containers by whole days: values (n, days, slots), NaN = no sample; maxima, means (n, days)."""

    values: npt.NDArray[np.float32]
    maxima: Floats
    means: Floats

    def slack(self, requests: Floats) -> Floats:
        """Time-mean of max(0, request - usage) / request of each day, (n, days); NaN where either is missing."""
        requested = requests.astype(np.float32)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            unused = np.maximum(requested - self.values, 0) / requested
        return _mean(unused)

    def used(self, requests: Floats) -> Floats:
        """Time-mean of min(request, usage), (n, days)."""
        return _mean(np.minimum(self.values, requests.astype(np.float32)[:, :, None]))


def days_of(values: npt.NDArray[np.float32], slots_per_day: int) -> Days:
    """Cut (n, T) from a midnight on into days; days with less than half of their samples count as missing."""
    used_slots = values.shape[1] // slots_per_day * slots_per_day
    block = values[:, :used_slots].reshape(len(values), -1, slots_per_day)
    full = np.isfinite(block).sum(axis=2) >= FULL_DAY * slots_per_day
    block = np.where(full[:, :, None], block, np.float32(np.nan))
    highest = np.fmax.reduce(block, axis=2, initial=np.float32(np.nan)).astype(np.float64)
    return Days(block, highest, _mean(block))


@dataclass(frozen=True, slots=True)
class RequestScore:
    """What a contender's requests came to; shares 0..1, churn in changes per container and week."""

    under_days: float
    slack: float
    slack_of_sum: float
    churn: float
    days: int


def judge(requests: Floats, days: Days, mask: Mask) -> RequestScore:
    """Score (n, days) requests on the days of a mask (n, days)."""
    masked = np.where(mask, requests, np.nan)
    short = days.maxima > masked
    total = float(masked[mask].sum())
    return RequestScore(
        under_days=float(short[mask].mean()),
        slack=float(np.mean(days.slack(masked)[mask])),
        slack_of_sum=1 - float(days.used(masked)[mask].sum()) / total,
        churn=churn(masked),
        days=int(mask.sum()),
    )


def risk_days(limits: Floats, peaks: Floats, mask: Mask) -> float:
    """OOM-risk days: share of the mask's days with a memory peak above the limit; NaN limit = none."""
    return float((peaks > np.where(np.isnan(limits), np.inf, limits))[mask].mean())


def churn(requests: Floats) -> float:
    """Moves by more than 10 % from one judged day to the next, per container and week."""
    before, after = requests[:, :-1], requests[:, 1:]
    both = np.isfinite(before) & np.isfinite(after)
    moved = np.abs(after - before)[both] > MOVED * before[both]
    return 7 * float(moved.mean()) if moved.size else 0.0


def highest_of(days: Days, length: int) -> Floats:
    """Maximum of the last `length` days, for each day, (n, days); NaN without any."""
    highest = np.full(days.maxima.shape, np.nan)
    for day in range(1, days.maxima.shape[1]):
        highest[:, day] = np.fmax.reduce(days.maxima[:, max(0, day - length) : day], axis=1, initial=np.nan)
    return highest


@dataclass(frozen=True, slots=True, eq=False)
class ByRisk:
    """`day_risk` rolled over the days: its parts, so that any margin can be tried, and its own calibration."""

    base: Floats
    spread: Floats
    ceiling: Floats
    calibrated: Floats

    def at(self, margin: float) -> Floats:
        """Requests with one margin for all days."""
        return np.minimum(self.base + margin * self.spread, self.ceiling)

    def take(self, series: npt.NDArray[np.integer]) -> ByRisk:
        """The same for some of the containers."""
        return ByRisk(self.base[series], self.spread[series], self.ceiling[series], self.calibrated[series])


def by_risk(days: Days, provided: Floats, risk: float, history: int = 14) -> ByRisk:
    """Every day's request from the `history` days before it alone; provided: (n, days) known at the day's begin."""
    parts = [np.full(days.maxima.shape, np.nan) for _ in range(4)]
    least = np.nan
    for day in range(1, days.maxima.shape[1]):
        past = slice(max(0, day - history), day)
        args = days.maxima[:, past], days.means[:, past], provided[:, day]
        sized = day_risk.amounts(*args, risk, least)
        least = day_risk.least_later_margin(float(sized.margin[0]), 1)
        for part, column in zip(parts, (*day_risk.expected_next_day(*args), sized.amounts), strict=True):
            part[:, day] = column
    return ByRisk(*parts)


def matched(at: Callable[[float], Floats], days: Days, mask: Mask, share: float) -> tuple[float, Floats]:
    """(knob, requests) at the smallest knob that leaves at most this share of the days short.

    `at` gives the requests for a knob, none of them falling as it rises; knobs are looked for from e^-14 to e^6.
    """
    low, high = -14.0, 6.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = (days.maxima > at(float(np.exp(middle))))[mask].mean() <= share
        low, high = (low, middle) if enough else (middle, high)
    knob = float(np.exp(high))
    return knob, at(knob)


def closed(ours: RequestScore, baseline: RequestScore, oracle: RequestScore) -> float:
    """Share of the gap in slack between a baseline and the oracle that we close; below 0: worse than the baseline."""
    gap = baseline.slack - oracle.slack
    return (baseline.slack - ours.slack) / gap if gap > 0 else 0.0


def _mean(values: npt.NDArray[np.float32]) -> Floats:
    """Mean of the finite values of the last axis, NaN without one."""
    finite = np.isfinite(values)
    count = finite.sum(axis=-1)
    total = np.where(finite, values, 0).sum(axis=-1, dtype=np.float64)
    mean: Floats = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return mean
