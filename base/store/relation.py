"""EDGE: result tables that DuckDB queries: rows under a condition, in an order, by pages; counts, sums.

The only module that uses DuckDB. A stored table stays Parquet on disk, of which a query reads the columns it names; a
table in memory is queried in the same way. Text that people type is a parameter, never a part of the SQL. Why DuckDB:
docs/decisions/0025.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cotenant.base.errors import StoreBusy, StoreError
from cotenant.base.process.files import open_private
from cotenant.base.store import tables
from cotenant.base.table import Column, Kind, Schema, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PREFIX: Final = "cotenant-tables-"
LOCK: Final = "lock"
_MAKING: Final = threading.Lock()


def scratch() -> Path:
    """Return a temporary folder that lasts as long as this process; raise OSError if it cannot be created."""
    with _MAKING:  # two threads would make two, of which the cache drops one with the files in it
        return Path(_folder().name)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of ended processes; those of running processes and other users remain."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if folder.lstat().st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody uses it, or has just removed it
            continue
        finally:
            os.close(handle)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    # Locked for as long as the process lives, before the file has the name by which others try it.
    fresh = Path(folder.name) / f"{LOCK}.new"
    fcntl.flock(open_private(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), fcntl.LOCK_EX)
    fresh.rename(fresh.with_name(LOCK))
    return folder


Index = npt.NDArray[np.int64]
PLACE: Final = "_place"
"""Column of a row's number in its table: the order of rows that compare equal."""
MEMORY: Final = "160MB"
"""Memory of all queries together; a query that needs more uses temporary space on disk."""
SPILLED: Final = "1GB"
"""Most disk space of a query: without a bound the engine takes all that is free."""
THREADS: Final = 4
QUESTION_SECONDS: Final = 60.0
"""Longest time of a query; then it is interrupted, so that one filter does not block the engine for everybody."""
LISTED: Final = 2_000
"""Rows that are named one by one; more are joined."""
BATCH_ROWS: Final = 8_192
REMEMBERED: Final = 64
"""Rows of sums that a relation remembers."""
FEW: Final = 100
"""Parameters of a condition whose sums are remembered: a selection of a thousand names comes but once."""
ALL_ROWS: Final = slice(None)
_NUMBERS = itertools.count()
_ONE_AT_A_TIME: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition in SQL with a "?" for each parameter."""

    sql: str = "true"
    parameters: tuple[Any, ...] = ()

    def __and__(self, other: RowCondition) -> RowCondition:
        return RowCondition(f"({self.sql}) AND ({other.sql})", self.parameters + other.parameters)

    def __or__(self, other: RowCondition) -> RowCondition:
        return RowCondition(f"({self.sql}) OR ({other.sql})", self.parameters + other.parameters)

    def __invert__(self) -> RowCondition:
        return RowCondition(f"NOT ({self.sql})", self.parameters)


EVERY_ROW: Final = RowCondition()


@dataclass(frozen=True, eq=False)
class _LocalFile:
    """A temporary copy of a table's file, deleted together with the last relation that uses it."""

    path: Path


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Rows of one schema to query; immutable and thread-safe. Conditions and sums see a missing number as NULL."""

    schema: Schema
    _sql: str = field(repr=False)
    _parameters: tuple[Any, ...] = field(repr=False)
    _size: int
    _bound: Mapping[str, pa.Table] = field(default_factory=dict, repr=False)  # tables in memory that the SQL names
    _file: _LocalFile | None = field(default=None, repr=False)
    _known: dict[Any, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    """Query -> its sums, kept because rows never change and pages repeat the same queries."""

    @classmethod
    def of(cls, table: Table) -> Relation:
        """Return a relation of a table in memory."""
        name, size = f"t{next(_NUMBERS)}", len(table)
        return cls(
            table.schema,
            _select_statement(table.schema, None, name, PLACE),
            (),
            size,
            {name: tables.to_arrow(table).append_column(PLACE, pa.array(np.arange(size)))},
        )

    @classmethod
    def stored(cls, content: bytes, schema: Schema) -> Relation:
        """Return a relation of a copy of a table's file, after verifying all of it; StoreError if the disk is full."""
        names, size = tables.check(content, schema)
        # The copy of a file; not an OSError, by which the store would take the file itself for a damaged one
        try:
            copy = _LocalFile(scratch() / f"{next(_NUMBERS)}.parquet")
            weakref.finalize(copy, copy.path.unlink, missing_ok=True)
            copy.path.write_bytes(content)
        except OSError as error:
            raise StoreError(
                f"{len(content):,} bytes of a result table cannot be copied to the temporary folder: {error}",
                fix="Free space in the temporary folder, or set TMPDIR to a folder with more space.",
            ) from error

        sql = _select_statement(schema, names, "read_parquet(?, file_row_number = true)", f"file_row_number AS {PLACE}")
        return cls(schema, sql, (str(copy.path),), size, {}, copy)

    def __len__(self) -> int:
        return self._size

    # ---- questions

    def count(self, where: RowCondition = EVERY_ROW) -> int:
        """Return the number of rows that match `where`."""
        if where is EVERY_ROW:
            return self._size
        return int(self.sums(["count(*)"], where)[0])

    def sums(self, expressions: Sequence[str], where: RowCondition = EVERY_ROW) -> tuple[Any, ...]:
        """Return the values of SQL aggregate expressions over the matching rows; None if no row has a value."""
        question = (*expressions, where)
        sums = self._known.get(question)
        if sums is None:
            with self._answer(", ".join(expressions), where) as answer:
                (row,) = answer.fetchall()
            sums = tuple(row)
            if len(where.parameters) <= FEW:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[question] = sums
        return sums

    def groups(
        self, sets: Sequence[tuple[str, ...]], where: RowCondition = EVERY_ROW
    ) -> list[Counter[tuple[str, ...]]]:
        """Count the matching rows by the texts of columns: one counter for each set of columns, all in one query."""
        if not sets:
            return []
        names = list(dict.fromkeys(name for column_set in sets for name in column_set))
        listed = ", ".join(map(quote_identifier, names))
        by = ", ".join(f"({', '.join(map(quote_identifier, column_set))})" for column_set in sets)
        with self._answer(f"grouping({listed}), count(*), {listed}", where, f"GROUP BY GROUPING SETS ({by})") as answer:
            rows = answer.fetchall()
        # DuckDB's GROUPING has a bit for each column, the first the highest, that is set where it is not grouped by.
        marks = [
            sum(1 << len(names) - 1 - index for index, n in enumerate(names) if n not in column_set)
            for column_set in sets
        ]
        places = [[2 + names.index(name) for name in column_set] for column_set in sets]
        counters: list[Counter[tuple[str, ...]]] = [Counter() for _ in sets]
        for counter, mark, columns in zip(counters, marks, places, strict=True):
            counter.update({tuple(row[at] for at in columns): row[1] for row in rows if row[0] == mark})
        return counters

    def texts(self, column: str) -> tuple[str, ...]:
        """Return the distinct texts of a column, sorted; () if there is no such column."""
        if all(c.name != column for c in self.schema.columns):
            return ()
        return tuple(sorted(text for (text,) in self.groups([(column,)])[0]))

    def numbers(self, where: RowCondition = EVERY_ROW, order: Sequence[str] = (), window: slice = ALL_ROWS) -> Index:
        """Return the row numbers of a window of the ordered, matching rows; equal rows keep the table's order."""
        with self._answer(PLACE, where, _order_clause(order, window)) as answer:
            places: Index = np.asarray(answer.fetchnumpy()[PLACE], dtype=np.int64)
        return places

    def take(self, numbers: Index, columns: Sequence[str] = ()) -> Table:
        """Return the rows with these row numbers, in this order; all columns if `columns` is empty."""
        if len(numbers) <= LISTED:
            of_these = ", ".join(map(str, sorted(set(numbers.tolist())))) or "NULL"
            source = self
        else:
            name = f"n{next(_NUMBERS)}"
            source = self._derive(self.schema, self._sql, (), {name: _arrow([PLACE], [pa.array(np.unique(numbers))])})
            of_these = f"SELECT {PLACE} FROM {name}"
        table, places = source._read(columns, RowCondition(f"{PLACE} IN ({of_these})"))
        return table.take(np.searchsorted(places, numbers))

    def read(self, *columns: str, where: RowCondition = EVERY_ROW) -> Table:
        """Return the matching rows in the table's order; all columns if none is named."""
        return self._read(columns, where)[0]

    def batches(
        self, where: RowCondition, order: Sequence[str] = (), window: slice = ALL_ROWS, columns: Sequence[str] = ()
    ) -> Iterator[Table]:
        """Yield a window of the ordered, matching rows in tables of some thousand rows."""
        schema = select_columns(self.schema, columns)
        listed = ", ".join(quote_identifier(c.name) for c in schema.columns)
        with self._answer(listed, where, _order_clause(order, window), limited=False) as answer:
            for batch in answer.to_arrow_reader(BATCH_ROWS):
                yield tables.of_arrow(pa.Table.from_batches([batch]), schema)

    def located(self, columns: Sequence[str], keys: Sequence[Sequence[str]]) -> tuple[Index, Index]:
        """Return (index of the key, row number) of each row whose `columns` equal the texts of one of the keys."""
        name = f"k{next(_NUMBERS)}"
        texts = [pa.array([key[at] for key in keys], pa.string()) for at in range(len(columns))]
        bound = _arrow(
            [*(f"k{at}" for at in range(len(columns))), "_key"], [*texts, pa.array(range(len(keys)), pa.int64())]
        )
        equal = " AND ".join(f"r.{quote_identifier(column)} = {name}.k{at}" for at, column in enumerate(columns))
        sql = f"SELECT r.{PLACE}, {name}._key FROM ({self._sql}) r JOIN {name} ON {equal}"
        with self._derive(self.schema, sql, (), {name: bound})._answer(
            f"_key, {PLACE}", end=_order_clause(["_key"])
        ) as answer:
            columns_read = answer.fetchnumpy()
        return np.asarray(columns_read["_key"], np.int64), np.asarray(columns_read[PLACE], np.int64)

    # ---- other relations of it

    def restrict(self, where: RowCondition) -> Relation:
        """Return a relation of only the matching rows, which keep their numbers."""
        sql, parameters = f"SELECT * FROM ({self._sql}) WHERE {where.sql}", where.parameters
        return self._derive(self.schema, sql, parameters, {}, self.count(where))

    def with_cells(self, schema: Schema, numbers: Index, cells: Mapping[str, Sequence[str | float | None]]) -> Relation:
        """Return a relation with these cells in the given rows; None keeps the old cell, NaN is a missing number.

        `schema` includes the new columns, which are empty in all other rows.
        """
        old, name = {c.name for c in self.schema.columns}, f"c{next(_NUMBERS)}"
        arrays = [pa.array(cells[c.name], _type(c)) for c in schema.columns if c.name in cells]
        bound = _arrow([*(c.name for c in schema.columns if c.name in cells), PLACE], [*arrays, pa.array(numbers)])
        listed = [_overlaid(c, c.name in cells, c.name in old) for c in schema.columns]
        joined = f"({self._sql}) r LEFT JOIN {name} c ON c.{PLACE} = r.{PLACE}"
        return self._derive(schema, f"SELECT {', '.join(listed)}, r.{PLACE} FROM {joined}", (), {name: bound})

    def _derive(
        self,
        schema: Schema,
        sql: str,
        parameters: tuple[Any, ...],
        bound: Mapping[str, pa.Table],
        size: int | None = None,
    ) -> Relation:
        """Return a relation by an SQL statement on this one, with further parameters and tables in memory."""
        size = self._size if size is None else size
        return Relation(schema, sql, self._parameters + parameters, size, {**self._bound, **bound}, self._file)

    # ---- the engine

    def _read(self, columns: Sequence[str], where: RowCondition) -> tuple[Table, Index]:
        schema = select_columns(self.schema, columns)
        listed = ", ".join([*(quote_identifier(c.name) for c in schema.columns), PLACE])
        with self._answer(listed, where, _order_clause()) as answer:
            rows = answer.to_arrow_table()
        return tables.of_arrow(rows, schema), np.asarray(rows[PLACE].to_numpy(), np.int64)

    @contextmanager
    def _answer(
        self, listed: str, where: RowCondition = EVERY_ROW, end: str = "", *, limited: bool = True
    ) -> Iterator[Any]:
        """Yield the engine's result; raise StoreError if the table is unreadable or the query exceeds QUESTION_SECONDS.

        Raise StoreBusy if the query needs more memory than all queries share. With `limited` false there is no time
        limit, for rows that are sent as fast as a client takes them.
        """
        import duckdb

        sql = f"SELECT {listed} FROM ({self._sql}) WHERE {where.sql} {end}"
        with _cursor() as cursor, _interrupted_after(cursor, QUESTION_SECONDS if limited else None):
            try:
                for name, table in self._bound.items():
                    cursor.register(name, table)
                yield cursor.sql(sql, params=[*self._parameters, *where.parameters])
            except duckdb.InterruptException as error:
                raise StoreError(
                    f"a query on table {self.schema.name} was stopped after {QUESTION_SECONDS:g} seconds",
                    fix="Filter by a namespace or a shorter time, or use fewer patterns at once.",
                ) from error
            except duckdb.OutOfMemoryException as error:
                raise StoreBusy(
                    f"a query on table {self.schema.name} needs more than the {MEMORY} of memory and {SPILLED} of "
                    f"disk that all queries share",
                    fix="Sort by fewer columns, request fewer columns, or filter by a namespace; then try again.",
                ) from error
            except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow's reader passes on those of late rows
                raise StoreError(
                    f"table {self.schema.name} cannot be read: {error}", fix="Try again, or run `cotenant scan`."
                ) from error


def quote_identifier(name: str) -> str:
    """Return a column's name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def select_columns(schema: Schema, columns: Sequence[str]) -> Schema:
    """Return the schema with only these columns, in this order; with all columns if `columns` is empty."""
    return Schema(schema.name, tuple(schema.column(n) for n in columns), schema.key) if columns else schema


def _order_clause(order: Sequence[str] = (), window: slice = ALL_ROWS) -> str:
    """Return ORDER BY and LIMIT; equal rows keep the table's order."""
    first = window.start or 0
    most = "" if window.stop is None else f" LIMIT {max(0, window.stop - first):d}"
    return f"ORDER BY {', '.join([*order, PLACE])}{most} OFFSET {first:d}"


def _select_statement(schema: Schema, stored_names: Sequence[str] | None, source: str, place: str) -> str:
    """Return the SQL that reads all columns of a schema from a source, with NaN as NULL, as conditions expect it.

    `stored_names` are the columns that the source has (None: all); every other column is read as empty cells. `place`
    is SQL that yields PLACE, the number of the row in the table.
    """
    listed = [
        _read_cell(c, quote_identifier(c.name))
        if stored_names is None or c.name in stored_names
        else f"{_EMPTY[_sort_of(c)]} AS {quote_identifier(c.name)}"
        for c in schema.columns
    ]
    return f"SELECT {', '.join([*listed, place])} FROM {source}"


_EMPTY: Final[Mapping[Kind, str]] = {Kind.TEXT: "''", Kind.LIST: "[]::DOUBLE[]", Kind.NUMBER: "NULL::DOUBLE"}


def _sort_of(column: Column) -> Kind:
    return Kind.NUMBER if column.kind.numeric else column.kind


def _read_cell(column: Column, cell: str) -> str:
    value = f"nullif({cell}, 'NaN'::DOUBLE)" if column.kind.numeric else cell
    return f"{value} AS {quote_identifier(column.name)}"


def _overlaid(column: Column, laid: bool, old: bool) -> str:
    name = quote_identifier(column.name)
    below = f"r.{name}" if old else _EMPTY[_sort_of(column)]
    if not laid:
        return f"{below} AS {name}"
    cell = f"nullif(c.{name}, 'NaN'::DOUBLE)" if column.kind.numeric else f"c.{name}"
    return f"CASE WHEN c.{name} IS NULL THEN {below} ELSE {cell} END AS {name}"


def _type(column: Column) -> pa.DataType:
    return pa.float64() if column.kind.numeric else pa.string()


def _arrow(names: Sequence[str], arrays: Sequence[pa.Array]) -> pa.Table:
    return pa.Table.from_arrays(list(arrays), names=list(names))


def _cursor() -> DuckDBPyConnection:
    """Return a connection for one query, in whatever thread."""
    with _ONE_AT_A_TIME:
        return _engine().cursor()


@contextmanager
def _interrupted_after(cursor: DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    """Interrupt the cursor's query after these seconds; never if None."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _engine() -> DuckDBPyConnection:
    """Return the process's only engine: it reads and writes below `scratch` only, and loads no extensions."""
    import duckdb

    config: dict[str, Any] = {
        "memory_limit": MEMORY,
        "threads": min(THREADS, os.cpu_count() or 1),
        "temp_directory": str(scratch() / "spill"),
        "max_temp_directory_size": SPILLED,
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
    }
    engine = duckdb.connect(":memory:", config=config)
    engine.execute("SET GLOBAL parquet_metadata_cache = true")
    engine.execute("SET GLOBAL allowed_directories = [$folder]", {"folder": f"{scratch()}/"})
    engine.execute("SET GLOBAL enable_external_access = false")
    engine.execute("SET lock_configuration = true")
    atexit.register(_engine.cache_clear)  # left to the interpreter's end, it complains of what is still there
    return engine
