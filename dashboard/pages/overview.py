"""Overview: how full the cluster is, how its day goes, what could be reclaimed, and what is worth doing first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from cotenant.model.reasons import SENTENCES, Reason
from cotenant.model.recommendation import Severity
from cotenant.model.resource import Resource
from cotenant.model.views import Overview
from dashboard import display, panels
from dashboard.figures import band, heat, waste
from dashboard.view import Page, View

SEVERITY_ORDER: Final = tuple(reversed([s.value for s in Severity]))
BAND_HEIGHT: Final = 310


def render(view: View, _search: str) -> Component:
    """The page, drawn at once; its callbacks redraw when results change."""
    head = html.Div(html.H1("Overview"), className="page-head")
    body = panels.guarded(lambda: contents(view))
    return html.Div([head, html.Div(body, id="overview-body")], className="page")


def contents(view: View) -> Component:
    """Everything below the heading."""
    overview = view.source.snapshot().overview
    if overview is None:
        return panels.no_results()
    base = view.settings.base_path
    return html.Div(
        [
            html.P(_lead(overview), className="lead"),
            _headline(overview),
            _present(overview, base),
            html.Div([_band_panel(overview), _heat_panel(overview)], className="row wide-narrow"),
            html.Div(
                [_waste_panel(overview, view), _outcome(overview, base), _quality(overview)], className="row thirds"
            ),
        ]
    )


def _lead(overview: Overview) -> str:
    return (
        f"{display.counted(overview.nodes, 'node')}, {display.counted(overview.workloads, 'workload')}, "
        f"{display.counted(overview.pods, 'pod')}; {overview.window_days:.0f} days of history from {overview.source}, "
        f"until {display.moment(overview.time_seconds)}."
    )


def _headline(overview: Overview) -> Component:
    """The six numbers of kubernetes-mixin's cluster dashboard, in its words and order."""
    h = overview.headline
    shares = (
        ("CPU Utilisation", h.cpu_utilisation),
        ("CPU Requests Commitment", h.cpu_requests_commitment),
        ("CPU Limits Commitment", h.cpu_limits_commitment),
        ("Memory Utilisation", h.memory_utilisation),
        ("Memory Requests Commitment", h.memory_requests_commitment),
        ("Memory Limits Commitment", h.memory_limits_commitment),
    )
    return html.Div(
        [panels.stat(label, display.percent(share), bar=share) for label, share in shares], className="stats six"
    )


def _present(overview: Overview, base: str) -> Component:
    """What could be used now, what comes next, what is worth doing."""
    return html.Div(
        [
            _reclaimable(
                "Batch reclaimable now",
                overview.cpu.batch_now,
                overview.memory.batch_now,
                "from what prod pods do not use",
            ),
            _reclaimable(
                "Mid reclaimable now",
                overview.cpu.mid_now,
                overview.memory.mid_now,
                "from what prod pods will not use for long",
            ),
            _peak(overview),
            _worth(overview, base),
        ],
        className="stats four",
    )


def _reclaimable(label: str, cpu: float, memory: float, detail: str) -> Component:
    value = f"{display.amount(cpu, Resource.CPU)} · {display.amount(memory, Resource.MEMORY)}"
    return panels.stat(label, value, detail)


def _peak(overview: Overview) -> Component:
    peak = overview.peak
    if peak is None:
        return panels.stat("Next peak", "none", overview.peak_reason)
    rise = display.signed(peak.above_now_millicores, Resource.CPU)
    window = f"{display.clock(peak.start_seconds)}–{display.clock(peak.end_seconds)} UTC"
    led = f"; led by {peak.led_by}" if peak.led_by else ""
    detail = f"{window}, {display.amount(peak.height_millicores, Resource.CPU)}{led}"
    return panels.stat("Next peak", f"{display.clock(peak.start_seconds)} UTC, {rise}", detail)


def _worth(overview: Overview, base: str) -> Component:
    if not overview.worth_the_effort:
        return panels.stat("Worth the effort", "nothing", "No recommendation lowers a CPU request.")
    cpu = display.amount(overview.saving_cpu_millicores, Resource.CPU)
    memory = display.amount(overview.saving_memory_bytes, Resource.MEMORY)
    link = dcc.Link("See them", href=f"{base}recommendations?sort=cpu_delta_total")
    words = display.counted(overview.worth_the_effort, "recommendation")
    return panels.stat(
        "Worth the effort",
        words,
        html.Span([f"70\u00a0% of the saving; all together {cpu} and {memory} less requested. ", link]),
    )


def _band_panel(overview: Overview) -> Component:
    switch = dmc.SegmentedControl(
        id="band-resource",
        value=Resource.CPU.value,
        data=[{"value": "cpu", "label": "CPU"}, {"value": "memory", "label": "Memory"}],
        size="xs",
    )
    note = "Cluster total, hourly means of the last 7 days, and the next 24 hours."
    chart = html.Div(_band(overview, Resource.CPU), id="band")
    return panels.panel("Peaks and valleys", chart, aside=switch, note=note)


def _band(overview: Overview, resource: Resource) -> Component:
    series = overview.cpu if resource is Resource.CPU else overview.memory
    if not series.times:
        return panels.empty(
            f"No {resource} usage in the history.",
            why="The source had no samples in the window.",
            command="cotenant doctor",
        )
    return panels.figure(band.chart(series, resource), "band-figure", BAND_HEIGHT)


def _heat_panel(overview: Overview) -> Component:
    note = "Mean CPU usage of allocatable by weekday and hour (UTC)."
    return panels.panel(
        "Hour by weekday", panels.figure(heat.chart(overview.heat), "heat-figure", BAND_HEIGHT), note=note
    )


def _waste_panel(overview: Overview, view: View) -> Component:
    limit = view.settings.waste_bars
    rows = waste.ranking(overview.waste, Resource.CPU, limit)
    note = "CPU requested minus used, by namespace. A bar leads to its workloads."
    if not rows:
        return panels.panel("Waste", panels.empty("No namespace requests more CPU than it uses."), note=note)
    chart = panels.figure(waste.chart(overview.waste, Resource.CPU, limit), "waste-figure", 40 + 26 * len(rows))
    href = f"{view.settings.base_path}workloads?"
    links = [dcc.Link(w.namespace, href=href + urlencode({"ns": w.namespace})) for w in rows]
    listed = html.Nav(
        [html.Span("Workloads of "), *links], className="waste-links", **{"aria-label": "Workloads by namespace"}
    )
    return panels.panel("Waste", chart, listed, note=note)


def _outcome(overview: Overview, base: str) -> Component:
    total = sum(overview.severities.values())
    note = f"{display.counted(total, 'container')}, strategy {overview.strategy}."
    if not total:
        return panels.panel(
            "Recommendations", panels.empty("No recommendation was made.", command="cotenant scan --prometheus URL")
        )
    severities = [
        _share(word, overview.severities[word], total, f"{base}recommendations?severity={word}", word)
        for word in SEVERITY_ORDER
        if overview.severities.get(word)
    ]
    reasons = _reasons(overview.reasons, base)
    return panels.panel("Recommendations", html.Ul(severities, className="shares"), html.H3("Why"), reasons, note=note)


def _share(word: str, count: int, total: int, href: str, tone: str) -> Component:
    bar = html.Div(
        html.Div(className=f"meter-fill tone-fill-{tone}", style={"width": f"{count / total:.1%}"}), className="meter"
    )
    return html.Li(
        [dcc.Link(panels.chip(word, tone), href=href), bar, html.Span(f"{count:,}", className="share-count")]
    )


def _reasons(reasons: Mapping[str, int], base: str) -> Component:
    known = sorted(((n, Reason(code)) for code, n in reasons.items() if n and code in set(Reason)), reverse=True)[:5]
    rows = [
        html.Li(
            [
                dcc.Link(reason.value, href=f"{base}recommendations?reason={reason.value}"),
                f" {display.counted(count, 'value')}. {SENTENCES[reason]}",
            ]
        )
        for count, reason in known
    ]
    return html.Ul(rows, className="reasons")


def _quality(overview: Overview) -> Component:
    facts = (
        ("Samples present", display.percent(overview.coverage)),
        ("Scrape interval", display.duration(overview.scrape_interval_seconds)),
        ("History", f"{overview.window_days:.1f} d"),
        ("Computed", display.moment(overview.computed_seconds)),
        ("Settings", overview.settings_digest),
    )
    rows = [html.Tr([html.Th(name, scope="row"), html.Td(value)]) for name, value in facts]
    notes = [html.Li(note) for note in overview.notes] or [html.Li("Nothing to report.")]
    table = html.Table(html.Tbody(rows), className="inputs")
    return panels.panel("Data quality", table, html.H3("Notes"), html.Ul(notes, className="notes"))


def register(app: Dash, view: View) -> None:
    """Redraw when results change; the switch picks the band's resource; a waste bar leads to its namespace."""

    @app.callback(Output("overview-body", "children"), Input("version", "data"), prevent_initial_call=True)
    def _redraw(_version: str) -> Component:
        return panels.guarded(lambda: contents(view))

    @app.callback(Output("band", "children"), Input("band-resource", "value"), prevent_initial_call=True)
    def _switch(resource: str) -> Component:
        overview = view.source.snapshot().overview
        return panels.guarded(lambda: _band(overview, Resource(resource)) if overview else panels.no_results())

    app.clientside_callback(
        ClientsideFunction("cotenant", "drill"), Input("waste-figure", "clickData"), prevent_initial_call=True
    )


PAGE: Final = Page("", "Overview", "o", render, register)
