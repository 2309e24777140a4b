"""Cluster size: how many nodes could be removed at each level of requests, what keeps others, and where pods move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from cotenant.base.table import Table
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.table_cells import MOST_ROWS, cells, gap_panel, reason_chips, row_note, rows_of, titles
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.nodes import node_sizes
from cotenant.scheduler_ext.cluster_size import tables
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, LeavingNode, RequestLevel, StayingNode
from cotenant.scheduler_ext.cluster_size.report import (
    COMPUTING,
    LATER,
    NEVER,
    SizedLevel,
    SizeReport,
    best_known,
    bills_of,
    level_sentences,
    month_text,
    sentences_of,
    short_sentence,
)

PATH: Final = "cluster-size"
STEPS_ID: Final = "size-steps"
COMMAND: Final = "cotenant size"
NAMES: Final = {
    RequestLevel.NOW: "Requests as now",
    RequestLevel.READY: "After the ready steps",
    RequestLevel.ALL_STEPS: "After all steps",
}
NONE_WHY: Final = (
    "The command reads nodes and pods, places the pods of every removable node on the others, and writes to no cluster."
)
PROMISE: Final = (
    "In each simulated kube-scheduler run, with these nodes cordoned and drained one by one in this order, every pod "
    "found a node without preemption. Nothing happens automatically."
)
BOUND_WHY: Final = "The table of nodes says why each node must stay. With lower requests fewer nodes must stay:"


def render(view: View, search: str) -> Component:
    """Return the answer with its chart, and on demand its assumptions and all rows."""
    lead = html.P("Which nodes could be removed, where their pods would run, and what keeps the others.")
    head = html.Div([html.H1("Cluster size"), lead], className="page-head")
    return html.Div([head, panels.render_guarded(lambda: _body(view, search))], className="page tall-page")


def _body(view: View, search: str) -> Component:
    report = view.source.cluster_size()
    if report is None and view.given.computes_size():
        meanwhile = ("Load of each node", f"{view.settings.base_path}nodes")
        return panels.empty(f"{COMPUTING[:1].upper()}{COMPUTING[1:]}.", why=f"{NONE_WHY} {LATER}", link=meanwhile)
    if report is None:
        return panels.empty(f"{NEVER[:1].upper()}{NEVER[1:]}.", why=NONE_WHY, command=COMMAND)
    level = shown_level(report, search)
    sized = report.at(level)
    if sized.size is None:
        links = [(NAMES[choice], {"show": choice.option}, choice is level) for choice in RequestLevel]
        ways = panels.choices("Requests", links, search)
        state = panels.empty("The removable nodes are not known.", why=sized.reason, command="cotenant scan")
        details = [panels.panel("Nodes", state, aside=ways), _level_steps(report)]
    else:
        computed = html.P(["Computed ", panels.moment(report.computed_seconds), ". ", PROMISE], className="panel-note")
        sentences = html.Ul([html.Li(visible(line)) for line in sentences_of(report, level) if line], className="notes")
        command = f"size --requests {level.option} --show"
        lower = ("Requests that can be lowered", f"{view.settings.base_path}recommendations")
        no_step = panels.empty("No node can be removed.", why=BOUND_WHY, link=lower)
        steps = _rows_panel("Getting there", tables.step_table(sized.steps), no_step, f"{command} steps", id_=STEPS_ID)
        rows = list(tables.node_table(sized.size).rows())
        lines: list[list[Any]] = [[*cells(tables.NODES, row), visible(row["binds"])] for row in rows[:MOST_ROWS]]
        chips = reason_chips(node.stay.reason.value for node in sized.size.staying)
        table = panels.facts([*titles(tables.NODES), "What binds it"], lines, "Nodes")
        nodes = panels.panel("Nodes", chips, table, note=row_note(len(rows), f"{command} nodes"))
        no_move = panels.empty("No pod would move.", why=BOUND_WHY, link=lower)
        moves = _rows_panel("Moves", tables.move_table(sized.size), no_move, f"{command} moves")
        # What autoscalers do by themselves, and which objects keep them from it.
        does = html.Ul([html.Li(visible(line)) for line in report.autoscaler_notes], className="notes")
        obstacles = tables.obstacle_table(report.obstacles, sized.size)
        none = html.P("No autoscaler setting that was read prevents removing a node.", className="panel-note")
        details = [
            _answer(report, sized, sized.size, search),
            _level_steps(report),
            *gap_panel(sized.size.gaps),  # the pods that it concerns count as immovable
            steps,
            _more("Assumptions and details", computed, sentences),
            _more("Every node, and what keeps it", nodes),
            _more("Every pod that moves", moves),
            _more("Machine types", _bill_panel(report, sized)),
            _more("Autoscalers", _rows_panel("Autoscalers", obstacles, none, f"{command} obstacles", before=[does])),
        ]
    return html.Div(details)


def shown_level(report: SizeReport, search: str) -> RequestLevel:
    """Return the level of requests (present, or after cuts) in the URL's `show`, else the first that is known."""
    chosen = panels.address_value(search, "show")
    named_level = next((level for level in RequestLevel if level.option == chosen), None)
    return named_level or best_known(report) or RequestLevel.NOW


def _answer(report: SizeReport, sized: SizedLevel, size: ClusterSize, search: str) -> Component:
    """Return the answer in a sentence, the nodes before and after, and the steps in between."""
    links = [(NAMES[choice], {"show": choice.option}, choice is sized.level) for choice in RequestLevel]
    worth = month_text(size, report.currency)
    in_all = html.Strong(f"; in all {worth}") if worth and size.leaving else ""
    sentence = [short_sentence(report, sized.level), in_all, "."]
    way = html.A("Steps to remove these nodes", href=f"#{STEPS_ID}", className="button", id="to-steps")
    # Nodes by name: filled as requested, with what binds each one that stays.
    squares = {}
    for leaver in size.leaving:
        text = f"{leaver.name}: {display.percent(leaver.filled)} requested; number {leaver.turn} to be removed"
        squares[leaver.name] = node_sizes.Square(leaver.filled, None, text)
    for node in size.staying:
        text = f"{node.name}: {display.percent(node.filled)} requested, afterwards {display.percent(node.filled_after)}"
        text += f"; stays: {visible(node.stay.words)}"
        squares[node.name] = node_sizes.Square(node.filled, node.filled_after, text)
    summary = f"Nodes filled by requests, now and afterwards: {tables.count_text(size)} are removed."
    chart = node_sizes.squares([squares[name] for name in sorted(squares)], summary)
    height = max(120, 40 + node_sizes.STEP_PIXELS * node_sizes.rows_of(size.nodes_now))
    picture = panels.figure(chart, "size-figure", height)
    head = html.Div([html.P(sentence, className="verdict", id="size-answer"), way], className="panel-head")
    return panels.panel("The answer", head, picture, aside=panels.choices("Requests", links, search))


def _level_steps(report: SizeReport) -> Component:
    """Return the three levels as descending steps from today's number of nodes."""
    sizes = [(NAMES[sized.level], sized.size) for sized in report.levels if sized.size is not None]
    if not sizes:
        return html.Div()
    nodes: list[LeavingNode | StayingNode] = [*sizes[0][1].leaving, *sizes[0][1].staying]
    drawn = [node_sizes.Step("Today", len(nodes), _month(nodes))]
    drawn += [node_sizes.Step(name, len(size.staying), _month(size.staying)) for name, size in sizes]
    summary = ". ".join(level_sentences(report)) + "."
    chart = node_sizes.steps(drawn, report.currency, summary)
    return panels.panel("Nodes that stay, and what they cost a month", panels.figure(chart, "levels-figure", 190))


def _month(nodes: Sequence[LeavingNode | StayingNode]) -> float | None:
    prices = [node.price_month for node in nodes if node.price_month is not None]
    return sum(prices) if prices else None


def _more(title: str, *inside: Component) -> Component:
    return html.Details([html.Summary(title), *inside], className="more")


def _rows_panel(
    title: str, table: Table, nothing: Component, command: str, *, id_: str = "", before: Sequence[Component] = ()
) -> Component:
    """Return `before` and a table, or `nothing` if it is empty; `command` lists all rows."""
    rows = list(table.rows())
    if not rows:
        return panels.panel(title, *before, nothing, id_=id_)
    note = row_note(len(rows), command)
    return panels.panel(title, *before, rows_of(table.schema, rows, title), note=note, id_=id_)


def _bill_panel(report: SizeReport, sized: SizedLevel) -> Component:
    if sized.mix is None:
        why = "A list of allowed machine types with their prices gives the cheapest mix, and the bills of four cases."
        none = panels.empty("No list of machine types was given.", why=why, command=f"{COMMAND} --shapes FILE")
        return panels.panel("Machine types", none)
    drawn = [rows_of(tables.BILLS, list(tables.bill_table(bills_of(report, sized.level)).rows()), "Bills a month")]
    if mix := list(tables.mix_table(sized.mix).rows()):
        drawn.append(rows_of(tables.MIX, mix, "Cheapest mix"))
    return panels.panel("Machine types", *drawn, note=f"Prices in {report.currency}, a month of 730 hours.")


def register(_app: Dash, _view: View) -> None:
    """Register no callbacks, because the page only shows the stored answer."""


OBEYED: Final = Obeyed("nodes belong to the whole cluster.", "the answer is for the present.", spans=False)
PAGE: Final = Page(PATH, "Cluster size", "z", render, register, place=Place.PLACE, obeyed=OBEYED)
