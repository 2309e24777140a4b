"""Home: what its cards say is what the lists behind their buttons hold; a young cluster is told what comes when."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from dash.development.base_component import Component
from plotly.utils import PlotlyJSONEncoder

from cotenant.base.identity import ContainerName, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.store import Store
from cotenant.base.table import Schema
from cotenant.changes.model.ledger_marks import LedgerMarks
from cotenant.changes.model.service import PostponedRecommendation
from cotenant.dashboard import pages
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import palette
from cotenant.dashboard.frame.navigation import tab_title
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home import answers, beginnings, cards, overview
from cotenant.dashboard.home.page_data import OverviewPage, overview_page
from cotenant.dashboard.pages import findings, recommendations
from cotenant.dashboard.sources import snoozed
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, PresentUse, RecorderStatus
from cotenant.recommender.model.views import FINDINGS, NODES, PODS, RECOMMENDATIONS, WORKLOADS
from tests.support import dashboard as support

LISTS: Final = {
    "/recommendations": (RECOMMENDATIONS.name, recommendations.LIST), "/findings": (FINDINGS.name, findings.LIST)
}  # fmt: skip
COUNT: Final = re.compile(r"(\d[\d,]*)(?= containers?\b| recommendations?\b| critical findings?\b|$)")


class Marked(StoreSource):
    """A source that shows one snapshot."""

    def __init__(self, behind: StoreSource, shown: Snapshot) -> None:
        self.__dict__.update(vars(behind))
        self._shown = shown

    def snapshot(self) -> Snapshot:
        return self._shown


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    results = support.results(tmp_path_factory.mktemp("store"))
    return View(StoreSource(results.store, support.QUICK), support.QUICK, lambda: float(results.end_seconds))


@pytest.fixture(scope="module")
def home(view: View) -> OverviewPage:
    page = overview_page(view, "")
    assert page is not None
    return page


def every(part: Any) -> Iterator[Component]:
    if isinstance(part, (list, tuple)):
        for child in part:
            yield from every(child)
    elif isinstance(part, Component):
        yield part
        yield from every(getattr(part, "children", None))


def text_of(part: Any) -> str:
    if isinstance(part, (list, tuple)):
        return "".join(map(text_of, part))
    return text_of(getattr(part, "children", None)) if isinstance(part, Component) else str(part or "")


def rows(view: View, search: str) -> list[dict[str, Any]]:
    """What the page To do lists under this query string."""
    relation = view.source.snapshot().tables[RECOMMENDATIONS.name]
    query = recommendations.LIST.query(search, relation.schema)
    return list(relation.take(view.source.snapshot().rows(RECOMMENDATIONS.name, query)).rows())


def test_the_cards_count_what_the_lists_behind_their_buttons_hold(view: View, home: OverviewPage) -> None:
    risk, waste = cards.at_risk(home), cards.waste(home)
    for card, name in ((risk, "risk"), (waste, "waste")):
        (href,) = [component.href for component in every(card) if getattr(component, "id", "") == f"way-{name}"]
        assert href.startswith("/recommendations?todo=")
    at_risk, cut = rows(view, cards.AT_RISK), rows(view, cards.WASTE)
    assert at_risk and cut
    assert f"Raise {len(at_risk)} containers at risk" in text_of(risk)
    # What falls over all pods after all steps, in cores as the tile writes them: three digits.
    falls = -sum(min(row["cpu_delta_total"] or 0, 0) for row in cut) / 1000
    amount = next(component for component in every(waste) if getattr(component, "className", "") == "amount")
    assert float(amount.to_plotly_json()["props"]["data-value"]) / 1000 == pytest.approx(falls)
    assert f"{len(cut)} containers, after all steps: frees" in text_of(waste)
    for card, first in ((risk, at_risk[0]), (waste, cut[0])):
        assert f"First: {first['namespace']}/{first['workload']}." in text_of(card)
    # The worst come first, and no row changes a value that no column shows.
    ranks = [Severity(row["severity"]).rank for row in at_risk]
    assert ranks == sorted(ranks, reverse=True) and len(set(ranks)) > 1


def test_a_drawer_says_in_a_sentence_what_can_be_applied_now_and_what_stops_the_rest(view: View) -> None:
    one_each = {row["ready"]: row for row in rows(view, "")}
    assert {"whole", "first-step", "blocked", "second-person"} <= set(one_each)
    for ready, row in one_each.items():
        name = ContainerName(*(row[key] for key in RECOMMENDATIONS.key))
        drawn = every(recommendations.explain_container(view, name, ""))
        (line,) = [component.children[0] for component in drawn if getattr(component, "id", "") == "ready-now"]
        chip, sentence = line.children
        assert text_of(chip) and re.fullmatch(r" [A-Z].*[^.]\.", sentence), ready
        assert row["stopped_by"] in sentence or ready == "second-person"
        assert "second-person" not in sentence


@pytest.mark.parametrize("search", ["", "?ns=feed&ns=data"])
def test_who_wastes_most_leads_to_the_rows_of_that_namespace_the_largest_cut_first(view: View, search: str) -> None:
    page = overview_page(view, search)
    assert page is not None
    # The namespace whose workloads request most CPU beyond their mean use, of those that are chosen.
    most = max(page.overview.waste, key=lambda row: row.cpu_millicores).namespace
    (question,) = [q for q in answers.questions(page) if q.words == "Who wastes most?"]
    assert text_of(question.answer) == most
    path, _, query = page.href(question.path, question.query).partition("?")
    shown = rows(view, query)
    assert path == "/recommendations" and len(shown) > 1
    assert len(shown) == len(rows(view, f"ns={most}")) and {row["namespace"] for row in shown} == {most}
    saved = [row["saving_month"] or 0 for row in shown]
    assert saved == sorted(saved, reverse=True) and saved[0] > 0


def counts_and_lists(part: Any, above: tuple[Component, ...] = ()) -> Iterator[tuple[int, str]]:
    """(number, address) of each link to a list: the number of its own words, else the first of what it stands in."""
    if isinstance(part, (list, tuple)):
        for child in part:
            yield from counts_and_lists(child, above)
    elif isinstance(part, Component):
        path, _, query = str(getattr(part, "href", "")).partition("?")
        if path in LISTS and query:
            for around in (part, *reversed(above)):
                name = str(getattr(around, "className", ""))
                if name != "card-acts" and (match := COUNT.search(text_of(around))):
                    yield int(match[1].replace(",", "")), part.href
                    break
                if type(around).__name__ in ("Li", "Section") or name.startswith("stat"):
                    break
        yield from counts_and_lists(getattr(part, "children", None), (*above, part))


@pytest.mark.parametrize("search", ["", "?ns=pay", "?ns=feed&ns=data"])
def test_every_number_that_links_to_a_list_is_the_number_of_its_rows(
    view: View, home: OverviewPage, search: str
) -> None:
    put_off = rows(view, cards.AT_RISK)[0], rows(view, f"severity={Severity.UNKNOWN}")[0]
    refs = [WorkloadRef(*(row[name] for name in ("namespace", "kind", "workload"))) for row in put_off]
    marks = LedgerMarks({ref: PostponedRecommendation(ref, None, "ann", "known", 0.0) for ref in refs})
    marked = snoozed.mark_snapshot(home.snapshot, marks, "marked")
    assert isinstance(view.source, StoreSource)
    shown = replace(view, source=Marked(view.source, marked))
    linked = list(counts_and_lists(overview.contents(shown, search)))
    for number, href in linked:
        path, _, query = href.partition("?")
        table, listed = LISTS[path]
        list_query = listed.query(query, marked.tables[table].schema)
        assert len(marked.rows(table, list_query)) == number, href
    # The buttons of two cards, what is killed first and not known, what is ready, severities, reasons and findings.
    assert {query for _, href in linked for query in [href.partition("?")[2].partition("=")[0]]} >= (
        {"todo", "killed_first", "severity", "ready", "reason", "finding"} if not search else {"severity", "reason"}
    )


def test_what_somebody_has_put_off_is_in_no_part_of_the_card(view: View, home: OverviewPage) -> None:
    at_risk = rows(view, cards.AT_RISK)
    ref = WorkloadRef(*(at_risk[0][name] for name in ("namespace", "kind", "workload")))
    entry = PostponedRecommendation(ref, None, "ann", "known", 0.0)
    marked = snoozed.mark_snapshot(home.snapshot, LedgerMarks({ref: entry}), "marked")
    page = replace(home, snapshot=marked)
    remaining = [
        row
        for row in at_risk
        if (row["namespace"], row["kind"], row["workload"]) != (ref.namespace, ref.kind, ref.name)
    ]
    assert page.todo.raises == len(remaining) < len(at_risk) == home.todo.raises
    assert page.severities == Counter(row["severity"] for row in remaining)


@pytest.mark.parametrize("resource", Resource)
def test_workloads_pods_nodes_and_the_commitment_have_one_sum_of_requests(
    view: View, home: OverviewPage, resource: Resource
) -> None:
    tables = view.source.snapshot().tables

    def total(table: Schema, column: str) -> float:
        return sum(row[column] or 0 for row in tables[table.name].read().rows())

    of_nodes = total(NODES, f"{resource}_request")
    assert of_nodes == total(PODS, f"{resource}_request") == total(WORKLOADS, f"{resource}_request")
    headline = home.overview.headline
    share = headline.cpu_requests_commitment if resource is Resource.CPU else headline.memory_requests_commitment
    assert share * total(NODES, f"{resource}_allocatable") == pytest.approx(of_nodes)


def test_containers_that_are_killed_first_used_more_memory_than_they_request(view: View, home: OverviewPage) -> None:
    everything = rows(view, "")
    above = [
        row for row in everything
        if (row["memory_observed_max"] or 0)
        > (row["memory_request_now"] or row["memory_limit_now"] or (0 if row["memory_action"] == "set" else math.inf))
    ]  # fmt: skip
    assert above and home.above_request == len(above) == len(rows(view, cards.KILLED_FIRST))
    assert [row for row in above if not row["memory_request_now"] and not row["memory_limit_now"]]  # requests nothing
    # Whoever's memory rises of them is at risk, however small the rise.
    assert {row["todo"] for row in above if (row["memory_delta_total"] or 0) > 0} == {"raise"}
    assert f"{len(above)} container" in text_of(cards.at_risk(home))


def test_what_can_be_lent_is_the_document_s_and_its_picture_has_every_half_hour(home: OverviewPage) -> None:
    card = cards.lend(home)
    first = next(component for component in every(card) if getattr(component, "className", "") == "amount")
    assert float(first.to_plotly_json()["props"]["data-value"]) == pytest.approx(home.overview.cpu.batch_now)
    columns = [component for component in every(card) if getattr(component, "className", "") == "column"]
    assert len(columns) == len(home.overview.cpu.ahead) == 48


def test_ten_questions_of_a_newcomer_are_answered_on_home_and_lead_to_a_page(home: OverviewPage) -> None:
    questions = answers.questions(home)
    assert len(questions) >= 10
    paths = {page.path for page in pages.ALL}
    for question in questions:
        assert question.path in paths, question.words
        assert text_of(question.answer).strip(), question.words


def test_a_store_without_results_is_told_what_will_appear_when(tmp_path: Path) -> None:
    empty = View(StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK), support.QUICK, lambda: 0.0)
    text = json.dumps(overview.contents(empty), cls=PlotlyJSONEncoder)
    assert "cotenant scan --prometheus URL" in text and "What will appear when" in text
    assert all(stage.what in text for stage in beginnings.STAGES)


@pytest.mark.parametrize(("days", "coming"), [(0.5, 7), (3.0, 5), (14.0, 1), (15.0, 0), (60.0, 0)])
def test_a_young_cluster_is_told_what_is_still_to_come(days: float, coming: int) -> None:
    # Stages begin at 0, 1, 2, 5, 7, 7, 7 and 15 days: of a history of 3 days 5, 7, 7, 7 and 15 are to come.
    drawn = beginnings.young(days)
    listed = [component for component in every(drawn) if type(component).__name__ == "Li"]
    assert len(listed) == coming and (drawn is None) == (coming == 0)


@pytest.mark.parametrize(
    ("path", "search", "title"),
    [
        ("", "", "Home - demo - cotenant"),
        ("nodes/node-003", "", "node-003 - Nodes - demo - cotenant"),
        ("workload/pay/Deployment/checkout", "", "pay/checkout - Workload - demo - cotenant"),
        ("recommendations", "?open=pay/Deployment/check%252Fout/app", "pay/check/out - To do - demo - cotenant"),
        ("no-such", "", "Not found - demo - cotenant"),
    ],
)
def test_a_tab_names_its_object_its_page_and_its_cluster(path: str, search: str, title: str) -> None:
    assert tab_title(pages.ALL, path, search, "demo") == title


@pytest.mark.slow
def test_one_field_finds_pages_workloads_nodes_namespaces_and_commands(view: View, home: OverviewPage) -> None:
    def hits_of(text: str, kind: str) -> list[palette.Hit]:
        return [hit for hit in palette.find(view, pages.ALL, text) if hit.kind == kind]

    assert {hit.words for hit in hits_of("", "Pages")} == {page.title for page in pages.ALL if page.letter}
    assert [hit.href for hit in hits_of("what if", "Pages")] == ["/what-if"]  # the word of before still finds it
    assert [hit.href for hit in hits_of("lend risk", "Pages")] == ["/what-if"]  # by its place and its title
    assert "/nodes/node-003" in {hit.href for hit in hits_of("node-003", "Nodes")}
    assert [hit.href for hit in hits_of("pay", "Namespaces")] == ["/workloads?ns=pay"]
    hits = hits_of("checkout", "Workloads")
    assert any(hit.href == "/workload/pay/Deployment/checkout" for hit in hits)
    assert [hit.copies for hit in hits_of("rollback", "Commands")] == ["cotenant recs rollback CHANGE --yes"]
    assert palette.find(view, pages.ALL, "no-such-thing-anywhere") == []


def test_home_of_a_recorded_cluster_says_what_is_known_and_when_what_comes(tmp_path: Path) -> None:
    start = 1_795_000_000.0  # 2026-11-18 11:06:40 UTC
    store = Store(tmp_path.as_uri(), "c")
    use = PresentUse(start + 90, 4, 61, 3200, 12 * 2**30)
    store.write_document(STATUS_DOCUMENT, RecorderStatus(start, start + 90, nodes={NodeSource.KUBELET: 4}, present=use))
    first = View(StoreSource(store, support.QUICK), support.QUICK, lambda: start + 100)
    text = json.dumps(overview.contents(first), cls=PlotlyJSONEncoder)

    assert "Now 4 nodes with 61 containers use 3.2 cores and 12.0 GiB." in text
    assert "Recording since 2026-11-18 11:06 UTC" in text
    assert "the recorder (4 nodes from kubelet)" in text
    # One day after the slot that ends at 11:10, and ten minutes until its last one is stored.
    assert display.moment(start - 100 + 300 + 86_400 + 600) in text
    assert "cotenant scan --prometheus URL" not in text

    # A recorder that ended long ago promises nothing.
    ended = View(StoreSource(store, support.QUICK), support.QUICK, lambda: start + 7200)
    assert "cotenant scan --prometheus URL" in json.dumps(overview.contents(ended), cls=PlotlyJSONEncoder)
