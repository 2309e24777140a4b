"""A selection of recommendations: by name or by filter, what it comes to, how risky it is, where it is reviewed."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import GIB
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters, queries
from cotenant.base.tables.filters import Query
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.selection import Selection, SelectionTotals
from cotenant.recommender.model.savings import RequestTotals, Savings
from cotenant.recommender.model.views import RECOMMENDATIONS


def row(workload: str, **cells: Any) -> dict[str, Any]:
    """A row of one container."""
    defaults = {"namespace": "pay", "kind": "Deployment", "workload": workload, "container": "app", "confidence": 0.9}
    return defaults | {"memory_request": 2 * GIB, "memory_observed_max": GIB, "memory_delta_total": 0.0} | cells


ROWS = (
    row("web", cpu_delta_total=-500, saving_month=20.0, freed_month=20.0, raised_month=0.0, saving_step=9.0),
    row("web", container="proxy", cpu_delta_total=-100, freed_month=1.0, raised_month=0.0, saving_step=1.0),
    row("api", cpu_delta_total=200, freed_month=4.0, raised_month=9.0, memory_delta_total=-GIB),
    row("big", memory_request=GIB // 2, confidence=0.95),
    row("new", confidence=None),
    row("doubt", confidence=0.6),
)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    empty = Snapshot.empty()
    table = Relation.of(Table.from_rows(RECOMMENDATIONS, ROWS))
    return Snapshot("v", None, {**empty.tables, RECOMMENDATIONS.name: table})


def advice_of(snapshot: Snapshot) -> Relation:
    return snapshot.tables[RECOMMENDATIONS.name]


def test_named_rows_and_everything_that_matches_are_the_same_kind_of_selection(snapshot: Snapshot) -> None:
    query = filters.parse("ns=pay&workload=web", RECOMMENDATIONS)

    def numbers(query: Query, chosen: Selection) -> list[int]:
        rows = choosing.chosen_rows(query, chosen)
        return [] if rows is None else queries.select(advice_of(snapshot), rows).tolist()

    every = numbers(query, Selection(everything=True))
    numbers_by_name = numbers(Query(), Selection(("pay/Deployment/web/app", "pay/Deployment/web/proxy")))
    assert every == numbers_by_name == [0, 1]
    assert numbers(query, Selection()) == []
    # A row that is gone is not selected any more.
    assert numbers(Query(), Selection(("pay/Deployment/gone/app",))) == []


def test_what_the_browser_keeps_is_read_whatever_it_is() -> None:
    assert choosing.selection({"rows": ["a", "b"]}) == Selection(("a", "b"))
    assert choosing.selection({"rows": ["a"], "all": True}) == Selection(everything=True)
    assert choosing.selection({"rows": ["a"], "choice": 3}) == Selection(("a",), choice=3)
    assert choosing.selection({"rows": ["a"], "choice": "3"}) == Selection(("a",))
    assert not choosing.selection(None) and not choosing.selection({"rows": "abc"}) and not choosing.selection([1])
    assert len(choosing.selection({"rows": ["a"] * 5000}).rows) == choosing.MOST_ROWS


def test_a_selection_comes_to_rows_workloads_changes_money_and_risks(snapshot: Snapshot) -> None:
    # 500 + 100 m and one GiB are freed (20 + 1 + 4), 200 m are raised (9): apart, both positive. web twice low; api
    # lowers memory and doubt is unsure: medium; big is below what was seen and new has no confidence: high.
    frees, raises = RequestTotals(600, GIB, 25.0), RequestTotals(200, 0, 9.0)
    assert choosing.sum_selection(advice_of(snapshot), Query()) == SelectionTotals(
        6, 5, Savings(frees, raises), {"low": 2, "medium": 2, "high": 2}
    )


def test_workloads_are_named_once_in_the_order_of_their_rows(snapshot: Snapshot) -> None:
    query = filters.parse("sort=-cpu_delta_total", RECOMMENDATIONS)
    assert [w.name for w in choosing.workloads(advice_of(snapshot), query)] == ["api", "web", "big", "new", "doubt"]


def test_the_workloads_worth_most_count_all_their_containers(snapshot: Snapshot) -> None:
    # Of what is allowed now web saves 9 + 1; nobody else saves anything.
    assert choosing.worth_most(advice_of(snapshot), 3) == [(WorkloadRef("pay", "Deployment", "web"), 10.0)]


def test_all_that_match_are_reviewed_by_their_filter_and_others_by_name() -> None:
    refs = [WorkloadRef("pay", "Deployment", f"w{i}") for i in range(230)]
    every = reviewing.selection_href("/x/", "?ns=pay&kind!=Job&step=confirm", refs, Selection(everything=True))
    assert every == "/x/recommendations/review?all=1&ns=pay&kind!=Job"
    href = reviewing.selection_href("/", "?ns=pay", refs, Selection(("a",)), method="bundle")
    terms = reviewing.parse_terms(href.partition("?")[2])
    # An address names 200; more are chosen by a filter.
    assert (terms.workloads, terms.everything, str(terms.method)) == (tuple(refs[:200]), False, "bundle")
