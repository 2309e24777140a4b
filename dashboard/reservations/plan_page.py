"""The page of one plan: phase, actions, timeline, Reservations, forecast against actual use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.text import visible
from cotenant.dashboard.figures import display, gantt
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.reservations import plan_actions, story
from cotenant.dashboard.reservations.callbacks import FAST_MILLISECONDS
from cotenant.dashboard.reservations.story import TimelineEvent
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.plan import Expected, Plan
from cotenant.scheduler_ext.reservations.model.plan_scores import lines, reports
from cotenant.scheduler_ext.reservations.model.plan_service import PlanHistoryEntry, PlanRef
from cotenant.scheduler_ext.reservations.model.plan_states import available_pods, used_reservations, wanted_pods

ADDRESS: Final = "The address of a plan's page ends with the plan's namespace and name."
REF_PARTS: Final = 2
SCORES_HEIGHT: Final = 210
LINE: Final = "Time line"
PAST: Final = "Forecast and actual"
NOW: Final = "The present occurrence"
SCORE_TITLES: Final = (
    "Began", "Reserved", "Used", "Waited", "Coverage", "Used of reserved", "Idle core-hours", "Cost", "All available"
)  # fmt: skip


def polling_stores(view: View) -> list[Component]:
    """Return a plan page's poll timer and stores (drawn state, last action, requests); empty if read-only."""
    if view.given.plans is None:
        return []
    return [
        dcc.Interval(id="plans-tick", interval=FAST_MILLISECONDS),
        dcc.Store(id="plans-seen", data=""),
        dcc.Store(id="plans-acted", data=0),
        dcc.Store(id=plan_actions.ASKED),
        dcc.Store(id=plan_actions.NEW_ASKED),
        callbacks.outage_store(view),
    ]


def render(view: View, parts: tuple[str, ...], search: str) -> Component:  # noqa: ARG001 - every page's signature
    """Return the plan's page, or a note on why the plan cannot be shown."""
    name = "/".join(parts)
    back = dcc.Link("← Reservations", href=f"{view.settings.base_path}reservations", id="back")
    crumbs = html.Div(back, className="crumbs")
    head = html.Div([html.H1(visible(name))], className="page-head portrait-head")
    service = view.given.plans
    if len(parts) != REF_PARTS:
        return _bare(crumbs, head, panels.empty("No such plan.", why=ADDRESS, command="cotenant reservations list"))
    if service is None:
        why = "Without --act it reads only results, and plans are objects of the cluster. Use --act, or run:"
        command = f"cotenant reservations show {name}"
        return _bare(crumbs, head, panels.empty("This dashboard cannot show a plan.", why=why, command=command))
    try:
        plan = service.plan(view.given.current_user(), PlanRef(*parts))
    except CotenantError as error:
        return _bare(crumbs, head, panels.trouble(error))
    title = visible(f"{plan.namespace}/{plan.owner.kind}/{plan.owner.name}")
    ttl = "until its window is over" if plan.ttl_seconds is None else f"for {display.duration(plan.ttl_seconds)}"
    once = "one pod" if plan.allocate_once else "several pods"
    terms = (
        f"Source: {plan.source.value}; quantile: {plan.quantile:g}; lead: {display.duration(plan.lead_seconds)}; "
        f"{plan.realisation.value} kept {ttl}, for {once}; allocatePolicy: {plan.allocate_policy.value or 'Aligned'}."
    )
    acts = panels.panel(title, *plan_actions.plan_panel(view, plan), html.P(terms, className="panel-note"))
    columns = [html.Div(board(view, plan), id="plan-board"), html.Div(acts, id="plan-hand")]
    row = html.Div(columns, className="row wide-narrow")
    return html.Div([crumbs, head, *polling_stores(view), row], className="page tall-page")


def _bare(*parts: Component) -> Component:
    return html.Div(list(parts), className="page")


def board(view: View, plan: Plan) -> list[Component]:
    """Return the plan's timeline, the use of its present occurrence, and the results of past ones."""
    entries: Sequence[PlanHistoryEntry] = ()
    trouble: list[Component] = []
    if view.given.plans is not None:
        try:
            entries = view.given.plans.history(view.given.current_user(), story.ref_to(plan))
        except CotenantError as error:
            trouble = [panels.trouble(error)]
    line = panels.panel(LINE, *trouble, timeline(story.timeline(plan, entries, view.now_seconds())))
    return [line, present(plan), past(plan, view.currency)]


def timeline(events: Sequence[TimelineEvent]) -> Component:
    """Return a plan's past and coming events in order, each marked "done" or "ahead" in words, not by colour alone."""
    items = []
    for step in events:
        chip = panels.chip("done", "teal") if step.done else panels.chip("ahead", "gray")
        when = panels.moment(step.seconds) if step.seconds else html.Span("time not known yet", className="dim")
        sentence = html.Div(visible(step.words), className="panel-note")
        items.append(html.Li([chip, html.Strong(f" {step.title} "), when, sentence]))
    return html.Ol(items, className="time-line", id="plan-line")


def present(plan: Plan) -> Component:
    """Return how many pods capacity is reserved for now, on which nodes, and how much of it is used."""
    nodes = Counter(unit.node or "no node yet" for unit in plan.status.units)
    where = ", ".join(f"{visible(name)} ({count})" for name, count in sorted(nodes.items()))
    available, used, want = available_pods(plan), used_reservations(plan), wanted_pods(plan)
    share = measures.ratio_of(available, want) if want else None
    used_share = measures.ratio_of(used, available) if available else None
    stats = [
        panels.stat("Reserved pods", f"{available} of {want}", where or "nothing is reserved now", bar=share),
        panels.stat("Used", f"{used} of {available}", "pods running on a Reservation", bar=used_share),
        panels.stat("Most at once", f"{plan.status.progress.most_used}", "used Reservations in this occurrence"),
        panels.stat("Waited without a reservation", f"{plan.status.progress.most_missed}", "pods at one time"),
    ]
    return panels.panel(NOW, html.Div(stats, className="stats four"), id_="plan-now")


def past(plan: Plan, currency: str) -> Component:
    """Return what the back-test expected beside the actual use, occurrence by occurrence."""
    scores = plan.status.scores
    expected = plan.status.expected
    if not scores:
        text = _expected_words(expected) if expected else "This plan has no back-test."
        none = panels.empty("No occurrence has ended yet.", why=text, command="cotenant reservations report")
        return panels.panel(PAST, none, id_="plan-past")
    chart = panels.figure(gantt.scores(scores), "scores-figure", SCORES_HEIGHT)
    head = [html.P(plan_scores.summary(scores[0]), className="verdict", id="plan-score"), *last_peak(plan, currency)]
    if expected:
        head.append(html.P(_expected_words(expected), className="said"))
    rows = [
        (
            panels.moment(s.start_seconds),
            *(f"{n}" for n in (s.reserved, s.used, s.missed)),
            display.percent(s.coverage) if plan_scores.is_needed(s) else "not needed",
            display.percent(s.hit_ratio),
            f"{s.idle_core_hours:,.1f}",
            display.money(s.cost, currency),
            plan_scores.lead_words(s.lead_seconds),
        )
        for s in scores
    ]
    table = panels.facts(SCORE_TITLES, rows, "Past occurrences", id_="plan-scores")
    return panels.panel(PAST, *head, chart, table, id_="plan-past")


def last_peak(plan: Plan, currency: str) -> list[Component]:
    """Return the report on the newest past occurrence; empty before the first.

    It has the expected and the actual peak in pods, the coverage, the idle core-hours and their cost, and the probable
    outcome without the plan.
    """
    newest = next(iter(reports(plan)), None)
    if newest is None:
        return []
    title = html.H3(["The last peak, ", panels.moment(newest.start_seconds)])
    return [title, panels.pairs(lines(newest, currency), "inputs wide-words", id="last-peak")]


def _expected_words(expected: Expected) -> str:
    peaks = display.counted(expected.occurrences, "past peak")
    return (
        f"By {peaks}, pods use {display.percent(expected.hit_ratio)} of the reserved pod-time, and "
        f"{expected.idle_core_hours:,.1f} core-hours a day stay idle."
    )
