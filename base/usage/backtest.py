"""What back-tests leave behind: reports, the trial of the reclaim policies, and replays of lending at each risk. Pure.

Data alone: experiments compute it, and the dashboard shows it.
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
    """The horizon of a back-test's forecasts, and the slots that it uses."""

    DAY = "24h"
    WEEK = "7d"


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One setting of a predictor: share of predictions that were violated, share of the oracle's savings."""

    violation: float
    savings: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class FrontierCurve:
    """A predictor's settings in order of the violation; a single point is a predictor without a knob."""

    name: str
    points: tuple[FrontierPoint, ...]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Frontier:
    """Curves of one population; compare at equal violation."""

    title: str
    curves: tuple[FrontierCurve, ...]


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """A stored report: one HTML page that needs nothing else, and what it says in a line."""

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
    """One policy and resource over all tested decisions, in the resource's unit.

    risk_percent: of `forecast`, else None; amount: mean over the decisions of what all nodes lend to batch; violation:
    share of decisions within whose next 24 hours the nodes needed more than was not lent; short_unit_hours: by how much
    and how long while each decision was in force; peak_alone: share of decisions where the forecast decided alone.
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
        """The policy with its risk, as shown."""
        return self.policy if self.risk_percent is None else f"{self.policy}, risk {self.risk_percent:g} %"


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """Scores of all policies on the same decisions; in_force, risk_percent: of the settings at that time."""

    computed_seconds: int
    history_days: float
    tested_days: float
    nodes: int
    in_force: dict[Resource, str]
    risk_percent: dict[Resource, float]
    scores: tuple[PolicyScore, ...]

    def score(self, resource: Resource, policy: str, risk_percent: float | None = None) -> PolicyScore | None:
        """Return the score of a policy; None if it was not tried."""
        scores = (s for s in self.scores if (s.resource, s.policy) == (resource, policy))
        return next((s for s in scores if s.risk_percent == risk_percent), None)


@dataclass(frozen=True, slots=True)
class PolicySwitch:
    """A switch to policy `forecast` that the history supports: ratio of CPU lent, violation of forecast."""

    now: str
    ratio: float
    violation: float
    tested_days: float


def acceptable(score: PolicyScore, now: PolicyScore) -> bool:
    """Return whether the policy was violated no more often than the present one, or than TOLERATED_VIOLATION."""
    return score.violation <= max(now.violation, TOLERATED_VIOLATION)


def lent_ratio(score: PolicyScore, now: PolicyScore) -> float:
    """Return how many times as much a policy would have lent as the present one; NaN if that lent nothing."""
    return measures.ratio_of(score.amount, now.amount)


def switch(trial: PolicyTrial) -> PolicySwitch | None:
    """The switch of CPU that can be offered; None if `forecast` is the present policy or the evidence is too weak.

    That needs OFFERED_DAYS of tested decisions, OFFERED_FROM times as much CPU, and no more violations than tolerated.
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
    """One UTC day, means over its steps: cores lent and used by batch; short: share of node-time that was short.

    steps: of equal length, by which a day weighs; the first and the last one may be parts of days.
    """

    start_seconds: int
    online_cores: float
    lent_cores: float
    batch_cores: float
    short: float
    steps: int = 1


@dataclass(frozen=True, slots=True)
class RiskOutcome:
    """The whole replay at one risk of the forecast peaks.

    risk_percent: None of Koordinator's formulas, which have no such knob; batch_core_hours: done by batch pods; short:
    share of node-time in which services and what batch was promised exceeded the node; latency_ratio: p99 of services
    over that without batch, by the model of interference; evictions: of batch pods.
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
        """Mean over time; 0 without any day."""
        return self.mean_over_time([day.lent_cores for day in self.days])

    @property
    def length_days(self) -> float:
        """Length in days: the first and the last of its UTC days may be parts of one. 0 without any."""
        steps = [day.steps for day in self.days]
        return sum(steps) / max(steps, default=1)

    def mean_over_time(self, by_day: Iterable[float]) -> float:
        """Return the mean of a number of the days, in its unit, each day by its steps; 0 without any."""
        steps = [day.steps for day in self.days]
        return sum(value * count for value, count in zip(by_day, steps, strict=True)) / max(sum(steps), 1)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The same days at several risks, ascending, and as Koordinator's formulas would have lent."""

    computed_seconds: int
    nodes: int
    capacity_cores: float
    risks: tuple[RiskOutcome, ...]
    by_use: RiskOutcome | None


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay: how many runs are done and how many there are, and the time left; None at first."""

    done_runs: int
    all_runs: int
    left_seconds: float | None


class ReplayJob(Protocol):
    """Replays in the background, after a scan and at most once a day. Safe for many threads."""

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the replay that runs now; None without one."""

    @property
    def reason(self) -> str:
        """Why the last replay came to nothing, a sentence; "" where none has failed or was ended."""

    def stop(self) -> None:
        """End the one that runs now; nothing of it is stored."""
