"""Every page in every state: a source that fails, is empty, partial or old gives words, never a traceback."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dash.development.base_component import Component
from plotly.utils import PlotlyJSONEncoder

from cotenant.base.errors import SourceError, StoreError
from cotenant.base.identity import WorkloadRef
from cotenant.base.store import Store
from cotenant.base.usage.quality import QualityRecord, ScrapeSpan
from cotenant.dashboard import pages
from cotenant.dashboard.frame import panels, shell
from cotenant.dashboard.frame.carried import WORKLOAD_PATH
from cotenant.dashboard.frame.view import Page, View
from cotenant.dashboard.sources.source import ResultSource, Snapshot, StoreSource, Upkeep
from cotenant.recommender.model.views import RECOMMENDATIONS, WORKLOADS, Overview
from tests.house.rooms import ROOT
from tests.support import dashboard as support
from tests.support.dashboard import Results

METHODS = tuple(name for name in vars(ResultSource) if not name.startswith("_") and name != "forget")
"""Every question that a page may ask a source."""
DISK = "the disk is gone"


class Faulty:
    """A source in front of another, some of whose questions fail, as the disk or a bug would make them."""

    def __init__(self, behind: ResultSource, failing: Mapping[str, Exception]) -> None:
        self._behind, self._failing = behind, failing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def question(*args: Any) -> Any:
            if name in self._failing:
                raise self._failing[name]
            return getattr(self._behind, name)(*args)

        return question


class Changed:
    """A source whose snapshot was altered."""

    def __init__(self, behind: ResultSource, change: Callable[[Snapshot], Snapshot]) -> None:
        self._behind, self._change = behind, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def snapshot(self) -> Snapshot:
        return self._change(self._behind.snapshot())


def view_on(source: Any, now_seconds: float = 0.0) -> View:
    return View(source, support.QUICK, lambda: now_seconds)


LIVE = {
    "changes": "cotenant dashboard --act",
    "enforcement": "cotenant node enforcement",
    "reservations/…": "cotenant reservations show",
    "autopilot": "cotenant dashboard --act",
    "queues": "cotenant dashboard --act",
    "rebalance": "cotenant dashboard --act",
    "cluster-size": "cotenant size",
}
"""Pages of the ledger, of agents, of the cluster and of its size: no scan is needed; page -> the command that helps."""


PAGE_OF = {
    "node_history": ("nodes/…",),
    "upkeep": ("health",),
    "story": ("workload/…",),
    "lendable_capacity": ("batch",),
    "cluster_size": ("overview", "cluster-size"),
}
"""Questions of which a page shows the answer as it is opened -> those pages."""


def of_results(shown: Mapping[str, str]) -> dict[str, str]:
    """Pages that cannot be drawn without the results: each of the others asks for something else, or for nothing."""
    alone = ("reservations/…", "autopilot", "queues", "rebalance", "cluster-size")
    return {name: text for name, text in shown.items() if name not in alone}


def drawings(demo_results: Results) -> dict[str, Callable[[View], Component]]:
    """Each page, and each kind of page below another, as the frame would draw it."""
    workload = next(iter(demo_results.store.read_table(WORKLOADS).rows()))
    parts = {"workload": (workload["namespace"], workload["kind"], workload["workload"]), "nodes": ("node-000",)}
    parts["recommendations"] = ("review",)
    parts["reservations"] = ("shop", "web-peak")

    def plain(page: Page) -> Callable[[View], Component]:
        return lambda view: page.render(view, "")

    def under(page: Page) -> Callable[[View], Component]:
        assert page.below is not None
        below = page.below
        return lambda view: below(view, parts[page.path], "")

    # The address of a workload without a name has a link to the workloads alone.
    page_drawings = {page.path or "overview": plain(page) for page in pages.ALL if page.path != WORKLOAD_PATH}
    return page_drawings | {f"{page.path}/…": under(page) for page in pages.ALL if page.below}


def text_of(component: Component) -> str:
    """Everything a drawn page holds, as the browser gets it."""
    return json.dumps(component, cls=PlotlyJSONEncoder, ensure_ascii=False)


def drawn(demo_results: Results, view: View) -> dict[str, str]:
    return {name: text_of(panels.render_guarded(partial(draw, view))) for name, draw in drawings(demo_results).items()}


def well(pages_drawn: Mapping[str, str]) -> None:
    """No page is blank, none shows the inside of the program."""
    for name, text in pages_drawn.items():
        assert "Traceback" not in text and "Error(" not in text, name
        assert "NaN" not in text, name
        assert len(text) > 150, name


@pytest.fixture(scope="module")
def source(demo_results: Results) -> StoreSource:
    return StoreSource(demo_results.store, support.QUICK)


def test_all_is_well_when_nothing_fails(demo_results: Results, source: StoreSource) -> None:
    shown = drawn(demo_results, view_on(source, demo_results.end_seconds))
    well(shown)
    assert not [name for name, text in shown.items() if "empty failed" in text]


def test_no_page_says_that_there_is_none_of_what_its_address_leaves_out(
    demo_results: Results, source: StoreSource
) -> None:
    view = view_on(source, demo_results.end_seconds)
    shown = {page.path: text_of(page.render(view, "?ns=nobody")) for page in pages.ALL if page.path != WORKLOAD_PATH}
    assert "No recommendation matches these filters." in shown[""] and "cotenant scan" not in shown[""]
    assert "No plan matches these filters." in shown["reservations"]
    for path, text in shown.items():
        for phrase in ("No recommendation was made.", "Nothing was found.", "No plan yet.", "No plan to show."):
            assert phrase not in text, path


@pytest.mark.slow
@pytest.mark.parametrize("failing", METHODS)
def test_a_store_that_cannot_be_read_is_told_in_its_own_words(
    demo_results: Results, source: StoreSource, failing: str
) -> None:
    shown = drawn(
        demo_results, view_on(Faulty(source, {failing: StoreError(DISK, fix="Mount it.")}), demo_results.end_seconds)
    )
    well(shown)
    if failing == "snapshot":
        assert all(DISK in text and "Mount it." in text for text in of_results(shown).values())
    assert [name for name in PAGE_OF.get(failing, ()) if DISK not in shown[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("failing", METHODS)
def test_a_bug_is_told_shortly_and_keeps_its_secrets(demo_results: Results, source: StoreSource, failing: str) -> None:
    shown = drawn(
        demo_results, view_on(Faulty(source, {failing: RuntimeError("secret inside")}), demo_results.end_seconds)
    )
    well(shown)
    assert not [name for name, text in shown.items() if "secret inside" in text]
    if failing == "snapshot":
        assert all("could not be drawn" in text for text in of_results(shown).values())


def test_a_forbidden_source_says_so(demo_results: Results, source: StoreSource) -> None:
    refused = SourceError("pods of 47 namespaces are forbidden", fix="cotenant doctor names the missing right.")
    shown = drawn(demo_results, view_on(Faulty(source, dict.fromkeys(METHODS, refused)), demo_results.end_seconds))
    well(shown)
    texts = of_results(shown).values()
    assert all("47 namespaces are forbidden" in text and "cotenant doctor" in text for text in texts)


def test_every_empty_state_has_a_next_step() -> None:
    """A command to type or a link to follow."""
    calls = [
        (file.name, node)
        for file in sorted((ROOT / "dashboard").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "panels.empty"
    ]
    assert len(calls) > 50
    ends = [(f"{name}:{call.lineno}", {word.arg for word in call.keywords}) for name, call in calls]
    assert [place for place, kinds in ends if not kinds & {"command", "link"}] == []


def test_every_example_that_a_page_names_exists() -> None:
    sources = [file.read_text() for file in (ROOT / "dashboard").rglob("*.py")]
    names = {name for text in sources for name in re.findall(r"deploy/examples/[\w.-]+", text)}
    assert len(names) >= 3 and [name for name in sorted(names) if not (ROOT / name).is_file()] == []


def test_without_results_every_page_says_which_command_makes_them(demo_results: Results, tmp_path: Path) -> None:
    shown = drawn(demo_results, view_on(StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK)))
    well(shown)
    for name, text in shown.items():
        command = LIVE.get(name, "cotenant scan")
        assert command in text and (name in LIVE or "cotenant demo" in text), name


@pytest.mark.slow
def test_tables_that_were_never_written_are_empty_lists_with_a_reason(demo_results: Results, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    store.write_document("overview", demo_results.store.read_document("overview", Overview))
    shown = drawn(demo_results, view_on(StoreSource(store, support.QUICK), demo_results.end_seconds))
    well(shown)
    assert "Nothing was found." in shown["overview"]
    assert "No node is named" in shown["nodes/…"]
    assert "The analysis holds no node." in shown["nodes"]


def test_a_node_without_history_or_terms_has_words_for_both(demo_results: Results, source: StoreSource) -> None:
    class Bare(Faulty):
        def node_history(self, _node: str) -> dict[str, Any]:
            return {}

    bare = Bare(source, {})
    text = drawn(demo_results, view_on(bare, demo_results.end_seconds))["nodes/…"]
    assert text.count("No history of this node.") == 2


@pytest.mark.slow
def test_partial_data_are_said_where_numbers_are(demo_results: Results, source: StoreSource) -> None:
    note = "73 of 120 namespaces were readable, 47 forbidden"

    def partly(snapshot: Snapshot) -> Snapshot:
        assert snapshot.overview is not None
        return Snapshot(snapshot.version, replace(snapshot.overview, notes=[note], coverage=0.6), snapshot.tables)

    shown = drawn(demo_results, view_on(Changed(source, partly), demo_results.end_seconds))
    well(shown)
    assert note in shown["overview"] and note in shown["health"]
    assert "60.0 % of samples present" in shown["overview"]


@pytest.mark.parametrize(("age", "tone"), [(0, "tone-teal"), (1000, "tone-orange"), (7200, "tone-red")])
def test_the_age_of_data_is_a_chip_that_turns(demo_results: Results, age: int, tone: str) -> None:
    view = view_on(StoreSource(demo_results.store, support.QUICK), demo_results.end_seconds + age)
    assert tone in text_of(shell.age_chip(demo_results.end_seconds, view, demo=False))


def test_a_filter_that_is_misspelt_is_answered_on_every_list(demo_results: Results, source: StoreSource) -> None:
    for page in pages.ALL:
        text = text_of(page.render(view_on(source, demo_results.end_seconds), "?nss=x&sort=nothing"))
        assert "Traceback" not in text, page.path


def test_health_tells_a_failing_pull(demo_results: Results, source: StoreSource) -> None:
    from cotenant.base.usage.quality import Defect

    class Poor(Faulty):
        def upkeep(self) -> Upkeep:
            record = QualityRecord(demo_results.end_seconds, "prom", 30.0, 9, 5, defects={Defect.QUERY_FAILED: 2})
            return Upkeep((record,), (("cpu-usage-mean", 0, "/store/day.corrupt-1"),))

    text = drawn(demo_results, view_on(Poor(source, {}), demo_results.end_seconds))["health"]
    assert "query-failed" in text and "never" in text and "day.corrupt-1" in text


@pytest.mark.slow
def test_health_lists_scrape_intervals_where_there_are_several(demo_results: Results, source: StoreSource) -> None:
    def shown(*intervals: int) -> str:
        spans = tuple(ScrapeSpan(0, demo_results.end_seconds, s, max(300, 4 * s), 10 + s) for s in intervals)

        class Mixed(Faulty):
            def upkeep(self) -> Upkeep:
                return Upkeep((QualityRecord(demo_results.end_seconds, "prom", 30.0, 9, 5, scrapes=spans),), ())

        return drawn(demo_results, view_on(Mixed(source, {}), demo_results.end_seconds))["health"]

    assert "Scrape intervals" not in shown(30)
    text = shown(30, 300)
    # 310 series each 300 s, whose rates reach over 4 x 300 s = 20 minutes.
    assert "Scrape intervals" in text and "310" in text and "20 min" in text


def test_the_source_s_names_reach_every_page(demo_results: Results, source: StoreSource) -> None:
    row = next(iter(demo_results.store.read_table(RECOMMENDATIONS).rows()))
    ref = WorkloadRef(row["namespace"], row["kind"], row["workload"])
    assert source.story(ref) is not None
    assert source.node_history("node-000").keys() == {"cpu", "memory"}
    assert source.node_history("nowhere") == {}
