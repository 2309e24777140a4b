r"""The filter grammar of pages, grids, REST API and commands: a query string, and its parsed form. Pure.

    ns=pay,shop&kind!=Job&workload=api-*&severity in (critical,warning)&reason=floor&q=check&sort=-cpu_delta_total

A row matches if it matches every key. The values of one key are alternatives, given by commas, by repeating the key or
as `key in (a,b)`; `!=` and `notin` exclude; `*` matches any characters and `\` makes the next character literal. `q`
searches names; `sort` names a column, descending with `-`; `since` and `until` limit the time of rows, and `range=7d`
limits it to the week up to the newest row. An empty cell (no QoS label, say) is written `none`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_plus, urlencode

import numpy as np

from cotenant.base.errors import UsageError
from cotenant.base.severity import Severity, Waste
from cotenant.base.table import Kind, Schema
from cotenant.base.tables import time_span
from cotenant.base.text import closest_name

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "row": (),
    "ns": ("namespace",),
    "kind": ("kind",),
    "workload": ("workload", "name"),
    "container": ("container",),
    "node": ("node",),
    "pod": ("pod",),
    "qos": ("qos",),
    "priority": ("priority",),
    "pattern": ("pattern",),
    "severity": ("severity",),
    "waste": ("waste",),
    "todo": ("todo",),
    "killed_first": ("killed_first",),
    "ready": ("ready",),
    "reason": ("cpu_reason", "memory_reason", "reason"),
    "strategy": ("strategy",),
    "profile": ("profile",),
    "restart": ("restart",),
    "finding": ("finding",),
    "band": ("band",),
    "resource": ("resource",),
    "scope": ("scope",),
    "model": ("model",),
    "postponed": ("postponed",),
    "lane": ("lane",),
    "mode": ("mode",),
    "knob": ("knob",),
    "state": ("state",),
    "verdict": ("verdict",),
    "method": ("method",),
    "by": ("actor", "last_actor", "by"),
    "batch": ("batch",),
    "change": ("change", "subject"),
    "overridden": ("overridden",),
    "event": ("event",),
    "cluster": ("cluster",),
    "quota": ("quota",),
    "gang": ("gang",),
    "tree": ("tree",),
    "load": ("load",),
    "decision": ("decision",),
    "phase": ("phase",),
}
"""Filter key -> columns of which any may match; a table knows those keys of which it has a column.

`row` names single rows by their key columns, escaped and joined by slashes: `row=pay/Deployment/checkout/app`.
"""

ALIASES: Final[Mapping[str, str]] = {"namespace": "ns"}
"""Other spellings of keys: the column's own name."""

RESERVED: Final = frozenset({"open", "offset", "limit", "format", "columns", "show", "from"})
"""Keys of the same query string that are no filters."""

EMPTY: Final = "none"
ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "severity": tuple(s.value for s in Severity),
    "waste": tuple(w.value for w in Waste),
}
"""Columns whose values have an order other than the alphabet's."""

SET: Final = re.compile(r"\s*(?P<key>[^\s=!(]+)\s+(?P<word>in|notin)\s*\((?P<values>.*)\)\s*", re.DOTALL)
"""A label selector's set: `key in (a,b)`."""
SPECIAL: Final = re.compile(r"[\\,*]")

ALWAYS: Final = (-np.inf, np.inf)

MOST_WORDS: Final = 32
MOST_STARS: Final = 256
MOST_VALUES: Final = 4_000
MOST_SORTS: Final = 16
MOST_PARTS: Final = 8_000
"""Most parts of one query: each is compared with every row, and a page must not take minutes."""


@dataclass(frozen=True, slots=True, order=True)
class FilterCondition:
    """A condition that a row meets if a column of `key` matches one of the patterns `values`; inverted if `negated`."""

    key: str
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A query on a table: conditions that must all match, a search text, columns to sort by, and a span of time."""

    conditions: tuple[FilterCondition, ...] = ()
    text: str = ""
    sort: tuple[tuple[str, bool], ...] = ()
    """Columns to sort by, the most important first: (name, True if descending)."""
    span: tuple[float, float] = ALWAYS
    """Times [since, until) of the column `time` that match, in Unix seconds."""
    back_seconds: float = np.inf
    """Seconds before the table's newest row from which rows match."""

    @property
    def filtered(self) -> bool:
        """True if the query can leave out rows."""
        return bool(self.conditions or self.text or self.span != ALWAYS or np.isfinite(self.back_seconds))

    def values(self, key: str, *, negated: bool = False) -> tuple[str, ...]:
        """Return the patterns that the query includes under a key, or with `negated` those that it excludes."""
        return next((c.values for c in self.conditions if (c.key, c.negated) == (key, negated)), ())


def keys_of(schema: Schema) -> tuple[str, ...]:
    """Return the filter keys that apply to a table of this schema."""
    names = {c.name for c in schema.columns}
    spans = (*time_span.KEYS, time_span.RANGE) if time_span.COLUMN in names else ()
    return (*(key for key, columns in KEYS.items() if not columns or names.intersection(columns)), *spans)


def names(search: str, key: str) -> bool:
    """Return whether a query string has a condition on this key."""
    return any(name == key for name, _, _ in _parts(search))


def columns(search: str, schema: Schema) -> tuple[str, ...]:
    """Return the columns to show that a query string lists (`columns=a,b`), each once; empty if it lists none."""
    lists = (value.split(",") for key, value, _ in _parts(search) if key == "columns")
    names = dict.fromkeys(name for names in lists for name in names if name)
    for name in names:
        _require(name, [c.name for c in schema.columns], f"{schema.name}: no column")
    return tuple(names)


def literal(text: str) -> str:
    """Return the pattern that matches exactly this text."""
    return SPECIAL.sub(lambda special: "\\" + special[0], text)


def exact(pattern: str) -> str | None:
    """Return the one text that a pattern without a star matches, or None for a pattern with a star."""
    first, *others = plain_parts(pattern)
    return None if others else first


def patterns(text: str) -> tuple[str, ...]:
    """Split a comma list into patterns in canonical form: a backslash only before characters that need it."""
    pieces = [""]
    for part in _tokens(text):
        if part == ",":
            pieces.append("")
        else:
            pieces[-1] += "*" if part == "*" else literal(part[-1])
    return tuple(pieces)


def _tokens(pattern: str) -> list[str]:
    """Split a pattern into characters; a backslash stays together with the character that it makes literal."""
    return re.findall(r"\\.|.", pattern, re.DOTALL)


def plain_parts(pattern: str) -> list[str]:
    """Return the texts between the stars of a pattern; a pattern without a star is one text."""
    parts = [""]
    for part in _tokens(pattern):
        if part == "*":
            parts.append("")
        else:
            parts[-1] += part[-1]
    return parts


def word_test(values: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate that is true for words that match any of these patterns."""
    parts = [plain_parts(pattern) for pattern in values]
    exact, globs = frozenset(p[0] for p in parts if len(p) == 1), [p for p in parts if len(p) > 1]
    return lambda word: word in exact or any(_fits(word, p) for p in globs)


def _fits(word: str, parts: Sequence[str]) -> bool:
    """Return whether a word consists of these texts in order, with any characters between them.

    The time is linear in the word, whatever the pattern.
    """
    first, *middle, last = parts
    end = len(word) - len(last)
    if not (word.startswith(first) and word.endswith(last) and len(first) <= end):
        return False
    at = len(first)
    for part in middle:
        position = word.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return True


def query_parts(search: str) -> list[str]:
    """Split a query string at "&" into its parts, without decoding them."""
    return [part for part in search.lstrip("?").split("&") if part]


def _parts(search: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (key, value, negated) of each part of a query string; the value of a set is its comma list."""
    return map(read, query_parts(search))


def read(part: str) -> tuple[str, str, bool]:
    """Return (key, value, negated) of one part of a query string."""
    before, equals, after = part.partition("=")
    key, value = unquote_plus(before), unquote_plus(after.removeprefix("="))
    as_set = SET.fullmatch(key) if not value else None
    if as_set:
        listed = ",".join(piece.strip() for piece in as_set["values"].split(","))
        return ALIASES.get(as_set["key"], as_set["key"]), listed, as_set["word"] == "notin"
    name = key.removesuffix("!").strip() if equals else key
    return ALIASES.get(name, name), value, key.endswith("!")


def parse(search: str, schema: Schema) -> Query:
    """Parse a query string, with or without "?"; raise UsageError with the nearest name for an unknown key or column.

    If a column occurs twice in `sort`, the first occurrence counts.
    """
    keys = keys_of(schema)
    values: dict[tuple[str, bool], set[str]] = {}
    sort: dict[str, bool] = {}
    query = Query()
    _require_few(f"{schema.name}: the query has {{}} parts", search.count("&"), MOST_PARTS)
    for key, value, negated in _parts(search):
        if key in RESERVED and not negated:
            continue
        if key == "q" and not negated:
            query = replace(query, text=value.strip())
        elif key == "sort" and not negated:
            column = value.removeprefix("-")
            sortable = [c.name for c in schema.columns if c.kind is not Kind.LIST]
            _require(column, sortable, f"{schema.name}: cannot sort by")
            sort.setdefault(column, value.startswith("-"))
        else:
            _require(key, keys, f"{schema.name}: unknown filter")
            moment = "!" * negated + value  # times are not excluded: "!7d" is refused as no range
            if key in time_span.KEYS:
                span = query.span
                at = time_span.seconds(moment)
                query = replace(
                    query, span=(max(span[0], at), span[1]) if key == "since" else (span[0], min(span[1], at))
                )
                continue
            if key == time_span.RANGE:
                if not (back_seconds := time_span.range_seconds(moment)):
                    raise UsageError(
                        f"{schema.name}: no row is in the future; range={moment} shows none.", fix="Write range=24h."
                    )
                query = replace(query, back_seconds=min(query.back_seconds, back_seconds))
                continue
            alternatives = patterns(value)
            for word in map(exact, alternatives if key in ORDERS else ()):
                _require(word or EMPTY, (*ORDERS[key], EMPTY), f"{schema.name}: unknown {key}")
            values.setdefault((key, negated), set()).update(alternatives)
    conditions = (FilterCondition(k, tuple(sorted(v)), negated) for (k, negated), v in values.items())
    return _require_small_query(replace(query, conditions=tuple(sorted(conditions)), sort=tuple(sort.items())), schema)


def _require_small_query(query: Query, schema: Schema) -> Query:
    """Return the query; raise UsageError if it is too large to evaluate or contains half a character (a surrogate)."""
    values = [value for condition in query.conditions for value in condition.values]
    _require_few(f"{schema.name}: the query sorts by {{}} columns", len(query.sort), MOST_SORTS)
    sizes = {
        "words in q": (len(query.text.replace("/", " ").split()), MOST_WORDS),
        "stars": (sum(len(plain_parts(value)) - 1 for value in values), MOST_STARS),
        "values": (len(values), MOST_VALUES),
    }
    for what, (size, most) in sizes.items():
        _require_few(f"{schema.name}: the filter has {{}} {what}", size, most)
    for text in (query.text, *values):
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            raise UsageError(f"{schema.name}: {text!r} is not valid UTF-8 text.", fix="Write valid UTF-8.")
    return query


def _require_few(complaint: str, size: int, most: int) -> None:
    """Raise UsageError if `size` exceeds `most`; the size is filled into the message `complaint`."""
    if size > most:
        what = f"{complaint.format(f'{size:,}')}; at most {most:,} are allowed."
        raise UsageError(what, fix="Remove parts of the query that have no effect, or split it.")


def _require(word: str, allowed: Iterable[str], complaint: str) -> None:
    options = list(allowed)
    if word in options:
        return
    near = closest_name(word, options)
    fix = f"Did you mean {near}?" if near else f"Known: {', '.join(options)}."
    raise UsageError(f"{complaint} {word!r}.", fix=fix)


def encode(query: Query) -> str:
    """Return the canonical query string of a query; `parse` returns the query again."""
    pairs = [(c.key + ("!" if c.negated else ""), v) for c in query.conditions for v in c.values]
    pairs += [("q", query.text)] if query.text else []
    pairs += [(key, time_span.words(at)) for key, at in zip(time_span.KEYS, query.span, strict=True) if np.isfinite(at)]
    pairs += [(time_span.RANGE, time_span.range_text(query.back_seconds))] if np.isfinite(query.back_seconds) else []
    pairs += [("sort", ("-" if descending else "") + column) for column, descending in query.sort]
    return urlencode(pairs, safe="!")


def toggle_pattern(query: Query, key: str, value: str, *, negated: bool = False) -> Query:
    """Return the query with one pattern switched on or off; a pattern is never both included and excluded."""
    selected = value in query.values(key, negated=negated)
    chosen = {(c.key, c.negated): {v for v in c.values if (c.key, v) != (key, value)} for c in query.conditions}
    if not selected:
        chosen.setdefault((key, negated), set()).add(value)
    conditions = (FilterCondition(k, tuple(sorted(v)), n) for (k, n), v in chosen.items() if v)
    return replace(query, conditions=tuple(sorted(conditions)))


def clear_filters(query: Query) -> Query:
    """Return a query with the same order and no filter."""
    return Query(sort=query.sort)
