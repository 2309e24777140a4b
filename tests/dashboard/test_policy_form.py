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

from cotenant.dashboard.autopilot.policy_editor import draft_of
from cotenant.dashboard.autopilot.policy_form import (
    FIELDS,
    TEXT,
    FieldKind,
    PolicyField,
    follow,
    form_value,
    with_form_value,
)
from cotenant.dashboard.autopilot.policy_text import as_yaml, parse_policy

CRD = Path(__file__).resolve().parents[2] / "deploy/crds/autopilotpolicies.cotenant.dev.yaml"
KEPT = {"selector": {"matchLabels": {"team": "pay"}}, "soakMinutes": 90, "largestCut": {"cpu": 0.2, "memory": 0.1}}
BODY: dict[str, Any] = {**draft_of("new/shop"), "spec": {**draft_of("new/shop")["spec"], **KEPT}}


def schema(field: PolicyField) -> dict[str, Any]:
    """What the API server knows of a field."""
    node = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for key in field.path:
        node = node["properties"][key]
    return node


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(field.path))
def test_the_form_offers_what_the_api_server_takes(field: PolicyField) -> None:
    known = schema(field)
    if field.kind is FieldKind.ONE:
        assert sorted(field.choices or {}) == sorted(known["enum"])
        assert form_value({"spec": {}}, field) == known["default"], "what the API server takes without an answer"
    elif field.kind is FieldKind.SOME:
        assert sorted(field.choices or {}) == sorted(known["items"]["enum"])
    else:
        assert known["type"] == ("array" if field.kind is FieldKind.LINES else known["type"])
        assert field.kind is FieldKind.LINES or known["type"] in ("integer", "number")


def answers(field: PolicyField) -> st.SearchStrategy[Any]:
    if field.kind is FieldKind.ONE:
        return st.sampled_from(sorted(field.choices or {}))
    if field.kind is FieldKind.SOME:
        return st.lists(st.sampled_from(list(field.choices or {})), unique=True).map(
            lambda words: [word for word in field.choices or {} if word in words]
        )
    if field.kind is FieldKind.LINES:
        return st.lists(st.sampled_from(["mon-fri 20:00-06:00 Etc/UTC", "sat,sun 00:00-24:00 Etc/UTC"])).map("\n".join)
    share = field.path[1] == "largestCut"
    return st.just("") | (st.sampled_from([0.05, 0.3, 0.9]) if share else st.integers(1, 5))


@given(st.data(), st.sampled_from(FIELDS))
def test_an_answer_comes_back_as_it_was_given_and_leaves_the_rest_alone(
    data: st.DataObject, field: PolicyField
) -> None:
    answer, before = data.draw(answers(field)), copy.deepcopy(BODY)
    changed = with_form_value(BODY, field, answer)
    assert before == BODY, "the object that is shown is not written into"
    assert form_value(changed, field) == answer
    others = [other for other in FIELDS if other is not field]
    assert [form_value(changed, other) for other in others] == [form_value(BODY, other) for other in others]
    assert {k: v for k, v in changed["spec"].items() if k != field.path[1]} == {
        k: v for k, v in BODY["spec"].items() if k != field.path[1]
    }
    assert parse_policy(as_yaml(changed)) == changed


def values(body: dict[str, Any]) -> list[Any]:
    return [form_value(body, field) for field in FIELDS]


def test_the_form_follows_the_text_and_the_text_follows_the_form() -> None:
    resources = next(n for n, field in enumerate(FIELDS) if field.path == ("spec", "resources"))
    typed = {**BODY, "spec": {**BODY["spec"], "resources": ["memory"]}}
    text, form, problem = follow(as_yaml(typed), values(BODY), TEXT)
    assert (text, form[resources], problem) == (no_update, ["memory"], "")
    answered = values(BODY)
    answered[resources] = ["memory"]
    text, form, problem = follow(as_yaml(BODY), answered, FIELDS[resources].id)
    assert (parse_policy(text), problem) == (typed, "")
    assert form == [no_update] * len(FIELDS), "what the person has just chosen is not drawn over"


def test_a_word_that_yaml_reads_as_something_else_is_not_shown_as_chosen_and_can_be_mended() -> None:
    mode = next(n for n, field in enumerate(FIELDS) if field.path == ("spec", "mode"))
    typed = as_yaml(BODY).replace("mode: Observe", "mode: Off")
    assert parse_policy(typed)["spec"]["mode"] is False  # YAML 1.1
    _, form, _ = follow(typed, values(BODY), TEXT)
    assert form[mode] is None
    text, _, _ = follow(typed, [*form[:mode], "Off", *form[mode + 1 :]], FIELDS[mode].id)
    assert parse_policy(text)["spec"]["mode"] == "Off"


def test_text_that_cannot_be_read_waits_and_nothing_of_it_is_lost() -> None:
    text, form, problem = follow("metadata: {name: nightly", values(BODY), FIELDS[0].id)
    assert text is no_update and form == [no_update] * len(FIELDS)
    assert problem.startswith("The form waits for the YAML: ")
