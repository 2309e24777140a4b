"""Parts of the query string that links keep from page to page: namespaces, range, kind, workload, search text. Pure.

The top bar writes `ns` and `range` there, in the grammar of every filter; a table without such a column ignores them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.table import Schema
from cotenant.base.tables import filters, time_span
from cotenant.base.tables.filters import Query
from cotenant.recommender.model.views import WORKLOADS

WORKLOAD_PATH: Final = "workload"
KEYS: Final = ("ns", "kind", "workload", time_span.RANGE)
"""Query parameters that links to other pages keep, although they do not apply to every table."""
OF_CHARTS: Final = (time_span.WHOLE, time_span.AHEAD)
"""Ranges that leave out no row of a table."""


def carried_parts(search: str, *keys: str) -> str:
    """Return the part of the query string with these keys; without `keys`, with the keys that every link keeps."""
    chosen = keys or (*KEYS, "q")
    parts = map(filters.read, filters.query_parts(search))
    pairs = [(k + "!" * negated, v) for k, v, negated in parts if k in chosen and (k != "q" or not negated)]
    return urlencode(pairs, safe="!", errors="replace")


def idle_parts(search: str, schema: Schema) -> tuple[str, ...]:
    """Return those parts of the query string, unchanged, that links keep but that do not apply to this table."""
    understood, idle = filters.keys_of(schema), []
    for part in filters.query_parts(search):
        key, value, _ = filters.read(part)
        if key in KEYS and (key not in understood or (key == time_span.RANGE and value in OF_CHARTS)):
            idle.append(part)
    return tuple(idle)


def about(search: str, schema: Schema) -> str:
    """Return the query string without parts that do not apply to this table, which `filters.parse` would refuse."""
    resting = frozenset(idle_parts(search, schema))
    return "&".join(part for part in filters.query_parts(search) if part not in resting)


def join_queries(*searches: str) -> str:
    """Join several query strings into one."""
    return "&".join(filter(None, (search.lstrip("?") for search in searches)))


def namespace_query(search: str) -> Query:
    """Return a query with only the namespaces in the URL, for any table with a namespace column."""
    return filters.parse(carried_parts(search, "ns"), WORKLOADS)


def admits(search: str) -> Callable[[str], bool]:
    """Return a function that says whether the URL's namespaces include a name, for data outside of tables."""
    tests = [
        (filters.word_test(condition.values), condition.negated) for condition in namespace_query(search).conditions
    ]
    return lambda name: all(test(name) != negated for test, negated in tests)


def range_of(search: str) -> str:
    """Return the time range in the URL, "" if there is none; an excluded one begins with "!", so that it is invalid."""
    parts = map(filters.read, filters.query_parts(search))
    return next(("!" * negated + value for key, value, negated in parts if key == time_span.RANGE), "")


def back_seconds(search: str, usual_seconds: float) -> float:
    """Return how many seconds back charts reach, from the URL; `usual_seconds` without a valid range."""
    try:
        return time_span.range_seconds(range_of(search)) if range_of(search) else usual_seconds
    except UsageError:
        return usual_seconds


def workload_address(base: str, ref: WorkloadRef, search: str = "", origin: str = "workloads") -> str:
    """Return the address of a workload's page that links back to `origin` under the same filters."""
    parts = [*filter_parts(search), *([f"from={origin}"] if origin != "workloads" else [])]
    name = "/".join(quote(part, safe="") for part in (ref.namespace, ref.kind, ref.name))
    return f"{base}{WORKLOAD_PATH}/{name}" + ("?" + "&".join(parts) if parts else "")


def filter_parts(search: str) -> list[str]:
    """Return the parts of the query string, unchanged, except those that only a workload's page reads."""
    parts = search.lstrip("?").split("&")
    return [part for part in parts if part and part.partition("=")[0] not in ("from", "show")]
