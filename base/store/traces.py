"""EDGE: usage traces in long Parquet tables, read as matrices, one shard at a time.

One row per series and time: `series_id` (text), `timestamp` (milliseconds, or a Parquet timestamp, UTC), and numeric
columns. Rows are in any order; samples in the same slot are averaged; values that are negative or not finite are gaps.
Only row groups with a shard's series are decoded for it, so a trace sorted by series is read about once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotenant.base.errors import NoData, StoreError, UsageError
from cotenant.base.text import agree, moment
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, FloatMatrix, TimeGrid

SERIES, TIME = "series_id", "timestamp"
SERIES_PER_SHARD: Final = 1000
STEPS: Final = (FIVE_MINUTES_SECONDS, 600, 900, 1800, HOUR_SECONDS)
"""Possible steps of a trace's grid, in seconds: the smallest that is not finer than its samples is used."""
OURS: Final = (946_684_800_000, 4_102_444_800_000)
"""Unix milliseconds of the years from 2000 to 2100."""
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, ImportError)

Texts = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group: the file, its number, and the first and last series name in it."""

    path: str
    number: int
    first: str
    last: str


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A usage trace: the names of its series in order, their common time grid, and its numeric columns."""

    url: str
    names: tuple[str, ...]
    grid: TimeGrid
    columns: tuple[str, ...]
    _groups: tuple[_Group, ...]

    def shards(self, size: int = SERIES_PER_SHARD) -> tuple[tuple[str, ...], ...]:
        """Return the series names in shards of this size."""
        return tuple(self.names[i : i + size] for i in range(0, len(self.names), size))

    def read(self, names: Sequence[str], column: str) -> FloatMatrix:
        """Return means (names, slots) for sorted `names`, NaN in gaps; raise UsageError for two values at one time."""
        total, count = np.zeros((2, len(names), self.grid.size))
        ordered = np.array(names)
        for part in self._parts(names, column):
            row = np.searchsorted(ordered, part[0])
            slot = part[1] // 1000 // self.grid.step_seconds - self.grid.start_seconds // self.grid.step_seconds
            good = np.isfinite(part[2]) & (part[2] >= 0)
            # A series may not have two readings of one moment: local times have an hour twice each autumn.
            series, times, values = (cells[good] for cells in part)
            order = np.lexsort((values, times, series))
            again = (np.diff(times[order]) == 0) & (series[order][1:] == series[order][:-1])
            again &= np.diff(values[order]) != 0
            if again.any():
                first = order[int(again.argmax())]
                raise UsageError(
                    f"{self.url}: series {series[first]} has two values at one time, {moment(times[first] / 1000)}",
                    fix="Store UTC: local times repeat an hour when clocks are set back. Otherwise keep one of the two "
                    "values.",
                )
            np.add.at(total, (row[good], slot[good]), part[2][good])
            np.add.at(count, (row[good], slot[good]), 1)
        mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return mean.astype(np.float32)

    def medians(self, names: Sequence[str], column: str) -> FloatMatrix:
        """Return the median of a column's values > 0, such as limits, for each name; NaN for a series without any."""
        per_series = np.full(len(names), np.nan, dtype=np.float32)
        parts = list(self._parts(names, column))
        rows = np.concatenate([np.searchsorted(np.array(names), p[0]) for p in parts]) if parts else np.empty(0, int)
        values = np.concatenate([p[2] for p in parts]) if parts else np.empty(0)
        for row in range(len(names)):
            own = values[(rows == row) & (values > 0)]
            per_series[row] = np.median(own) if own.size else np.nan
        return per_series

    def _parts(self, names: Sequence[str], column: str) -> Iterator[tuple[Texts, Texts, Texts]]:
        """Yield (name, milliseconds, value) of the rows of some series, row group by row group."""
        if column not in self.columns:
            raise UsageError(
                f"{self.url} has no numeric column {column!r}", fix=f"Use one of {', '.join(self.columns)}."
            )
        series_names = pa.array(names)
        for group in self._groups:
            if group.last >= names[0] and group.first <= names[-1]:
                table = _read(group.path, group.number, [SERIES, TIME, column])
                rows = table.filter(pc.is_in(table[SERIES].cast(pa.string()), value_set=series_names))
                if len(rows):
                    values = rows[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
                    yield _texts(rows), _milliseconds(rows, group.path), values


def open_trace(url: str) -> Trace:
    """Open a Parquet file or a folder of them; raise UsageError, NoData or StoreError if it is not a trace."""
    names: set[str] = set()
    groups, columns = [], None
    low, high, steps = None, None, []
    for path in _files(url):
        schema = _schema(path)
        numeric_columns = tuple(f.name for f in schema if f.name not in (SERIES, TIME) and _is_number(f.type))
        columns = numeric_columns if columns is None else tuple(c for c in columns if c in numeric_columns)
        with _open(path) as file:
            count: int = file.num_row_groups
        for number in range(count):
            table = _read(path, number, [SERIES, TIME])
            if not len(table):
                continue
            texts, times = _texts(table), _milliseconds(table, path)
            own = np.unique(texts)
            names.update(own.tolist())
            groups.append(_Group(path, number, str(own[0]), str(own[-1])))
            low = int(times.min()) if low is None else min(low, int(times.min()))
            high = int(times.max()) if high is None else max(high, int(times.max()))
            # Median seconds between neighbouring readings of one series; NaN where every series has one
            order = np.lexsort((times, texts))
            gaps_milliseconds = np.diff(times[order])[texts[order][1:] == texts[order][:-1]]
            gaps_milliseconds = gaps_milliseconds[gaps_milliseconds > 0]
            steps.append(float(np.median(gaps_milliseconds)) / 1000 if gaps_milliseconds.size else float("nan"))
    if low is None or high is None:
        raise NoData(f"{url} contains no rows")
    # UsageError for times that are of our days in another unit alone; those from near zero on count from a start
    for unit, scale in (("seconds", 1000.0), ("microseconds", 1e-3), ("nanoseconds", 1e-6)):
        if OURS[0] <= low * scale and high * scale < OURS[1]:
            raise UsageError(
                f"{url}: {TIME} {low} is Unix {unit}, not milliseconds",
                fix=f"Store whole milliseconds in UTC: multiply {TIME} by {scale:g}.",
            )
    usual = [s for s in steps if np.isfinite(s)]
    step = next((s for s in STEPS if s >= 0.9 * (np.median(usual) if usual else STEPS[0])), HOUR_SECONDS)
    start = low // 1000 // step * step
    grid = TimeGrid(start, step, (high // 1000 - start) // step + 1)
    return Trace(url, tuple(sorted(names)), grid, columns or (), tuple(groups))


def _files(url: str) -> list[str]:
    """Return the URLs of the Parquet files behind a URL; those of a folder are sorted by name."""
    try:
        system, path = fsspec.core.url_to_fs(url)
        if system.isdir(path):
            paths = sorted(p for p in system.find(path) if p.endswith(".parquet"))
        else:
            paths = [path] if system.exists(path) else []
    except _UNREADABLE as error:
        raise UsageError(f"{url}: {error}") from error
    if not paths:
        raise UsageError(f"there is no Parquet file at {url}", fix="Name a file, or a folder that contains *.parquet.")
    return [system.unstrip_protocol(p) for p in paths]


def _open(path: str) -> pq.ParquetFile:
    try:
        system, inner = fsspec.core.url_to_fs(path)
        return pq.ParquetFile(system.open(inner, "rb"))
    except _UNREADABLE as error:
        raise StoreError(f"{path} is not a Parquet file that can be read: {error}") from error


def _schema(path: str) -> pa.Schema:
    with _open(path) as file:
        schema = file.schema_arrow
    missing = [name for name in (SERIES, TIME) if name not in schema.names]
    if missing:
        raise UsageError(
            f"{path} has no column {' and no column '.join(missing)}",
            fix="A trace has the columns series_id, timestamp (ms, UTC) and numeric columns.",
        )
    return schema


def _read(path: str, group: int, columns: list[str]) -> pa.Table:
    with _open(path) as file:
        try:
            return file.read_row_group(group, columns=columns, use_threads=False)
        except _UNREADABLE as error:
            raise StoreError(f"{path}: row group {group} cannot be read: {error}") from error


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _texts(table: pa.Table) -> Texts:
    texts: Texts = table[SERIES].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str)
    return texts


def _milliseconds(table: pa.Table, path: str) -> Texts:
    """Return the Unix milliseconds of each row."""
    column = table[TIME]
    if column.null_count:
        raise StoreError(f"{path}: {agree(column.null_count, 'row has', 'rows have')} no {TIME}")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise UsageError(f"{path}: {TIME} is {column.type}, not milliseconds", fix="Store whole milliseconds, UTC.")
    times: Texts = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return times
