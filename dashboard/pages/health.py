"""Health: where the data come from, what was missing and repaired, when jobs last ran, and the versions in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.text import visible
from cotenant.base.usage.quality import DEFECT_SENTENCES, QualityRecord, joined_scrapes
from cotenant.dashboard.changes import permissions
from cotenant.dashboard.figures import display, distribution
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.live_page import LivePart, redraw
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.sources.source import Upkeep
from cotenant.dashboard.sources.status import PULL, Status, status

PATH: Final = "health"
NAMESPACES_SHOWN: Final = 15
DAYS_HEIGHT: Final = 170
LOST_NOTE: Final = (
    "The files of these days were unreadable and set aside; the next scan fills the gaps that the source still has."
)


def render(view: View, search: str) -> Component:
    """Return the page; its callback redraws it when results change."""
    body = html.Div(panels.render_guarded(lambda: contents(view, search)), id="health-body")
    lead = html.P("The source of the data, its gaps, and the last run of each job.")
    head = html.Div([html.H1("Health"), lead], className="page-head")
    return html.Div([head, body, permissions.panel_containers()], className="page")


def contents(view: View, search: str = "") -> Component:
    """Return the content of the Health page below its heading, also without results: then it matters most."""
    overview, acts = view.source.snapshot().overview, view.given.changes is not None
    try:
        upkeep = view.source.upkeep()
    except CotenantError as error:
        now = status(overview, Upkeep(), view.now_seconds(), acts=acts)
        shown = replace(now, jobs=[job for job in now.jobs if job.name != PULL])  # nothing can be said about pulls
        refused = panels.panel("Sources", panels.trouble(error))
        return html.Div([_first_row(shown), html.Div([refused, _process(now)], className="row wide-narrow")])
    now = status(overview, upkeep, view.now_seconds(), acts=acts)
    recording = []
    if now.recording:  # what a recorder of the cluster says of itself
        lines = html.Ul([html.Li(visible(line)) for line in now.recording], className="notes")
        recording = [panels.panel("Recording", lines, id_="health-recording")]
    note, lost = "", html.P("The files of every stored day can be read.", className="said")
    if now.lost_days:
        note = LOST_NOTE
        rows = [(visible(s), panels.day(start), visible(path)) for s, start, path in now.lost_days]
        lost = panels.facts(("Signal", "Day", "Set aside as"), rows, "Lost days")
    thirds = [_defects(now), panels.panel("Lost days", lost, note=note), _process(now)]
    parts = [*recording, _pulls(now.pulls), *_intervals(now.pulls), *_coverage(upkeep, search)]
    return html.Div([_first_row(now), *parts, html.Div(thirds, className="row thirds")])


def _first_row(now: Status) -> Component:
    rows = []
    for job in now.jobs:
        age: Any = panels.chip("never", "orange")
        if job.last_seconds is not None and job.age_seconds is not None:
            ago = html.Span(f"{display.duration(job.age_seconds)} ago")
            age = [ago, html.Br(), panels.moment(job.last_seconds)]
        rows.append((job.name, age, job.words))
    jobs = panels.panel("Jobs", panels.facts(("What", "Last success", "Result"), rows, "Jobs"))
    permissions_panel = panels.panel(
        "Permissions",
        html.P(now.permissions, className="said"),
        html.P("This command checks what a scan may read, and names fixes:", className="said"),
        html.Pre(html.Code("cotenant doctor"), className="command", tabIndex=0),
        html.H3("Notes of the last analysis"),
        html.Ul([html.Li(visible(n)) for n in now.notes] or [html.Li("Nothing to report.")], className="notes"),
    )
    return html.Div([jobs, permissions_panel], className="row wide-narrow")


def _process(now: Status) -> Component:
    rows = [("settings", now.settings_digest or display.MISSING), ("strategy", now.strategy or display.MISSING)]
    rows += list(now.versions.items())
    return panels.panel("Settings and versions", panels.pairs(rows))


def _pulls(pulls: Sequence[QualityRecord]) -> Component:
    if not pulls:
        why, command = "The store has no record of a pull.", "cotenant scan --prometheus URL\ncotenant demo"
        return panels.panel("Sources", panels.empty("No data were pulled yet.", why=why, command=command))
    heads = ("When", "Source", "Scrape interval", "Queries", "Samples", "Server time", "Own time", "Defects")
    rows = [
        (
            panels.moment(p.time_seconds),
            visible(p.source),
            display.duration(p.scrape_interval_seconds),
            f"{p.queries:,}",
            f"{p.samples:,}",
            f"{p.server_seconds:,.1f} s",
            f"{p.client_seconds:,.1f} s",
            f"{p.defects_count:,}",
        )
        for p in pulls
    ]
    return panels.panel("Sources", panels.facts(heads, rows, "Pulls"), note="Newest first.")


def _intervals(pulls: Sequence[QualityRecord]) -> list[Component]:
    """Return which series were scraped how often, and when; empty if all have the same interval."""
    spans = joined_scrapes(pulls)
    if len({span.interval_seconds for span in spans}) < 2:
        return []
    note = (
        "Each series is read at its own interval. With rarer samples a rate covers a longer time, and hides shorter "
        "peaks. Containers and nodes count in the hours in which they existed."
    )
    heads = ("From", "To", "Scraped each", "Longest time that a rate covers", "Series")
    rows = [
        (
            panels.moment(span.start_seconds),
            panels.moment(span.end_seconds),
            display.duration(span.interval_seconds),
            display.duration(span.window_seconds),
            f"{span.series:,}",
        )
        for span in spans
    ]
    return [panels.panel("Scrape intervals", panels.facts(heads, rows, "Scrape intervals"), note=note)]


def _defects(now: Status) -> Component:
    newest = now.pulls[0] if now.pulls else None
    defects = {d: n for d, n in newest.defects.items() if n} if newest else {}
    if not defects:
        text = "The last pull found no problem." if newest else "No data were pulled yet, so none were checked."
        return panels.panel("What was mended", html.P(text, className="said"))
    rows = [(d.value, f"{n:,}", DEFECT_SENTENCES[d]) for d, n in sorted(defects.items(), key=lambda pair: -pair[1])]
    table = panels.facts(("Defect", "Count", "What was done"), rows, "Defects of the last pull")
    return panels.panel("What was mended", table)


def _coverage(upkeep: Upkeep, search: str) -> list[Component]:
    """Return the coverage by day and by namespace, if the results have it."""
    includes = carried.admits(search)
    namespaces = [row for row in upkeep.namespaces if includes(str(row["namespace"]))]
    cards = []
    if upkeep.days:
        drawn = distribution.completeness(upkeep.days)
        note = "Share of the samples that were due while pods existed, by UTC day."
        figure = panels.figure(drawn, "days-figure", DAYS_HEIGHT)
        cards.append(panels.panel("Samples present by day", figure, note=note))
    if namespaces:
        rows = sorted(namespaces, key=lambda r: (r["coverage"] or 0.0, -(r["longest_gap_seconds"] or 0)))
        shown = [
            (
                visible(r["namespace"]),
                f"{r['series'] or 0:,}",
                display.share(r["coverage"]),
                display.duration(r["longest_gap_seconds"] or 0),
                panels.moment(r["newest"]) if r["newest"] else display.MISSING,
            )
            for r in rows[:NAMESPACES_SHOWN]
        ]
        rest = measures.left_out_count(len(rows), len(shown))
        note = "Worst first" + (f"; {rest:,} more namespaces are no worse." if rest > 0 else ".")
        heads = ("Namespace", "Series", "Samples present", "Longest gap", "Newest sample")
        table = panels.facts(heads, shown, "Samples present by namespace")
        cards.append(panels.panel("Gaps by namespace", table, note=note))
    return [html.Div(cards, className="row halves")] if cards else []


def register(app: Dash, view: View) -> None:
    """Register the callbacks: new results redraw all, a new URL redraws all but the panels of rights."""
    redraw(app, view, PATH, {"health-body": LivePart("", contents)})
    permissions.register(app, view)


OBEYED: Final = Obeyed("the namespace filters only the table Gaps.", "all stored data are listed.", spans=False)
PAGE: Final = Page(PATH, "Health", "h", render, register, place=Place.FOOT, obeyed=OBEYED)
