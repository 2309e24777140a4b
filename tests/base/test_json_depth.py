"""JSON that is nested deeper than the interpreter goes is read without its depths; all else of it stays."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.json_documents.json_decoders import MOST_LEVELS, decode_shallow, without_depths

DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
VALUES = st.recursive(
    st.none() | st.integers(-(2**53), 2**53) | st.text(alphabet='a"\\\\[]{}\n:,é'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='b"\\\\[{'), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES, VALUES)
def test_what_lies_beside_a_deep_value_is_read_as_it_is(first: Any, last: Any) -> None:
    deep = '{"a":[' * 3_000 + "1" + "]}" * 3_000
    text = f'{{"first": {json.dumps(first)}, "deep": {deep}, "last": {json.dumps(last)}}}'.encode()
    shallow = decode_shallow(DECODER, text)
    assert (shallow["first"], shallow["last"]) == (first, last)
    levels, value = 1, shallow["deep"]
    while value is not None:
        value, levels = (value["a"] if isinstance(value, dict) else value[0]), levels + 1
    assert levels == MOST_LEVELS  # the object around it among them; below it null


@given(VALUES)
def test_what_is_not_deep_is_not_touched(value: Any) -> None:
    text = json.dumps(value).encode()
    assert without_depths(text) == text


def test_the_depths_are_taken_out_in_linear_time() -> None:
    def seconds(levels: int) -> float:
        text = b"[" * levels + b"]" * levels
        began = time.process_time()
        without_depths(text)
        return time.process_time() - began

    seconds(10_000)
    assert seconds(400_000) < 100 * max(seconds(40_000), 0.001)  # ten times as long; a hundred were the square
