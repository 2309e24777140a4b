"""Enforcement: what node agents did or would do, node by node over time, each action with its reason; and the list.

The chart shows one node (`open=` in the URL), the list all nodes; both use the same filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.errors import UsageError
from cotenant.base.text import visible
from cotenant.dashboard.figures import enforcement as chart
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.live_page import LivePart, redraw
from cotenant.dashboard.frame.view import Page, Place, View
from cotenant.dashboard.nodes import enforcement as enforcing
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT

PATH: Final = "enforcement"
INSTALL: Final = "cotenant install --enforcer"
IN_HAND: Final = "Selected node"
NEWS: Final = "enforcement-news"
WIDTHS: Final = {
    "time": 148,
    "node": 104,
    "mode": 94,
    "reason": 162,
    "before_after": 176,
    "why": 320,
    "pod": 190,
    "namespace": 110,
    "strategy": 118,
    "lane": 104,
    "target": 280,
    "id": 170,
    "series": 280,
}


def _shape(definitions: Sequence[dict[str, Any]]) -> None:
    """Show times with seconds, and a dry run as a chip."""
    for column_def in definitions:
        if column_def["field"] == "time":
            column_def["valueFormatter"] = {"function": "cotenantStamp(params)"}
        if column_def["field"] == "mode":
            column_def["cellRenderer"] = "CotenantMode"


FACETS: Final = (
    ("lane", "Lane"),
    ("reason", "Reason"),
    ("mode", "Mode"),
    ("strategy", "Strategy"),
    ("node", "Node"),
    ("ns", "Namespace"),
    ("pod", "Pod"),
)
LIST: Final = Listing(
    schema=ENFORCEMENT,
    path=PATH,
    noun="action",
    shown=("time", "node", "mode", "reason", "before_after", "why", "pod", "namespace", "strategy", "lane"),
    facets=FACETS,
    order="-time",
    opens="?open={node}",
    widths=WIDTHS,
    shape=_shape,
    news=NEWS,
    among=True,
    alone=True,
    nothing=enforcing.empty_state,
)


def render(view: View, search: str) -> Component:
    """Return the chart of the selected node's actions above the list of all actions."""
    snapshot = view.source.snapshot()
    lead = html.P("What node agents did, or would do, and why. Enter or click on a row shows its node.")
    head = html.Div([html.H1("Enforcement"), lead], className="page-head")
    if not len(snapshot.tables[ENFORCEMENT.name]):
        # The words of an empty list, without an empty grid below them. The frame asks for such a page again by itself,
        # so nothing on it follows news: a callback of which only some outputs are there is an error in the browser.
        panel = PARTS["enforcement-told"].panel_of(view, search)
        return html.Div([head, panel, enforcing.empty_state(view)], className="page")
    news = dcc.Store(id=NEWS, data=_revision(view))
    hand, facts = (html.Div(part.panel_of(view, search), id=id_) for id_, part in PARTS.items())
    body = panels.render_guarded(lambda: list_page.body(LIST, view, search))
    return html.Div([head, news, facts, hand, body], className="page tall-page")


def _revision(view: View) -> str:
    snapshot = view.source.snapshot()
    return f"{snapshot.version}/{snapshot.gathering.revision if snapshot.gathering else ''}"


def node_in_hand(view: View, search: str) -> Component:
    """Return the chart of one node, with links to other nodes and time spans."""
    snapshot = view.source.snapshot()
    try:
        query = LIST.query(search)
    except UsageError as error:
        return panels.panel(IN_HAND, panels.failure_state(error.message, error.fix))
    node_counts, opened_node = enforcing.nodes(snapshot, query), panels.address_value(search)
    if not node_counts and not opened_node:
        return panels.panel(IN_HAND, panels.no_match("action"))
    node = opened_node or node_counts[0][0]
    shown = enforcing.shown_acts(snapshot, view.source.enforcement(node), node, query)
    if not shown.marks and shown.lanes is None:
        why = "The node's agent reported nothing under these filters, or the cluster has no such node."
        ways = html.Div(enforcing.node_links(node_counts, query, node), className="ways")
        nothing = panels.empty(f"No action on node {visible(node)}.", why=why, link=("All actions", "?"))
        return panels.panel(visible(node), ways, nothing)
    newest = enforcing.newest(snapshot, node) or shown.until
    links = [enforcing.node_links(node_counts, query, node), enforcing.span_links(query, node, newest)]
    ways = html.Div(links, className="ways")
    page = f"{view.settings.base_path}nodes/{quote(node, safe='')}"
    link = dcc.Link("The node's page", href=page, className="quiet-link")
    figure = panels.figure(chart.chart(shown), "enforcement-figure", chart.height(shown))
    source = "The CPU usage of this node over time is not known, only what its agent reported."
    if shown.lanes is not None:
        source = f"CPU from {shown.lanes.source}."
    note = f"{source} Hollow marks and hatched bars are a dry run: nothing was changed."
    return panels.panel(visible(node), ways, figure, enforcing.reasons(shown.marks), aside=link, note=note)


PARTS: Final = {
    "enforcement-hand": LivePart(IN_HAND, node_in_hand),
    "enforcement-told": LivePart(
        "",
        lambda view, _search: html.Div([enforcing.facts(view.source.snapshot().gathering), *enforcing.notices(view)]),
    ),
}


def register(app: Dash, view: View) -> None:
    """Register the list's callbacks; the chart follows the URL and new actions of the agents."""
    list_page.register(app, view, LIST)
    redraw(app, view, PATH, PARTS, NEWS)

    @app.callback(
        Output(NEWS, "data"),
        Input("tick", "n_intervals"),
        Input("version", "data"),
        State(NEWS, "data"),
        prevent_initial_call=False,
    )
    def _news(_ticks: int | None, _version: str | None, shown_version: str | None) -> Any:
        now = _revision(view)
        return no_update if now == shown_version else now


PAGE: Final = Page(
    PATH, "Enforcement", "e", render, register, place=Place.LEND, installed=enforcing.agents_known, switch_on=INSTALL
)
