"""Queues: the tree of quotas with bars, the last day of one, pods that wait with their reason, and gangs by state."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import NoData
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, human_amount, kind_of
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures import quotas as figures
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.live_page import LivePage, LivePart
from cotenant.dashboard.frame.table_cells import (
    MOST_ROWS,
    reason_chips,
    row_note,
    subject,
    titles,
    unbroken_text,
    without_empty_columns,
)
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View, with_cluster
from cotenant.scheduler_ext.queues.model import tables
from cotenant.scheduler_ext.queues.model.queue_service import QueueService
from cotenant.scheduler_ext.queues.model.report import GangState, QueueReport
from cotenant.scheduler_ext.queues.model.tables import (
    GANGS,
    QUOTAS,
    WAITING_PODS,
    gang_totals,
    quota_totals,
    waiting_totals,
)

PATH: Final = "queues"
HISTORY_HEIGHT: Final = 220
WAITING_HEIGHT: Final = 150
TREE: Final = "Quotas"
HISTORY: Final = "The last day"
WAITING: Final = "Waiting pods"
GANGS_TITLE: Final = "Gangs"
GANG: Final = "kubectl apply -f deploy/examples/podgroup.yaml"
APPLY: Final = "kubectl apply -f deploy/examples/elasticquota.yaml"
CLUSTER: Final = "cotenant dashboard --act\ncotenant get quotas"
NO_QUOTA_WHY: Final = "A tree of ElasticQuotas says what each team is guaranteed and may use at most. An example:"
ALL_QUOTAS: Final = "cotenant get quotas"
"""The command that lists all quotas, for people who may read them."""
NARROWED_WHY: Final = "Only quotas are shown whose pods are all in namespaces that you may see."
TONES: Final = {
    GangState.RUNNING: "teal",
    GangState.PLACING: "blue",
    GangState.OPENING: "blue",
    GangState.NO_CAPACITY: "orange",
    GangState.TIMED_OUT: "orange",
    GangState.INVALID: "red",
}


def render(view: View, search: str) -> Component:
    """Return the page; its callback redraws it when queues change."""
    lead = html.P("What each quota may use and uses, which pods wait and why, and gangs.")
    head = html.Div([html.H1("Queues"), lead], className="page-head")
    return html.Div([head, LIVE.store(view, search), LIVE.part("body", view, search)], className="page")


def contents(view: View, search: str) -> Component:
    """Return the content of the Queues page below its heading."""
    service = view.given.queues
    if service is None:
        why = "Quotas and gangs are read live from a cluster. Let the dashboard read one, or use the command line:"
        return panels.panel(TREE, panels.empty("This dashboard has no cluster access.", why=why, command=CLUSTER))
    report = service.report(view.given.current_user())
    # List what could not be read or used; the rest of the page works without it.
    parts = []
    if report.problems:
        lines = [html.Li(f"{visible(name)}: {visible(text)}") for name, text in report.problems[:MOST_ROWS]]
        parts.append(panels.panel("What could not be used", html.Ul(lines, className="notes")))
    parts.append(quota_panel(report, search))
    if report.quotas:
        parts.append(panels.render_guarded(lambda: _history(view, service, report, search), HISTORY))
    return html.Div([*parts, waiting_panel(report, search), gang_panel(report, search)])


# --- quotas -----------------------------------------------------------------------------------------------------------
def quota_panel(report: QueueReport, search: str) -> Component:
    """Return the bars of one resource's quotas, and the table of the quotas of all resources."""
    if not report.quotas:
        none = panels.empty("No quota is defined.", why=NO_QUOTA_WHY, command=APPLY)
        if report.narrowed:
            none = panels.empty("No quota belongs only to your namespaces.", why=NARROWED_WHY, command=ALL_QUOTAS)
        return panels.panel(TREE, none)
    resource = shown_resource(report, search)
    rows = [row for row in report.quotas if row.resource == resource]
    drawn = panels.figure(figures.chart(rows, resource), "quota-figure", figures.height(len(rows)))
    ways = panels.choices("Resource", [(name, {"show": name}, name == resource) for name in resources(report)], search)
    note = NARROWED_WHY if report.narrowed else row_note(len(report.quotas), "get quotas")
    lines: list[list[Any]] = []
    for row in report.quotas[:MOST_ROWS]:
        href = panels.address(search, open=row.quota, show=row.resource)
        link = dcc.Link(visible(row.quota), href=href, className="quiet-link")
        amounts = (row.minimum, row.maximum, row.runtime, row.used, row.request, row.borrowed, row.lent)
        since = (row.borrows_since_seconds, row.over_since_seconds)
        lines.append([
            html.Span(link, style={"paddingLeft": f"{1.2 * row.depth:.1f}em"}),
            unbroken_text(row.resource),
            *(amount(row.resource, value) for value in amounts),
            f"{row.waiting_pods:,}",
            *("" if moment is None else panels.moment(moment) for moment in since),
            visible(row.problem),
        ])  # fmt: skip
    total = quota_totals(report.quotas)
    table = panels.facts(*without_empty_columns(titles(QUOTAS), lines), TREE, total)
    return panels.panel(TREE, ways, drawn, table, note=note)


def resources(report: QueueReport) -> list[str]:
    """Return the resources that any quota limits, cpu and memory first."""
    names = {row.resource for row in report.quotas}
    return sorted(names, key=lambda name: (name != "cpu", name != "memory", name))


def shown_resource(report: QueueReport, search: str) -> str:
    """Return the resource in the URL's `show`, else the first one."""
    names = resources(report)
    chosen = panels.address_value(search, "show")
    return chosen if chosen in names else names[0]


# --- history ----------------------------------------------------------------------------------------------------------
def _history(view: View, service: QueueService, report: QueueReport, search: str) -> Component:
    """Return the last day of the quota in the URL's `open`, else of the one with most waiting pods."""
    resource = shown_resource(report, search)
    rows = [row for row in report.quotas if row.resource == resource]
    most_waited = max(rows, key=lambda row: (row.waiting_pods, row.used - row.runtime))
    row = next((row for row in rows if row.quota == panels.address_value(search, "open")), most_waited)
    title = f"{HISTORY} of {visible(row.quota)}, {visible(resource)}"
    try:
        past = service.history(view.given.current_user(), row.quota, resource)
    except NoData as error:
        headline = f"{error.message[:1].upper()}{error.message[1:]}."
        return panels.panel(title, panels.empty(headline, why=error.fix, command="cotenant doctor"))
    used = panels.figure(figures.history(past), "quota-history", HISTORY_HEIGHT)
    waited = panels.figure(figures.waiting(past), "quota-waiting", WAITING_HEIGHT)
    return panels.panel(title, used, waited, note="From the manager's metrics, every 5 minutes.")


# --- waiting pods and gangs -------------------------------------------------------------------------------------------
def waiting_panel(report: QueueReport, search: str) -> Component:
    """Return the waiting pods in the order of their queues, each with its reason."""
    includes = carried.admits(search)
    rows = [row for row in report.waiting if includes(row.namespace)]
    if not rows:
        why = "Waiting pods are listed here with their reason, and on the command line:"
        none = panels.empty("No pod waits for quota or for its gang.", why=why, command="cotenant get waiting")
        return panels.panel(WAITING, panels.no_match("waiting pod") if report.waiting else none)
    _namespace, *heads = titles(WAITING_PODS)
    lines = []
    for row in rows[:MOST_ROWS]:
        likely = display.MISSING if row.likely_seconds is None else panels.moment(row.likely_seconds)
        missing = amount(row.resource, row.missing) if row.resource else display.MISSING
        names = [subject(row.pod, row.namespace), unbroken_text(row.quota), visible(row.gang)]
        place = f"{row.position:,}" if row.position else display.MISSING
        reason = [unbroken_text(label(row.code)), unbroken_text(row.resource), missing, likely, visible(row.reason)]
        lines.append([*names, panels.moment(row.since_seconds), place, *reason])
    table = panels.facts(*without_empty_columns(heads, lines), WAITING, waiting_totals(tables.waiting_table(rows)))
    codes = reason_chips(row.code for row in rows)
    return panels.panel(WAITING, codes, table, note=row_note(len(rows), "get waiting"))


def gang_panel(report: QueueReport, search: str) -> Component:
    """Return the panel of gangs, counted by state."""
    includes = carried.admits(search)
    rows = [row for row in report.gangs if includes(row.namespace)]
    if not rows:
        why = "A PodGroup, or a pod's label or annotations, make pods a gang: all are placed, or none."
        none = panels.empty("There is no gang.", why=why, command=GANG)
        return panels.panel(GANGS_TITLE, panels.no_match("gang") if report.gangs else none)
    states = Counter(row.state for row in rows)
    chips = [panels.chip(f"{s.value} {states[s]:,}", TONES.get(s, "gray")) for s in GangState if states[s]]
    lines: list[list[Any]] = []
    for row in rows[:MOST_ROWS]:
        names = [visible(row.namespace), visible(row.gang), visible(row.quota)]
        state = panels.chip(row.state.value, TONES.get(row.state, "gray"))
        counts = [f"{n:,}" for n in (row.members, row.placed, row.min_available, row.total)]
        lines.append([*names, state, *counts, panels.moment(row.since_seconds), visible(row.reason)])
    table = panels.facts(titles(GANGS), lines, GANGS_TITLE, gang_totals(tables.gang_table(rows)))
    return panels.panel(GANGS_TITLE, html.Div(chips, className="chips"), table, note=row_note(len(rows), "get gangs"))


# --- what they share --------------------------------------------------------------------------------------------------
def amount(resource: str, value: int | None) -> Any:
    """Return an amount in the resource's unit; CPU and memory follow the unit switch."""
    if value is None:
        return display.MISSING
    kind = kind_of(resource)
    if kind is Kind.INTEGER:
        return human_amount(resource, value)
    return panels.amount(value, Resource.CPU if kind is Kind.MILLICORES else Resource.MEMORY)


def _state(view: View, _search: str) -> tuple[Any, ...] | None:
    if view.given.queues is None:
        return None
    report = view.given.queues.report(view.given.current_user())
    return report.quotas, report.waiting, report.gangs, report.problems


LIVE: Final = LivePage(PATH, _state, {"body": LivePart(TREE, contents)})
OBEYED: Final = Obeyed(
    "the namespace filters waiting pods and gangs; quotas show the whole tree.",
    "the history of a quota covers the last day.",
    spans=False,
)
PAGE: Final = Page(
    PATH, "Queues", "q", render, LIVE.register, place=Place.PLACE, installed=with_cluster("queues"), obeyed=OBEYED
)
