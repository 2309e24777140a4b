"""Autopilot: the pause switch, what each policy does, the queue with reasons, the week's report, and the editor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.autopilot.model import REPORT, STATUS, AutopilotMode, AutopilotRound, policy_totals
from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.reasons import Reason
from cotenant.base.table import Table
from cotenant.base.text import agree, visible
from cotenant.dashboard.autopilot import acting, bundles, policy_editor
from cotenant.dashboard.changes.select_bar import NEW
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import carried, panels
from cotenant.dashboard.frame.live_page import LivePage, LivePart
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.table_cells import (
    MOST_ROWS,
    Drawn,
    cells,
    reason_chips,
    row_note,
    rows_of,
    titles,
    without_empty_columns,
)
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View, with_cluster

PATH: Final = "autopilot"
WEEK_DAYS: Final = 7.0
SWITCH: Final = "Switch"
POLICIES: Final = "Policies"
QUEUE_TITLE: Final = "Queue"
REPORT_TITLE: Final = "The last seven days"
WEEK_AFTER: Final = "Effect that proposals would have had in the week after them"
TONIGHT: Final = "tonight"
CLUSTER: Final = "cotenant dashboard --act\ncotenant autopilot status"
INSTALL: Final = "cotenant install --components autopilot --apply"
EXAMPLE: Final = "kubectl apply -f deploy/examples/autopilotpolicy.yaml"
MODES: Final = {AutopilotMode.OFF: "gray", AutopilotMode.OBSERVE: "blue", AutopilotMode.ACT: "teal"}
RESUMED: Final = (Reason.AUTOPILOT_OTHER_WRITER, Reason.AUTOPILOT_GIVEN_UP, Reason.AUTOPILOT_BACKS_OFF)
"""Reasons for which a workload waits until a person resumes it."""


def render(view: View, search: str) -> Component:
    """Return the page; its callback redraws everything except the editor for a new autopilot round or URL."""
    lead = html.P("Automatic right-sizing under policies: a policy observes until an approver lets it act.")
    head = html.Div([html.H1("Autopilot"), lead], className="page-head")
    top, rows = (LIVE.part(name, view, search) for name in ("top", "rows"))
    policy = panels.address_value(search, "policy")
    drawn = panels.render_guarded(lambda: policy_editor.editor(view, policy), policy_editor.TITLE)
    editor = html.Div(drawn, id="autopilot-editor")
    stores = [LIVE.store(view, search), dcc.Store(id="policy-open", data=policy)]
    acts = [*acting.action_components(), *bundles.action_components()]
    return html.Div([head, *stores, *acts, top, editor, rows], className="page tall-page")


def overview(view: View) -> Component:
    """Return the panel of the pause switch, and the panel with what each policy does."""
    service = view.given.autopilot
    if service is None:
        why = "Policies are read live from a cluster. Let the dashboard read one, or use the command line:"
        return panels.panel(SWITCH, panels.empty("This dashboard has no cluster access.", why=why, command=CLUSTER))
    now = service.round(view.given.current_user())
    return html.Div([switch_panel(view, now), policy_panel(view, now)])


def switch_panel(view: View, now: AutopilotRound) -> Component:
    """Return whether workloads are changed now, why not, and the one button that pauses or resumes everything."""
    act = acting.RESUME if now.waits_for_a_person else acting.PAUSE
    acts = measures.matching_count(row["mode"] == AutopilotMode.ACT for row in now.status.rows())
    word, tone = ("halted", "red") if now.halt else ("running", "teal") if acts else ("observing", "blue")
    counts = f"{acts:,} of {agree(len(now.status), 'policy', 'policies')} may change workloads; decided "
    line = html.P([panels.chip(word, tone), " ", counts, panels.moment(now.at_seconds)], className="verdict")
    notes = [now.halt, *now.gaps] if now.halt else [*now.gaps]
    more = [panels.notes(notes)] if notes else []
    if not now.enabled:
        why = "This is a preview of the policies. With these settings the manager ignores policies; to change that:"
        more.append(panels.empty("The setting autopilot.enabled is false.", why=why, command=INSTALL))
    return panels.panel(SWITCH, line, *more, aside=acting.button(view, act))


def policy_panel(view: View, now: AutopilotRound) -> Component:
    """Return one row per policy, with a link to its text and its approval button."""
    add = dcc.Link("New policy", href=f"?policy={NEW}", className="button")
    rows = list(now.status.rows())
    if not rows:
        why = "A policy says which workloads of its namespace may be changed, how far and when. An example:"
        return panels.panel(POLICIES, panels.empty("There is no policy.", why=why, command=EXAMPLE), aside=add)
    drawn: Drawn = {"mode": lambda mode: panels.chip(mode, MODES[AutopilotMode(mode)])}
    lines = []
    for row in rows[:MOST_ROWS]:
        name = f"{row['namespace']}/{row['policy']}"
        link = dcc.Link(visible(name), href=panels.address("", policy=name), className="quiet-link")
        act = acting.OBSERVE if row["mode"] == AutopilotMode.ACT else acting.ACT
        lines.append([link, *cells(STATUS, row, drawn)[2:], acting.button(view, act, name)])
    table = panels.facts(["Policy", *titles(STATUS)[2:], "Approval"], lines, POLICIES, policy_totals(now.status))
    return panels.panel(POLICIES, table, aside=add, note=row_note(len(rows), "autopilot status"))


# --- queue and report -------------------------------------------------------------------------------------------------
def lists(view: View, search: str) -> Component:
    """Return the queue and the report; empty if the panel of the pause switch already says why there are none."""
    service = view.given.autopilot
    if service is None:
        return html.Div()
    who, tonight = view.given.current_user(), panels.address_value(search, "show") == TONIGHT
    try:
        now = service.round(who, tonight)
    except CotenantError:
        if tonight:
            raise
        return html.Div()  # of this same round it is told above
    report = panels.render_guarded(lambda: report_panel(service.report(who, WEEK_DAYS), search), REPORT_TITLE)
    return html.Div([queue_panel(view, now, search), report])


def queue_panel(view: View, now: AutopilotRound, search: str) -> Component:
    """Return the changes to make, in order, then those that wait, each with its reason."""
    tonight = panels.address_value(search, "show") == TONIGHT
    ways = [("Now", {"show": "now"}, not tonight), ("Tonight", {"show": TONIGHT}, tonight)]
    aside = panels.choices("When", ways, search)
    includes = carried.admits(search)
    rows = [row for row in now.queue.rows() if includes(row["namespace"])]
    if not rows:
        why = "No workload that a policy selects has a recommendation."
        link = ("To the recommendations", f"{view.settings.base_path}recommendations")
        none = panels.empty("The queue is empty.", why=why, link=link)
        return panels.panel(QUEUE_TITLE, panels.no_match("workload") if len(now.queue) else none, aside=aside)
    lines = []
    for row in rows[:MOST_ROWS]:
        name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
        resume = acting.button(view, acting.RESUME, name) if row["reason"] in RESUMED else display.MISSING
        lines.append([*policy_editor.queue_cells(row), resume])
    table = panels.facts(*without_empty_columns([*titles(policy_editor.LISTED), "Resume"], lines), QUEUE_TITLE)
    codes = reason_chips(str(row["reason"]) for row in rows if row["reason"])
    window = "Decided as if every change window were open. " if tonight else ""
    more = row_note(len(rows), f"autopilot preview{' --in-window' if tonight else ''}")
    files = bundles.offer(view, rows)
    return panels.panel(QUEUE_TITLE, codes, table, *files, aside=aside, note=f"{window}{more}".strip())


def report_panel(report: Table, search: str) -> Component:
    """Return the panel that counts proposals, changes and the effects of proposals by namespace."""
    includes = carried.admits(search)
    rows = [row for row in report.rows() if includes(row["namespace"])]
    if not rows:
        why = "A policy that observes or acts records its proposals and actions from the manager's first run on."
        none = panels.empty("Nothing was proposed or changed.", why=why, command="cotenant autopilot status")
        return panels.panel(REPORT_TITLE, panels.no_match("workload") if len(report) else none)
    # Separate what was done from what a week has said of it since: together they are wider than a laptop's window.
    name, *others = REPORT.columns
    first = next(n for n, column in enumerate(others) if column.name == "weeks")
    done, after = replace(REPORT, columns=(name, *others[:first])), replace(REPORT, columns=(name, *others[first:]))
    table = rows_of(done, rows, REPORT_TITLE)
    weeks = [row for row in rows[:MOST_ROWS] if row["weeks"]]
    parts = [html.H3(WEEK_AFTER), rows_of(after, weeks, WEEK_AFTER)] if weeks else []
    unknown = "" if weeks else "The seven days after each proposal are not over yet: its effect is not known. "
    return panels.panel(REPORT_TITLE, table, *parts, note=f"{unknown}{row_note(len(rows), 'autopilot report')}".strip())


# --- callbacks --------------------------------------------------------------------------------------------------------
def _state(view: View, search: str) -> list[Any] | None:
    service = view.given.autopilot
    if service is None:
        return None
    who, parts = view.given.current_user(), list[Any]()
    try:
        for round_ in (service.round(who), service.round(who, panels.address_value(search, "show") == TONIGHT)):
            parts += [list(round_.status.rows()), list(round_.queue.rows()), round_.halt, round_.gaps]
        parts.append(list(service.report(who, WEEK_DAYS).rows()))
    except CotenantError as error:
        parts.append(error.message)
    return parts


LIVE: Final = LivePage(
    PATH,
    _state,
    {"top": LivePart(SWITCH, lambda view, _search: overview(view)), "rows": LivePart(QUEUE_TITLE, lists)},
    acting.ACTED,
)


def register(app: Dash, view: View) -> None:
    """Register the callbacks that redraw the page after an autopilot round or for a new URL, and those that act."""
    LIVE.register(app, view)

    @app.callback(
        Output("autopilot-editor", "children"),
        Output("policy-open", "data"),
        Input("url", "search"),
        State("url", "pathname"),
        State("policy-open", "data"),
    )
    def _edit(search: str | None, pathname: str | None, shown: str | None) -> Sequence[Any]:
        name = panels.address_value(search or "", "policy")
        if path_of(pathname or "", view.settings) != PATH or name == (shown or ""):
            return [no_update] * 2
        return panels.render_guarded(lambda: policy_editor.editor(view, name), policy_editor.TITLE), name

    acting.register(app, view)
    bundles.register(app, view)
    policy_editor.register(app, view)


OBEYED: Final = Obeyed(
    "the namespace filters only the queue and the report.", "the report covers seven days.", spans=False
)
PAGE: Final = Page(
    PATH, "Autopilot", "a", render, register, place=Place.RIGHT_SIZE, installed=with_cluster("autopilot"), obeyed=OBEYED
)
