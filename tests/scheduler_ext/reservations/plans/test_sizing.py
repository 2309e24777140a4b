"""Quantile, pods, lead, guards and the slow hand: small functions, each number derived."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.usage.forecast import LEVELS
from cotenant.scheduler_ext.reservations.model.plan import WindowSource
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.backtest import account, last_week, skill, static, waiting_share
from cotenant.scheduler_ext.reservations.plans.guards import Situation, check_guards, first_blocking_verdict
from cotenant.scheduler_ext.reservations.plans.size import (
    ReservedPods,
    lead_seconds,
    level_path,
    most,
    pods,
    replay_reserved_pods,
    reserve_pods,
)

OWN = PlanSettings()


def test_the_quantile_is_taken_per_half_hour_and_the_highest_of_a_window_counts() -> None:
    path = np.array([0.0, 700.0, 1900.0, 1000.0])
    count = pods(path, base=500, per_pod=500)
    # (700 - 500) / 500 -> 1; (1900 - 500) / 500 = 2.8 -> 3; (1000 - 500) / 500 = 1.
    assert count.tolist() == [0, 1, 3, 1]
    # The window 1,000 s .. 3,700 s touches the slots 0, 1 and 2 of half an hour each.
    assert most(count, 0, 1800, 1000, 3700) == 3
    assert most(count, 0, 1800, 99_000, 99_900) == 0


def test_a_quantile_between_levels_lies_between_and_one_above_them_lies_above() -> None:
    quantiles = np.linspace(100, 200, len(LEVELS))[None, :]
    between, top, above = (float(level_path(quantiles, tau)[0]) for tau in (0.925, 0.98, 0.99))
    # 0.9 and 0.95 are the levels 8 and 9 of 10 steps of 10 each: 180 and 190.
    assert between == pytest.approx(185)
    assert top == pytest.approx(200)
    assert above > top


def test_the_lead_is_the_sum_of_what_has_to_happen_first() -> None:
    assumed = lead_seconds(900, (), OWN)
    assert assumed == 900 + 120 + 120 + 10 + 30
    # p95 of 10, 20, .. 200 s by linear interpolation: position 18.05 of 0..19 -> 190 + 0.05 x 10.
    measured = lead_seconds(900, [10.0 * i for i in range(1, 21)], OWN)
    assert measured == 900 + 191 + 120 + 10 + 30  # 190.5 s, rounded up with the sum


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        (Situation(WindowSource.MANUAL, {"cpu": 900}, {}, {"cpu": 10_000}), None),
        (Situation(WindowSource.MANUAL, {"cpu": 900}, {"cpu": 200}, {"cpu": 10_000}), "OverBudget"),
        (Situation(WindowSource.MANUAL, {"cpu": 900}), "CapacityUnknown"),
        (Situation(WindowSource.MANUAL, {"cpu": 900}, {}, {"cpu": 10_000}, {"cpu": 800}), "OverQuota"),
        (Situation(WindowSource.FORECAST, {"cpu": 900}, {}, {"cpu": 10_000}), "SkillUnknown"),
        (Situation(WindowSource.FORECAST, {"cpu": 900}, {}, {"cpu": 10_000}, {}, -0.1), "NoSkill"),
        (Situation(WindowSource.FORECAST, {"cpu": 900}, {}, {"cpu": 10_000}, {}, 0.1), None),
    ],
)
def test_each_guard_stops_what_it_guards_and_says_so(situation: Situation, reason: str | None) -> None:
    # 10 % of 10 cores may be held: 900 m passes, 900 + 200 m does not.
    stopped = first_blocking_verdict(check_guards(situation, OWN))
    assert (stopped.reason if stopped else None) == reason


def test_the_kill_switch_stops_everything() -> None:
    stopped = first_blocking_verdict(
        check_guards(Situation(WindowSource.MANUAL, {}, {}, {"cpu": 1}), PlanSettings(enabled=False))
    )
    assert stopped is not None
    assert stopped.reason == "SwitchedOff"


def test_more_is_held_at_once_and_less_only_when_clearly_less_is_wanted() -> None:
    reserved_pods = reserve_pods(ReservedPods(0), 10, 0.0)
    assert reserved_pods == ReservedPods(10, 0.0)
    # 20 % of 10 is 2: 8 is not clearly less, 7 is, and not within 10 minutes of the last change.
    assert reserve_pods(reserved_pods, 8, 9000.0) is reserved_pods
    assert reserve_pods(reserved_pods, 7, 599.0) is reserved_pods
    assert reserve_pods(reserved_pods, 7, 600.0) == ReservedPods(7, 600.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_what_is_held_never_lies_below_what_is_wanted_and_falls_at_most_once_in_ten_minutes(demand: list[int]) -> None:
    replayed = replay_reserved_pods(np.array([demand]), 300.0)[0]
    live, reserved_pods = [], ReservedPods(0)
    for slot, want in enumerate(demand):
        reserved_pods = reserve_pods(reserved_pods, want, slot * 300.0)
        live.append(reserved_pods.count)
    assert replayed.tolist() == live
    assert (replayed >= np.array(demand)).all()
    falls = np.flatnonzero(np.diff(replayed) < 0)
    assert (np.diff(falls) >= 2).all()


def test_an_account_adds_up_and_counts_the_peaks_that_were_missed() -> None:
    need = np.array([0, 2, 4, 0, 3, np.nan, 0.0])
    reserved_pods = np.array([1, 2, 2, 0, 3, 9, 0.0])
    plan_account = account(need, reserved_pods, 3600.0)
    # Used 0 + 2 + 2 + 0 + 3 = 7 of 8 held and 9 needed pod-hours; the slot without data counts nowhere.
    assert (plan_account.reserved, plan_account.used, plan_account.needed, plan_account.idle, plan_account.missed) == (
        8,
        7,
        9,
        1,
        2,
    )
    assert plan_account.coverage == pytest.approx(7 / 9)
    # The first peak found room for 4 of 6 pod-hours, the second for all.
    assert (plan_account.peaks, plan_account.missed_peaks) == (2, 1)
    assert "1 of 2 peaks missed" in plan_account.words(0.5)


def test_skill_compares_costs_with_the_baselines() -> None:
    need = np.array([0.0, 4.0, 4.0, 0.0])
    plan, cron = account(need, np.array([0, 4, 4, 1]), 3600.0), account(need, static(need, 2), 3600.0)
    # The plan: 1 idle. The baseline: 4 idle and 4 missed at 19 each: 80. 1 - 1 / 80.
    assert skill(plan, cron, 19) == pytest.approx(1 - 1 / 80)


def test_last_weeks_cron_holds_the_highest_value_of_the_hour_a_week_ago() -> None:
    values = last_week(np.arange(8.0), slots_per_week=4, block=2)
    assert np.isnan(values[:4]).all()
    assert values[4:].tolist() == [1, 1, 3, 3]


def test_of_the_pods_that_come_those_above_what_is_reserved_wait() -> None:
    need = np.array([0, 2, 2, 5, np.nan, 0, 1.0])
    reserved = np.array([0, 2, 2, 3, 0, 0, 1])
    # 2, 3 and 1 come; of the three, 5 - 3 = 2 find nothing. What comes from or to a slot without data is not counted.
    assert waiting_share(need, reserved) == pytest.approx(2 / 6)
    assert waiting_share(np.zeros(3), np.zeros(3)) == 0
