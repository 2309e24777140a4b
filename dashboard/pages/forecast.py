"""Forecast: every forecast with its measured error, the chart of the selected one, and the least reliable ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from dash import Dash, dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import MeasuredResource, Resource, measured_resource
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import RowCondition
from cotenant.base.text import visible
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import display, distribution
from cotenant.dashboard.figures import story as chart
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.carried import workload_address
from cotenant.dashboard.frame.live_page import LivePart, redraw
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.nodes import weekly
from cotenant.dashboard.sources import workload_story
from cotenant.dashboard.sources.source import FORECAST_LIST, Snapshot
from cotenant.dashboard.sources.workload_story import ForecastDetail, Row, Subject
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing

PATH: Final = "forecast"
IN_HAND: Final = "Selected forecast"
GOOD: Final = "Forecast quality"
BAND_HEIGHT: Final = 320
COVERAGE_HEIGHT: Final = 150
QUALITY_CELLS: Final = 500
USUAL_SECONDS: Final = 7 * DAY_SECONDS
ITEM: Final = (*FORECAST_LIST.key, "relative_wql", "coverage_95")
"""Columns from which the line about one forecast is written."""
MOST_TIMES: Final = 10
"""Largest error, in multiples of that of repeating yesterday, that is shown as a number."""
WORST: Final = 5
KEY_PARTS: Final = 5
UNDER: Final = 0.9
"""Coverage of p95 below which a forecast counts as too sure of itself."""
HOW: Final = (
    "Each of the last days is forecast by every model from the data before it: yesterday, the same day of last week, "
    "each time of day, a shifted daily profile, the recent level, and similar moments.",
    "A series gets a mixture of the models with the least quantile loss. Newer days weigh more, and the mean over all "
    "series counts as a few days of its own, so that a short history does not overrule the common result.",
    "rel. WQL is the loss of the mixture on held-out days, weighted by older days only, divided by the loss of the "
    "same-time-yesterday forecast: below 1 is better. p95 coverage is the share of values at or below the 0.95 "
    "quantile: 95 % is right.",
    "With too little history for a test, the quantiles of the portrait are used, and the reason says so.",
)


WIDTHS: Final = {
    "scope": 82,
    "namespace": 106,
    "name": 136,
    "resource": 86,
    "peak": 118,
    "peak_time": 112,
    "relative_wql": 88,
    "coverage_95": 120,
    "model": 190,
    "reason": 182,
}


LIST: Final = Listing(
    schema=FORECAST_LIST,
    path=PATH,
    noun="forecast",
    shown=("name", "scope", "resource", "peak", "peak_time", "relative_wql", "coverage_95", "reason", "model", "kind"),
    facets=(
        ("scope", "Scope"),
        ("resource", "Resource"),
        ("reason", "Reason"),
        ("kind", "Kind"),
        ("ns", "Namespace"),
        ("model", "Model"),
    ),
    order="scope",
    opens="?open={scope}/{namespace}/{kind}/{name}/{resource}",
    widths=WIDTHS,
    subject=("name", "namespace"),
    among=True,
    pinned=("name",),
)


def render(view: View, search: str) -> Component:
    """Return the selected forecast and the quality of the listed ones, above the list."""
    lead = html.P("The next day in half hours, and earlier errors. Enter or click on a row shows its chart.")
    head = html.Div([html.H1("Forecast"), lead, panels.render_guarded(lambda: _report(view))], className="page-head")
    body = panels.render_guarded(lambda: list_page.body(LIST, view, search))
    if view.source.snapshot().overview is None:
        return html.Div([head, body], className="page")
    hand, good, week = (html.Div(part.panel_of(view, search), id=id_) for id_, part in PARTS.items())
    return html.Div([head, html.Div([hand, good], className="row wide-narrow"), week, body], className="page tall-page")


def _report(view: View) -> Component:
    """Return a link to the report of the last back-test, if there is one."""
    report = view.source.backtest()
    if report is None:
        return html.Span()
    address = f"{view.settings.base_path}api/v1/backtest"
    title = f"{report.summary}, against named baselines"
    return html.A("Back-test report", href=address, target="_blank", className="quiet-link", title=title, id="backtest")


def subject_of(search: str, snapshot: Snapshot) -> Subject:
    """Return the forecast in the URL's `open` (scope/namespace/kind/name/resource), else that of the cluster's CPU."""
    parts = panels.address_parts(search)
    if len(parts) == KEY_PARTS:
        return Subject(*parts)
    cluster = snapshot.overview.cluster if snapshot.overview else ""
    return Subject("cluster", "", "", cluster, Resource.CPU.value)


def band(view: View, search: str) -> Component:
    """Return the chart of the selected forecast: its quantiles, and the usage before it."""
    subject = subject_of(search, view.source.snapshot())
    foreseen = view.source.foreseen(subject)
    title = f"{visible(subject.words)}, {'CPU' if subject.resource == Resource.CPU else subject.resource}"
    if foreseen is None:
        why = "The link may be old, or its series was deleted."
        command = "cotenant get forecast"
        return panels.panel(IN_HAND, panels.empty(f"No forecast of {title}.", why=why, command=command))
    resource = measured_resource(foreseen.row["resource"])
    if not any(foreseen.row[name] for name in workload_story.PATHS.values()):
        why = workload_story.forecast_quality_words(foreseen.row)
        return panels.panel(title, panels.empty("This forecast has no values.", why=why, command="cotenant doctor"))
    drawn = line(foreseen, resource).recent(carried.back_seconds(search, USUAL_SECONDS))
    figure = panels.figure(chart.chart(drawn), "foreseen-figure", BAND_HEIGHT)
    peak = f"{PEAK_NAME}: {display.amount(foreseen.row['peak'], resource)}"
    behind = [html.P(forecast_words(foreseen.row, resource)), *models(foreseen.row)]
    more = html.Details([html.Summary("Error and models of this forecast"), *behind], className="more", id="models")
    base = view.settings.base_path
    if subject.scope == "workload":
        ref = WorkloadRef(subject.namespace, subject.kind, subject.name)
        link = workload_address(base, ref, search, PATH)
        shown = f"{'&' if '?' in link else '?'}show=memory" if subject.resource == Resource.MEMORY.value else ""
        aside = dcc.Link(visible(ref.name), href=link + shown, className="quiet-link", id="to-portrait")
    elif subject.scope == "node":
        aside = dcc.Link("Node", href=f"{base}nodes/{quote(subject.name, safe='')}", className="quiet-link")
    else:
        aside = None
    return panels.panel(title, figure, more, aside=aside, note=peak)


def ahead(view: View, search: str) -> Component:
    """Return the forecast of the next week for the selected series, and the components of its past."""
    foreseen = view.source.foreseen(subject_of(search, view.source.snapshot()))
    return weekly.body(foreseen.week if foreseen else None)


def models(row: Row) -> list[Component]:
    """Return every model tested on this series, best first, with its error relative to yesterday's values."""
    compared = workload_story.model_losses(row)
    serving = set(str(row["model"]).split(" + "))
    if not compared:
        return [html.P("No model was tested on this series.")]
    most = max(loss for _, loss in compared)
    rows = []
    for name, loss in compared:
        bar = html.Span(className="bar", style={"width": f"{measures.ratio_of(loss, max(most, 1e-9)):.0%}"})
        cells = [html.Td([bar, html.Span(f"{loss:.2f}")], className="loss"), html.Td("yes" if name in serving else "")]
        rows.append(html.Tr([html.Th(name, scope="row"), *cells]))
    best, error = compared[0]
    summary = f"{len(compared)} models compared: best {best}, {error:.2f} x the error of repeating yesterday."
    table = panels.table(("Model", "Error (same time yesterday = 1)", "Serves"), rows, "facts models")
    mixed = html.P(
        "A series is forecast by a mixture of models and the trained booster, weighted by their results on held-out "
        f"days: here mostly {row['model']}."
    )
    return [html.P(summary), table, mixed]


def line(foreseen: ForecastDetail, resource: MeasuredResource) -> chart.Line:
    """Build the line to draw from a forecast: the past, the quantiles, the peak window."""
    ahead, paths = workload_story.ahead(foreseen.row)
    return chart.Line(
        resource=resource,
        times=foreseen.times,
        mean=foreseen.mean,
        request=foreseen.request,
        ahead=ahead,
        quantiles=paths,
        fine_95=workload_story.fine_95(foreseen.row),
        peak=foreseen.row["peak"],
        window=workload_story.peak_window(foreseen.row),
    )


def forecast_words(row: Row, resource: MeasuredResource) -> str:
    """Return a forecast's peak, model, measured error and reason in words."""
    highest, median = (display.amount(row[name], resource) for name in ("peak", "peak_median"))
    peak = f"{PEAK_NAME}: {highest} (p50: {median})"
    window = ""
    if row["peak_time"] is not None and row["peak_end"] is not None:
        window = f", {BUSIEST_NAME}: {display.clock(row['peak_time'])}–{display.clock(row['peak_end'])} UTC"
    return f"{peak}{window}. {workload_story.forecast_quality_words(row)}".strip()


def quality(view: View, search: str) -> Component:
    """Return the calibration of the listed forecasts, and the least reliable ones."""
    snapshot = view.source.snapshot()
    try:
        query = LIST.query(search)
    except UsageError as error:
        return panels.panel(GOOD, panels.failure_state(error.message, error.fix))
    drawn, worse, tested = snapshot.kept(
        ("quality", query), lambda: _calibration(snapshot, query), lambda _: QUALITY_CELLS
    )
    if drawn is None:
        return panels.panel(GOOD, panels.no_match("forecast"))
    figure = panels.figure(drawn, "coverage-figure", COVERAGE_HEIGHT)
    how = html.Details([html.Summary("How models are weighted"), *[html.P(text) for text in HOW]], className="more")
    note = "Listed forecasts by p95 coverage."
    return panels.panel(GOOD, figure, *worst(worse, tested, search), how, note=note)


def _calibration(snapshot: Snapshot, query: Query) -> tuple[Chart | None, list[list[Row]], int]:
    """Return the calibration chart (None without forecasts), the rows for `worst`, and how many were tested."""
    listed = snapshot.tables[FORECAST_LIST.name]
    covered = queries.columns_of(listed, query, "coverage_95")["coverage_95"]
    shown = queries.condition(listed, query)
    losing, uncovered = RowCondition("relative_wql > 1"), RowCondition("coverage_95 < ?", (UNDER,))
    numbers = [
        listed.numbers(shown & bad, (order,), slice(WORST))
        for bad, order in ((losing, "relative_wql DESC"), (uncovered, "coverage_95"))
    ]
    worse: list[list[Row]] = [list(listed.take(of_list, ITEM).rows()) for of_list in numbers]
    tested = listed.count(shown & RowCondition("relative_wql IS NOT NULL OR coverage_95 IS NOT NULL"))
    return (distribution.coverage(covered) if len(covered) else None), worse, tested


def worst(worse: Sequence[Sequence[Row]], tested: int, search: str) -> list[Component]:
    """Return the forecasts with the highest loss and those with the lowest coverage; empty if none was back-tested."""
    if not tested:
        return []
    lists: tuple[tuple[str, Callable[[Row], str]], ...] = (
        ("Worse than repeating yesterday", _worse),
        ("Band too narrow: 95 % expected", lambda row: f"{display.percent(float(row['coverage_95']))} covered"),
    )
    kept_parts = [part for part in search.lstrip("?").split("&") if part and part.partition("=")[0] != "open"]
    sections: list[Component] = []
    for (title, value), rows in zip(lists, worse, strict=True):
        items = []
        for row in rows:
            key = "/".join(quote(str(row[name]), safe="") for name in FORECAST_LIST.key)
            name = f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]
            href = "?" + "&".join([*kept_parts, f"open={quote(key, safe='')}"])
            link = dcc.Link(visible(str(name)), href=href, title="Show its band")
            value_text = html.Span(value(row), className="worst-value")
            items.append(html.Li([link, html.Span(str(row["resource"]), className="dim"), value_text]))
        if items:
            sections.append(html.Section([html.H3(title), html.Ul(items, className="worst")]))
    if not sections:
        return [html.P("All forecasts beat repeating yesterday; none has too low coverage.", className="panel-note")]
    return [html.Div(sections, className="row halves worst-lists")]


def _worse(row: Row) -> str:
    """Return the loss as a multiple of that of yesterday's values, which means little for a nearly constant series."""
    loss = float(row["relative_wql"])
    return f"error {loss:.2f} x as high" if loss <= MOST_TIMES else f"error over {MOST_TIMES} x as high"


PARTS: Final = {
    "foreseen": LivePart(IN_HAND, band),
    "forecast-quality": LivePart(GOOD, quality),
    "week": LivePart(weekly.AHEAD, ahead),
}


def register(app: Dash, view: View) -> None:
    """Register the list's callbacks; chart and quality follow the URL and new results."""
    list_page.register(app, view, LIST)
    redraw(app, view, PATH, PARTS)


OBEYED: Final = Obeyed(time_range="the range applies to the present forecast, not to errors.", forecast=True)
PAGE: Final = Page(PATH, "Forecast", "f", render, register, place=Place.PEAKS, obeyed=OBEYED)
