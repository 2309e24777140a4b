"""The rows that a person has selected in the list of recommendations, and their totals. Pure.

A selection is either named rows or all that match the URL's filters: the second is a filter, never a list of keys, so
that a hundred thousand rows can be selected at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.identity import WorkloadRef
from cotenant.base.tables import filters, queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.base.tables.queries import Relation, RowCondition
from cotenant.recommender.model.list_totals import in_sight, savings_of_rows
from cotenant.recommender.model.recommendation import SURE, UNSURE
from cotenant.recommender.model.savings import Savings, When

NAMES: Final = ("namespace", "kind", "workload")
"""Columns that name a workload."""
MOST_ROWS: Final = 1_000
"""Most rows that a selection may name; more are chosen by a filter."""
ANY: Final = Query()
RISKS: Final = ("low", "medium", "high")
RISK_RULE: Final = (
    "high: memory below the highest seen, or confidence low or unknown; medium: memory is lowered, or confidence "
    "medium; low: all other rows"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected rows (escaped key columns joined by slashes), or all rows of the URL's filters if `everything`."""

    rows: tuple[str, ...] = ()
    everything: bool = False
    choice: int = 0
    """The browser's number of this selection; the browser ignores what was drawn for a selection of an older number."""

    def __bool__(self) -> bool:
        return self.everything or bool(self.rows)


def selection(data: object) -> Selection:
    """Parse the browser's stored selection; anything unreadable selects nothing."""
    if not isinstance(data, Mapping):
        return Selection()
    rows = data.get("rows")
    row_names = tuple(str(row) for row in rows[:MOST_ROWS]) if isinstance(rows, list) else ()
    everything = data.get("all") is True
    choice = data.get("choice")
    return Selection(() if everything else row_names, everything, choice if isinstance(choice, int) else 0)


def chosen_rows(query: Query, chosen: Selection) -> Query | None:
    """Return the query of the selected rows that still exist; None if nothing is selected."""
    if chosen.everything:
        return query
    exactly = FilterCondition("row", tuple(filters.literal(row) for row in chosen.rows))
    return Query((exactly,), sort=query.sort) if chosen.rows else None


def workloads(advice: Relation, query: Query | None, window: slice = queries.ALL_ROWS) -> list[WorkloadRef]:
    """Return the distinct workloads of a query's rows, or of a slice of them, in the order of the rows."""
    if query is None:
        return []
    columns = queries.page(advice, query, window, columns=NAMES).columns
    return [WorkloadRef(*names) for names in dict.fromkeys(zip(*(columns[name] for name in NAMES), strict=True))]


@dataclass(frozen=True, slots=True)
class SelectionTotals:
    """Number of selected rows and of their workloads, savings after all steps, and number of rows by risk."""

    rows: int
    workloads: int
    all_steps: Savings
    risks: Mapping[str, int]


_HIGH: Final = (
    f"(coalesce(memory_request < memory_observed_max OR memory_limit < memory_observed_max, false)"
    f" OR NOT coalesce(confidence >= {UNSURE}, false))"
)
_MEDIUM: Final = f"coalesce(memory_delta_total < 0 OR confidence < {SURE}, false)"
_TOTALS: Final = (
    "count(*)",
    "count(DISTINCT (namespace, kind, workload))",
    f"count_if({_HIGH})",
    f"count_if(NOT {_HIGH} AND {_MEDIUM})",
)


def sum_selection(advice: Relation, query: Query) -> SelectionTotals:
    """Return the totals of a query's rows; a missing cell counts as 0 and meets no condition of RISK_RULE."""
    where = queries.condition(advice, query)
    rows, names, high, medium = advice.sums(_TOTALS, where)
    risks = dict(zip(RISKS, (rows - high - medium, medium, high), strict=True))
    return SelectionTotals(rows, names, savings_of_rows(advice, where, When.ALL_STEPS), risks)


def worth_most(advice: Relation, count: int, query: Query = ANY) -> list[tuple[WorkloadRef, float]]:
    """Return the `count` workloads whose allowed steps save most money a month, largest first, without hidden ones."""
    where = queries.condition(advice, query) & RowCondition("saving_step > 0") & in_sight(advice)
    # several containers may be of one workload
    first = advice.take(advice.numbers(where, ("saving_step DESC",), slice(0, 4 * count)), NAMES).columns
    refs = list(dict.fromkeys(zip(*(map(str, first[name]) for name in NAMES), strict=True)))[:count]
    which, numbers = advice.located(NAMES, refs)
    saved = np.nan_to_num(advice.take(numbers, ["saving_step"]).columns["saving_step"])
    savings = np.bincount(which, weights=saved, minlength=len(refs))
    pairs = [(WorkloadRef(*names), float(sum_)) for names, sum_ in zip(refs, savings, strict=True)]
    return sorted(pairs, key=lambda pair: -pair[1])
