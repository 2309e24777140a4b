"""One plan, one state and one score on every surface: list, drawer, page, chart, command, REST and report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.moments import moment
from cotenant.base.store import Store
from cotenant.dashboard.figures import display, gantt
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.reservations import board, detail, plan_actions, plan_page, story
from cotenant.dashboard.reservations.board import BoardPlans
from cotenant.dashboard.rest.plans import _plan_body
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.reservations.commands.rows import plan_table, report_table, score_table
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.life_cycle import (
    PLAN_STATES,
    RESERVATION_STATES,
    Phase,
    PlanGroup,
    PlanPhase,
)
from cotenant.scheduler_ext.reservations.model.plan import (
    ApprovalPolicy,
    Expected,
    PeakWindow,
    Plan,
    PlanStatus,
    Recurrence,
    Score,
    Span,
)
from cotenant.scheduler_ext.reservations.model.plan_scores import reports
from cotenant.scheduler_ext.reservations.model.plan_service import PlanListing
from cotenant.scheduler_ext.reservations.model.plan_states import by_need, counts
from tests.dashboard.test_plan_story import SCORE, plan, units
from tests.support import dashboard as support
from tests.support.plans import HOUR, SIX, TestClock, embedded

LATE = replace(SCORE, hit_ratio=0.98, coverage=0.16, reserved=2, used=2, missed=5, needed=7, lead_seconds=-265 * 60)
"""Two of seven pods found capacity, and all of it was there 265 minutes after the start: a hit ratio near 100 %."""
LEADS = ((800, "13 min before the start"), (-265 * 60, "265 min after the start"), (-20, "20 s after the start"),
         (0, "at the start"), (59, "59 s before the start"), (None, "never"))  # fmt: skip


def text_of(part: Any) -> str:
    """The words of a drawn part in their order, and its addresses behind them, as a reader meets them."""
    if isinstance(part, str):
        return part
    if isinstance(part, Sequence):
        return "".join(text_of(piece) for piece in part)
    inner = text_of(getattr(part, "children", None) or "")
    href = getattr(part, "href", None)
    return f"{inner}<{unquote(href)}>" if href else inner


def plain(text: str) -> str:
    """The same without addresses."""
    return re.sub(r"<[^>]*>", "", text)


def view_of(folder: Path, plans: Any) -> View:
    store = StoreSource(Store((folder / "empty").as_uri(), "embedded"), support.QUICK)
    return View(store, support.QUICK, TestClock(SIX - 6 * HOUR).now_seconds, DashboardContext(plans=plans))


class Service:
    """Plans as the cluster would have them; nothing else is asked of it here."""

    def __init__(self, *plans: Plan) -> None:
        self.all = plans

    def plans(self, _who: object) -> PlanListing:
        return PlanListing(self.all)

    def plan(self, _who: object, ref: object) -> Plan:
        return next(p for p in self.all if story.ref_to(p) == ref)

    def occurrences(self, peak_plan: Plan, _days: float) -> list[Span]:
        return [peak_plan.status.window] if peak_plan.status.window else []

    def history(self, _who: object, _ref: object) -> list[object]:
        return []


@pytest.mark.parametrize(("seconds", "lead_text"), LEADS)
def test_a_lead_says_its_sign_on_every_surface(tmp_path: Path, seconds: int | None, lead_text: str) -> None:
    peak_plan = plan(PlanPhase.SCORED, status={"score": replace(SCORE, lead_seconds=seconds)})
    view = view_of(tmp_path, Service(peak_plan))
    report = dict(zip(*_columns(report_table(reports(peak_plan)[0], "USD")), strict=True))
    surfaces = {
        "drawer": text_of(detail.selected_panel(view, "?open=shop/ReservationPlan/web-peak", BoardPlans((peak_plan,)))),
        "page": text_of(plan_page.past(peak_plan, "USD")),
        "next step": story.next_step(peak_plan, SIX + 3 * HOUR),
        "report": report["Reserved pods"],
    }
    expected = "capacity was never complete" if seconds is None else f"capacity was complete {lead_text}"
    assert {name: expected in text for name, text in surfaces.items()} == dict.fromkeys(surfaces, True)
    assert "0 s before" not in "".join(surfaces.values()).replace("20 s", "")
    (row,) = score_table(peak_plan).rows()
    assert row["lead_seconds"] == seconds, "scripts get the number with its sign"
    assert _body(peak_plan)["reports"][0]["ready_seconds"] == seconds


def _columns(table: Any) -> tuple[list[str], list[str]]:
    rows = list(table.rows())
    return [r["what"] for r in rows], [r["answer"] for r in rows]


def _body(peak_plan: Plan) -> dict[str, Any]:
    """As REST answers."""
    from cotenant.dashboard.rest.wire import json_answer

    service: Any = Service(peak_plan)
    return dict(json.loads(bytes(json_answer(_plan_body(service, peak_plan, 7.0)).body)))


def test_coverage_leads_and_the_hit_ratio_never_stands_for_it(tmp_path: Path) -> None:
    peak_plan = plan(PlanPhase.SCORED, status={"score": LATE})
    view = view_of(tmp_path, Service(peak_plan))
    text = plan_scores.summary(LATE)
    # 16 % of the needed pod-time was covered; 98 % is of the little that was reserved
    assert text.startswith(
        "Coverage 16 % of the needed pod-time: 2 of 2 pods used a reservation, 5 pods waited without"
    )
    assert text.index("Coverage 16 %") < text.index("98 % of the reserved pod-time used")
    listed = text_of(board.live(view, "", BoardPlans((peak_plan,))))
    assert "last: coverage 16 %: 2 of 2 used, 5 waited" in listed and "98 %" not in listed
    assert "Past peaks covered" not in listed
    (row,) = plan_table([peak_plan]).rows()
    assert (row["coverage"], row["hit"]) == (0.16, 0.98)
    (past,) = score_table(peak_plan).rows()
    assert (past["coverage"], past["hit"]) == (0.16, 0.98)
    drawn = gantt.scores([LATE]).summary
    assert "coverage 16 %" in drawn and drawn.index("16 %") < drawn.index("98 %")
    assert "over: coverage 16 %" in story.bar_label(peak_plan)


def test_what_a_back_test_expects_has_one_unit_of_time_on_page_and_command() -> None:
    # The rehearsal's idle core-hours are divided by its days: they are a day's, whatever number of windows a day has.
    peak_plan = plan(status={"expected": Expected(0.61, 0.0, 8, 20.3)})
    page = text_of(plan_page.past(peak_plan, "USD"))
    assert "pods use 61 % of the reserved pod-time, and 20.3 core-hours a day stay idle" in page
    assert "per occurrence" not in page


def test_the_limits_of_a_policy_are_a_days_as_what_the_back_test_expects_in_the_form() -> None:
    limited = ApprovalPolicy(auto=True, maximum_idle_core_hours=8, maximum_cost=2.5)
    form = str(plan_actions.policy_form(plan(policy=limited), "USD").to_plotly_json())
    assert "Most idle core-hours a day" in form and "Most cost a day, USD" in form
    assert "per occurrence" not in form


def test_a_coverage_that_nobody_needed_is_no_success(tmp_path: Path) -> None:
    idle = replace(SCORE, used=0, missed=0, needed=0, coverage=1.0, hit_ratio=0.0)
    peak_plan = plan(PlanPhase.SCORED, status={"score": idle})
    assert plan_scores.summary(idle).startswith("No pod needed the reserved capacity: 0 of 4 pods used")
    assert "100 %" not in text_of(plan_page.past(peak_plan, "USD"))
    (row,) = score_table(peak_plan).rows()
    assert row["coverage"] is None
    assert "not needed: 0 of 4 used" in text_of(
        board.live(view_of(tmp_path, Service(peak_plan)), "", BoardPlans((peak_plan,)))
    )


def test_every_phase_of_a_plan_and_of_a_reservation_has_its_place_in_the_table() -> None:
    assert set(PLAN_STATES) == set(PlanPhase)
    assert set(RESERVATION_STATES) == set(Phase)
    assert {state.bar for state in PLAN_STATES.values()} <= set(gantt.STATES)
    # What runs now, what comes and what waits for a person come before all others; each phase that holds capacity runs.
    groups = [state.group for state in PLAN_STATES.values()]
    assert groups == sorted(groups, key=list(PlanGroup).index)
    assert all(PLAN_STATES[phase].group is PlanGroup.RUNNING for phase in PlanPhase if phase.holds)


@pytest.mark.slow
@pytest.mark.parametrize("phase", list(PlanPhase))
def test_a_phase_and_its_numbers_are_the_same_everywhere(tmp_path: Path, phase: PlanPhase) -> None:
    # Three Reservations of which one was taken, for four pods: 3 of 4 are there.
    peak_plan = plan(phase, status={"units": units(1, 2, 1), "score": SCORE})
    view = view_of(tmp_path, Service(peak_plan))
    (row,) = plan_table([peak_plan]).rows()
    body = _body(peak_plan)
    assert (row["phase"], row["there"], row["pods"]) == (phase.value, 3, 4)
    assert (body["phase"], body["available_pods"], body["wanted_pods"], body["used_reservations"]) == (
        phase.value, 3, 4, 1,
    )  # fmt: skip
    listed = text_of(board.live(view, "", BoardPlans((peak_plan,))))
    assert phase.value in listed and "3 of 4" in listed
    assert counts([peak_plan]).words == f"1 plan: 1 {PLAN_STATES[phase].words}"
    assert f"1 plan {PLAN_STATES[phase].words}" in plain(listed), "one count, which is said once"
    assert phase.value in text_of(
        detail.selected_panel(view, "?open=shop/ReservationPlan/web-peak", BoardPlans((peak_plan,)))
    )
    assert "3 of 4" in text_of(plan_page.present(peak_plan))


def test_what_was_taken_before_is_never_more_than_what_is_wanted_now() -> None:
    # The forecast fell from three pods to one: the three Reservations that were taken are no "3 of 1".
    peak_plan = plan(PlanPhase.IN_WINDOW, status={"units": units(3, 0), "count": 1})
    (row,) = plan_table([peak_plan]).rows()
    assert (row["there"], row["pods"]) == (1, 1)
    assert story.bar_label(peak_plan) == "held: 1 of 1 available, 3 used"


def many(waiting: int) -> list[Plan]:
    """So many proposals that all begin earlier, and after them one that is approved and one that is held."""
    begin = SIX - 2 * HOUR
    proposed = [
        replace(_owned(f"w{k:03}"), window=Span(begin, SIX), status=PlanStatus(PlanPhase.PROPOSED, Span(begin, SIX)))
        for k in range(waiting)
    ]
    approved, held_plan = plan(PlanPhase.APPROVED), plan(PlanPhase.IN_WINDOW, status={"units": units(1, 1)})
    return [
        *proposed,
        replace(approved, name="later"),
        replace(held_plan, name="now", owner=replace(held_plan.owner, name="x")),
    ]


def _owned(name: str) -> Plan:
    peak_plan = plan()
    return replace(peak_plan, name=name, owner=replace(peak_plan.owner, name=name))


@pytest.mark.parametrize("waiting", [3, 24, 39, 200])
def test_an_approved_plan_is_in_list_and_chart_whatever_number_waits(tmp_path: Path, waiting: int) -> None:
    all_plans = many(waiting)
    view = view_of(tmp_path, Service(*all_plans))
    order = by_need(all_plans)
    assert [p.name for p in order[:3]] == ["now", "later", "w000"]
    listed = board.live(view, "", BoardPlans(tuple(all_plans)))
    text = text_of(listed)
    assert "shop/now" in text, "what runs is on top"
    # The counts name what they count, and each is a way to its plans: also to the one that comes after the cut.
    assert f"{waiting + 2:,} plans: 1 reserved in the window, 1 approved, {waiting:,} waiting for approval" in plain(
        text
    )
    coming = text_of(board.live(view, f"?show={PlanGroup.COMING.value}", BoardPlans(tuple(all_plans))))
    assert "later" in coming and "w000" not in coming
    waits = text_of(board.live(view, f"?show={PlanGroup.WAITING.value}", BoardPlans(tuple(all_plans))))
    assert all(f"w{k:03}" in waits for k in range(waiting)), "chosen, nothing is cut"
    cut = f"The first {board.MOST_LIVE} of {waiting + 2:,} workloads are listed"
    assert (cut in text) is (waiting + 2 > board.MOST_LIVE)


@pytest.mark.parametrize("waiting", [3, 24, 39])
def test_the_chart_says_how_many_of_how_many_it_draws_and_draws_all_when_asked(waiting: int) -> None:
    bars = [bar for peak_plan in many(waiting) for bar in story.bars(peak_plan, [])]
    chart = gantt.chart(bars, int(SIX - 6 * HOUR))
    names = chart.figure["layout"]["yaxis"]["ticktext"]
    assert names[0] == "shop/x", "what runs now is on top, though the others begin earlier"
    hidden = waiting + 2 - gantt.MOST_IN_SIGHT
    assert (f"; {gantt.MOST_IN_SIGHT} of {waiting + 2} workloads are drawn." in chart.summary) is (hidden > 0)
    full_chart = gantt.chart(bars, int(SIX - 6 * HOUR), most=len(bars))
    assert (
        len(full_chart.figure["layout"]["yaxis"]["ticktext"]) == waiting + 2 and "are drawn" not in full_chart.summary
    )
    assert f"{waiting + 2} windows of {waiting + 2} workloads" in full_chart.summary


def test_windows_plans_and_workloads_are_three_numbers_and_each_is_called_what_it_is(tmp_path: Path) -> None:
    """Two plans of one workload, of which one has three windows: 4 windows, 2 plans, 1 workload; each word once."""
    by_hand = replace(plan(PlanPhase.APPROVED), name="by-hand")
    forecast = plan(windows=tuple(PeakWindow(Span(SIX + k * HOUR, SIX + k * HOUR + 600), 2) for k in range(3)))
    spans = [window.span for window in forecast.windows]
    bars = [
        bar for peak_plan, windows in ((by_hand, []), (forecast, spans[1:])) for bar in story.bars(peak_plan, windows)
    ]
    assert len(bars) == 4
    summary = gantt.chart(bars, int(SIX - 6 * HOUR)).summary
    assert summary.startswith("4 windows of 1 workload in the next 24 hours: ")
    by_state = [int(hit) for hit in re.findall(r"(\d+) windows? (?:not )?[a-z]", summary.partition(": ")[2])]
    assert sum(by_state) == 4 and "plan" not in summary.partition(";")[0]
    listed = text_of(board.live(view_of(tmp_path, Service(by_hand, forecast)), "", BoardPlans((by_hand, forecast))))
    assert "2 plans: " in plain(listed) and counts((by_hand, forecast)).plans == 2


def test_every_plan_is_drawn_in_a_frame_that_scrolls(tmp_path: Path) -> None:
    all_plans = many(24)
    view = view_of(tmp_path, Service(*all_plans))
    drawn = str(board.day(view, "", BoardPlans(tuple(all_plans))))
    assert "scroll tall" in drawn and "26 windows of 26 workloads" in drawn and "are drawn" not in drawn
    assert (board.days_of("?show=7d,coming"), board.days_of("?show=coming"), board.days_of("?show=7d")) == (7, 1, 7)


def test_the_best_proposal_comes_first_and_is_selected_below_what_is_held_and_approved() -> None:
    """Of 90 % used and 90 % covered 0.81 is left, of 60 and 99 % 0.59; a plan without a back-test is last."""
    good, poor, unknown = (
        (_owned(name), rows) for name, rows in (("good", (0.9, 0.9)), ("a-poor", (0.6, 0.99)), ("b", (None, None)))
    )
    rows = [_row(p.owner.name, *tested) for p, tested in (good, poor, unknown)]
    plans = [p for p, _ in (unknown, poor, good)]
    plans = [replace(p, status=PlanStatus(PlanPhase.PROPOSED, Span(SIX, SIX + HOUR))) for p in plans]
    held_plan = replace(plan(PlanPhase.IN_WINDOW, status={"units": units(1, 1)}), name="now")
    approved = replace(_owned("later"), status=PlanStatus(PlanPhase.APPROVED, Span(SIX, SIX + HOUR)))
    entries = story.merge_entries(rows, [*plans, approved, held_plan])
    assert [entry.workload.name for entry in entries] == ["web", "later", "good", "a-poor", "b"]


def _row(name: str, hit_ratio: float | None, coverage: float | None) -> dict[str, Any]:
    key = {"namespace": "shop", "kind": "Deployment", "workload": name, "start": SIX, "reason": "ok"}
    return {**key, "hit_ratio": hit_ratio, "coverage": coverage}


@given(st.lists(st.sampled_from(list(PlanPhase)), max_size=30), st.integers(0, 3))
def test_counts_of_states_add_up_and_windows_are_not_plans(phases: list[PlanPhase], windows: int) -> None:
    spans = tuple(PeakWindow(Span(SIX + k * HOUR, SIX + (k + 0.5) * HOUR), 1) for k in range(windows))
    plans = [replace(plan(phase), window=None, windows=spans) for phase in phases]
    plan_counts = counts(plans)
    assert (
        plan_counts.plans
        == len(phases)
        == sum(plan_counts.by_phase.values())
        == sum(plan_counts.of(g) for g in PlanGroup)
    )
    assert plan_counts.windows == len(phases) * windows
    assert list(plan_counts.by_phase) == [phase for phase in PLAN_STATES if phase in phases]


def test_a_schedule_is_one_window() -> None:
    rule = Recurrence("0 18 * * *", "Etc/UTC", 2 * HOUR)
    assert counts([replace(plan(), window=None, recurring=rule)]).windows == 1


def test_an_object_of_the_cluster_keeps_the_sign_and_the_coverage(tmp_path: Path) -> None:
    score = {
        "start": moment(SIX), "end": moment(SIX + 2 * HOUR), "held": 2, "used": 2, "missed": 5, "hitRatio": 0.98,
        "coverage": 0.16, "idleCoreHours": 1.5, "cost": 0.1, "missedCoreMinutes": 3.0, "leadSeconds": -15900,
        "needed": 7,
    }  # fmt: skip
    counted = {"asOf": moment(SIX), "mostUsed": 3, "mostMissed": 4}
    with embedded(tmp_path) as cluster:
        cluster.plan("late", {"phase": "Scored", "score": score, "progress": counted, "expected": {"hitRatio": 0.61}})
        (read,) = cluster.service().plans(cluster.who).plans
    assert text_of(plan_page.present(read)).endswith(
        "Most at once3used Reservations in this occurrenceWaited without a reservation4pods at one time"
    )
    assert read.status.expected is not None and read.status.expected.hit_ratio == 0.61
    assert "61 %" in text_of(plan_page.past(read, "USD"))
    newest: Score = read.status.scores[0]
    assert (newest.lead_seconds, newest.coverage, newest.hit_ratio) == (-15900, 0.16, 0.98)
    assert display.percent(newest.coverage) in plan_scores.summary(newest)
    assert "capacity was complete 265 min after the start" in plan_scores.summary(newest)
