"""JSON pointers: every place of a document can be named, and what names no place is nothing, never an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonpointer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.json_documents.difference import escape_pointer_key, last_key, value_at_pointer

KEYS = st.text(st.sampled_from("a/~01²٣-"), max_size=3)
DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def places(document: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Pointer and value of the document and of everything in it."""
    yield pointer, document
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, f"{pointer}/{escape_pointer_key(key)}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from places(value, f"{pointer}/{index}")


@pytest.mark.slow
@given(DOCUMENTS)
def test_every_place_of_a_document_is_found_by_its_pointer(document: Any) -> None:
    for pointer, value in places(document):
        assert value_at_pointer(document, pointer) == value


@given(DOCUMENTS, st.lists(KEYS, max_size=4))
def test_any_steps_lead_where_a_reference_implementation_leads_and_to_nothing_where_it_refuses(
    document: Any, steps: list[str]
) -> None:
    pointer = "".join(f"/{escape_pointer_key(step)}" for step in steps)
    try:
        expected = jsonpointer.resolve_pointer(document, pointer, None)
    except jsonpointer.JsonPointerException:
        expected = None
    if isinstance(expected, jsonpointer.EndOfList) or "-" in steps:
        return  # "-" is the place after the last one, which a pointer that is read never means
    assert value_at_pointer(document, pointer) == expected


@pytest.mark.parametrize("step", ["²", "٣", "01", "-1", "+1", "1_0", " 1", "", "-", "1" * 5000])
def test_what_is_no_index_names_no_place_of_a_list(step: str) -> None:
    assert value_at_pointer({"list": list(range(20))}, f"/list/{step}") is None


@given(KEYS)
def test_a_key_comes_back_from_its_step(key: str) -> None:
    assert last_key(f"/metadata/{escape_pointer_key(key)}") == key
