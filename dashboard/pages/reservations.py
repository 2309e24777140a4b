"""Reservations: plans that the forecast proposes or withholds, those in the cluster, and the selected one.

With a `PlanService` the page acts, and polls the cluster while a plan changes; without one it shows commands to copy.
Each plan of the cluster also has a page of its own (`plan_page`).
"""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from cotenant.base.people import Right
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.reservations import callbacks as plan_acts
from cotenant.dashboard.reservations import detail, plan_actions, plan_page, story
from cotenant.dashboard.reservations.board import LIST, PATH, board, filter_board, plans_of_service, with_open_plan
from cotenant.dashboard.tables import list_page

BELOW: Final = "plan-proposals"
"""Id of the list below the board."""


def render(view: View, search: str) -> Component:
    """Return the chart of the day and the selected plan, above the list."""
    way = html.A("To the list", href=f"#{BELOW}", className="quiet-link", id="to-list")
    lead = html.P("Capacity that the forecast would reserve before a peak, and why other plans are not proposed.")
    heading = [html.H1("Plans"), lead, way]
    if view.given.plans is not None:
        refused = plan_actions.why_not(view, Right.PLAN)
        button = html.Button(
            "New plan",
            className="button",
            disabled=bool(refused),
            title=refused or "New plan (n)",
            **panels.asks(plan_actions.NEW_ASKED, workload=""),
            **{"data-key": "n", "data-opens": "new-fields"},
        )
        heading.append(html.Div(button, className="aside"))
    head = html.Div(heading, className="page-head")
    body = html.Div(panels.render_guarded(lambda: list_page.body(LIST, view, search)), id=BELOW)
    if view.source.snapshot().overview is None and view.given.plans is None:
        return html.Div([head, body], className="page")
    plans = plans_of_service(view, search)
    hand = panels.render_guarded(lambda: detail.selected_panel(view, search, plans), detail.IN_HAND)
    day = html.Div(board(view, search, plans), id="plan-board")
    above = html.Div([day, html.Div(hand, id="plan-hand")], className="row wide-narrow")
    new = [html.Div(id="plan-new-form"), html.Div(id="plan-new-said"), html.Div(id="plan-new-acted")]
    return html.Div([head, *new, *plan_page.polling_stores(view), above, body], className="page tall-page")


def register(app: Dash, view: View) -> None:
    """Register the list's callbacks; the plans and their charts follow the URL, new results and the cluster."""
    list_page.register(app, view, LIST)
    plan_acts.register(app, view)

    @app.callback(
        Output("plan-board", "children"),
        Output("plan-hand", "children"),
        Input("url", "search"),
        Input("version", "data"),
        State("url", "pathname"),
        State("plan-ref", "data", allow_optional=True),  # only a page that acts has it
    )
    def _follow(search: str | None, _version: str, pathname: str | None, ref: str | None) -> tuple[Any, Any]:
        if path_of(pathname or "", view.settings) != PATH:
            return no_update, no_update
        text = search or ""
        plans = plans_of_service(view, text)
        typed = view.given.plans is not None and ctx.triggered_id == "version"  # a form may be open there
        inside: Any = no_update
        if not typed:
            inside = panels.render_guarded(lambda: detail.selected_panel(view, text, plans), detail.IN_HAND)
        return board(view, with_open_plan(text, ref) if typed else text, plans), inside

    @app.callback(
        Output("plan-board", "children", allow_duplicate=True),
        Output("plan-standing", "children"),
        Output("plans-seen", "data"),
        Output("plans-tick", "interval"),
        Input("plans-tick", "n_intervals"),
        Input("plans-acted", "data"),
        State("plans-seen", "data"),
        State("plan-ref", "data"),
        State("url", "pathname"),
        State("url", "search"),
    )
    def _renew(_ticks: int, acted: float | None, shown_mark: str, ref: str, *where: str | None) -> tuple[Any, ...]:
        pathname, search = (text or "" for text in where)
        return _refresh_page(view, (acted or 0.0, shown_mark, ref), path_of(pathname, view.settings), search)


def _refresh_page(view: View, state: tuple[float, str, str], path: str, search: str) -> tuple[Any, ...]:
    """Return board, phase, state mark and poll interval; only the interval if nothing has changed."""
    acted, shown_mark, ref = state
    everything = plans_of_service(view)
    now = view.now_seconds()
    if acted and now - acted >= plan_acts.AFTER_SECONDS:
        plan_acts.forget(("plan-acted", "plan-new-acted") if path == PATH else ("plan-acted",))
    busy = now - acted < plan_acts.AFTER_SECONDS or story.any_plan_moving(everything.plans, now)
    pace = plan_acts.FAST_MILLISECONDS if busy else plan_acts.SLOW_MILLISECONDS
    mark = f"{story.plans_mark(everything.plans, now)}{'!' if everything.trouble else ''}"
    if mark == shown_mark:
        return no_update, no_update, no_update, pace
    plan = next((p for p in everything.plans if str(story.ref_to(p)) == ref), None)
    inside = plan_actions.plan_status(plan, now) if plan else no_update
    if path == PATH:
        return board(view, with_open_plan(search, ref), filter_board(everything, search)), inside, mark, pace
    drawn = no_update if plan is None else panels.render_guarded(lambda: plan_page.board(view, plan))
    return drawn, inside, mark, pace


OBEYED: Final = Obeyed(time_range="plans cover the next 24 hours or 7 days, by the page's own switch.", forecast=True)
PAGE: Final[Page] = Page(PATH, "Plans", "v", render, register, plan_page.render, place=Place.PEAKS, obeyed=OBEYED)
