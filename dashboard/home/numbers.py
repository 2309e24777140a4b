"""Home's tiles: the next peak, what is free for a day, what can be applied now, what was saved; six shares. Pure."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.resource import Resource
from cotenant.base.text import percent, visible
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.changes.model.change import ChangeState, ChangeStatus, count_of_states
from cotenant.changes.model.change_savings import change_savings
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import ACT, View
from cotenant.dashboard.home.page_data import OverviewPage
from cotenant.dashboard.nodes import lent_now
from cotenant.dashboard.sources import change_tables
from cotenant.dashboard.tables import display, savings
from cotenant.recommender.model import list_totals
from cotenant.recommender.model.views import RECLAIMABLE, Overview

READY = f"ready={','.join(list_totals.READY)}"
"""The filter of what can be applied now."""


def headline(overview: Overview) -> Component:
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


def present(page: OverviewPage) -> Component:
    """Show the coming peak, what is free for a day, what can be applied now, and what was saved."""
    tiles = (lambda: peak(page.overview), lambda: free_for_a_day(page), lambda: worth(page), lambda: saved(page.view))
    return html.Div([panels.render_guarded(draw) for draw in tiles], className="stats four home-now")


def free_for_a_day(page: OverviewPage) -> Component:
    """Show the amounts for pods that stay for about a day; they overlap with what is free for batch."""
    overview = page.overview
    unknown = lent_now.not_of_all(overview, page.snapshot.tables[RECLAIMABLE.name])
    cpu, memory = overview.cpu.mid_now, overview.memory.mid_now
    value = [panels.amount(cpu, Resource.CPU), " · ", panels.amount(memory, Resource.MEMORY)]
    overlap = "requested by services that will not use it soon; part of it is free for batch too, so do not add them"
    return panels.stat("Free for a day", value, unknown or overlap)


def peak(overview: Overview) -> Component:
    """Show the time and the height of the cluster's peak in the next 24 hours."""
    ahead = overview.peak
    if ahead is None:
        return panels.stat(PEAK_NAME, "unknown", overview.peak_reason)
    mild = "" if ahead.pronounced else " (mild)"
    rise = f", {percent(ahead.above_mean, signed=True)} over the day's mean{mild}"
    led = f"; led by {visible(ahead.led_by)}" if ahead.led_by else ""
    height = panels.amount(ahead.height_millicores, Resource.CPU)
    detail = html.Span([f"{BUSIEST_NAME}: ", panels.window(ahead.start_seconds, ahead.end_seconds), rise, led])
    return panels.stat(PEAK_NAME, [panels.clock(ahead.start_seconds), ", ", height], detail)


def worth(page: OverviewPage) -> Component:
    """Show what passes the guardrails now, as the list orders it, and the sum of all recommendations beside it."""
    currency, counts = page.view.currency, page.ready
    second = f"; {savings.second_person_words(counts.second_person)}" if counts.second_person else ""
    after = [" After all steps it ", *savings.saving_parts(page.planned_savings.all_steps, currency), "."]
    if not counts.ready:
        return panels.stat("Ready to apply", f"nothing{second}", html.Span(after[1:], id="overview-worth"))
    now = ["All recommendations together, it now ", *savings.saving_parts(page.planned_savings.now, currency), "."]
    link = dcc.Link("See them", href=page.href("recommendations", READY))
    count = f"{display.counted(counts.ready, 'recommendation')}{second}"
    return panels.stat("Ready to apply", count, html.Span([*now, *after, " ", link], id="overview-worth"))


def saved(view: View) -> Component:
    """Show what verified changes free, by the ledger, and how many changes wait for their verdict."""
    label = "Verified as saved so far"
    if view.given.changes is None:
        off = ["This dashboard applies nothing, so it verifies nothing: ", html.Code(ACT)]
        return panels.stat(label, "nothing yet", html.Span(off, id="home-saved"))
    statuses = change_tables.statuses_of(view)
    verified = change_savings(statuses).verified.frees
    detail = html.Span([*_by_state(statuses), " ", _to_changes(view)], id="home-saved")
    if not (verified.millicores or verified.bytes):
        return panels.stat(label, "nothing yet", detail)
    amounts = [panels.amount(verified.amount(resource), resource) for resource in Resource if verified.amount(resource)]
    value: list[Any] = [part for amount in amounts for part in (" · ", amount)][1:]
    money = [f" {display.money(verified.monthly, view.currency)} a month:"] if verified.monthly else []
    return panels.stat(label, value, html.Span([*money, " ", detail]))


def _by_state(statuses: list[ChangeStatus]) -> list[Any]:
    """Count the verified changes, and those that wait for their verdict, in words."""
    if not statuses:
        return ["Nothing was changed yet. A change counts here once its soak has shown no harm."]
    verified, waiting = (count_of_states(statuses, s) for s in (ChangeState.VERIFIED, ChangeState.APPLIED))
    words = f"{display.counted(verified, 'change')} verified"
    return [f"{words}, {waiting:,} waiting for a verdict." if waiting else f"{words}."]


def _to_changes(view: View) -> Component:
    return dcc.Link("Changes", href=f"{view.settings.base_path}changes")
