"""The guards of a workload's changes: latency and error metrics that verify a change, drawn with their bounds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.base.text import counted, percent, visible
from cotenant.changes.decide.regression_check import Measure, measure_text
from cotenant.changes.model.judgement import RuleVerdict
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.found import FoundObjective, Guards, alarming_hours_count, hourly_rules
from cotenant.changes.soak.verification import annotate_command
from cotenant.dashboard.changes import explanation
from cotenant.dashboard.figures import base, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.view import View, in_cluster

HEIGHT: Final = 220
HOUR_SECONDS: Final = 3600
SCALES: Final = {Measure.LATENCY: (1000.0, "ms"), Measure.ERRORS: (100.0, "%")}
NOTE: Final = (
    "Latency and failed requests of this service in Prometheus. Changes are verified by a found metric once you run "
    "its command, and always by objectives of policies and by SLO objects of the namespace."
)


def section(view: View, ref: WorkloadRef) -> Component:
    """Return the panel whose button searches for latency and error metrics; on a read-only dashboard, the command."""
    if view.given.guards is None or view.given.changes is None:
        command = f"cotenant explain guards {ref}"
        return panels.panel("Guards", panels.empty("To search for guard metrics, run:", command=command), note=NOTE)
    why = callbacks.why_not(view, Right.REVIEW, ref.namespace)
    button = html.Button("Look for guards", id="find-guards", className="button", disabled=bool(why), title=why or None)
    name = dcc.Store(id="guards-of", data=[ref.namespace, ref.kind, ref.name])
    frame = dcc.Loading(html.Div(id="guards-found", role="status"), type="dot")
    return panels.panel("Guards", name, frame, aside=button, note=NOTE)


def register(app: Dash, view: View) -> None:
    """Register the callback of the button that searches for metrics that can verify changes."""

    @app.callback(
        Output("guards-found", "children"),
        Input("find-guards", "n_clicks"),
        State("guards-of", "data"),
        prevent_initial_call=True,
    )
    @callbacks.acts(view, Right.REVIEW)
    def _find(_clicks: int | None, name: list[str]) -> Component:
        find = in_cluster(view.given.guards, "cotenant explain guards")
        now = int(view.now_seconds())
        return contents(find(view.given.current_user(), WorkloadRef(*name), now), view.given.actions, now)


def contents(guards: Guards, settings: ActionSettings, end_seconds: int) -> Component:
    """Return the metrics that verify changes, used or found; `end_seconds`: Unix time at which their last hour ends."""
    now = [
        html.P([html.Strong("Verified by "), f"{measure}: ", html.Code(query)]) for measure, query in guards.now.items()
    ]
    refused = [html.P(f"Changes are not verified by {refusal.measure}: {refusal.error}") for refusal in guards.refused]
    cards = []
    for index, guard in enumerate(guards.found):
        card: list[Component] = [html.H3(visible(f"{guard.measure}: {guard.source}"))]
        picture = [panels.figure(chart(guard, settings, end_seconds), f"guard-{index}", HEIGHT)] if guard.values else []
        if guard.reason:
            card += [html.P(f"This metric cannot be used: {visible(guard.reason)}."), *picture]
        else:
            card += picture
            if alarms := "" if guard.false_alarms is None else percent(guard.false_alarms, 1):
                card.append(html.P(f"{alarms} of the hours without a change would have counted as harm."))
            if guard.is_used:
                names = "an annotation of the workload, or an object of its namespace, names this metric."
                card.append(html.P(f"In use: {names}"))
            else:
                command = annotate_command(guards.workload, guard.measure, guard.query)
                title = html.Span("To use it:")
                card.append(explanation.copyable_command(title, command, f"copy-guard-{index}"))
        cards.append(html.Section(card))
    none = [] if cards else [html.P("No latency or failed requests of this workload were found in the last week.")]
    gaps = html.Details(
        [html.Summary("Metrics that were not searched, or are not used"),
         html.Ul([html.Li(visible(gap)) for gap in guards.gaps])], className="more")  # fmt: skip
    return html.Div([*now, *refused, *none, *cards, *([gaps] if guards.gaps else [])])


def chart(guard: FoundObjective, settings: ActionSettings, end_seconds: int) -> Chart:
    """Return the chart of a metric by hour, with each hour's bound and the hours that would have counted as harm."""
    scale, unit = SCALES[guard.measure]
    values = np.array([np.nan if value is None else value for value in guard.values])
    rules = hourly_rules(guard.measure, values, settings, guard.ceiling)
    bounds = np.array([np.nan if rule is None or rule.most is None else rule.most for rule in rules])
    is_harm = np.array([rule is not None and rule.verdict is RuleVerdict.WORSE for rule in rules], dtype=bool)
    times = [end_seconds - HOUR_SECONDS * (len(values) - 1 - k) for k in range(len(values))]
    x = base.milliseconds(times)
    harm: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "name": "Would have counted as harm",
        "x": [moment for moment, harmful in zip(x, is_harm, strict=True) if harmful],
        "y": [float(value * scale) for value in values[is_harm]],
        "marker": {"color": base.RED, "size": 8, "symbol": "x"},
    }  # fmt: skip
    traces = [
        lines.line(x, values * scale, guard.measure.value, base.BLUE, width=2),
        lines.line(x, bounds * scale, "Limit after a change", base.ORANGE, dash="dash"),
        harm,
    ]
    for trace in traces:
        trace["hovertemplate"] = f"%{{y:,.3~g}} {unit}"
    amounts = {"now": guard.latest, "median": guard.median, "highest": guard.highest}
    shown = ", ".join(f"{name} {measure_text(guard.measure, v)}" for name, v in amounts.items() if v is not None)
    promised = f"; objective at most {measure_text(guard.measure, guard.ceiling)}" if guard.ceiling is not None else ""
    harmful = alarming_hours_count(rules)
    summary = f"The last week of {guard.measure}: {shown or 'no value'}{promised}"
    harm_text = f"{summary}; {counted(harmful, 'hour')} would have counted as harm."
    return Chart({"data": traces, "layout": lines.over_time(unit, x)}, harm_text)
