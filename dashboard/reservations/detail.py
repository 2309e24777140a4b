"""The right of the reservations page: a plan of the cluster with its buttons, or a predicted peak with its commands."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlencode

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.base.text import visible
from cotenant.dashboard.figures import display, gantt
from cotenant.dashboard.figures.base import cut_name
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.carried import workload_address
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.reservations import plan_actions, plan_page, proposed_plans, story
from cotenant.dashboard.reservations.board import FORECASTS, PATH, BoardPlans, is_filtered_out, rows_of, selection
from cotenant.dashboard.sources.workload_story import Row
from cotenant.recommender.model.views import PLANS
from cotenant.scheduler_ext.reservations.model.plan import Plan
from cotenant.scheduler_ext.reservations.model.plan_states import phase_of

IN_HAND: Final = "Selected plan"
PODS_HEIGHT: Final = 200
FIRST_COMMANDS: Final = 2
MOST_LETTERS: Final = 36


def selected_panel(view: View, search: str, plans: BoardPlans | None = None) -> Component:
    """Return the plan or workload in the URL; else the plan that waits for approval; else the first proposed peak."""
    chosen = selection(view.source.snapshot(), rows_of(view, search), search, plans or BoardPlans())
    plan = chosen.plan
    if plan is None and chosen.ref and view.given.plans is not None:
        with suppress(CotenantError):  # there is none of that name; else the list's filters leave it out
            plan = view.given.plans.plan(view.given.current_user(), chosen.ref)
    if plan is not None:
        return _plan_panel(view, search, plan)
    if chosen.row is not None:
        # A predicted peak of which the cluster holds no plan.
        row = chosen.row
        ref = proposed_plans.ref_of(row)
        code = str(row["reason"])
        state_parts = [panels.chip(f"not proposed: {label(code)}", "orange"), f" {proposed_plans.sentence(code)}"]
        if proposed_plans.is_proposed(row):
            state_parts = [panels.chip("proposed", "violet"), " Nothing is reserved before somebody approves the plan."]
        state = html.P(state_parts, className="said")
        parts = [state, *_from_it(view, row), *_forecast(view, row), _plan_commands(view, row), *_places(view)]
        return panels.panel(panel_title(ref), *parts, aside=html.Span(_ways(view, row, search), className="ways"))
    if chosen.missing:
        name = chosen.missing
        why = "The link may be incomplete, or old: proposals change with the forecast, hour by hour."
        state = panels.empty(f"No plan of {visible(name)}.", why=why, command="cotenant reservations list")
        return panels.panel(IN_HAND, state, *_places(view))
    if is_filtered_out(view, plans or BoardPlans()):
        return panels.panel(IN_HAND, panels.no_match("plan"), *_places(view))
    none = panels.empty("No plan to show.", why="The list of plans is empty.", command=FORECASTS)
    return panels.panel(IN_HAND, none, *_places(view))


def _places(view: View) -> list[Component]:
    """Return the empty containers that callbacks fill."""
    return plan_actions.plan_panel(view, None) if view.given.plans else []


def _plan_panel(view: View, search: str, plan: Plan) -> Component:
    """Return a plan of the cluster: its phase and buttons, and below them the forecast that it is based on."""
    ref = plan.workload
    rows = view.source.snapshot().tables[PLANS.name].read().rows()
    row = next((r for r in rows if proposed_plans.ref_of(r) == ref), None)
    page = plan_actions.page_of(view.settings.base_path, story.ref_to(plan))
    to_plan = dcc.Link("Its page", href=page, className="quiet-link", id="to-plan")
    way = html.P([to_plan, *_ways(view, row, search)], className="ways")
    recurs = "follows the forecast" if plan.source.value == "Forecast" else "one window"
    if rule := plan.recurring:
        recurs = f"“{visible(rule.schedule)}” in {visible(rule.zone)}, {display.duration(rule.duration_seconds)} long"
    name = html.Strong(visible(cut_name(plan.name, MOST_LETTERS)), title=visible(plan.name))
    head = html.P([name, f" · {plan.source.value} · {recurs}"], className="said")
    begin = 0.0 if phase_of(plan).over else plan.status.reserve_at_seconds
    behind = [] if row is None else [html.H3("The forecast behind the plan"), *_forecast(view, row, begin)]
    acts = plan_actions.plan_panel(view, plan)
    return panels.panel(panel_title(ref), head, way, *acts, *plan_page.last_peak(plan, view.currency), *behind)


def panel_title(ref: WorkloadRef) -> str:
    """Return the workload's name, shortened to one line; the list and the plan's page show the whole name."""
    return visible(cut_name(f"{ref.namespace}/{ref.kind}/{ref.name}", MOST_LETTERS))


def _ways(view: View, row: Row | None, search: str) -> list[Component]:
    if row is None:
        return []
    ref = proposed_plans.ref_of(row)
    address = workload_address(view.settings.base_path, ref, search, PATH)
    key = "/".join(quote(part, safe="") for part in ("workload", ref.namespace, ref.kind, ref.name, "cpu"))
    ahead = f"{view.settings.base_path}forecast?{urlencode({'open': key})}"
    return [
        dcc.Link("Forecast", href=ahead, className="quiet-link", id="to-forecast"),
        dcc.Link("Workload", href=address, className="quiet-link", id="to-portrait"),
    ]


def _forecast(view: View, row: Row, reserve_at_seconds: float = 0.0) -> list[Component]:
    """Return the chart of the plan's pods, its figures, and its back-test in words."""
    plan_pods = proposed_plans.pods(row, reserve_at_seconds)
    drawn = panels.empty("These results hold no forecast of this plan.", command="cotenant scan")
    if plan_pods:
        drawn = panels.figure(gantt.pods(plan_pods), "pods-figure", PODS_HEIGHT)
    facts = [("Window", proposed_plans.window_words(row)), *proposed_plans.facts(row, view.currency)]
    return [drawn, panels.pairs(facts), html.P(str(row["words"]) or "This plan has no back-test.", className="said")]


def _from_it(view: View, row: Row) -> list[Component]:
    """Return the button that makes a plan from a peak by hand; the manager makes the proposed plans automatically."""
    if view.given.plans is None:
        return plan_actions.refused_buttons(view) if proposed_plans.is_proposed(row) else []
    ref = proposed_plans.ref_of(row)
    refused = plan_actions.why_not(view, Right.PLAN, ref.namespace)
    button = html.Button(
        "Make a plan by hand",
        className="button",
        disabled=bool(refused),
        **panels.asks(plan_actions.NEW_ASKED, workload=f"{ref.namespace}/{ref.kind}/{ref.name}"),
        **{"data-opens": "new-fields"},
    )
    own = "The manager creates this plan in its next run." if proposed_plans.is_proposed(row) else ""
    return [button, html.P(refused or own, className="panel-note")]


def _plan_commands(view: View, row: Row) -> Component:
    """Return the commands to copy; they change the cluster, this page does not."""
    overview = view.source.snapshot().overview
    demo = " These are demo data: no cluster holds this plan." if overview and overview.demo else ""
    lines = [
        html.Div([html.P(title, className="panel-note"), html.Pre(html.Code(line), className="formula", tabIndex=0)])
        for title, line in proposed_plans.commands(row)
    ]
    acts = "The same actions by command:" if view.given.plans else "This page changes nothing; these commands do."
    note = html.P(f"{acts}{demo}", className="panel-note")
    more = html.Details([html.Summary("More commands"), *lines[FIRST_COMMANDS:]], className="more")
    rest = [more] if len(lines) > FIRST_COMMANDS else []
    return html.Div([html.H3("To act"), note, *lines[:FIRST_COMMANDS], *rest], id="plan-commands")
