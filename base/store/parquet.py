"""Parquet files with cotenant's stamp: the part that days.py and tables.py share.

The metadata of every file have `cotenant.schema` (a number that grows when the layout changes) and the file's identity.
Page checksums are written and verified, so that a flipped bit is detected. No pandas, no pyarrow.dataset: a scan's
memory is budgeted.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotenant.base.light_imports import without_pandas
from cotenant.base.store.documents import SCHEMA_VERSION, check

_VERSION_KEY: Final = b"cotenant.schema"
_SCHEMA_KEY: Final = b"ARROW:schema"
"""Where Arrow keeps a file's schema, to which it adds the stamp when it reads: the types that Parquet has not."""

File: TypeAlias = Any  # pq.ParquetFile, which has no types
"""A Parquet file of which parts are read (`open_parquet`, `stamp_of`, `group`)."""

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, MemoryError)
"""What pyarrow raises on bytes in memory that are not Parquet; no real I/O happens, so OSError is one of them too."""


def arrow_alone() -> None:
    """Keep Arrow from importing pandas at its first array, where pandas is installed.

    Converting to a DataFrame still works, because Arrow then tries the import again.
    """
    with without_pandas():
        pa.array([0])


def encode(
    table: pa.Table, stamp: Mapping[str, str], dictionary: Iterable[str] = (), group_rows: int | None = None
) -> bytes:
    """Return a table as Parquet bytes: zstd, byte-stream-split floats, page checksums, `stamp` in the metadata.

    `group_rows` is the number of rows in a row group, which a reader decodes as a whole even for a few rows.
    """
    sink = pa.BufferOutputStream()
    write([(table, group_rows)], lambda: stamp, dictionary, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write(
    parts: Iterable[tuple[pa.Table, int | None]],
    stamp: Callable[[], Mapping[str, str]],
    dictionary: Iterable[str],
    sink: Any,
) -> None:
    """Write at least one table, all with the same columns and each with its row group size, as one Parquet file.

    `stamp` is called after the last table was written, so that it can describe all of them.
    """
    columns, writer = list(dictionary), None
    try:
        for table, group_rows in parts:
            if writer is None:
                # Leaf paths of float columns and lists of floats, which compress better byte by byte.
                floats = []
                for field in table.schema:
                    nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
                    if pa.types.is_floating(field.type.value_type if nested else field.type):
                        floats.append(f"{field.name}.list.element" if nested else field.name)
                writer = pq.ParquetWriter(
                    sink,
                    table.schema,
                    compression="zstd",
                    compression_level=3,
                    use_dictionary=columns,
                    use_byte_stream_split=floats,
                    write_statistics=False,
                    write_page_checksum=True,
                    store_schema=False,
                )
            writer.write_table(table, row_group_size=group_rows)
        if writer is not None:
            metadata: dict[Any, Any] = {_VERSION_KEY: str(SCHEMA_VERSION)}
            metadata.update({f"cotenant.{k}": v for k, v in stamp().items()})
            schema = table.schema.with_metadata(metadata).serialize().to_pybytes()
            writer.add_key_value_metadata(metadata | {_SCHEMA_KEY: base64.b64encode(schema)})
    finally:
        if writer is not None:
            writer.close()


def decode(
    content: bytes, columns: Sequence[str] | None = None, where: Mapping[str, str] | None = None
) -> tuple[pa.Table, dict[str, str]]:
    """Return a file's table (all, or its `columns` and the rows with the texts of `where`), and its stamp (metadata).

    Raise NewerVersionError for the file of a later version, one of UNREADABLE if the bytes are not a Parquet file.
    """
    file = open_parquet(pa.BufferReader(content))
    stamp = stamp_of(file)
    present_columns = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
    if where:
        table = _rows(file, present_columns, where)
    elif file.num_row_groups < 2:
        table = file.read(columns=present_columns, use_threads=False)
    else:  # group by group: read at once, pyarrow keeps every group's scratch till the end
        numbers = range(file.num_row_groups)
        groups = (file.read_row_group(i, columns=present_columns, use_threads=False) for i in numbers)
        table = pa.concat_tables(groups)
    table.validate()
    return table, stamp


def open_parquet(handle: Any) -> File:
    """Open a seekable file to read parts of it; the checksums of pages are verified."""
    return pq.ParquetFile(handle, page_checksum_verification=True)


def stamp_of(file: File) -> dict[str, str]:
    """Return the `stamp` given to `encode`, and the layout's version; raise NewerVersionError if that is too new."""
    metadata = file.schema_arrow.metadata or {}
    check(int(metadata[_VERSION_KEY]))
    return {k.decode().removeprefix("cotenant."): v.decode() for k, v in metadata.items()}


def group(file: File, number: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Return one row group, with all columns or those named."""
    table = file.read_row_group(number, columns=None if columns is None else list(columns), use_threads=False)
    table.validate()
    return table


def _rows(file: pq.ParquetFile, columns: Sequence[str] | None, where: Mapping[str, str]) -> pa.Table:
    """Return the rows with these texts; their columns decide which row groups are decoded completely."""
    tables = [file.schema_arrow.empty_table().select(columns or file.schema_arrow.names)]
    for group in range(file.num_row_groups):
        mask = _matching_mask(file, group, where)
        if mask is not None:
            tables.append(file.read_row_group(group, columns=columns, use_threads=False).filter(mask))
    return pa.concat_tables([table.replace_schema_metadata() for table in tables])


def _matching_mask(file: pq.ParquetFile, group: int, where: Mapping[str, str]) -> pa.Array | None:
    """Return a mask of the group's rows that match all texts, reading few columns; None if no row matches."""
    mask: pa.Array | None = None
    for name, text in where.items():
        cells = file.read_row_group(group, columns=[name], use_threads=False)[name].combine_chunks()
        equal = pc.equal(cells, pa.scalar(text, cells.type))
        mask = equal if mask is None else pc.and_(mask, equal)
        if not pc.any(mask).as_py():
            return None
    return mask
