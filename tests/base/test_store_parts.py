"""Days that grow by parts: the same as at once, at a cost of their size, whatever moment a writer is killed at."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.store import Store
from cotenant.base.store.dayfiles import MOST_PARTS
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid, Usage
from tests.support.store import CPU, MIDNIGHT, usage_of

DAY = TimeGrid(MIDNIGHT, 300, 288)
SHARD_SERIES = 20


def shard(number: int) -> Usage:
    """A day of some series that no other shard has; values that do not compress."""
    values = np.random.default_rng(number).random((SHARD_SERIES, DAY.size))
    return usage_of(CPU, MIDNIGHT, values.tolist(), [f"s{number:03d}-{k:03d}" for k in range(SHARD_SERIES)])


def files(folder: Path) -> list[Path]:
    return sorted((folder / "prod" / "usage" / CPU.value).glob("*.parquet"))


def written_bytes() -> int:
    """Bytes that this process has handed to write calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar:")).split()[1])


def test_a_day_of_many_answers_costs_a_small_multiple_of_its_size(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    shards = [shard(number) for number in range(24)]
    before = written_bytes()
    for usage in shards:
        store.append(CPU, usage)
    store.compact()
    written = written_bytes() - before
    (file,) = files(tmp_path)
    assert len(store.read(CPU, DAY).refs) == 24 * SHARD_SERIES
    assert written < 4 * file.stat().st_size


def test_a_few_parts_of_the_newest_day_may_stay_apart(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for start in (MIDNIGHT, MIDNIGHT + 86_400):
        for number in range(3):
            store.append(CPU, usage_of(CPU, start, [[1, 2, 3]], [f"pod-{number}"]))
    store.compact(most_parts_of_newest=2)
    # the older day is one file; the newest one is a file with the two parts that it may have
    assert len(files(tmp_path)) == 1 + 3
    store.append(CPU, usage_of(CPU, MIDNIGHT + 86_400, [[1, 2, 3]], ["pod-3"]))
    store.compact(most_parts_of_newest=2)
    assert len(files(tmp_path)) == 2


def test_parts_read_as_the_day_that_they_become(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    rows: list[list[list[float]]] = [[[1, 2, np.nan]], [[np.nan, 9, 3]], [[8]], [[7, np.nan, 6]]]
    for number, values in enumerate(rows):
        store.append(CPU, usage_of(CPU, MIDNIGHT, values, ["b" if number == 2 else "a"]))
    grid = TimeGrid(MIDNIGHT, 300, 3)
    expected = [[7, 9, 6], [8]]
    for _ in range(2):
        read = store.read(CPU, grid)
        assert [row[np.isfinite(row)].tolist() for row in read.values] == expected
        part = store.read_sparse(CPU, grid, (("shop", "b"), None)).dense()
        assert [(ref.pod, row[0]) for ref, row in zip(part.refs, part.values, strict=True)] == [("b", 8)]
        assert store.span(CPU) == (MIDNIGHT, MIDNIGHT + 900)
        assert [ref.pod for ref in store.read(CPU, DAY).refs] == ["a", "b"]
        store.compact()
    assert len(files(tmp_path)) == 1


def test_a_day_never_has_more_than_so_many_parts(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for number in range(MOST_PARTS + 5):
        store.append(CPU, usage_of(CPU, MIDNIGHT, [[float(number)]], ["a"]))
        assert len(files(tmp_path)) <= MOST_PARTS
    assert store.read(CPU, TimeGrid(MIDNIGHT, 300, 1)).values.tolist() == [[MOST_PARTS + 4]]


def test_a_compaction_killed_between_any_two_steps_loses_and_doubles_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for values in ([[1, 1, 1, 1]], [[2, 2, np.nan, np.nan]], [[np.nan, 3, 3, np.nan]]):
        store.append(CPU, usage_of(CPU, MIDNIGHT, values, ["a"]))
    day, *parts = files(tmp_path)
    copies = [Path(shutil.copy(part, tmp_path)) for part in parts]
    store.compact()
    assert files(tmp_path) == [day]
    grid = TimeGrid(MIDNIGHT, 300, 4)
    for survivors in ([0, 1], [1]):  # parts go oldest first
        for k in survivors:
            shutil.copy(copies[k], parts[k])
        assert store.read(CPU, grid).values.tolist() == [[2, 3, 3, 1]]
        store.append(CPU, usage_of(CPU, MIDNIGHT, [[np.nan, np.nan, np.nan, 1]], ["a"]))
        store.compact()
        assert store.read(CPU, grid).values.tolist() == [[2, 3, 3, 1]]
        assert files(tmp_path) == [day]


def peak_bytes(act: Callable[[], None]) -> int:
    tracemalloc.start()
    act()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_the_memory_of_an_append_and_of_a_compaction_is_not_that_of_the_whole_day(tmp_path: Path) -> None:
    compactions = []
    for series, slots in ((4_000, 4), (12_000, 4)):
        store, rng = Store((tmp_path / str(series)).as_uri(), "prod"), np.random.default_rng(1)
        values = rng.random((series, slots)).astype(np.float32)
        # Every slot lacks a tenth of the series, so that no two parts have the same.
        values[rng.random(values.shape) < 0.1] = np.nan
        for k in range(slots):
            usage = usage_of(
                CPU, MIDNIGHT + 300 * k, values[:, k : k + 1].tolist(), [f"s{i:05d}" for i in range(series)]
            )
            appended = peak_bytes(partial(store.append, CPU, usage))
        assert appended < series * DAY.size * 4
        compactions.append(peak_bytes(store.compact))
        read = store.read(CPU, TimeGrid(MIDNIGHT, 300, slots)).values
        assert np.array_equal(read, values[~np.isnan(values).all(axis=1)], equal_nan=True)
    # Of three times as many series, some more for the file itself.
    assert compactions[1] < 1.5 * compactions[0], compactions


def test_a_compaction_that_finds_a_corrupt_part_keeps_the_others_and_sets_it_aside(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for values in ([[1, np.nan, np.nan]], [[np.nan, 2, np.nan]], [[np.nan, np.nan, 3]]):
        store.append(CPU, usage_of(CPU, MIDNIGHT, values, ["a"]))
    day, bad, _ = files(tmp_path)
    content = bytearray(bad.read_bytes())
    content[len(content) // 3] ^= 1
    bad.write_bytes(content)
    store.compact()
    assert files(tmp_path) == [day]
    assert bad.with_name(f"{bad.name}.corrupt-1").read_bytes() == bytes(content)
    assert store.read(CPU, TimeGrid(MIDNIGHT, 300, 3)).values.tolist() == [[1, pytest.approx(np.nan, nan_ok=True), 3]]


_WRITER = """
import sys
from cotenant.base.store import Store
from tests.base.test_store_parts import CPU, shard
store = Store(sys.argv[1], "prod")
for number in range(int(sys.argv[2]), 1000):
    store.append(CPU, shard(number))
    print(number, flush=True)
    if number % 3 == 2:
        store.compact()
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_nothing_that_it_said_was_stored(tmp_path: Path) -> None:
    stored = -1
    for lines in (2, 3):
        command = [sys.executable, "-c", _WRITER, tmp_path.as_uri(), str(stored + 1)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                stored = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        store = Store(tmp_path.as_uri(), "prod")
        assert store.holes() == ()
        read = store.read(CPU, DAY)
        assert len(set(read.refs)) == len(read.refs)
        for number in range(stored + 1):
            usage = shard(number)
            np.testing.assert_array_equal(read.values[[read.row_of[ref] for ref in usage.refs]], usage.values)


def test_a_damaged_part_is_set_aside_as_a_hole_of_its_day_and_the_rest_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for pod in ("a", "b", "c"):
        store.append(CPU, usage_of(CPU, MIDNIGHT, [[1.0]], [pod]))
    files(tmp_path)[1].write_bytes(b"damaged")
    assert [ref.pod for ref in store.read(CPU, TimeGrid(MIDNIGHT, 300, 1)).refs] == ["a", "c"]
    store.compact()
    (hole,) = store.holes()
    assert (hole.signal, hole.start_seconds) == (CPU, MIDNIGHT)
    assert [ref.pod for ref in store.read(CPU, TimeGrid(MIDNIGHT, 300, 1)).refs] == ["a", "c"]


@pytest.mark.parametrize("days", [1, 2])
def test_old_days_go_with_their_parts(tmp_path: Path, days: int) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for day in range(3):
        for pod in ("a", "b"):
            store.append(CPU, usage_of(CPU, MIDNIGHT + day * DAY_SECONDS, [[1.0]], [pod]))
    assert store.keep(days) == 3 - days
    assert len(files(tmp_path)) == 2 * days
