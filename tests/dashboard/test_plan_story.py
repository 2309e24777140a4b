"""What the pages say about plans: every phase in words, bars and wishes counted once, forms that come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.base.resource import Resource
from cotenant.base.text import moment as said_moment
from cotenant.dashboard.figures import gantt
from cotenant.dashboard.figures.gantt import STATES, Pods
from cotenant.dashboard.reservations import forms as plan_forms
from cotenant.dashboard.reservations import story
from cotenant.scheduler_ext.reservations.commands.rows import score_table
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    ApprovalPolicy,
    DecisionScope,
    OccurrenceProgress,
    PeakWindow,
    Plan,
    PlanDecision,
    PlanOwner,
    PlanReservation,
    PlanStatus,
    Realisation,
    Recurrence,
    Score,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanEvent, PlanHistoryEntry, PlanTerms
from cotenant.scheduler_ext.reservations.model.plan_states import (
    available_pods,
    state_of,
    used_reservations,
    wanted_pods,
)
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy
from cotenant.scheduler_ext.reservations.plans.preview import PreviewContext, preview
from tests.dashboard.test_reservations_page import ROWS
from tests.support.plans import HOUR, LEAD, SIX

WINDOW = Span(SIX, SIX + 2 * HOUR)
SCORE = Score(SIX, SIX + 2 * HOUR, 4, 3, 1, 0.81, 0.9, 1.5, 0.1, lead_seconds=800)


def plan(phase: PlanPhase | None = PlanPhase.PROPOSED, **changed: Any) -> Plan:
    """Four pods of two cores at six; `status` are fields of its status."""
    status: dict[str, Any] = {"window": WINDOW, "reserve_at_seconds": SIX - LEAD, "lead_seconds": LEAD, "count": 4}
    status |= changed.pop("status", {})
    fields: dict[str, Any] = {
        "source": WindowSource.MANUAL,
        "window": WINDOW,
        "status": PlanStatus(phase, **status),
        **changed,
    }
    return Plan("shop", "web-peak", owner=PlanOwner("Deployment", "web"), per_pod={"cpu": 2000}, count=4, **fields)


def units(used: int, free: int, pending: int = 0) -> tuple[PlanReservation, ...]:
    taken = [PlanReservation(f"u{k}", "n1", "Succeeded", f"shop/web-{k}") for k in range(used)]
    return (
        *taken,
        *(PlanReservation(f"f{k}", "n1", "Available") for k in range(free)),
        *[PlanReservation("p", "", "Pending")] * pending,
    )


def test_an_approved_plan_says_when_its_room_is_reserved() -> None:
    sentence = story.next_step(plan(PlanPhase.APPROVED), SIX - HOUR)
    # Six less 1,150 s, in minutes 20, is 17:40:50; an hour before six that is 2,450 s ahead.
    assert sentence == "Capacity for 4 pods will be reserved at Thu 25 Feb 17:40 UTC, in 40 min."
    late = story.next_step(plan(PlanPhase.APPROVED), SIX - 60)
    assert "is reserved now" in late


def test_a_plan_that_nobody_approved_never_says_that_its_capacity_is_reserved() -> None:
    for phase in PlanPhase:
        sentence = story.reserve_words(plan(phase), SIX - 60)
        approved = phase is PlanPhase.APPROVED or phase.holds
        assert ("is reserved now" in sentence, "as soon as the plan is approved" in sentence) == (
            approved,
            not approved,
        )


def test_window_and_pods_of_a_plan_are_those_of_one_window() -> None:
    first, second = Span(SIX, SIX + HOUR), Span(SIX + 5 * HOUR, SIX + 9 * HOUR)
    windows = (PeakWindow(first, 11), PeakWindow(second, 16))
    peak_plan = replace(plan(PlanPhase.PROPOSED), count=16, window=second, windows=windows)
    peak_plan = replace(peak_plan, status=replace(peak_plan.status, window=first))
    # The window that comes first has 11 pods; the largest, which comes later, has 16.
    assert wanted_pods(peak_plan) == 11 and "Capacity for 11 pods" in story.reserve_words(peak_plan, SIX - 2 * HOUR)
    bar = next(bar for bar in story.bars(peak_plan, []) if bar.start_seconds == SIX)
    assert bar.pods == 11
    shown = preview(peak_plan, first, PreviewContext((), {}, 0.0))
    assert (shown.count, shown.window, shown.unplaced) == (11, first, 11)


@pytest.mark.parametrize("phase", list(PlanPhase))
def test_every_phase_has_a_state_a_tone_words_and_a_next_step(phase: PlanPhase) -> None:
    peak_plan = plan(phase, status={"score": SCORE, "units": units(1, 2, 1)})
    assert next(bar.state for bar in story.bars(peak_plan, [])) in STATES
    assert state_of(peak_plan).tone in {"violet", "orange", "teal", "red", "gray"}
    assert story.bar_label(peak_plan) and story.next_step(peak_plan, SIX).endswith(".")


def test_an_approval_that_the_manager_has_not_seen_yet_is_told() -> None:
    yes = Approval(PlanDecision.APPROVED, DecisionScope.ONCE, "ann", SIX - HOUR)
    assert story.next_step(plan(approval=yes), SIX - HOUR).startswith(
        f"The plan was approved by ann, {said_moment(SIX - HOUR)}: the manager acts on this"
    )
    old = plan(approval=replace(yes, at_seconds=1.0), status={"score": SCORE})
    assert story.next_step(old, SIX - HOUR).startswith("Waiting for approval.")


def test_a_guard_that_stops_a_plan_is_said_where_it_stands() -> None:
    over = Condition("Reserved", "False", "OverBudget", "cpu: 71.0 % of the cluster would be held.")
    stopped = plan(PlanPhase.APPROVED, status={"conditions": (over,)})
    assert "71.0 %" in story.next_step(stopped, SIX)
    assert "71.0 %" in story.bar_label(plan(PlanPhase.FAILED, status={"conditions": (over,)}))


def test_what_is_held_says_how_much_is_there_and_used() -> None:
    peak_plan = plan(PlanPhase.IN_WINDOW, status={"units": units(1, 2, 1)})
    assert (available_pods(peak_plan), used_reservations(peak_plan)) == (3, 1)
    assert story.bar_label(peak_plan) == "held: 3 of 4 available, 1 used"


def test_a_bar_has_the_line_of_start_less_lead_and_the_chart_of_pods_its_label() -> None:
    (bar,) = story.bars(plan(PlanPhase.APPROVED), [])
    assert bar.reserve_at_seconds == SIX - LEAD
    lead = next(t for t in gantt.chart([bar], int(SIX - HOUR)).figure["data"] if t.get("name") == gantt.LEAD)
    assert lead["x"][3:5] == [1000 * (SIX - LEAD), 1000 * SIX]
    late = gantt.chart([replace(bar, reserve_at_seconds=0)], int(SIX - HOUR)).figure["data"]
    assert all(t.get("name") != gantt.LEAD for t in late)
    day = Pods(int(SIX - HOUR), 3.0, np.array([0.0, 0.0, 2.0]), np.zeros(3), 0.9, SIX - LEAD)
    (line,) = gantt.pods(day).figure["layout"]["shapes"]
    # 18:00 less 1,150 s is 17:40:50
    assert (line["x0"], line["label"]["text"]) == (1000 * (SIX - LEAD), "start − lead: 17:40")
    assert "Reserved from Thu 25 Feb 17:40 UTC" in gantt.pods(day).summary
    assert gantt.pods(replace(day, reserve_at_seconds=0.0)).figure["layout"]["shapes"] == []


def test_a_series_is_drawn_as_approved_and_a_single_approval_only_for_its_occurrence() -> None:
    rule = Recurrence("0 18 * * *", "Etc/UTC", 2 * HOUR)
    later = [WINDOW, Span(SIX + 24 * HOUR, SIX + 26 * HOUR)]
    for scope, state in ((DecisionScope.SERIES, "approved"), (DecisionScope.ONCE, "proposed")):
        yes = Approval(PlanDecision.APPROVED, scope, "ann")
        peak_plan = plan(PlanPhase.APPROVED, source=WindowSource.RECURRING, window=None, recurring=rule, approval=yes)
        assert [bar.state for bar in story.bars(peak_plan, later)] == ["approved", state]


def test_room_that_stands_is_not_wanted_twice() -> None:
    peak_plan = plan(PlanPhase.IN_WINDOW, status={"units": units(1, 2, 1)})
    # One of four pods of two cores has no Reservation yet.
    assert [w.amount for w in story.wishes(peak_plan, [WINDOW], Resource.CPU)] == [2000]
    assert story.wishes(plan(PlanPhase.REJECTED), [WINDOW], Resource.CPU) == []
    assert story.wishes(plan(suspended=True), [WINDOW], Resource.CPU) == []


def test_peaks_and_plans_of_a_workload_are_one_entry_and_drawn_once() -> None:
    mine = replace(plan(), name="deployment-web")
    waits, over = mine, replace(plan(PlanPhase.SCORED), name="old")
    entries = story.merge_entries(ROWS, [over, waits])
    assert [(e.workload.name, [p.name for p in e.plans], e.row is not None) for e in entries] == [
        ("web", ["deployment-web", "old"], True),
        ("checkout", [], True),
    ]
    assert [row["workload"] for row in story.rows_without_plan(ROWS, [waits])] == ["checkout", "index", "even"]


def test_the_time_line_is_in_order_and_says_what_is_done() -> None:
    act = PlanHistoryEntry(SIX - 2 * HOUR, "ann", PlanEvent.APPROVED, "Approved by ann")
    status = {
        "progress": OccurrenceProgress(SIX, available_at_seconds=SIX - 900.0, most_reserved=4),
        "units": units(0, 4),
    }
    events = story.timeline(plan(PlanPhase.IN_WINDOW, status=status), [act], SIX + 60)
    assert [(m.title, m.done) for m in events] == [
        ("approved", True), ("reservations are requested", True), ("reserved capacity is available", True),
        ("the window begins", True),
        ("the window ends", False),
    ]  # fmt: skip
    over = plan(PlanPhase.SCORED, status={"score": SCORE, "progress": OccurrenceProgress(SIX, most_reserved=4)})
    last = story.timeline(over, [], SIX + 3 * HOUR)[-1]
    assert last.title == "scored" and last.words.startswith("Coverage 90 % of the needed pod-time: 3 of 4 pods used a")
    assert "1 pod waited without a reservation, capacity was complete 13 min before the start" in last.words


def test_the_mark_changes_with_what_is_shown_and_only_then() -> None:
    peak_plan = plan(PlanPhase.APPROVED)
    mark = story.plans_mark([peak_plan], SIX)
    assert story.plans_mark([peak_plan], SIX + 1) == mark
    assert story.plans_mark([replace(peak_plan, generation=2)], SIX) != mark
    assert story.plans_mark([plan(PlanPhase.IN_WINDOW)], SIX) != mark
    assert story.any_plan_moving([peak_plan], SIX - LEAD - 60) and not story.any_plan_moving(
        [peak_plan], SIX - 6 * HOUR
    )


def test_past_occurrences_are_drawn_by_symbol_with_a_summary() -> None:
    chart = gantt.scores([SCORE, replace(SCORE, start_seconds=SIX - 24 * HOUR)])
    assert [t["marker"]["symbol"] for t in chart.figure["data"]] == ["square-open", "circle", "x"]
    assert chart.summary == (
        "2 occurrences; the last had capacity reserved for 4 pods, 3 used it and 1 waited: "
        "coverage 90 % of the needed pod-time, 81 % of the reserved pod-time used."
    )
    assert chart.figure["data"][0]["x"][0] < chart.figure["data"][0]["x"][1]


def test_many_occurrences_share_a_line_and_words_stand_only_where_there_is_room() -> None:
    rule = Recurrence("0 18 * * *", "Etc/UTC", 2 * HOUR)
    windows = [Span(SIX + 24 * HOUR * k, SIX + 24 * HOUR * k + 2 * HOUR) for k in range(7)]
    bars = story.bars(plan(source=WindowSource.RECURRING, window=None, recurring=rule), windows)
    figure = gantt.chart(bars, int(SIX - HOUR), SIX, 7).figure
    assert figure["layout"]["yaxis"]["ticktext"] == ["shop/web"]
    text_trace = figure["data"][-1]
    assert len(text_trace["x"]) == 7 and [bool(t) for t in text_trace["text"]].count(True) <= 1
    assert len(text_trace["customdata"]) == 7


# ---- forms


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    pods=st.integers(1, 10_000),
    start=st.integers(1_700_000_000, 2_000_000_000),
    length=st.integers(60, 86_400),
    lead=st.integers(0, 360),
    ttl=st.none() | st.integers(1, 5000),
    standby=st.integers(0, 100),
    once=st.booleans(),
    kind=st.sampled_from(list(Realisation)),
    policy=st.sampled_from([AllocatePolicy.ALIGNED, AllocatePolicy.RESTRICTED]),
)
def test_a_form_that_nobody_touched_gives_back_the_plan_s_own_terms(**given_terms: Any) -> None:
    inputs = given_terms
    window = Span(float(inputs["start"]), float(inputs["start"] + inputs["length"]))
    ttl = None if inputs["ttl"] is None else 60.0 * inputs["ttl"]
    terms = PlanTerms(
        inputs["pods"], window=window, lead_seconds=60.0 * inputs["lead"], ttl_seconds=ttl, realisation=inputs["kind"],
        allocate_once=inputs["once"], allocate_policy=inputs["policy"], standby=inputs["standby"],
    )  # fmt: skip
    forecast_plan = Plan(
        "shop", "x", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {}, terms.pods, window=window,
        lead_seconds=terms.lead_seconds, ttl_seconds=ttl, realisation=terms.realisation,
        allocate_once=terms.allocate_once, allocate_policy=terms.allocate_policy, standby=terms.standby,
    )  # fmt: skip
    typed = {field.key: field.value for field in plan_forms.fields(forecast_plan)}
    assert plan_forms.terms(typed, PlanTerms.of(forecast_plan)) == terms


def test_a_schedule_keeps_what_its_form_does_not_show() -> None:
    rule = Recurrence("0 18 * * *", "Europe/Berlin", 2 * HOUR, 600.0, (SIX,))
    series_plan = plan(source=WindowSource.RECURRING, window=None, recurring=rule)
    typed = {field.key: field.value for field in plan_forms.fields(series_plan)} | {"schedule": " 0  19 * * * "}
    assert plan_forms.terms(typed, PlanTerms.of(series_plan)).recurring == replace(rule, schedule="0 19 * * *")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"pods": "many"}, "Pods: 'many' is not a number"),
        ({"pods": ""}, "Pods: '' is not a number"),
        ({"pods": "nan"}, "Pods: nan is not a number"),
        ({"start": "tomorrow"}, "From: 'tomorrow' is not a time"),
        ({"lead": None}, "Lead: '' is not a number"),
        ({"when": "schedule", "schedule": " "}, "Schedule is empty"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_field(typed: dict[str, Any], message: str) -> None:
    fields = {field.key: field.value for field in plan_forms.fresh(SIX, window=WINDOW)}
    with pytest.raises(UsageError, match=message):
        plan_forms.terms(fields | typed)


def test_a_policy_s_empty_limits_are_not_asked() -> None:
    assert plan_forms.policy(True, (80, "", 2.5)) == ApprovalPolicy(True, 0.8, None, 2.5)
    assert plan_forms.policy(False, ("", None, "")) == ApprovalPolicy(False)


def test_a_score_says_what_batch_ran_in_the_held_room_where_that_is_known() -> None:
    lent_score = replace(SCORE, lent_core_hours=0.5)
    assert plan_scores.summary(lent_score).endswith(
        "1.5 core-hours were idle (batch pods used 0.5 of them); 81 % of the reserved pod-time used."
    )
    assert "1.5 core-hours were idle; 81 %" in plan_scores.summary(SCORE)
    (row,) = score_table(plan(status={"score": lent_score})).rows()
    assert (row["idle_core_hours"], row["lent_core_hours"]) == (1.5, 0.5)
