"""Nodes: how full each is and what it can lend; a node's own page shows its hours and every term of the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import RowCondition, row_of
from cotenant.base.text import visible
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.base.usage.usage import HALF_HOUR_SECONDS
from cotenant.dashboard.figures import balance, colocation, display
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.nodes import cpus_of_node, enforcement, pods_of_node
from cotenant.dashboard.nodes import lendable as lending
from cotenant.dashboard.nodes.lendable import LentPaths
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import FORECASTS, NODES, RECLAIMABLE

SHOWN: Final = (
    "node",
    "requested_ratio",
    "pods",
    "cpu_allocatable",
    "cpu_request",
    "cpu_usage",
    "batch_cpu",
    "mid_cpu",
    "cpu_peak",
    "memory_allocatable",
    "memory_request",
    "memory_usage",
    "batch_memory",
    "mid_memory",
    "reason",
)
LIST: Final = Listing(
    schema=NODES,
    path="nodes",
    noun="node",
    shown=SHOWN,
    facets=(("reason", "Reason"),),
    order="-requested_ratio",
    opens="nodes/{node}",
    among=True,
    pinned=("node",),
)
SCATTER_HEIGHT: Final = 300
BALANCE_CELLS: Final = 5_000
HOURS_HEIGHT: Final = 330


def render(view: View, search: str) -> Component:
    """Return the list above a chart of all its nodes."""
    lead = html.P("What is requested, used and lendable on each node now. Enter or click shows its hours and formulas.")
    head = html.Div([html.H1("Nodes"), lead], className="page-head")
    switch = panels.resource_switch("balance-resource")
    dots = panels.panel(
        "Requested against used",
        html.Div(panels.render_guarded(lambda: _balance(view, search, Resource.CPU)), id="balance"),
        aside=switch,
        note="One dot per node. Below the line a node uses less than is requested on it. Click a dot for its node.",
    )
    body = panels.render_guarded(lambda: list_page.body(LIST, view, search))
    if view.source.snapshot().overview is None:
        return html.Div([head, body], className="page")
    return html.Div([head, body, dots], className="page tall-page")


def _balance(view: View, search: str, resource: Resource) -> Component:
    snapshot = view.source.snapshot()
    try:
        query = LIST.query(search)
    except UsageError as error:
        return panels.failure_state(error.message, error.fix)
    question = ("balance", query, resource)
    drawn = snapshot.kept(question, lambda: _dots(snapshot, query, resource), lambda _: BALANCE_CELLS)
    if drawn is None:
        if query.filtered:
            return panels.no_match("node")
        return panels.empty("The analysis holds no node.", command="cotenant doctor")
    return panels.figure(drawn, "balance-figure", SCATTER_HEIGHT)


def _dots(snapshot: Snapshot, query: Query, resource: Resource) -> Chart | None:
    """Return the chart of the nodes in a query; None if there are none."""
    rows = snapshot.rows(NODES.name, query)
    return balance.chart(snapshot.tables[NODES.name].take(rows).columns, resource) if len(rows) else None


def below(view: View, parts: tuple[str, ...], search: str) -> Component:
    """Return the page of one node."""
    if len(parts) != 1:
        return _unknown_node(view, "/".join(parts))
    return html.Div(panels.render_guarded(lambda: _node(view, parts[0], search)), id="node-body", className="page")


def _unknown_node(view: View, name: str) -> Component:
    why = "The node may have left the cluster, or the link is old."
    link = ("All nodes", f"{view.settings.base_path}nodes")
    return html.Div([html.H1("Node"), panels.empty(f"No node is named {visible(name)}.", why=why, link=link)])


def _node(view: View, name: str, search: str) -> Component:
    snapshot = view.source.snapshot()
    if snapshot.overview is None:
        return html.Div([html.H1("Node"), panels.no_results()])
    row = row_of(snapshot.tables[NODES.name], {"node": name})
    if row is None:
        return _unknown_node(view, name)
    lent_rows = snapshot.tables[RECLAIMABLE.name].read(where=RowCondition("node = ?", (name,))).rows()
    lent = {(paths.band, paths.resource): paths for paths in map(LentPaths.of, lent_rows)}
    nodes = f"{view.settings.base_path}nodes?{carried.carried_parts(search)}"
    trail = html.P([dcc.Link("Nodes", href=nodes.rstrip("?")), " / "], className="trail")
    back_seconds = carried.back_seconds(search, colocation.USUAL_SECONDS) or colocation.USUAL_SECONDS
    terms = [_terms(lent.get((band, r)), band, r) for r in Resource for band in ("batch", "mid")]
    hours = [
        panels.render_guarded(partial(_hours, view, resource, row, lent, back_seconds), _title_of_hours(resource))
        for resource in Resource
    ]
    pods, reason = display.counted(int(row["pods"] or 0), "pod"), str(row["reason"] or Reason.OK.value)
    state = html.P(pods)
    if reason != Reason.OK.value:
        sentence = SENTENCES[Reason(reason)] if reason in set(Reason) else ""
        state = html.P([panels.chip(reason, "orange"), f" {sentence} {pods}."])
    title = html.Div([html.H1(visible(name)), state], className="title-line")
    head = html.Div([html.Div([trail, title], className="trail-head")], className="page-head")
    base = view.settings.base_path
    return html.Div(
        [
            head,
            _numbers(row, snapshot),
            html.Div(hours, className="row halves"),
            html.Div(terms, className="row quarters"),
            panels.render_guarded(lambda: enforcement.on_node(view, name), enforcement.TITLE),
            cpus_of_node.panel(view, name),
            panels.render_guarded(lambda: pods_of_node.panel(snapshot, name, base), pods_of_node.TITLE),
        ]
    )


def _numbers(row: Mapping[str, Any], snapshot: Snapshot) -> Component:
    stats = []
    for resource in Resource:
        used, allocatable, request = (row[f"{resource}_{w}"] for w in ("usage", "allocatable", "request"))
        share, of_requests = (measures.ratio_of(part, allocatable) for part in (used, request))
        requested = f", {display.percent(of_requests)} requested" if request is not None and allocatable else ""
        usage = html.Span([f"{display.percent(share)} of ", panels.amount(allocatable, resource), requested])
        label = "CPU used now" if resource is Resource.CPU else "Memory used now"
        stats.append(panels.stat(label, panels.amount(used, resource), usage, bar=share))
    for label, band, detail in (
        ("Free for batch now", "batch", "from capacity that services do not use"),
        ("Free for a day", "mid", "from requests that services will not use soon; overlaps with free for batch"),
    ):
        cpu, memory = (panels.amount(row[f"{band}_{r}"], r) for r in Resource)
        stats.append(panels.stat(label, [cpu, " · ", memory], detail))
    key = {"scope": "node", "name": row["node"], "resource": Resource.CPU.value}
    ahead = row_of(snapshot.tables[FORECASTS.name], key)
    height = panels.amount(row["cpu_peak"], Resource.CPU)
    if ahead is None or ahead["peak_time"] is None:
        # Start of the half hour whose 95 % quantile is the highest, Unix seconds; None without a forecast.
        if ahead is None or not len(ahead["q95"] or ()):
            highest = None
        else:
            highest = int(ahead["start"]) + HALF_HOUR_SECONDS * int(np.argmax(ahead["q95"]))
        time = [" about ", panels.clock(highest)] if highest is not None else []
        peak = panels.stat(PEAK_NAME, [height, *time], "No pronounced peak in the next 24 h.")
    else:
        window = [panels.window(ahead["peak_time"], ahead["peak_end"])] if ahead["peak_end"] else []
        peak = panels.stat(PEAK_NAME, [panels.clock(ahead["peak_time"]), ", ", height], [f"{BUSIEST_NAME}: ", *window])
    stats.append(peak)
    return html.Div(stats, className="stats five")


def _title_of_hours(resource: Resource) -> str:
    return f"{'CPU' if resource is Resource.CPU else 'Memory'} hour by hour"


def _hours(
    view: View,
    resource: Resource,
    row: Mapping[str, Any],
    lent: Mapping[tuple[str, Resource], LentPaths],
    back_seconds: float,
) -> Component:
    title = _title_of_hours(resource)
    note = (
        "Batch may fill the node up to its safety margin, including what batch pods use already. The line is the "
        "formula's result in the past, now, and in the future if prod follows its forecast."
    )
    hours = view.source.node_history(row["node"]).get(resource.value)
    if hours is None or not any(v is not None for v in hours["total"]):
        why = "The source showed no usage of this node in the window."
        return panels.panel(title, panels.empty("No history of this node.", why=why, command="cotenant doctor"))
    batch = lent.get(("batch", resource))
    ceiling = batch.ceiling if batch else None
    drawn = colocation.chart(hours, resource, row[f"{resource}_allocatable"], ceiling, back_seconds)
    missing = [html.P(text, className="panel-note") for text in lending.past_words(hours)]
    return panels.panel(title, panels.figure(drawn, f"hours-{resource}", HOURS_HEIGHT), *missing, note=note)


def _terms(lent: LentPaths | None, band: str, resource: Resource) -> Component:
    free = "free for batch" if band == "batch" else "free for a day"
    title = f"{'CPU' if resource is Resource.CPU else 'Memory'} {free}"
    if lent is None:
        return panels.panel(title, panels.empty("The results lack this amount's formula.", command="cotenant scan"))
    signs = lending.signs(lent)
    rows = [
        html.Tr(_term_cells(sign, lending.words(term), panels.amount(lent.terms[term], resource)))
        for term, sign in signs.items()
    ]
    rows.append(html.Tr(_term_cells("=", title, panels.amount(lent.amount, resource)), className="sum"))
    why = []
    if band == "batch" or lent.reason is not Reason.OK:
        why = [html.P(lending.why_not_more(lent), className="verdict")]
    table = html.Table(html.Tbody(rows), className="inputs terms")
    code = html.Pre(html.Code(lending.formula(lent)), className="formula", tabIndex=0)
    return panels.panel(title, *why, table, code, note=f"policy {lent.policy}")


def _term_cells(sign: str, term: str, amount: Any) -> list[Component]:
    return [html.Th([html.Span(sign, className="sign"), term], scope="row"), html.Td(amount)]


def register(app: Dash, view: View) -> None:
    """Register the list's callbacks; a new URL or resource redraws the chart, new results an open node."""
    list_page.register(app, view, LIST)

    @app.callback(
        Output("balance", "children"),
        Input("url", "search"),
        Input("balance-resource", "value"),
        Input("version", "data"),
    )
    def _dots(search: str | None, resource: str, _version: str) -> Component:
        return panels.render_guarded(lambda: _balance(view, search or "", Resource(resource)))

    @app.callback(
        Output("node-body", "children"), Input("version", "data"), Input("url", "search"), State("url", "pathname")
    )
    def _renew(_version: str, search: str | None, pathname: str) -> Component:
        if not path_of(pathname, view.settings).startswith(f"{LIST.path}/"):
            return no_update
        return panels.render_guarded(lambda: _node(view, _name_in(pathname), search or ""))

    @app.callback(Output(cpus_of_node.BODY, "children"), Input(cpus_of_node.ASK, "n_clicks"), State("url", "pathname"))
    def _cpus(clicks: int | None, pathname: str) -> Any:
        service = view.given.topologies
        if not clicks or service is None:
            return no_update
        node, who = _name_in(pathname), view.given.current_user()
        return panels.render_guarded(lambda: cpus_of_node.topology_drawing(service.topology(who, node)))

    in_browser(app, "openNode", Input("balance-figure", "clickData"))


def _name_in(pathname: str) -> str:
    return unquote(pathname.rstrip("/").rsplit("/", 1)[-1])


EVERY_POD: Final = "nodes have no namespace; their figures are sums over all pods."
PAGE: Final = Page(
    "nodes",
    "Nodes",
    "n",
    render,
    register,
    below,
    obeyed=Obeyed(EVERY_POD, "the list shows the present."),
    obeyed_below=Obeyed(EVERY_POD, "the range applies only to the charts by hour.", spans=False),
)
