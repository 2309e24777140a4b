"""Label selectors: what they select, and which the API server would refuse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kubernetes.selector import LabelSelector

KEYS = st.sampled_from(["pool", "zone", "example.com/tier", "a"])
VALUES = st.sampled_from(["", "gold", "silver", "eu-1"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)


def selects(selector: dict | None, **labels: str) -> bool:
    return LabelSelector.parse(selector).matches(labels)


def expression(operator: str, *values: str, key: str = "pool") -> dict:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not LabelSelector.parse(None).matches({})
    assert not LabelSelector.parse(None).matches({"pool": "gold"})
    assert LabelSelector.parse({}).matches({})
    assert LabelSelector.parse({"matchLabels": None, "matchExpressions": None}).matches({"pool": "gold"})


def test_all_labels_and_all_expressions_must_hold() -> None:
    selector = {"matchLabels": {"pool": "gold", "zone": "eu-1"}, **expression("Exists", key="tier")}
    assert selects(selector, pool="gold", zone="eu-1", tier="")
    assert not selects(selector, pool="gold", zone="eu-1")
    assert not selects(selector, pool="gold", tier="x")
    assert not selects(selector, pool="silver", zone="eu-1", tier="x")


@pytest.mark.parametrize(
    ("operator", "values", "absent", "gold", "silver"),
    [
        ("In", ["gold"], False, True, False),
        ("NotIn", ["gold"], True, False, True),  # a node without the key is not in the set
        ("Exists", [], False, True, True),
        ("DoesNotExist", [], True, False, False),
    ],
)
def test_an_operator_judges_an_absent_key_and_its_values(
    operator: str, values: list[str], absent: bool, gold: bool, silver: bool
) -> None:
    selector = expression(operator, *values)
    assert (selects(selector), selects(selector, pool="gold"), selects(selector, pool="silver")) == (
        absent,
        gold,
        silver,
    )


@pytest.mark.parametrize(
    ("selector", "phrase"),
    [
        ("pool=gold", "is not an object"),
        ({"matchLabels": ["pool"]}, "matchLabels"),
        ({"matchLabels": {"pool": 3}}, "3"),
        ({"matchLabels": {"-pool": "gold"}}, "-pool"),
        ({"matchLabels": {"x" * 64: "gold"}}, "is not a valid label key"),
        ({"matchLabels": {"pool": "a b"}}, "a b"),
        ({"matchLabels": {"pool": "x" * 64}}, "is not a valid label value"),
        ({"matchExpressions": {"key": "pool"}}, "is not a list"),
        ({"matchExpressions": ["pool"]}, "matchExpressions[0]"),
        (expression("Gt", "3"), "Gt"),
        (expression("In"), "needs a value"),
        (expression("Exists", "gold"), "must be empty"),
        ({"matchExpressions": [{"key": "pool", "operator": "In", "values": "gold"}]}, "is not a list"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "null"),
        ({"matchExpressions": [{"key": "pool", "operator": ["In"]}]}, "operator"),
    ],
)
def test_a_selector_that_the_api_server_refuses_names_the_place_and_the_value(selector: object, phrase: str) -> None:
    with pytest.raises(UsageError, match="nodeSelector") as refused:
        LabelSelector.parse(selector, "nodeSelector")  # type: ignore[arg-type]
    assert phrase in refused.value.message


@given(LABELS, KEYS, st.lists(VALUES, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_each_operator_is_the_negation_of_its_opposite(labels: dict[str, str], key: str, values: list[str]) -> None:
    def found(operator: str, *some: str) -> bool:
        return LabelSelector.parse(expression(operator, *some, key=key)).matches(labels)

    assert found("In", *values) is not found("NotIn", *values)
    assert found("Exists") is not found("DoesNotExist")
    assert found("In", *values) is (labels.get(key) in values)


@given(LABELS, LABELS)
@settings(max_examples=60, deadline=None)
def test_match_labels_select_exactly_the_supersets(selected: dict[str, str], labels: dict[str, str]) -> None:
    assert LabelSelector.parse({"matchLabels": selected}).matches(labels) is (selected.items() <= labels.items())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["key", "operator", "values"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["matchLabels", "matchExpressions", "other"]), JSON) | JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_is_a_selector_or_a_clear_refusal(given_json: object) -> None:
    try:
        selector = LabelSelector.parse(given_json, "s")  # type: ignore[arg-type]
    except CotenantError as refused:
        assert refused.message.startswith("s")
    else:
        assert selector.matches({}) in (True, False)
