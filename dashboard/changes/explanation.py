"""How pages explain recommendations: values, reasons, inputs, formulas, rules, confidence and the patch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerName
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.table import Kind, kind_of_input
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import panels
from cotenant.recommender.model.input_words import input_words
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, absent_words

TITLES: Final = {
    (Resource.CPU, Field.REQUEST): "CPU request",
    (Resource.CPU, Field.LIMIT): "CPU limit",
    (Resource.MEMORY, Field.REQUEST): "Memory request",
    (Resource.MEMORY, Field.LIMIT): "Memory limit",
}


def body(
    recommendation: Recommendation | None,
    name: ContainerName,
    patch: Callable[..., str],
    portrait: str = "",
    charts: Sequence[Component] = (),
) -> Component:
    """Return the drawer's content with a link to the workload's page and its charts; a note if there are no results."""
    if recommendation is None:
        why = "The latest results may lack this container, or the link is old."
        command = f"cotenant recs list -n {visible(name.namespace)}"
        return panels.empty(f"Nothing is stored about {'/'.join(name)}.", why=why, command=command)
    way = [dcc.Link(f"All about {visible(name.workload)}", href=portrait, id="to-portrait")] if portrait else []
    ref = recommendation.container
    facts = (
        ref.workload.kind,
        display.counted(recommendation.replicas, "replica"),
        f"strategy {recommendation.strategy}",
        f"{display.duration(recommendation.window_seconds)} of history",
        f"until {display.moment(recommendation.end_seconds)}",
        f"recommender settings {recommendation.settings_digest}",
    )
    title = html.H2([f"{ref.workload.namespace} / {ref.workload.name} / ", html.Strong(ref.container)])
    parts = [
        html.Header([title, panels.severity(recommendation.severity), html.P(" · ".join(facts))]),
        *way,
        *charts,
        *values(recommendation),
        *trust([recommendation]),
        *notes_and_queries(recommendation),
    ]
    return html.Div([*parts, patches([recommendation], patch)], className="explain")


def values(recommendation: Recommendation) -> list[Component]:
    """Return a section for each value: change, reason, formula, rules, and the inputs that no earlier section shows."""
    sections: list[Component] = []
    for index, value in enumerate(recommendation.values):
        unit = value.resource
        present = html.Span(absent_words(value.reason) if value.now is None else display.amount(value.now, unit))
        if value.action is Action.UNSET:
            proposed_amount = "remove"
        elif value.action is Action.WITHHELD or value.amount is None:
            proposed_amount = "no statement"
        else:
            shown, exact = display.amount(value.amount, unit), format_amount(unit, value.amount)
            same = shown.removesuffix(" core").removesuffix(" cores").removesuffix("B").replace(" ", "") == exact
            proposed_amount = shown if same else f"{shown} ({exact})"
        line = [present, html.Span("→", className="arrow"), html.Strong(proposed_amount)]
        if value.change == 0:
            line = [present, html.Span(" · keep", className="dim")]
        if value.change:
            delta = "delta-down" if value.change < 0 else "delta-up"
            line.append(html.Span(display.signed(value.change, unit), className=delta))
        rating = [] if value.severity is Severity.UNKNOWN else [panels.severity(value.severity)]
        parts = [
            html.Div([html.H3(TITLES[unit, value.field]), *rating]),
            html.P(line, className="change"),
            html.P([panels.chip(label(value.reason)), html.Span(SENTENCES[value.reason])], className="reason"),
        ]
        if value.formula:
            parts.append(html.Pre(html.Code(value.formula), className="formula"))
        moved = [
            *(f"{visible(c.rule)}: {display.amount(c.before, unit)} → {display.amount(c.after, unit)}"
              for c in value.clamps),
            *(f"by annotation: {visible(override)}" for override in value.overrides),
        ]  # fmt: skip
        if moved:
            parts.append(html.Ul([html.Li(text) for text in moved], className="notes"))
        earlier = recommendation.values[:index]
        if value.inputs and not any(unit is w.resource and dict(value.inputs) == dict(w.inputs) for w in earlier):
            parts.append(
                panels.pairs(
                    (input_words(name), visible(v) if isinstance(v, str) else INPUTS[kind_of_input(name, unit)](v))
                    for name, v in value.inputs.items()
                )
            )
        sections.append(html.Section(parts, className="value"))
    return sections


def trust(recommendations: Sequence[Recommendation]) -> list[Component]:
    """Return the lowest confidence of the recommendations and the sentences that explain it; empty if none has one."""
    assessments = [r.trust for r in recommendations if r.trust is not None]
    if not assessments:
        return []
    least = min(assessments, key=lambda t: t.confidence)
    head = html.Div([html.H3("Confidence"), html.Strong(least.level.value)], className="panel-head")
    reasons = html.Ul([html.Li(sentence) for sentence in least.because], className="reasons")
    return [html.Section([head, reasons], className="value")]


def notes_and_queries(recommendation: Recommendation) -> list[Component]:
    """Return the notes of the strategy and the queries that were sent to the metric source."""
    sections = []
    if recommendation.notes:
        notes = html.Ul([html.Li(visible(note)) for note in recommendation.notes], className="notes")
        sections.append(html.Section([html.H3("Notes"), notes], className="value"))
    if recommendation.queries:
        queries = [html.Pre(html.Code(visible(query))) for query in recommendation.queries]
        sections.append(html.Details([html.Summary("Queries"), *queries], className="more"))
    return sections


INPUTS: Final[Mapping[Kind, Callable[[float], str]]] = {
    Kind.RATIO: display.percent,
    Kind.MILLICORES: lambda millicores: display.amount(millicores, Resource.CPU),
    Kind.BYTES: display.gib,
    Kind.NUMBER: lambda number: f"{number:,.4g}",
}


def patches(
    recommendations: Sequence[Recommendation], patch: Callable[..., str], manifest: Callable[..., str] | None = None
) -> Component:
    """Return one workload's texts to copy: a kubectl command, and YAML if `manifest` is given; or why there is none."""
    try:
        command = patch(*recommendations)
        document = manifest(*recommendations) if manifest and command else ""
    except UsageError as error:
        return html.P(f"No patch: {error.message}", className="panel-note")
    if not command:
        why = "No patch: nothing changes, or the workload's kind has no template that can be patched."
        return html.P(why, className="panel-note")
    note = html.P("Commands to copy into a shell. This page applies nothing.", className="panel-note")
    parts = [note, copyable_command(html.H3("Patch"), command, "copy-patch")]
    if document:
        parts.append(copyable_command(html.H3("YAML for kubectl apply --server-side"), document, "copy-yaml"))
    return html.Div(parts)


def copyable_command(title: Component, text: str, id_: str) -> Component:
    """Return a command below `title`, with a button that copies it."""
    copy = dmc.CopyButton(value=text, copiedChildren="Copied", children="Copy", size="xs", variant="default", id=id_)
    head = html.Div([title, copy], className="panel-head")
    return html.Section([head, html.Pre(html.Code(text), className="command", tabIndex=0)])
