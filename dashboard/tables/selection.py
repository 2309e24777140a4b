"""The rows that a person has selected in the list of recommendations, and what they come to together. Pure.

A selection is either named rows or all that the filters of the address show: the second is a filter, never a list of
keys, so that a hundred thousand rows are chosen by one word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt

from cotenant.core.model.changes.steps import Ready
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.views import RECOMMENDATIONS
from dashboard.changes import review
from dashboard.sources.source import Snapshot
from dashboard.tables import filters
from dashboard.tables.filters import FilterCondition, Index, Indexed, Query

NAMES: Final = ("namespace", "kind", "workload")
"""Columns that name a workload."""
READY: Final = tuple(ready.value for ready in Ready if ready.now)
"""Values of `ready` that something can be applied of now."""
MOST_ROWS: Final = 1_000
"""Rows that may be named; more are chosen by a filter."""
_NAMED: Final = ("ns", "kind", "workload")
ANY: Final = Query()
SURE: Final = 0.7
UNSURE: Final = 0.5
RISKS: Final = ("low", "medium", "high")
RISK_RULE: Final = (
    f"high: memory below the highest seen, or a confidence below {UNSURE:.0%} or unknown; medium: memory is lowered, "
    f"or a confidence below {SURE:.0%}; low: the rest"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Named rows (key columns, escaped, joined by slashes), or everything that the filters show."""

    rows: tuple[str, ...] = ()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.rows)


def selection(data: object) -> Selection:
    """Parse the browser's stored selection; anything unreadable selects nothing."""
    if not isinstance(data, Mapping):
        return Selection()
    rows = data.get("rows")
    row_names = tuple(str(row) for row in rows[:MOST_ROWS]) if isinstance(rows, list) else ()
    everything = data.get("all") is True
    return Selection(() if everything else row_names, everything)


def index(snapshot: Snapshot, query: Query, chosen: Selection) -> Index:
    """Row numbers of a selection; named rows that are gone are left out."""
    if chosen.everything:
        return snapshot.rows(RECOMMENDATIONS.name, query)
    if not chosen.rows:
        return np.empty(0, dtype=np.intp)
    exactly = FilterCondition("row", tuple(filters.literal(row) for row in chosen.rows))
    return filters.select(snapshot.tables[RECOMMENDATIONS.name], Query((exactly,), sort=query.sort))


def workloads(indexed: Indexed, rows: Index) -> list[WorkloadRef]:
    """The workloads of these rows, each once, in the order of the rows."""
    first = rows[first_of_each(indexed, rows)]
    columns = [[indexed.vocabulary[name][code] for code in indexed.codes[name][first]] for name in NAMES]
    return [WorkloadRef(*names) for names in zip(*columns, strict=True)]


def first_of_each(indexed: Indexed, rows: Index) -> Index:
    """Places in `rows` at which a workload is met for the first time, ascending."""
    _, first = np.unique(keys(indexed)[rows], return_index=True)
    return np.sort(first)


def keys(indexed: Indexed) -> npt.NDArray[np.int64]:
    """One number per row, the same for rows of one workload."""
    numbers = np.zeros(len(indexed), dtype=np.int64)
    for name in NAMES:
        numbers = numbers * len(indexed.vocabulary[name]) + indexed.codes[name]
    return numbers


@dataclass(frozen=True, slots=True)
class SelectionTotals:
    """Totals of rows: number, workloads, changes of requests over all replicas, money saved a month, rows by risk."""

    rows: int
    workloads: int
    millicores: float
    bytes: float
    monthly: float | None
    risks: Mapping[str, int]


def worth(indexed: Indexed, rows: Index) -> SelectionTotals:
    """Sums over the known cells."""
    columns: Mapping[str, Any] = indexed.table.columns
    saving = columns["saving_month"][rows]
    levels = risk(indexed, rows)
    return SelectionTotals(
        rows=len(rows),
        workloads=len(first_of_each(indexed, rows)),
        millicores=float(np.nansum(columns["cpu_delta_total"][rows])),
        bytes=float(np.nansum(columns["memory_delta_total"][rows])),
        monthly=float(np.nansum(saving)) if np.isfinite(saving).any() else None,
        risks={word: int((levels == level).sum()) for level, word in enumerate(RISKS)},
    )


def risk(indexed: Indexed, rows: Index) -> Index:
    """Place in RISKS of each row, by RISK_RULE; comparisons with a missing cell are false."""
    columns: Mapping[str, Any] = indexed.table.columns
    get = {
        name: columns[name][rows] for name in ("confidence", "memory_request", "memory_limit", "memory_observed_max")
    }
    with np.errstate(invalid="ignore"):
        highest, confidence = get["memory_observed_max"], get["confidence"]
        below = (get["memory_request"] < highest) | (get["memory_limit"] < highest)
        lowered = columns["memory_delta_total"][rows] < 0
        high = below | ~(confidence >= UNSURE)
        medium = lowered | (confidence < SURE)
    return np.where(high, 2, np.where(medium, 1, 0)).astype(np.intp)


@dataclass(frozen=True, slots=True)
class ReadyNow:
    """What passes the guardrails now: number of rows, and what their steps free over all replicas and save a month."""

    count: int
    millicores: float
    bytes: float
    monthly: float | None


def ready_now(snapshot: Snapshot, query: Query) -> ReadyNow:
    """Over the recommendations of a query; raised requests do not count against what others free."""
    columns: Mapping[str, Any] = snapshot.tables[RECOMMENDATIONS.name].table.columns
    rows = snapshot.rows(RECOMMENDATIONS.name, query)

    def freed(name: str) -> float:
        return float(np.maximum(0.0, -np.nan_to_num(columns[name][rows].astype(np.float64))).sum())

    saving = columns["saving_step"][rows].astype(np.float64)
    monthly = float(np.nansum(saving)) if np.isfinite(saving).any() else None
    return ReadyNow(len(rows), freed("cpu_step_total"), freed("memory_step_total"), monthly)


def worth_most(indexed: Indexed, count: int, query: Query = ANY) -> list[tuple[WorkloadRef, float]]:
    """The workloads that save most money a month by what is allowed now, and are not put off, the first ones first."""
    saved = np.nan_to_num(indexed.table.columns["saving_step"].astype(np.float64))
    shown = filters.select(indexed, query)
    shown = shown[saved[shown] > 0]
    if "postponed" in indexed.codes:
        empty = indexed.vocabulary["postponed"].index(filters.EMPTY)
        shown = shown[indexed.codes["postponed"][shown] == empty]
    first = shown[np.argsort(-saved[shown], kind="stable")][: 4 * count]  # several containers may be of one workload
    savings = []
    for ref in workloads(indexed, first)[:count]:
        texts = (ref.namespace, ref.kind, ref.name)
        exactly = [FilterCondition(k, (filters.literal(t),)) for k, t in zip(_NAMED, texts, strict=True)]
        savings.append((ref, float(saved[filters.select(indexed, Query(tuple(exactly)))].sum())))
    return sorted(savings, key=lambda pair: -pair[1])


def review_href(base: str, search: str, refs: list[WorkloadRef], chosen: Selection, most: int, **more: str) -> str:
    """Where the selection is reviewed: all that match by the filters, the others by name, at most `most` of them."""
    if chosen.everything:
        filter_query = review.filters_of(search)
        return f"{base}{review.PATH}?" + "&".join(filter(None, ("all=1", filter_query, urlencode(more))))
    return review.href(base, refs[:most], **more)
