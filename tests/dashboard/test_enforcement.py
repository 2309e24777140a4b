"""The Enforcement page without a browser: its chart, its states, its rows, and what a newer gathering changes."""

from __future__ import annotations

import csv
import io
import json
import math
import threading
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables.filters import Query
from cotenant.dashboard.figures import enforcement as chart
from cotenant.dashboard.figures.base import MAX_POINTS, Chart
from cotenant.dashboard.figures.enforcement import Mark, Shown
from cotenant.dashboard.nodes import enforcement as enforcing
from cotenant.dashboard.pages import enforcement as page
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.enforcer.model.enforcement import (
    REASON_SENTENCES,
    EnforcementHistory,
    Gathering,
    Lane,
    LaneSample,
    row_of,
)
from cotenant.enforcer.model.enforcement_tables import (
    ENFORCEMENT,
    Retention,
    grid_samples,
    joined_lanes,
    lanes_of,
    merge_actions,
)
from cotenant.profiler.enforcement.collected import keep
from tests.dashboard.test_states import text_of, view_on
from tests.support import dashboard as support
from tests.support.dashboard import served
from tests.support.enforcement import NASTY, act, acts, fill, lanes, quota

END: Final = 1_795_089_600.0  # 2026-11-19T12:00:00Z


def plotted(drawing: Chart) -> go.Figure:
    json.dumps(drawing.figure, allow_nan=False)
    return go.Figure(drawing.figure)


def indexed(*more: Any) -> Relation:
    return Relation.of(Table.from_rows(ENFORCEMENT, [row_of(action) for action in (*acts(END), *more)]))


def shown_of(node: str, *, with_cpu: bool = True) -> Shown:
    rows = indexed()
    snapshot = Snapshot("v", None, {ENFORCEMENT.name: rows})
    return enforcing.shown_acts(snapshot, lanes(END, node) if with_cpu else None, node, Query())


# ---- the chart


def test_every_means_has_its_row_and_each_mark_its_reason() -> None:
    figure = plotted(chart.chart(shown_of("node-000")))
    assert list(figure.layout.yaxis2.ticktext) == ["Suppress", "Burst", "Evictions", "Interference"]
    marks = {t.name: t for t in figure.data if t.mode == "markers"}
    assert set(marks) == {"Suppress", "Burst", "Evictions", "Interference"}
    assert "Evicting etl/job-0: because of Evicting" in marks["Evictions"].customdata[0]
    # 8 -> 7 cores at 11:45:00, the first of five.
    assert marks["Suppress"].customdata[0].startswith("11:45:00 Suppressed: because of Suppressed (8 cores → 7 cores)")


def test_a_dry_run_is_hatched_and_hollow_and_says_so() -> None:
    figure = plotted(chart.chart(enforcing.shown_acts(Snapshot("v", None, {ENFORCEMENT.name: indexed()}),
                                                 lanes(END, "node-001", dry=True), "node-001", Query())))  # fmt: skip
    (bars,) = (t for t in figure.data if t.fill == "toself")
    assert bars.fillpattern.shape == "/" and "dry run" in bars.name
    assert all(t.marker.symbol.endswith("-open") for t in figure.data if t.mode == "markers")
    limit = next(t for t in figure.data if "Limit" in (t.name or ""))
    assert limit.line.dash == "dot" and "dry run" in limit.name
    # Held from 11:46:40 to the end of the lanes, and an eviction that passes.
    assert list(bars.meta["names"]) == ["Suppress", "Evictions"]


def test_what_was_done_is_neither_hatched_nor_hollow() -> None:
    figure = plotted(chart.chart(shown_of("node-000")))
    (bars,) = (t for t in figure.data if t.fill == "toself")
    assert bars.fillpattern.shape is None
    assert not any(t.marker.symbol.endswith("-open") for t in figure.data if t.mode == "markers")


def test_a_lane_is_held_from_the_first_value_until_it_is_given_back() -> None:
    def mark(at: float, holds: bool | None, place: str = "a") -> Mark:
        return Mark(at, Lane.SUPPRESS, "x", place=place, holds=holds)

    assert chart.value_spans([mark(10, True), mark(20, True), mark(30, False)], 0, 100) == [(10, 30)]
    assert chart.value_spans([mark(10, True), mark(20, True, "b"), mark(30, False)], 0, 100) == [(10, 100)]
    # What is given back first was set before anybody listened; what passes holds nothing.
    assert chart.value_spans([mark(30, False), mark(40, None)], 0, 100) == [(0, 30)]
    assert chart.value_spans([mark(-50, True), mark(150, False)], 0, 100) == [(0, 100)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([True, False, None]), st.sampled_from("abc"))))
def test_held_spans_are_in_order_apart_and_inside(moves: list[tuple[int, bool | None, str]]) -> None:
    spans = chart.value_spans([Mark(at, Lane.BURST, "x", place=p, holds=h) for at, h, p in moves], 20, 80)
    flat = [edge for span in spans for edge in span]
    assert flat == sorted(flat) and all(20 <= edge <= 80 for edge in flat)
    assert all(a < b for a, b in spans)


def test_near_marks_share_one_that_counts_them() -> None:
    marks = [Mark(104.0 + 0.01 * k, Lane.SUPPRESS, "Suppressed" if k % 3 else "SuppressionEased") for k in range(9)]
    figure = plotted(chart.chart(Shown("n", 0.0, 1000.0, marks)))
    (drawn,) = (t for t in figure.data if t.mode == "markers")
    # 9 acts, every third an easing: 3; three are told one by one.
    assert drawn.customdata[0].startswith("9 actions: 6 × Suppressed, 3 × SuppressionEased")
    assert drawn.customdata[0].endswith("… and 6 more") and len(drawn.x) == 1


def test_a_day_of_seconds_keeps_its_peak_in_few_points() -> None:
    node_lanes = lanes(END, steps=86_400)
    node_lanes.values["others"][54_321] = 15_999.0
    figure = plotted(chart.chart(Shown("n", END - 86_400, END, [], node_lanes)))
    assert max(len(t.x) for t in figure.data) <= MAX_POINTS
    others = next(t for t in figure.data if t.name == "All others use")
    assert max(v for v in others.y if v is not None) == pytest.approx(15.999)


def test_lanes_without_cpu_are_drawn_alone_and_read_as_a_table_of_spans() -> None:
    figure = plotted(chart.lane_strip(shown_of("node-000", with_cpu=False)))
    assert list(figure.layout.meta["spans"]) == ["Lane", "What"]
    assert not [t for t in figure.data if t.yaxis != "y2"]
    names = [name for t in figure.data if t.meta for name in t.meta["names"]]
    assert set(names) == {"Suppress", "Burst", "Evictions", "Interference"}


def test_the_summary_says_what_the_chart_shows() -> None:
    summary = chart.chart(shown_of("node-000")).summary
    # Five quotas and one given back, the last by suppression too.
    assert "9 actions (6 suppressions, 1 burst, 1 eviction, 1 interference finding)" in summary
    assert "best-effort pods used 1 to 6 cores" in summary
    assert "the lowest limit was 1 core, at 11:50:00 UTC" in summary
    assert "all actions in a dry run" in chart.chart(shown_of("node-001")).summary
    assert "did nothing" in chart.chart(Shown("n", 0.0, 60.0, [])).summary


def test_markup_in_a_reason_stays_text() -> None:
    figure = plotted(chart.chart(shown_of("node-002")))
    hover_texts = " ".join(text for t in figure.data if t.mode == "markers" for text in t.customdata)
    assert "&lt;img" in hover_texts and "<img" not in hover_texts


def test_height_grows_with_rows_and_with_cpu() -> None:
    assert chart.height(shown_of("node-000")) - chart.height(shown_of("node-000", with_cpu=False)) == chart.CPU_PIXELS
    assert chart.height(shown_of("node-000")) > chart.height(shown_of("node-002"))


# ---- which span


def test_without_a_span_the_newest_hour_is_shown() -> None:
    old = act(END - 7200, "node-000", "cpu-burst", "BurstGranted")
    shown = enforcing.shown_acts(Snapshot("v", None, {ENFORCEMENT.name: indexed(old)}), None, "node-000", Query())
    # The newest act is 400 s before the end; an hour back, with a margin of 2 % on both sides.
    assert shown.until == pytest.approx(END - 400 + 72) and shown.since == pytest.approx(END - 4000 - 72)


def test_a_span_of_the_address_is_the_axis(made_page: Any) -> None:
    view, _ = made_page
    query = page.LIST.query(f"since={END - 700:.0f}&until={END - 500:.0f}")
    shown = enforcing.shown_acts(view.source.snapshot(), None, "node-000", query)
    assert (shown.since, shown.until) == (END - 700, END - 500)
    # Suppressed at -660 s, a burst at -700 s, interference at -600 s; the eviction at -500 s is no longer inside.
    assert sorted(m.reason for m in shown.marks) == ["BurstGranted", "Interference", "Suppressed"]


# ---- the page in its states


@pytest.fixture
def made_page(tmp_path: Path) -> Any:
    """A view on a store that holds acts and no analysis, and the store."""
    store = Store(tmp_path.as_uri(), "c1")
    fill(store, END)
    return view_on(StoreSource(store, support.QUICK, FixedClock(END)), END), store


def empty_view(tmp_path: Path, gathering: Gathering | None, now: float = END) -> Any:
    store = Store(tmp_path.as_uri(), "c1")
    if gathering is not None:
        keep(store, EnforcementHistory(gathering=gathering), Retention(END))
    return view_on(StoreSource(store, support.QUICK, FixedClock(now)), now)


@pytest.mark.parametrize(
    ("gathering", "sentence", "command"),
    [
        (None, "The node agents' actions have not been collected yet.", "cotenant node enforcement gather"),
        (Gathering(END, agents=0), "No node agent runs.", "cotenant install --enforcer"),
        (Gathering(END, agents=5, dry_agents=2), "Healthy and quiet.", "cotenant node status"),
        (
            Gathering(END, trouble="no right to list", fix="Allow it.", forbidden=True),
            "no right to list",
            "cotenant doctor",
        ),
        (Gathering(END, trouble="does not answer", fix="Start it."), "does not answer", "Start it."),
    ],
)
def test_an_empty_page_says_which_kind_of_empty_and_what_helps(
    tmp_path: Path, gathering: Gathering | None, sentence: str, command: str
) -> None:
    text = text_of(page.render(empty_view(tmp_path, gathering), ""))
    assert sentence in text and command in text
    assert "grid-enforcement" not in text


def test_agents_are_counted_in_words(tmp_path: Path) -> None:
    text = text_of(page.render(empty_view(tmp_path, Gathering(END, agents=5, dry_agents=2)), ""))
    assert "5 agents run, 2 as a dry run" in text


def test_the_page_shows_the_busiest_node_or_the_one_that_the_address_names(made_page: Any) -> None:
    view, _ = made_page
    assert '"node-000: ' not in text_of(page.node_in_hand(view, "?open=node-001"))
    assert "node-000, " in text_of(page.node_in_hand(view, ""))
    assert "node-001, " in text_of(page.node_in_hand(view, "?open=node-001"))
    assert "No action on node gone." in text_of(page.node_in_hand(view, "?open=gone"))


def test_filters_narrow_chart_and_choice_of_nodes(made_page: Any) -> None:
    view, _ = made_page
    text = text_of(page.node_in_hand(view, "?mode=dry-run"))
    assert "node-001, " in text and "node-000 (" not in text
    assert "No action matches these filters." in text_of(page.node_in_hand(view, "?reason=none-such"))
    assert "is not a time" in text_of(page.node_in_hand(view, "?since=yesterday"))


def test_an_old_gathering_is_called_old_and_trouble_stands_beside_what_was_gathered(made_page: Any) -> None:
    view, store = made_page
    late = view_on(view.source, END + 5 * 3600)
    assert "Old. " in text_of(page.render(late, "")) and "5 h ago" in text_of(page.render(late, ""))
    assert "Old. " not in text_of(page.render(view, ""))
    keep(
        store,
        EnforcementHistory(gathering=Gathering(END + 1, trouble="forbidden to list", forbidden=True)),
        Retention(END + 1),
    )
    fresh = view_on(StoreSource(store, support.QUICK, FixedClock(END)), END)
    text = text_of(page.render(fresh, ""))
    assert "Forbidden. " in text and "forbidden to list" in text and "grid-enforcement" in text


def test_reasons_on_the_page_are_explained(made_page: Any) -> None:
    view, _ = made_page
    assert REASON_SENTENCES["BurstGranted"] in text_of(page.node_in_hand(view, "?open=node-000"))


def test_a_node_s_own_page_shows_the_lanes_and_leads_here(made_page: Any) -> None:
    view, _ = made_page
    text = text_of(enforcing.on_node(view, "node-000"))
    assert "node-lanes" in text and "/enforcement?node=node-000&open=node-000" in text
    assert "No action of an agent is known" in text_of(enforcing.on_node(view, "elsewhere"))


def test_a_node_s_page_without_any_act_says_why(tmp_path: Path) -> None:
    assert "The node agents' actions have not been collected yet." in text_of(
        enforcing.on_node(empty_view(tmp_path, None), "n")
    )


# ---- rows


def rows(address: str, query: str, form: str = "json") -> Any:
    with urllib.request.urlopen(f"{address}/api/v1/enforcement?{query}&format={form}", timeout=120) as response:
        return response.read().decode()


@pytest.mark.server
def test_page_api_and_csv_give_the_same_rows(made_page: Any) -> None:
    view, _ = made_page
    with served(support.app_on(view.source, now_seconds=END)) as address:
        query = f"node=node-000&since={END - 700:.0f}&lane!=suppress&sort=time"
        document = json.loads(rows(address, query))
        lines = list(csv.DictReader(io.StringIO(rows(address, query, "csv"))))
    assert [row["reason"] for row in document["rows"]] == ["BurstGranted", "Interference", "Evicting"]
    assert [line["id"] for line in lines] == [row["id"] for row in document["rows"]]


@pytest.mark.server
def test_markup_and_formulas_leave_a_csv_as_text(made_page: Any) -> None:
    _, store = made_page
    bad = act(END, "=1+1", "", "=cmd|' /C calc'!A0", why="+1", pod=f"x/{NASTY}")
    keep(store, EnforcementHistory((bad,), gathering=Gathering(END + 2)), Retention(END + 2))
    source = StoreSource(store, support.QUICK, FixedClock(END))
    with served(support.app_on(source, now_seconds=END)) as address:
        line = rows(address, f"node={urllib.parse.quote('=1+1')}", "csv").splitlines()[1]
    assert "'=1+1" in line and "'=cmd" in line and ",=" not in line


# ---- what is kept


def test_each_act_is_kept_once_whoever_tells_of_it_and_how_often() -> None:
    first = merge_actions(None, acts(END), Retention(END))
    again = merge_actions(first, [*acts(END), quota(END - 10, "node-000", 3, 2)], Retention(END))
    assert (len(first), len(again)) == (len(acts(END)), len(acts(END)) + 1)
    assert list(again.columns["time"]) == sorted(again.columns["time"], reverse=True)


def test_an_event_is_a_row_each_time_that_it_grew_and_counts_what_came_since() -> None:
    def event(total: int, at: float) -> Any:
        return act(at, "n1", "cpu-suppress", "Suppressed", series="uid-1", total=total, after=str(total))

    table = None
    for total, at in ((1, END - 50), (1, END - 50), (5, END - 40), (5, END - 40), (6, END - 30)):
        table = merge_actions(table, [event(total, at)], Retention(END))
    assert table is not None
    # Told once, then four more, then one more: the rows add up to the Event's own count.
    assert [int(c) for c in table.columns["count"]] == [1, 4, 1]


def test_old_rows_leave_and_of_too_many_the_newest_stay() -> None:
    many = [quota(END - 60 * k, "n", 9, 8) for k in range(100)]
    assert len(merge_actions(None, many, Retention(END, days=30 / 1440))) == 31
    short = merge_actions(None, many, Retention(END, rows=7))
    assert len(short) == 7 and short.columns["time"].min() == END - 360


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=30), st.lists(st.integers(0, 40), max_size=30))
def test_joining_is_the_same_in_one_step_or_two(first: list[int], then: list[int]) -> None:
    def actions_of(numbers: list[int]) -> list[Any]:
        return [quota(END - k, f"n{k % 3}", 9, k % 8) for k in numbers]

    one_step = merge_actions(None, actions_of(first + then), Retention(END, rows=20))
    steps = merge_actions(
        merge_actions(None, actions_of(first), Retention(END)), actions_of(then), Retention(END, rows=20)
    )
    assert set(one_step.columns["id"]) == set(steps.columns["id"])


def test_samples_become_a_grid_in_which_peaks_and_lows_survive() -> None:
    samples = [LaneSample(END + k / 10, 4000, others=float(k), limit=float(100 - k)) for k in range(30)]
    node_lanes = grid_samples("n", samples)
    # Ten readings a second, one step a second: of 0.5 s to 1.4 s the highest use and the lowest limit.
    assert node_lanes.step_seconds == 1.0
    assert node_lanes.values["others"][1] == 14 and node_lanes.values["limit"][1] == 100 - 14
    assert all(math.isnan(v) for v in node_lanes.values["best_effort"])
    assert grid_samples("n", []).values["others"] == []


def test_lanes_are_kept_by_node_and_those_seen_last_stay() -> None:
    table = joined_lanes(None, [lanes(END - 60 * k, f"n{k}") for k in range(5)], Retention(END, nodes=3))
    assert list(table.columns["node"]) == ["n0", "n1", "n2"]
    newer = joined_lanes(table, [lanes(END + 60, "n2")], Retention(END + 60, nodes=3))
    row = next(iter(newer.rows()))
    assert row["node"] == "n2" and lanes_of(row).start_seconds == END + 60 - 900
    assert np.isnan(lanes_of(row).values["limit"][0])


# ---- news


def test_news_of_agents_change_their_table_and_nothing_else(made_page: Any) -> None:
    view, store = made_page
    before = view.source.snapshot()
    keep(
        store,
        EnforcementHistory((quota(END + 5, "node-000", 3, 2),), gathering=Gathering(END + 5, agents=3)),
        Retention(END + 5),
    )
    after = view.source.snapshot()
    assert len(after.tables[ENFORCEMENT.name]) == len(before.tables[ENFORCEMENT.name]) + 1
    assert after.version == before.version
    assert all(after.tables[n] is before.tables[n] for n in before.tables if n != ENFORCEMENT.name)
    assert after.gathering != before.gathering


def test_a_look_without_news_reads_no_table_again(made_page: Any) -> None:
    view, store = made_page
    before = view.source.snapshot()
    keep(store, EnforcementHistory(gathering=Gathering(END + 9, agents=3)), Retention(END + 9))
    after = view.source.snapshot()
    assert after.tables[ENFORCEMENT.name] is before.tables[ENFORCEMENT.name]
    assert after.gathering is not None and after.gathering.gathered_seconds == END + 9


def test_one_node_s_lanes_are_read_when_asked_for(made_page: Any) -> None:
    view, _ = made_page
    node_lanes = view.source.enforcement("node-001")
    assert node_lanes is not None and node_lanes.dry and node_lanes.values["others"][450] == 9000
    assert view.source.enforcement("node-002") is None


def test_every_reason_that_is_explained_is_a_word_of_its_own() -> None:
    assert all(code.isidentifier() and code[0].isupper() for code in REASON_SENTENCES)
    assert all(sentence.endswith(".") for sentence in REASON_SENTENCES.values())


def test_two_writers_lose_nothing_of_each_other(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        store = Store(tmp_path.as_uri(), "c1")
        for step in range(5):
            news = EnforcementHistory((quota(END - step, f"writer-{writer}", 9, 8),), gathering=Gathering(END + step))
            keep(store, news, Retention(END))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Store(tmp_path.as_uri(), "c1").read_table(ENFORCEMENT)) == 15
