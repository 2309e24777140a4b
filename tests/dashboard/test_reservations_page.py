"""The reservations page: which plans are drawn, why others are withheld, conflicts, and commands that exist."""

from __future__ import annotations

import json
import shlex
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.dashboard.figures import gantt
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.gantt import Bar, DemandCurve, Pods
from cotenant.dashboard.pages import reservations as page
from cotenant.dashboard.reservations import board, detail, proposed_plans
from cotenant.dashboard.reservations.proposed_plans import PlanHorizon
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.recommender.model.views import NODES, PLANS
from cotenant.scheduler_ext.reservations.commands import reservations as cli
from tests.dashboard.test_states import Changed, text_of, view_on
from tests.support import dashboard as support
from tests.support.dashboard import Results

DAY: Final = 1_795_089_600  # 2026-11-19 12:00 UTC
HALF_HOUR: Final = 1800


def path(first: int, after: int, pods: float) -> list[float]:
    return [pods if first <= k < after else 0.0 for k in range(48)]


def plan(name: str, first: int, after: int, pods: int, **changed: Any) -> dict[str, Any]:
    """A row of PLANS with a window of half hours [first, after)."""
    row: dict[str, Any] = {
        "namespace": "pay",
        "kind": "Deployment",
        "workload": name,
        "start": DAY + HALF_HOUR * first,
        "end": DAY + HALF_HOUR * after,
        "pods": pods,
        "cpu": 2000,
        "memory": GIB,
        "quantile": 0.9,
        "hit_ratio": 0.84,
        "coverage": 0.95,
        "idle_core_hours": 3.5,
        "cost": 0.25,
        "skill": 0.4,
        "reason": "ok",
        "base_pods": 3.0,
        "occurrences": 11,
        "words": "In the last 7 days it would have reserved 310 core-hours, 84 % used.",
        "path_start": DAY,
        "wanted": path(first, after, pods),
        "median": path(first, after, pods - 1),
    }
    return row | changed


ROWS: Final = (
    plan("checkout", 10, 20, 6),
    plan("web", 14, 22, 9, namespace="shop"),
    plan("index", 30, 44, 4, reason="no-skill", skill=-0.3),
    plan("even", 0, 0, 0, reason="no-window", start=None, end=None, coverage=None, hit_ratio=None, skill=None),
)


def nodes(*free_millicores: int) -> Relation:
    rows = [
        {"node": f"n{i}", "cpu_allocatable": 10_000 + free, "cpu_request": 10_000, "memory_allocatable": 64 * GIB,
         "memory_request": 60 * GIB}
        for i, free in enumerate(free_millicores)
    ]  # fmt: skip
    return Relation.of(Table.from_rows(NODES, rows))


def planned(source: StoreSource, rows: Any) -> Changed:
    def change(snapshot: Snapshot) -> Snapshot:
        tables = {**snapshot.tables, PLANS.name: Relation.of(Table.from_rows(PLANS, rows))}
        return Snapshot(f"{snapshot.version}+", snapshot.overview, tables)

    return Changed(source, change)


@pytest.fixture(scope="module")
def source(demo_results: Results) -> StoreSource:
    return StoreSource(demo_results.store, support.QUICK)


def plotted(chart: Chart) -> go.Figure:
    json.dumps(chart.figure, allow_nan=False)
    return go.Figure(chart.figure)


# ---- pure: bars, lane, pods


def test_a_bar_tells_its_state_by_pattern_outline_and_words() -> None:
    figure = plotted(gantt.chart(proposed_plans.bars(ROWS), DAY))
    proposed, withheld = (
        next(t for t in figure.data if t.name and word in t.name) for word in ("Proposed", "Not proposed")
    )
    assert (proposed.fillpattern.shape, proposed.line.dash) == ("/", "solid")
    assert (withheld.fillpattern.shape, withheld.line.dash) == (".", "dot")
    assert list(withheld.meta["words"]) == ["4 pods, no better than last week"]
    # Half hours 10 to 20 of a day that starts at DAY, in plotly's milliseconds.
    assert list(proposed.x[:2]) == [1000 * (DAY + 18_000), 1000 * (DAY + 36_000)]


def test_a_plan_without_a_window_has_no_bar_but_a_reason() -> None:
    assert [b.name for b in proposed_plans.bars(ROWS)] == ["pay/checkout", "shop/web", "pay/index"]
    assert ("no-window", 1, SENTENCES[Reason.NO_WINDOW]) in proposed_plans.withheld(ROWS)


def test_the_summary_of_the_day_says_how_many_and_which_is_first() -> None:
    summary = gantt.chart(proposed_plans.bars(ROWS), DAY).summary
    assert (
        summary.startswith("3 windows of 3 workloads in the next 24 hours: 2 windows proposed, 1 window not proposed")
        and "pay/checkout, 6 pods" in summary
        and "17:00 UTC" in summary
    )


def test_more_plans_than_fit_are_told() -> None:
    many = [Bar(f"ns/w{k}", DAY + k, DAY + 3600 + k, 1, "ok") for k in range(gantt.MOST_IN_SIGHT + 3)]
    chart = gantt.chart(many, DAY)
    assert f"; {gantt.MOST_IN_SIGHT} of {gantt.MOST_IN_SIGHT + 3} workloads are drawn." in chart.summary
    assert len(plotted(chart).layout.yaxis.ticktext) == gantt.MOST_IN_SIGHT


def test_an_empty_day_is_said_in_words() -> None:
    assert gantt.chart([], DAY).summary == "No workload has a window in the next 24 hours."


def test_names_on_the_axis_stay_text() -> None:
    chart = gantt.chart([Bar("ns/<b>x</b>", DAY, DAY + 3600, 1, "ok")], DAY)
    assert plotted(chart).layout.yaxis.ticktext == ("ns/&lt;b>x&lt;/b>",)


def test_the_lane_adds_proposed_plans_only_and_only_inside_their_windows() -> None:
    curve = proposed_plans.lane(ROWS, nodes(20_000, 5_000), Resource.CPU, PlanHorizon(DAY))
    # checkout 6 pods x 2 cores in 10..19, web 9 x 2 in 14..21; the withheld index counts for nothing.
    assert curve.wanted[10] == 12_000 and curve.wanted[15] == 30_000 and curve.wanted[21] == 18_000
    assert curve.wanted[22:].sum() == 0 and curve.free == 25_000
    assert gantt.runs(curve.conflict) == [(14, 20)]


def test_a_node_that_is_overcommitted_takes_nothing_from_the_others() -> None:
    assert proposed_plans.lane(ROWS, nodes(-4000, 5000), Resource.CPU, PlanHorizon(DAY)).free == 5000


def test_a_conflict_is_framed_named_and_said() -> None:
    chart = gantt.lane(proposed_plans.lane(ROWS, nodes(25_000), Resource.CPU, PlanHorizon(DAY)))
    (shape,) = plotted(chart).layout.shapes
    assert shape.label.text == "conflict"
    # Half hours 14 to 19 are six; 14 is 19:00.
    assert "conflict in 6 half hours, first at Thu 19 Nov 19:00 UTC" in chart.summary


def test_no_conflict_is_said_too() -> None:
    chart = gantt.lane(proposed_plans.lane(ROWS, nodes(100_000), Resource.CPU, PlanHorizon(DAY)))
    assert "no conflict" in chart.summary and not plotted(chart).layout.shapes
    assert "No plan needs capacity" in gantt.lane(DemandCurve(DAY, np.zeros(48), 5000.0)).summary


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), max_size=48))
def test_runs_cover_exactly_the_slots_that_hold(slots: list[bool]) -> None:
    covered = [k for first, after in gantt.runs(np.array(slots, dtype=bool)) for k in range(first, after)]
    assert covered == [k for k, it in enumerate(slots) if it]


def test_one_plan_s_pods_stand_on_what_usually_runs() -> None:
    given_pods = proposed_plans.pods(ROWS[0])
    assert given_pods is not None
    chart = gantt.pods(given_pods)
    room = next(t for t in plotted(chart).data if t.name == "Reserved pods, 90 %")
    # 3 pods run as the baseline and 6 more are wanted; the room is filled down to what usually runs.
    assert max(room.y) == 9 and min(room.y) == 3 and room.fill == "tonexty"
    assert "3 pods run as the baseline; the forecast needs up to 6 more pods" in chart.summary
    assert "10 half hours" in chart.summary


def test_a_plan_without_a_path_has_no_chart() -> None:
    assert proposed_plans.pods(plan("x", 1, 2, 1, wanted=[], median=[])) is None
    assert "needs no more" in gantt.pods(Pods(DAY, 2.0, np.zeros(48), np.zeros(48), 0.5)).summary


def test_sums_leave_out_what_is_withheld() -> None:
    sums = proposed_plans.sums(Table.from_rows(PLANS, ROWS).columns)
    # 6 + 9 pods of 2 cores; two plans with 3.5 idle core-hours and 0.25 each.
    assert (sums.workloads, sums.pods, sums.millicores) == (2, 15, 30_000)
    assert (sums.idle_core_hours, sums.cost) == (7.0, 0.5)


# ---- pure: the plan in hand and its commands


def test_the_url_names_the_plan_in_hand_else_the_first_proposed_one() -> None:
    assert proposed_plans.in_hand(ROWS[2:] + ROWS[:2], "") == ROWS[0]
    assert proposed_plans.in_hand(ROWS, "?open=pay/Deployment/index") == ROWS[2]
    assert proposed_plans.in_hand(ROWS, "?open=pay/Deployment/gone") is None
    assert proposed_plans.in_hand([], "") is None


def parsed(line: str) -> Mapping[str, Any]:
    """The line as the command line itself reads it."""
    program, family, name, *args = shlex.split(line)
    assert (program, family) == ("cotenant", "reservations")
    group: Any = typer.main.get_command(cli.app)
    command = group.commands[name]
    return {"name": name, **command.make_context(name, args).params}


@pytest.mark.parametrize("row", ROWS[:3], ids=lambda r: r["workload"])
def test_every_command_is_one_that_the_command_line_understands(row: dict[str, Any]) -> None:
    for _, line in proposed_plans.commands(row):
        assert parsed(line)["name"] in line


def test_a_proposed_plan_is_approved_under_the_name_that_the_manager_gives_it() -> None:
    commands = [parsed(line) for _, line in proposed_plans.commands(ROWS[0])]
    assert [c["name"] for c in commands] == ["preview", "approve", "approve", "reject", "scores", "backtest"]
    assert {c["plan"] for c in commands[:-1]} == {"pay/deployment-checkout"}
    assert [c["once"] for c in commands[1:3]] == [False, True]


def test_a_withheld_plan_has_no_object_so_its_commands_make_one() -> None:
    backtest, by_hand = (parsed(line) for _, line in proposed_plans.commands(ROWS[2]))
    assert backtest["workload"] == by_hand["workload"] == "pay/Deployment/index"
    # 14 half hours from 15 h after noon: the next day at 03:00 UTC.
    assert (by_hand["pods"], by_hand["start"], by_hand["length"]) == (4, "2026-11-20T03:00:00Z", "7h")
    assert [parsed(line)["name"] for _, line in proposed_plans.commands(ROWS[3])] == ["backtest"]


def test_a_hostile_name_stays_one_word_of_the_command() -> None:
    row = plan("web; rm -rf ~", 10, 20, 6)
    assert {parsed(line)["plan"] for _, line in proposed_plans.commands(row)[:2]} == {"pay/deployment-web; rm -rf ~"}


# ---- the page in its states


def test_the_page_shows_the_day_the_plan_in_hand_and_why_others_are_withheld(
    source: StoreSource, demo_results: Results
) -> None:
    text = text_of(page.render(view_on(planned(source, ROWS), demo_results.end_seconds), ""))
    assert "plans-figure" in text and "lane-figure" in text and "pods-figure" in text
    assert "310 core-hours, 84 % used" in text and SENTENCES[Reason.NO_SKILL] in text
    assert "cotenant reservations approve pay/deployment-checkout --yes" in text
    assert "Approve" in text and "Read-only: start the dashboard with `cotenant dashboard --act`" in text


def test_filters_narrow_the_day_as_they_narrow_the_list(source: StoreSource, demo_results: Results) -> None:
    view = view_on(planned(source, ROWS), demo_results.end_seconds)
    text = text_of(board.day(view, "?ns=shop"))
    assert "shop/web" in text and "pay/checkout" not in text
    assert "No plan matches these filters." in text_of(board.day(view, "?ns=nowhere"))
    assert "unknown filter" in text_of(board.day(view, "?nss=x"))


def test_an_old_link_is_told_and_a_filtered_one_still_opens(source: StoreSource, demo_results: Results) -> None:
    view = view_on(planned(source, ROWS), demo_results.end_seconds)
    missing = text_of(detail.selected_panel(view, "?open=pay/Deployment/gone"))
    assert "No plan of pay/Deployment/gone." in missing and "cotenant reservations list" in missing
    assert "not proposed: no better than last week" in text_of(
        detail.selected_panel(view, "?ns=shop&open=pay/Deployment/index")
    )


@pytest.mark.parametrize("value", ["checkout", "pay/checkout", "pay/Deployment/checkout/cpu"])
def test_a_link_that_names_no_plan_is_told_and_opens_none(
    source: StoreSource, demo_results: Results, value: str
) -> None:
    view, search = view_on(planned(source, ROWS), demo_results.end_seconds), f"?open={value}"
    text = text_of(detail.selected_panel(view, search))
    assert f"No plan of {value}." in text and "cotenant reservations list" in text
    assert "310 core-hours" not in text, "the first plan is open"
    plans = board.BoardPlans()
    chosen = board.selection(view.source.snapshot(), board.rows_of(view, search), search, plans)
    assert (chosen.plan, chosen.row, chosen.missing) == (None, None, value), "none is marked in the list either"
    assert board.with_open_plan(search, "pay/deployment-checkout") == search


def test_without_any_plan_the_page_says_why_and_what_to_type(source: StoreSource, demo_results: Results) -> None:
    text = text_of(board.day(view_on(planned(source, ()), demo_results.end_seconds), ""))
    assert "There is no reservation plan." in text and "cotenant get forecast" in text


@pytest.mark.parametrize(("age_hours", "stale"), [(1, False), (30, True)])
def test_windows_that_are_over_are_called_stale(
    source: StoreSource, demo_results: Results, age_hours: int, stale: bool
) -> None:
    def real(snapshot: Snapshot) -> Snapshot:
        assert snapshot.overview is not None
        return Snapshot(snapshot.version, replace(snapshot.overview, demo=False), snapshot.tables)

    view = view_on(Changed(planned(source, ROWS), real), DAY + 3600 * age_hours)
    assert ("These windows ended 6 h ago" in text_of(board.day(view, ""))) == stale


@pytest.mark.server
def test_the_list_and_its_csv_are_served_under_the_same_filters(source: StoreSource, demo_results: Results) -> None:
    with support.served(support.app_on(planned(source, ROWS))) as address:
        with urllib.request.urlopen(f"{address}/api/v1/plans?reason=ok&sort=-pods", timeout=120) as response:
            document = json.loads(response.read())
        with urllib.request.urlopen(f"{address}/api/v1/plans?reason!=ok&format=csv", timeout=120) as response:
            lines = response.read().decode().splitlines()
    assert [row["workload"] for row in document["rows"]] == ["web", "checkout"]
    assert document["rows"][0]["wanted"][14] == 9 and len(lines) == 3


def test_real_results_are_drawn(source: StoreSource, demo_results: Results) -> None:
    rows = list(demo_results.store.read_table(PLANS).rows())
    assert rows and len(rows[0]["wanted"]) == 48
    text = text_of(page.render(view_on(source, demo_results.end_seconds), ""))
    assert "empty failed" not in text and rows[0]["workload"] in text


def test_words_beside_bars_never_run_into_the_next_bar_or_out_of_the_day() -> None:
    hour = 3600
    early = gantt.Bar("pay/a", DAY, DAY + 10 * hour, 2)
    late = gantt.Bar("pay/a", DAY + 15 * hour, DAY + 24 * hour, 1)
    evening = gantt.Bar("pay/b", DAY + 20 * hour, DAY + 24 * hour, 12, reason="no-skill")
    labels = gantt.chart([early, late, evening], DAY).figure["data"][-1]
    # a letter needs 0.0125 x 24 h = 0.3 h: "2 pods" and its blanks (6 + 2) x 0.3 = 2.4 h of the 5 free ones, "1 pod"
    # 2.1 h of the 2.6 that are left; the evening's 33 letters 10.5 h, which are free before its bar and not after it
    assert list(zip(labels["text"], labels["textposition"], strict=True)) == [
        ("  2 pods  ", "middle right"),
        ("  1 pod  ", "middle left"),
        ("  12 pods, no better than last week  ", "middle left"),
    ]
