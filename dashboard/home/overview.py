"""Home: what to do first, the cluster's next day, what was saved, what a risk would lend, and links to all else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.text import visible
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.figures import band, display, heat, waste
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.callbacks import in_browser
from cotenant.dashboard.frame.live_page import LivePart, redraw
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.home import answers, beginnings, cards, numbers, risk
from cotenant.dashboard.home.page_data import OverviewPage, overview_page
from cotenant.dashboard.nodes import policy_offer
from cotenant.dashboard.tables import selection as choosing
from cotenant.recommender.model.finding import FINDING_SENTENCES, FindingKind
from cotenant.recommender.model.views import FINDINGS, RECLAIMABLE, Overview

WASTE_BARS: Final = 10
"""Most namespaces in the waste ranking: as many as fit a screen; the table has all namespaces."""

SEVERITY_ORDER: Final = tuple(reversed([s.value for s in Severity]))
DAY_HEIGHT: Final = 200
"""Height of the day's chart in pixels, with which it and the cards fit the window of a laptop."""
HEAT_HEIGHT: Final = 310
WORTH_MOST: Final = 3


def render(view: View, search: str) -> Component:
    """Return the Home page with its content; callbacks redraw it when results or the URL change."""
    head = html.Div(html.H1("Home"), className="page-head")
    body = panels.render_guarded(lambda: contents(view, search))
    return html.Div([head, html.Div(body, id="overview-body")], className="page")


def contents(view: View, search: str = "") -> Component:
    """Return the content of the Home page below its heading."""
    page = overview_page(view, search)
    if page is None:
        return beginnings.empty(view.source.recorder_status(), view.now_seconds())
    overview, base = page.overview, view.settings.base_path
    in_sight: tuple[tuple[str, Sequence[Callable[[], Component]]], ...] = (
        ("", [lambda: cards.cards(page)]),
        ("row wide-narrow home-day", [
            lambda: panels.panel("The cluster's day", html.Div(_band(page, Resource.CPU), id="band"),
                                 aside=panels.resource_switch("band-resource")),
            lambda: numbers.saved(view),
        ]),
        ("row", [lambda: _young(view, overview)]),
    )  # fmt: skip
    folded: tuple[tuple[str, str, Sequence[Callable[[], Component]]], ...] = (
        (answers.TITLE, "", [lambda: answers.panel(page)]),
        ("Capacity lent at each risk", "", [lambda: risk.part(view), lambda: _policy(page)]),
        ("More of the cluster in numbers", "", [
            lambda: html.P(_lead(page), className="lead"), lambda: numbers.present(page),
            lambda: numbers.headline(overview), lambda: _quality(overview, base),
        ]),
        ("CPU usage through the week", "", [
            lambda: panels.panel(
                "Hour by weekday", panels.figure(heat.chart(overview.heat), "heat-figure", HEAT_HEIGHT),
                note="Mean CPU usage in % of allocatable, by weekday and hour."),
        ]),
        ("Who requests most without using it", "", [lambda: _waste_panel(page)]),
        ("Recommendations and findings by kind", "row halves", [lambda: _outcome(page), lambda: _findings(page)]),
    )  # fmt: skip
    first = [html.Div([panels.render_guarded(draw) for draw in drawn], className=name) for name, drawn in in_sight]
    rest = [
        html.Details(
            [html.Summary(html.H2(title)), html.Div([panels.render_guarded(draw) for draw in drawn], className=name)],
            className="home-more",
            id=f"home-{title.split()[-1].lower()}",
        )
        for title, name, drawn in folded
    ]
    return html.Div([*first, *rest])


def _young(view: View, overview: Overview) -> Component:
    """Return what is still to come while the history is short; else an empty part, without reading the recorder."""
    if overview.window_days >= beginnings.STAGES[-1].days:
        return html.Div()
    drawn = beginnings.young(overview.window_days, view.source.recorder_status(), view.now_seconds())
    return drawn or html.Div()


def _lead(page: OverviewPage) -> str:
    overview = page.overview
    things = ((overview.nodes, "node"), (overview.workloads, "workload"), (overview.pods, "pod"))
    whose = f" (workloads and pods {page.whose})" if page.whose else ""
    return (
        f"{', '.join(display.counted(number, noun) for number, noun in things)}{whose}; "
        f"{overview.window_days:.0f} days of history from {visible(overview.source)}, "
        f"until {display.moment(overview.time_seconds)}."
    )


def _policy(page: OverviewPage) -> Component:
    """Return the offer of another reclaim policy if the back-test supports it; else an empty part."""
    lent = page.snapshot.tables[RECLAIMABLE.name]
    offered = policy_offer.offer(page.view.source.policy_trial(), policy_offer.policies_now(lent))
    if offered is None:
        return html.Div()
    commands = [html.Li([f"{what}: ", html.Code(command)]) for what, command in policy_offer.COMMANDS]
    thresholds = html.P([html.Code(policy_offer.FIELD), ". ", policy_offer.THRESHOLDS])
    how = [html.Summary("How to switch"), html.Ul(commands, className="reasons"), thresholds]
    sentence = html.P(policy_offer.sentence(offered), className="said")
    return html.Div([sentence, html.Details(how, className="more")], id="policy-offer", className="panel")


def _band(page: OverviewPage, resource: Resource) -> Component:
    series = page.overview.cpu if resource is Resource.CPU else page.overview.memory
    if not series.times:
        why = "The source had no samples in the window."
        return panels.empty(f"No {resource} usage in the history.", why=why, command="cotenant doctor")
    drawn = band.chart(series, resource, carried.back_seconds(page.search, band.USUAL_SECONDS))
    return panels.figure(drawn, "band-figure", DAY_HEIGHT)


def _waste_panel(page: OverviewPage) -> Component:
    note = "Requested minus used, by namespace. Click a bar for its workloads."
    switch = panels.resource_switch("waste-measure", more=[{"value": "money", "label": "Money"}])
    ranked = html.Div(_waste(page, "cpu"), id="waste")
    return panels.panel("Requested and not used", ranked, aside=switch, note=note)


def _waste(page: OverviewPage, chosen: str) -> Component:
    """Return bars, with links, of the namespaces with the most waste; `chosen` is "cpu", "memory" or "money"."""
    overview, view = page.overview, page.view
    limit, measure = WASTE_BARS, view.prices if chosen == "money" else Resource(chosen)
    rows = waste.most_wasteful(overview.waste, measure, limit)
    if not rows:
        link = ("What each workload uses", page.href("workloads"))
        return panels.empty("No namespace requests more than it uses.", why="No request can be cut.", link=link)
    chart = panels.figure(waste.chart(overview.waste, measure, limit), "waste-figure", 40 + 26 * len(rows))
    links = [dcc.Link(visible(w.namespace), href=page.href("workloads", urlencode({"ns": w.namespace}))) for w in rows]
    attributes = {"aria-label": "Workloads by namespace"}
    return html.Div([chart, html.Nav([html.Span("Workloads of "), *links], className="waste-links", **attributes)])


def _outcome(page: OverviewPage) -> Component:
    counts, total = page.all_severities, page.all_severities.total()
    note = f"{display.counted(total, 'container')}, strategy {page.overview.strategy}."
    if not total:
        none = panels.empty("No recommendation was made.", command="cotenant scan --prometheus URL")
        return panels.panel("Recommendations", panels.no_match("recommendation") if len(page.advice) else none)
    severities = []
    for word in SEVERITY_ORDER:
        if count := counts[word]:
            link = dcc.Link(panels.chip(word, word), href=page.href("recommendations", f"severity={word}"))
            share = measures.ratio_of(count, total)
            fill = html.Div(className=f"meter-fill tone-fill-{word}", style={"width": f"{share:.1%}"})
            bar = html.Div(fill, className="meter")
            severities.append(html.Li([link, bar, html.Span(f"{count:,}", className="share-count")]))
    # The five reason codes that most containers carry, each with its count, sentence and rows.
    reasons = sorted(((n, Reason(code)) for code, n in page.reasons.items() if n and code in set(Reason)), reverse=True)
    rows = []
    for count, reason in reasons[:5]:
        link = dcc.Link(label(reason), href=page.href("recommendations", f"reason={reason.value}"))
        rows.append(html.Li([link, f" {display.counted(count, 'container')}. {SENTENCES[reason]}"]))
    why = [*_worth_most(page), html.H3("Why"), html.Ul(rows, className="reasons")]
    shares = html.Ul(severities, className="shares")
    return panels.panel("Recommendations", shares, panels.severity_legend(), *why, note=note)


def _worth_most(page: OverviewPage) -> list[Component]:
    """Return the workloads that save most, each with a link to its review; empty on a read-only dashboard."""
    view = page.view
    if view.given.changes is None:
        return []
    best = choosing.worth_most(page.advice, WORTH_MOST, page.query)
    rows = []
    for ref, saved in best:
        way = dcc.Link(f"Review {visible(str(ref))}", href=reviewing.href(view.settings.base_path, [ref]))
        frees = f" frees net {display.money(saved, view.currency)} a month now"
        rows.append(html.Li([way, html.Span(frees, className="selection-sum")]))
    return [html.H3("Worth most"), html.Ul(rows, className="reasons", id="worth-most")] if rows else []


def _findings(page: OverviewPage) -> Component:
    counts = page.counts(FINDINGS.name, "finding")
    note = "Problems that recommendations do not solve."
    if not counts:
        link = ("What can be lent", page.href("batch"))
        none = panels.empty("Nothing was found.", why="No workload or node needs attention.", link=link)
        has_others = len(page.snapshot.tables[FINDINGS.name]) > 0
        return panels.panel("Findings", panels.no_match("finding") if has_others else none, note=note)
    rows = []
    for kind, count in counts.items():
        link = dcc.Link([panels.chip(label(kind)), f" {count:,}"], href=page.href("findings", f"finding={kind}"))
        sentence = FINDING_SENTENCES[FindingKind(kind)] if kind in set(FindingKind) else ""
        rows.append(html.Li([link, html.P(sentence)]))
    every = dcc.Link("All findings", href=page.href("findings"), className="button")
    return panels.panel("Findings", html.Ul(rows, className="reasons finding-list"), every, note=note)


def _quality(overview: Overview, base: str) -> Component:
    facts = (
        f"{display.share(overview.coverage)} of samples present",
        f"scraped every {display.duration(overview.scrape_interval_seconds)}",
        f"computed {display.moment(overview.computed_seconds)}",
        f"settings {overview.settings_digest}",
    )
    notes = html.Ul([html.Li(visible(note)) for note in overview.notes], className="notes")
    more = dcc.Link("Health", href=f"{base}health")
    line = html.P([" · ".join(facts), ". Sources, gaps and jobs: ", more, "."], className="said")
    return panels.panel("Data quality", line, notes)


def register(app: Dash, view: View) -> None:
    """Register the callbacks: redraw on new results or a new URL; switch the measure; open a namespace's bar."""

    def drawn(search: str | None, draw: Callable[[OverviewPage], Component]) -> Component:
        def draw_results() -> Component:
            page = overview_page(view, search or "")
            return panels.no_results() if page is None else draw(page)

        return panels.render_guarded(draw_results)

    redraw(app, view, "", {"overview-body": LivePart("", contents)})

    @app.callback(Output("waste", "children"), Input("waste-measure", "value"), State("url", "search"))
    def _rank(measure: str, search: str | None) -> Component:
        return drawn(search, lambda page: _waste(page, measure))

    @app.callback(Output("band", "children"), Input("band-resource", "value"), State("url", "search"))
    def _switch(resource: str, search: str | None) -> Component:
        return drawn(search, lambda page: _band(page, Resource(resource)))

    risk.register(app, view)
    in_browser(app, "drill", Input("waste-figure", "clickData"))


OBEYED: Final = Obeyed(
    "nodes, capacity, the headline, the curves and the peak are for the whole cluster.",
    "the range applies only to the panel The cluster's day; other panels show the present or the whole history.",
    forecast=True,
    spans=False,
)
PAGE: Final = Page("", "Home", "o", render, register, place=Place.HOME, obeyed=OBEYED)
