"""The form of a policy and its YAML say the same, whatever else stands in the policy."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from dash import no_update
from hypothesis import given
from hypothesis import strategies as st

from cotenant.changes.objectives.policy_objectives import MOST_OBJECTIVES
from cotenant.dashboard.autopilot.policy_editor import draft_of
from cotenant.dashboard.autopilot.policy_form import (
    FIELDS,
    OBJECTIVE,
    TEXT,
    FieldKind,
    PolicyField,
    as_yaml,
    follow,
    form_value,
    objective_answers,
    objective_ids,
    parse_policy,
    with_form_value,
    with_objectives,
)

CRD = Path(__file__).resolve().parents[2] / "deploy/crds/autopilotpolicies.cotenant.dev.yaml"
KEPT = {"selector": {"matchLabels": {"team": "pay"}}, "soakMinutes": 90, "largestCut": {"cpu": 0.2, "memory": 0.1}}
BODY: dict[str, Any] = {**draft_of("new/shop"), "spec": {**draft_of("new/shop")["spec"], **KEPT}}


def schema(field: PolicyField) -> dict[str, Any]:
    """What the API server knows of a field."""
    node = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for key in field.path:
        node = node["properties"][key]
    return node


OBJECTIVES = PolicyField(("spec", "objectives"), "", FieldKind.LINES)


def known_of(field: PolicyField) -> dict[str, Any]:
    if field in OBJECTIVE:
        return schema(OBJECTIVES)["items"]["properties"][field.path[-1]]
    return {"type": "string"} if field.path[0] == "metadata" else schema(field)


@pytest.mark.parametrize("field", [*FIELDS, *OBJECTIVE], ids=lambda field: ".".join(field.path))
def test_the_form_offers_what_the_api_server_takes(field: PolicyField) -> None:
    field_schema = known_of(field)
    if field.kind is FieldKind.ONE:
        assert sorted(field.choices or {}) == sorted(field_schema["enum"])
        left_out = field_schema.get("default", "")
        assert form_value({"spec": {}}, field) == left_out, "what the API server takes without an answer"
    elif field.kind is FieldKind.SOME:
        assert sorted(field.choices or {}) == sorted(field_schema["items"]["enum"])
    else:
        types = {FieldKind.LINES: ("array",), FieldKind.LABELS: ("object",), FieldKind.TEXT: ("string",)}
        assert field_schema["type"] in types.get(field.kind, ("integer", "number"))


def test_every_field_of_a_policy_but_conditions_on_labels_is_in_the_form() -> None:
    properties = set(schema(PolicyField(("spec",), "", FieldKind.TEXT))["properties"])
    assert properties == {field.path[1] for field in FIELDS if field.path[0] == "spec"} | {"objectives"}
    assert schema(OBJECTIVES)["maxItems"] == MOST_OBJECTIVES
    assert set(schema(OBJECTIVES)["items"]["properties"]) == {part.path[-1] for part in OBJECTIVE}


def answers(field: PolicyField) -> st.SearchStrategy[Any]:
    if field.kind is FieldKind.ONE:
        return st.sampled_from(sorted(field.choices or {}))
    if field.kind is FieldKind.SOME:
        return st.lists(st.sampled_from(list(field.choices or {})), unique=True).map(
            lambda chosen: [word for word in field.choices or {} if word in chosen]
        )
    if field.kind is FieldKind.LINES:
        return st.lists(st.sampled_from(["mon-fri 20:00-06:00 Etc/UTC", "sat,sun 00:00-24:00 Etc/UTC"])).map("\n".join)
    if field.kind is FieldKind.LABELS:
        return st.lists(st.sampled_from(["team=pay", "tier=", "app.kubernetes.io/name=web"]), unique=True).map(
            "\n".join
        )
    if field.kind is FieldKind.TEXT:
        return st.sampled_from(["nightly", "pay"])
    share = field.path[1] == "largestCut"
    return st.just("") | (st.sampled_from([0.05, 0.3, 0.9]) if share else st.integers(1, 5))


@pytest.mark.slow
@given(st.data(), st.sampled_from(FIELDS))
def test_an_answer_comes_back_as_it_was_given_and_leaves_the_rest_alone(
    data: st.DataObject, field: PolicyField
) -> None:
    form_answer, before = data.draw(answers(field)), copy.deepcopy(BODY)
    changed = with_form_value(BODY, field, form_answer)
    assert before == BODY, "the object that is shown is not written into"
    assert form_value(changed, field) == form_answer
    others = [other for other in FIELDS if other is not field]
    assert [form_value(changed, other) for other in others] == [form_value(BODY, other) for other in others]
    rest = [{k: v for k, v in body[field.path[0]].items() if k != field.path[1]} for body in (changed, BODY)]
    assert rest[0] == rest[1]
    assert parse_policy(as_yaml(changed)) == changed


LATENCY = {"name": "slow", "measure": "Latency", "ceiling": 0.3, "query": 'q{namespace="$namespace"}'}
ERRORS = {"name": "errors", "measure": "ErrorRatio", "ceiling": 0.01, "query": 'e{namespace="$namespace"}'}


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([LATENCY, ERRORS, {**ERRORS, "later": "kept"}, {"name": "begun"}]), max_size=5),
    st.integers(0, MOST_OBJECTIVES - 1),
    st.sampled_from([LATENCY, {}]),
)
def test_an_objective_is_added_changed_and_taken_out_in_the_form_and_the_others_stay(
    before: list[dict[str, Any]], place: int, objective: dict[str, Any]
) -> None:
    before = [{**entry} for entry in before]  # one object twice would be an alias in YAML
    body = {**BODY, "spec": {**BODY["spec"], **({"objectives": before} if before else {})}}
    shown, size = objective_answers(body), len(OBJECTIVE)
    assert len(shown) == size * MOST_OBJECTIVES and with_objectives(body, shown) == body
    shown[place * size : (place + 1) * size] = [objective.get(part.path[-1], "") for part in OBJECTIVE]
    text, form, objectives, problem = follow(as_yaml(body), values(body), shown, objective_ids()[place * size])
    assert (form, problem) == ([no_update] * len(FIELDS), "")
    # What the form does not show of an objective stays with it as long as anything of it is left.
    hidden = {k: v for k, v in (before[place] if place < len(before) else {}).items() if k == "later"}
    expected = [*before[:place], *([{**objective, **hidden}] if objective or hidden else []), *before[place + 1 :]]
    changed = parse_policy(text)
    assert changed["spec"].get("objectives", []) == expected
    assert {k: v for k, v in changed["spec"].items() if k != "objectives"} == BODY["spec"]
    redrawn = objective_answers(changed)
    assert objectives == ([no_update] * len(shown) if redrawn == shown else redrawn), "a gap in the form closes"


def values(body: dict[str, Any]) -> list[Any]:
    return [form_value(body, field) for field in FIELDS]


def test_the_form_follows_the_text_and_the_text_follows_the_form() -> None:
    resources = next(n for n, field in enumerate(FIELDS) if field.path == ("spec", "resources"))
    typed = {**BODY, "spec": {**BODY["spec"], "resources": ["memory"]}}
    text, form, _, problem = follow(as_yaml(typed), values(BODY), [], TEXT)
    assert (text, form[resources], problem) == (no_update, ["memory"], "")
    answered = values(BODY)
    answered[resources] = ["memory"]
    text, form, _, problem = follow(as_yaml(BODY), answered, [], FIELDS[resources].id)
    assert (parse_policy(text), problem) == (typed, "")
    assert form == [no_update] * len(FIELDS), "what the person has just chosen is not drawn over"


def test_a_word_that_yaml_reads_as_something_else_is_not_shown_as_chosen_and_can_be_mended() -> None:
    mode = next(n for n, field in enumerate(FIELDS) if field.path == ("spec", "mode"))
    typed = as_yaml(BODY).replace("mode: Observe", "mode: Off")
    assert parse_policy(typed)["spec"]["mode"] is False  # YAML 1.1
    _, form, *_ = follow(typed, values(BODY), [], TEXT)
    assert form[mode] is None
    text, *_ = follow(typed, [*form[:mode], "Off", *form[mode + 1 :]], [], FIELDS[mode].id)
    assert parse_policy(text)["spec"]["mode"] == "Off"


def test_text_that_cannot_be_read_waits_and_nothing_of_it_is_lost() -> None:
    text, form, _, problem = follow("metadata: {name: nightly", values(BODY), [], FIELDS[0].id)
    assert text is no_update and form == [no_update] * len(FIELDS)
    assert problem.startswith("The form waits for valid YAML: ")
