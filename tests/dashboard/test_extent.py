"""The top bar: one grammar for links, rows, charts and sums, and words where a page cannot obey it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.process.clock import FixedClock
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters, queries, time_span
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.dashboard import pages
from cotenant.dashboard.figures import base
from cotenant.dashboard.frame import carried, extent
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.home import numbers, overview
from cotenant.dashboard.home.page_data import overview_page
from cotenant.dashboard.pages import enforcement, nodes, recommendations
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.enforcer.model.enforcement import AgentAction, Lane, row_of
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT
from cotenant.recommender.model.views import NODES, PODS, RECOMMENDATIONS, WORKLOADS, Overview
from tests.support import dashboard as support
from tests.support.dashboard import Results

NOON = 1_795_089_600.0
MODULES = [module for module in vars(pages).values() if isinstance(module, ModuleType)]
LISTED = [part for module in MODULES for part in vars(module).values() if isinstance(part, Listing)]
LISTS = {page.path: next((listing for listing in LISTED if listing.path == page.path), None) for page in pages.ALL}


@pytest.fixture(scope="module")
def view(demo_results: Results) -> View:
    clock = FixedClock(demo_results.end_seconds)
    return View(StoreSource(demo_results.store, support.QUICK, clock), support.QUICK, clock.now_seconds)


@pytest.fixture(scope="module")
def results(view: View) -> Overview:
    present = view.source.snapshot().overview
    assert present is not None
    return present


# --- the grammar ------------------------------------------------------------------------------------------------------
@given(st.integers(1, 99_999), st.sampled_from("mhd"))
def test_a_range_is_read_back_from_its_one_spelling(count: int, unit: str) -> None:
    back_seconds = time_span.range_seconds(f"{count}{unit}")
    assert back_seconds == count * {"m": 60, "h": 3600, "d": 86_400}[unit]
    assert time_span.range_seconds(time_span.range_text(back_seconds)) == back_seconds


def test_ranges_of_a_day_and_more_are_spelt_as_the_bar_spells_them() -> None:
    spelt = [time_span.range_text(seconds) for seconds in (900, 21_600, DAY_SECONDS, 7 * DAY_SECONDS, math.inf, 0)]
    assert spelt == ["15m", "6h", "24h", "7d", "all", "next"]


@given(st.text(max_size=8))
def test_what_is_no_range_is_refused_with_what_to_write(text: str) -> None:
    try:
        assert time_span.range_seconds(text) >= 0
    except UsageError as error:
        assert "is not a time range" in error.message and "24h" in error.fix


@pytest.mark.parametrize("part", ["range!=7d", "range notin (7d)", "since!=2026-11-19", "until!=100"])
def test_a_time_is_not_excluded(part: str) -> None:
    with pytest.raises(UsageError, match=r"is (no time range|not a time)"):
        filters.parse(part, ENFORCEMENT)


def test_an_excluded_range_is_no_range_of_the_page() -> None:
    assert carried.back_seconds("?range!=7d", 100.0) == 100.0
    assert any("'!7d' is not a time range" in sentence for sentence in extent.notes(None, Obeyed(), "?range!=7d"))
    assert (carried.range_of("?range=7d"), carried.range_of("?ns=a")) == ("7d", "")


@given(st.lists(st.text("!a*,\\", min_size=1, max_size=4), max_size=3), st.booleans())
def test_the_field_of_namespaces_writes_back_what_the_address_means(texts: list[str], negated: bool) -> None:
    search = urlencode([("ns!" if negated else "ns", text) for text in texts], safe="!")
    # As `assets/extent.js` writes the field's values: what begins with "!" is excluded, the rest is chosen.
    pairs = [
        ("ns!", chosen_namespace[1:]) if chosen_namespace.startswith("!") else ("ns", chosen_namespace)
        for chosen_namespace in extent.chosen_namespaces(search)
    ]
    assert carried.namespace_query(urlencode(pairs, safe="!")) == carried.namespace_query(search)


def acts(*times: float) -> Relation:
    rows = [row_of(AgentAction(at, "n1", Lane.SUPPRESS, "Suppressed", after=str(at))) for at in times]
    return Relation.of(Table.from_rows(ENFORCEMENT, rows))


def test_a_range_ends_with_the_newest_row_and_holds_both_ends() -> None:
    table = acts(NOON, NOON + HOUR_SECONDS, NOON + 2 * HOUR_SECONDS)
    query = filters.parse("range=1h", ENFORCEMENT)
    # The newest row is of 14:00: an hour before it is 13:00, which is in.
    assert queries.select(table, query).tolist() == [1, 2]
    assert filters.parse(filters.encode(query), ENFORCEMENT) == query and query.filtered
    assert queries.select(acts(), query).tolist() == []
    assert queries.select(table, filters.parse("range=all", ENFORCEMENT)).tolist() == [0, 1, 2]


def test_a_range_and_a_span_must_both_hold() -> None:
    table = acts(NOON, NOON + 60, NOON + 120)
    query = filters.parse(f"range=1m&until={NOON + 120}", ENFORCEMENT)
    assert queries.span_of(table, query) == (NOON + 60, NOON + 120)
    assert queries.select(table, query).tolist() == [1]


def test_rows_that_lie_ahead_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="no row is in the future"):
        filters.parse("range=next", ENFORCEMENT)
    with pytest.raises(UsageError, match="unknown filter 'range'"):
        filters.parse("range=7d", WORKLOADS)


# --- what a table has no column of ------------------------------------------------------------------------------------
def test_what_a_table_cannot_be_narrowed_by_waits_for_the_next_page() -> None:
    search = "?ns in (pay,shop)&node=n1&range=7d&kind!=Job"
    assert carried.about(search, NODES) == "node=n1"
    assert carried.idle_parts(search, NODES) == ("ns in (pay,shop)", "range=7d", "kind!=Job")
    assert carried.idle_parts("?range=all&ns=pay", ENFORCEMENT) == ("range=all",)
    assert carried.carried_parts(search, "ns", "range") == "ns=pay%2Cshop&range=7d"


def test_links_of_a_list_keep_what_it_cannot_obey(view: View) -> None:
    snapshot = view.source.snapshot()
    side = str(list_page.facets(nodes.LIST, snapshot, "?ns=pay&range=7d&sort=node"))
    assert "reason=ok&sort=node&ns=pay&range=7d" in side and "unknown filter" not in side
    line = str(list_page.tools(nodes.LIST, view, "?ns=pay&reason=ok"))
    assert "href='?ns=pay'" in line  # the filter that is its own can be removed alone


def test_a_condition_that_a_list_has_by_default_is_no_filter_to_remove_beside_others(view: View) -> None:
    listing = replace(recommendations.LIST, hidden="severity=critical")
    for search in ("", "?kind=Deployment", "?ns=pay&ns!=shop"):
        line = str(list_page.tools(listing, view, search))
        assert ("Clear filters" in line) == bool(search)
        assert "Severity: critical" not in line, search


@given(st.lists(st.sampled_from(["ns=pay", "ns!=shop", "ns=team-*", "range=7d", "kind=Job", "q=a", "sort=node"])))
def test_nothing_that_is_carried_is_lost_or_refused(parts: list[str]) -> None:
    search = "&".join(parts)
    about, idle = carried.about(search, NODES), carried.idle_parts(search, NODES)
    assert sorted(filters.query_parts(carried.join_queries(about, *idle))) == sorted(parts)
    filters.parse(about, NODES)


@pytest.mark.parametrize(
    ("search", "included"),
    [("", ["pay", "shop", "team-a"]), ("ns=pay,team-*", ["pay", "team-a"]), ("ns!=pay&ns!=shop", ["team-a"])],
)
def test_namespaces_are_told_apart_outside_of_tables_too(search: str, included: list[str]) -> None:
    includes = carried.admits(search)
    assert [name for name in ("pay", "shop", "team-a") if includes(name)] == included


# --- the bar ----------------------------------------------------------------------------------------------------------
def test_the_bar_offers_every_namespace_of_the_results_as_its_own_pattern(view: View) -> None:
    options = extent.names(view.source.snapshot())
    names = set(view.source.snapshot().tables[WORKLOADS.name].texts("namespace"))
    assert names <= {option["label"] for option in options} and "none" not in {o["value"] for o in options}


def test_the_bar_shows_what_an_address_chooses() -> None:
    assert extent.chosen_namespaces("?ns=pay&ns in (team-*)&range=7d") == ["pay", "team-*"]
    state = extent.state(None, Obeyed(), "?ns!=kube-system")
    assert (state["namespaces"], state["range"]) == (["!kube-system"], "usual")


def test_a_range_beyond_the_history_is_disabled_and_says_why(results: Overview) -> None:
    short = replace(results, window_days=7.0)
    options = {o["value"]: o for o in extent.range_options(short, Obeyed(), "?range=90m")}
    assert not options["7d"]["disabled"] and not options["all"]["disabled"]
    assert options["14d"]["disabled"] and options["14d"]["label"] == "Last 14 days: the history is 7 d long"
    assert options["next"]["disabled"] and "no forecast on this page" in options["next"]["label"]
    assert options["90m"]["label"] == "90m"  # of a link: shown as it is
    assert extent.notes(short, Obeyed(), "?range=14d") == [
        "Time range: the history is 7 d long; the whole history is shown."
    ]


def test_a_choice_that_a_page_cannot_obey_is_said_there(results: Overview) -> None:
    obeyed = nodes.PAGE.obeyed
    assert extent.notes(results, obeyed, "") == []
    namespace, time_range = extent.notes(results, obeyed, "?ns=pay&range=7d")
    assert namespace.startswith("Namespace: nodes have no namespace") and "shows the present" in time_range
    assert extent.notes(results, enforcement.PAGE.obeyed, "?ns=pay&range=7d") == []
    assert extent.notes(results, enforcement.PAGE.obeyed, "?range=next") == [extent.NO_FORECAST]
    (refused,) = extent.notes(results, enforcement.PAGE.obeyed, "?range=soon")
    assert "'soon' is not a time range" in refused


@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.path or "overview")
def test_a_page_obeys_the_bar_or_says_that_it_does_not(page: Page) -> None:
    listing = LISTS[page.path]
    understood = filters.keys_of(listing.schema) if isinstance(listing, Listing) else ()
    if listing is None or "ns" not in understood:
        assert page.obeyed.namespace
    if listing is None or "range" not in understood:
        assert page.obeyed.time_range


@pytest.mark.parametrize("page", pages.ALL, ids=lambda page: page.path or "overview")
def test_a_moment_is_read_or_refused_on_every_page_and_ignored_on_none(results: Overview, page: Page) -> None:
    search, listing = "?since=abc&until=2026-11-19T12:00:00Z", LISTS[page.path]
    notes = extent.notes(results, page.obeyed, search)
    if isinstance(listing, Listing):
        assert not notes
        with pytest.raises(UsageError, match=r"'abc' is not a time|unknown filter"):
            listing.query(search)
    else:
        (note,) = notes
        assert note.startswith("since=abc, until=2026-11-19T12:00:00Z has no effect on this page")
        assert f"charts use the parameter range. {time_span.RANGE_FIX}" in note


# --- what follows it --------------------------------------------------------------------------------------------------
def test_the_overview_of_a_namespace_sums_its_rows_and_keeps_the_cluster_s(view: View, results: Overview) -> None:
    page, tables = overview_page(view, "?ns=pay"), view.source.snapshot().tables
    assert page is not None
    mine = {s.name: tables[s.name].read().columns["namespace"] == "pay" for s in (WORKLOADS, PODS, RECOMMENDATIONS)}
    advice = tables[RECOMMENDATIONS.name].read().columns
    lowered = np.where(advice["cpu_action"] == "set", np.maximum(0.0, -np.nan_to_num(advice["cpu_delta_total"])), 0.0)
    assert page.overview.workloads == mine["workloads"].sum() < results.workloads
    assert page.overview.pods == mine["pods"].sum()
    assert sum(page.overview.severities.values()) == mine["recommendations"].sum()
    assert page.overview.saving_cpu_millicores == int(lowered[mine["recommendations"]].sum())
    assert [waste.namespace for waste in page.overview.waste] in (["pay"], [])
    assert (page.overview.headline, page.overview.cpu) == (results.headline, results.cpu)
    drawn = str(overview.contents(view, "?ns=pay&range=24h"))
    assert "workloads and pods of the chosen namespaces" in drawn
    assert "recommendations?ready=whole%2Cfirst-step" not in drawn  # links carry the choice as well:
    assert "&ns=pay&range=24h" in drawn


def test_what_is_ready_on_the_overview_is_what_the_list_shows_under_the_same_namespace(view: View) -> None:
    page = overview_page(view, "?ns=pay&ns=shop")
    assert page is not None
    query = recommendations.LIST.query(f"{numbers.READY}&ns=pay&ns=shop")
    assert page.ready.ready == len(view.source.snapshot().rows(RECOMMENDATIONS.name, query))


def test_charts_begin_with_the_range_and_next_shows_nothing_of_the_past() -> None:
    hours = [int(NOON) + HOUR_SECONDS * k for k in range(200)]
    # A day is 24 hourly means.
    assert len(base.recent(hours, DAY_SECONDS)) == 24
    assert len(base.recent(hours, math.inf)) == 200
    assert len(base.recent(hours, 0)) == len(base.recent([], DAY_SECONDS)) == 0
    assert carried.back_seconds("?range=24h", 7) == DAY_SECONDS
    assert carried.back_seconds("?range=soon", 7) == carried.back_seconds("", 7) == 7


def test_the_api_narrows_by_the_same_range(view: View) -> None:
    table = acts(NOON, NOON + 3 * DAY_SECONDS)
    assert len(queries.select(table, enforcement.LIST.query("?range=7d"))) == 2
    assert len(queries.select(table, enforcement.LIST.query("?range=24h"))) == 1
    assert len(queries.select(table, enforcement.LIST.query("?range=next&ns=none"))) == 2  # the page's own span
