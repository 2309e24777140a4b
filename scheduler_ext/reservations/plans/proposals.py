"""Turns forecasts into proposed plans: window, number of pods, quantile, and their back-test. Pure.

A window starts where the chosen quantile of the demand first exceeds what the baseline pods carry, and ends where it no
longer does. The quantile is the one that would have been cheapest over the last days, with forecasts made from what was
known then: the newsvendor's quantile is right only if the forecast's quantiles are. There is no other headroom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import WorkloadRef
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model.plan import Expected, PeakWindow, Proposal, Span
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.backtest import (
    PlanAccount,
    account,
    last_week,
    none,
    skill,
    static,
    waiting_share,
)
from cotenant.scheduler_ext.reservations.plans.size import Counts, level_path, pods, replay_reserved_pods

JOIN_GAP_MINUTES: Final = 60
"""Windows with a shorter gap are joined: releasing and reserving again would cost more than it frees."""

Floats = npt.NDArray[np.floating[Any]]

TAUS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Quantiles that are back-tested; the cheapest is proposed."""
_MEDIAN: Final = 0.5
_CRON_BLOCK_SECONDS: Final = HOUR_SECONDS
"""A cron schedule of last week's demand reserves whole hours."""
_DAYS_A_WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one workload's pods: `capacity` is the demand that a pod carries, `base` that of all baseline pods.

    Both are in millicores. `per_pod` is one pod's request as Kubernetes writes it; the price is that of its CPU.
    """

    workload: WorkloadRef
    per_pod: Mapping[str, str]
    request_millicores: int
    capacity: float
    base: float
    price_per_core_hour: float = 0.0
    currency: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """One workload's last days, for a back-test of its plan: demand (T,), and the forecasts that were made before.

    Slots are of `step_seconds`. `quantiles` are (T, levels), `a_week_before` is last week's demand (T,), NaN if
    unknown. A need that no forecast expected gets reserved capacity `reaction_seconds` later.
    """

    step_seconds: int
    demand: Floats
    quantiles: Floats
    a_week_before: Floats
    reaction_seconds: int = 1500

    @property
    def days(self) -> float:
        """Number of days that have a forecast."""
        return float(np.isfinite(self.quantiles[:, 0]).sum()) * self.step_seconds / DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of a rehearsal, a back-test: best quantile `tau`, standby pods, and the account of a plan with both.

    `skill` is that of the forecast without standby against last week's demand; `days` have a forecast.
    """

    days: float
    tau: float
    standby: int
    plan: PlanAccount
    skill: float


@dataclass(frozen=True, slots=True)
class RehearsedWorkload:
    """A workload's rehearsal (back-test) on history up to `end_seconds`; `request_millicores` is one pod's request."""

    workload: WorkloadRef
    request_millicores: int
    end_seconds: int
    tested: Tested


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """Back-test results of one analysis; later analyses reuse them while the digest of the settings is the same."""

    settings_digest: str
    of: tuple[RehearsedWorkload, ...]


def tested(size: Size, past: Rehearsal, settings: PlanSettings) -> Tested:
    """Return the cheapest quantile and number of standby pods of a workload in its rehearsal, a back-test.

    Each quantile gets the least standby with which at most `waiting_fraction` of the new pods find no capacity, or the
    maximum if none is enough. The cheapest quantile is chosen.
    """
    need = need_of(past.demand, size)
    need = np.where(np.isfinite(past.quantiles[:, 0]), need, np.nan)
    by_standby = _by_standby(size, past, TAUS, settings.standby_pods)
    standby_by_tau: dict[float, int] = {}
    accounts: dict[float, PlanAccount] = {}
    for i, level in enumerate(TAUS):
        waiting = (waiting_share(need, reserved[i]) for reserved in by_standby)
        enough = (standby for standby, share in enumerate(waiting) if share <= settings.waiting_fraction)
        standby_by_tau[level] = next(enough, len(by_standby) - 1)
        accounts[level] = account(need, by_standby[standby_by_tau[level]][i], past.step_seconds)
    tau = min(TAUS, key=lambda t: accounts[t].cost(settings.miss_cost_ratio))
    alike = np.where(np.isfinite(past.a_week_before), need, np.nan)
    cron = account(alike, pods(past.a_week_before, size.base, size.capacity), past.step_seconds)
    own = account(alike, by_standby[0][TAUS.index(tau)], past.step_seconds)
    advantage = skill(own, cron, settings.miss_cost_ratio)
    return Tested(past.days, tau, standby_by_tau[tau], accounts[tau], advantage)


def contest(size: Size, past: Rehearsal, settings: PlanSettings) -> list[tuple[str, PlanAccount, bool]]:
    """Return (policy, result, whether it is the proposed one) of each quantile and baseline over the rehearsed days.

    Quantiles have no standby. The static baseline always reserves for the highest need, which is known only afterwards.
    """
    need = np.where(np.isfinite(past.quantiles[:, 0]), need_of(past.demand, size), np.nan)
    chosen, step = tested(size, past, settings).tau, past.step_seconds
    contestants = [
        (f"forecast p{100 * tau:g}", account(need, reserved, step), tau == chosen)
        for tau, reserved in zip(TAUS, _by_standby(size, past, TAUS, 0)[0], strict=True)
    ]
    cron = pods(past.a_week_before, size.base, size.capacity)
    finite_need = need[np.isfinite(need)]
    enough = float(finite_need.max(initial=0.0))
    contestants.append(("same time last week", account(need, cron, step), False))
    contestants.append(("static headroom", account(need, static(need, enough), step), False))
    contestants.append(("nothing", account(need, none(need), step), False))
    return contestants


def need_of(demand: Floats, size: Size) -> Floats:
    """Return the pods that a demand in millicores needs beyond the baseline pods; NaN if the demand is unknown."""
    need: Floats = np.where(np.isfinite(demand), pods(demand, size.base, size.capacity), np.nan)
    return need


def kept(size: Size, past: Rehearsal, tau: float) -> Counts:
    """Return the pods reserved per slot, (T,), for the need forecast at quantile `tau` or observed, with hysteresis."""
    reserved: Counts = _by_standby(size, past, (tau,), 0)[0][0]
    return reserved


def _by_standby(size: Size, past: Rehearsal, taus: Sequence[float], most: int) -> list[Counts]:
    """Return for 0 to `most` standby pods what would have been reserved at several quantiles, (taus, T)."""
    late = -(-past.reaction_seconds // past.step_seconds)
    present = np.zeros(past.demand.size, dtype=np.int64)
    present[late:] = np.nan_to_num(need_of(past.demand, size))[: present.size - late]
    paths = np.stack([level_path(past.quantiles, tau) for tau in taus])
    needed_pods = np.maximum(pods(paths, size.base, size.capacity), present)
    reserved_pods = replay_reserved_pods(needed_pods, past.step_seconds)
    return [np.maximum(reserved_pods, present + standby) for standby in range(most + 1)]


def a_week_before(demand: Floats, step_seconds: int) -> Floats:
    """Return, for each slot of `demand`, (..., T), the highest demand in the same hour of last week."""
    per_hour = _CRON_BLOCK_SECONDS // step_seconds
    return last_week(demand, _DAYS_A_WEEK * DAY_SECONDS // step_seconds, per_hour)


@dataclass(frozen=True, slots=True, eq=False)
class DayForecast:
    """The demand forecast of the next day: `quantiles` (H, levels) in millicores, slots from `start_seconds` on."""

    start_seconds: int
    step_seconds: int
    quantiles: Floats


def propose(size: Size, ahead: DayForecast, evaluation: Tested, settings: PlanSettings, digest: str = "") -> Proposal:
    """Return the proposed plan for a workload's next peaks; its `reason` says why if nothing is proposed."""
    needed_pods = _needed_pods(size, ahead, evaluation.tau)
    peaks = peak_windows(needed_pods, ahead, settings)
    largest = max(peaks, key=lambda peak: _pod_time(needed_pods, ahead, peak.span), default=None)
    window, count = (largest.span, max(peak.count for peak in peaks)) if largest else (None, 0)
    expected: Expected | None = None
    if evaluation.days:  # per day of the rehearsal
        idle = evaluation.plan.idle * size.request_millicores / 1000 / evaluation.days
        expected = Expected(
            hit_ratio=evaluation.plan.hit_ratio,
            missed_pods=(1 - evaluation.plan.coverage) * count,
            occurrences=evaluation.plan.peaks,
            idle_core_hours=idle,
            displaced_batch_core_hours=evaluation.plan.used * size.request_millicores / 1000 / evaluation.days,
            cost=idle * size.price_per_core_hour,
            currency=size.currency,
        )
    return Proposal(
        workload=size.workload,
        reason=_reason(evaluation, window, settings),
        count=count,
        quantile=evaluation.tau,
        window=window,
        windows=peaks,
        standby=evaluation.standby,
        per_pod=dict(size.per_pod),
        base_pods=round(size.base / size.capacity, 2),
        coverage=evaluation.plan.coverage if evaluation.days else None,
        skill=evaluation.skill if math.isfinite(evaluation.skill) else None,
        words=f"In the last {evaluation.days:.0f} days a plan {evaluation.plan.words(size.request_millicores / 1000)}.",
        expected=expected,
        start_seconds=ahead.start_seconds,
        step_seconds=ahead.step_seconds,
        wanted=tuple(needed_pods.tolist()),
        median=tuple(_needed_pods(size, ahead, _MEDIAN).tolist()),
        levels=TAUS,
        ladder=tuple(tuple(_needed_pods(size, ahead, tau).tolist()) for tau in TAUS),
        settings_digest=digest,
    )


def _needed_pods(size: Size, ahead: DayForecast, tau: float) -> Counts:
    return pods(level_path(ahead.quantiles, tau), size.base, size.capacity)


def windows(needed_pods: Sequence[int] | Counts, step_seconds: int, gap_seconds: float) -> list[tuple[int, int]]:
    """Return (first slot, slot after the last) of each run of needed pods; gaps below `gap_seconds` are bridged."""
    inside = np.concatenate([[0], (np.asarray(needed_pods) > 0).astype(np.int8), [0]])
    runs: list[tuple[int, int]] = []
    for first, after in np.flatnonzero(np.diff(inside)).reshape(-1, 2).tolist():
        if runs and (first - runs[-1][1]) * step_seconds < gap_seconds:
            runs[-1] = (runs[-1][0], after)
        else:
            runs.append((first, after))
    return runs


def peak_windows(needed_pods: Counts, ahead: DayForecast, settings: PlanSettings) -> tuple[PeakWindow, ...]:
    """Return the windows of the day in which pods are needed, ascending, without those that are too short."""
    start, step = ahead.start_seconds, ahead.step_seconds
    return tuple(
        PeakWindow(Span(start + first * step, start + after * step), int(needed_pods[first:after].max()))
        for first, after in windows(needed_pods, step, 60 * JOIN_GAP_MINUTES)
        if (after - first) * step >= 60 * settings.minimum_window_minutes
    )


def _pod_time(needed_pods: Counts, ahead: DayForecast, span: Span) -> int:
    """Return the needed pods summed over the slots of a window."""
    first = round((span.start_seconds - ahead.start_seconds) / ahead.step_seconds)
    return int(needed_pods[first : first + round(span.seconds / ahead.step_seconds)].sum())


def _reason(evaluation: Tested, window: Span | None, settings: PlanSettings) -> str:
    """Return the reason code: ok, or why nothing is proposed."""
    if window is None:
        return "no-window"
    if evaluation.days < min(2, settings.backtest_days) or not math.isfinite(evaluation.skill):
        return "not-enough-history"
    if evaluation.skill <= settings.minimum_skill:
        return "no-skill"
    return "ok" if evaluation.plan.coverage >= settings.minimum_coverage else "uncovered"
