"""Tables on a terminal: what a value is now and what it would be stand in one column, which no width cuts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from cotenant.base.table import Column, Kind

NOW: Final = "_now"
"""End of the name of the column that has the present value of the column without it."""
ARROW: Final = " → "
UNSET: Final = "–"
PARTS: Final = "; "
"""Between the parts of a text that is never cut."""


def join_moves(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[list[Column], list[list[str]]]:
    """Join each pair of columns `x_now` and `x` to one, "0.500 → 0.250"; a value that is not there is written "–".

    A move of which neither end is there stays empty. Rows have a cell for each column.
    """
    place = {column.name: number for number, column in enumerate(columns)}
    pairs = {number: place[c.name + NOW] for number, c in enumerate(columns) if c.name + NOW in place}
    kept = [number for number in range(len(columns)) if number not in pairs.values()]
    joined = [replace(columns[n], uncut=True) if n in pairs else columns[n] for n in kept]
    return joined, [[_move(row[pairs[n]], row[n]) if n in pairs else row[n] for n in kept] for row in rows]


def _move(now: str, then: str) -> str:
    return f"{now or UNSET}{ARROW}{then or UNSET}" if now or then else ""


def split_parts(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Give each part of a text that is never cut a line of its own, below the first one, in its column."""
    uncut = [column.uncut and column.kind is Kind.TEXT for column in columns]
    lines: list[list[str]] = []
    for row in rows:
        parts = [cell.split(PARTS) if split else [cell] for cell, split in zip(row, uncut, strict=True)]
        lines += ([*cells] for cells in zip_longest(*parts, fillvalue=""))
    return lines
