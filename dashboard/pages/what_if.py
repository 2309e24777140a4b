"""Try a risk: a slider that shows how lending to batch at each risk would have gone on the stored history."""

from __future__ import annotations

from typing import Final

from dash import Dash, dcc, html
from dash.development.base_component import Component

from cotenant.base.usage.backtest import WhatIf
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures import what_if as charts
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.home import risk

PATH: Final = "what-if"
SLIDER: Final = "what-if-risk"
OUTCOME: Final = "what-if-outcome"
BODY: Final = "what-if-body"
MARK: Final = "what-if-mark"
CHART_HEIGHT: Final = 280
ASSUMED: Final = (
    "A simulation in five-minute steps: batch work always waits, pods' usage is summed per node, p99 latency follows "
    "a model of interference. A node is short when services' need plus the lent capacity exceeds the node's capacity."
)


def render(view: View, _search: str) -> Component:
    """Return the slider, and what the chosen risk would have done."""
    lead = html.P("What lending to batch work would have done to this cluster, on its own history.")
    head = html.Div([html.H1("Try a risk"), lead], className="page-head")
    body = html.Div(panels.render_guarded(lambda: _body(view)), id=BODY)
    return html.Div([head, body, dcc.Store(id=MARK, data=risk.replay_mark(view))], className="page tall-page")


def _body(view: View) -> Component:
    if view.source.snapshot().overview is None:
        return panels.no_results()
    replay = view.source.what_if()
    if replay is None or not replay.risks:
        return risk.no_replay(view)
    start = risk.first_place(replay)
    drawn = html.Div(outcome(replay, start), id=OUTCOME)
    return html.Div([panels.panel("Risk", risk.slider(replay, SLIDER), note=risk.NOTE), drawn])


def outcome(replay: WhatIf, index: int) -> Component:
    """Return the numbers and charts at one position of the slider."""
    chosen = risk.at_place(replay, index)
    days = panels.figure(charts.days(replay, chosen), "what-if-days", CHART_HEIGHT)
    short = panels.figure(charts.shortage(chosen), "what-if-short", CHART_HEIGHT)
    curve = panels.figure(charts.curve(replay, chosen), "what-if-curve", CHART_HEIGHT)
    nodes = f"{display.counted(replay.nodes, 'node')}, computed "
    basis = [nodes, panels.moment(replay.computed_seconds), ". ", ASSUMED]
    return html.Div(
        [
            html.Div(risk.stats(replay, chosen), className="stats four"),
            panels.panel("Cores by day", days),
            html.Div([panels.panel("Short by day", short), panels.panel("All risks", curve)], className="row halves"),
            html.P(basis, className="panel-note"),
        ]
    )


def register(app: Dash, view: View) -> None:
    """Register the slider, which chooses among precomputed outcomes; the page appears once they exist."""
    risk.follow(app, view, risk.SliderPage(PATH, SLIDER, OUTCOME, BODY, MARK, _body, outcome))


OBEYED: Final = Obeyed(
    "a replay covers nodes, and nodes have no namespace.", "the page shows the days of the replay.", spans=False
)
PAGE: Final = Page(PATH, "Try a risk", "t", render, register, place=Place.LEND, obeyed=OBEYED)
