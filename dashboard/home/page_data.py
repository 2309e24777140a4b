"""The data that Home shows for a URL."""

from __future__ import annotations

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
from cotenant.recommender.model.list_totals import POSTPONED
from cotenant.recommender.model.todo import ORDERS, TodoList
from cotenant.recommender.model.views import NODES, PODS, RECOMMENDATIONS, Overview

OF_CHOSEN: Final = "of the chosen namespaces"


def _ask_once(what: str, ask: Callable[[OverviewPage], AnswerT]) -> cached_property[AnswerT]:
    """Return a property computed from the results once for all people who see the same ones."""
    return cached_property(lambda page: page.snapshot.kept(("home", what, page.query), lambda: ask(page), lambda _: 0))


@dataclass(frozen=True)
class OverviewPage:
    """The results at one time, limited to the URL's namespaces; each value from a table is computed only once."""

    view: View
    search: str
    snapshot: Snapshot
    overview: Overview
    """Counts and sums are of the chosen namespaces; nodes, capacity and curves are of the whole cluster."""
    query: Query
    """The filter on the chosen namespaces, for any table that has a column `namespace`."""

    def href(self, page: str, query: str = "") -> str:
        """Return the address of another page with the same choices; a namespace in `query` replaces the chosen ones."""
        kept_keys = ("range",) if query.startswith("ns=") else ("ns", "range")
        search = carried.join_queries(query, carried.carried_parts(self.search, *kept_keys))
        return f"{self.view.settings.base_path}{page}" + (f"?{search}" if search else "")

    def list_query(self, todo: TodoList) -> Query:
        """Return the query of one of the to-do lists of recommendations."""
        return self._narrow(FilterCondition("todo", (todo.value,)))

    def _narrow(self, condition: FilterCondition) -> Query:
        return replace(self.query, conditions=tuple(sorted((*self.query.conditions, condition))))

    def first_of(self, todo: TodoList) -> str:
        """Return the workload, namespace/name, in the first row of a to-do list; "" if the list is empty."""
        schema = self.advice.schema
        hidden = [HIDDEN] if POSTPONED in filters.keys_of(schema) else []
        own = filters.parse("&".join([f"todo={todo}", *hidden, *(f"sort={column}" for column in ORDERS[todo])]), schema)
        own_query = replace(own, conditions=tuple(sorted((*self.query.conditions, *own.conditions))))
        page = queries.page(self.advice, own_query, slice(0, 1), ("namespace", "workload"))
        row = next(page.rows(), None)
        return "" if row is None else f"{row['namespace']}/{row['workload']}"

    @property
    def advice(self) -> Relation:
        """The table of recommendations."""
        return self.snapshot.tables[RECOMMENDATIONS.name]

    def counts(self, table: str, key: str) -> dict[str, int]:
        """Return the number of rows by value of a column, in the column's own order or else the most frequent first."""
        return dict(self.snapshot.facets(table, self.query, (key,))[key])

    todo = _ask_once("todo", lambda page: list_totals.todo_counts(page.advice, page.query))
    """Containers at risk, and those of which only requests fall."""
    severities = _ask_once(
        "severities", lambda page: list_totals.severity_counts(page.advice, page.list_query(TodoList.RAISE))
    )
    """Containers at risk by severity."""
    all_severities = _ask_once("all severities", lambda page: list_totals.severity_counts(page.advice, page.query))
    """Containers by severity."""
    reasons = _ask_once("reasons", lambda page: list_totals.reason_counts(page.advice, page.query))
    """Containers by the reasons that their CPU and memory carry."""
    above_request = _ask_once("above request", lambda page: list_totals.above_request_count(page.advice, page.query))
    """Containers that used more memory than they request."""
    unassessed_counts = _ask_once("unassessed", lambda page: list_totals.unassessed_counts(page.advice, page.query))
    """Containers about which the counts of risk and waste say nothing."""
    fullest_node = _ask_once("fullest node", lambda page: list_totals.fullest_node(page.snapshot.tables[NODES.name]))
    """The node of the cluster of which most is requested."""
    cuts = _ask_once("cuts", lambda page: list_totals.planned_savings(page.advice, page.list_query(TodoList.CUT)))
    """The savings of the list of cuts, now and after all steps."""
    ready = _ask_once("ready", lambda page: list_totals.ready_counts(page.advice, page.query))
    """Recommendations of which the guardrails allow a step now."""
    ready_savings = _ask_once(
        "planned", lambda page: list_totals.planned_savings(page.advice, page._narrow(list_totals.CAN_BE_APPLIED))
    )
    """The savings and raises of the recommendations that `ready` counts, now and after all steps."""
    batch_use = _ask_once("batch use", lambda page: usage_of_batch_pods(page.snapshot.tables[PODS.name]))
    """Present usage of batch pods, each resource in its unit, and how many they are."""

    @property
    def whose(self) -> str:
        """The namespaces that the counts and sums cover, in words; "" if they cover all."""
        if self.query.conditions:
            return OF_CHOSEN
        return "" if self.view.given.current_user().reads is None else OF_THESE


def overview_page(view: View, search: str) -> OverviewPage | None:
    """Return Home's data, None without results; raise UsageError if the URL's namespace filter is invalid."""
    snapshot, query = view.source.snapshot(), carried.namespace_query(search)
    overview = snapshot.overview
    if overview is not None and query.conditions:
        ask = partial(overview_of, overview, snapshot.tables, query, carried.admits(search))
        overview = snapshot.kept(("home", "overview", query), ask, lambda narrow: len(narrow.waste))
    return None if overview is None else OverviewPage(view, search, snapshot, overview, query)
