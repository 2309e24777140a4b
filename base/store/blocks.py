"""Blocks: named arrays that share their first axis, as Parquet, one row per series. Pure: bytes in, bytes out.

They store the output of work that is done shard by shard: results, and the state from which the next hour continues.
Numbers keep their type to the bit; the shape of a row is in the metadata. Texts are string columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cotenant.base.store import parquet

Block = Mapping[str, npt.NDArray[Any]]


def encode(block: Block, stamp: Mapping[str, str]) -> bytes:
    """Return arrays (a row per series; numbers or texts) as Parquet bytes, with `stamp` as the file's metadata."""
    shapes = {name: list(array.shape[1:]) for name, array in block.items()}
    arrays = [_to_arrow(array) for array in block.values()]
    texts = [name for name, array in block.items() if array.dtype == object]
    table = pa.table(arrays, names=list(block))
    return parquet.encode(table, {**stamp, "shapes": json.dumps(shapes)}, texts)


def decode(content: bytes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return the arrays and the `stamp` that `encode` was given; raise one of `parquet.UNREADABLE` for other bytes."""
    table, stamp = parquet.decode(content)
    shapes = json.loads(stamp.pop("shapes"))
    return {name: _from_arrow(table[name], shapes[name]) for name in table.column_names}, stamp


def _to_arrow(array: npt.NDArray[Any]) -> pa.Array:
    if array.dtype == object:
        return pa.array([str(cell) for cell in array], pa.string())
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, int(np.prod(array.shape[1:])))


def _from_arrow(column: pa.ChunkedArray, shape: list[int]) -> npt.NDArray[Any]:
    if column.null_count:
        raise ValueError("a cell of the column is missing, which no block permits")
    cells = column.combine_chunks()
    if pa.types.is_string(column.type):
        texts: npt.NDArray[Any] = np.array([*cells.to_pylist(), None], dtype=object)[:-1]
        return texts
    numbers = cells.flatten() if shape else cells
    array: npt.NDArray[Any] = numbers.to_numpy(zero_copy_only=False).reshape(len(column), *shape)
    return array
