"""All quantities: numbers.csv has those with their own definition, tables.csv the tables whose columns are the rest.

A column's declaration has its unit, sign and definition, and a function's docstring says what it returns; a row does
not repeat them. Rows that differ in a few words are one: "{CPU|memory} used" stands for two quantities.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from cotenant.base.table import Kind, Schema, unit_of
from cotenant.base.tables.quantity import Sign, Unit

Row = Mapping[str, str]


class Surface(StrEnum):
    """The surface on which a person or a program reads a quantity."""

    TILE = "tile"
    SENTENCE = "sentence"
    CAPTION = "caption"
    CHART = "chart"
    TABLE = "table"
    DRAWER = "drawer"
    REVIEW = "review"
    EXPORT = "CSV export"
    CLI = "command line"
    REST = "REST"
    PYTHON = "Python"
    MCP = "MCP"
    REPORT = "HTML report"
    NOTE = "chat note"
    OBJECT = "object in the cluster"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number that people and programs read, computed by one function.

    `key`: lower case, with the unit at its end if the name does not say it. `name`: what surfaces call it. `function`:
    dotted path of the pure function, or of the attribute of a dataclass, that all surfaces use. `of`: what a value
    describes. `statistic`: such as "sum over the nodes". `resolution`: of the samples behind it. `tiles`: labels of the
    tiles that show it. `columns`: of result tables that have it. `differs`: surfaces with another value on purpose, and
    why.
    """

    key: str
    name: str
    definition: str
    unit: Unit
    sign: Sign
    of: str
    statistic: str
    resolution: str
    time: str
    surfaces: tuple[Surface, ...]
    tiles: tuple[str, ...]
    columns: tuple[str, ...]
    differs: Mapping[str, str]
    function: str


@dataclass(frozen=True, slots=True)
class TableSubject:
    """A table: facts that its columns share, its columns of another time, and the columns that a surface lacks."""

    title: str
    schema: Schema
    of: str
    time: str
    times: Mapping[str, Collection[str]]
    surfaces: tuple[Surface, ...]
    lacks: Mapping[str, Collection[str]]
    function: str

    def surfaces_of(self, column: str) -> tuple[Surface, ...]:
        """Return the surfaces that show one column's cells."""
        return tuple(surface for surface in self.surfaces if column not in self.lacks.get(surface, ()))

    def numbers(self) -> tuple[str, ...]:
        """Return the columns with numbers, such as "workloads.cpu_request"."""
        return tuple(f"{self.schema.name}.{c.name}" for c in self.schema.columns if c.kind is not Kind.TEXT)


_VARIANTS: Final = re.compile(r"\{([^{}|]*\|[^{}]*)\}")


def _rows(name: str) -> Iterator[Row]:
    with (Path(__file__).parent / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            variants = (variant_text.split("|") for cell in row.values() for variant_text in _VARIANTS.findall(cell))
            for number in range(max(map(len, variants), default=1)):
                yield {k: _VARIANTS.sub(lambda m, n=number: m[1].split("|")[n], cell) for k, cell in row.items()}


def _parts(cell: str, separator: str = "; ") -> list[str]:
    return [part for part in cell.split(separator) if part]


def _pairs(cell: str) -> dict[str, str]:
    return {name: rest for name, _, rest in (part.partition(": ") for part in _parts(cell))}


def _table(row: Row) -> TableSubject:
    times, lacks = ({name: cs.split() for name, cs in _pairs(row[part]).items()} for part in ("times", "lacks"))
    schema, surfaces = resolve_name(row["schema"]), tuple(map(Surface, _parts(row["surfaces"], ", ")))
    return TableSubject(row["title"], schema, row["of"], row["time"], times, surfaces, lacks, row["function"])


TABLES: Final = tuple(map(_table, _rows("tables")))
"""Every table that the dictionary explains."""
_OWNERS: Final = {f"{table.schema.name}.{c.name}": (table, c) for table in TABLES for c in table.schema.columns}


def surfaces_of_columns() -> Mapping[str, tuple[Surface, ...]]:
    """Return the surfaces that show each column's cells: "workloads.cpu_request" -> REST and others."""
    return {name: table.surfaces_of(column.name) for name, (table, column) in _OWNERS.items()}


def _quantity(row: Row) -> Quantity:
    """The quantity of a row; what the row does not say, its first column or its function says."""
    columns, tiles, cells = row["columns"].split(), _parts(row["tiles"]), dict(row)
    surfaces = [*map(Surface, _parts(row["surfaces"], ", ")), *([Surface.TILE] if tiles else [])]
    for table, column in (_OWNERS[name] for name in columns):
        surfaces += table.surfaces_of(column.name)
        time = next((time for time, those in table.times.items() if column.name in those), table.time)
        own = {"name": column.title.strip(), "definition": column.doc, "of": table.of, "function": table.function}
        for name, cell in {**own, "time": time, "unit": str(unit_of(column)), "sign": column.sign.value}.items():
            cells[name] = cells[name] or cell
    if not cells["definition"]:  # the sentence by which the function says its result
        text = (inspect.getdoc(resolve_name(cells["function"])) or "").partition("\n\n")[0].replace("\n", " ")
        text = text.removeprefix("Return ")
        cells["definition"] = text[:1].upper() + text[1:]
    return Quantity(
        **{name: cells[name] for name in ("key", "definition", "of", "resolution", "time", "function")},
        name=cells["name"] or ", ".join(tiles),
        unit=Unit(cells["unit"]),
        sign=Sign(cells["sign"] or Sign.NEVER_NEGATIVE),
        statistic=cells["statistic"] or "value",
        surfaces=tuple(dict.fromkeys(surfaces)),
        tiles=tuple(tiles),
        columns=tuple(columns),
        differs=_pairs(row["differs"]),
    )


def by_chapter() -> Mapping[str, tuple[Quantity, ...]]:
    """Return all quantities by the title of their chapter: the subjects first, then the other columns of each table."""
    by_title: dict[str, tuple[Quantity, ...]] = {}
    for row in _rows("numbers"):
        by_title[row["chapter"]] = (*by_title.get(row["chapter"], ()), _quantity(row))
    free = _OWNERS.keys() - {column for group in by_title.values() for quantity in group for column in quantity.columns}
    empty = dict.fromkeys(next(_rows("numbers")), "")
    for table in TABLES:
        rows = ({**empty, "key": re.sub("[.-]", "_", at), "columns": at} for at in table.numbers() if at in free)
        by_title[f"Table: {table.title}"] = tuple(map(_quantity, rows))
    return by_title


def every_quantity() -> tuple[Quantity, ...]:
    """Return the quantities of all chapters."""
    return tuple(quantity for quantities in by_chapter().values() for quantity in quantities)


QUANTITIES: Final = {quantity.key: quantity for quantity in every_quantity()}
"""By key; a test refuses two of one key."""
