"""Batch: what each priority band can get now, what batch pods could get over the next day, and when a job fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.resource import Resource
from cotenant.base.tables.queries import RowCondition
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures import room as chart
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.live_page import LivePart, redraw
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.table_cells import unbroken_text
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.sources.source import Snapshot
from cotenant.recommender.colocation import batch
from cotenant.recommender.colocation.batch import BOUNDS, Fit, Job, LendableCapacity, StartWindow
from cotenant.recommender.colocation.model.batch_totals import usage_of_batch_pods, why_unknown
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE, lending_nodes_count
from cotenant.recommender.model.views import NODES, PODS, RECLAIMABLE

PATH: Final = "batch"
NOW: Final = "Capacity now, by priority"
DAY: Final = "The next 24 hours"
DAY_NOTE: Final = (
    "CPU or memory that batch pods may use on all nodes together, including what they use already: in the past, "
    "now, and in the future if prod follows its median forecast; the dotted line is the sum of what each "
    f"node can lend with 95 % certainty. {batch.NOT_DRAWN}"
)
RISK: Final = "Worst day: nodes above their forecast peak"
RISK_NOTE: Final = (
    "Nodes exceed their forecast peaks at the same time, so most of a month's excess is in one event. Each past "
    "decision is tested on the six hours after its data; the node agent withdraws lent CPU within seconds."
)
NO_RISK: Final = "Past decisions have not been tested."
JOB: Final = "Fit my job"
AHEAD: Final = {Resource.CPU: "CPU for batch", Resource.MEMORY: "Memory for batch"}
CHART_HEIGHT: Final = 300
FIELD_STYLE: Final[dict[str, Any]] = {"size": "xs", "w": 150, "debounce": 300}
FIELDS: Final = (
    ("cores", "Cores of a pod", 0.5),
    ("gib", "GiB of a pod", 1),
    ("hours", "Hours it runs", 0.5),
    ("deadline", "Done within hours", 1),
)
"""(key of the URL, label, step)."""
HONEST: Final = (
    "Capacity is measured by usage. The scheduler counts the requests of batch pods, which these results lack: it "
    "may find less. Prod pods of a node exceed its 95 % forecast one time in twenty, and the usage of other pods is "
    "assumed to stay as it is now."
)
NO_FORECAST: Final = "No node has a forecast yet."
UNKNOWN: Final = "The capacity that nodes can lend is not known."
NO_FORECAST_WHY: Final = "A node needs a few days of history, and a scan that forecasts it."


def render(view: View, search: str) -> Component:
    """Return the present amounts, the form with its answer, and the next day."""
    lead = html.P("Capacity for work that may wait, now and over the next day.")
    head = html.Div([html.H1("Batch"), lead], className="page-head")
    if view.source.snapshot().overview is None:
        return html.Div([head, panels.no_results()], className="page")
    # The inputs for the size of a batch job, filled from the page's URL, or with defaults if that cannot be read.
    try:
        job = batch.job_of(search)
    except UsageError:
        job = Job()
    inputs = []
    for key, label, step in FIELDS:
        bounds = {"min": step, "max": BOUNDS[key][1], "step": step}
        inputs.append(dmc.NumberInput(id=f"fit-{key}", label=label, value=getattr(job, key), **bounds, **FIELD_STYLE))
    form = panels.panel(
        JOB,
        html.Div(inputs, className="tool-line", role="group", **{"aria-label": "Size of the job"}),
        html.Div(panels.render_guarded(lambda: answer(view, search)), id="fit-answer"),
        note="Earliest starts at which a pod of this size finds free capacity on a node until its end.",
    )
    now, ahead, risk = (html.Div(part.panel_of(view, search), id=id_) for id_, part in PARTS.items())
    return html.Div([head, now, form, ahead, risk], className="page tall-page")


def bands(snapshot: Snapshot) -> Component:
    """Return the capacity that pods of each priority band could still get now, summed over all nodes."""
    lent, nodes, pods = (snapshot.tables[s.name] for s in (RECLAIMABLE, NODES, PODS))
    overview = snapshot.overview
    if not len(nodes) or overview is None:
        return panels.panel(NOW, panels.empty("The analysis holds no node.", command="cotenant doctor"))
    prod = [batch.unrequested_amount(nodes, r) for r in Resource]
    both = (overview.cpu, overview.memory)
    mid, lend = [band.mid_now for band in both], [band.batch_now for band in both]
    used, count = usage_of_batch_pods(pods)
    columns = lent.read("node", "amount", where=RowCondition("band = 'batch'")).columns
    lenders = "the results do not say"
    if node_count := len(set(columns["node"])):
        lending = lending_nodes_count(columns["node"], columns["amount"])
        why = why_unknown(lent)
        lenders = f"by {lending:,} of {display.counted(node_count, 'node')}{f'; {why}' if why else ''}"
    bands_shown = [
        _stat("Free for batch now", lend, lenders),
        _stat("Batch pods use", used, display.counted(count, "pod")),
    ]
    others = [
        _stat("Not requested", prod, "allocatable minus requests, node by node"),
        _stat("Free for a day", mid, "for mid pods over the next 24 hours; it overlaps with free for batch"),
    ]
    more = html.Details([html.Summary("Other priorities"), html.Div(others, className="stats four")], className="more")
    return html.Div([html.Div(bands_shown, className="stats four"), more])


def worst_days(snapshot: Snapshot) -> Component:
    """Return how many nodes exceeded their forecast peaks on the worst day, and by how much, for each resource."""
    overview = snapshot.overview
    sentences = overview.worst_day_sentences if overview is not None else []
    if not sentences:
        return panels.panel(RISK, panels.empty(NO_RISK, command="cotenant scan"))
    return panels.panel(RISK, *(html.P(sentence, className="said") for sentence in sentences), note=RISK_NOTE)


def _stat(label: str, amounts: Sequence[float | None], detail: str) -> Component:
    cpu, memory = (panels.amount(a, r) for a, r in zip(amounts, Resource, strict=True))
    return panels.stat(label, [cpu, " · ", memory], detail)


def day(view: View) -> Component:
    """Return the charts of both resources over the last and the next day."""
    overview, lendable = view.source.snapshot().overview, view.source.lendable_capacity()
    if overview is None or lendable is None:
        return panels.panel(DAY, _no_capacity(view))
    now = None if view.now_seconds() >= lendable.end_seconds else view.now_seconds()
    charts = []
    for resource in Resource:
        band = overview.cpu if resource is Resource.CPU else overview.memory
        hours, half_hours = len(band.times), len(band.ahead)
        line = chart.CapacitySeries(
            resource=resource,
            times=band.times,
            past=chart.pad_values(band.batch, hours),
            ahead=band.ahead,
            likely=chart.pad_values(band.batch_ahead.get(LIKELY, ()), half_hours),
            sure=chart.pad_values(band.batch_ahead.get(SURE, ()), half_hours),
            used=float(lendable.used[resource].sum()),
            mid_past=chart.pad_values(band.mid, hours),
            mid_likely=chart.pad_values(band.mid_ahead.get(LIKELY, ()), half_hours),
            now=band.batch_now,
        )
        figure = panels.figure(chart.chart(line, now), f"batch-{resource}", CHART_HEIGHT)
        note = DAY_NOTE
        if missing := lendable.unknown:
            note += f" Left out as unknown: {missing:,} of {display.counted(len(lendable.nodes), 'node')}."
        charts.append(panels.panel(AHEAD[resource], figure, note=note))
    return html.Div(charts, className="row halves")


def _no_capacity(view: View) -> Component:
    why = why_unknown(view.source.snapshot().tables[RECLAIMABLE.name])
    return panels.empty(UNKNOWN if why else NO_FORECAST, why=why or NO_FORECAST_WHY, command="cotenant scan")


def answer(view: View, search: str) -> Component:
    """Return when the job in the URL fits, or why that cannot be determined."""
    try:
        job = batch.job_of(search)
    except UsageError as error:
        return panels.failure_state(error.message, error.fix)
    overview, lendable = view.source.snapshot().overview, view.source.lendable_capacity()
    if overview is None or lendable is None:
        return _no_capacity(view)
    now = view.now_seconds()
    if now >= lendable.end_seconds:
        ended = display.duration(measures.age_seconds(now, lendable.end_seconds))
        why = f"The forecasts ended {ended} ago, so the coming hours are not known."
        return panels.empty("These forecasts are over.", why=why, command="cotenant scan")
    address = f"{view.settings.base_path}api/v1/fit?{urlencode(asdict(job))}"
    link = html.A("API", href=address, className="quiet-link", title="The same answer for scripts", target="_blank")
    fit = batch.fit(lendable, job, now)
    sentence = html.P(verdict(fit, lendable), className="verdict", role="status", id="fit-verdict")
    end = f"The forecasts reach to {display.moment(lendable.end_seconds)}: later hours are not known."
    reach = [html.P(end, className="panel-note")] if fit.late else []
    table = [windows(fit.windows, now)] if fit.windows else []
    rests = html.Details([html.Summary("Assumptions"), html.P(HONEST)], className="more")
    return html.Div([html.Div([sentence, *table, *reach, rests]), link])


def verdict(fit: Fit, lendable: LendableCapacity) -> str:
    """Return in a sentence whether and when the job fits."""
    if fit.windows:
        first = fit.windows[0]
        pods, nodes = display.counted(first.pods, "such pod"), display.counted(first.nodes, "node")
        return f"From {display.moment(first.start_seconds)}: capacity for {pods}, on {nodes}."
    if not fit.starts:
        return "There is no half hour to start at: the run would end after its deadline or after the forecasts."
    if not lendable.known:
        return "No node's free CPU and free memory are both known, so there is no answer."
    if fit.likely:
        start, nodes = fit.likely.start_seconds, display.counted(fit.likely.likely_nodes, "node")
        return f"Uncertain: such a pod fits only by the median forecast, from {display.moment(start)} on {nodes}."
    cpu, memory = (display.amount(fit.largest[r], r) for r in Resource)
    return f"No node can take such a pod in time. For so long no node has more than {cpu}, or more than {memory}, free."


def windows(starts: tuple[StartWindow, ...], now: float) -> Component:
    """Return the table of possible start times, earliest first; each later one has capacity for more pods."""
    titles = ("Start", "Wait", "Done by", "Nodes (95 % sure)", "Pods together", "Nodes (median)", "Most on")
    rows = []
    for w in starts:
        seconds = measures.length_seconds(now, w.start_seconds)
        wait = "none" if seconds < 60 else display.duration(math.floor(seconds))
        if seconds >= 2 * HOUR_SECONDS:  # starts are half hours apart: hours with one place
            wait = f"{round(seconds / HOUR_SECONDS, 1):g} h"
        counts = [f"{w.nodes:,}", f"{w.pods:,}", f"{w.likely_nodes:,}"]
        most = [piece for name, count in w.most for piece in (unbroken_text(f"{name} ×{count}"), ", ")][:-1]
        rows.append([panels.moment(w.start_seconds), unbroken_text(wait), panels.moment(w.end_seconds), *counts, most])
    return panels.facts(titles, rows, "When the job fits", tall=True, id_="fit-windows")


PARTS: Final = {
    "batch-now": LivePart(NOW, lambda view, _search: bands(view.source.snapshot())),
    "batch-ahead": LivePart(DAY, lambda view, _search: day(view)),
    "batch-risk": LivePart(RISK, lambda view, _search: worst_days(view.source.snapshot())),
}


def register(app: Dash, view: View) -> None:
    """Register the callbacks: the form writes the URL, the URL sets the answer, new results redraw everything."""
    redraw(app, view, PATH, {"fit-answer": LivePart("", answer)})

    @app.callback(*[Output(id_, "children") for id_ in PARTS], Input("version", "data"), State("url", "pathname"))
    def _renew(_version: str, pathname: str | None) -> Any:
        here = path_of(pathname or "", view.settings) == PATH
        return [part.panel_of(view, "") if here else no_update for part in PARTS.values()]

    in_browser(app, "job", *[Input(f"fit-{key}", "value") for key, _, _ in FIELDS])


OBEYED: Final = Obeyed(
    "capacity belongs to nodes, and nodes have no namespace.",
    "the page shows the last and the next 24 hours.",
    forecast=True,
    spans=False,
)
PAGE: Final = Page(PATH, "Batch", "b", render, register, place=Place.LEND, obeyed=OBEYED)
