"""What reclaim policies would have lent, on figures that can be checked by hand, and when a switch is offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from cotenant.backtesting.policies import HIGHEST, NodesPast, decision_slots, scores
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import PolicyScore, PolicySwitch, PolicyTrial, switch
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.recommender.settings import ReclaimableSettings
from tests.support.approximate import about

CPU = Resource.CPU
SLOTS = 8  # four blocks of two slots a day
DAYS = 30
GRID = TimeGrid(0, 86_400 // SLOTS, DAYS * SLOTS)
NOTHING = np.empty((1, 0))
DEFAULT = ReclaimableSettings()


def node(prod: np.ndarray[Any, Any], **more: Any) -> NodesPast:
    """One node of 1000 whose system uses 50."""
    row = np.asarray(prod, dtype=np.float64)[None, :]
    grid = replace(GRID, size=row.shape[1])
    decisions = len(decision_slots(grid, more.get("older", NOTHING)))
    system = np.full(row.shape, 50.0)
    zeros = np.zeros((1, decisions))
    parts = {"older": NOTHING, "demand": np.full((1, decisions), 400.0)} | more
    return NodesPast(("n",), CPU, grid, np.array([1000.0]), np.zeros(1), row, row, system, zeros, **parts)


def tried(past: NodesPast, settings: ReclaimableSettings = DEFAULT) -> dict[str, PolicyScore]:
    return {s.name: s for s in scores(past, settings, NodePeakSettings(), Silent())}


def even() -> np.ndarray[Any, Any]:
    return np.full(DAYS * SLOTS, 300.0)


def test_koordinators_policies_by_hand() -> None:
    policy_scores = tried(node(even()))
    # 1000 - 40 % - 50 - 300; the larger of use and request is 400
    assert (policy_scores["usage"].amount, policy_scores["usage"].violation) == (250.0, 0.0)
    assert policy_scores["maxUsageRequest"].amount == 150.0
    # the record of 300, and 1.1 x 50 of the system
    assert policy_scores[HIGHEST].amount == 1000 - 300 - 55


@pytest.mark.slow
def test_a_jump_violates_the_decisions_of_the_day_before_and_lasts_until_the_next() -> None:
    jumping = even()
    jumping[29 * SLOTS :] = 900.0
    policy_scores, calm = tried(node(jumping)), tried(node(even()))
    # 61 decisions, of days 14 to 29. In the last four the jump to 950 lies within a day; 750 are not lent. The last
    # one stands for six hours of it: 200 x 6.
    assert policy_scores["usage"].violation == pytest.approx(4 / 61)
    assert policy_scores["usage"].short_unit_hours == pytest.approx(1200.0)
    # no decision knew of it: each lends what it lends without the jump
    assert {name: s.amount for name, s in policy_scores.items()} == {name: s.amount for name, s in calm.items()}


@pytest.mark.slow
def test_a_forecast_counts_alone_once_it_is_tested_and_with_the_percentage_before() -> None:
    policy_scores, unproven = tried(node(even())), tried(node(even()), ReclaimableSettings(forecast_origins=1000))
    names = [f"forecast, risk {risk} %" for risk in ("0.1", "1", "5")]
    # never more than what both peaks leave; with the percentage never more than usage lends
    assert all(
        policy_scores[name].peak_alone > 0 and 250 < policy_scores[name].amount <= 1000 - 300 - 55 for name in names
    )
    assert all(unproven[name].peak_alone == 0 and 0 < unproven[name].amount <= 250 for name in names)
    assert unproven["usage"] == policy_scores["usage"]
    by_risk = [policy_scores[name].amount for name in names]
    assert by_risk == sorted(by_risk)


def test_days_before_the_window_bring_the_first_decision_forward() -> None:
    short = np.full(5 * SLOTS, 300.0)
    assert len(decision_slots(replace(GRID, size=len(short)), NOTHING)) == 0
    older = np.full((1, 14 * 4), 300.0)
    # from the end of the first day, four a day, the last one with a whole day after it
    assert len(decision_slots(replace(GRID, size=len(short)), older)) == 13
    policy_scores = tried(node(short, older=older))
    assert policy_scores["usage"].amount == 250.0
    older[0, 3] = 500.0
    # the first decision is at block 56 + 4 and looks back 56 blocks: it does not see block 3, and two see block 5
    assert tried(node(short, older=older))[HIGHEST].amount == 645.0
    older[0, 5] = 500.0
    assert tried(node(short, older=older))[HIGHEST].amount == pytest.approx(645 - 200 * 2 / 13)


def test_a_node_without_samples_lends_nothing_and_is_not_judged() -> None:
    policy_scores = tried(node(np.full(DAYS * SLOTS, np.nan)))
    assert np.isnan([policy_scores["usage"].amount, policy_scores["usage"].violation]).all()


def score(policy: str, amount: float, violation: float, risk: float | None = None) -> PolicyScore:
    return PolicyScore(policy, risk, CPU, amount, violation, 0.0, 0.0)


NOW, AHEAD = score("usage", 1000.0, 0.002), score("forecast", 1400.0, 0.008, 1.0)


def trial(*policy_scores: PolicyScore, days: float = 21.0, in_force: str = "usage") -> PolicyTrial:
    return PolicyTrial(0, 35.0, days, 3, {CPU: in_force}, {CPU: 1.0}, policy_scores)


def test_a_switch_is_offered_with_its_numbers() -> None:
    times = about(1.4)
    assert switch(trial(NOW, AHEAD)) == PolicySwitch("usage", times, 0.008, 21.0)


@pytest.mark.parametrize(
    "without",
    [
        trial(NOW, AHEAD, in_force="forecast"),
        trial(NOW, AHEAD, days=6.75),
        trial(NOW, structs.replace(AHEAD, amount=1099.0)),
        trial(NOW, structs.replace(AHEAD, violation=0.011)),
        trial(NOW, structs.replace(AHEAD, violation=float("nan"))),
        trial(NOW, structs.replace(AHEAD, risk_percent=5.0)),
        trial(structs.replace(NOW, amount=0.0), AHEAD),
        trial(AHEAD),
    ],
    ids=[
        "in force",
        "few days",
        "hardly more",
        "more violations",
        "not judged",
        "another risk",
        "nothing",
        "not tried",
    ],
)
def test_no_switch_is_offered_without_evidence(without: PolicyTrial) -> None:
    assert switch(without) is None


def test_a_forecast_may_be_violated_as_often_as_the_policy_in_force() -> None:
    often = structs.replace(NOW, violation=0.03)
    assert switch(trial(often, structs.replace(AHEAD, violation=0.03))) is not None
