from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as shaped

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.usage.lives import Lives, SourceSilence
from cotenant.base.usage.usage import DAY_SECONDS, Statistic, TimeGrid, Usage
from cotenant.profiler.coverage import coverage
from cotenant.recommender.model.views import COVERAGE, COVERAGE_BY_DAY

START = 1_795_046_400  # a midnight
NAN = np.nan


def usage(rows: dict[str, list[float]], start: int = START) -> Usage[PodContainerRef]:
    refs = tuple(PodContainerRef(where, pod, "c") for where, _, pod in (name.partition("/") for name in rows))
    values = np.array(list(rows.values()), dtype=np.float32)
    grid = TimeGrid(start, 300, values.shape[1])
    return Usage(refs, grid, values, Resource.CPU, Statistic.MEAN)


def inventory(*pods: Pod) -> Inventory:
    return Inventory("c", START, (), (), pods)


def fates(series: Usage[PodContainerRef], known_inventory: Inventory) -> Lives:
    """As of a source without nodes and without a listing of containers."""
    hours = TimeGrid(series.grid.start_seconds, 3600, math.ceil(series.grid.size / 12))
    return Lives.of(SourceSilence.of_no_node(series.grid, hours), known_inventory, {})


def by_namespace(series: Usage[PodContainerRef], known_inventory: Inventory) -> list[dict[str, Any]]:
    return coverage(series, known_inventory, fates(series, known_inventory)).namespace_rows()


def by_day(series: Usage[PodContainerRef], known_inventory: Inventory) -> list[dict[str, Any]]:
    return coverage(series, known_inventory, fates(series, known_inventory)).day_rows()


def pod(name: str, start_slot: int, end_slot: int | None = None, kind: str = "Pod") -> Pod:
    ref = WorkloadRef("a", kind, name)
    end = None if end_slot is None else START + 300 * end_slot
    return Pod("a", name, ref, "n", START + 300 * start_slot, end)


def test_a_namespace_is_covered_by_the_samples_its_containers_had_while_alive() -> None:
    coverage_rows = by_namespace(
        usage({"a/p": [1, NAN, NAN, 1, 1, NAN], "a/q": [NAN, NAN, 2, 2, 2, 2], "b/r": [NAN, 1, 1, 1, 1, 1]}),
        inventory(),
    )
    # a: p lives slots 0..4 with 3 samples, q slots 2..5 with 4: 7 / 9; p's gap is two slots, q's newest slot is 5.
    assert coverage_rows == [
        {"namespace": "a", "series": 2, "coverage": 7 / 9, "longest_gap_seconds": 600, "newest": START + 1800},
        {"namespace": "b", "series": 1, "coverage": 1.0, "longest_gap_seconds": 0, "newest": START + 1800},
    ]
    assert [row["series"] for row in Table.from_rows(COVERAGE, coverage_rows).rows()] == [2, 1]


def test_a_running_pod_that_fell_silent_is_a_gap_up_to_now() -> None:
    silent = usage({"a/p": [1, 1, NAN, NAN, NAN, NAN, NAN, NAN]})
    (row,) = by_namespace(silent, inventory(pod("p", 0)))
    assert (row["coverage"], row["longest_gap_seconds"], row["newest"]) == (2 / 8, 6 * 300, START + 600)
    # The same pod, ended after its fourth slot: two of four slots, which is what a rate may lack at the end.
    (row,) = by_namespace(silent, inventory(pod("p", 0, 4)))
    assert (row["coverage"], row["longest_gap_seconds"]) == (1.0, 0)


def test_a_rates_first_slots_are_no_gap_but_an_hour_is() -> None:
    late = usage({"a/p": [NAN, NAN, *[1.0] * 4], "a/q": [NAN, NAN, NAN, *[1.0] * 3]})
    (row,) = by_namespace(late, inventory(pod("p", 0), pod("q", 0)))
    # p counts from its first sample (4 of 4), q from its pod's start (3 of 6).
    assert (row["coverage"], row["longest_gap_seconds"]) == (7 / 10, 900)


def test_a_day_is_silent_where_containers_lived_and_none_was_seen() -> None:
    first, second = [1.0] * 288, [1.0] * 288
    first[10:14] = [NAN] * 4
    second[100] = NAN
    other = [NAN] * 288 + [1.0] * 288
    coverage_rows = by_day(usage({"a/p": first + second, "b/q": other}), inventory())
    # Day 1: p lacks 4 of 288. Day 2: p lacks 1 of 2 x 288, but q was seen then: no silence.
    assert coverage_rows == [
        {"day": START, "series": 1, "coverage": 284 / 288, "gap_seconds": 1200},
        {"day": START + DAY_SECONDS, "series": 2, "coverage": 575 / 576, "gap_seconds": 0},
    ]
    assert [row["gap_seconds"] for row in Table.from_rows(COVERAGE_BY_DAY, coverage_rows).rows()] == [1200, 0]


def test_nothing_stored_has_no_coverage() -> None:
    empty: Usage[PodContainerRef] = Usage(
        (), TimeGrid(START, 300, 4), np.empty((0, 4), np.float32), Resource.CPU, Statistic.MEAN
    )
    assert by_namespace(empty, inventory()) == []
    assert by_day(empty, inventory()) == [{"day": START, "series": 0, "coverage": None, "gap_seconds": 0}]
    assert by_namespace(usage({"a/p": []}), inventory()) == []


@given(
    shaped.arrays(np.float32, (3, 12), elements=st.sampled_from([np.float32(1), np.float32("nan")])),
    st.lists(st.tuples(st.integers(-3, 11), st.integers(1, 14) | st.none()), min_size=3, max_size=3),
    st.sampled_from(["Pod", "Deployment"]),  # nobody else gets the name of a Deployment's pod: its gaps need no proof
)
def test_a_slow_count_of_slot_after_slot_agrees(
    values: np.ndarray, lives: list[tuple[int, int | None]], kind: str
) -> None:
    names = ["p", "q", "r"]
    block = Usage(
        tuple(PodContainerRef("a", n, "c") for n in names), TimeGrid(START, 300, 12), values, None, Statistic.MEAN
    )
    ends = [None if length is None else start + length for start, length in lives]
    pods = inventory(*(pod(n, start, end, kind) for n, (start, _), end in zip(names, lives, ends, strict=True)))
    alive = measured = longest = 0
    due_by_slot = np.zeros(12)
    for row, (start, length) in zip(values, lives, strict=True):
        slots = [k for k in range(12) if not np.isnan(row[k])]
        if not slots:
            continue
        end = 12 if length is None else min(12, start + length)
        first = slots[0] if slots[0] - max(start, 0) <= 2 else max(start, 0)
        stop = slots[-1] + 1 if end - slots[-1] - 1 <= 2 else end
        run = 0
        for k in range(first, stop):
            alive += 1
            due_by_slot[k] += 1
            measured += k in slots
            run = 0 if k in slots else run + 1
            longest = max(longest, run)
    counted = coverage(block, pods, fates(block, pods))
    assert [(r["coverage"], r["longest_gap_seconds"]) for r in counted.namespace_rows()] == (
        [(measured / alive, longest * 300)] if alive else []
    )
    assert counted.due_by_slot.tolist() == counted.lived_by_slot.tolist() == due_by_slot.tolist()
    assert counted.seen_by_slot.tolist() == np.isfinite(values).sum(axis=0).tolist()
