"""The fields of an AutopilotPolicy as a form beside its YAML: each follows the other, and no other field is touched."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, ctx, html, no_update
from dash.development.base_component import Component

from cotenant.autopilot.model import AutopilotMode
from cotenant.base.errors import CotenantError
from cotenant.base.resource import Resource
from cotenant.base.text import visible
from cotenant.dashboard.autopilot.policy_text import as_yaml, parse_policy

TEXT: Final = "policy-text"
PROBLEM: Final = "policy-problem"


class FieldKind(Enum):
    """The way in which a field is answered."""

    ONE = auto()
    """One of a few words."""
    SOME = auto()
    """Any of a few words; none: the field is left out."""
    LINES = auto()
    """A text a line; none: the field is left out."""
    NUMBER = auto()
    """A number; none: the field is left out."""


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A field of the form: its path in the object, its words, and the words of its choices by value."""

    path: tuple[str, ...]
    label: str
    kind: FieldKind
    choices: Mapping[str, str] | None = None
    note: str = ""
    left_out: str = ""
    """One of a few words: which one the API server takes where the field is left out."""

    @property
    def id(self) -> str:
        """Id of its component."""
        return f"policy-field-{'-'.join(self.path[1:])}"


FIELDS: Final = (
    PolicyField(
        ("spec", "mode"),
        "What it does",
        FieldKind.ONE,
        {
            AutopilotMode.OFF.value: "nothing",
            AutopilotMode.OBSERVE.value: "writes down what it would do",
            AutopilotMode.ACT.value: "changes workloads, once approved",
        },
        left_out=AutopilotMode.OBSERVE.value,
    ),
    PolicyField(("spec", "resources"), "Resources", FieldKind.SOME, {"cpu": "CPU", "memory": "memory"}),
    PolicyField(
        ("spec", "directions"),
        "Which way",
        FieldKind.SOME,
        {
            "Down": "cut waste",
            "Up": "raise what is at risk",
            "UpAfterOOMKill": "raise memory after an OOM kill",
            "UpAfterThrottling": "raise CPU after throttling",
        },
    ),
    PolicyField(
        ("spec", "ways"),
        "How it reaches pods",
        FieldKind.SOME,
        {"InPlace": "resized while they run", "RollOut": "by new pods", "NextRestart": "when a pod starts anew"},
    ),
    PolicyField(
        ("spec", "neverTouch"),
        "Left alone",
        FieldKind.SOME,
        {"LSE": "class LSE", "LSR": "class LSR", "SingleReplica": "one replica", "Autoscaled": "autoscaled"},
    ),
    PolicyField(("spec", "windows"), "Windows", FieldKind.LINES, note="A line each: mon-fri 20:00-06:00 Europe/Berlin"),
    PolicyField(("spec", "largestCut", Resource.CPU.value), "Largest cut of CPU a day, as a share", FieldKind.NUMBER),
    PolicyField(
        ("spec", "largestCut", Resource.MEMORY.value), "Largest cut of memory a day, as a share", FieldKind.NUMBER
    ),
    PolicyField(("spec", "atOnce"), "Workloads at the same time", FieldKind.NUMBER),
    PolicyField(("spec", "restartsPerWeek"), "Restarts of a pod in a week", FieldKind.NUMBER),
)
"""In the order of the form. All others are in the YAML alone."""


NONE_TICKED: Final = "None ticked: as the cluster's ceiling has it."


def form_value(body: Mapping[str, Any], field: PolicyField) -> Any:
    """Return what the form shows of a field: a word, a list of words, lines or a number; empty where it is left out.

    One of a few words is None where the object has something else, such as `mode: Off`, which YAML reads as false.
    """
    value: Any = body
    for key in field.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if field.kind is FieldKind.NUMBER:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else ""
    if field.kind is FieldKind.ONE:
        return field.left_out if value is None else value if isinstance(value, str) else None
    words = [str(word) for word in value] if isinstance(value, list) else []
    return "\n".join(words) if field.kind is FieldKind.LINES else words


def with_form_value(body: Mapping[str, Any], field: PolicyField, value: Any) -> dict[str, Any]:
    """Return the object with this field as the form has it; a field without an answer is left out."""
    changed: dict[str, Any] = copy.deepcopy(dict(body))
    if field.kind is FieldKind.LINES:
        value = [line.strip() for line in str(value or "").split("\n") if line.strip()]
    elif field.kind is FieldKind.SOME and value:
        order = list(field.choices or {})
        value = sorted(value, key=lambda word: order.index(word) if word in order else len(order))
    _put(changed, field.path, value)
    return changed


def _put(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    first, *rest = path
    if not rest:
        if value in (None, "", []):
            target.pop(first, None)
        else:
            target[first] = value
        return
    below = target.get(first)
    below = below if isinstance(below, dict) else {}
    _put(below, rest, value)
    if below:
        target[first] = below
    else:
        target.pop(first, None)


def form(body: Mapping[str, Any]) -> Component:
    """The form of a policy, filled from its object."""
    return html.Div([_component(field, form_value(body, field)) for field in FIELDS], className="policy-form")


def _component(field: PolicyField, value: Any) -> Component:
    named = {"id": field.id, "label": field.label, "value": value}
    choices = [{"value": word, "label": words} for word, words in (field.choices or {}).items()]
    if field.kind is FieldKind.ONE:
        return dmc.Select(data=choices, allowDeselect=False, size="xs", **named)
    if field.kind is FieldKind.SOME:
        boxes = [dmc.Checkbox(value=choice["value"], label=choice["label"], size="xs") for choice in choices]
        return dmc.CheckboxGroup(dmc.Group(boxes, gap="sm"), description=NONE_TICKED, size="xs", **named)
    if field.kind is FieldKind.LINES:
        return dmc.Textarea(description=field.note, autosize=True, minRows=1, size="xs", debounce=True, **named)
    return dmc.NumberInput(min=0, size="xs", debounce=True, placeholder="as the cluster has it", **named)


def follow(text: str, answers: Sequence[Any], triggered: str) -> tuple[Any, list[Any], Any]:
    """(text, values of the form, words of a problem) after the person has changed the text or a field of the form."""
    still: list[Any] = [no_update] * len(FIELDS)
    try:
        body = parse_policy(text)
    except CotenantError as error:
        return no_update, still, visible(f"The form waits for the YAML: {error.message}")
    if triggered == TEXT:
        return no_update, [form_value(body, field) for field in FIELDS], ""
    place = next((n for n, field in enumerate(FIELDS) if field.id == triggered), None)
    if place is None or form_value(body, FIELDS[place]) == answers[place]:
        return no_update, still, ""
    return as_yaml(with_form_value(body, FIELDS[place], answers[place])), still, ""


def register(app: Dash) -> None:
    """The form follows the text, and the text the form."""

    @app.callback(
        Output(TEXT, "value"),
        *[Output(field.id, "value") for field in FIELDS],
        Output(PROBLEM, "children"),
        Input(TEXT, "value"),
        *[Input(field.id, "value") for field in FIELDS],
        prevent_initial_call=True,
    )
    def _follow(text: str | None, *answers: Any) -> tuple[Any, ...]:
        changed, form_values, problem = follow(text or "", answers, str(ctx.triggered_id))
        return changed, *form_values, problem
