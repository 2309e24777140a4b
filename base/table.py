"""Result tables: one declaration of columns for the CLI, the JSON and CSV outputs and the dashboard.

A `Schema` lists the columns with title, unit and kind; a `Table` has one numpy array for each of them. The pipeline
makes the tables, the store keeps them as Parquet, and the CLI, its JSON and the pages all render the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.tables.quantity import Sign, Unit


class Kind(StrEnum):
    """The kind of a column's values, which determines its array type, alignment and format."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    MILLICORES = "millicores"
    BYTES = "bytes"
    AMOUNT = "amount"
    """An amount in the unit of the row's `resource`: millicores of cpu, else bytes or a count."""
    RATIO = "ratio"
    TIME = "time"
    """Unix seconds."""
    LIST = "list"
    """A short float list, for sparklines."""

    @property
    def numeric(self) -> bool:
        """True if the cells are numbers, in which case a missing cell is NaN."""
        return self not in (Kind.TEXT, Kind.LIST)


def kind_of(resource: str) -> Kind:
    """Return the kind of a column with amounts of a resource.

    CPU is in millicores; memory, storage and huge pages are in bytes; all else is a count. Batch and mid CPU are
    extended resources that count millicores.
    """
    if resource == "cpu" or resource.endswith(("/batch-cpu", "/mid-cpu")):
        return Kind.MILLICORES
    in_bytes = resource.endswith(("memory", "storage")) or resource.startswith("hugepages-")
    return Kind.BYTES if in_bytes else Kind.INTEGER


NODE_GROUP_INPUT: Final = "node group "
"""Beginning of the name of an input that is an amount on one group of nodes; the group's name follows."""
_INPUT_ENDINGS: Final = (
    (("fraction", "coverage", "share", "growth_per_week"), Kind.RATIO),
    (("_millicores",), Kind.MILLICORES),
    (("_bytes", "_bytes_per_day"), Kind.BYTES),
    (("_percent", "_seconds", "days", "hours", "pods", "pods_seen", "kills"), Kind.NUMBER),
    (("samples", "replicas", "runs", "day_risk_margin"), Kind.NUMBER),
)


def kind_of_input(name: str, resource: str) -> Kind:
    """Return the kind of a computed value's input, by the ending of its name, else that of the resource's amounts.

    An input for a node group is always an amount, whatever its name ends with, because users choose the group's name.
    """
    endings = () if name.startswith(NODE_GROUP_INPUT) else _INPUT_ENDINGS
    return next((kind for some, kind in endings if name.endswith(some)), kind_of(resource))


_UNITS: Final = {
    Kind.MILLICORES: Unit.MILLICORES,
    Kind.BYTES: Unit.BYTES,
    Kind.RATIO: Unit.RATIO,
    Kind.TIME: Unit.MOMENT,
    Kind.INTEGER: Unit.COUNT,
    Kind.NUMBER: Unit.NUMBER,
    Kind.AMOUNT: Unit.OF_RESOURCE,
    Kind.LIST: Unit.OF_RESOURCE,
}
_UNIT_ENDINGS: Final = (
    ("core_hours", Unit.CORE_HOURS),
    ("_seconds", Unit.SECONDS),
    ("_month", Unit.MONTHLY),
    ("_minutes", Unit.MINUTES),
    ("days", Unit.DAYS),
)
"""End of a column's name -> the unit of a plain number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `wide` columns appear in `-o wide` and in the column chooser, not by default.

    A narrow terminal leaves out columns that are not `essential` first, then `essential` ones, then those that are also
    `uncut`, and the schema's `identity` last. Texts of `uncut` columns are never cut: parts after "; " get a line each.
    """

    name: str
    title: str
    kind: Kind
    doc: str
    wide: bool = False
    essential: bool = False
    uncut: bool = False
    unit: Unit | None = None
    """The unit of the cells, if neither the kind nor the end of the name gives it (`unit_of`)."""
    sign: Sign = Sign.NEVER_NEGATIVE


def unit_of(column: Column) -> Unit | None:
    """Return the unit of a column's cells, or None for text; a CLI table or page may show a multiple of the unit."""
    plain = column.kind in (Kind.INTEGER, Kind.NUMBER)
    by_name = (unit for ending, unit in _UNIT_ENDINGS if plain and column.name.endswith(ending))
    return column.unit or next(by_name, _UNITS.get(column.kind))


@dataclass(frozen=True, slots=True)
class Schema:
    """The name and columns of a result table, and the `key` columns that identify a row."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns by which people recognise a row: the key's essential columns, or the whole key if it has none.

        If part of the key is `wide`, the essential text columns are added.
        """
        hidden = any(self.column(name).wide for name in self.key)
        stands_for = [c.name for c in self.columns if c.essential and not c.kind.numeric] if hidden else []
        essential = [name for name in self.key if self.column(name).essential]
        return tuple(dict.fromkeys(essential + stands_for)) or self.key

    def column(self, name: str) -> Column:
        """Return the column of this name; raise KeyError if the table has none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one schema, stored by column: float64 arrays (missing = NaN) for numeric kinds, else object arrays."""

    schema: Schema
    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @classmethod
    def from_rows(cls, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Return a table of row mappings; a missing or None numeric cell becomes NaN, a missing text ""."""
        return cls(schema, {c.name: _column(c, rows) for c in schema.columns})

    @classmethod
    def joined(cls, schema: Schema, parts: Sequence[Table]) -> Table:
        """Return one table with the rows of several tables of the same schema, one table after another."""
        if not parts:
            return cls.from_rows(schema, [])
        return cls(schema, {c.name: np.concatenate([part.columns[c.name] for part in parts]) for c in schema.columns})

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return the rows as dicts in column order: whole numbers as int, missing values as None."""
        names = [c.name for c in self.schema.columns]
        cells = [_plain(self.schema.column(n), self.columns[n]) for n in names]
        return (dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True))

    def take(self, index: npt.NDArray[Any]) -> Table:
        """Return a table of the rows at these indices, or, for a mask, of the rows where it is true."""
        return Table(self.schema, {n: v[index] for n, v in self.columns.items()})


CLUSTER = Column("cluster", "Cluster", Kind.TEXT, "Name of the cluster.", essential=True)
"""First column of a table that holds rows of several clusters."""


def of_clusters(schema: Schema, parts: Mapping[str, Table]) -> Table:
    """Join the tables of several clusters, one after another; the cluster's name is the first column and in the key."""
    joined = Table.joined(schema, list(parts.values()))
    names = np.repeat(np.array([*parts], dtype=object), [len(part) for part in parts.values()])
    return Table(with_cluster(schema), {CLUSTER.name: names, **joined.columns})


def with_cluster(schema: Schema) -> Schema:
    """Return the schema with the column CLUSTER (the cluster's name) in front and in the key."""
    return Schema(schema.name, (CLUSTER, *schema.columns), (CLUSTER.name, *schema.key))


WHOLE = (Kind.INTEGER, Kind.MILLICORES, Kind.BYTES, Kind.AMOUNT, Kind.TIME)
_BEYOND_INTEGERS: Final = 2.0**63
"""No quantity of Kubernetes is as large, and no integer of a DataFrame or of JSON's readers can be."""


def truncate_to_integers(cells: Any) -> npt.NDArray[np.float64]:
    """Return the cells without their fractions; a cell that is not a number, or too large for an integer, becomes NaN.

    Such a cell comes from an invalid sample. Its row is kept, with its reason, so that all other cells are served.
    """
    numbers = np.asarray(cells, dtype=np.float64)
    usable = np.abs(numbers) < _BEYOND_INTEGERS
    return np.where(usable, np.trunc(np.where(usable, numbers, 0.0)), np.nan)


def _column(column: Column, rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[Any]:
    if column.kind.numeric:
        return np.array([np.nan if r.get(column.name) is None else r[column.name] for r in rows], dtype=np.float64)
    missing: Any = "" if column.kind is Kind.TEXT else ()
    cells = np.empty(len(rows), dtype=object)
    for index, row in enumerate(rows):  # an array as a cell must stay one
        cell = row.get(column.name)
        cells[index] = missing if cell is None else cell
    return cells


def _plain(column: Column, cells: npt.NDArray[Any]) -> list[Any]:
    if column.kind is Kind.TEXT:
        return [str(c) for c in cells]
    if column.kind is Kind.LIST:
        return [[None if np.isnan(v) else float(v) for v in c] for c in cells]
    if column.kind in WHOLE:
        return [None if np.isnan(c) else int(c) for c in truncate_to_integers(cells)]
    return [float(c) if np.isfinite(c) else None for c in cells]


def human_amount(resource: str, amount: int) -> str:
    """Return an amount for people: 2500 of cpu -> "2500m", 2^31 of memory -> "2.0 GiB", 3 GPUs -> "3"."""
    kind = kind_of(resource)
    if kind is Kind.MILLICORES:
        return format_millicores(amount)
    return human_bytes(amount) if kind is Kind.BYTES else f"{amount:,}"
