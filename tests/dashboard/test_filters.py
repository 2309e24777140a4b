"""The filter grammar: what a query string means, that it survives a round trip, and that it selects what it says."""

from __future__ import annotations

import fnmatch
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters, queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.changes.model.tables import ENTRIES
from cotenant.dashboard.frame import carried
from cotenant.dashboard.sources.source import SCHEMAS
from cotenant.recommender.model.views import NODES, RECOMMENDATIONS, WORKLOADS

ROWS: list[dict[str, Any]] = [
    {"namespace": "pay", "kind": "Deployment", "workload": "checkout", "container": "app", "severity": "critical",
     "cpu_reason": "ok", "memory_reason": "oom-bump", "cpu_delta_total": -500},
    {"namespace": "pay", "kind": "Job", "workload": "settle", "container": "app", "severity": "good",
     "cpu_reason": "floor", "memory_reason": "floor", "cpu_delta_total": None},
    {"namespace": "shop", "kind": "Deployment", "workload": "cart", "container": "app", "severity": "warning",
     "cpu_reason": "ok", "memory_reason": "ok", "cpu_delta_total": 20},
    {"namespace": "", "kind": "Pod", "workload": "checkpoint", "container": "x", "severity": "ok",
     "cpu_reason": "ok", "memory_reason": "ok", "cpu_delta_total": -20},
]  # fmt: skip
RELATION = Relation.of(Table.from_rows(RECOMMENDATIONS, ROWS))
KEYS = filters.keys_of(RECOMMENDATIONS)
FREE_KEYS = [key for key in KEYS if key not in filters.ORDERS]
"""Those that take any text."""
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PATTERNS = st.text(st.sampled_from("ab*,\\ =&(é"), max_size=8).map(lambda t: filters.patterns(t)[0])


def shown(search: str) -> list[str]:
    rows = queries.select(RELATION, filters.parse(search, RECOMMENDATIONS))
    return [ROWS[i]["workload"] for i in rows]


parsed_queries = st.builds(
    Query,
    conditions=st.dictionaries(
        st.tuples(st.sampled_from(FREE_KEYS), st.booleans()), st.sets(PATTERNS, min_size=1, max_size=3), max_size=4
    ).map(lambda d: tuple(sorted(FilterCondition(k, tuple(sorted(v)), n) for (k, n), v in d.items()))),
    text=WORDS.map(str.strip),
    sort=st.lists(
        st.tuples(st.sampled_from([c.name for c in RECOMMENDATIONS.columns]), st.booleans()),
        max_size=3,
        unique_by=lambda s: s[0],
    ).map(tuple),
)


@given(parsed_queries)
def test_a_query_survives_the_url(query: Query) -> None:
    assert filters.parse(filters.encode(query), RECOMMENDATIONS) == query


@given(parsed_queries, st.sampled_from(FREE_KEYS), PATTERNS, st.booleans())
def test_switching_a_value_twice_changes_nothing_else(query: Query, key: str, value: str, negated: bool) -> None:
    once = filters.toggle_pattern(query, key, value, negated=negated)
    selected = value in query.values(key, negated=negated)
    assert (value in once.values(key, negated=negated)) is not selected
    assert value not in once.values(key, negated=not negated)
    others = [c for c in query.conditions if c.key != key]
    assert [c for c in once.conditions if c.key != key] == others


@pytest.mark.slow
@given(WORDS)
def test_a_literal_matches_its_text_and_nothing_else(text: str) -> None:
    (pattern,) = filters.patterns(filters.literal(text))
    assert pattern == filters.literal(text)
    rows = [{**ROWS[0], "namespace": name} for name in (text, text + "x", "x" + text, "*")]
    values = queries.select(
        Relation.of(Table.from_rows(RECOMMENDATIONS, rows)), Query((FilterCondition("ns", (pattern,)),))
    )
    # An empty namespace is written "none", so the pattern of nothing at all matches no row.
    assert [rows[i]["namespace"] for i in values] == [r["namespace"] for r in rows if r["namespace"] == text != ""]


@pytest.mark.slow
@given(st.text("ab", max_size=9), st.lists(st.text("ab*", max_size=6), max_size=3))
def test_a_star_stands_for_any_characters(name: str, written: list[str]) -> None:
    rows = [{**ROWS[0], "workload": name}]
    query = Query((FilterCondition("workload", tuple(written)),))
    values = queries.select(Relation.of(Table.from_rows(RECOMMENDATIONS, rows)), query)
    word = name or "none"
    # fnmatch reads `*` alike, and these patterns hold none of its other signs.
    assert bool(len(values)) is any(fnmatch.fnmatchcase(word, pattern) for pattern in written)


def test_many_stars_cost_no_time() -> None:
    rows = [{**ROWS[0], "workload": "a" * 250 + str(k)} for k in range(500)]
    indexed = Relation.of(Table.from_rows(RECOMMENDATIONS, rows))
    start = time.process_time()
    assert not len(queries.select(indexed, filters.parse("workload=" + "*a" * 120 + "*b", RECOMMENDATIONS)))
    # A backtracking matcher would not end; this one looks at each character of a name about once.
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("search", "same"),
    [
        ("ns=pay,shop", "ns=pay&ns=shop"),
        ("ns in (pay, shop)", "ns=pay&ns=shop"),
        ("ns+in+%28pay%2Cshop%29=", "ns=pay&ns=shop"),
        ("kind notin (Job,Pod)", "kind!=Job&kind!=Pod"),
        ("kind!=Job,Pod", "kind!=Job&kind!=Pod"),
        ("kind%21=Job", "kind!=Job"),
        ("ns==pay", "ns=pay"),
        ("ns=pay&&kind=Job", "ns=pay&kind=Job"),
        ("ns in (pay)&kind notin (Job)&sort=workload", "ns=pay&kind!=Job&sort=workload"),
    ],
)
def test_label_selectors_are_another_spelling(search: str, same: str) -> None:
    assert filters.parse(search, RECOMMENDATIONS) == filters.parse(same, RECOMMENDATIONS)


def test_patterns_select_by_part_of_a_name() -> None:
    assert shown("workload=check*") == ["checkout", "checkpoint"]
    assert shown("workload=*t&workload!=*point") == ["checkout", "cart"]
    assert shown(r"workload=check\*") == []


def test_values_of_one_key_are_alternatives_and_keys_must_all_hold() -> None:
    assert shown("ns=pay&ns=shop&kind=Deployment") == ["checkout", "cart"]


def test_not_equal_leaves_out() -> None:
    assert shown("ns!=pay") == ["cart", "checkpoint"]
    assert shown("kind!=Job&kind!=Pod") == ["checkout", "cart"]


def test_a_reason_matches_either_resource() -> None:
    assert shown("reason=oom-bump") == ["checkout"]
    assert shown("reason!=ok") == ["settle"]


def test_an_empty_cell_is_asked_for_by_name() -> None:
    assert shown("ns=none") == ["checkpoint"]


def test_search_takes_a_whole_name_apart() -> None:
    assert shown("q=pay/checkout") == ["checkout"]


def test_search_asks_for_every_word_in_any_case() -> None:
    assert shown("q=CHECK") == ["checkout", "checkpoint"]
    assert shown("q=check+pay") == ["checkout"]


def test_missing_numbers_come_last_in_both_directions() -> None:
    assert shown("sort=cpu_delta_total") == ["checkout", "checkpoint", "cart", "settle"]
    assert shown("sort=-cpu_delta_total") == ["cart", "checkpoint", "checkout", "settle"]


def test_severity_sorts_by_rank_not_by_alphabet() -> None:
    # good < ok < warning < critical; the alphabet would put critical first.
    assert shown("sort=severity") == ["settle", "checkpoint", "cart", "checkout"]


def test_the_second_sort_column_decides_among_equals() -> None:
    assert shown("sort=kind&sort=-workload") == ["checkout", "cart", "settle", "checkpoint"]


@pytest.mark.parametrize(
    ("search", "fix"),
    [
        ("severty=ok", "severity"),
        ("severity=critcal", "critical"),
        ("severity!=good,awful", "Known: unknown, good, ok, warning, critical, none"),
        ("qos=LS", "Known"),
        ("sort=cpu_delta", "cpu_delta_total"),
        ("sort=", "Known"),
        ("ns>=1", "ns"),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest_known_one(search: str, fix: str) -> None:
    with pytest.raises(UsageError) as refused:
        filters.parse(search, RECOMMENDATIONS)
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("q=" + "+".join(["a"] * 33), "33 words"),
        ("ns=" + "a*" * 257, "257 stars"),
        ("ns=" + ",".join(map(str, range(4001))), "4,001 values"),
        ("q=\ud800", "UTF-8"),
        ("ns!=\udfff*", "UTF-8"),
    ],
)
def test_a_query_that_would_take_minutes_or_is_no_text_is_refused(search: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        filters.parse(search, RECOMMENDATIONS)


@pytest.mark.parametrize(("search", "names"), [("severity=crit*", ["checkout"]), ("severity=none", [])])
def test_a_severity_may_be_a_pattern_or_empty(search: str, names: list[str]) -> None:
    assert shown(search) == names


def test_paging_words_are_no_filters() -> None:
    assert filters.parse("open=a/b/c/d&limit=5&offset=0&format=csv", RECOMMENDATIONS) == Query()


def test_each_table_knows_its_own_keys() -> None:
    assert {"qos", "priority", "pattern"} <= set(filters.keys_of(WORKLOADS))
    assert set(filters.keys_of(NODES)) == {"row", "node", "reason"}


def test_facets_count_under_the_other_filters_only() -> None:
    query = filters.parse("ns=pay&severity=critical", RECOMMENDATIONS)
    # ns is counted under severity=critical alone, severity under ns=pay alone, worst first.
    assert queries.facet(RELATION, query, "ns") == [("pay", 1)]
    assert queries.facet(RELATION, query, "severity") == [("critical", 1), ("good", 1)]


def test_a_row_with_one_reason_twice_counts_once() -> None:
    counts = dict(queries.facet(RELATION, Query(), "reason"))
    assert counts == {"ok": 3, "floor": 1, "oom-bump": 1}


def test_a_table_whose_rows_are_numbered_is_searched_in_its_texts_and_its_rows_are_named_by_number() -> None:
    rows = [
        {"seq": seq, "time": 1.0, "actor": actor, "event": "accepted", "subject": "c1", "body": "{}", "hash": "f"}
        for seq, actor in ((1, "ann"), (12, "bob"))
    ]
    ledger = Relation.of(Table.from_rows(ENTRIES, rows))

    def numbers(search: str) -> list[int]:
        return [int(n) for n in queries.select(ledger, filters.parse(search, ENTRIES))]

    assert (numbers("q=BOB"), numbers("q=accepted"), numbers("q=x")) == ([1], [0, 1], [])
    assert (numbers("row=12"), numbers("row=2"), numbers("row=x")) == ([1], [], [])


def test_single_rows_are_named_by_their_key() -> None:
    assert shown("row=pay/Deployment/checkout/app&row=shop/Deployment/cart/app") == ["checkout", "cart"]
    assert shown("row=none/Pod/checkpoint/x") == ["checkpoint"]
    assert shown("row=pay/Deployment/checkout") == []


@pytest.mark.slow
@given(WORDS)
def test_a_row_is_found_whatever_it_is_called(name: str) -> None:
    rows = [{**ROWS[0], "workload": name}, {**ROWS[0], "workload": name + "2"}]
    indexed = Relation.of(Table.from_rows(RECOMMENDATIONS, rows))
    path = "/".join(quote(part, safe="") for part in ("pay", "Deployment", name, "app"))
    values = queries.select(indexed, filters.parse("row=" + quote(path, safe=""), RECOMMENDATIONS))
    assert values.tolist() == [0]


def test_columns_are_no_filter_and_unknown_ones_are_refused() -> None:
    assert filters.columns("columns=workload,kind&ns=pay", RECOMMENDATIONS) == ("workload", "kind")
    assert filters.parse("columns=workload,kind", RECOMMENDATIONS) == Query()
    with pytest.raises(UsageError, match="no column 'wrkload'"):
        filters.columns("columns=wrkload", RECOMMENDATIONS)


def test_a_chosen_value_that_nothing_matches_stays_to_be_removed() -> None:
    query = filters.parse("ns=gone", RECOMMENDATIONS)
    assert ("gone", 0) in queries.facet(RELATION, query, "ns")


def test_only_shared_filters_walk_to_another_page() -> None:
    assert carried.carried_parts("?ns=pay&severity=ok&ns!=shop&q=x&sort=kind&open=1") == "ns=pay&ns!=shop&q=x"


def test_the_page_about_filters_names_every_key_of_every_table() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "filters.md").read_text()
    for name, schema in SCHEMAS.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert {"row", *re.findall(r"`(\w+)`", line.split("|")[2])} == set(filters.keys_of(schema)), name


def test_a_key_may_be_written_as_its_column() -> None:
    assert shown("namespace=pay") == shown("ns=pay") == ["checkout", "settle"]
    assert shown("namespace!=pay") == shown("namespace notin (pay)") == shown("ns!=pay")
    assert carried.carried_parts("namespace=pay") == "ns=pay"
