"""A computation over many things does without the few on which it fails, and blames nobody for a fault of ours."""

from __future__ import annotations

import time
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.controllers.isolation import MOST_LEFT_OUT, Watched, compute_without_failing, take_each
from cotenant.base.errors import ClusterUnreachable, CotenantError
from cotenant.base.process.in_hand import ObjectVersion


def total(texts: list[str], without: Collection[int]) -> int:
    return sum(int(text) for at, text in enumerate(texts) if at not in without)


@given(st.lists(st.integers(0, 999).map(str), max_size=300), st.sets(st.integers(0, 299), max_size=4))
def test_exactly_what_fails_is_left_out(texts: list[str], bad: set[int]) -> None:
    bad = {at for at in bad if at < len(texts)}
    written = ["no number" if at in bad else text for at, text in enumerate(texts)]
    result, failed = compute_without_failing(range(len(texts)), lambda without: total(written, without), ())
    assert failed.keys() == bad
    assert result == total(texts, bad)
    assert all(why.startswith("ValueError: invalid literal") for why in failed.values())


def test_any_number_is_left_out_beside_others_but_not_all() -> None:
    written = ["no number"] * 300 + ["1"] * 100
    without_failing = compute_without_failing(range(len(written)), lambda without: total(written, without), ())
    assert without_failing[0] == 100 and without_failing[1].keys() == set(range(300))
    written = ["no number"] * (MOST_LEFT_OUT + 1)
    with pytest.raises(ValueError, match="invalid literal"):
        compute_without_failing(range(len(written)), lambda without: total(written, without), ())


def test_the_few_with_which_it_takes_too_long_are_left_out_and_nothing_if_all_takes_long() -> None:
    def spin(until: float) -> None:
        while time.thread_time() < until:
            pass

    def compute(without: Collection[int]) -> int:
        spin(time.thread_time() + (0.5 if 7 not in without else 0))
        return 100 - len(without)

    watched: Watched[int] = Watched("numbers", lambda at: ObjectVersion("numbers", "", str(at), ""), most_seconds=0.2)
    result, failed = compute_without_failing(range(100), compute, (CotenantError,), watched)
    assert result == 99 and failed == {
        7: "SlowObject: a computation with this object took more than 0.2 s of processor time"
    }

    def slow(without: Collection[int]) -> int:
        spin(time.thread_time() + 0.01 * (100 - len(without)))
        return 100 - len(without)

    assert compute_without_failing(range(100), slow, (CotenantError,), watched) == (100, {})


def test_an_error_that_is_no_items_fault_is_raised_at_once() -> None:
    tries = []

    def compute(without: Collection[int]) -> int:
        tries.append(without)
        raise ClusterUnreachable("the API server is away")

    with pytest.raises(ClusterUnreachable):
        compute_without_failing(range(100), compute, (ClusterUnreachable,))
    assert len(tries) == 1


def test_each_item_that_cannot_be_taken_is_named_and_all_others_are_taken() -> None:
    taken: list[int] = []
    failed = take_each(["1", "x", "3"], lambda text: taken.append(int(text)))
    assert taken == [1, 3]
    assert [item for item, _ in failed] == ["x"] and failed[0][1].startswith("ValueError: ")
