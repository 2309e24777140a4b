"""The three cards at the top of Home (at risk, wasted, can be lent), and their small charts. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.display import css_share
from cotenant.dashboard.frame import panels
from cotenant.dashboard.home.page_data import OverviewPage
from cotenant.dashboard.nodes import lent_now
from cotenant.dashboard.tables import savings
from cotenant.recommender.colocation.model.batch_totals import why_unknown
from cotenant.recommender.colocation.model.lendable import LIKELY, extremes_ahead
from cotenant.recommender.model import list_totals
from cotenant.recommender.model.todo import ORDERS, TodoList
from cotenant.recommender.model.views import FINDINGS, RECLAIMABLE
from cotenant.scheduler_ext.cluster_size.report import best_known, short_sentence


def _list(todo: TodoList) -> str:
    return "&".join((f"todo={todo}", *(f"sort={column}" for column in ORDERS[todo])))


AT_RISK: Final = _list(TodoList.RAISE)
WASTE: Final = _list(TodoList.CUT)
"""URL queries for the page To do: its lists of what to raise (`AT_RISK`) and what to cut (`WASTE`)."""
KILLED_FIRST: Final = f"{list_totals.KILLED_FIRST.key}={','.join(list_totals.KILLED_FIRST.values)}"
"""The containers that used more memory than they request."""
CLUSTER_SIZE: Final = "cluster-size"


def cards(page: OverviewPage) -> Component:
    """Return all three cards; an error in one does not affect the others."""
    drawn = [panels.render_guarded(partial(draw, page)) for draw in (at_risk, waste, lend)]
    return html.Div([html.Div(card) for card in drawn], className="home-cards")


def _card(
    name: str, lead: Sequence[Any], picture: Component, line: Sequence[Any], detail: Sequence[Any], way: Component
) -> Component:
    """Return a card with one number, one picture, one line and one link; everything else is behind "Details"."""
    more = html.Details([html.Summary("Details"), html.P([*detail], className="card-detail")], className="more")
    acts = html.Div([way, more] if detail else [way], className="card-acts")
    sentence = html.P([*line], className="card-line")
    return html.Section([html.H2([*lead]), picture, sentence, acts], className=f"card card-{name}", id=f"card-{name}")


def _first(page: OverviewPage, todo: TodoList) -> list[Any]:
    return ["First: ", html.Strong(visible(page.first_of(todo))), "."]


def _way(text: str, href: str, name: str) -> Component:
    return dcc.Link(text, href=href, className="button way-on", id=f"way-{name}")


# --- at risk ----------------------------------------------------------------------------------------------------------
def at_risk(page: OverviewPage) -> Component:
    """Return the card of containers whose requests or limits should rise, by severity."""
    count = page.todo.raises
    above = page.above_request
    if not above:
        killed_first = [page.unassessed_counts.none_above_request]
    else:
        rows = dcc.Link(display.counted(above, "container"), href=page.href("recommendations", KILLED_FIRST))
        killed_first = [rows, " used more memory than requested: killed first when a node lacks memory."]
    findings: list[Any] = []
    if critical := page.counts(FINDINGS.name, "severity").get(Severity.CRITICAL.value, 0):
        href = page.href("findings", f"severity={Severity.CRITICAL.value}")
        findings = [" Also ", dcc.Link(display.counted(critical, "critical finding"), href=href), "."]
    detail = [*killed_first, *findings, *_unassessed_words(page)]
    if not count:
        way = _way("All recommendations", page.href("recommendations"), "risk")
        none_known = "No container is known to be at risk"
        empty = _empty_words(page, "No container is at risk", none_known, "Risk is not known")
        return _card("risk", [empty], _severities(page), [], detail, way)
    lead = ["Raise ", html.Strong(display.counted(count, "container")), " at risk"]
    way = _way("Containers at risk", page.href("recommendations", AT_RISK), "risk")
    return _card("risk", lead, _severities(page), _first(page, TodoList.RAISE), detail, way)


def _empty_words(page: OverviewPage, none: str, none_known: str, unknown: str) -> str:
    """Return the text for an empty list, by whether all containers, some or none could be assessed."""
    unassessed = page.unassessed_counts
    if not unassessed.severity:
        return none
    return unknown if unassessed.knows_nothing else none_known


def _unassessed_words(page: OverviewPage) -> list[Any]:
    """Return which containers are on neither list for lack of evidence; empty if there are none."""
    count = page.unassessed_counts.severity
    if not count:
        return []
    href = page.href("recommendations", f"severity={Severity.UNKNOWN.value}")
    return [" ", dcc.Link(display.counted(count, "container"), href=href), " cannot be assessed; the list says why."]


def _severities(page: OverviewPage) -> Component:
    counts = page.severities
    shown = [severity for severity in sorted(Severity, key=lambda level: -level.rank) if counts[severity.value]]
    parts = [
        Part(counts[severity.value], severity.value, display.of_kind(counts[severity.value], severity.value))
        for severity in shown
    ]
    summary = "By severity: " + (", ".join(part.words for part in parts) or "none")
    return bar(parts, summary)


# --- waste ------------------------------------------------------------------------------------------------------------
def waste(page: OverviewPage) -> Component:
    """Return the card of the requests that all steps of the listed cuts free, and of CPU requested but not used."""
    planned = page.cuts
    # The cluster's CPU: used, requested and not used, neither.
    used, requested = page.overview.headline.cpu_utilisation, page.overview.headline.cpu_requests_commitment
    if not (math.isfinite(used) and math.isfinite(requested)):
        picture = html.Div()
    else:
        unused = measures.requested_unused_ratio(used, requested)
        parts = (
            Part(used, "used", "used"),
            Part(unused, "idle", "requested, not used"),
            Part(measures.neither_ratio(used, requested), "rest", "neither"),
        )
        picture = bar(parts, f"CPU of all nodes: {display.percent(used)} used, {display.percent(requested)} requested")
    if not page.todo.cuts:
        way = _way("All recommendations", page.href("recommendations"), "waste")
        empty = _empty_words(page, "Nothing to cut", "No request is known to be too large", "Waste is not known")
        line = _unassessed_words(page) or ["No request is larger than needed."]
        return _card("waste", [empty], picture, line, [], way)
    currency = page.view.currency
    frees = planned.all_steps.frees
    resource = Resource.CPU if frees.millicores or not frees.bytes else Resource.MEMORY
    text_parts: list[Any] = [panels.amount(frees.amount(resource), resource)]
    if frees.monthly:
        text_parts.append(f", {display.money(frees.monthly, currency)} a month")
    lead = ["Cut waste: ", html.Strong(text_parts)]
    detail = [
        display.counted(page.todo.cuts, "container"),
        ", after all steps: ",
        *savings.saving_parts(planned.all_steps, currency),
        ". Of that saving, the steps that are ready now give: ",
        *savings.saving_parts(planned.now, currency),
        ".",
    ]
    if sentence := leaving_nodes(page):
        detail += [" ", dcc.Link(sentence, href=page.href(CLUSTER_SIZE)), "."]
    way = _way("What to cut", page.href("recommendations", WASTE), "waste")
    return _card("waste", lead, picture, _first(page, TodoList.CUT), detail, way)


def leaving_nodes(page: OverviewPage) -> str:
    """Return a sentence on how many nodes could be removed, after the cuts if known; "" before `cotenant size`."""
    report = page.view.source.cluster_size()
    level = best_known(report) if report else None
    return short_sentence(report, level) if report and level else ""


# --- lend -------------------------------------------------------------------------------------------------------------
def lend(page: OverviewPage) -> Component:
    """Return the card of the capacity that batch pods can take now, and how it changes over the next 24 hours."""
    overview = page.overview
    table = page.snapshot.tables[RECLAIMABLE.name]
    series = overview.cpu
    if not math.isfinite(series.batch_now):
        why = why_unknown(table) or "No node is known."
        way = _way("What is missing", page.href("batch"), "lend")
        return _card("lend", ["The capacity that can be lent is not known"], html.Div(), [why], [], way)
    lead = ["Lend ", html.Strong(panels.amount(series.batch_now, Resource.CPU)), " now"]
    memory = ["With ", panels.amount(overview.memory.batch_now, Resource.MEMORY), " of memory"]
    way = _way("When a job fits", page.href("batch"), "lend")
    detail = [*memory, *lent_now.ahead_parts(series), "."]
    # A picture of lendable CPU over the next 24 hours at the median, with a column for each half hour.
    path = series.batch_ahead.get(LIKELY, [])
    bounds = extremes_ahead(series.batch_now, path)
    if bounds is None or len(path) != len(series.ahead):
        lendable_columns = html.Div()
    else:
        ends = display.between(bounds.least, bounds.most, Resource.CPU)
        lendable_columns = columns(path, f"Free for batch over the next 24 hours, median: {ends}", ("now", "in a day"))
    # Say how much of what can be lent batch pods use already.
    (cpu, _memory), pods = page.batch_use
    if not pods:
        used_by_batch = ["No batch pod uses this capacity yet."]
    elif cpu is None:
        used_by_batch = ["The usage by batch pods is not known."]
    else:
        used_by_batch = ["Batch pods use ", panels.amount(cpu, Resource.CPU), " of it already."]
    return _card("lend", lead, lendable_columns, used_by_batch, detail, way)


# --- pictures, without a chart library -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its amount, its colour tone, and its words in the legend."""

    amount: float
    tone: str
    words: str


def bar(parts: Sequence[Part], summary: str) -> Component:
    """Return a bar of parts, each as wide as its amount, with a legend below it; `summary` says the same in words."""
    drawn = [part for part in parts if part.amount > 0]
    total = sum(part.amount for part in drawn)
    pieces, legend = [], []
    for part in drawn:
        pieces.append(html.Div(className=f"piece tone-{part.tone}", style={"width": css_share(part.amount / total)}))
        swatch = html.Span(className=f"swatch piece tone-{part.tone}", **{"aria-hidden": "true"})
        legend.append(html.Li([swatch, part.words]))
    picture = html.Div(pieces, className="pieces", role="img", **{"aria-label": summary})
    return html.Div([picture, html.Ul(legend, className="pieces-legend")], className="card-picture")


def columns(values: Sequence[float], summary: str, ends: tuple[str, str]) -> Component:
    """Return a chart with a column per value and a gap for NaN; `ends` labels the first and the last column."""
    highest = max((value for value in values if math.isfinite(value)), default=0.0)
    heights = [css_share(value / highest if highest and math.isfinite(value) else 0.0) for value in values]
    bars = [html.Div(className="column", style={"height": height}) for height in heights]
    picture = html.Div(bars, className="columns", role="img", **{"aria-label": summary})
    axis = html.Div([html.Span(ends[0]), html.Span(ends[1])], className="columns-ends")
    return html.Div([picture, axis], className="card-picture")
