"""What of an address goes along from page to page: namespaces, the time range, kind, workload and search text. Pure.

The top bar writes `ns` and `range` there, in the grammar of every filter; a table without such a column leaves them be.
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
"""Carried though not every table has rows that they say anything about."""
OF_CHARTS: Final = (time_span.WHOLE, time_span.AHEAD)
"""Ranges that leave out no row of a table."""


def carried_parts(search: str, *keys: str) -> str:
    """The parts of these keys, of all that are carried where none is named."""
    chosen = keys or (*KEYS, "q")
    parts = map(filters.read, filters.query_parts(search))
    pairs = [(k + "!" * negated, v) for k, v, negated in parts if k in chosen and (k != "q" or not negated)]
    return urlencode(pairs, safe="!", errors="replace")


def idle_parts(search: str, schema: Schema) -> tuple[str, ...]:
    """Carried parts, as they are written, that say nothing about this table."""
    understood, idle = filters.keys_of(schema), []
    for part in filters.query_parts(search):
        key, value, _ = filters.read(part)
        if key in KEYS and (key not in understood or (key == time_span.RANGE and value in OF_CHARTS)):
            idle.append(part)
    return tuple(idle)


def about(search: str, schema: Schema) -> str:
    """The query string without what is idle here: what `filters.parse` reads strictly."""
    resting = frozenset(idle_parts(search, schema))
    return "&".join(part for part in filters.query_parts(search) if part not in resting)


def join_queries(*searches: str) -> str:
    """One query string of several."""
    return "&".join(filter(None, (search.lstrip("?") for search in searches)))


def namespace_query(search: str) -> Query:
    """The address's namespaces alone, for any table with a column of them."""
    return filters.parse(carried_parts(search, "ns"), WORKLOADS)


def admits(search: str) -> Callable[[str], bool]:
    """Return a test of whether the address's namespaces include a name, for data outside of tables."""
    tests = [
        (filters.word_test(condition.values), condition.negated) for condition in namespace_query(search).conditions
    ]
    return lambda name: all(test(name) != negated for test, negated in tests)


def range_of(search: str) -> str:
    """The range as the address has it; "" where it names none, "!7d" where it excludes one, which is no range."""
    parts = map(filters.read, filters.query_parts(search))
    return next(("!" * negated + value for key, value, negated in parts if key == time_span.RANGE), "")


def back_seconds(search: str, usual_seconds: float) -> float:
    """Return how far back charts reach by the address, seconds; `usual_seconds` where it has no readable range."""
    try:
        return time_span.range_seconds(range_of(search)) if range_of(search) else usual_seconds
    except UsageError:
        return usual_seconds


def workload_address(base: str, ref: WorkloadRef, search: str = "", origin: str = "workloads") -> str:
    """Address of a workload's page that leads back to `origin` under the same filters."""
    parts = [*filter_parts(search), *([f"from={origin}"] if origin != "workloads" else [])]
    name = "/".join(quote(part, safe="") for part in (ref.namespace, ref.kind, ref.name))
    return f"{base}{WORKLOAD_PATH}/{name}" + ("?" + "&".join(parts) if parts else "")


def filter_parts(search: str) -> list[str]:
    """The query string's parts, as they are written, without those that only a workload's page reads."""
    parts = search.lstrip("?").split("&")
    return [part for part in parts if part and part.partition("=")[0] not in ("from", "show")]
