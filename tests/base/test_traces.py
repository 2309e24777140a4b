"""Traces in the layout of long tables: real Parquet files in, matrices out, and words for what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.base.errors import NoData, StoreError, UsageError
from cotenant.base.store.traces import open_trace

MONDAY_MS = 1_700_438_400_000


def written(path: Path, rows: list[tuple[str, int, float]], **options: Any) -> str:
    """A file with the columns series_id, timestamp, cpu and limit (always 8)."""
    names, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "series_id": pa.array(names, pa.string()),
        "timestamp": _times(times, options.get("clock")),
        "cpu": pa.array(values, pa.float64()),
        "limit": pa.array([8] * len(names), pa.int16()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=options.get("group", 1000))
    return str(path)


def test_readings_come_to_their_slots_and_gaps_stay(tmp_path: Path) -> None:
    rows = [("b", 0, 1.0), ("a", 300, 5.0), ("b", 601, 3.0), ("a", 0, 4.0), ("a", 600, -1.0), ("b", 301, np.inf)]
    trace = open_trace(written(tmp_path / "t.parquet", rows))
    assert trace.names == ("a", "b")
    assert trace.columns == ("cpu", "limit")
    assert (trace.grid.start_seconds, trace.grid.step_seconds, trace.grid.size) == (MONDAY_MS // 1000, 300, 3)
    # Negative and infinite values are gaps.
    expected = [[4, 5, np.nan], [1, np.nan, 3]]
    assert trace.read(("a", "b"), "cpu") == pytest.approx(np.array(expected), nan_ok=True)
    assert trace.medians(("a", "b"), "limit").tolist() == [8, 8]


def test_finer_readings_are_averaged_and_coarser_ones_keep_their_step(tmp_path: Path) -> None:
    minutes = open_trace(written(tmp_path / "m.parquet", [("a", 60 * i, float(i)) for i in range(10)]))
    # Minutes 0-4 and 5-9: means 2 and 7.
    assert minutes.grid.step_seconds == 300
    assert minutes.read(("a",), "cpu").tolist() == [[2, 7]]
    hours = open_trace(written(tmp_path / "h.parquet", [("a", 3600 * i, float(i)) for i in range(5)]))
    assert hours.grid.step_seconds == 3600


def test_a_folder_with_timestamps_in_row_groups_reads_like_one_file(tmp_path: Path) -> None:
    rows = [(f"s{i}", 300 * k, float(10 * i + k)) for i in range(5) for k in range(6)]
    trace = open_trace(written(tmp_path / "whole.parquet", rows))
    folder = tmp_path / "parts"
    folder.mkdir()
    written(folder / "1.parquet", rows[:14], clock=pa.timestamp("ms", tz="UTC"), group=4)
    written(folder / "2.parquet", rows[14:], clock=pa.timestamp("us", tz="UTC"), group=4)
    parts = open_trace(str(folder))
    assert (parts.names, parts.grid) == (trace.names, trace.grid)
    for names in parts.shards(2):
        assert np.array_equal(parts.read(names, "cpu"), trace.read(names, "cpu"))
    assert [len(names) for names in parts.shards(2)] == [2, 2, 1]


def _times(seconds: Iterable[int], clock: pa.DataType | None) -> pa.Array:
    """Milliseconds as whole numbers, or as a Parquet timestamp."""
    clock_times = pa.array([MONDAY_MS + 1000 * t for t in seconds], pa.int64())
    return clock_times.cast(pa.timestamp("ms", tz="UTC")).cast(clock) if clock else clock_times


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.floats(0, 1e6, width=32)), min_size=1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_reading_counts_once_in_its_slot(tmp_path: Path, rows: list[tuple[str, int, float]]) -> None:
    moments = [(n, 300 * k + i % 300, v) for i, (n, k, v) in enumerate(rows)]
    trace = open_trace(written(tmp_path / "any.parquet", moments, group=3))
    values = trace.read(trace.names, "cpu")
    if trace.grid.step_seconds == 300:
        first = min(k for _, k, _ in rows)
        for row, name in enumerate(trace.names):
            for slot in {k for n, k, _ in rows if n == name}:
                own = [v for n, k, v in rows if (n, k) == (name, slot)]
                assert values[row, slot - first] == pytest.approx(np.mean(own), rel=1e-5, abs=1e-30)
    assert np.isfinite(values).sum() <= len(rows)


@pytest.mark.parametrize(
    ("unit", "per_second", "factor"),
    [("seconds", 1, "1000"), ("microseconds", 10**6, "0.001"), ("nanoseconds", 10**9, "1e-06")],
)
def test_times_in_another_unit_are_no_milliseconds(tmp_path: Path, unit: str, per_second: int, factor: str) -> None:
    # 20 days of five minutes: as milliseconds, seconds would span 29 minutes of January 1970
    times = [(MONDAY_MS // 1000 + 300 * i) * per_second for i in range(20 * 288)]
    table = pa.table({"series_id": ["a"] * len(times), "timestamp": times, "cpu": [1.0] * len(times)})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=f"timestamp {times[0]} is Unix {unit}, not milliseconds") as refused:
        open_trace(str(tmp_path / "t.parquet"))
    assert factor in refused.value.fix
    # a trace that counts from its own beginning is of no day
    pq.write_table(
        table.set_column(1, "timestamp", pa.array(range(0, 300_000 * len(times), 300_000))), tmp_path / "t.parquet"
    )
    assert open_trace(str(tmp_path / "t.parquet")).grid.size == len(times)


def test_the_hour_that_clocks_have_twice_is_not_averaged(tmp_path: Path) -> None:
    # Local times of one day: of the 288 + 12 readings, those of the hour from 02:00 on come twice.
    local = [300 * i for i in range(288)]
    rows = [("a", t, 1.0) for t in local] + [("a", t, 5.0) for t in local if 7200 <= t < 10800]
    twice = open_trace(written(tmp_path / "local.parquet", rows))
    with pytest.raises(UsageError, match=r"series a has two values at one time, .* 02:00 UTC"):
        twice.read(("a",), "cpu")
    same = open_trace(written(tmp_path / "same.parquet", [*rows[:288], *rows[:12]]))
    assert (same.read(("a",), "cpu") == 1).all()


def test_what_is_wrong_with_a_trace_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Parquet file at"):
        open_trace(str(tmp_path / "absent.parquet"))
    with pytest.raises(UsageError, match="no Parquet file at"):
        open_trace(str(tmp_path))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="not a Parquet file"):
        open_trace(str(tmp_path / "torn.parquet"))
    pq.write_table(pa.table({"time": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="no column series_id and no column timestamp"):
        open_trace(str(tmp_path / "other.parquet"))
    with pytest.raises(NoData, match="contains no rows"):
        open_trace(written(tmp_path / "empty.parquet", []))
    texts = pa.table({"series_id": ["a"], "timestamp": ["today"], "cpu": [1.0]})
    pq.write_table(texts, tmp_path / "texts.parquet")
    with pytest.raises(UsageError, match="timestamp is string, not milliseconds"):
        open_trace(str(tmp_path / "texts.parquet"))
    good = open_trace(written(tmp_path / "good.parquet", [("a", 0, 1.0)]))
    with pytest.raises(UsageError, match="no numeric column 'memory'") as refused:
        good.read(("a",), "memory")
    assert refused.value.fix == "Use one of cpu, limit."
