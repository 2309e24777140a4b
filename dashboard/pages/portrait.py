"""Portrait of one workload: usage, patterns and forecast, what was proposed and why, and its back-test."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.base.resource import Resource
from cotenant.base.tables import filters
from cotenant.base.text import visible
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.dashboard.changes import explanation, guards, proposals, verdict
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.figures import display, distribution, heat
from cotenant.dashboard.figures import story as chart
from cotenant.dashboard.frame import callbacks, carried, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.carried import WORKLOAD_PATH, filter_parts
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import Obeyed, Page, View
from cotenant.dashboard.sources import workload_story as story
from cotenant.dashboard.sources.workload_story import Floats, Story
from cotenant.recommender.model.recommendation import Field

HEIGHT: Final = 360
HALF_HEIGHT: Final = 290
EVENT_ROWS: Final = 60
ORIGINS: Final = {
    "workloads": "Workloads",
    "recommendations": "Recommendations",
    "forecast": "Forecast",
    "nodes": "Nodes",
    "pods": "Pods",
    "reservations": "Reservations",
}
"""Pages that lead here -> what the way back is called."""
FEW_SAMPLES: Final = 0.9
"""Share of samples present below which the page says that it shows a part."""


def back(base: str, search: str) -> tuple[str, str]:
    """Return (text, URL) of the link back, with the filters unchanged."""
    origin = dict(parse_qsl(search.lstrip("?"))).get("from", "workloads")
    origin = origin if origin in ORIGINS else "workloads"
    filter_query = "&".join(filter_parts(search))
    return ORIGINS[origin], f"{base}{origin}" + (f"?{filter_query}" if filter_query else "")


def shown_resource(search: str) -> Resource:
    """Return the resource in the URL: memory if it says so, else CPU."""
    show = dict(parse_qsl(search.lstrip("?"))).get("show")
    return Resource.MEMORY if show == Resource.MEMORY.value else Resource.CPU


def render(view: View, _search: str) -> Component:
    """Return the page of an address that names no workload."""
    choose = ("To the workloads", f"{view.settings.base_path}workloads")
    return html.Div([html.H1("Workload"), panels.empty("No workload is selected.", link=choose)], className="page")


def below(view: View, parts: tuple[str, ...], search: str) -> Component:
    """Return the page of one workload."""
    if len(parts) != 3:
        return render(view, search)
    ref = WorkloadRef(*parts)
    label, way = back(view.settings.base_path, search)
    crumbs = html.Nav(
        [
            dcc.Link(f"← {label}", href=way, id="back", title="Back, with the same filters (Esc)"),
            html.Span(f"{visible(ref.namespace)} / {visible(ref.kind)}"),
            dcc.Link("Pods", href=f"{view.settings.base_path}pods?{_exactly(ref)}", id="to-pods"),
        ],
        className="crumbs",
        **{"aria-label": "Where this is"},
    )
    switch = panels.resource_switch("story-resource", shown_resource(search))
    title = [html.H1(visible(ref.name)), html.Div(switch, className="aside")]
    head = html.Div(title, className="page-head portrait-head")
    body = html.Div(panels.render_guarded(lambda: contents(view, ref, search)), id="story-body")
    return html.Div([crumbs, head, body], className="page")


def contents(view: View, ref: WorkloadRef, search: str) -> Component:
    """Return the content of a workload's page below its name."""
    if view.source.snapshot().overview is None:
        return panels.no_results()
    workload_story = view.source.story(ref)
    if workload_story is None:
        base = view.settings.base_path
        why = "The workload may have been deleted after the link was made, or was never seen in the window."
        near = ("Search for the name", f"{base}workloads?{urlencode({'q': ref.name})}")
        return panels.empty(f"The results contain no workload {visible(str(ref))}.", why=why, link=near)
    resource = shown_resource(search)
    make: tuple[tuple[str, Callable[[], Component]], ...] = (
        ("facts", lambda: facts(workload_story, resource)),
        ("time", lambda: over_time(workload_story, resource, carried.back_seconds(search, math.inf))),
        ("spread", lambda: spread(workload_story, resource)),
        ("week", lambda: week(workload_story, resource)),
        ("test", lambda: panels.panel("Back-test", proposals.card(workload_story, view.currency))),
        ("why", lambda: _recommendation_panel(workload_story, view, ref)),
        ("log", lambda: panels.panel("History of recommendations", proposals.log(workload_story.log), note=LOG_NOTE)),
        ("apply", lambda: _apply(workload_story, view)),
        ("guards", lambda: guards.section(view, ref)),
    )
    sections = {name: panels.render_guarded(part) for name, part in make}
    changed = panels.render_guarded(lambda: _last_change(view, ref))
    # Said on top where samples are missing.
    coverage, partial = workload_story.workload["coverage"], []
    if coverage is not None and coverage < FEW_SAMPLES:
        text = f"{display.share(coverage)} of samples present; charts show gaps for the rest. "
        parts = [html.Strong("Partial. "), text, html.Code("cotenant doctor")]
        partial = [html.Div(parts, className="note-partial", role="status")]
    return html.Div(
        [
            *partial,
            sections["facts"],
            sections["time"],
            changed,
            html.Div([sections["spread"], sections["week"]], className="row halves"),
            html.Div([sections["test"], sections["why"]], className="row narrow-wide"),
            sections["log"],
            sections["apply"],
            sections["guards"],
        ]
    )


def _last_change(view: View, ref: WorkloadRef) -> Component:
    change = verdict.last_change(view, ref)
    return panels.panel("Last change", change) if change else html.Div()


LOG_NOTE: Final = "One row for each changed proposal; amounts per pod."


def facts(workload_story: Story, resource: Resource) -> Component:
    """Return six headline numbers of the resource, and the kind of workload."""
    row, name = workload_story.workload, resource.value
    used = row["cpu_used_ratio"] if resource is Resource.CPU else row["memory_used_ratio"]
    ladder = _ladder(workload_story, resource)
    mean = "mean" if resource is Resource.CPU else "highest"
    by_pods = f"by {display.counted(row['replicas'] or 0, 'pod')}"
    median = ["p50 ", panels.amount(float(ladder[0]), resource)] if len(ladder) else ""
    forecast = workload_story.forecasts.get(name)
    if forecast is None or forecast["peak"] is None:
        peak = panels.stat(PEAK_NAME, display.MISSING, "no forecast")
    else:
        start, end = forecast["peak_time"], forecast["peak_end"]
        when = panels.window(start, end) if start and end else "no peak window"
        peak = panels.stat(PEAK_NAME, panels.amount(forecast["peak"], resource), when)
    throttled = row["cpu_throttled_ratio"]
    trouble = display.counted(row["restarts"] or 0, "restart")
    trouble += f", {display.percent(throttled)} throttled" if throttled else ""
    stats = (
        panels.stat("Requested", panels.amount(row[f"{name}_request"], resource), by_pods),
        panels.stat(f"Used of the request ({mean})", display.percent(used), bar=used),
        panels.stat("p95", panels.amount(row[f"{name}_p95"], resource), "of all pods, while at least one ran"),
        panels.stat("Highest", panels.amount(row[f"{name}_max"], resource), median),
        peak,
        panels.stat("Trouble", display.counted(row["oom_kills"] or 0, "OOM kill"), trouble),
    )
    chips = [panels.chip(str(row[k]), str(row[k]).lower(), title) for k, title in CHIPS if row[k]]
    days = f"{row['days']:.1f} days of history" if row["days"] is not None else "no history"
    coverage = html.Span(f"{days}, {display.share(row['coverage'])} of samples present", className="dim")
    head = html.Div([*chips, coverage], className="portrait-chips")
    return html.Div([head, html.Div(stats, className="stats six portrait-stats")])


CHIPS: Final = (("pattern", "How usage moves"), ("qos", "QoS class"), ("priority", "Priority class"))


def _ladder(workload_story: Story, resource: Resource) -> Floats:
    row = workload_story.portraits.get(resource.value)
    return story.floats(row["ladder"] if row else [])


def line(workload_story: Story, resource: Resource) -> chart.Line:
    """Build the line that the chart over time draws."""
    row, forecast = workload_story.portraits.get(resource.value), workload_story.forecasts.get(resource.value)
    mean = story.floats(row["mean"] if row else [])
    ahead, paths = story.ahead(forecast) if forecast else ([], {})
    return chart.Line(
        resource=resource,
        times=story.hours(int(row["start"]), len(mean)) if row and row["start"] is not None else [],
        mean=mean,
        highest=story.floats(row["highest"] if row else []),
        request=story.floats(row["request"] if row else []),
        ahead=ahead,
        quantiles=paths,
        fine_95=story.fine_95(forecast or {}),
        limit=story.total(workload_story, resource, Field.LIMIT, proposed=False),
        proposed=story.total(workload_story, resource, Field.REQUEST, proposed=True),
        proposed_past=story.proposed_by_hour(workload_story, resource),
        peak=forecast["peak"] if forecast else None,
        window=story.peak_window(forecast) if forecast else None,
        events=[(int(e["time"]), str(e["event"])) for e in workload_story.events if e["time"] is not None],
    )


def over_time(workload_story: Story, resource: Resource, back_seconds: float = math.inf) -> Component:
    """Return the chart of usage, forecast, request, limit, proposal and events, from `back_seconds` ago."""
    if workload_story.portraits.get(resource.value) is None:
        return panels.panel("Usage and forecast", _no_portrait())
    drawn = chart.chart(line(workload_story, resource).recent(back_seconds))
    figure = panels.figure(drawn, "story-figure", HEIGHT)
    quality = story.forecast_quality_words(workload_story.forecasts.get(resource.value))
    note = f"The whole workload, hour by hour, and the next 24 hours. {quality}"
    events = workload_story.events
    if not events:
        listed = html.P("No deploy, restart or OOM kill in the window.", className="panel-note")
    else:
        newest = sorted(events, key=lambda e: -(e["time"] or 0))[:EVENT_ROWS]
        cells = [(panels.moment(e["time"]), str(e["event"]), visible(f"{e['pod']} {e['container']}")) for e in newest]
        body = [html.Tr([html.Td(cell) for cell in row]) for row in cells]
        shown = f"{len(newest)} of {len(events)}" if len(events) > len(newest) else f"{len(events)}"
        table = panels.table(("When", "What", "Where"), body)
        listed = html.Details([html.Summary(f"Events as a table ({shown})"), table], className="more")
    return panels.panel("Usage and forecast", figure, listed, note=note)


def _no_portrait() -> Component:
    why = "These results have no portraits. The next analysis computes them."
    return panels.empty("Nothing is stored about this workload.", why=why, command="cotenant scan")


def spread(workload_story: Story, resource: Resource) -> Component:
    """Return the histogram of usage with its quantiles, request, limit and proposal."""
    row = workload_story.portraits.get(resource.value)
    if row is None:
        return panels.panel("Distribution", _no_portrait())
    if not row["bounds"]:
        why = "No sample of this resource was found in the window."
        return panels.panel("Distribution", panels.empty("Nothing to show.", why=why, command="cotenant doctor"))
    ladder = _ladder(workload_story, resource)
    amounts = {
        "Request": story.total(workload_story, resource, Field.REQUEST, proposed=False),
        "Proposed": story.total(workload_story, resource, Field.REQUEST, proposed=True),
        "Limit": story.total(workload_story, resource, Field.LIMIT, proposed=False),
    }
    stands = {name: float(amount) for name, amount in amounts.items() if amount is not None}
    bounds, weights = story.floats(row["bounds"]), story.floats(row["weights"])
    figure = distribution.chart(bounds, weights, ladder.tolist(), stands, resource)
    note = "Share of the workload's running time at each usage; newer samples weigh more. Marks are sums over all pods."
    return panels.panel("Distribution", panels.figure(figure, "spread-figure", HALF_HEIGHT), note=note)


def week(workload_story: Story, resource: Resource) -> Component:
    """Return the heat map of mean usage by hour and weekday."""
    row = workload_story.portraits.get(resource.value)
    if row is None or len(row["heat"]) != 168:
        return panels.panel("Hour by weekday", _no_portrait())
    figure = panels.figure(heat.amounts(story.floats(row["heat"]).tolist(), resource), "week-figure", HALF_HEIGHT)
    return panels.panel("Hour by weekday", figure, note="Mean usage by weekday and hour.")


def _recommendation_panel(workload_story: Story, view: View, ref: WorkloadRef) -> Component:
    href = f"{view.settings.base_path}recommendations?{_exactly(ref)}"
    link = dcc.Link("In the list", href=href, className="quiet-link", id="to-recommendations")
    overview = view.source.snapshot().overview
    if overview is None or overview.demo:
        stale = False
    else:
        stale = view.now_seconds() - overview.time_seconds >= view.settings.red_after_seconds
    body = proposals.containers(workload_story, stale=stale)
    ways: list[Component] = [link]
    if workload_story.recommendations:
        if why := callbacks.why_not(view, Right.REVIEW, ref.namespace):
            no_review = html.Button("Review", id="to-review", className="button act", disabled=True, title=why)
            way = html.Span([html.Span(f"{why} ", className="panel-note"), no_review])
        else:
            to = reviewing.href(view.settings.base_path, [ref])
            way = dcc.Link(["Review ", html.Kbd("r")], href=to, id="to-review", className="button act primary")
        ways.insert(0, way)
    aside = html.Span(ways, className="panel-ways")
    return panels.panel("Recommendation", body, aside=aside, note="Values of one pod, and their reasons.")


def _exactly(ref: WorkloadRef) -> str:
    """Return a filter that matches only this workload's rows."""
    parts = (("ns", ref.namespace), ("kind", ref.kind), ("workload", ref.name))
    return urlencode({key: filters.literal(text) for key, text in parts})


def _apply(workload_story: Story, view: View) -> Component:
    if not workload_story.recommendations:
        why = "The proposals give the reason for each container."
        command = proposals.explain_command(workload_story)
        return panels.panel("Apply", panels.empty("No recommendation can be applied.", why=why, command=command))
    patches = explanation.patches(workload_story.recommendations, view.given.patch, view.given.manifest)
    return panels.panel("Apply", patches)


def register(app: Dash, view: View) -> None:
    """Register the callback that redraws when the URL or results change; the switch writes the URL."""

    @app.callback(
        Output("story-body", "children"), Input("url", "search"), Input("version", "data"), State("url", "pathname")
    )
    def _redraw(search: str | None, _version: str, pathname: str | None) -> Component:
        first, *parts = path_of(pathname or "/", view.settings).split("/")
        if first != WORKLOAD_PATH or len(parts) != 3:
            return no_update
        ref = WorkloadRef(*(unquote(part) for part in parts))
        return panels.render_guarded(lambda: contents(view, ref, search or ""))

    guards.register(app, view)
    in_browser(app, "show", Input("story-resource", "value"))
    in_browser(app, "shown", Output("story-resource", "value"), Input("url", "search"), prevent_initial_call=False)


OBEYED: Final = Obeyed(
    namespace="this page shows one workload; the namespace filters the lists.",
    time_range="the range applies to Usage and forecast; all other panels cover the whole history.",
    forecast=True,
    spans=False,
)
PAGE: Final = Page(WORKLOAD_PATH, "Workload", "", render, register, below=below, parent="workloads", obeyed=OBEYED)
