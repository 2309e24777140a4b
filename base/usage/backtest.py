"""The results of back-tests: reports, the scores of reclaim policies, and replays of lending at several risks. Pure.

Data alone: experiments compute them, and the dashboard shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from cotenant.base import measures
from cotenant.base.resource import Resource

BACKTEST: Final = "backtest"
"""Name of the stored report."""
ORIGINS: Final = 24
"""Default number of times at which a back-test forecasts."""


class Horizon(StrEnum):
    """The horizon of a back-test's forecasts: a day of half hours, or a week of hours."""

    DAY = "24h"
    WEEK = "7d"


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One setting of a predictor: its share of violated predictions, and its savings relative to the oracle's, 0..1."""

    violation: float
    savings: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class FrontierCurve:
    """A predictor's settings, ordered by violation; a predictor without a parameter has a single point."""

    name: str
    points: tuple[FrontierPoint, ...]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Frontier:
    """The curves of several predictors on the same series; compare them at points of equal violation."""

    title: str
    curves: tuple[FrontierCurve, ...]


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """A stored report of a back-test: one self-contained HTML page, and its summary in one line."""

    title: str
    computed_seconds: int
    summary: str
    html: str


POLICY_TRIAL: Final = "policy-trial"
"""Name of the stored document, a PolicyTrial."""
FORECAST: Final = "forecast"
OFFERED_FROM: Final = 1.1
"""Lowest ratio of what `forecast` would have lent to what the present policy lent, for a worthwhile switch."""
OFFERED_DAYS: Final = 7.0
"""Days of tested decisions below which no switch is offered."""
TOLERATED_VIOLATION: Final = 0.01
"""Share of decisions that may be violated even if the present policy violated fewer."""


class PolicyScore(msgspec.Struct, frozen=True, rename={"peak_alone": "proven"}):
    """The score of one reclaim policy for one resource over all tested decisions, in the resource's unit.

    `risk_percent` is that of `forecast`, else None; `amount` is the mean of what all nodes lend to batch; `violation`
    is the share of decisions after which, within 24 hours, the nodes needed more than they had kept; `short_unit_hours`
    is that shortage times its duration; `peak_alone` is the share of decisions in which the forecast alone decided.
    """

    policy: str
    risk_percent: float | None
    resource: Resource
    amount: float
    violation: float
    short_unit_hours: float
    peak_alone: float

    @property
    def name(self) -> str:
        """The policy's name with its risk, as it is displayed."""
        return self.policy if self.risk_percent is None else f"{self.policy}, risk {self.risk_percent:g} %"


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """The scores of all policies on the same decisions; `in_force`, `risk_percent`: each resource's settings then."""

    computed_seconds: int
    history_days: float
    tested_days: float
    nodes: int
    in_force: dict[Resource, str]
    risk_percent: dict[Resource, float]
    scores: tuple[PolicyScore, ...]

    def score(self, resource: Resource, policy: str, risk_percent: float | None = None) -> PolicyScore | None:
        """Return the score of a policy, or None if it was not tested."""
        scores = (s for s in self.scores if (s.resource, s.policy) == (resource, policy))
        return next((s for s in scores if s.risk_percent == risk_percent), None)


@dataclass(frozen=True, slots=True)
class PolicySwitch:
    """A proposed switch from policy `now` to `forecast`; `ratio` is the CPU lent by `forecast` divided by `now`'s."""

    now: str
    ratio: float
    violation: float
    tested_days: float


def acceptable(score: PolicyScore, now: PolicyScore) -> bool:
    """Return whether a policy's violation is at most the current policy's, or at most TOLERATED_VIOLATION."""
    return score.violation <= max(now.violation, TOLERATED_VIOLATION)


def lent_ratio(score: PolicyScore, now: PolicyScore) -> float:
    """Return the amount that a policy would have lent to batch, divided by that of policy `now`; NaN if that is 0."""
    return measures.ratio_of(score.amount, now.amount)


def switch(trial: PolicyTrial) -> PolicySwitch | None:
    """Return the proposed switch of the CPU policy to `forecast`; None if it is in use or the evidence is too weak.

    A switch needs OFFERED_DAYS of tested decisions, OFFERED_FROM times the CPU lent now, and an `acceptable` violation.
    """
    policy = trial.in_force.get(Resource.CPU, FORECAST)
    now = trial.score(Resource.CPU, policy)
    ahead = trial.score(Resource.CPU, FORECAST, trial.risk_percent.get(Resource.CPU))
    if policy == FORECAST or now is None or ahead is None or trial.tested_days < OFFERED_DAYS:
        return None
    if now.amount <= 0 or ahead.amount < OFFERED_FROM * now.amount or not acceptable(ahead, now):
        return None
    return PolicySwitch(policy, lent_ratio(ahead, now), ahead.violation, trial.tested_days)


WHAT_IF: Final = "what-if"
"""Name of the stored document, a WhatIf."""
FAILED: Final = "It failed: "
"""Begins the reason of a replay that ended with an error, which follows."""


@dataclass(frozen=True, slots=True)
class LentDay:
    """The means of one UTC day of a replay: cores used by services and the system, lent to batch, and used by batch.

    `short` is as in `RiskOutcome`. `steps`, the day's replayed steps, is its weight: the first and last may be partial.
    """

    start_seconds: int
    online_cores: float
    lent_cores: float
    batch_cores: float
    short: float
    steps: int = 1


@dataclass(frozen=True, slots=True)
class RiskOutcome:
    """The outcome of a whole replay at one risk of the forecast peaks.

    `risk_percent` is None for Koordinator's formulas. Batch pods used `batch_core_hours` and had `evictions`, all pods
    used the share `utilisation` of the nodes' core-hours. `short` is the share of node-time in which services and the
    requests of batch pods exceeded a node, `latency_ratio` the services' modelled p99 latency over that without them.
    """

    risk_percent: float | None
    batch_core_hours: float
    utilisation: float
    short: float
    latency_ratio: float
    evictions: int
    days: tuple[LentDay, ...]

    @property
    def lent_cores(self) -> float:
        """Mean over time of the cores lent to batch; 0 if there are no days."""
        return self.mean_over_time([day.lent_cores for day in self.days])

    @property
    def length_days(self) -> float:
        """Length of the replay in days, where the first and last UTC day may be partial; 0 if there are no days."""
        steps = [day.steps for day in self.days]
        return sum(steps) / max(steps, default=1)

    def mean_over_time(self, by_day: Iterable[float]) -> float:
        """Return the mean of numbers given one per day, weighted by the days' steps; 0 if there are no days."""
        steps = [day.steps for day in self.days]
        return sum(value * count for value, count in zip(by_day, steps, strict=True)) / max(sum(steps), 1)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Outcomes of the same replayed days at several risks, ascending, and with Koordinator's formulas (`by_use`)."""

    computed_seconds: int
    nodes: int
    capacity_cores: float
    risks: tuple[RiskOutcome, ...]
    by_use: RiskOutcome | None


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay: the number of finished and of all runs, and the seconds left, None at first."""

    done_runs: int
    all_runs: int
    left_seconds: float | None


class ReplayJob(Protocol):
    """A background job that runs replays after a scan, at most once a day. Thread-safe."""

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the running replay, or None if none is running."""

    @property
    def reason(self) -> str:
        """A sentence why the last replay has no result, or "" if it has one or none was run."""

    def stop(self) -> None:
        """Stop the running replay; its results are discarded."""
