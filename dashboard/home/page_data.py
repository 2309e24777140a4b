"""The data from which Home is drawn under an address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from cotenant.base.tables import filters, queries
from cotenant.base.tables.filters import FilterCondition, Query
from cotenant.base.tables.queries import Relation
from cotenant.changes.model.ledger_marks import HIDDEN
from cotenant.dashboard.frame import carried
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources.namespace_filter import OF_THESE, overview_of
from cotenant.dashboard.sources.source import AnswerT, Snapshot
from cotenant.recommender.colocation.model.batch_totals import usage_of_batch_pods
from cotenant.recommender.model import list_totals
from cotenant.recommender.model.list_totals import POSTPONED, FullestNode, ReadyCounts, TodoCounts, Unassessed
from cotenant.recommender.model.savings import PlannedSavings
from cotenant.recommender.model.todo import ORDERS, TodoList
from cotenant.recommender.model.views import NODES, PODS, RECOMMENDATIONS, Overview

OF_CHOSEN: Final = "of the chosen namespaces"


@dataclass(frozen=True)
class OverviewPage:
    """The results of one moment, narrowed to the address's namespaces; what is asked of a table is asked once."""

    view: View
    search: str
    snapshot: Snapshot
    overview: Overview
    """Whose counts and sums are of the chosen namespaces; nodes, capacity and curves are of the whole cluster."""
    query: Query
    """The chosen namespaces, for any table that has a column of them."""

    def href(self, page: str, query: str = "") -> str:
        """An address of another page under the same choices; a namespace of the query stands for those chosen here."""
        kept = ("range",) if query.startswith("ns=") else ("ns", "range")
        search = carried.join_queries(query, carried.carried_parts(self.search, *kept))
        return f"{self.view.settings.base_path}{page}" + (f"?{search}" if search else "")

    def list_query(self, todo: TodoList) -> Query:
        """The query of one of the two lists of what there is to do."""
        conditions = tuple(sorted((*self.query.conditions, FilterCondition("todo", (todo.value,)))))
        return replace(self.query, conditions=conditions)

    def first_of(self, todo: TodoList) -> str:
        """The workload of the first row of a list in its own order, namespace/name; "" where it is empty."""
        schema = self.advice.schema
        hidden = [HIDDEN] if POSTPONED in filters.keys_of(schema) else []
        own = filters.parse("&".join([f"todo={todo}", *hidden, *(f"sort={column}" for column in ORDERS[todo])]), schema)
        asked = replace(own, conditions=tuple(sorted((*self.query.conditions, *own.conditions))))
        page = queries.page(self.advice, asked, slice(0, 1), ("namespace", "workload"))
        row = next(page.rows(), None)
        return "" if row is None else f"{row['namespace']}/{row['workload']}"

    @property
    def advice(self) -> Relation:
        """The table of recommendations."""
        return self.snapshot.tables[RECOMMENDATIONS.name]

    def counts(self, table: str, key: str) -> dict[str, int]:
        """Number of rows of a table by the words of a column, the most frequent first."""
        return dict(self.snapshot.facets(table, self.query, (key,))[key])

    @cached_property
    def todo(self) -> TodoCounts:
        """Containers at risk, and those of which only requests fall."""
        return self._kept("todo", lambda: list_totals.todo_counts(self.advice, self.query))

    @cached_property
    def severities(self) -> Counter[str]:
        """Containers at risk by severity."""
        raises = self.list_query(TodoList.RAISE)
        return self._kept("severities", lambda: list_totals.severity_counts(self.advice, raises))

    @cached_property
    def all_severities(self) -> Counter[str]:
        """Containers by severity."""
        return self._kept("all severities", lambda: list_totals.severity_counts(self.advice, self.query))

    @cached_property
    def reasons(self) -> Counter[str]:
        """Containers by the reasons that their CPU and memory carry."""
        return self._kept("reasons", lambda: list_totals.reason_counts(self.advice, self.query))

    @cached_property
    def above_request(self) -> int:
        """Containers that used more memory than they request."""
        return self._kept("above request", lambda: list_totals.above_request_count(self.advice, self.query))

    @cached_property
    def unassessed_counts(self) -> Unassessed:
        """Containers about which the counts of risk and waste say nothing."""
        return self._kept("unassessed", lambda: list_totals.unassessed_counts(self.advice, self.query))

    @cached_property
    def fullest_node(self) -> FullestNode:
        """The node of the cluster of which most is requested."""
        return self._kept("fullest node", lambda: list_totals.fullest_node(self.snapshot.tables[NODES.name]))

    @cached_property
    def cuts(self) -> PlannedSavings:
        """The savings of the list of cuts, now and after all steps."""
        return self._kept("cuts", lambda: list_totals.planned_savings(self.advice, self.list_query(TodoList.CUT)))

    @cached_property
    def ready(self) -> ReadyCounts:
        """Recommendations of which the guardrails allow a step now."""
        return self._kept("ready", lambda: list_totals.ready_counts(self.advice, self.query))

    @cached_property
    def ready_savings(self) -> PlannedSavings:
        """The savings and raises of the recommendations that `ready` counts, now and after all steps."""
        conditions = tuple(sorted((*self.query.conditions, list_totals.CAN_BE_APPLIED)))
        ready = replace(self.query, conditions=conditions)
        return self._kept("planned", lambda: list_totals.planned_savings(self.advice, ready))

    @cached_property
    def batch_use(self) -> tuple[list[float | None], int]:
        """Present usage of batch pods, each resource in its unit, and how many they are."""
        return self._kept("batch use", lambda: usage_of_batch_pods(self.snapshot.tables[PODS.name]))

    def _kept(self, what: str, ask: Callable[[], AnswerT]) -> AnswerT:
        """Return an answer about the recommendations, computed once for all people who see the same results."""
        return self.snapshot.kept(("home", what, self.query), ask, lambda _: 0)

    @property
    def whose(self) -> str:
        """The namespaces that the counts and sums cover, in words; "" when they cover all."""
        if self.query.conditions:
            return OF_CHOSEN
        return "" if self.view.given.current_user().reads is None else OF_THESE


def overview_page(view: View, search: str) -> OverviewPage | None:
    """Return the page's data from the newest results, None without; UsageError for an invalid namespace filter."""
    snapshot, query = view.source.snapshot(), carried.namespace_query(search)
    overview = snapshot.overview
    if overview is not None and query.conditions:
        ask = partial(overview_of, overview, snapshot.tables, query, carried.admits(search))
        overview = snapshot.kept(("home", "overview", query), ask, lambda narrow: len(narrow.waste))
    return None if overview is None else OverviewPage(view, search, snapshot, overview, query)
