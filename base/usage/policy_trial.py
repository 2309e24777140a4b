"""What each reclaim policy would have lent on a cluster's own history, and whether that supports a switch. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from cotenant.base import measures
from cotenant.base.resource import Resource

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
    """Return whether the policy was violated no more often than the present policy.

    TOLERATED_VIOLATION replaces the rate of the policy in force if it is higher.
    """
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
