"""Try a risk: the stored history replayed with lending to batch, with the risk as a slider."""

from __future__ import annotations

from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update
from dash.development.base_component import Component

from cotenant.base.text import percent
from cotenant.base.usage.what_if import RiskOutcome, WhatIf
from cotenant.dashboard.figures import what_if as charts
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import Obeyed, Page, Place, View
from cotenant.dashboard.tables import display

PATH: Final = "what-if"
SLIDER: Final = "what-if-risk"
USUAL_PERCENT: Final = 1.0
"""Risk of an install that nobody has changed: where the slider stands first."""
CHART_HEIGHT: Final = 280
NONE: Final = "No replay of the history is stored yet."
NONE_WHY: Final = (
    "It runs this program's own decisions on what your nodes did, at several risks, and writes to no cluster. "
    "14 days of history come before the first day that is tried."
)
IN_DEMO: Final = (
    " In a second terminal, with the COTENANT_CONFIG that the demo printed when it began; "
    "then this page shows the outcome."
)
COMMAND: Final = "cotenant simulate --trace stored"
ASSUMED: Final = (
    "A simulation in steps of five minutes: batch work is always waiting, pods are taken as nodes' totals, and p99 "
    "comes from a model of interference. Node-time is short when services and what batch was promised exceed a node."
)


def render(view: View, _search: str) -> Component:
    """Heading, slider, and what the chosen risk would have done."""
    lead = html.P("What lending to batch work would have done to this cluster, on its own history.")
    head = html.Div([html.H1("Try a risk"), lead], className="page-head")
    body = panels.render_guarded(lambda: _body(view))
    return html.Div([head, body], className="page tall-page")


def _body(view: View) -> Component:
    if view.source.snapshot().overview is None:
        return panels.no_results()
    replay = view.source.what_if()
    if replay is None or not replay.risks:
        return _none(view)
    start = min(range(len(replay.risks)), key=lambda place: abs(_risk(replay.risks[place]) - USUAL_PERCENT))
    marks = [{"value": place, "label": f"{_risk(outcome):g} %"} for place, outcome in enumerate(replay.risks)]
    slider = dmc.Slider(
        id=SLIDER,
        value=start,
        min=0,
        max=max(len(replay.risks) - 1, 1),
        step=1,
        marks=marks,
        label=None,
        thumbLabel="Risk of a forecast peak",
        restrictToMarks=True,
        mb="xl",
    )
    note = (
        "How often the forecast peak of a node's services may be passed: more is lent, and nodes are short more often."
    )
    return html.Div([panels.panel("Risk", slider, note=note), html.Div(outcome(replay, start), id="what-if-outcome")])


def _none(view: View) -> Component:
    """Show the command that fills the page; for a demo, note that its settings are in its terminal."""
    why = NONE_WHY + (IN_DEMO if view.given.steering is not None else "")
    return panels.empty(NONE, why=why, command=COMMAND)


def outcome(replay: WhatIf, place: int) -> Component:
    """Numbers and charts of one place of the slider."""
    chosen = replay.risks[min(max(place, 0), len(replay.risks) - 1)]
    days = panels.figure(charts.days(replay, chosen), "what-if-days", CHART_HEIGHT)
    short = panels.figure(charts.shortage(chosen), "what-if-short", CHART_HEIGHT)
    curve = panels.figure(charts.curve(replay, chosen), "what-if-curve", CHART_HEIGHT)
    made = [
        f"{display.counted(replay.nodes, 'node')}, computed ",
        panels.moment(replay.computed_seconds),
        ". ",
        ASSUMED,
    ]
    return html.Div(
        [
            html.Div(_stats(replay, chosen), className="stats four"),
            panels.panel("Cores by day", days),
            html.Div([panels.panel("Short by day", short), panels.panel("All risks", curve)], className="row halves"),
            html.P(made, className="panel-note"),
        ]
    )


def _stats(replay: WhatIf, chosen: RiskOutcome) -> list[Component]:
    share = chosen.lent_cores / replay.capacity_cores if replay.capacity_cores else 0.0
    return [
        panels.stat("Lent to batch", f"{chosen.lent_cores:,.0f} cores", f"mean; {display.percent(share)} of capacity"),
        panels.stat("Batch work done", f"{chosen.batch_core_hours:,.0f} core-hours", _beside(replay, chosen)),
        panels.stat(
            "Node-time short",
            percent(chosen.short, 2),
            f"evicted: {display.counted(chosen.evictions, 'batch pod')}",
        ),
        panels.stat("p99 of services", f"{chosen.latency_ratio:.3f} x", "of p99 without batch"),
    ]


def _beside(replay: WhatIf, chosen: RiskOutcome) -> str:
    """Compare the chosen risk with lending by present use; without such a figure, give the utilization."""
    if replay.by_use is None or replay.by_use.batch_core_hours <= 0:
        return f"utilisation {display.percent(chosen.utilisation)}"
    return f"{chosen.batch_core_hours / replay.by_use.batch_core_hours:.2f} x lending by present use"


def _risk(outcome: RiskOutcome) -> float:
    return outcome.risk_percent or 0.0


def register(app: Dash, view: View) -> None:
    """The slider chooses among outcomes that are computed already."""

    @app.callback(
        Output("what-if-outcome", "children"),
        Input(SLIDER, "value"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def _draw_outcome(place: int | None, pathname: str | None) -> Any:
        if (pathname or "").rstrip("/") != f"{view.settings.base_path}{PATH}" or place is None:
            return no_update

        def drawn() -> Component:
            replay = view.source.what_if()
            return _none(view) if replay is None else outcome(replay, place)

        return panels.render_guarded(drawn)


OBEYED: Final = Obeyed(
    "a replay is of nodes, which are of no namespace.", "it shows the days of its replay.", spans=False
)
PAGE: Final = Page(PATH, "Try a risk", "t", render, register, place=Place.LEND, obeyed=OBEYED)
