"""Rows of many names at once: the same as one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender import name_index
from cotenant.scheduler_ext.extender.name_index import NameIndex

NAMES = st.text(max_size=12)


@given(st.lists(NAMES, unique=True, max_size=60), st.lists(NAMES, max_size=30), st.randoms())
def test_every_name_gets_its_row_and_strangers_none(names: list[str], strangers: list[str], order: object) -> None:
    texts = [*names, *strangers, *names[:3]]
    order.shuffle(texts)  # type: ignore[attr-defined]
    rows = {name: row for row, name in enumerate(names)}
    assert NameIndex(names).rows(texts).tolist() == [rows.get(name, -1) for name in texts]


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=40), st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_hashes_that_crowd_one_end_are_told_apart(hashes: list[int], others: list[int]) -> None:
    """Numbers stand for names, and for their hashes: 0 and the largest are among them."""
    hashes = list(dict.fromkeys([*hashes, 0, 1, 2**64 - 2, 2**64 - 1]))
    numbers = [*hashes, *others]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_index, "_hashes", lambda names: np.array(names, dtype=np.uint64))
        rows = NameIndex(hashes).rows(numbers)  # type: ignore[arg-type]
    assert rows.tolist() == [hashes.index(number) if number in hashes else -1 for number in numbers]


def test_names_that_share_a_hash_are_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(names: Sequence[str]) -> object:
        return np.zeros(len(names), dtype=np.uint64)

    monkeypatch.setattr(name_index, "_hashes", equal)
    assert NameIndex(["a", "b"]).rows(["b", "x", "a"]).tolist() == [1, -1, 0]
