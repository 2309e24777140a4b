"""An occurrence's life: approvals, guards, demand, deadlines; and what holds whatever happens in whatever order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    ApprovalPolicy,
    DecisionScope,
    Expected,
    PeakWindow,
    Plan,
    PlanDecision,
    PlanOwner,
    Realisation,
    Recurrence,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanGuardResult
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan, status_body
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.lifecycle import PlanObservation, PlanStep, PodForecast, step
from cotenant.scheduler_ext.reservations.plans.schedule import decision_in_force
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse
from cotenant.scheduler_ext.reservations.plans.size import lead_seconds
from tools import write_phases

HOUR = 3600.0
SIX, EIGHT = 1_803_578_400.0, 1_803_585_600.0
"""18:00 and 20:00 UTC of a day."""
OWN = PlanSettings()
LEAD_SECONDS = lead_seconds(900, (), OWN)
YES = Approval(PlanDecision.APPROVED, by="ann")


def plan(**changes: object) -> Plan:
    fields = {"source": WindowSource.MANUAL, "window": Span(SIX, EIGHT), "approval": YES, **changes}
    return Plan("shop", "web-peak", owner=PlanOwner("Deployment", "web"), per_pod={"cpu": 500}, count=4, **fields)  # type: ignore[arg-type]


def observation(reserved: int = 0, used: int = 0, missed: int = 0, **fields: object) -> PlanObservation:
    return PlanObservation(ReservationUse(reserved, used, missed, complete=reserved >= 4), LEAD_SECONDS, **fields)  # type: ignore[arg-type]


def after(peak_plan: Plan, *looks: tuple[float, PlanObservation], own: PlanSettings = OWN) -> tuple[Plan, PlanStep]:
    """The plan after some looks, as its status on the wire carries it from one to the next."""
    plan_step = PlanStep(peak_plan.status)
    for now, look in looks:
        plan_step = step(peak_plan, look, now, own)
        wire = status_body(plan_step.status, 1)
        spec = {"source": "Manual", "owner": {"name": "web"}, "amount": {"perPod": {"cpu": "500m"}, "count": 4}}
        peak_plan = replace(
            peak_plan, status=parse_plan({"metadata": {"name": "x"}, "spec": spec, "status": wire}).status
        )
    return peak_plan, plan_step


def test_nothing_is_held_before_start_minus_lead() -> None:
    _, early = after(plan(), (SIX - LEAD_SECONDS - 1, observation()))
    _, due = after(plan(), (SIX - LEAD_SECONDS, observation()))
    assert (early.status.phase, early.want) == (PlanPhase.APPROVED, 0)
    assert (due.status.phase, due.want) == (PlanPhase.RESERVED, 4)


def test_a_plan_that_nobody_approved_is_proposed_and_holds_nothing() -> None:
    _, plan_step = after(plan(approval=None), (SIX, observation()))
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.PROPOSED, 0)
    assert plan_step.status.conditions[0].message == "Waiting for approval."


@pytest.mark.parametrize(
    ("policy", "expected", "phase"),
    [
        (ApprovalPolicy(auto=True), None, PlanPhase.RESERVED),
        (ApprovalPolicy(auto=True, minimum_hit_ratio=0.8), None, PlanPhase.PROPOSED),
        (ApprovalPolicy(auto=True, minimum_hit_ratio=0.8), Expected(0.7, 0, 5, 1), PlanPhase.PROPOSED),
        (ApprovalPolicy(auto=True, minimum_hit_ratio=0.8), Expected(0.9, 0, 5, 1), PlanPhase.RESERVED),
        (ApprovalPolicy(auto=True, maximum_idle_core_hours=0.5), Expected(0.9, 0, 5, 1), PlanPhase.PROPOSED),
        (ApprovalPolicy(auto=True, maximum_cost=2.0), Expected(0.9, 0, 5, 1, cost=3.0), PlanPhase.PROPOSED),
    ],
)
def test_a_policy_approves_only_what_it_was_told_to(
    policy: ApprovalPolicy, expected: Expected | None, phase: PlanPhase
) -> None:
    _, plan_step = after(plan(approval=None, policy=policy), (SIX - 60, observation(expected=expected)))
    assert plan_step.status.phase is phase


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            ApprovalPolicy(True, maximum_idle_core_hours=0.5),
            "1.0 idle core-hours a day are expected, the policy allows 0.5.",
        ),
        (ApprovalPolicy(True, maximum_cost=2.0), "Daily cost is 3.00, the policy allows 2.0."),
    ],
)
def test_a_limit_that_stops_an_approval_is_named_with_its_unit_of_time(policy: ApprovalPolicy, message: str) -> None:
    expected = Expected(0.9, 0, 5, 1, cost=3.0)
    _, plan_step = after(plan(approval=None, policy=policy), (SIX - 60, observation(expected=expected)))
    assert plan_step.status.conditions[0].message == message


def test_a_guard_that_does_not_pass_is_named_in_the_condition_and_the_window_is_missed() -> None:
    no = (PlanGuardResult("cluster budget", False, "OverBudget", "too much"),)
    held_back, plan_step = after(plan(), (SIX, observation(guards=no)))
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.APPROVED, 0)
    assert ("Reserved", "OverBudget") in [(c.type, c.reason) for c in plan_step.status.conditions]
    _, over = after(held_back, (EIGHT, observation(guards=no)))
    assert over.status.phase is PlanPhase.MISSED


def test_a_whole_occurrence_is_scored_by_what_was_seen_of_it() -> None:
    _, plan_step = after(
        plan(),
        (SIX - LEAD_SECONDS, observation()),
        (SIX - 600, observation(reserved=4)),
        (SIX, observation(reserved=4)),
        (SIX + HOUR, observation(reserved=4, used=3, missed=1)),
        (EIGHT, observation(reserved=4, used=4)),
        (EIGHT + 1, observation(reserved=4, used=4)),
    )
    score = plan_step.status.score
    assert plan_step.status.phase is PlanPhase.SCORED
    assert score is not None
    # Used 3 h + 4 h of held 4 x (580 s + 600 s + 2 h); 1 pod-hour missed; all was there 600 s before.
    pod_seconds = 4 * (LEAD_SECONDS - 600 + 600 + 2 * HOUR)
    assert score.hit_ratio == pytest.approx(7 * HOUR / pod_seconds, abs=1e-3)
    assert score.coverage == pytest.approx(7 / 8, abs=1e-3)
    assert score.missed_core_minutes == pytest.approx(60 * 0.5, abs=0.1)
    assert (score.reserved, score.used, score.missed, score.lead_seconds) == (4, 4, 1, 600)


def test_room_is_kept_beyond_the_window_while_pods_wait_for_it_and_not_longer_than_allowed() -> None:
    running, plan_step = after(plan(), (SIX, observation()), (EIGHT, observation(reserved=4, used=4, missed=1)))
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.EXTENDED, 4)
    _, over = after(running, (EIGHT + 1800, observation(reserved=4, used=4, missed=1)))
    assert (over.status.phase, over.want) == (PlanPhase.SCORED, 0)


def outlook(*pod_counts: int) -> PodForecast:
    """Half hours from 17:00 on."""
    return PodForecast(SIX - HOUR, 1800.0, np.array(pod_counts), np.array(pod_counts) // 2)


def test_a_new_manager_without_a_forecast_yet_keeps_what_the_last_one_reserved() -> None:
    peak_plan = plan(source=WindowSource.FORECAST)
    held_plan, plan_step = after(peak_plan, (SIX, observation(outlook=outlook(0, 0, 1, 1, 4, 4))))
    assert plan_step.want == 1  # 18:00 + lead of 20 min + one slot ends before 19:00, where 4 are needed
    held_plan, plan_step = after(held_plan, (SIX + 60, observation(reserved=1)))
    assert plan_step.want == 1
    _, plan_step = after(held_plan, (SIX + 120, observation(reserved=1, used=1, missed=2)))
    assert plan_step.want == 3  # one pod that has its capacity and two that wait, of the 4 that were approved
    _, plan_step = after(peak_plan, (SIX, observation()))
    assert plan_step.want == 4  # nothing was reserved before: what was approved


def test_a_forecast_plan_follows_the_forecast_up_to_what_was_approved() -> None:
    peak_plan = plan(source=WindowSource.FORECAST)
    held_plan, plan_step = after(peak_plan, (SIX - 60, observation(outlook=outlook(0, 0, 2, 3, 9, 9))))
    # 18:00 + lead of 20 min + one slot reaches into 18:30..19:00.
    assert plan_step.want == 3
    held_plan, plan_step = after(held_plan, (SIX + HOUR, observation(reserved=3, outlook=outlook(0, 0, 2, 3, 9, 9))))
    assert plan_step.want == 4
    _, plan_step = after(held_plan, (SIX + 1.6 * HOUR, observation(reserved=4, outlook=outlook(0, 0, 2, 3, 9, 0))))
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.RELEASED, 0)


def test_a_forecast_that_falls_before_the_window_reserves_nothing_and_counts_as_no_miss() -> None:
    peak_plan = plan(source=WindowSource.FORECAST)
    flat = observation(outlook=outlook(0, 0, 0, 0, 0, 0))
    held_plan, plan_step = after(peak_plan, (SIX - 60, flat))
    assert ("Reserved", "NoDemand") in [(c.type, c.reason) for c in plan_step.status.conditions]
    _, over = after(held_plan, (EIGHT, flat))
    assert over.status.phase is PlanPhase.SCORED


def test_an_approval_for_once_ends_with_its_occurrence_and_one_for_the_series_does_not() -> None:
    daily = Recurrence("0 18 * * *", "Etc/UTC", 2 * HOUR)
    looks = [
        (SIX, observation()),
        (EIGHT, observation()),
        (EIGHT + 60, observation()),
        (SIX + 24 * HOUR, observation()),
    ]
    once = replace(YES, scope=DecisionScope.ONCE, at_seconds=SIX - HOUR)
    _, plan_step = after(plan(source=WindowSource.RECURRING, window=None, recurring=daily, approval=once), *looks)
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.PROPOSED, 0)
    _, plan_step = after(plan(source=WindowSource.RECURRING, window=None, recurring=daily), *looks)
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.IN_WINDOW, 4)
    assert plan_step.status.window == Span(SIX + 24 * HOUR, EIGHT + 24 * HOUR)


def test_a_rejection_for_once_ends_with_the_occurrence_that_it_was_about() -> None:
    daily = Recurrence("0 18 * * *", "Etc/UTC", 2 * HOUR)
    no = Approval(PlanDecision.REJECTED, DecisionScope.ONCE, "ann", SIX - HOUR, "holiday")
    peak_plan = plan(source=WindowSource.RECURRING, window=None, recurring=daily, approval=no)
    rejected, during = after(peak_plan, (SIX - HOUR, observation()), (SIX, observation()))
    assert (during.status.phase, during.want) == (PlanPhase.REJECTED, 0)
    waiting, later = after(peak_plan, (SIX, observation()), (EIGHT + 60, observation()))
    assert (later.status.phase, later.status.window) == (PlanPhase.PROPOSED, Span(SIX + 24 * HOUR, EIGHT + 24 * HOUR))
    # People read what the manager goes by: tomorrow's occurrence may be rejected by somebody else.
    assert (decision_in_force(rejected), decision_in_force(waiting)) == (no, None)


@pytest.mark.parametrize(("days", "phase"), [(0, PlanPhase.REJECTED), (2, PlanPhase.PROPOSED)])
def test_a_rejected_forecast_is_proposed_again_when_its_window_moved_beyond_what_was_rejected(
    days: int, phase: PlanPhase
) -> None:
    no = Approval(PlanDecision.REJECTED, DecisionScope.ONCE, "ann", SIX - HOUR, "holiday")
    moved = Span(SIX + 24 * HOUR * days, EIGHT + 24 * HOUR * days)
    _, plan_step = after(
        plan(source=WindowSource.FORECAST, window=moved, approval=no), (moved.start_seconds - 60, observation())
    )
    assert plan_step.status.phase is phase


def test_what_is_held_is_given_back_when_the_approval_is_withdrawn() -> None:
    held_plan, _ = after(plan(), (SIX, observation()))
    _, plan_step = after(replace(held_plan, approval=None), (SIX + 60, observation(reserved=4)))
    assert (plan_step.status.phase, plan_step.want) == (PlanPhase.RELEASED, 0)


LOOKS = st.lists(
    st.tuples(
        st.integers(1, 5400),
        st.sampled_from(["approve", "once", "withdraw", "reject", "nothing", "nothing", "suspend", "resume"]),
        st.integers(0, 4),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(LOOKS)
def test_whatever_happens_room_is_wanted_only_while_approved_and_each_occurrence_is_held_once(
    looks: list[tuple[int, str, int, int, bool]],
) -> None:
    daily = Recurrence("0 */6 * * *", "Europe/Berlin", 2 * HOUR)
    peak_plan, now = plan(source=WindowSource.RECURRING, window=None, recurring=daily, approval=None), SIX - 24 * HOUR
    starts: list[float] = []
    for seconds, act, reserved, used, passes in looks:
        now += seconds
        approvals = {
            "approve": YES,
            "once": replace(YES, scope=DecisionScope.ONCE, at_seconds=now),
            "reject": replace(YES, decision=PlanDecision.REJECTED),
            "withdraw": None,
        }
        peak_plan = replace(
            peak_plan,
            approval=approvals.get(act, peak_plan.approval),
            suspended=act == "suspend" or peak_plan.suspended,
        )
        peak_plan = replace(peak_plan, suspended=peak_plan.suspended and act != "resume")
        guards = () if passes else (PlanGuardResult("x", False, "No", "no"),)
        before = peak_plan.status
        peak_plan, plan_step = after(
            peak_plan, (now, observation(reserved=reserved, used=min(used, reserved), guards=guards))
        )
        if plan_step.want:
            assert peak_plan.approval is not None
            assert peak_plan.approval.decision is PlanDecision.APPROVED
            assert plan_step.status.window is not None
            assert now >= plan_step.status.window.start_seconds - LEAD_SECONDS
            if before.window != plan_step.status.window or not (before.phase and before.phase.holds):
                starts.append(plan_step.status.window.start_seconds)
        again = step(peak_plan, observation(reserved=reserved, used=min(used, reserved), guards=guards), now, OWN)
        assert again.want == plan_step.want or plan_step.status.phase in (
            PlanPhase.RELEASED,
            *(p for p in PlanPhase if p.over),
        )
    assert starts == sorted(set(starts))


def usage(free: int, running: int, missed: int = 0) -> ReservationUse:
    """A look at a forecast plan: so many Reservations free, so many pods above those that run anyway."""
    return ReservationUse(free, 0, missed, complete=free + running >= 4, running=running)


def foreseen(*pod_counts: int) -> PodForecast:
    """Half hours from 18:00 on."""
    return PodForecast(SIX, 1800, np.array(pod_counts), np.array(pod_counts))


def forecast_plan(**more: object) -> Plan:
    return plan(source=WindowSource.FORECAST, **more)


def looked(look: ReservationUse, *pod_counts: int) -> PlanObservation:
    return PlanObservation(look, LEAD_SECONDS, outlook=foreseen(*pod_counts))


def test_what_a_pod_leaves_is_reserved_again_while_the_forecast_asks_for_it() -> None:
    peak_plan, reserved = after(forecast_plan(), (SIX, looked(usage(0, 0), 4, 4, 4, 4)))
    assert (reserved.want, reserved.free) == (4, 4)
    # three of four pods run, with a reservation or without: capacity for one more is wanted
    peak_plan, ramp = after(peak_plan, (SIX + 600, looked(usage(1, 3), 4, 4, 4, 4)))
    assert (ramp.want, ramp.free) == (4, 1)
    # one of them is gone, and a successor may come
    _, again = after(peak_plan, (SIX + 1200, looked(usage(1, 2), 4, 4, 4, 4)))
    assert (again.want, again.free) == (4, 2)


def test_a_schedules_pods_that_left_find_their_capacity_again_within_the_window() -> None:
    peak_plan, _ = after(plan(), (SIX, observation(reserved=4)), (SIX + 60, observation(reserved=4, used=4)))
    assert after(peak_plan, (SIX + 120, observation(reserved=3, used=3)))[1].free == 1


def test_standby_is_free_outside_the_windows_and_on_top_of_what_runs() -> None:
    peak_plan, early = after(forecast_plan(standby=1), (SIX - 6 * HOUR, looked(usage(0, 0))))
    assert (early.status.phase, early.want, early.free) == (PlanPhase.APPROVED, 0, 1)
    assert ("Reserved", "Standby") in [(c.type, c.reason) for c in early.status.conditions]
    # in the window four run where two were foreseen: capacity for one more is still ready
    _, crowd = after(peak_plan, (SIX, looked(usage(1, 0), 2, 2, 2)), (SIX + 60, looked(usage(1, 4), 2, 2, 2)))
    assert (crowd.want, crowd.free) == (4, 1)
    # and after it, though the forecast has no other window yet
    _, over = after(
        peak_plan, (SIX, looked(usage(1, 0), 2, 2, 2)), (EIGHT, looked(usage(1, 0))), (EIGHT, looked(usage(1, 0)))
    )
    assert (over.status.phase, over.free) == (PlanPhase.SCORED, 1)


@pytest.mark.parametrize(
    ("change", "own"),
    [
        ({"approval": None}, OWN),
        ({"approval": Approval(PlanDecision.REJECTED, by="ann", reason="no")}, OWN),
        ({"suspended": True}, OWN),
        ({"deleting": True}, OWN),
        ({"realisation": Realisation.REPLICA_FLOOR}, OWN),
        ({}, PlanSettings(enabled=False)),
    ],
)
def test_standby_ends_with_what_allowed_it(change: dict[str, object], own: PlanSettings) -> None:
    _, plan_step = after(forecast_plan(standby=1, **change), (SIX - 6 * HOUR, looked(usage(1, 0))), own=own)
    assert plan_step.free == 0


def test_standby_waits_for_the_guards() -> None:
    no = (PlanGuardResult("forecast gain", False, "NoSkill", "too little"),)
    look = replace(looked(usage(0, 0)), guards=no)
    assert after(forecast_plan(standby=1), (SIX - 6 * HOUR, look))[1].free == 0


def test_idle_standby_is_part_of_the_score() -> None:
    peak_plan = forecast_plan(standby=1)
    looks = [(SIX - HOUR + 300 * i, looked(usage(1, 0), 1, 1, 1, 1)) for i in range(4)]
    peak_plan, _ = after(peak_plan, *looks)
    # from the first look to the last one pod is held for 900 s, and none runs
    assert (peak_plan.status.progress.reserved_pod_seconds, peak_plan.status.progress.used_pod_seconds) == (900, 0)


def test_standby_that_is_idle_after_the_days_last_window_is_in_the_next_score() -> None:
    without_standby = looked(usage(0, 0), 1, 1, 1, 1)
    with_standby = looked(usage(1, 0), 1, 1, 1, 1)
    peak_plan, over = after(
        forecast_plan(standby=1),
        (SIX, without_standby),
        (SIX + 60, with_standby),
        (EIGHT, without_standby),
        (EIGHT + 30, without_standby),
    )
    assert over.status.phase is PlanPhase.SCORED
    peak_plan, _ = after(peak_plan, *((EIGHT + 600 + 300 * i, looked(usage(1, 0))) for i in range(4)))
    tomorrow = Span(SIX + 24 * HOUR, EIGHT + 24 * HOUR)
    peak_plan = replace(peak_plan, window=tomorrow)
    peak_plan, _ = after(peak_plan, (EIGHT + 1800, looked(usage(1, 0), 0)))
    # one free pod: from the look at 30 s after the window to the last one, 1800 s after it
    assert (peak_plan.status.window, peak_plan.status.progress.reserved_pod_seconds) == (tomorrow, 1770)


def test_an_extension_ends_where_the_forecasts_next_window_is_due() -> None:
    later = Span(EIGHT + 1500, EIGHT + HOUR)
    peak_plan = forecast_plan(windows=(PeakWindow(Span(SIX, EIGHT), 2), PeakWindow(later, 4)))
    look = looked(usage(0, 2, 1), 4, 4, 4, 4, 4, 4)
    peak_plan, extended = after(peak_plan, (SIX, look), (EIGHT, look))
    assert extended.status.phase is PlanPhase.EXTENDED
    # 20 min of lead: due 5 min after the first window's end, and taken for its own four pods once that one is scored
    due = later.start_seconds - LEAD_SECONDS
    peak_plan, _ = after(peak_plan, (due, look), (due + 30, look))
    _, second = after(peak_plan, (due + 60, look))
    assert (second.status.window, second.status.phase, second.want) == (later, PlanPhase.RESERVED, 4)


def test_every_window_of_the_day_is_held_in_turn_and_with_its_own_pods() -> None:
    noon, evening = Span(SIX - 6 * HOUR, SIX - 5 * HOUR), Span(SIX, EIGHT)
    peak_plan = forecast_plan(window=evening, windows=(PeakWindow(noon, 2), PeakWindow(evening, 4)))
    outlook = PodForecast(noon.start_seconds, 1800, np.full(16, 9), np.zeros(16, dtype=np.int64))
    look = PlanObservation(usage(0, 0), LEAD_SECONDS, outlook=outlook)
    peak_plan, first = after(peak_plan, (noon.start_seconds, look))
    assert (first.status.window, first.want) == (noon, 2)
    peak_plan, _ = after(peak_plan, (noon.end_seconds, look), (noon.end_seconds + 1, look))
    _, second = after(peak_plan, (SIX, look))
    assert (second.status.window, second.want) == (evening, 4)


def _may_become(before: PlanPhase | None, after: PlanPhase | None) -> bool:
    """Whether arrows of the table lead there. One step may pass several, but begins an occurrence only at once."""
    begin = {before or PlanPhase.PROPOSED} | ({PlanPhase.PROPOSED} if before and before.over else set())
    reached: set[str] = set(begin)
    while more := {
        then
        for phase in reached
        if not PlanPhase(phase).over
        for then in PLAN_STATES[PlanPhase(phase)].then
        if then not in reached
    }:
        reached |= more
    return after in reached


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 120),
            st.integers(0, 4),
            st.integers(0, 4),
            st.sampled_from([YES, None, Approval(PlanDecision.REJECTED, by="ann", reason="no")]),
        ),
        max_size=40,
    )
)
def test_a_plan_takes_only_the_ways_that_the_table_of_phases_has(
    looks: list[tuple[int, int, int, Approval | None]],
) -> None:
    now, later = (
        SIX - 3 * HOUR,
        (PeakWindow(Span(SIX, EIGHT), 4), PeakWindow(Span(EIGHT + 2 * HOUR, EIGHT + 3 * HOUR), 2)),
    )
    peak_plan = plan(source=WindowSource.FORECAST, windows=later)
    for minutes, reserved, missed, approval in looks:
        now += minutes * 60
        peak_plan = replace(peak_plan, approval=approval)
        before = peak_plan.status.phase
        peak_plan, _ = after(peak_plan, (now, observation(reserved=reserved, used=reserved // 2, missed=missed)))
        assert _may_become(before, peak_plan.status.phase), (before, peak_plan.status.phase)


def test_a_plan_never_reserves_again_what_it_released() -> None:
    # What the test above rests on: the table has no way back, other than through the next occurrence.
    assert not _may_become(PlanPhase.RELEASED, PlanPhase.RESERVED)
    assert not _may_become(PlanPhase.IN_WINDOW, PlanPhase.RESERVED)
    assert _may_become(PlanPhase.SCORED, PlanPhase.RESERVED)


@pytest.mark.parametrize("path", write_phases.PAGES, ids=lambda path: path.name)
def test_a_page_has_the_phases_as_the_table_has_them(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == write_phases.page(path)
