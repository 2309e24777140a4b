"""The text of table cells: readable units in tables, exact numbers in CSV. Pure; `output` prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final

from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.resource import GIB
from cotenant.base.table import Column, Kind, kind_of
from cotenant.base.text import csv_text, visible
from cotenant.base.text import percent as whole_percent

UNITS: Final = {Kind.MILLICORES: "cores", Kind.BYTES: "GiB", Kind.RATIO: "%"}
"""Kind of a column -> the unit of its cells in a table, which is in the title."""
_SCALE: Final = {Kind.MILLICORES: 1000, Kind.BYTES: GIB}
_BARS: Final = "▁▂▃▄▅▆▇█"


def csv_cell(value: Any) -> str:
    """Return a plain row value as a CSV cell: a number as a number, None as an empty cell, a list as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_text(value)
    return json.dumps(value) if isinstance(value, list) else repr(value)


def row_cells(columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
    """Return the texts of a row's cells, without units, which are in the titles; a cell of kind AMOUNT has its unit."""
    kind = kind_of(str(row.get("resource", "")))
    return [human(kind, row[c.name]) if c.kind is Kind.AMOUNT else _bare(c.kind, row[c.name]) for c in columns]


def title(column: Column, *, plain: bool = False) -> str:
    """Return a column's heading with the unit of its cells: "CPU request (cores)"; if `plain`, "CPU-REQUEST(cores)"."""
    unit = f"({UNITS[column.kind]})" if column.kind in UNITS else ""
    if plain:
        return column.title.upper().replace(" ", "-") + unit
    return f"{column.title} {unit}" if unit else column.title


def _bare(kind: Kind, value: Any) -> str:
    """370 millicores -> "0.370", 1.9 GiB in bytes -> "1.900", 0.634 -> "63": one unit, and the point in one place."""
    if value is None or kind not in UNITS:
        return human(kind, value)
    return _percent(value).removesuffix(" %") if kind is Kind.RATIO else f"{value / _SCALE[kind]:z.3f}"


def human(kind: Kind, value: Any) -> str:
    """Return one cell for people: 250 millicores -> "250m", 1.25e9 bytes -> "1.2Gi", 0.634 -> "63 %", None -> ""."""
    return "" if value is None else _HUMAN[kind](value)


def sparkline(values: Sequence[float | None]) -> str:
    """Return a bar chart of block characters, scaled from 0 to the highest value; a missing value is a blank."""
    top = max((v for v in values if v is not None), default=0.0)
    return "".join(
        " " if v is None else _BARS[min(len(_BARS) - 1, int(max(v, 0.0) / top * len(_BARS))) if top > 0 else 0]
        for v in values
    )


def _bytes(value: int) -> str:
    return human_bytes(value).replace(" ", "").removesuffix("B")


def _time(value: int) -> str:
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _number(value: float) -> str:
    shown = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def _percent(value: float) -> str:
    """Return a share in whole percents, below 10 % with two digits; a share below 1 is never shown as 100 %."""
    percent = 100 * value
    return whole_percent(value) if abs(percent) >= 10 else f"{_number(float(f'{percent:.2g}'))} %"


_HUMAN: Final[dict[Kind, Callable[[Any], str]]] = {
    Kind.TEXT: visible,
    Kind.INTEGER: str,
    Kind.NUMBER: _number,
    Kind.MILLICORES: format_millicores,
    Kind.BYTES: _bytes,
    Kind.AMOUNT: str,
    Kind.RATIO: _percent,
    Kind.TIME: _time,
    Kind.LIST: sparkline,
}


NOW: Final = "_now"
"""Suffix of a column with the present value; the column without the suffix has the new value."""
ARROW: Final = " → "
UNSET: Final = "–"
PARTS: Final = "; "
"""Separator between the parts of a text that is never cut."""


def join_moves(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[list[Column], list[list[str]]]:
    """Join each pair of columns `x_now` and `x` into one, with cells such as "0.500 → 0.250"; a missing value is "–".

    If both values are missing, the cell is empty. `rows` have a cell for each column.
    """
    place = {column.name: number for number, column in enumerate(columns)}
    pairs = {number: place[c.name + NOW] for number, c in enumerate(columns) if c.name + NOW in place}
    kept_columns = [number for number in range(len(columns)) if number not in pairs.values()]
    joined = [replace(columns[n], uncut=True) if n in pairs else columns[n] for n in kept_columns]
    return joined, [[_move(row[pairs[n]], row[n]) if n in pairs else row[n] for n in kept_columns] for row in rows]


def _move(now: str, then: str) -> str:
    return f"{now or UNSET}{ARROW}{then or UNSET}" if now or then else ""


def split_parts(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Split texts of `uncut` columns at "; " and put each part on a line of its own, below the first part."""
    uncut = [column.uncut and column.kind is Kind.TEXT for column in columns]
    lines: list[list[str]] = []
    for row in rows:
        parts = [cell.split(PARTS) if split else [cell] for cell, split in zip(row, uncut, strict=True)]
        lines += ([*cells] for cells in zip_longest(*parts, fillvalue=""))
    return lines
