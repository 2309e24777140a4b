"""Result tables as Parquet: TEXT -> string, LIST -> list of floats, every other kind -> float64, missing = NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cotenant.edges.store import parquet
from cotenant.model.table import Column, Kind, Schema, Table

GROUP_ROWS: Final = 4096
"""Rows that are decoded together: what a reader of one row pays."""


def encode(table: Table) -> bytes:
    """The table's file."""
    arrays = [_to_arrow(column, table.columns[column.name]) for column in table.schema.columns]
    names = [column.name for column in table.schema.columns]
    texts = [column.name for column in table.schema.columns if column.kind is Kind.TEXT]
    return parquet.encode(pa.table(arrays, names=names), {"table": table.schema.name}, texts, GROUP_ROWS)


def decode(content: bytes, schema: Schema, where: Mapping[str, str] | None = None) -> Table:
    """Inverse of `encode`; a column that the file does not have is empty, one that the schema dropped is not decoded.

    `where` keeps the rows whose text columns hold these texts.
    """
    stored, stamp = parquet.decode(content, [c.name for c in schema.columns], where)
    if stamp.get("table") != schema.name:
        raise ValueError(f"the file says it is table {stamp.get('table')!r}")
    present = set(stored.column_names)
    columns = {
        c.name: _from_arrow(c, stored[c.name]) if c.name in present else _empty(c, len(stored)) for c in schema.columns
    }
    del stored
    pa.default_memory_pool().release_unused()  # else a long-lived reader keeps the decoder's scratch
    return Table(schema, columns)


def _arrow_type(column: Column) -> pa.DataType:
    if column.kind is Kind.TEXT:
        return pa.string()
    return pa.list_(pa.float64()) if column.kind is Kind.LIST else pa.float64()


def _to_arrow(column: Column, cells: npt.NDArray[Any]) -> pa.Array:
    if column.kind is Kind.TEXT:
        return pa.array([str(cell) for cell in cells], _arrow_type(column))
    if column.kind is Kind.LIST:
        return pa.array([list(cell) for cell in cells], _arrow_type(column))
    return pa.array(np.asarray(cells, dtype=np.float64))


def _from_arrow(column: Column, stored: pa.ChunkedArray) -> npt.NDArray[Any]:
    if stored.type != _arrow_type(column) or stored.null_count:
        raise ValueError(f"column {column.name} is {stored.type}, not {_arrow_type(column)}")
    if column.kind.numeric:
        numbers: npt.NDArray[Any] = stored.to_numpy().copy()
        return numbers
    whole = stored.combine_chunks()
    return _texts(whole) if column.kind is Kind.TEXT else _objects(_lists(whole))


def _texts(stored: pa.StringArray) -> npt.NDArray[Any]:
    """One object per distinct text, shared by all its cells."""
    encoded = stored.dictionary_encode()
    return _objects(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]


def _lists(stored: pa.ListArray) -> list[npt.NDArray[np.float64]]:
    """One array a row, all of them views of one buffer: no object per value."""
    values = stored.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(stored.value_lengths().to_numpy())
    return np.split(values, ends[:-1]) if len(ends) else []


def _empty(column: Column, size: int) -> npt.NDArray[Any]:
    if column.kind.numeric:
        return np.full(size, np.nan)
    return _objects(["" if column.kind is Kind.TEXT else ()] * size)


def _objects(cells: list[Any]) -> npt.NDArray[Any]:
    """Object array of one cell per row, also when the cells are sequences."""
    array = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        array[i] = cell
    return array
