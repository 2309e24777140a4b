"""Rebalance: pods that should leave overloaded nodes, nodes before and after that, and the jobs of approved moves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, NoData
from cotenant.base.people import Right
from cotenant.base.text import visible
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_BESIDE, HIGHEST_HALF_HOUR_MEANING, HIGHEST_HALF_HOUR_NAME
from cotenant.dashboard.figures import display, load_maps
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.live_page import LivePage, LivePart
from cotenant.dashboard.frame.table_cells import (
    MOST_ROWS,
    Drawn,
    cells,
    gap_panel,
    reason_chips,
    row_note,
    rows_of,
    sentence,
    titles,
    unbroken_text,
)
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View, in_cluster, with_cluster
from cotenant.dashboard.rebalance import approval
from cotenant.scheduler_ext.rebalance.model.move_service import (
    TO_BE_EMPTIED,
    JobCarrier,
    MigrationJobs,
    MoveHistoryEntry,
    namespace_of,
)
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, JOBS, MOVES, NODES, RESOURCES, RebalanceReport

PATH: Final = "rebalance"
ROUND: Final = "The round"
MAPS: Final = "Now and after"
PEAKS: Final = f"In the {HIGHEST_HALF_HOUR_NAME} of the next 24 hours"
MOVE_TITLE: Final = "Moves"
EMPTYING_TITLE: Final = "Nodes to be emptied"
PLUGINS: Final = (("LowNodeLoad", "Relieve"), ("HighNodeLoad", "Empty"))
"""Plugin -> what its round does, as the page's links say."""
STAY_TITLE: Final = "Pods that stay"
JOBS_TITLE: Final = "Jobs"
HISTORY: Final = "Who did what"
ONE_ROUND: Final = "serve descheduler --once"
CLUSTER: Final = f"cotenant dashboard --act\ncotenant {ONE_ROUND}"
AGENTS: Final = "cotenant install --components colocation,enforcement --apply"
TONES: Final = {"Pending": "gray", "Running": "blue", "Succeeded": "teal", "Failed": "red", "Aborted": "orange"}
PENDING: Final = "Pending"
MOST_HISTORY: Final = 20
Row = Mapping[str, Any]


def render(view: View, search: str) -> Component:
    """Return the page; its callback redraws it when the round or a job changes."""
    lead = html.P(
        "Which pods should leave overloaded or under-used nodes, where each fits, why others stay; a person approves."
    )
    head = html.Div([html.H1("Rebalance"), lead], className="page-head")
    top, rows = (LIVE.part(name, view, search) for name in ("top", "rows"))
    store = LIVE.store(view, search)
    return html.Div([head, store, top, *approval.action_components(), rows], className="page tall-page")


# --- the round --------------------------------------------------------------------------------------------------------
def overview(view: View, search: str) -> Component:
    """Return a sentence on the present round (one decision over all nodes), and the two heat maps of nodes."""
    if view.given.moves is None:
        why = "A round is decided on a live cluster. Let the dashboard read one, or use the command line:"
        return panels.panel(ROUND, panels.empty("This dashboard has no cluster access.", why=why, command=CLUSTER))
    try:
        report = report_of(view, search)
    except NoData as error:
        state = panels.empty(f"{error.message[:1].upper()}{error.message[1:]}.", why=error.fix, command=AGENTS)
        return panels.panel(ROUND, state)
    return html.Div([verdict(report, search), *gap_panel(report.gaps), *maps(report, search)])


def report_of(view: View, search: str) -> RebalanceReport:
    """Return the present round, by the plugin in the URL or else LowNodeLoad; raise NoData without node reports."""
    moves, who = in_cluster(view.given.moves), view.given.current_user()
    return moves.emptying(who) if _empties(search) else moves.report(who)


def _empties(search: str) -> bool:
    return panels.address_value(search, "plugin") == PLUGINS[1][0]


def verdict(report: RebalanceReport, search: str) -> Component:
    """Return how many pods should leave how many nodes in this round, and the rules that decide it."""
    loads = Counter(str(load) for load in report.nodes.columns["load"])
    chips = []
    for load, count in sorted(loads.items()):
        tone = "red" if load == "high" else "orange" if load.startswith("high") else "teal" if load == "low" else "gray"
        chips.append(panels.chip(f"{load} {count:,}", tone))
    count = report.move_count
    moves = display.counted(count, "move") if count else "No move"
    extent = f"{moves} for {display.counted(len(report.nodes), 'node')}, decided "
    line = html.P([extent, panels.moment(report.at_seconds)], className="verdict")
    links = [(what, {"plugin": name}, name == report.plugin) for name, what in PLUGINS]
    ways = panels.choices("Plugin", links, search)
    rests = html.Details([html.Summary("Assumptions and details"), panels.notes(report.notes)], className="more")
    return panels.panel(ROUND, line, html.Div(chips, className="chips"), rests, aside=ways)


def maps(report: RebalanceReport, search: str) -> list[Component]:
    """Return the heat map of nodes now and after the moves, and that of their highest forecast half hour, if known."""
    rows = list(report.nodes.rows())
    resource = shown_resource(search, rows)
    links = [(title, {"show": name}, name == resource) for name, title in RESOURCES]
    ways = panels.choices("Resource", links, search)
    now = panels.figure(load_maps.now_and_after(rows, resource), "rebalance-now", load_maps.HEIGHT)
    note = f"Usage in % of capacity, one column a node; {load_maps.ABOVE}: above its threshold."
    drawn = [panels.panel(MAPS, now, aside=ways, note=note)]
    if all(row[f"{resource}_peak"] is None for row in rows):
        why = "The manager publishes forecasts of nodes from its history; without them the present usage decides."
        state = panels.empty("No node has a forecast.", why=why, command="kubectl get usageforecasts")
        return [*drawn, panels.panel(PEAKS, state)]
    peak = panels.figure(load_maps.at_peak(rows, resource), "rebalance-peak", load_maps.HEIGHT)
    note = f"In % of capacity; {load_maps.ABOVE} as above. {HIGHEST_HALF_HOUR_MEANING} {HIGHEST_HALF_HOUR_BESIDE}"
    return [*drawn, panels.panel(PEAKS, peak, note=note)]


def shown_resource(search: str, rows: Sequence[Row]) -> str:
    """Return the resource in the URL's `show`, else the one with most nodes above their threshold, else CPU."""
    chosen = panels.address_value(search, "show")
    if chosen in dict(RESOURCES):
        return chosen

    def above(resource: str) -> int:
        return sum((row[f"{resource}_now"] or 0.0) > (row[f"{resource}_high"] or math.inf) for row in rows)

    return max((name for name, _ in RESOURCES), key=above)


# --- rows -------------------------------------------------------------------------------------------------------------
def lists(view: View, search: str) -> Component:
    """Return jobs, moves, refusals, nodes and history; only jobs and history if the round cannot be decided."""
    service = view.given.moves
    if service is None:
        return html.Div()
    who = view.given.current_user()
    jobs = service.jobs(who)
    parts = [job_panel(view, jobs)] if len(jobs.jobs) else []
    history = service.history(who)
    try:
        report = report_of(view, search)
    except CotenantError:  # it is told above
        return html.Div([*parts, *history_panel(history)])
    first = [emptying_panel(view, report, jobs)] if _empties(search) else []
    lists = [*first, move_panel(view, report, jobs), stay_panel(report), node_panel(report)]
    return html.Div([*parts, *lists, *history_panel(history)])


def move_panel(view: View, report: RebalanceReport, jobs: MigrationJobs) -> Component:
    """Return the moves with their cost, each with its button, and a button for all."""
    carrier = jobs.carrier
    rows = [row for row in report.moves.rows() if row["decision"] == "move"]
    if not rows:
        return panels.panel(MOVE_TITLE, quiet("No pod should move now."))
    if report.plugin == PLUGINS[1][0]:
        table = rows_of(MOVES, rows, MOVE_TITLE)
        why = "These pods would move first, within the limits of a round; the approved nodes decide which pods move."
        return panels.panel(MOVE_TITLE, table, note=f"{why} {row_note(len(rows), 'serve descheduler --once')}".strip())
    reason = approval.why_not(view, carrier)
    every = approval.approve_button(
        approval.EVERY, f"Approve all {len(rows)}" if len(rows) > 1 else "Approve it", reason
    )
    table_rows = []
    for row in rows[:MOST_ROWS]:
        pod = str(row["pod"])
        approve = approval.approve_button(pod, "Approve", approval.why_not(view, carrier, namespace_of(pod)))
        table_rows.append([*cells(MOVES, row), approve])
    table = panels.facts([*titles(MOVES), "Approval"], table_rows, MOVE_TITLE)
    off = [disabled_state(carrier)] if not carrier.carries else under_way(jobs)
    more = [html.P(reason, className="panel-note")] if reason and carrier.carries else []
    return panels.panel(MOVE_TITLE, *off, *more, table, aside=every, note=row_note(len(rows), ONE_ROUND))


def emptying_panel(view: View, report: RebalanceReport, jobs: MigrationJobs) -> Component:
    """Return the nodes that are or could be emptied, with reason and button, and those that stay, with the reason."""
    rows = list(report.emptying.rows())
    if not rows:
        return panels.panel(EMPTYING_TITLE, quiet("No node is under-used."))
    emptier = jobs.emptier
    reason = approval.why_not(view, emptier)
    count = measures.matching_count(row["decision"] == TO_BE_EMPTIED for row in rows)
    withdrawal = approval.why_not(view, JobCarrier())
    button_text = f"Empty all {count}" if count > 1 else "Empty it"
    every = approval.approve_button(approval.EVERY, button_text, reason, approval.NODES) if count else None
    table_rows = []
    for row in rows[:MOST_ROWS]:
        node = str(row["node"])
        button: Any = display.MISSING
        if row["decision"] == TO_BE_EMPTIED:
            button = approval.approve_button(node, "Empty", reason, approval.NODES)
        elif row["by"]:  # a mark can also be taken away while nobody empties nodes
            button = approval.withdraw_button(node, node, withdrawal, approval.NODES)
        table_rows.append([*cells(EMPTYING, row), sentence(row["reason"]), button])
    table = panels.facts([*titles(EMPTYING), "Why", "Approval"], table_rows, EMPTYING_TITLE)
    off = [] if emptier.carries else [disabled_state(emptier)]
    return panels.panel(EMPTYING_TITLE, *off, table, aside=every, note=row_note(len(rows), ONE_ROUND))


def under_way(jobs: MigrationJobs) -> list[Component]:
    """Return a note that node reports may not include moves under way; empty if no move's job is open."""
    phases = jobs.jobs.columns["phase"]
    count = measures.matching_count(str(phase).startswith(("Pending", "Running")) for phase in phases)
    if not count:
        return []
    jobs_text = display.counted(count, "job")
    message = f"{jobs_text} under way: node reports may not show their moves yet, so some proposals may be unneeded."
    return [html.P(message, className="panel-note")]


def quiet(headline: str) -> Component:
    """Return an empty panel's content: the headline, and the command that prints why there is nothing to show."""
    return panels.empty(headline, why="This command shows the reason:", command=f"cotenant {ONE_ROUND}")


def disabled_state(carrier: JobCarrier) -> Component:
    """Return why moves cannot be approved, and the command that helps."""
    why = "Moves are shown, but cannot be approved before this command has run."
    return panels.empty(carrier.why_not, why=why, command=carrier.command)


def stay_panel(report: RebalanceReport) -> Component:
    """Return the pods of overloaded nodes that stay, each with its reason."""
    rows = [row for row in report.moves.rows() if row["decision"] != "move"]
    if not rows:
        return panels.panel(STAY_TITLE, quiet("No examined pod stays."))
    heads = ["Pod", "From", "Reason", "Why"]
    table_rows = []
    for row in rows[:MOST_ROWS]:
        pod, code = visible(row["pod"]) or "the node's other pods", row["reason"]
        table_rows.append([pod, unbroken_text(row["source"]), unbroken_text(label(code)), sentence(code)])
    table = panels.facts(heads, table_rows, STAY_TITLE)
    codes = reason_chips(str(row["reason"]) for row in rows)
    return panels.panel(STAY_TITLE, codes, table, note=row_note(len(rows), ONE_ROUND))


def node_panel(report: RebalanceReport) -> Component:
    """Return the nodes, with the columns of `cotenant serve descheduler --once`."""
    rows = list(report.nodes.rows())
    return panels.panel("Nodes", rows_of(NODES, rows, "Nodes"), note=row_note(len(rows), ONE_ROUND))


def job_panel(view: View, jobs: MigrationJobs) -> Component:
    """Return all PodMigrationJobs, also those of other programs, with their phase and the conditions they reached."""
    rows = list(jobs.jobs.rows())
    phases = Counter(str(row["phase"]) for row in rows)
    chips = [panels.chip(f"{phase} {count:,}", _phase_tone(phase)) for phase, count in sorted(phases.items())]
    who, table_rows = view.given.current_user(), []
    for row in rows[:MOST_ROWS]:
        withdraw: Any = display.MISSING
        if str(row["phase"]).startswith(PENDING):  # nothing else can be withdrawn
            pod = str(row["pod"])
            may = who.may(Right.APPROVE, namespace_of(pod))
            withdraw = approval.withdraw_button(
                str(row["job"]), pod, "" if may else "This needs role approver or admin."
            )
        table_rows.append([*cells(JOBS, row, DRAWN), withdraw])
    table = panels.facts([*titles(JOBS), "Undo"], table_rows, JOBS_TITLE)
    parts = [html.Div(chips, className="chips"), table]
    if not jobs.carrier.carries and any(str(row["phase"]).startswith(PENDING) for row in rows):
        parts.insert(0, disabled_state(jobs.carrier))
    return panels.panel(JOBS_TITLE, *parts, note=row_note(len(rows), ONE_ROUND))


def _phase_tone(phase: str) -> str:
    return TONES.get(phase.partition(",")[0], "gray")


def history_panel(entries: Sequence[MoveHistoryEntry]) -> list[Component]:
    """Return the ledger entries about moves, newest first."""
    if not entries:
        return []
    table_rows = [
        [panels.moment(e.seconds), *map(unbroken_text, (e.actor, e.event.value)), visible(e.pod), visible(e.message)]
        for e in entries[:MOST_HISTORY]
    ]
    note = "`cotenant audit export` exports every row." if len(entries) > MOST_HISTORY else ""
    table = panels.facts(["When", "Who", "What", "Pod or node", "Why"], table_rows, HISTORY)
    return [panels.panel(HISTORY, table, note=note)]


DRAWN: Final[Drawn] = {
    "phase": lambda phase: panels.chip(phase, _phase_tone(phase)),
    "done": lambda text: [part for step in text.split(", ") for part in (unbroken_text(step), " ")],
}


# --- callbacks --------------------------------------------------------------------------------------------------------
def _state(view: View, search: str) -> list[Any] | None:
    service = view.given.moves
    if service is None:
        return None
    who, parts = view.given.current_user(), list[Any]()
    for read in (service.emptying if _empties(search) else service.report, service.jobs):
        try:
            answer = read(who)
        except CotenantError as error:
            parts.append(error.message)
            continue
        if isinstance(answer, MigrationJobs):
            reasons = answer.carrier.why_not, answer.emptier.why_not
            parts.append((list(answer.jobs.rows()), reasons))
        else:
            rows = [list(table.rows()) for table in (answer.nodes, answer.moves, answer.emptying)]
            parts.append((rows, answer.notes, answer.gaps))
    return parts


LIVE: Final = LivePage(
    PATH, _state, {"top": LivePart(ROUND, overview), "rows": LivePart(MOVE_TITLE, lists)}, approval.ACTED
)


def register(app: Dash, view: View) -> None:
    """Register the callbacks that redraw after a new round, job or URL, and those that act."""
    LIVE.register(app, view)
    approval.register(app, view)


OBEYED: Final = Obeyed("a round covers whole nodes and all their pods.", "the page shows the present.", spans=False)
PAGE: Final = Page(
    PATH, "Rebalance", "m", render, register, place=Place.PLACE, installed=with_cluster("moves"), obeyed=OBEYED
)
