"""The questions that people ask first, with answers on Home or one click away. Pure."""

from __future__ import annotations

import math
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
    """A newcomer's question, its short answer, and the page (path, query string) with the full answer."""

    words: str
    answer: Any
    path: str
    query: str = ""
    """Query string that selects the rows that the answer is about."""


def questions(page: OverviewPage) -> list[Question]:
    """Return a newcomer's questions, each with its answer from these results and the page of the full answer."""
    view, overview, unassessed = page.view, page.overview, page.unassessed_counts
    killed_first = unassessed.none_above_request
    if page.above_request:
        killed_first = f"{display.counted(page.above_request, 'container')} that used more memory than requested"
    saved: list[Any] = [NOT_KNOWN]
    if not unassessed.knows_nothing:
        saved = [*savings.main_parts(page.cuts.all_steps, view.currency), ", by all steps of the recommended cuts"]
    peak: Any = overview.peak_reason
    if overview.peak is not None:
        height = panels.amount(overview.peak.height_millicores, Resource.CPU)
        peak = [panels.clock(overview.peak.start_seconds), ", ", height]
    free: Any = NOT_KNOWN
    if math.isfinite(overview.cpu.batch_now):
        free = [panels.amount(overview.cpu.batch_now, Resource.CPU), " now"]
    # The namespace that requests most CPU beyond its use, and its rows, what frees most first.
    wasteful = next((row.namespace for row in waste.most_wasteful(overview.waste, Resource.CPU, 1)), "")
    none_wastes = NOT_KNOWN if unassessed.knows_nothing else "no container requests more than it uses"
    order = [("sort", column) for column in ORDERS[TodoList.CUT]]
    its_rows = urlencode([*([("ns", wasteful)] if wasteful else []), *order])
    fullest = page.fullest_node
    full = "the requests of the nodes are not known"
    if fullest.name:
        full = f"the fullest node is {visible(fullest.name)}, {display.percent(fullest.requested_ratio)} requested"
    tonight = "no workload: this dashboard is read-only"
    if view.given.autopilot is not None:
        tonight = "only changes that an approved policy permits; see the queue"
    queue = "this dashboard has no access to a cluster"
    if view.given.queues is not None:
        queue = "pods that wait for quota or for their job's other pods"
    ready = display.counted(page.ready.ready, "recommendation")
    complete = f"{display.share(overview.coverage)} of samples present"
    leaving = cards.leaving_nodes(page) or "cotenant size counts removable nodes"
    return [
        Question("Which containers will be killed first?", killed_first, "recommendations", cards.KILLED_FIRST),
        Question("What do I save?", saved, "recommendations", cards.WASTE),
        Question("What can I apply right now?", ready, "recommendations", numbers.READY),
        Question("Who wastes most?", visible(wasteful) or none_wastes, "recommendations", its_rows),
        Question("When is the next peak?", peak, "forecast"),
        Question("Is there capacity for that peak?", "reservation plans for coming peaks", "reservations"),
        Question("What can I lend to batch work?", free, "batch"),
        Question("What would more risk lend me?", "a replay of this cluster's history", "what-if"),
        Question("Which nodes are full?", full, "nodes", "sort=-requested_ratio"),
        Question("What changes by itself tonight?", tonight, "autopilot"),
        Question("What was changed, and how do I roll it back?", "every change, with its rollback", "changes"),
        Question("Are the numbers complete?", complete, "health"),
        Question("Where is my own service?", "Ctrl K finds services by name", "workloads"),
        Question("What else is wrong?", "idle workloads, missing requests, leaks", "findings"),
        Question("Which pods wait, and why?", queue, "queues"),
        Question("Which nodes could I switch off?", leaving, cards.CLUSTER_SIZE),
    ]


def panel(page: OverviewPage) -> Component:
    """Return every question with its answer, each with a link to the full answer."""
    rows = []
    for question in questions(page):
        link = dcc.Link(question.words, href=page.href(question.path, question.query))
        rows.append(html.Li([link, html.Span(question.answer, className="answer")]))
    return html.Section(html.Ul(rows, className="answers"), className="panel", id="answers")
