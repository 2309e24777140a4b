"""What changed, in few words."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.json_documents.difference import LONGEST, cut, difference

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)


def test_only_what_changed_is_told_with_both_values() -> None:
    old = json.dumps({"kubernetes.io/batch-cpu": 9157, "kubernetes.io/mid-cpu": 100})
    amounts = {"kubernetes.io/batch-cpu": "9987", "kubernetes.io/mid-cpu": "100"}
    new = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    assert difference(old, new) == "kubernetes.io/batch-cpu 9157 -> 9987"


def test_what_a_summary_names_goes_before_the_rest() -> None:
    assert difference('{"peak": 1}', '{"peak": 2, "points": [3, 4]}') == "peak 1 -> 2"
    assert difference('{"peak": 1}', '{"peak": 1, "points": [3, 4]}') == "points [3,4]"


def test_a_new_object_is_told_by_its_first_leaves() -> None:
    assert difference("", '{"spec": {"enable": true, "name": "x"}}') == "enable true, name x"


def test_an_operation_is_told_by_what_it_touches() -> None:
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "remove", "path": "/status/capacity/kubernetes.io~1batch-cpu"},
    ]
    assert difference('{"kubernetes.io/batch-cpu": 5}', json.dumps(patch)) == "kubernetes.io/batch-cpu 5 -> gone"


def test_more_than_fits_is_counted() -> None:
    text = difference("", json.dumps({f"key-{i:02}": "v" * 30 for i in range(20)}))
    # "key-00 " + 30 characters and ", " are 39: four fit into 160
    assert text.count("key-") == 4
    assert text.endswith(" and 16 more")


@given(old=st.text(max_size=40) | JSON.map(json.dumps), new=st.text(max_size=40) | JSON.map(json.dumps))
def test_any_two_texts_have_a_short_difference(old: str, new: str) -> None:
    assert len(difference(old, new)) <= LONGEST + len(" and 1000 more")


@given(st.text(max_size=30), st.integers(3, 40))
def test_a_cut_text_is_the_text_or_its_beginning(text: str, longest: int) -> None:
    shown = cut(text, longest)
    assert len(shown) <= longest
    assert shown == text or text.startswith(shown.removesuffix("..."))
