"""The one filter grammar of pages, grids and API: a query string, and what it selects from a table. Pure.

    ns=pay&ns=shop&kind!=Job&severity=critical&reason=floor&q=check&sort=-cpu_delta_total

A key may come several times (any of the values); `!=` excludes; `q` searches names; `sort` names a column, `-` is
descending. Different keys must all hold. An empty cell (no QoS label, say) is written `none`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, urlencode

import numpy as np
import numpy.typing as npt

from cotenant.model.errors import UsageError
from cotenant.model.recommendation import Severity
from cotenant.model.table import Kind, Schema, Table

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "ns": ("namespace",),
    "kind": ("kind",),
    "workload": ("workload",),
    "container": ("container",),
    "node": ("node",),
    "qos": ("qos",),
    "priority": ("priority",),
    "pattern": ("pattern",),
    "severity": ("severity",),
    "reason": ("cpu_reason", "memory_reason", "reason"),
    "strategy": ("strategy",),
}
"""Filter key -> columns of which any may match; a table knows those keys of which it has a column."""

CARRIED: Final = ("ns", "kind", "workload")
"""Keys that stay when a person walks to another page."""

RESERVED: Final = frozenset({"open", "offset", "limit", "format"})
"""Keys of the same query string that are no filters."""

EMPTY: Final = "none"
ORDERS: Final[Mapping[str, tuple[str, ...]]] = {"severity": tuple(s.value for s in Severity)}
"""Columns whose values have an order other than the alphabet's."""

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """Rows where any column of `key` has one of `values`; the others when `negated`."""

    key: str
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What to show: conditions that must all hold, a search text, and columns to sort by."""

    conditions: tuple[Condition, ...] = ()
    text: str = ""
    sort: tuple[tuple[str, bool], ...] = ()
    """(column, descending), the first decides."""

    @property
    def filtered(self) -> bool:
        """Whether anything is left out."""
        return bool(self.conditions or self.text)

    def values(self, key: str, *, negated: bool = False) -> tuple[str, ...]:
        """Values asked for (or excluded) under a key."""
        return next((c.values for c in self.conditions if (c.key, c.negated) == (key, negated)), ())


def keys_of(schema: Schema) -> tuple[str, ...]:
    """Filter keys that a table understands."""
    names = {c.name for c in schema.columns}
    return tuple(key for key, columns in KEYS.items() if names.intersection(columns))


def parse(search: str, schema: Schema) -> Query:
    """Read a query string (with or without "?"); UsageError names an unknown key or column and the nearest one."""
    known = keys_of(schema)
    values: dict[tuple[str, bool], list[str]] = {}
    query = Query()
    for raw, value in parse_qsl(search.lstrip("?"), keep_blank_values=True):
        key, negated = raw.removesuffix("!"), raw.endswith("!")
        if raw in RESERVED:
            continue
        if raw == "q":
            query = replace(query, text=value.strip())
        elif raw == "sort":
            query = replace(query, sort=(*query.sort, _sort(value, schema)))
        else:
            _require(key, known, f"{schema.name}: unknown filter")
            values.setdefault((key, negated), []).append(value)
    conditions = (Condition(k, tuple(sorted(set(v))), negated) for (k, negated), v in values.items())
    return replace(query, conditions=tuple(sorted(conditions)))


def _sort(value: str, schema: Schema) -> tuple[str, bool]:
    column = value.removeprefix("-")
    _require(column, [c.name for c in schema.columns if c.kind is not Kind.LIST], f"{schema.name}: cannot sort by")
    return column, value.startswith("-")


def _require(word: str, known: Iterable[str], complaint: str) -> None:
    options = list(known)
    if word in options:
        return
    near = difflib.get_close_matches(word, options, n=1)
    fix = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(options)}."
    raise UsageError(f"{complaint} {word!r}.", fix=fix)


def encode(query: Query) -> str:
    """Canonical query string of a query; `parse` reads it back."""
    pairs = [(c.key + ("!" if c.negated else ""), v) for c in query.conditions for v in c.values]
    pairs += [("q", query.text)] if query.text else []
    pairs += [("sort", ("-" if descending else "") + column) for column, descending in query.sort]
    return urlencode(pairs, safe="!")


def toggled(query: Query, key: str, value: str, *, negated: bool = False) -> Query:
    """The query with one value of a facet switched; a value is never both asked for and excluded."""
    held = value in query.values(key, negated=negated)
    chosen = {(c.key, c.negated): {v for v in c.values if (c.key, v) != (key, value)} for c in query.conditions}
    if not held:
        chosen.setdefault((key, negated), set()).add(value)
    conditions = (Condition(k, tuple(sorted(v)), n) for (k, n), v in chosen.items() if v)
    return replace(query, conditions=tuple(sorted(conditions)))


def cleared(query: Query) -> Query:
    """The same order, nothing left out."""
    return Query(sort=query.sort)


def carried(search: str) -> str:
    """The part of a query string that makes sense on every page: namespace, kind, workload and search text."""
    pairs = [(k, v) for k, v in parse_qsl(search.lstrip("?")) if k.removesuffix("!") in CARRIED or k == "q"]
    return urlencode(pairs, safe="!")


@dataclass(frozen=True, slots=True, eq=False)
class Indexed:
    """A table made ready for many queries: text cells as codes into a sorted vocabulary."""

    table: Table
    vocabulary: Mapping[str, tuple[str, ...]]
    codes: Mapping[str, npt.NDArray[np.int32]]

    @classmethod
    def of(cls, table: Table) -> Indexed:
        """Index a table; O(rows log rows) once."""
        text = [c.name for c in table.schema.columns if c.kind is Kind.TEXT]
        pairs = {name: _encode_column(name, table.columns[name]) for name in text}
        return cls(table, {n: p[0] for n, p in pairs.items()}, {n: p[1] for n, p in pairs.items()})


def _encode_column(name: str, cells: npt.NDArray[np.object_]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Sorted distinct values (empty = EMPTY) and each cell's position among them."""
    words = [str(c) or EMPTY for c in cells]
    order = ORDERS.get(name, ())
    vocabulary = sorted(set(words), key=lambda w: (order.index(w) if w in order else len(order), w))
    place = {w: i for i, w in enumerate(vocabulary)}
    return tuple(vocabulary), np.fromiter((place[w] for w in words), dtype=np.int32, count=len(words))


def select(indexed: Indexed, query: Query) -> Index:
    """Row numbers that the query shows, in its order; rows that compare equal keep the table's order."""
    rows = np.flatnonzero(_mask(indexed, query.conditions, query.text))
    for column, descending in reversed(query.sort):
        rows = rows[np.argsort(_sort_key(indexed, column, descending)[rows], kind="stable")]
    return rows


def facet(indexed: Indexed, query: Query, key: str) -> list[tuple[str, int]]:
    """(value, rows) of one key under all the other conditions, most frequent first; chosen values stay though empty."""
    others = tuple(c for c in query.conditions if c.key != key)
    counts = _count(indexed, key, _mask(indexed, others, query.text))
    chosen = {*query.values(key), *query.values(key, negated=True)}
    shown = {value for value, n in counts.items() if n} | chosen
    rank = {value: -place for place, value in enumerate(ORDERS.get(key, ()))}
    return sorted(((v, counts.get(v, 0)) for v in shown), key=lambda pair: (rank.get(pair[0], 0), -pair[1], pair[0]))


def _count(indexed: Indexed, key: str, mask: npt.NDArray[np.bool_]) -> dict[str, int]:
    """Rows under the mask per value of a key; a row with one value in two columns counts once."""
    columns = _columns(indexed, key)
    if len(columns) == 1:
        words = indexed.vocabulary[columns[0]]
        return dict(
            zip(words, np.bincount(indexed.codes[columns[0]][mask], minlength=len(words)).tolist(), strict=True)
        )
    words = tuple({v for column in columns for v in indexed.vocabulary[column]})
    return {value: int((_holds(indexed, key, (value,)) & mask).sum()) for value in words}


def _mask(indexed: Indexed, conditions: Iterable[Condition], text: str) -> npt.NDArray[np.bool_]:
    mask = np.ones(len(indexed.table), dtype=bool)
    for condition in conditions:
        mask &= _holds(indexed, condition.key, condition.values) ^ condition.negated
    for word in text.lower().replace("/", " ").split():
        mask &= _named(indexed, word)
    return mask


def _named(indexed: Indexed, word: str) -> npt.NDArray[np.bool_]:
    """Rows of which some part of the name contains a word."""
    mask = np.zeros(len(indexed.table), dtype=bool)
    for column in indexed.table.schema.key:
        hit = np.array([word in name.lower() for name in indexed.vocabulary[column]], dtype=bool)
        mask |= hit[indexed.codes[column]]
    return mask


def _holds(indexed: Indexed, key: str, values: Iterable[str]) -> npt.NDArray[np.bool_]:
    wanted = frozenset(values)
    mask = np.zeros(len(indexed.table), dtype=bool)
    for column in _columns(indexed, key):
        hit = np.array([word in wanted for word in indexed.vocabulary[column]], dtype=bool)
        mask |= hit[indexed.codes[column]]
    return mask


def _columns(indexed: Indexed, key: str) -> list[str]:
    return [c for c in KEYS[key] if c in indexed.codes]


def _sort_key(indexed: Indexed, column: str, descending: bool) -> npt.NDArray[np.float64]:
    """Ascending key of a column; missing numbers come last in both directions."""
    if column in indexed.codes:
        codes = indexed.codes[column].astype(np.float64)
        return -codes if descending else codes
    cells = np.asarray(indexed.table.columns[column], dtype=np.float64)
    return np.where(np.isnan(cells), np.inf, -cells if descending else cells)
