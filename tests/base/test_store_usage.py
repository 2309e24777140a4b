"""History in the store: what was appended is read back, joined slot by slot, in good time."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import StoreError
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.store import Store, days
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from tests.support.store import (
    CPU,
    HOUR,
    MIDNIGHT,
    REQUEST,
    same,
    usage_of,
)


def test_what_was_appended_is_read_back_sorted_by_reference(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[5.5, math.nan, 7.25], [1, 2, 3]], ["web-b", "web-a"]))
    read = store.read(CPU, TimeGrid(MIDNIGHT, 300, 3))
    assert read.refs == (PodContainerRef("shop", "web-a", "main"), PodContainerRef("shop", "web-b", "main"))
    assert np.array_equal(read.values, np.array([[1, 2, 3], [5.5, math.nan, 7.25]], dtype=np.float32), equal_nan=True)
    assert (read.resource, read.statistic) == (CPU.spec.resource, CPU.spec.statistic)
    assert read.values.flags.c_contiguous


def test_a_new_gap_keeps_the_stored_value_and_a_new_value_replaces_it(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[1, 2, math.nan]], ["a"]))
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[math.nan, 9, 3], [4, 4, 4]], ["a", "b"]))
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[8]], ["b"]))
    assert store.read(CPU, TimeGrid(MIDNIGHT, 300, 3)).values.tolist() == [[1, 9, 3], [8, 4, 4]]


def test_a_series_without_a_value_in_the_grid_is_not_read(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[1, math.nan], [math.nan, 2], [math.nan, math.nan]], ["a", "b", "c"]))
    assert [r.pod for r in store.read(CPU, TimeGrid(MIDNIGHT, 300, 1)).refs] == ["a"]
    assert [r.pod for r in store.read(CPU, TimeGrid(MIDNIGHT, 300, 2)).refs] == ["a", "b"]
    assert store.read(CPU, TimeGrid(MIDNIGHT + 5 * DAY_SECONDS, 300, 4)).refs == ()


def test_what_is_kept_are_the_newest_days_of_any_signal(url: str) -> None:
    store = Store(url, "prod")
    for day in (0, 1, 5):
        store.append(CPU, usage_of(CPU, MIDNIGHT + day * DAY_SECONDS, [[1.0]], ["a"]))
    # As a clock that was years ahead for a moment stored it.
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT + 3000 * DAY_SECONDS, [[1.0]], ["a"]))
    assert store.keep(4) == 0
    # Of the days 0, 1, 5 and 3000 the newest three are kept, then two.
    assert store.keep(3) == 1
    assert store.keep(2) == 1
    assert store.span(CPU) == (MIDNIGHT + 5 * DAY_SECONDS, MIDNIGHT + 5 * DAY_SECONDS + 300)
    assert Store(url, "empty").keep(1) == 0


def test_node_signals_come_back_with_node_references(url: str) -> None:
    store = Store(url, "prod")
    store.append(Signal.NODE_CPU_USAGE_MEAN, usage_of(Signal.NODE_CPU_USAGE_MEAN, MIDNIGHT, [[1.0]], ["node-1"]))
    assert store.read(Signal.NODE_CPU_USAGE_MEAN, TimeGrid(MIDNIGHT, 300, 1)).refs == (NodeRef("node-1"),)


def test_the_span_runs_from_the_first_to_the_last_slot_with_a_value(url: str) -> None:
    store = Store(url, "prod")
    assert store.span(REQUEST) is None
    values = [[math.nan] * 5 + [1.0] + [math.nan] * 30 + [2.0, math.nan]]
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, values, ["a"]))
    # slot 5 begins at 05:00 of the first day; slot 36 is 12:00-13:00 of the second day
    assert store.span(REQUEST) == (MIDNIGHT + 5 * HOUR, MIDNIGHT + 37 * HOUR)
    assert store.span(Signal.CPU_LIMIT) is None


def test_appending_nothing_but_gaps_stores_nothing(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[math.nan, math.nan]], ["a"]))
    assert store.span(CPU) is None
    assert Store.clusters(url) == ()


def test_a_wrong_step_and_a_series_given_twice_are_refused(url: str) -> None:
    store = Store(url, "prod")
    with pytest.raises(StoreError, match="every 3600 s, not every 300 s"):
        store.append(REQUEST, usage_of(CPU, MIDNIGHT, [[1]], ["a"]))
    with pytest.raises(StoreError, match="twice"):
        store.append(CPU, usage_of(CPU, MIDNIGHT, [[1], [2]], ["a", "a"]))
    with pytest.raises(StoreError, match="series needs node"):
        node_signal = Signal.NODE_CPU_USAGE_MEAN
        store.append(node_signal, usage_of(CPU, MIDNIGHT, [[1]], ["a"]))
    with pytest.raises(StoreError, match="not every 3600 s"):
        store.read(CPU, TimeGrid(MIDNIGHT, 3600, 1))


cells = st.one_of(st.just(math.nan), st.floats(0, 2.0**40, width=32))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Usage, list[Usage]]:
    """An hourly block over up to three days, and a cut of it into overlapping pieces of time and series."""
    count, size = draw(st.integers(1, 4)), draw(st.integers(1, 60))
    start = MIDNIGHT + HOUR * draw(st.integers(0, 30))
    values = draw(st.lists(st.lists(cells, min_size=size, max_size=size), min_size=count, max_size=count))
    names = draw(st.lists(st.text("ab-/é", min_size=1, max_size=3), min_size=count, max_size=count, unique=True))
    usage = usage_of(REQUEST, start, values, names)
    cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))})
    pieces = []
    for a, b in itertools.pairwise(cuts):
        split = draw(st.integers(0, count))
        for rows in (range(split), range(max(0, split - 1), count)):
            part = usage.values[list(rows), a:b]
            grid = TimeGrid(start + a * HOUR, HOUR, b - a)
            refs = tuple(usage.refs[i] for i in rows)
            pieces.append(Usage(refs, grid, part, usage.resource, usage.statistic))
    return usage, draw(st.permutations(pieces))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=histories())
def test_a_history_appended_in_pieces_equals_the_history_appended_at_once(case: tuple[Usage, list[Usage]]) -> None:
    usage, pieces = case
    fsspec.filesystem("memory").store.clear()
    at_once, in_pieces = Store("memory://split", "once"), Store("memory://split", "pieces")
    at_once.append(REQUEST, usage)
    for piece in pieces:
        in_pieces.append(REQUEST, piece)
    grid = TimeGrid(MIDNIGHT, HOUR, 24 * 5)
    expected = at_once.read(REQUEST, grid)
    assert same(in_pieces.read(REQUEST, grid), expected)
    assert in_pieces.span(REQUEST) == at_once.span(REQUEST)
    filled = {r: v for r, v in zip(usage.refs, usage.values, strict=True) if not np.isnan(v).all()}
    assert set(expected.refs) == set(filled)
    offset = grid.index_of(usage.grid.start_seconds)
    for ref, row in zip(expected.refs, expected.values, strict=True):
        assert np.array_equal(row[offset : offset + usage.grid.size], filled[ref], equal_nan=True)
        assert np.isnan(row[:offset]).all()
        assert np.isnan(row[offset + usage.grid.size :]).all()


# ---- speed and memory, loose enough for a busy machine


def test_two_weeks_of_a_thousand_series_are_read_quickly(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    grid = TimeGrid(MIDNIGHT, 300, 288 * 14)
    refs = tuple(PodContainerRef(f"ns-{i % 30}", f"pod-{i}", "main") for i in range(1100))
    store = Store(tmp_path.as_uri(), "prod")
    block = Usage(
        refs, grid, rng.gamma(2, 100, (1100, grid.size)).astype(np.float32), CPU.spec.resource, CPU.spec.statistic
    )
    start = time.process_time()
    store.append(CPU, block)
    appended = time.process_time()
    read = store.read(CPU, grid)
    ended = time.process_time()
    assert read.values.sum() == pytest.approx(block.values.sum(), rel=1e-6)
    assert appended - start < 30
    assert ended - appended < 10
    day = tmp_path / "prod" / "usage" / CPU.value / days.day_name(MIDNIGHT)
    assert day.stat().st_size < 4 * 1100 * 288
