"""Overview: how full the cluster is, how its day goes, what could be reclaimed, and what is worth doing first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.tables import queries, time_span
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import RowCondition
from cotenant.base.text import percent, visible
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.figures import band, heat, waste
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.nodes import lent_now, policy_offer
from cotenant.dashboard.sources.namespace_filter import OF_THESE, overview_of
from cotenant.dashboard.tables import carried, display, savings
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.labels import label
from cotenant.dashboard.tables.savings import ReadyCounts
from cotenant.recommender.model.finding import FINDING_SENTENCES, FindingKind
from cotenant.recommender.model.savings import PlannedSavings
from cotenant.recommender.model.views import FINDINGS, RECLAIMABLE, RECOMMENDATIONS, Overview
from cotenant.scheduler_ext.cluster_size.report import best_known, short_sentence

WASTE_BARS: Final = 10
"""Namespaces in the waste ranking. What fits a screen; the table has all namespaces."""

SEVERITY_ORDER: Final = tuple(reversed([s.value for s in Severity]))
BAND_HEIGHT: Final = 310
WORTH_MOST: Final = 3
CLUSTER_SIZE: Final = "cluster-size"
READY: Final = f"ready={','.join(savings.READY)}"
"""The filter of what can be applied now."""
ABOVE_REQUEST: Final = RowCondition("memory_observed_max > coalesce(memory_request_now, memory_limit_now)")
"""Containers that the kubelet evicts first when a node runs out of memory."""
OF_CHOSEN: Final = "of the chosen namespaces"
RESOURCES: Final = [{"value": "cpu", "label": "CPU"}, {"value": "memory", "label": "Memory"}]


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The data from which the page is drawn under an address: the results, narrowed to its namespaces."""

    view: View
    search: str
    overview: Overview
    """Whose counts and sums are of the chosen namespaces; nodes, capacity and curves are of the whole cluster."""
    query: Query
    """The chosen namespaces, for any table that has a column of them."""

    def href(self, page: str, query: str = "") -> str:
        """An address of another page under the same choices."""
        search = carried.join_queries(query, carried.carried_parts(self.search, "ns", "range"))
        return f"{self.view.settings.base_path}{page}" + (f"?{search}" if search else "")


def overview_page(view: View, search: str) -> OverviewPage | None:
    """Return the page's data from the newest results; None without results.

    Raises UsageError for an invalid namespace filter.
    """
    snapshot, query = view.source.snapshot(), carried.namespace_query(search)
    overview = snapshot.overview
    if overview is not None and query.conditions:
        overview = overview_of(overview, snapshot.tables, query, carried.admits(search))
    return None if overview is None else OverviewPage(view, search, overview, query)


def render(view: View, search: str) -> Component:
    """The page, drawn at once; its callbacks redraw when results or the address change."""
    head = html.Div(html.H1("Home"), className="page-head")
    body = panels.render_guarded(lambda: contents(view, search))
    return html.Div([head, html.Div(body, id="overview-body")], className="page")


def contents(view: View, search: str = "") -> Component:
    """Everything below the heading."""
    page = overview_page(view, search)
    if page is None:
        return panels.no_results()
    overview, base = page.overview, view.settings.base_path
    ready = cache(lambda: ready_of(page))
    rows: tuple[tuple[str, Sequence[Callable[[], Component]]], ...] = (
        ("", [lambda: _verdict(page, ready())]),
        ("", [lambda: html.P(_lead(page), className="lead")]),
        ("", [lambda: _headline(overview)]),
        ("", [lambda: _present(page, ready())]),
        ("", [lambda: _policy(view)]),
        ("row wide-narrow", [lambda: _band_panel(page), lambda: _heat_panel(overview)]),
        ("row thirds", [lambda: _waste_panel(page), lambda: _outcome(page), lambda: _findings(page)]),
        ("row", [lambda: _quality(overview, base)]),
    )
    return html.Div([html.Div([panels.render_guarded(draw) for draw in drawn], className=name) for name, drawn in rows])


def _lead(page: OverviewPage) -> str:
    overview = page.overview
    things = ((overview.nodes, "node"), (overview.workloads, "workload"), (overview.pods, "pod"))
    whose = f", workloads and pods {_whose(page)}" if _whose(page) else ""
    return (
        f"{', '.join(display.counted(number, noun) for number, noun in things)}{whose}; "
        f"{overview.window_days:.0f} days of history from {visible(overview.source)}, "
        f"until {display.moment(overview.time_seconds)}."
    )


def _whose(page: OverviewPage) -> str:
    """Describe which namespaces the counts and sums cover; "" when they cover all."""
    if page.query.conditions:
        return OF_CHOSEN
    return "" if page.view.given.people().reads is None else OF_THESE


def _verdict(page: OverviewPage, ready: Ready) -> Component:
    """One sentence before anything else: what can be lent, what can be saved, what is at risk."""
    overview, view = page.overview, page.view
    lent = lent_now.sentence(overview, view.source.snapshot().tables[RECLAIMABLE.name])
    saved = ["what is ready to apply now ", *savings.saving_parts(ready.planned.now, view.currency), "; "]
    counts = dict(queries.facet(view.source.snapshot().tables[FINDINGS.name], page.query, "severity"))
    critical = counts.get(Severity.CRITICAL.value, 0)
    href = page.href("findings", f"severity={Severity.CRITICAL.value}")
    findings = [dcc.Link(display.counted(critical, "critical finding"), href=href), " and "] if critical else []
    advice = view.source.snapshot().tables[RECOMMENDATIONS.name]
    short = advice.count(queries.condition(advice, page.query) & ABOVE_REQUEST)
    rows = dcc.Link(display.counted(short, "container"), href=page.href("recommendations", "sort=-memory_delta_total"))
    risk = ["at risk: ", *findings, rows, " that used more memory than requested."]
    if not short:
        risk = ["at risk: ", *findings[:1], "."] if findings else ["nothing is at risk."]
    return html.P([*lent, *saved, *_nodes_that_could_leave(page), *risk], className="verdict", id="overview-verdict")


def _nodes_that_could_leave(page: OverviewPage) -> list[Component | str]:
    """The number of nodes that freed requests let go of; nothing where `cotenant size` has not run."""
    report = page.view.source.cluster_size()
    level = best_known(report) if report else None
    if report is None or level is None:
        return []
    return [dcc.Link(short_sentence(report, level), href=page.href(CLUSTER_SIZE)), "; "]


@dataclass(frozen=True, slots=True)
class Ready:
    """Recommendations that pass the guardrails now, and what all of them free and raise, now and after all steps."""

    counts: ReadyCounts
    planned: PlannedSavings


def ready_of(page: OverviewPage) -> Ready:
    """Return the counts and savings of the rows that the list shows under the same filter."""
    advice = page.view.source.snapshot().tables[RECOMMENDATIONS.name]
    return Ready(savings.ready_counts(advice, page.query), savings.planned_savings(advice, page.query))


def _headline(overview: Overview) -> Component:
    """The six numbers of kubernetes-mixin's cluster dashboard, in its words and order."""
    h = overview.headline
    shares = (
        ("CPU Utilisation", h.cpu_utilisation, "red"),
        ("CPU Requests Commitment", h.cpu_requests_commitment, "red"),
        ("CPU Limits Commitment", h.cpu_limits_commitment, "blue"),
        ("Memory Utilisation", h.memory_utilisation, "red"),
        ("Memory Requests Commitment", h.memory_requests_commitment, "red"),
        ("Memory Limits Commitment", h.memory_limits_commitment, "blue"),
    )
    # Limits above what nodes have are normal where pods burst: no alarm.
    stats = [panels.stat(label, display.percent(share), bar=share, over=over) for label, share, over in shares]
    return html.Div(stats, className="stats six")


def _present(page: OverviewPage, ready: Ready) -> Component:
    """Show what could be used now, the coming peak, and what is worth doing."""
    overview = page.overview
    unknown = lent_now.not_of_all(overview, page.view.source.snapshot().tables[RECLAIMABLE.name])
    return html.Div(
        [
            _reclaimable(
                "Batch reclaimable now",
                overview.cpu.batch_now,
                overview.memory.batch_now,
                unknown or "from what prod pods do not use",
            ),
            _reclaimable(
                "Mid reclaimable now",
                overview.cpu.mid_now,
                overview.memory.mid_now,
                unknown or "from what prod pods request and will not use soon",
            ),
            _peak(overview),
            _worth(page, ready),
        ],
        className="stats four",
    )


def _reclaimable(label: str, cpu: float, memory: float, detail: str) -> Component:
    value = [panels.amount(cpu, Resource.CPU), " · ", panels.amount(memory, Resource.MEMORY)]
    return panels.stat(label, value, detail)


def _policy(view: View) -> Component:
    """The offer of another reclaim policy where the back-test speaks for it; nothing otherwise."""
    lent = view.source.snapshot().tables[RECLAIMABLE.name]
    offered = policy_offer.offer(view.source.policy_trial(), policy_offer.policies_now(lent))
    if offered is None:
        return html.Div()
    commands = [html.Li([f"{what}: ", html.Code(command)]) for what, command in policy_offer.COMMANDS]
    how = [
        html.Ul(commands, className="reasons"),
        html.P([html.Code(policy_offer.FIELD), ". ", policy_offer.THRESHOLDS]),
    ]
    more = html.Details([html.Summary("How to switch"), *how], className="more")
    return html.Div(
        [html.P(policy_offer.sentence(offered), className="said"), more], id="policy-offer", className="panel"
    )


def _peak(overview: Overview) -> Component:
    peak = overview.peak
    if peak is None:
        return panels.stat(PEAK_NAME, "unknown", overview.peak_reason)
    rise = f", {percent(peak.above_mean, signed=True)} over the day's mean" + ("" if peak.pronounced else " (mild)")
    led = f"; led by {visible(peak.led_by)}" if peak.led_by else ""
    height = panels.amount(peak.height_millicores, Resource.CPU)
    detail = html.Span([f"{BUSIEST_NAME}: ", panels.window(peak.start_seconds, peak.end_seconds), rise, led])
    return panels.stat(PEAK_NAME, [panels.clock(peak.start_seconds), ", ", height], detail)


def _worth(page: OverviewPage, ready: Ready) -> Component:
    """Show what passes the guardrails now, as the list orders it, and the sum of all recommendations beside it."""
    currency, counts = page.view.currency, ready.counts
    second = f"; {savings.second_person_words(counts.second_person)}" if counts.second_person else ""
    after = [" After all steps it ", *savings.saving_parts(ready.planned.all_steps, currency), "."]
    if not counts.ready:
        return panels.stat("Ready to apply", f"nothing{second}", html.Span(after[1:], id="overview-worth"))
    now = ["Now it ", *savings.saving_parts(ready.planned.now, currency), "."]
    link = dcc.Link("See them", href=page.href("recommendations", READY))
    count = f"{display.counted(counts.ready, 'recommendation')}{second}"
    return panels.stat("Ready to apply", count, html.Span([*now, *after, " ", link], id="overview-worth"))


def _band_panel(page: OverviewPage) -> Component:
    switch = dmc.SegmentedControl(
        id="band-resource",
        value=Resource.CPU.value,
        data=RESOURCES,
        size="xs",
    )
    note = "Cluster total, hourly means of the last 7 days unless a time range is chosen, and the next 24 hours."
    chart = html.Div(_band(page, Resource.CPU), id="band")
    return panels.panel("Peaks and valleys", chart, aside=switch, note=note)


def _band(page: OverviewPage, resource: Resource) -> Component:
    series = page.overview.cpu if resource is Resource.CPU else page.overview.memory
    if not series.times:
        return panels.empty(
            f"No {resource} usage in the history.",
            why="The source had no samples in the window.",
            command="cotenant doctor",
        )
    drawn = band.chart(series, resource, carried.back_seconds(page.search, band.USUAL_SECONDS))
    return panels.figure(drawn, "band-figure", BAND_HEIGHT)


def _heat_panel(overview: Overview) -> Component:
    note = "Mean CPU usage of allocatable by weekday and hour."
    return panels.panel(
        "Hour by weekday", panels.figure(heat.chart(overview.heat), "heat-figure", BAND_HEIGHT), note=note
    )


def _waste_panel(page: OverviewPage) -> Component:
    note = "Requested minus used, by namespace. A bar leads to its workloads."
    choices = [*RESOURCES, {"value": "money", "label": "Money"}]
    switch = dmc.SegmentedControl(id="waste-measure", value="cpu", data=choices, size="xs")
    ranked = html.Div(_waste(page, "cpu"), id="waste")
    return panels.panel("Waste", ranked, aside=switch, note=note)


def _waste(page: OverviewPage, chosen: str) -> Component:
    """Bars of the namespaces that request most beyond their use, and links to their workloads.

    chosen: "cpu", "memory", or "money" at the prices of the settings.
    """
    overview, view = page.overview, page.view
    limit, measure = WASTE_BARS, view.prices if chosen == "money" else Resource(chosen)
    rows = waste.most_wasteful(overview.waste, measure, limit)
    if not rows:
        return panels.empty(
            "No namespace requests more than it uses.",
            why="There is nothing to cut here.",
            link=("What each workload uses", page.href("workloads")),
        )
    chart = panels.figure(waste.chart(overview.waste, measure, limit), "waste-figure", 40 + 26 * len(rows))
    ranged = carried.carried_parts(page.search, time_span.RANGE)
    links = [
        dcc.Link(
            visible(w.namespace),
            href=f"{view.settings.base_path}workloads?{carried.join_queries(urlencode({'ns': w.namespace}), ranged)}",
        )
        for w in rows
    ]
    listed = html.Nav(
        [html.Span("Workloads of "), *links], className="waste-links", **{"aria-label": "Workloads by namespace"}
    )
    return html.Div([chart, listed])


def _outcome(page: OverviewPage) -> Component:
    overview, total = page.overview, sum(page.overview.severities.values())
    note = f"{display.counted(total, 'container')}, strategy {overview.strategy}."
    if not total:
        return panels.panel(
            "Recommendations", panels.empty("No recommendation was made.", command="cotenant scan --prometheus URL")
        )
    severities = [
        _share(word, overview.severities[word], total, page.href("recommendations", f"severity={word}"), word)
        for word in SEVERITY_ORDER
        if overview.severities.get(word)
    ]
    reasons = _reasons(page)
    shares = html.Ul(severities, className="shares")
    return panels.panel(
        "Recommendations", shares, panels.severity_legend(), *_worth_most(page), html.H3("Why"), reasons, note=note
    )


def _worth_most(page: OverviewPage) -> list[Component]:
    """The workloads that save most, each with a way into its review; nothing where this dashboard is read-only."""
    view = page.view
    if view.given.changes is None:
        return []
    advice = view.source.snapshot().tables[RECOMMENDATIONS.name]
    best = choosing.worth_most(advice, WORTH_MOST, page.query)
    rows = [
        html.Li(
            [
                dcc.Link(f"Review {visible(str(ref))}", href=reviewing.href(view.settings.base_path, [ref])),
                html.Span(f" frees {display.money(saved, view.currency)} a month now, net", className="selection-sum"),
            ]
        )
        for ref, saved in best
    ]
    return [html.H3("Worth most"), html.Ul(rows, className="reasons", id="worth-most")] if rows else []


def _share(word: str, count: int, total: int, href: str, tone: str) -> Component:
    bar = html.Div(
        html.Div(className=f"meter-fill tone-fill-{tone}", style={"width": f"{count / total:.1%}"}), className="meter"
    )
    return html.Li(
        [dcc.Link(panels.chip(word, tone), href=href), bar, html.Span(f"{count:,}", className="share-count")]
    )


def _reasons(page: OverviewPage) -> Component:
    """The five reason codes that most recommended values carry, each with its count, sentence and rows."""
    reasons = page.overview.reasons
    ranked = sorted(((n, Reason(code)) for code, n in reasons.items() if n and code in set(Reason)), reverse=True)[:5]
    rows = [
        html.Li(
            [
                dcc.Link(label(reason), href=page.href("recommendations", f"reason={reason.value}")),
                f" {display.counted(count, 'value')}. {SENTENCES[reason]}",
            ]
        )
        for count, reason in ranked
    ]
    return html.Ul(rows, className="reasons")


def _findings(page: OverviewPage) -> Component:
    """Show the number of findings of each kind, the most frequent first, each with a link to them."""
    counts = queries.facet(page.view.source.snapshot().tables[FINDINGS.name], page.query, "finding")
    note = "What a person should know, beside recommendations."
    if not counts:
        state = panels.empty(
            "Nothing was found.", why="No workload or node stands out.", link=("What can be lent", page.href("batch"))
        )
        return panels.panel("Findings", state, note=note)
    rows = [
        html.Li(
            [
                dcc.Link([panels.chip(label(kind)), f" {count:,}"], href=page.href("findings", f"finding={kind}")),
                html.P(FINDING_SENTENCES[FindingKind(kind)] if kind in set(FindingKind) else ""),
            ]
        )
        for kind, count in counts
    ]
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
    return panels.panel(
        "Data quality", html.P([" · ".join(facts), ". Sources, gaps and jobs: ", more, "."], className="said"), notes
    )


def register(app: Dash, view: View) -> None:
    """Redraw when results or the address change; switches pick the measure; a waste bar leads to its namespace."""

    def drawn(search: str | None, draw: Callable[[OverviewPage], Component]) -> Component:
        def draw_results() -> Component:
            page = overview_page(view, search or "")
            return panels.no_results() if page is None else draw(page)

        return panels.render_guarded(draw_results)

    @app.callback(
        Output("overview-body", "children"),
        Input("version", "data"),
        Input("url", "search"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def _redraw(_version: str, search: str | None, pathname: str | None) -> Component:
        if path_of(pathname or "", view.settings):
            return no_update
        return panels.render_guarded(lambda: contents(view, search or ""))

    @app.callback(
        Output("waste", "children"), Input("waste-measure", "value"), State("url", "search"), prevent_initial_call=True
    )
    def _rank(measure: str, search: str | None) -> Component:
        return drawn(search, lambda page: _waste(page, measure))

    @app.callback(
        Output("band", "children"), Input("band-resource", "value"), State("url", "search"), prevent_initial_call=True
    )
    def _switch(resource: str, search: str | None) -> Component:
        return drawn(search, lambda page: _band(page, Resource(resource)))

    app.clientside_callback(
        ClientsideFunction("cotenant", "drill"), Input("waste-figure", "clickData"), prevent_initial_call=True
    )


OBEYED: Final = Obeyed(
    "nodes, capacity, the headline, the curves and the peak are of the whole cluster.",
    "it is of Peaks and valleys; all else is of now or of the whole history.",
    forecast=True,
    spans=False,
)
PAGE: Final = Page("", "Home", "o", render, register, place=Place.HOME, obeyed=OBEYED)
