"""What the drawer says about one recommendation: its values, reasons, inputs and formulas, and the patch. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from cotenant.model.errors import UsageError
from cotenant.model.quantity import format_amount
from cotenant.model.reasons import SENTENCES
from cotenant.model.recommendation import Action, Field, Recommendation, Severity, Value
from cotenant.model.resource import Resource
from dashboard import display, panels

TITLES: Final = {
    (Resource.CPU, Field.REQUEST): "CPU request",
    (Resource.CPU, Field.LIMIT): "CPU limit",
    (Resource.MEMORY, Field.REQUEST): "Memory request",
    (Resource.MEMORY, Field.LIMIT): "Memory limit",
}


def body(
    recommendation: Recommendation | None, name: tuple[str, str, str, str], patch: Callable[[Recommendation], str]
) -> Component:
    """The drawer's content; says so when the container has no stored recommendation."""
    if recommendation is None:
        why = "It may have gone with the latest results, or the link is old."
        return panels.empty(f"Nothing is stored about {'/'.join(name)}.", why=why)
    values = recommendation.values
    told = [_value(v, repeated=any(_same(v, w) for w in values[:place])) for place, v in enumerate(values)]
    return html.Div([_head(recommendation), *told, _patch(recommendation, patch)], className="explain")


def _head(recommendation: Recommendation) -> Component:
    ref = recommendation.container
    severity = recommendation.severity.value
    facts = (
        ref.workload.kind,
        display.counted(recommendation.replicas, "replica"),
        f"strategy {recommendation.strategy}",
        f"{display.duration(recommendation.window_seconds)} of history",
        f"until {display.moment(recommendation.end_seconds)}",
        f"settings {recommendation.settings_digest}",
    )
    title = html.H2([f"{ref.workload.namespace} / {ref.workload.name} / ", html.Strong(ref.container)])
    return html.Header([title, panels.chip(severity, severity), html.P(" · ".join(facts))])


def _same(value: Value, other: Value) -> bool:
    """Whether two values rest on the same inputs, which then need to be shown only once."""
    return value.resource is other.resource and dict(value.inputs) == dict(other.inputs)


def _value(value: Value, *, repeated: bool) -> Component:
    unit, severity = value.resource, value.severity
    rating = [] if severity is Severity.UNKNOWN else [panels.chip(severity.value, severity.value)]
    present = "not set" if value.now is None else display.amount(value.now, unit)
    line = [html.Span(present), html.Span("→", className="arrow"), html.Strong(_proposed(value))]
    if value.change == 0:
        line = [html.Span(present), html.Span(" · keep", className="dim")]
    if value.change:
        line.append(
            html.Span(display.signed(value.change, unit), className="delta-" + ("down" if value.change < 0 else "up"))
        )
    reason = html.P([panels.chip(value.reason.value), html.Span(SENTENCES[value.reason])], className="reason")
    title = html.Div([html.H3(TITLES[value.resource, value.field]), *rating])
    return html.Section(
        [title, html.P(line, className="change"), reason, *_formula(value), *([] if repeated else _inputs(value))],
        className="value",
    )


def _proposed(value: Value) -> str:
    if value.action is Action.UNSET:
        return "remove"
    if value.action is Action.WITHHELD or value.amount is None:
        return "no statement"
    shown, exact = display.amount(value.amount, value.resource), format_amount(value.resource, value.amount)
    same = shown.removesuffix(" cores").removesuffix("B").replace(" ", "") == exact
    return shown if same else f"{shown} ({exact})"


def _formula(value: Value) -> list[Component]:
    return [html.Pre(html.Code(value.formula), className="formula")] if value.formula else []


def _inputs(value: Value) -> list[Component]:
    if not value.inputs:
        return []
    rows = [
        html.Tr([html.Th(name.replace("_", " "), scope="row"), html.Td(_input(name, given, value.resource))])
        for name, given in value.inputs.items()
    ]
    return [html.Table(html.Tbody(rows), className="inputs")]


def _input(name: str, given: float | str, resource: Resource) -> str:
    """An input is an amount of the value's resource, unless its name says what else it is."""
    if isinstance(given, str):
        return given
    if name.endswith(("fraction", "coverage")):
        return display.percent(given)
    if name.endswith("_seconds"):
        return display.duration(given)
    if name.endswith(("days", "hours", "pods", "kills", "samples", "replicas")):
        return f"{given:,.4g}"
    return display.amount(given, resource)


def _patch(recommendation: Recommendation, patch: Callable[[Recommendation], str]) -> Component:
    try:
        command = patch(recommendation)
    except UsageError as error:
        return html.P(f"No patch: {error.message}", className="panel-note")
    if not command:
        return html.P(
            "No patch: nothing changes, or the kind has no template that can be patched.", className="panel-note"
        )
    copy = dmc.CopyButton(
        value=command, copiedChildren="Copied", children="Copy", size="xs", variant="default", id="copy-patch"
    )
    note = "Text to copy. This dashboard only reads: it applies nothing."
    head = html.Div([html.H3("Patch"), copy], className="panel-head")
    return html.Section(
        [head, html.P(note, className="panel-note"), html.Pre(html.Code(command), className="command", tabIndex=0)]
    )
