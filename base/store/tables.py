"""Result tables as Parquet: TEXT -> string, LIST -> list of floats, every other kind -> float64, missing = NaN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cotenant.base.store import parquet
from cotenant.base.table import Column, Kind, Schema, Table

GROUP_ROWS: Final = 4096
GROUP_NUMBERS: Final = 2**20
"""Most rows, and about the most numbers in lists, of a row group, which a reader of one row decodes as a whole."""

Part: TypeAlias = Table | bytes
"""Rows of a table, or its file."""


def encode(table: Table) -> bytes:
    """Return a table as the bytes of its Parquet file."""
    return parquet.encode(to_arrow(table), {"table": table.schema.name}, _texts_of(table.schema), _group_rows(table))


def write(schema: Schema, parts: Iterable[Part], sink: Any) -> None:
    """Write the rows of at least one table to one Parquet file, one table after another."""
    groups = (_groups_of(part, schema) for part in parts)
    parquet.write(groups, lambda: {"table": schema.name}, _texts_of(schema), sink)


def rows_of(part: Part, schema: Schema) -> Table:
    """Return a part as a Table; the part is a Table already, or the bytes of a table's file."""
    return part if isinstance(part, Table) else decode(part, schema)


def _groups_of(part: Part, schema: Schema) -> tuple[pa.Table, int]:
    """Return a part's columns as they are stored, and the number of rows in a row group of the file.

    The columns of a part that is a file already are copied unchanged: its cells never become Python objects.
    """
    if isinstance(part, Table):
        return to_arrow(part), _group_rows(part)
    file = parquet.open_parquet(pa.BufferReader(part))
    group_rows = max(1, file.metadata.row_group(0).num_rows) if file.num_row_groups else GROUP_ROWS
    stored, stamp = parquet.decode(part)
    _require_name(stamp, schema)
    return stored, group_rows


def to_arrow(table: Table) -> pa.Table:
    """Return the table as an Arrow table, with the column types in which it is stored."""
    arrays = [_to_arrow(column, table.columns[column.name]) for column in table.schema.columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.schema.columns])


def of_arrow(stored: pa.Table, schema: Schema) -> Table:
    """Return the Table of a query's Arrow result, in which missing numbers are null."""
    cells = {c.name: stored[c.name].fill_null(np.nan) if c.kind.numeric else stored[c.name] for c in schema.columns}
    return Table(schema, {c.name: _cells(c, cells[c.name]) for c in schema.columns})


def _texts_of(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns if column.kind is Kind.TEXT]


def _group_rows(table: Table) -> int:
    """Return the rows of a row group: fewer if lists are long, judged by the first row."""
    lists = [table.columns[c.name] for c in table.schema.columns if c.kind is Kind.LIST]
    numbers = sum(len(cells[0]) for cells in lists) if len(table) else 0
    return min(GROUP_ROWS, max(1, GROUP_NUMBERS // max(numbers, 1)))


def decode(content: bytes, schema: Schema, where: Mapping[str, str] | None = None) -> Table:
    """Decode a table; a column that the file lacks is empty, one that the schema lacks is not decoded.

    `where` keeps the rows whose text columns equal these texts.
    """
    names = [c.name for c in schema.columns]
    columns: dict[str, npt.NDArray[Any]] = {}
    # A whole table comes column by column, so that no second copy of all of it exists.
    batches = [names] if where else [[name] for name in names]
    rows = 0
    for batch in batches:
        stored, stamp = parquet.decode(content, batch, where)
        _require_name(stamp, schema)
        stored_cells = ((schema.column(name), stored[name]) for name in stored.column_names)
        columns |= {column.name: _cells(column, _require_column_type(column, cells)) for column, cells in stored_cells}
        rows = len(stored)
        del stored
    pa.default_memory_pool().release_unused()  # else a long-lived reader keeps the decoder's scratch
    return Table(schema, {c.name: columns[c.name] if c.name in columns else _empty(c, rows) for c in schema.columns})


def check(content: bytes, schema: Schema) -> tuple[tuple[str, ...], int]:
    """Read and verify every page of a file; return the schema's columns that it has, and its number of rows."""
    file = parquet.open_parquet(pa.BufferReader(content))
    _require_name(parquet.stamp_of(file), schema)
    names = tuple(c.name for c in schema.columns if c.name in file.schema_arrow.names)
    for number in range(file.num_row_groups):
        stored = file.read_row_group(number, columns=list(names), use_threads=False)
        for name in names:
            _require_column_type(schema.column(name), stored[name])
    pa.default_memory_pool().release_unused()
    return names, file.metadata.num_rows


def _require_name(stamp: Mapping[str, str], schema: Schema) -> None:
    if stamp.get("table") != schema.name:
        raise ValueError(f"the file contains table {stamp.get('table')!r}, not {schema.name!r}")


def _arrow_type(column: Column) -> pa.DataType:
    if column.kind is Kind.TEXT:
        return pa.string()
    return pa.list_(pa.float64()) if column.kind is Kind.LIST else pa.float64()


def _to_arrow(column: Column, cells: npt.NDArray[Any]) -> pa.Array:
    if column.kind is Kind.TEXT:
        return pa.array([str(cell) for cell in cells], _arrow_type(column))
    if column.kind is Kind.LIST:
        # One list per row, without an object for each value
        ends = np.cumsum([0, *(len(cell) for cell in cells)])
        values = np.concatenate([np.zeros(0), *cells])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values))
    return pa.array(np.asarray(cells, dtype=np.float64))


def _cells(column: Column, stored: pa.ChunkedArray) -> npt.NDArray[Any]:
    if column.kind.numeric:
        numbers: npt.NDArray[Any] = stored.to_numpy().copy()
        return numbers
    if column.kind is Kind.TEXT:
        # One object per distinct text, shared by all its cells
        encoded = stored.dictionary_encode().unify_dictionaries()
        if not len(encoded):
            return _objects([])
        distinct: npt.NDArray[Any] = encoded.chunk(0).dictionary.to_numpy(zero_copy_only=False)
        return distinct[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]
    return _objects([cell for chunk in stored.chunks for cell in _lists(chunk)])


def _require_column_type(column: Column, stored: pa.ChunkedArray) -> pa.ChunkedArray:
    if stored.type != _arrow_type(column) or stored.null_count:
        raise ValueError(f"column {column.name} is {stored.type}, not {_arrow_type(column)}")
    return stored


def _lists(stored: pa.ListArray) -> list[npt.NDArray[np.float64]]:
    """Return one array per row, all of them views of the chunk's buffer, without an object per value."""
    values = stored.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(stored.value_lengths().to_numpy())
    return np.split(values, ends[:-1]) if len(ends) else []


def _empty(column: Column, size: int) -> npt.NDArray[Any]:
    if column.kind.numeric:
        return np.full(size, np.nan)
    return _objects(["" if column.kind is Kind.TEXT else ()] * size)


def _objects(cells: list[Any]) -> npt.NDArray[Any]:
    """Return an object array of one cell per row, even if the cells are sequences."""
    array = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        array[i] = cell
    return array
