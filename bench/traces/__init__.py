"""EDGE: real traces as matrices on a regular grid, for benchmarks only; the product ships none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, TimeGrid


def trace_matrix(folder: Path, table: str, column: str) -> tuple[npt.NDArray[np.float32], TimeGrid]:
    """One row per series of `table`, ordered by id; the last reading of each 5-minute slot, NaN where there is none."""
    stored = pq.read_table(folder / f"{table}.parquet", columns=["series_id", "timestamp", column])
    names, row = np.unique(stored["series_id"].to_numpy(zero_copy_only=False), return_inverse=True)
    seconds = stored["timestamp"].to_numpy().astype("datetime64[s]").astype(np.int64)
    slot = seconds // FIVE_MINUTES_SECONDS
    grid = TimeGrid(int(slot.min()) * FIVE_MINUTES_SECONDS, FIVE_MINUTES_SECONDS, int(slot.max() - slot.min()) + 1)
    values = np.full((len(names), grid.size), np.nan, dtype=np.float32)
    values[row, slot - slot.min()] = stored[column].to_numpy(zero_copy_only=False)
    return values, grid


def share_matrix(folder: Path, table: str, column: str, by: str) -> tuple[npt.NDArray[np.float32], TimeGrid]:
    """`column` in percent of another column, as `trace_matrix` lays out; NaN where that is not above 0."""
    values, grid = trace_matrix(folder, table, column)
    total, _ = trace_matrix(folder, table, by)
    share = np.divide(100 * values, total, out=np.full_like(values, np.nan), where=total > 0)
    return share, grid
