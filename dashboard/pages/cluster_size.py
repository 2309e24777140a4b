"""Cluster size: how many nodes could leave at each level of requests, what binds the others, where pods would go."""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.base.text import visible
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.table_cells import MOST_ROWS, cells, reason_chips, row_note, titles
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.tables import display
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, RequestLevel
from cotenant.scheduler_ext.cluster_size.report import (
    COMPUTING,
    LATER,
    NEVER,
    SizedLevel,
    SizeReport,
    best_known,
    bills_of,
    bound_sentence,
    bound_text,
    month_text,
    sentences_of,
)
from cotenant.scheduler_ext.cluster_size.tables import (
    BILLS,
    MIX,
    MOVES,
    NODES,
    OBSTACLES,
    STEPS,
    bill_table,
    count_text,
    mix_table,
    move_table,
    node_table,
    obstacle_table,
    step_table,
)

PATH: Final = "cluster-size"
COMMAND: Final = "cotenant size"
NAMES: Final = {
    RequestLevel.NOW: "Requests as now",
    RequestLevel.READY: "After what is ready",
    RequestLevel.ALL_STEPS: "After all steps",
}
NONE_WHY: Final = (
    "It reads nodes and pods, places the pods of every node that could leave on the others, and writes to no cluster."
)
PROMISE: Final = (
    "Cordoned all, then leaving one by one in this order, they left no pod without a place in any trial of what "
    "kube-scheduler may do; no pod is preempted. Nothing happens by itself."
)
BOUND_WHY: Final = "The table of nodes says what binds each of them. Lower requests bind fewer:"


def render(view: View, search: str) -> Component:
    """Heading, the three numbers, and the nodes and moves of the chosen level."""
    lead = html.P("Which nodes could leave, where their pods would go, and what binds the others.")
    head = html.Div([html.H1("Cluster size"), lead], className="page-head")
    return html.Div([head, panels.render_guarded(lambda: _body(view, search))], className="page tall-page")


def _body(view: View, search: str) -> Component:
    report = view.source.cluster_size()
    if report is None and view.given.computes_size():
        meanwhile = ("What each node holds now", f"{view.settings.base_path}nodes")
        return panels.empty(f"{COMPUTING[:1].upper()}{COMPUTING[1:]}.", why=f"{NONE_WHY} {LATER}", link=meanwhile)
    if report is None:
        return panels.empty(f"{NEVER[:1].upper()}{NEVER[1:]}.", why=NONE_WHY, command=COMMAND)
    level = shown_level(report, search)
    drawn = [*(_stat(report, sized) for sized in report.levels), _bound(report, level)]
    stats = html.Div(drawn, className="stats four")
    made = html.P(["Computed ", panels.moment(report.computed_seconds), ". ", PROMISE], className="panel-note")
    return html.Div([stats, made, *_details(report, level, search, view.settings.base_path)])


def shown_level(report: SizeReport, search: str) -> RequestLevel:
    """The level that the URL's `show` names, else the one whose number stands first."""
    chosen = panels.address_value(search, "show")
    named = next((level for level in RequestLevel if level.option == chosen), None)
    return named or best_known(report) or RequestLevel.NOW


def _stat(report: SizeReport, sized: SizedLevel) -> Component:
    """One of the three numbers: nodes that could leave, and their money."""
    size, name = sized.size, NAMES[sized.level]
    if size is None:
        return panels.stat(name, display.MISSING, sized.reason)
    return panels.stat(name, count_text(size), month_text(size, report.currency))


def _bound(report: SizeReport, level: RequestLevel) -> Component:
    """Show how far the shown answer may be from the best possible."""
    sized = report.at(level)
    return panels.stat(
        "Kept, by the lower bound", bound_text(sized) or display.MISSING, bound_sentence(sized) or sized.reason
    )


def _details(report: SizeReport, level: RequestLevel, search: str, base: str) -> list[Component]:
    links = [(NAMES[choice], {"show": choice.option}, choice is level) for choice in RequestLevel]
    ways = panels.choices("Requests", links, search)
    sized = report.at(level)
    if sized.size is None:
        state = panels.empty(f"There is no answer {level.value}.", why=sized.reason, command="cotenant scan")
        return [panels.panel("Nodes", state, aside=ways)]
    said = html.Ul([html.Li(visible(line)) for line in sentences_of(report, level) if line], className="notes")
    command = f"size --requests {level.option} --show"
    return [
        panels.panel("The answer", said, aside=ways),
        _gaps(sized.size),
        _node_panel(sized.size, f"{command} nodes"),
        _move_panel(sized.size, f"{command} moves", base),
        _bill_panel(report, sized),
        _step_panel(sized, f"{command} steps", base),
        _obstacle_panel(report, sized.size, f"{command} obstacles"),
    ]


def lower_requests(base: str) -> tuple[str, str]:
    """The link to what can be lowered."""
    return "What can be lowered", f"{base}recommendations"


def _gaps(size: ClusterSize) -> Component:
    """List what could not be read: the pods that it concerns count as immovable."""
    if not size.gaps:
        return html.Div()
    lines = [html.Li(visible(f"{gap[:1].upper()}{gap[1:]}")) for gap in size.gaps[:MOST_ROWS]]
    return panels.panel("What could not be read", html.Ul(lines, className="notes"))


def _node_panel(size: ClusterSize, command: str) -> Component:
    """Every node: leaves or stays, and what binds it."""
    rows = list(node_table(size).rows())
    lines: list[list[Any]] = [[*cells(NODES, row), visible(row["binds"])] for row in rows[:MOST_ROWS]]
    chips = reason_chips(node.stay.reason.value for node in size.staying)
    table = panels.facts([*titles(NODES), "What binds it"], lines, "Nodes")
    return panels.panel("Nodes", chips, table, note=row_note(len(rows), command))


def _move_panel(size: ClusterSize, command: str, base: str) -> Component:
    """Each pod of a leaving node with the node that takes it, in the first trial."""
    rows = list(move_table(size).rows())
    if not rows:
        return panels.panel("Moves", panels.empty("No pod would move.", why=BOUND_WHY, link=lower_requests(base)))
    table = panels.facts(titles(MOVES), [cells(MOVES, row) for row in rows[:MOST_ROWS]], "Moves")
    return panels.panel("Moves", table, note=row_note(len(rows), command))


def _bill_panel(report: SizeReport, sized: SizedLevel) -> Component:
    """The four bills, and the cheapest mix of machine types."""
    if sized.mix is None:
        why = "A list of allowed machine types with their prices gives the cheapest mix, and four bills to compare."
        return panels.panel(
            "Machine types", panels.empty("No list was given.", why=why, command=f"{COMMAND} --shapes FILE")
        )
    bills = [cells(BILLS, row) for row in bill_table(bills_of(report, sized.level)).rows()]
    lines = [cells(MIX, row) for row in mix_table(sized.mix).rows()]
    tables = [panels.facts(titles(BILLS), bills, "Bills a month")]
    if lines:
        tables.append(panels.facts(titles(MIX), lines, "Cheapest mix"))
    return panels.panel("Machine types", *tables, note=f"Prices in {report.currency}, a month of 730 hours.")


def _step_panel(sized: SizedLevel, command: str, base: str) -> Component:
    """The way there with dates."""
    rows = list(step_table(sized.steps).rows())
    if not rows:
        state = panels.empty("No node could leave.", why=BOUND_WHY, link=lower_requests(base))
        return panels.panel("Getting there", state)
    table = panels.facts(titles(STEPS), [cells(STEPS, row) for row in rows[:MOST_ROWS]], "Getting there")
    return panels.panel("Getting there", table, note=row_note(len(rows), command))


def _obstacle_panel(report: SizeReport, size: ClusterSize, command: str) -> Component:
    """List what autoscalers do by themselves, and which objects keep them from it."""
    does = html.Ul([html.Li(visible(line)) for line in report.autoscaler_notes], className="notes")
    rows = list(obstacle_table(report.obstacles, size).rows())
    if not rows:
        return panels.panel(
            "Autoscalers", does, html.P("No setting that was read keeps a node.", className="panel-note")
        )
    lines = [cells(OBSTACLES, row) for row in rows[:MOST_ROWS]]
    table = panels.facts(titles(OBSTACLES), lines, "Autoscalers")
    return panels.panel("Autoscalers", does, table, note=row_note(len(rows), command))


def register(_app: Dash, _view: View) -> None:
    """No callbacks: the page is the stored answer."""


OBEYED: Final = Obeyed("nodes are of the whole cluster.", "the answer is of one moment.", spans=False)
PAGE: Final = Page(PATH, "Cluster size", "z", render, register, place=Place.PLACE, obeyed=OBEYED)
