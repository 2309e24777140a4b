"""Part of the series is read from day files without the rest; what cannot be read is not taken for corrupt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import StoreError
from cotenant.base.store import Store, days, parquet
from cotenant.base.store.days import Key
from cotenant.base.store.files import Opened
from cotenant.base.usage.usage import Signal, TimeGrid
from tests.support.fleet import START, filled, refs_of, usage_of, values_of

CPU, HIGHEST = Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX
COUNT = 2_300
VALUES = values_of(COUNT, 2)[:, :300]
GRID = TimeGrid(START, 300, 300)
KEYS: list[Key] = [days.key_of(ref) for ref in refs_of(COUNT)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled(tmp_path_factory.mktemp("part").as_uri(), VALUES)


@settings(max_examples=15, deadline=None)
@given(st.one_of(st.none(), st.integers(0, COUNT - 1)), st.one_of(st.none(), st.integers(0, COUNT - 1)))
def test_any_range_of_keys_equals_that_part_of_the_whole(store: Store, low: int | None, high: int | None) -> None:
    read = store.read_sparse(CPU, GRID, (None if low is None else KEYS[low], None if high is None else KEYS[high]))
    assert read.refs == refs_of(COUNT)[low:high]
    assert np.array_equal(read.dense().values, VALUES[low:high])


def test_only_row_groups_of_the_range_are_decoded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = parquet.group

    def noting(file: Any, number: int, columns: Any = None) -> Any:
        decoded.append(number)
        return real(file, number, columns)

    monkeypatch.setattr(parquet, "group", noting)
    store.read_sparse(CPU, TimeGrid(START, 300, 288), (KEYS[1_200], KEYS[1_300]))
    assert decoded == [1]  # groups hold 0..999, 1,000..1,999, 2,000..2,299


def test_keys_are_read_once_for_signals_of_the_same_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = filled(tmp_path.as_uri(), VALUES[:30])
    both.append(HIGHEST, usage_of(VALUES[:30]))
    columns_read: list[Any] = []
    real = parquet.group

    def noting(file: Any, number: int, columns: Any = None) -> Any:
        columns_read.append(columns)
        return real(file, number, columns)

    monkeypatch.setattr(parquet, "group", noting)
    mean, highest = (both.read_sparse(signal, GRID, (None, KEYS[30])) for signal in (CPU, HIGHEST))
    # one group on each of two days and signals; only the first one's keys were not read before
    assert columns_read == [None, *3 * [("values",)]]
    assert highest.refs is mean.refs
    assert np.array_equal(highest.dense().values, VALUES[:30])


@settings(max_examples=10, deadline=None)
@given(st.tuples(*2 * [st.sets(st.integers(0, 39), min_size=1)]))
def test_signals_of_other_series_keep_their_own(
    tmp_path_factory: pytest.TempPathFactory, rows: tuple[set[int], set[int]]
) -> None:
    mixed = Store(tmp_path_factory.mktemp("mixed").as_uri(), "demo")
    chosen = dict(zip((CPU, HIGHEST), map(sorted, rows), strict=True))
    for signal, index in chosen.items():
        every = usage_of(VALUES[:40])
        mixed.append(signal, replace(every, refs=tuple(every.refs[i] for i in index), values=every.values[index]))
    for signal, index in chosen.items():
        assert np.array_equal(mixed.read_sparse(signal, GRID, (None, KEYS[40])).dense().values, VALUES[index])


def test_a_flipped_byte_in_a_part_sets_the_day_aside(tmp_path: Path) -> None:
    damaged = filled(tmp_path.as_uri(), VALUES[:30, :288])
    path = next(tmp_path.rglob("usage/*/*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    assert damaged.read_sparse(CPU, GRID, (None, KEYS[9])).refs == ()
    assert [hole.signal for hole in damaged.holes()] == [CPU]


def test_a_lost_connection_is_no_corrupt_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path.as_uri(), VALUES[:30, :288])

    class Cut:
        """A file whose place has gone away."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def read(self, size: int = -1) -> bytes:
            raise OSError(f"connection reset before {size} bytes came")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    path = next(tmp_path.rglob("usage/*/*.parquet"))
    monkeypatch.setattr(store._folder, "open", lambda _: Opened(Cut(path.open("rb"))))
    with pytest.raises(StoreError, match="connection reset"):
        store.read_sparse(CPU, TimeGrid(START, 300, 288), (None, KEYS[9]))
    assert store.holes() == ()
