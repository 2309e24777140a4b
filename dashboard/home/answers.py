"""What people ask first, answered on Home or one click from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.resource import Resource
from cotenant.base.text import visible
from cotenant.dashboard.figures import display, waste
from cotenant.dashboard.frame import panels
from cotenant.dashboard.home import cards, numbers
from cotenant.dashboard.home.page_data import OverviewPage
from cotenant.dashboard.tables import savings
from cotenant.recommender.model.todo import ORDERS, TodoList

TITLE: Final = "What people ask first"
NOT_KNOWN: Final = "not known yet; the page Health says what is missing"


@dataclass(frozen=True, slots=True)
class Question:
    """A question in the words of a newcomer, its answer in short, and the page with the whole of it."""

    words: str
    answer: Callable[[OverviewPage], Any]
    path: str
    query: str | Callable[[OverviewPage], str] = ""

    def href(self, page: OverviewPage) -> str:
        """The address of the rows that the answer speaks of."""
        return page.href(self.path, self.query(page) if callable(self.query) else self.query)


def _killed_first(page: OverviewPage) -> str:
    if not page.above_request:
        return page.unassessed_counts.none_above_request
    return f"{display.counted(page.above_request, 'container')} that used more memory than requested"


def _save(page: OverviewPage) -> list[Any]:
    if page.unassessed_counts.knows_nothing:
        return [NOT_KNOWN]
    return [*savings.main_parts(page.cuts.all_steps, page.view.currency), ", by all steps of the cuts"]


def _peak(page: OverviewPage) -> Any:
    peak = page.overview.peak
    if peak is None:
        return page.overview.peak_reason
    return [panels.clock(peak.start_seconds), ", ", panels.amount(peak.height_millicores, Resource.CPU)]


def _free(page: OverviewPage) -> Any:
    if not math.isfinite(page.overview.cpu.batch_now):
        return NOT_KNOWN
    return [panels.amount(page.overview.cpu.batch_now, Resource.CPU), " now"]


def _most_wasteful(page: OverviewPage) -> str:
    """The namespace that requests most CPU beyond its use; "" where none does."""
    return next((row.namespace for row in waste.most_wasteful(page.overview.waste, Resource.CPU, 1)), "")


def _wasteful(page: OverviewPage) -> str:
    if namespace := _most_wasteful(page):
        return visible(namespace)
    return NOT_KNOWN if page.unassessed_counts.knows_nothing else "no container requests more than it uses"


def _its_rows(page: OverviewPage) -> str:
    """The query of all rows of the most wasteful namespace, what frees most first."""
    namespace, order = _most_wasteful(page), [("sort", column) for column in ORDERS[TodoList.CUT]]
    return urlencode([*([("ns", namespace)] if namespace else []), *order])


def _tonight(page: OverviewPage) -> str:
    if page.view.given.autopilot is None:
        return "nothing: this dashboard is read-only"
    return "only changes that an approved policy permits: its queue"


def _nodes_to_leave(page: OverviewPage) -> str:
    return cards.leaving_nodes(page) or "counted by cotenant size"


def _queue(page: OverviewPage) -> str:
    if page.view.given.queues is None:
        return "this dashboard reads no cluster"
    return "pods that wait for quota or for their job's other pods"


def _full(page: OverviewPage) -> str:
    fullest = page.fullest_node
    if not fullest.name:
        return "the requests of the nodes are not known"
    return f"the fullest is {visible(fullest.name)}, {display.percent(fullest.requested_ratio)} requested"


def _now(page: OverviewPage) -> str:
    return display.counted(page.ready.ready, "recommendation")


def _complete(page: OverviewPage) -> str:
    return f"{display.share(page.overview.coverage)} of samples present"


QUESTIONS: Final = (
    Question("Which containers will be killed first?", _killed_first, "recommendations", cards.KILLED_FIRST),
    Question("What do I save?", _save, "recommendations", cards.WASTE),
    Question("What can I apply right now?", _now, "recommendations", numbers.READY),
    Question("Who wastes most?", _wasteful, "recommendations", _its_rows),
    Question("When is the next peak?", _peak, "forecast"),
    Question("Is there capacity for it?", lambda _page: "plans for the peaks ahead", "reservations"),
    Question("What can I lend to batch work?", _free, "batch"),
    Question("What would more risk lend me?", lambda _page: "a replay of this cluster's history", "what-if"),
    Question("Which nodes are full?", _full, "nodes", "sort=-requested_ratio"),
    Question("What changes by itself tonight?", _tonight, "autopilot"),
    Question(
        "What was changed, and how do I roll it back?", lambda _page: "every change, with its rollback", "changes"
    ),
    Question("Are the numbers complete?", _complete, "health"),
    Question("Where is my own service?", lambda _page: "Ctrl K finds it by name", "workloads"),
    Question("What else is wrong?", lambda _page: "idle workloads, missing requests, leaks", "findings"),
    Question("Which pods wait, and why?", _queue, "queues"),
    Question("Which nodes could I switch off?", _nodes_to_leave, cards.CLUSTER_SIZE),
)
"""The words of a newcomer; a test of the suite follows each to its answer."""


def panel(page: OverviewPage) -> Component:
    """Every question with its answer, each a link to the whole of it."""
    links = [dcc.Link(question.words, href=question.href(page)) for question in QUESTIONS]
    answers = [html.Span(question.answer(page), className="answer") for question in QUESTIONS]
    rows = [html.Li([link, answer]) for link, answer in zip(links, answers, strict=True)]
    return html.Section(html.Ul(rows, className="answers"), className="panel", id="answers")
