"""Aggregates of samples against a plain restatement, and tracks that grow from round to round."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.profiler.node_metric.windows import Track, aggregate_rows, mean, spans

STEP = 60
SAMPLE = st.none() | st.integers(0, 1000).map(float)
ROW = st.lists(SAMPLE, min_size=1, max_size=30)


def array(rows: list[list[float | None]]) -> np.ndarray:
    return np.array([[math.nan if v is None else v for v in row] for row in rows], dtype=np.float64)


@given(ROW)
@settings(max_examples=150)
def test_aggregates_are_the_average_and_the_nearest_ranks(row: list[float | None]) -> None:
    got = aggregate_rows(array([row]))[0]
    values = sorted(v for v in row if v is not None)
    if not values:
        assert np.isnan(got).all()
        return
    # nearest rank: the smallest value that at least p percent of the samples do not exceed
    ranks = [next(v for v in values if 100 * sum(x <= v for x in values) >= p * len(values)) for p in (50, 90, 95, 99)]
    assert got[0] == pytest.approx(sum(values) / len(values))
    assert got[1:].tolist() == ranks


@given(ROW, st.integers(1, 40))
@settings(max_examples=150)
def test_samples_must_span_more_than_half_of_the_duration(row: list[float | None], minutes: int) -> None:
    measured = [i for i, v in enumerate(row) if v is not None]
    enough = bool(measured) and (measured[-1] - measured[0]) * STEP > minutes * STEP / 2
    assert spans(array([row]), STEP, minutes * STEP).tolist() == [enough]


@given(st.lists(ROW.filter(lambda r: len(r) == 5) | st.lists(SAMPLE, min_size=5, max_size=5), min_size=1, max_size=4))
@settings(max_examples=60)
def test_rows_do_not_know_each_other(rows: list[list[float | None]]) -> None:
    together = aggregate_rows(array(rows))
    alone = np.vstack([aggregate_rows(array([row])) for row in rows])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(mean(array(rows)), together[:, 0])


def track(nodes: dict[str, list[float | None]], end: int) -> Track:
    return Track(tuple(nodes), end, STEP, array(list(nodes.values())))


@given(st.lists(st.lists(SAMPLE, min_size=4, max_size=4), min_size=2, max_size=6), st.integers(1, 4))
@settings(max_examples=100)
def test_rounds_joined_one_by_one_are_what_one_question_would_have_given(
    rounds: list[list[float | None]], overlap: int
) -> None:
    # every round asks 4 samples, `overlap` of them again; later rounds repeat what earlier ones saw
    history: dict[int, float | None] = {}
    joined = None
    end = 0
    for values in rounds:
        end += (4 - overlap) * STEP
        times = [end - (3 - i) * STEP for i in range(4)]
        for time, value in zip(times, values, strict=True):
            if value is not None or time not in history:
                history[time] = value
        new = track({"a": values}, end)
        joined = new if joined is None else joined.followed_by(new, 6 * STEP)
    assert joined is not None
    expected = [history.get(end - (5 - i) * STEP) for i in range(6)]
    got = [None if math.isnan(v) else v for v in joined.of(["a"]).last(6 * STEP)[0].tolist()]
    if len(rounds) > 1:
        assert got == expected


def test_a_node_that_missed_a_round_keeps_its_samples_and_a_gone_one_is_dropped() -> None:
    old = track({"a": [1.0, 2.0], "b": [3.0, 4.0]}, 120)
    later = old.followed_by(track({"b": [5.0]}, 180), 180)
    assert later.nodes == ("a", "b")
    np.testing.assert_array_equal(later.values, [[1, 2, math.nan], [3, 4, 5]])
    much_later = later.followed_by(track({"b": [6.0]}, 600), 180)
    assert much_later.nodes == ("b",)


def test_tracks_of_different_grids_are_not_joined() -> None:
    with pytest.raises(ValueError, match="grids"):
        track({"a": [1.0]}, 60).followed_by(track({"a": [1.0]}, 90), 600)


def test_nodes_can_be_asked_in_any_order() -> None:
    got = track({"a": [1.0], "b": [2.0]}, 60).of(["b", "new", "a"])
    np.testing.assert_array_equal(got.values, [[2], [math.nan], [1]])
