"""What was asked last of a run's tables: asked of the engine once, bounded, and of whoever asked alone."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.table import Kind, Table
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import Relation
from cotenant.dashboard.sources.namespace_filter import filter_snapshot
from cotenant.dashboard.sources.source import LARGEST_SHARE, MOST_CELLS, QUESTION_CELLS, Answers, Snapshot
from cotenant.recommender.model.views import PODS, RECOMMENDATIONS


class Desk:
    """Asks what `Answers` does not know, and counts how often."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.asked: Counter[object] = Counter()

    def ask(self, question: object, cells: int) -> object:
        def work() -> object:
            self.asked[question] += 1
            return f"answer to {question}"

        return self.answers.of(question, work, lambda _: cells)


def pods(count: int) -> Snapshot:
    rows = [{"namespace": f"n{k % 2}", "pod": f"p{k}", "node": f"node-{k}"} for k in range(count)]
    return Snapshot("1", None, {PODS.name: Relation.of(Table.from_rows(PODS, rows))})


def test_the_oldest_answers_go_when_all_together_hold_too_much() -> None:
    desk, cells = Desk(), 4_000
    room = MOST_CELLS // (QUESTION_CELLS + cells)
    for question in range(room):
        desk.ask(question, cells)
    assert desk.ask(0, cells) == "answer to 0"  # which makes 1 the oldest
    desk.ask("one more", cells)
    for question in (*range(2, room), 0, "one more"):
        desk.ask(question, cells)
    assert set(desk.asked.values()) == {1}
    desk.ask(1, cells)
    assert desk.asked[1] == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2 * MOST_CELLS)), max_size=60))
def test_whatever_was_asked_before_the_answer_is_its_own(questions: list[tuple[int, int]]) -> None:
    desk = Desk()
    for question, cells in questions:
        assert desk.ask(question, cells) == f"answer to {question}"


def test_an_answer_of_a_tenth_of_all_room_is_not_kept() -> None:
    desk, tenth = Desk(), int(LARGEST_SHARE * MOST_CELLS)
    for _ in range(2):
        desk.ask("just small enough", tenth - QUESTION_CELLS)
        desk.ask("too large", tenth)
    assert desk.asked == {"just small enough": 1, "too large": 2}


def test_a_page_and_filters_are_asked_once_and_a_filter_of_very_many_values_each_time() -> None:
    few, many, columns = pods(100), pods(20_000), ("namespace", "pod")
    assert few.page(PODS.name, Query(), slice(0, 100), columns) is few.page(PODS.name, Query(), slice(0, 100), columns)
    assert few.facets(PODS.name, Query(), ("node",)) is few.facets(PODS.name, Query(), ("node",))
    # 20,000 nodes are more than a tenth of 100,000 cells
    assert many.facets(PODS.name, Query(), ("node",)) is not many.facets(PODS.name, Query(), ("node",))
    assert many.facets(PODS.name, Query(), ("ns",)) is many.facets(PODS.name, Query(), ("ns",))


@pytest.mark.slow
def test_all_answers_of_a_run_take_less_than_ten_mebibytes() -> None:
    texts = tuple(column.name for column in RECOMMENDATIONS.columns if column.kind is Kind.TEXT)
    rows = [{name: f"{name} of a workload with a long name, row {k}" for name in texts} for k in range(5_000)]
    run = Snapshot("1", None, {RECOMMENDATIONS.name: Relation.of(Table.from_rows(RECOMMENDATIONS, rows))})
    run.page(RECOMMENDATIONS.name, Query(), slice(0, 1), texts)  # what the engine keeps for itself is not counted
    tracemalloc.start()
    try:
        for first in range(0, len(rows), 100):  # 50 pages of 1,600 texts, 500 for each question: > 100,000
            run.page(RECOMMENDATIONS.name, Query(), slice(first, first + 100), texts)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 10 * 2**20


def test_what_everybody_asked_before_does_not_answer_those_who_see_one_namespace() -> None:
    full = pods(4)
    assert full.count(PODS.name, Query()) == 4
    assert dict(full.facets(PODS.name, Query(), ("ns",))["ns"]) == {"n0": 2, "n1": 2}
    assert len(full.page(PODS.name, Query(), slice(0, 10), ("pod",))) == 4
    own = filter_snapshot(full, frozenset({"n1"}))
    # of p0..p3 those with an odd number are in n1
    assert own.count(PODS.name, Query()) == 2
    assert dict(own.facets(PODS.name, Query(), ("ns",))["ns"]) == {"n1": 2}
    assert set(own.page(PODS.name, Query(), slice(0, 10), ("pod",)).columns["pod"]) == {"p1", "p3"}
