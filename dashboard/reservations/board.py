"""The left of the reservations page: each workload's peaks and plans, and all of them on a chart of a day or a week.

It shows the plans that the results propose and those that the `PlanService` reads from the cluster. A plan that is in
both is drawn once, as it is in the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.tables import queries
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import Relation
from cotenant.base.text import visible
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import display, gantt
from cotenant.dashboard.figures.base import cut_name
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.reservations import plan_actions, proposed_plans, story
from cotenant.dashboard.reservations.proposed_plans import PlanHorizon
from cotenant.dashboard.reservations.story import PLAN_KIND, PlanListEntry
from cotenant.dashboard.sources.source import Snapshot
from cotenant.dashboard.sources.workload_story import Row
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import NODES, PLANS, Overview
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, PlanGroup, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import Plan, proposal_name
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
from cotenant.scheduler_ext.reservations.model.plan_states import (
    available_pods,
    counts,
    phase_of,
    state_of,
    wanted_pods,
)

PATH: Final = "reservations"
DAY: Final = "The next 24 hours"
WEEK: Final = "The next 7 days"
WEEK_DAYS: Final = 7
LIVE: Final = "Peaks and plans"
MOST_LIVE: Final = 200
MOST_LETTERS: Final = 28
SHOW_WEEK: Final = "7d"
LANE_HEIGHT: Final = 170
FORECASTS: Final = "cotenant get forecast"
NO_PLAN_WHY: Final = (
    "No Deployment or StatefulSet with a CPU request is forecast to need more pods than its baseline, or the "
    "results are from a version that proposed no plans. This command lists the forecasts:"
)
WIDTHS: Final = {
    "reason": 200, "start": 96, "end": 96, "pods": 66,
    "quantile": 88, "skill": 70, "idle_core_hours": 116, "wanted": 146,
}  # fmt: skip


def totals(snapshot: Snapshot, query: Query, _currency: str) -> Sequence[Component]:
    """Return the totals of the proposed plans in the list."""
    sums = proposed_plans.sums(queries.columns_of(snapshot.tables[PLANS.name], query))
    size = f"{display.counted(sums.pods, 'pod')}, {display.amount(sums.millicores, Resource.CPU)} at most"
    idle = f"{sums.idle_core_hours:,.1f} core-hours a day"
    return [
        _total("Proposed by the forecast", display.counted(sums.workloads, "workload"), size),
        _total("Would stay idle", idle, "by the back-tests"),
    ]


def _total(label: str, value: str, parts: str) -> Component:
    name, amount = html.Span(label, className="total-label"), html.Strong(value, className="total-value")
    return html.Div([name, amount, html.Span(parts, className="total-parts")], className="total")


def _shape(definitions: Sequence[dict[str, Any]]) -> None:
    for column_def in definitions:
        if column_def["field"] in ("wanted", "median"):
            column_def["cellRendererParams"] = {"words": "Pods beyond the baseline over 24 hours"}


LIST: Final = Listing(
    schema=PLANS,
    path=PATH,
    noun="workload",
    shown=("workload", "reason", "start", "end", "pods", "cpu", "quantile", "coverage", "hit_ratio", "idle_core_hours",
           "cost", "skill", "wanted"),
    facets=(("reason", "State"), ("kind", "Kind"), ("ns", "Namespace")),
    order="start",
    opens="?open={namespace}/{kind}/{workload}",
    totals=totals,
    widths=WIDTHS,
    shape=_shape,
    subject=("workload", "namespace"),
    pinned=("workload",), among=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoardPlans:
    """The plans of the cluster, or the error of reading them; empty on a read-only dashboard."""

    plans: tuple[Plan, ...] = ()
    trouble: Component | None = None
    left_out: str = ""
    """The plans of the cluster that cannot be read, and why; else ""."""
    filtered_out_count: int = 0
    """Number of plans that the filters in the URL leave out."""


def plans_of_service(view: View, search: str = "") -> BoardPlans:
    """Return the cluster's plans that pass the filters in the URL."""
    if view.given.plans is None:
        return BoardPlans()
    try:
        listed = view.given.plans.plans(view.given.current_user())
    except CotenantError as error:
        return BoardPlans(trouble=panels.trouble(error))
    return filter_board(BoardPlans(listed.plans, left_out=listed.note), search)


def filter_board(known_plans: BoardPlans, search: str) -> BoardPlans:
    """Filter the plans by the URL, as if each were a row of the list.

    Return all plans if the filters are invalid, which the list itself reports.
    """
    plans = known_plans.plans
    try:
        query = LIST.query(search)
        if query.filtered:
            rows = [
                {
                    "namespace": p.namespace,
                    "kind": p.owner.kind,
                    "workload": p.owner.name,
                    "reason": "ok",
                    "pods": p.count,
                }
                for p in plans
            ]
            indices = queries.select(Relation.of(Table.from_rows(PLANS, rows)), Query(query.conditions, query.text))
            plans = tuple(plans[int(index)] for index in np.sort(indices))
    except UsageError:
        return known_plans
    return replace(known_plans, plans=plans, filtered_out_count=len(known_plans.plans) - len(plans))


def is_filtered_out(view: View, plans: BoardPlans) -> bool:
    """Return whether a plan or proposal exists without the URL's filters, so that they explain an empty list."""
    return bool(plans.filtered_out_count or story.merge_entries(rows_of(view, ""), ()))


@dataclass(frozen=True, slots=True)
class PlanSelection:
    """The content of the panel beside the list: a plan of the cluster, a predicted peak, or the name of a missing plan.

    `ref` is the plan in the URL if it is not listed: either the filters leave it out or it no longer exists.
    """

    plan: Plan | None = None
    row: Row | None = None
    ref: PlanRef | None = None
    missing: str = ""


def selection(snapshot: Snapshot, rows: Sequence[Row], search: str, plans: BoardPlans) -> PlanSelection:
    """Return the plan or workload in the URL; else the best plan that waits for approval; else the best proposed peak.

    The best has the highest `proposal_merit`; a workload in the URL stands for its plan, if it has one. `rows` are the
    listed rows of PLANS.
    """
    opened = proposed_plans.open_workload(search)
    if opened is None and (malformed := panels.address_value(search)):
        return PlanSelection(missing=malformed)
    if opened is not None and opened.kind == PLAN_KIND:
        ref = PlanRef(opened.namespace, opened.name)
        plan = next((p for p in plans.plans if story.ref_to(p) == ref), None)
        return PlanSelection(plan) if plan else PlanSelection(ref=ref, missing=str(ref))
    everything = list(snapshot.tables[PLANS.name].read().rows()) if opened else rows
    row = proposed_plans.in_hand(everything, search)
    entries = story.merge_entries(rows, plans.plans)
    mine = [(e.row, p) for e in entries for p in e.plans if opened is None or p.workload == opened]
    waiting = [(of, p) for of, p in mine if phase_of(p) is PlanPhase.PROPOSED] or mine[:1]
    first = max(waiting, key=lambda pair: proposed_plans.proposal_merit(pair[0]), default=(None, None))[1]
    if first and (opened is not None or row is None or phase_of(first) is PlanPhase.PROPOSED):
        return PlanSelection(first)
    if row is None and opened is not None:
        return PlanSelection(missing=f"{opened.namespace}/{opened.kind}/{opened.name}")
    return PlanSelection(row=row)


def with_open_plan(search: str, in_hand: str | None) -> str:
    """Return the URL with `open` set to the plan in the panel (`in_hand`, NAMESPACE/NAME), unless it is set already.

    Without `open`, the panel shows the first plan that waits for a person. After the decision another plan is the first
    in the list, but the panel keeps the decided one, and the list has to mark the plan that the panel shows.
    """
    namespace, _, name = (in_hand or "").partition("/")
    if not name or panels.address_value(search):
        return search
    return panels.address(search, open=_key(PlanRef(namespace, name)))


def _key(ref: PlanRef) -> str:
    return "/".join(quote(part, safe="") for part in (ref.namespace, PLAN_KIND, ref.name))


def board(view: View, search: str, plans: BoardPlans) -> list[Component]:
    """Return the list of the cluster's plans and predicted peaks, and the chart of both; read-only, only the chart."""
    drawn = html.Div(panels.render_guarded(lambda: day(view, search, plans), DAY), id="plan-day")
    if view.given.plans is None:
        return [drawn]
    return [html.Div(panels.render_guarded(lambda: live(view, search, plans), LIVE), id="plan-list"), drawn]


def live(view: View, search: str, plans: BoardPlans) -> Component:
    """Return the list of workloads, each with its forecast, its plans and their phases."""
    if plans.trouble is not None:
        return panels.panel(LIVE, plans.trouble)
    rows = rows_of(view, search)
    entries = story.merge_entries(rows, plans.plans)
    left_out = [html.P(visible(plans.left_out), className="panel-note")] if plans.left_out else []
    if not entries and not left_out:
        if is_filtered_out(view, plans):
            return panels.panel(LIVE, panels.no_match("plan"))
        why = "Nothing is proposed, and the cluster holds no plan. Create a plan by hand, or see the forecasts."
        return panels.panel(LIVE, panels.empty("No plan yet.", why=why, command=FORECASTS))
    titles = ("Workload and plan", "Phase", "Window", "Pods", "Coverage of past peaks")
    head = html.Thead(html.Tr([html.Th(t, scope="col") for t in titles]))
    chosen = selection(view.source.snapshot(), rows, search, plans)
    groups = shown_words(search) & set(PlanGroup)
    listed_entries = []
    for entry in entries:
        # The group of its most urgent plan; a forecast's peak without one waits for a person.
        group = PLAN_STATES[phase_of(entry.plans[0])].group if entry.plans else PlanGroup.WAITING
        if not groups or group in groups:
            listed_entries.append(entry)
    most = len(entries) if groups else MOST_LIVE
    lines = [line for entry in listed_entries[:most] for line in _lines(view, entry, chosen)]
    table = html.Table([head, html.Tbody(lines)], className="facts", id="live-plans")
    frame = html.Div(table, className="scroll", tabIndex=0, role="region", **{"aria-label": LIVE})
    return panels.panel(LIVE, *left_out, _state_counts(search, entries, plans.plans, groups), frame)


def shown_words(search: str) -> set[str]:
    """Return the comma-separated values of `show` in the URL: "7d", and groups of plan states."""
    return set(panels.address_value(search, "show").split(",")) - {""}


def _state_counts(
    search: str, entries: Sequence[PlanListEntry], plans: Sequence[Plan], groups: Collection[str]
) -> Component:  # fmt: skip
    """Return the number of plans in each state, each a link that lists only them, and how many lines are left out."""
    number = counts(plans)
    peaks = measures.matching_count(not entry.plans for entry in entries)
    several, other_words = len(number.by_phase) > 1, shown_words(search) - set(PlanGroup)
    parts: list[Any] = [html.Strong(display.counted(number.plans, "plan")), ": " if several else " "]
    for phase, count in number.by_phase.items():
        state = PLAN_STATES[phase]
        where = _show_address(search, other_words | {state.group.value})
        count_text = f"{count:,} {state.words}" if several else state.words
        parts += [dcc.Link(count_text, href=where, className="quiet-link"), ", "]
    parts = parts[:-1] if number.by_phase else parts
    parts += [f"; {display.counted(peaks, 'forecast peak')} of the cluster without a plan"] if peaks else []
    if not groups and measures.left_out_count(len(entries), MOST_LIVE):
        first = f"The first {MOST_LIVE} of {len(entries):,} workloads are listed"
        parts.append(f". {first}: choose a state to see its plans")
    every = dcc.Link("Show all", href=_show_address(search, other_words), className="quiet-link")
    return html.P([*parts, ". ", every] if groups else [*parts, "."], className="panel-note", id="plan-counts")


def _show_address(search: str, shown: Collection[str]) -> str:
    rest = [part for part in search.lstrip("?").split("&") if part and not part.startswith("show=")]
    return "?" + "&".join([*rest, *([f"show={','.join(sorted(shown))}"] if shown else [])])


def rows_of(view: View, search: str) -> list[Row]:
    """Return the listed rows; empty if the filter is invalid, which the list itself reports."""
    try:
        return listed_rows(view.source.snapshot(), search)
    except UsageError:
        return []


def _lines(view: View, entry: PlanListEntry, chosen: PlanSelection) -> list[Component]:
    """Return one line per plan of a workload; a peak without a plan also has a line."""
    row, ref = entry.row, entry.workload
    name = f"{ref.namespace}/{ref.name}"
    covered = display.MISSING  # of the back-test, the same number as beside the open plan
    if row is not None and row["coverage"] is not None:
        peaks = display.counted(int(row["occurrences"] or 0), "peak")
        covered = f"back-test: {display.percent(row['coverage'])} over {peaks}"
    if not entry.plans and row is not None:
        key = "/".join(quote(part, safe="") for part in (ref.namespace, ref.kind, ref.name))
        link = dcc.Link(_cut(name), href=f"?{urlencode({'open': key})}", title=visible(name))
        who = [link, html.Div("no plan in the cluster yet", className="dim")]
        forecast, window = panels.chip("forecast", "violet"), proposed_plans.window_words(row)
        cells = [forecast, window, f"{int(row['pods'] or 0)}", covered]
        return [_line(who, cells, opened=chosen.row is not None and ref == proposed_plans.ref_of(chosen.row))]
    lines = []
    for plan in entry.plans:
        window, plan_ref = story.window_of(plan), story.ref_to(plan)
        further = len(story.more_windows(plan))
        when = [panels.moment(window.start_seconds), " – ", panels.clock(window.end_seconds)] if window else ["none"]
        when += [f" and {further} more"] if further else []
        here = dcc.Link(_cut(name), href=f"?{urlencode({'open': _key(plan_ref)})}", title=visible(name))
        page = dcc.Link("page", href=plan_actions.page_of(view.settings.base_path, plan_ref), className="quiet-link")
        # The name of a proposal says nothing that the workload's does not.
        is_proposal = plan.name == proposal_name(plan.workload)
        own = [] if is_proposal else [html.Span(_cut(plan.name), title=visible(plan.name)), " "]
        scores = plan.status.scores
        past = f"last: {plan_scores.short_summary(scores[0])}" if scores else covered
        phase = panels.chip(phase_of(plan).value, state_of(plan).tone, story.bar_label(plan))
        pods = f"{available_pods(plan)} of {wanted_pods(plan)}" if plan.status.units else f"{wanted_pods(plan)}"
        opened = chosen.plan is not None and story.ref_to(chosen.plan) == plan_ref
        who = [here, html.Div([*own, page], className="dim")]
        lines.append(_line(who, [phase, when, pods, past], opened=opened, **{"data-plan": str(plan_ref)}))
    return lines


def _cut(name: str) -> str:
    """Shorten a name to fit its line of the list; a tooltip shows the whole name."""
    return visible(cut_name(name, MOST_LETTERS))


def _line(who: list[Any], cells: Sequence[Any], *, opened: bool, **more: str) -> Component:
    """Return a row that a click opens (plans.js follows its first link); the open row is highlighted."""
    marked = {"className": "opens opened", "aria-current": "true"} if opened else {"className": "opens"}
    return html.Tr([html.Th(who, scope="row"), *map(html.Td, cells)], **marked, **more)


def listed_rows(snapshot: Snapshot, search: str) -> list[Row]:
    """Return the rows of PLANS under the URL's filters and order; raise UsageError for an unknown filter."""
    return list(queries.page(snapshot.tables[PLANS.name], LIST.query(search)).rows())


def days_of(search: str) -> int:
    """Return how many days the chart shows, from the URL: 7 for `show=7d`, else 1."""
    return WEEK_DAYS if SHOW_WEEK in shown_words(search) else 1


def day(view: View, search: str, plans: BoardPlans | None = None) -> Component:
    """Return the Gantt chart of the listed plans, and a chart of their total demand beside the unrequested capacity."""
    snapshot, days = view.source.snapshot(), days_of(search)
    live_plans = (plans or BoardPlans()).plans
    title = DAY if days == 1 else WEEK
    try:
        rows = listed_rows(snapshot, search)
    except UsageError as error:
        return panels.panel(title, panels.failure_state(error.message, error.fix))
    if not rows and not live_plans:
        none = panels.empty("There is no reservation plan.", why=NO_PLAN_WHY, command=FORECASTS)
        return panels.panel(title, panels.no_match("plan") if len(snapshot.tables[PLANS.name]) else none)
    start, now, over = _span(view, snapshot.overview, rows)
    bare = story.rows_without_plan(rows, live_plans)
    windows = {p.key: _occurrences(view, p, days) for p in live_plans}
    all_bars = [*proposed_plans.bars(bare), *(bar for p in live_plans for bar in story.bars(p, windows[p.key]))]
    bars = [bar for bar in all_bars if bar.end_seconds > start and bar.start_seconds < start + days * DAY_SECONDS]
    names = len({bar.name for bar in bars})
    chart = gantt.chart(bars, start, now, days, MOST_LIVE)
    if bars:
        heights = gantt.height(min(names, MOST_LIVE)), gantt.height(gantt.MOST_IN_SIGHT)
        drawn = panels.tall_figure(chart, "plans-figure", *heights)
    else:
        why, command = "This command's column Why gives the reasons.", "cotenant reservations list"
        drawn = panels.empty("None of these workloads has a window.", why=why, command=command)
    lanes = {}
    for r in Resource:
        wishes = tuple(wished for p in live_plans for wished in story.wishes(p, windows[p.key], r))
        lanes[r] = proposed_plans.lane(bare, snapshot.tables[NODES.name], r, PlanHorizon(start, days, wishes))
    lane = panels.figure(gantt.lane(lanes[Resource.CPU], days), "lane-figure", LANE_HEIGHT)
    note = "Reservations use capacity that no pod requests. The preview of a plan shows on which nodes its pods fit."
    if days > 1:
        note = f"Forecasts cover one day: after it, only plans with a schedule or a fixed window are drawn. {note}"
    demand = lanes[Resource.MEMORY]
    most, free = (display.amount(v, Resource.MEMORY) for v in (demand.highest, demand.free))
    verdict = "not enough" if demand.conflict.any() else "enough"
    memory = html.P(f"Memory: together plans need at most {most}; {free} are not requested now: {verdict}.")
    together = html.Details([html.Summary("Total demand and unrequested capacity"), lane, memory], className="more")
    why_not, switch = proposed_plans.withheld_reasons(rows), _switch(view, search, days)
    return panels.panel(title, *([over] if over else []), drawn, together, *why_not, note=note, aside=switch)


def _occurrences(view: View, plan: Plan, days: int) -> Sequence[Any]:
    """Return the plan's occurrences that begin within the days of the chart; empty if its schedule is unreadable."""
    service = view.given.plans
    try:
        return service.occurrences(plan, days) if service else ()
    except CotenantError:
        return ()


def _switch(view: View, search: str, days: int) -> Component:
    shown = shown_words(search) - {SHOW_WEEK}
    addresses = ((1, "24 h", shown), (WEEK_DAYS, "7 d", shown | {SHOW_WEEK}))
    links = []
    for number, label, parts in addresses:
        link = dcc.Link(label, href=_show_address(search, parts), id=f"plans-{number}d", className="switch-link")
        links.append(html.Span(link, **({"className": "chosen", "aria-current": "true"} if number == days else {})))
    href = f"{view.settings.base_path}api/v1/reservations/calendar.ics"
    calendar = html.A("Calendar", href=href, className="quiet-link", download="reservations.ics")
    return html.Span([*links, calendar], className="switch", **{"aria-label": "Days to show"}, role="group")


def _span(
    view: View, overview: Overview | None, rows: Sequence[Row]
) -> tuple[int, float | None, Component | None]:  # fmt: skip
    """Return the chart's start, the time to mark as now (or None), and a warning if the results' day is over.

    With a plan service the chart begins at the present; without one, demo data keep the time of their results.
    """
    if view.given.plans is not None:
        now = view.now_seconds()
        start = int(now) // gantt.STEP_SECONDS * gantt.STEP_SECONDS - gantt.STEP_SECONDS
        return start, now, None
    start = proposed_plans.start_of(rows, overview.time_seconds if overview else 0)
    if overview is None or overview.demo:
        return start, None, None
    now = view.now_seconds()
    if now < start + DAY_SECONDS:
        return start, (now if now > start else None), None
    age = display.duration(measures.age_seconds(now, start + DAY_SECONDS))
    text = f"These windows ended {age} ago; a new scan proposes new windows: "
    parts = [html.Strong("Stale. "), text, html.Code("cotenant scan")]
    return start, None, html.Div(parts, className="note-partial")
