"""EDGE: run queries of the filter grammar on a relation of the store: rows, counts and facets.

`condition` and `order` compile a query (filters.py) to SQL; text that people typed is passed as parameters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from cotenant.base.store.relation import EVERY_ROW, Index, Relation, RowCondition, quote_identifier
from cotenant.base.table import Kind, Schema, Table
from cotenant.base.tables import time_span
from cotenant.base.tables.filters import (
    ALWAYS,
    EMPTY,
    KEYS,
    ORDERS,
    Query,
    literal,
    parse,
    plain_parts,
)

__all__ = [
    "Index",
    "Relation",
    "RowCondition",
    "columns_of",
    "condition",
    "count",
    "facet",
    "facets",
    "json_rows",
    "matching",
    "order",
    "page",
    "quote_identifier",
    "row_of",
    "select",
    "span_of",
]

NO_ROW = RowCondition("false")
ALL_ROWS = slice(None)


def condition(relation: Relation, query: Query) -> RowCondition:
    """Return the SQL condition that the rows of a query meet."""
    schema, span = relation.schema, span_of(relation, query)
    time = quote_identifier(time_span.COLUMN)
    tests = [] if span == ALWAYS else [RowCondition(f"coalesce({time} >= ? AND {time} < ?, false)", span)]
    for part in query.conditions:
        holds = _holds(schema, part.key, part.values)
        tests.append(~holds if part.negated else holds)
    # One for each word of a search text: rows whose name contains it.
    return _all([*tests, *(_name_contains(schema, word) for word in query.text.lower().replace("/", " ").split())])


def order(schema: Schema, query: Query) -> tuple[str, ...]:
    """Return the ORDER BY terms of a query; missing numbers come last in both directions."""
    return tuple(
        f"{key} {'DESC' if descending else 'ASC'} NULLS LAST"
        for column, descending in query.sort
        for key in _sort_keys(schema, column)
    )


def select(relation: Relation, query: Query, window: slice = ALL_ROWS) -> Index:
    """Return the row numbers of the rows that match the query, in its order; equal rows keep the table's order."""
    return relation.numbers(condition(relation, query), order(relation.schema, query), window)


def page(relation: Relation, query: Query, window: slice = ALL_ROWS, columns: Sequence[str] = ()) -> Table:
    """Return the rows of one page (`window`) of a query's result; all columns if `columns` is empty."""
    return relation.take(select(relation, query, window), columns)


def columns_of(relation: Relation, query: Query, *columns: str) -> Mapping[str, Any]:
    """Return the named columns of all rows that match the query, in the table's order."""
    return relation.read(*columns, where=condition(relation, query)).columns


def count(relation: Relation, query: Query) -> int:
    """Return the number of rows that match the query."""
    return relation.count(condition(relation, query)) if query.filtered else len(relation)


def matching(relation: Relation | Table, search: str, *more: str) -> Table:
    """Return the rows that match all query strings, sorted as the first one says; unchanged if all are empty."""
    if isinstance(relation, Table) and not any((search, *more)):
        return relation
    source = Relation.of(relation) if isinstance(relation, Table) else relation
    query = parse(search, source.schema)
    narrow = [condition(source, parse(part, source.schema)) for part in more]
    return source.take(source.numbers(_all([condition(source, query), *narrow]), order(source.schema, query)))


def row_of(relation: Relation, where: Mapping[str, str], columns: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the first row whose cells equal the texts in `where`, or None; all columns if `columns` is empty."""
    holds = _all([RowCondition(f"{quote_identifier(column)} = ?", (text,)) for column, text in where.items()])
    return next(relation.take(relation.numbers(holds, window=slice(0, 1)), columns).rows(), None)


def json_rows(document: Mapping[str, Any], pages: Iterable[Table]) -> Iterator[bytes]:
    """Yield a JSON document with its rows last, page by page, because an export may be larger than memory."""
    yield msgspec.json.encode(document).removesuffix(b"}") + b',"rows":['
    comma = b""
    for page in pages:
        rows = msgspec.json.encode(list(page.rows()))[1:-1]
        if rows:
            yield comma + rows
            comma = b","
    yield b"]}"


def span_of(relation: Relation, query: Query) -> tuple[float, float]:
    """Return the Unix times [since, until) that a query selects; a range such as `7d` ends at the newest row."""
    if query.back_seconds == ALWAYS[1]:
        return query.span
    (newest,) = relation.sums([f"max({quote_identifier(time_span.COLUMN)})"])
    return (query.span[0] if newest is None else max(query.span[0], newest - query.back_seconds)), query.span[1]


def facet(relation: Relation, query: Query, key: str) -> list[tuple[str, int]]:
    """Return (filter pattern, number of rows) for each value of a key, ignoring the query's conditions on that key."""
    return facets(relation, query, [key])[key]


def facets(relation: Relation, query: Query, keys: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
    """Return the counts of `facet` for each key; the keys without a condition are counted together in one read."""
    chosen = {condition.key for condition in query.conditions}
    readings: dict[str, list[str]] = {}
    for key in keys:
        readings.setdefault(key if key in chosen else "", []).append(key)
    counted: dict[str, list[tuple[str, int]]] = {}
    for own, together in readings.items():
        others = replace(query, conditions=tuple(c for c in query.conditions if c.key != own))
        where = condition(relation, others)
        columns = [(key, _columns(relation.schema, key)) for key in together]
        groups = relation.groups([names for _, names in columns if names], where)
        by_columns = dict(zip([names for _, names in columns if names], groups, strict=True))
        for key, names in columns:
            counts: Counter[str] = Counter()
            for texts, number in by_columns.get(names, Counter()).items():
                for word in {text or EMPTY for text in texts}:  # a row with one value in two columns counts once
                    counts[literal(word)] += number
            for pattern in (*query.values(key), *query.values(key, negated=True)):
                if pattern not in counts:
                    counts[pattern] = relation.count(where & _holds(relation.schema, key, (pattern,)))
            rank = {value: -index for index, value in enumerate(ORDERS.get(key, ()))}
            counted[key] = sorted(counts.items(), key=lambda pair: (rank.get(pair[0], 0), -pair[1], pair[0]))
    return counted


def _all(conditions: Sequence[RowCondition]) -> RowCondition:
    narrow = [condition for condition in conditions if condition is not EVERY_ROW]
    return _join_conditions(narrow, "AND") if narrow else EVERY_ROW


def _join_conditions(conditions: Sequence[RowCondition], word: str) -> RowCondition:
    """Join conditions by AND or OR without nesting them: a thousand nested ones would be too deep."""
    sql = f" {word} ".join(f"({condition.sql})" for condition in conditions)
    return RowCondition(sql, tuple(p for condition in conditions for p in condition.parameters))


def _columns(schema: Schema, key: str) -> tuple[str, ...]:
    texts = {c.name for c in schema.columns if c.kind is Kind.TEXT}
    return tuple(name for name in KEYS[key] if name in texts)


def _word(column: str) -> str:
    """Return the SQL expression of a text as it is filtered and sorted by, with EMPTY in place of ""."""
    return f"CASE WHEN {quote_identifier(column)} = '' THEN '{EMPTY}' ELSE {quote_identifier(column)} END"


def _holds(schema: Schema, key: str, values: Sequence[str]) -> RowCondition:
    """Return the condition that any column of a key matches one of these patterns."""
    if key == "row":
        # Rows whose key columns are exactly one of these paths.
        rows = []
        for value in values:
            path = [unquote_plus(part) for part in "".join(plain_parts(value)).split("/")]
            if len(path) == len(schema.key):
                rows.append(
                    _join_conditions(
                        [_equals(schema, c, text) for c, text in zip(schema.key, path, strict=True)], "AND"
                    )
                )
        return _join_conditions(rows, "OR") if rows else NO_ROW
    parts = [plain_parts(pattern) for pattern in values]
    texts = sorted({text for part in parts if len(part) == 1 for text in _cells_shown_as(part[0])})
    globs = "|".join(".*".join(map(_escape_regex, part)) for part in parts if len(part) > 1)
    alternatives = []
    for column in _columns(schema, key):
        if texts:
            alternatives.append(
                RowCondition(f"{quote_identifier(column)} IN ({', '.join('?' * len(texts))})", tuple(texts))
            )
        if globs:
            alternatives.append(RowCondition(f"regexp_full_match({_word(column)}, ?)", (f"(?s)(?:{globs})",)))
    return _join_conditions(alternatives, "OR") if alternatives else NO_ROW


def _cells_shown_as(word: str) -> tuple[str, ...]:
    """Return the cell texts that a filter word matches: EMPTY matches empty cells, "" matches none."""
    return ("", EMPTY) if word == EMPTY else (word,) if word else ()


def _escape_regex(text: str) -> str:
    """Return a regular expression for a literal text, with every sign that is not a letter or a digit escaped."""
    return re.sub(r"[^\w]", lambda sign: f"\\x{{{ord(sign[0]):x}}}", text)


def _equals(schema: Schema, column: str, text: str) -> RowCondition:
    """Return the condition that a key column has exactly this cell, a text or a whole number."""
    if not schema.column(column).kind.numeric:
        texts = _cells_shown_as(text or EMPTY)
        return RowCondition(f"{quote_identifier(column)} IN ({', '.join('?' * len(texts))})", texts)
    number = re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text)
    return RowCondition(f"coalesce(trunc({quote_identifier(column)}) = ?, false)", (float(text),)) if number else NO_ROW


def _name_contains(schema: Schema, word: str) -> RowCondition:
    """Return the condition that a text of the row's key contains a word; any text if the key has only numbers."""
    texts = [c.name for c in schema.columns if c.kind is Kind.TEXT]
    names = [name for name in schema.key if name in texts] or texts
    return _join_conditions([RowCondition(f"contains(lower({_word(name)}), ?)", (word,)) for name in names], "OR")


def _sort_keys(schema: Schema, column: str) -> list[str]:
    """Return the SQL expressions that order a column.

    A number is ordered by its value, a text by its rank (if it has one), its filter word and its cell.
    """
    cell = quote_identifier(column)
    if schema.column(column).kind.numeric:
        return [cell]
    ranks = "".join(f" WHEN '{word}' THEN {rank}" for rank, word in enumerate(ORDERS.get(column, ())))
    rank = [f"CASE {_word(column)}{ranks} ELSE {len(ORDERS.get(column, ()))} END"] if ranks else []
    return [*rank, _word(column), cell]
