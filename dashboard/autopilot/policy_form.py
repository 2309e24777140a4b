"""The form of an AutopilotPolicy beside its YAML: a change in one updates the other and touches no other field."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, ctx, html, no_update
from dash.development.base_component import Component

from cotenant.autopilot.model import AutopilotMode
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.resource import Resource
from cotenant.base.settings.document import parse_single_document
from cotenant.base.text import visible
from cotenant.changes.objectives.policy_objectives import MOST_OBJECTIVES

TEXT: Final = "policy-text"
PROBLEM: Final = "policy-problem"


class FieldKind(Enum):
    """The kind of input that a form field has, such as one choice, several choices, lines of text or a number."""

    ONE = auto()
    """One of a few words."""
    SOME = auto()
    """Any of a few words; none: the field is left out."""
    LINES = auto()
    """A text a line; none: the field is left out."""
    LABELS = auto()
    """A label a line, KEY=VALUE; none: the field is left out."""
    TEXT = auto()
    """A text; none: the field is left out."""
    NUMBER = auto()
    """A number; none: the field is left out."""


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A form field: its path in the policy object, its label and hint, and the labels of its choices by value."""

    path: tuple[str, ...]
    label: str
    kind: FieldKind
    choices: Mapping[str, str] | None = None
    note: str = ""
    left_out: str = ""
    """For a single choice, the value that the API server assumes if the field is absent."""

    @property
    def id(self) -> str:
        """HTML id of the field's input."""
        return f"policy-field-{'-'.join(self.path[1:])}"


FIELDS: Final = (
    PolicyField(("metadata", "namespace"), "Namespace", FieldKind.TEXT),
    PolicyField(("metadata", "name"), "Name", FieldKind.TEXT),
    PolicyField(
        ("spec", "selector", "matchLabels"),
        "Only workloads with these labels",
        FieldKind.LABELS,
        note="One label per line: team=pay. Empty: all workloads of the namespace.",
    ),
    PolicyField(
        ("spec", "mode"),
        "What it does",
        FieldKind.ONE,
        {
            AutopilotMode.OFF.value: "nothing",
            AutopilotMode.OBSERVE.value: "the policy records what it would do",
            AutopilotMode.ACT.value: "the policy changes workloads, once approved",
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
            "Up": "raise requests of containers at risk",
            "UpAfterOOMKill": "raise memory after an OOM kill",
            "UpAfterThrottling": "raise CPU after throttling",
        },
    ),
    PolicyField(
        ("spec", "ways"),
        "How a change reaches pods",
        FieldKind.SOME,
        {"InPlace": "resize running pods", "RollOut": "by new pods", "NextRestart": "when a pod is recreated"},
    ),
    PolicyField(
        ("spec", "neverTouch"),
        "Left alone",
        FieldKind.SOME,
        {"LSE": "class LSE", "LSR": "class LSR", "SingleReplica": "one replica", "Autoscaled": "autoscaled"},
    ),
    PolicyField(("spec", "windows"), "Windows", FieldKind.LINES, note="One a line: mon-fri 20:00-06:00 Europe/Berlin"),
    PolicyField(("spec", "largestCut", Resource.CPU.value), "Most CPU cut a day, share 0 to 1", FieldKind.NUMBER),
    PolicyField(("spec", "largestCut", Resource.MEMORY.value), "Most memory cut a day, share 0 to 1", FieldKind.NUMBER),
    PolicyField(("spec", "atOnce"), "Most workloads changed at the same time", FieldKind.NUMBER),
    PolicyField(("spec", "restartsPerWeek"), "Most restarts of a pod in a week", FieldKind.NUMBER),
    PolicyField(("spec", "canaryShare"), "Share of the pods changed first, 0 to 1", FieldKind.NUMBER),
    PolicyField(("spec", "soakMinutes"), "Minutes until a change is verified", FieldKind.NUMBER),
    PolicyField(("spec", "minimumConfidence"), "Lowest confidence of an automatic change, 0 to 1", FieldKind.NUMBER),
    PolicyField(("spec", "throttledShare"), "Throttled share of time that raises CPU, 0 to 1", FieldKind.NUMBER),
    PolicyField(("spec", "startUpFactor"), "CPU of a starting pod, multiple of its request", FieldKind.NUMBER),
    PolicyField(("spec", "replicaFloorFactor"), "Replicas before a peak, multiple of minReplicas", FieldKind.NUMBER),
)
"""The form's fields in order. `selector.matchExpressions` is in the YAML alone; objectives have a form of their own."""
IDENTITY: Final = 2
"""Number of first fields that identify the policy; they cannot be edited in an existing policy."""
OBJECTIVE: Final = (
    PolicyField(("", "name"), "Name", FieldKind.TEXT),
    PolicyField(
        ("", "measure"),
        "Measures",
        FieldKind.ONE,
        {"ErrorRatio": "the share of requests that fail", "Latency": "latency, in seconds"},
    ),
    PolicyField(("", "ceiling"), "Never above", FieldKind.NUMBER),
    PolicyField(("", "query"), "PromQL", FieldKind.TEXT),
)
"""The form's fields of one objective."""
QUERY_NOTE: Final = (
    "The query returns one series for a workload; $namespace, $workload, $pods and $window are filled in for each. "
    "`cotenant explain guards NAMESPACE/KIND/NAME` prints the queries that cotenant found."
)


NONE_TICKED: Final = "No box ticked: the cluster's ceiling applies."


def form_value(body: Mapping[str, Any], field: PolicyField) -> Any:
    """Return what the form shows for `field`: text, a list of choices, lines or a number; empty if the field is absent.

    The value of a single choice is None if the object has no string there, such as `mode: Off`, which YAML reads as
    false.
    """
    value: Any = body
    for key in field.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if field.kind is FieldKind.NUMBER:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else ""
    if field.kind is FieldKind.ONE:
        return field.left_out if value is None else value if isinstance(value, str) else None
    if field.kind is FieldKind.TEXT:
        return "" if value is None else str(value)
    if field.kind is FieldKind.LABELS:
        return "\n".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, Mapping) else ""
    lines = [str(word) for word in value] if isinstance(value, list) else []
    return "\n".join(lines) if field.kind is FieldKind.LINES else lines


def with_form_value(body: Mapping[str, Any], field: PolicyField, value: Any) -> dict[str, Any]:
    """Return a copy of the policy in which `field` has the form's value; an empty value removes the field."""
    changed: dict[str, Any] = copy.deepcopy(dict(body))
    if field.kind in (FieldKind.LINES, FieldKind.LABELS):
        value = [line.strip() for line in str(value or "").split("\n") if line.strip()]
    if field.kind is FieldKind.LABELS:
        value = {key.strip(): text.strip() for key, _, text in (line.partition("=") for line in value)}
    elif field.kind is FieldKind.SOME and value:
        order = list(field.choices or {})
        value = sorted(value, key=lambda word: order.index(word) if word in order else len(order))
    _put(changed, field.path, value)
    return changed


def _put(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    first, *rest = path
    if not rest:
        if value in (None, "", [], {}):
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


def objective_answers(body: Mapping[str, Any]) -> list[Any]:
    """Return what the form shows for MOST_OBJECTIVES objectives: the fields of the first, then of the second, ..."""
    shown = [*_objectives(body), *({} for _ in range(MOST_OBJECTIVES))][:MOST_OBJECTIVES]
    return [form_value({"": objective}, part) for objective in shown for part in OBJECTIVE]


def with_objectives(body: Mapping[str, Any], answers: Sequence[Any]) -> dict[str, Any]:
    """Return a copy of the policy with the form's objectives; an objective without any entry is removed."""
    before, written = _objectives(body), []
    for index in range(MOST_OBJECTIVES):
        objective: dict[str, Any] = {"": before[index] if index < len(before) else {}}
        for part, answer in zip(OBJECTIVE, _of_objective(answers, index), strict=True):
            objective = with_form_value(objective, part, answer)
        written += [objective[""]] if objective else []
    changed = copy.deepcopy(dict(body))
    _put(changed, ("spec", "objectives"), [*written, *before[MOST_OBJECTIVES:]])
    return changed


def _of_objective(values: Sequence[Any], index: int) -> Sequence[Any]:
    return values[index * len(OBJECTIVE) : (index + 1) * len(OBJECTIVE)]


def _objectives(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = body.get("spec")
    entries = spec.get("objectives") if isinstance(spec, Mapping) else None
    return [entry if isinstance(entry, Mapping) else {} for entry in entries] if isinstance(entries, list) else []


def objective_ids() -> list[str]:
    """Return the HTML ids of all objectives' inputs, in the order of `objective_answers`."""
    return [f"policy-objective-{index}-{part.path[-1]}" for index in range(MOST_OBJECTIVES) for part in OBJECTIVE]


def form(body: Mapping[str, Any], *, existing: bool = False) -> Component:
    """Return the form of a policy, filled from `body`. If `existing`, its namespace and name cannot be edited."""
    parts = [
        _component(field, field.id, form_value(body, field), fixed=existing and index < IDENTITY)
        for index, field in enumerate(FIELDS)
    ]
    ids, values, slots = objective_ids(), objective_answers(body), []
    for index in range(MOST_OBJECTIVES):
        fields = zip(OBJECTIVE, _of_objective(ids, index), _of_objective(values, index), strict=True)
        legend = html.Legend(f"Objective {index + 1}")
        slots.append(html.Fieldset([legend, *(_component(part, id_, value) for part, id_, value in fields)]))
    summary = html.Summary("Objectives: a change that breaks an objective is rolled back")
    note = html.P(QUERY_NOTE, className="panel-note")
    return html.Div(
        [*parts, html.Details([summary, note, *slots], open=bool(_objectives(body)), className="policy-objectives")],
        className="policy-form",
    )


def _component(field: PolicyField, id_: str, value: Any, *, fixed: bool = False) -> Component:
    attributes = {"id": id_, "label": field.label, "value": value, "size": "xs"}
    choices = [{"value": word, "label": text} for word, text in (field.choices or {}).items()]
    if field.kind is FieldKind.ONE:
        return dmc.Select(data=choices, allowDeselect=not field.left_out, **attributes)
    if field.kind is FieldKind.SOME:
        boxes = [dmc.Checkbox(value=choice["value"], label=choice["label"], size="xs") for choice in choices]
        return dmc.CheckboxGroup(dmc.Group(boxes, gap="sm"), description=NONE_TICKED, className="wide", **attributes)
    if field.kind in (FieldKind.LINES, FieldKind.LABELS):
        return dmc.Textarea(description=field.note, autosize=True, minRows=1, debounce=True, **attributes)
    if field.kind is FieldKind.TEXT:
        wide = "wide" if field.path[-1] == "query" else ""
        return dmc.TextInput(debounce=True, disabled=fixed, className=wide, **attributes)
    placeholder = "as the cluster's ceiling" if field in FIELDS else ""
    return dmc.NumberInput(min=0, debounce=True, placeholder=placeholder, **attributes)


def follow(
    text: str, answers: Sequence[Any], objectives: Sequence[Any], triggered: str
) -> tuple[Any, list[Any], list[Any], Any]:
    """Return (YAML text, form values, objective values, error message) after the person edited the input `triggered`.

    `answers` and `objectives` are the values that the form shows now.
    """
    still, objectives_shown = [no_update] * len(FIELDS), [no_update] * len(objectives)
    try:
        body = parse_policy(text)
    except CotenantError as error:
        return no_update, still, objectives_shown, visible(f"The form waits for valid YAML: {error.message}")
    if triggered == TEXT:
        return no_update, [form_value(body, field) for field in FIELDS], objective_answers(body), ""
    if triggered in objective_ids():
        changed = with_objectives(body, objectives)
        shown = objective_answers(changed)
        return as_yaml(changed), still, objectives_shown if shown == [*objectives] else shown, ""
    place = next((n for n, field in enumerate(FIELDS) if field.id == triggered), None)
    if place is None or form_value(body, FIELDS[place]) == answers[place]:
        return no_update, still, objectives_shown, ""
    return as_yaml(with_form_value(body, FIELDS[place], answers[place])), still, objectives_shown, ""


def register(app: Dash) -> None:
    """Register the callback that updates the form from the text, and the text from the form."""
    ids = [*(field.id for field in FIELDS), *objective_ids()]

    @app.callback(
        Output(TEXT, "value"),
        *[Output(id_, "value") for id_ in ids],
        Output(PROBLEM, "children"),
        Input(TEXT, "value"),
        *[Input(id_, "value") for id_ in ids],
        prevent_initial_call=True,
    )
    def _follow(text: str | None, *answers: Any) -> tuple[Any, ...]:
        own, objectives = answers[: len(FIELDS)], answers[len(FIELDS) :]
        changed, form_values, objective_values, problem = follow(text or "", own, objectives, str(ctx.triggered_id))
        return changed, *form_values, *objective_values, problem


def as_yaml(body: Mapping[str, Any]) -> str:
    """Return the policy as YAML, with its fields in their present order."""
    import yaml

    return str(yaml.safe_dump(dict(body), sort_keys=False, default_flow_style=None, width=100))


def parse_policy(text: str) -> dict[str, Any]:
    """Return the policy in a YAML text; raise UsageError that names the unreadable line or the wrong key."""
    body = parse_single_document(text, "the policy")
    if not isinstance(body, dict):
        raise UsageError("the policy is not an object", fix="Begin with apiVersion, kind, metadata and spec.")
    for key in _keys(body):
        if not isinstance(key, str):
            raise UsageError(f"the policy has the key {key!r}, which is not a string", fix="Put the key in quotes.")
    return body


def _keys(value: object) -> Iterator[object]:
    """Yield the keys of all objects nested in a value."""
    if isinstance(value, dict):
        yield from value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(child)
