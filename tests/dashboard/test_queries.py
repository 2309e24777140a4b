"""The engine answers as a plain reading of the grammar, row by row: filters, search, order, pages, counts, facets."""

from __future__ import annotations

import math
from collections import Counter
from functools import cmp_to_key
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.store import tables
from cotenant.base.store.relation import LISTED, Relation, RowCondition
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables import filters, queries, time_span
from cotenant.base.tables.filters import EMPTY, KEYS, ORDERS, FilterCondition, Query

SCHEMA = Schema(
    "things",
    (
        Column("namespace", "", Kind.TEXT, ""),
        Column("kind", "", Kind.TEXT, ""),
        Column("severity", "", Kind.TEXT, ""),
        Column("cpu_reason", "", Kind.TEXT, ""),
        Column("memory_reason", "", Kind.TEXT, ""),
        Column("amount", "", Kind.MILLICORES, ""),
        Column("size", "", Kind.BYTES, ""),
        Column("time", "", Kind.TIME, ""),
        Column("line", "", Kind.LIST, ""),
    ),
    ("namespace", "kind"),
)
NUMBERED = Schema("entries", (Column("seq", "", Kind.INTEGER, ""), *SCHEMA.columns), ("seq",))
WORDS = st.sampled_from(["", "none", "a", "b", "A", "ab", "a/b", "ü", "'; --", "a*b", "x\\y", "%", "_", '"'])
NUMBERS = st.none() | st.integers(-3, 3) | st.sampled_from([0.5, -0.0, 2.0**40])
ROW = st.fixed_dictionaries(
    {
        "namespace": WORDS,
        "kind": WORDS,
        "severity": st.sampled_from(["", "good", "ok", "critical", "else"]),
        "cpu_reason": st.sampled_from(["ok", "floor", ""]),
        "memory_reason": st.sampled_from(["ok", "floor", "none"]),
        "amount": NUMBERS,
        "size": NUMBERS,
        "time": st.none() | st.integers(0, 5).map(lambda minutes: 60 * minutes),
        "line": st.sampled_from([(), (1.0, math.nan)]),
    }
)
ROWS = st.lists(ROW, max_size=12)
PATTERNS = WORDS.map(filters.literal) | st.sampled_from(["*", "a*", "*b", "*a*b*", "n*e", "*'*", "**"])
CONDITIONS = st.builds(
    FilterCondition,
    st.sampled_from(["ns", "kind", "reason"]),
    st.sets(PATTERNS, min_size=1, max_size=3).map(lambda values: tuple(sorted(values))),
    st.booleans(),
)
SORTS = st.lists(
    st.tuples(st.sampled_from(["namespace", "severity", "amount", "size", "time"]), st.booleans()),
    max_size=3,
    unique_by=lambda one: one[0],
).map(tuple)
QUERIES = st.builds(
    Query,
    conditions=st.lists(CONDITIONS, max_size=3, unique_by=lambda one: (one.key, one.negated)).map(tuple),
    text=st.sampled_from(["", "a", "B", "a/b", "none", "'", "Ü"]),
    sort=SORTS,
    span=st.sampled_from([filters.ALWAYS, (60.0, 240.0), (120.0, math.inf), (-math.inf, 180.0)]),
    back_seconds=st.sampled_from([math.inf, 120.0]),
)
WINDOWS = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: slice(pair[0], pair[0] + pair[1]))


# --- the meaning of the grammar in plain Python
def word(text: str) -> str:
    return text or EMPTY


def holds(row: dict[str, Any], condition: FilterCondition) -> bool:
    fits = filters.word_test(condition.values)
    return any(fits(word(row[c])) for c in KEYS[condition.key] if c in row) is not condition.negated


def shows(row: dict[str, Any], query: Query, newest: float | None) -> bool:
    name = [word(row[column]).lower() for column in SCHEMA.key]
    searched = all(any(part in text for text in name) for part in query.text.lower().replace("/", " ").split())
    since, until = query.span
    if newest is not None:
        since = max(since, newest - query.back_seconds)
    inside = (since, until) == filters.ALWAYS or (row["time"] is not None and since <= row["time"] < until)
    return searched and inside and all(holds(row, condition) for condition in query.conditions)


def rank(column: str, text: str) -> tuple[int, str, str]:
    order = ORDERS.get(column, ())
    return order.index(word(text)) if word(text) in order else len(order), word(text), text


def compared(query: Query, first: dict[str, Any], second: dict[str, Any]) -> int:
    for column, descending in query.sort:
        a, b = first[column], second[column]
        if SCHEMA.column(column).kind is Kind.TEXT:
            a, b = rank(column, a), rank(column, b)
        elif a is None or b is None:
            if (a is None) is not (b is None):
                return 1 if a is None else -1  # missing comes last in both directions
            continue
        if a != b:
            return (1 if a > b else -1) * (-1 if descending else 1)
    return 0


def meant(rows: list[dict[str, Any]], query: Query) -> list[int]:
    newest = max((row["time"] for row in rows if row["time"] is not None), default=None)
    numbers = [index for index, row in enumerate(rows) if shows(row, query, newest)]

    def in_order(a: int, b: int) -> int:
        return compared(query, rows[a], rows[b])

    return sorted(numbers, key=cmp_to_key(in_order))  # stable


def counted(rows: list[dict[str, Any]], query: Query, key: str) -> dict[str, int]:
    others = Query(tuple(c for c in query.conditions if c.key != key), query.text, (), query.span, query.back_seconds)
    remaining = [rows[place] for place in meant(rows, others)]
    counts = Counter(
        filters.literal(text) for row in remaining for text in {word(row[c]) for c in KEYS[key] if c in row}
    )
    for pattern in (*query.values(key), *query.values(key, negated=True)):
        counts.setdefault(pattern, sum(holds(row, FilterCondition(key, (pattern,))) for row in remaining))
    return dict(counts)


def relation_of(rows: list[dict[str, Any]], stored: bool) -> Relation:
    table = Table.from_rows(SCHEMA, rows)
    return Relation.stored(tables.encode(table), SCHEMA) if stored else Relation.of(table)


# --- the engine agrees
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(ROWS, QUERIES, WINDOWS, st.booleans())
def test_the_engine_selects_orders_and_counts_as_the_grammar_means(
    rows: list[dict[str, Any]], query: Query, window: slice, stored: bool
) -> None:
    relation, numbers = relation_of(rows, stored), meant(rows, query)
    assert queries.select(relation, query).tolist() == numbers
    assert queries.select(relation, query, window).tolist() == numbers[window]
    assert queries.count(relation, query) == len(numbers)
    table = Table.from_rows(SCHEMA, rows)
    expected = [list(table.rows())[place] for place in numbers]
    assert list(queries.page(relation, query, window).rows()) == expected[window]
    batches = relation.batches(queries.condition(relation, query), queries.order(SCHEMA, query), window)
    assert [row for batch in batches for row in batch.rows()] == expected[window]
    assert list(queries.matching(table, filters.encode(query)).rows()) == expected


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(ROWS, QUERIES, st.booleans())
def test_facets_count_what_each_value_would_show(rows: list[dict[str, Any]], query: Query, stored: bool) -> None:
    facets = queries.facets(relation_of(rows, stored), query, ["ns", "reason", "severity"])
    assert {key: dict(pairs) for key, pairs in facets.items()} == {key: counted(rows, query, key) for key in facets}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(ROWS, st.data())
def test_cells_laid_over_rows_are_asked_for_like_their_own(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, max(0, len(rows) - 1)), max_size=len(rows)).map(sorted)) if rows else []
    texts = data.draw(st.lists(st.none() | WORDS, min_size=len(numbers), max_size=len(numbers)))
    amounts = data.draw(st.lists(st.none() | st.just(math.nan), min_size=len(numbers), max_size=len(numbers)))
    laid = [dict(row) for row in rows]
    for place, text, amount in zip(numbers, texts, amounts, strict=True):
        laid[place] |= {"kind": text} if text is not None else {}
        laid[place] |= {"amount": None} if amount is not None else {}
    relation = relation_of(rows, stored=True)
    relation = relation.with_cells(SCHEMA, np.array(numbers, np.int64), {"kind": texts, "amount": amounts})
    query = data.draw(QUERIES)
    assert queries.select(relation, query).tolist() == meant(laid, query)
    assert list(relation.read().rows()) == list(Table.from_rows(SCHEMA, laid).rows())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(ROWS, QUERIES, st.sets(WORDS, max_size=3))
def test_no_question_reaches_rows_that_are_not_kept(rows: list[dict[str, Any]], query: Query, names: set[str]) -> None:
    marks = ", ".join("?" * len(names)) or "NULL"
    restricted = relation_of(rows, stored=True).restrict(RowCondition(f"namespace IN ({marks})", tuple(names)))
    permitted = [row for row in rows if row["namespace"] in names]
    numbers = [place for place, row in enumerate(rows) if row["namespace"] in names]
    assert len(restricted) == len(permitted)
    assert queries.select(restricted, query).tolist() == [numbers[place] for place in meant(permitted, query)]
    assert set(restricted.texts("namespace")) == {row["namespace"] for row in permitted}
    assert dict(queries.facet(restricted, query, "kind")) == counted(permitted, query, "kind")
    assert restricted.located(("namespace",), [(row["namespace"],) for row in rows[:1]])[1].tolist() == (
        [number for number in numbers if rows[number]["namespace"] == rows[0]["namespace"]] if rows else []
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.none() | st.integers(-20, 20) | st.just(1.5), max_size=8), st.sampled_from(["0", "-3", "1", "x", "1.5"])
)
def test_rows_named_by_a_number_are_found_by_it(numbers: list[float | None], text: str) -> None:
    relation = Relation.of(Table.from_rows(NUMBERED, [{"seq": number} for number in numbers]))
    places = queries.select(relation, filters.parse(f"row={text}", NUMBERED)).tolist()
    assert places == [k for k, n in enumerate(numbers) if n is not None and str(int(n)) == text]


def test_a_thousand_rows_are_named_at_once_and_more_are_taken_than_named() -> None:
    rows = [{"namespace": f"n{k}", "kind": "k", "amount": k} for k in range(LISTED + 50)]
    relation = relation_of(rows, stored=True)
    search = "&".join("row=" + quote(f"n{k}/k", safe="") for k in range(0, 2000, 2))
    assert queries.select(relation, filters.parse(search, SCHEMA)).tolist() == list(range(0, 2000, 2))
    backwards = queries.select(relation, filters.parse("sort=-amount", SCHEMA))
    assert relation.take(backwards, ["amount"]).columns["amount"].tolist() == list(range(LISTED + 49, -1, -1))


@pytest.mark.parametrize("text", ["'; DROP TABLE t0; --", "$1", "?", "%", "\\", "(?i)", "[", "{x}"])
def test_what_people_type_is_data_and_never_a_command(text: str) -> None:
    rows = [{"namespace": text, "kind": "k"}, {"namespace": "other", "kind": "k"}]
    relation = Relation.of(Table.from_rows(SCHEMA, rows))
    for search in (f"ns={quote(filters.literal(text))}", f"ns={quote(filters.literal(text))}*", f"q={quote(text)}"):
        assert queries.select(relation, filters.parse(search, SCHEMA)).tolist() == [0]
    assert queries.row_of(relation, {"namespace": text}) is not None


def test_a_column_that_an_older_file_lacks_is_empty() -> None:
    older = Schema("things", SCHEMA.columns[:2], SCHEMA.key)
    content = tables.encode(Table.from_rows(older, [{"namespace": "a", "kind": "b"}]))
    (row,) = Relation.stored(content, SCHEMA).read().rows()
    assert (row["severity"], row["amount"], row["line"]) == ("", None, [])
    assert time_span.COLUMN in row
