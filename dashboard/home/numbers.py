"""Home's verified savings, its tiles behind "Details" (next peak, lendable for a day, ready), and six ratios. Pure."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.resource import Resource
from cotenant.base.text import percent, visible
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.changes.model.change import ChangeState, change_savings, count_of_states, verified_by_month
from cotenant.dashboard.changes import change_tables
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import ACT, View
from cotenant.dashboard.home import cards
from cotenant.dashboard.home.page_data import OverviewPage
from cotenant.dashboard.nodes import lent_now
from cotenant.dashboard.tables import savings
from cotenant.recommender.model import list_totals
from cotenant.recommender.model.savings_text import saving_phrases
from cotenant.recommender.model.views import RECLAIMABLE, Overview

SAVED = "Savings verified so far"
READY = f"ready={','.join(list_totals.READY)}"
"""The filter of what can be applied now."""


def headline(overview: Overview) -> Component:
    """Return the six ratios of the cluster dashboard of kubernetes-mixin, under its names and in its order."""
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


def present(page: OverviewPage) -> Component:
    """Return the coming peak, what can be lent for a day, and the recommendations that can be applied now."""
    tiles = (lambda: peak(page.overview), lambda: free_for_a_day(page), lambda: worth(page))
    return html.Div([panels.render_guarded(draw) for draw in tiles], className="stats four home-now")


def free_for_a_day(page: OverviewPage) -> Component:
    """Return the capacity for pods that run for about a day; it overlaps with the capacity for batch pods."""
    overview = page.overview
    unknown = lent_now.not_of_all(overview, page.snapshot.tables[RECLAIMABLE.name])
    cpu, memory = overview.cpu.mid_now, overview.memory.mid_now
    value = [panels.amount(cpu, Resource.CPU), " · ", panels.amount(memory, Resource.MEMORY)]
    overlap = "requested by services that will not use it soon; it overlaps with free for batch, do not add the amounts"
    return panels.stat("Free for a day", value, unknown or overlap)


def peak(overview: Overview) -> Component:
    """Return the time and height of the cluster's peak in the next 24 hours."""
    ahead = overview.peak
    if ahead is None:
        return panels.stat(PEAK_NAME, "unknown", overview.peak_reason)
    mild = "" if ahead.pronounced else " (not a pronounced peak)"
    rise = f", {percent(ahead.above_mean, signed=True)} against the day's mean{mild}"
    led = f"; {visible(ahead.led_by)} adds most" if ahead.led_by else ""
    height = panels.amount(ahead.height_millicores, Resource.CPU)
    detail = html.Span([f"{BUSIEST_NAME}: ", panels.window(ahead.start_seconds, ahead.end_seconds), rise, led])
    return panels.stat(PEAK_NAME, [panels.clock(ahead.start_seconds), ", ", height], detail)


def worth(page: OverviewPage) -> Component:
    """Return how many recommendations pass the guardrails now, and the requests that they would save and add."""
    currency, counts = page.view.currency, page.ready
    second = f"; {savings.second_person_words(counts.second_person)}" if counts.second_person else ""
    if not counts.ready:
        return panels.stat("Ready to apply", f"nothing{second}", "")
    now = ["Applying all recommendations now ", *savings.saving_parts(page.ready_savings.now, currency), "."]
    after = [" Applying all steps of their cuts ", *savings.saving_parts(page.ready_savings.all_steps, currency), "."]
    link = dcc.Link("See them", href=page.href("recommendations", READY))
    count = f"{display.counted(counts.ready, 'recommendation')}{second}"
    return panels.stat("Ready to apply", count, html.Span([*now, *after, " ", link], id="overview-worth"))


def saved(view: View) -> Component:
    """Return the requests that verified changes of the ledger free, in total and for CPU by month."""
    if view.given.changes is None:
        off = html.P(["This dashboard is read-only, so it verifies no change: ", html.Code(ACT)], id="home-saved")
        return panels.panel(SAVED, html.P("nothing yet", className="big"), off, id_="home-verified")
    statuses = change_tables.statuses_of(view)
    verified = change_savings(statuses).verified
    sentence = "Nothing was changed yet. A change counts here once it is verified."
    if statuses:
        verified_count, waiting = (count_of_states(statuses, s) for s in (ChangeState.VERIFIED, ChangeState.APPLIED))
        wait = f", {waiting:,} waiting for a verdict" if waiting else ""
        sentence = f"{display.counted(verified_count, 'change')} verified{wait}."
    link = dcc.Link("Changes", href=f"{view.settings.base_path}changes")
    detail = html.P([sentence, " ", link], id="home-saved", className="said")
    if not saving_phrases(verified):
        return panels.panel(SAVED, html.P("nothing yet", className="big"), detail, id_="home-verified")
    details = [*savings.saving_parts(verified, view.currency), "."]
    more = html.Details([html.Summary("Details"), html.P(details), detail], className="more")
    parts = [html.P(savings.main_parts(verified, view.currency), className="big")]
    months = verified_by_month(statuses)
    if any(saved > 0 for saved in months.values()):  # of CPU, up to the end of each month
        written = ", ".join(display.amount(saved, Resource.CPU) for saved in months.values())
        ends = (min(months), max(months) if len(months) > 1 else "")
        summary = f"CPU that verified changes free, by month: {written}"
        parts.append(cards.columns([*months.values()], summary, ends))
    return panels.panel(SAVED, *parts, more, id_="home-verified")
