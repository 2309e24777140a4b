"""Cells of tables that are read live from the cluster, formatted by the kind of their column. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from cotenant.base.amount_text import three_digits
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.text import visible
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.frame import panels

MOST_ROWS: Final = 200
"""Most rows of a table on a page; the command line and REST have all of them."""
LONGEST_WHOLE: Final = 40
"""Most characters of a text that is not broken into lines."""
Drawn = Mapping[str, Callable[[Any], Any]]
"""Column -> function that draws its values, where that of the column's kind is not used."""


def titles(schema: Schema) -> list[str]:
    """Return the headings of the columns that a page shows."""
    return [column.title for column in schema.columns if not column.wide]


def cells(schema: Schema, row: Mapping[str, Any], drawn: Drawn | None = None) -> list[Any]:
    """Return the cells of one row; amounts follow the unit switch, and times follow the time-zone switch."""
    special = drawn or {}
    return [
        special.get(column.name, lambda value, column=column: _cell(column, value))(row[column.name])
        for column in schema.columns
        if not column.wide
    ]


def without_empty_columns(heads: Sequence[str], lines: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return the table without empty columns, so that it fits a laptop's window; the first column always stays."""
    columns = []
    for n in range(len(heads)):
        contents = [getattr(line[n], "children", line[n]) for line in lines]
        if n == 0 or any(content not in ("", display.MISSING) for content in contents):
            columns.append(n)
    return [heads[n] for n in columns], [[line[n] for n in columns] for line in lines]


def rows_of(schema: Schema, rows: Sequence[Mapping[str, Any]], label: str, drawn: Drawn | None = None) -> Component:
    """Return the first MOST_ROWS rows as a table with the columns that a page shows."""
    return panels.facts(titles(schema), [cells(schema, row, drawn) for row in rows[:MOST_ROWS]], label)


def gap_panel(gaps: Sequence[str]) -> list[Component]:
    """Return a panel that lists what could not be read, and so was not considered; empty if everything was read."""
    return [panels.panel("What could not be read", panels.notes(gaps[:MOST_ROWS]))] if gaps else []


def row_note(rows: int, command: str) -> str:
    """Return a note with the command that lists the rows beyond MOST_ROWS; "" if the page shows all."""
    return f"{MOST_ROWS} of {rows:,} rows; `cotenant {command}` lists all of them." if rows > MOST_ROWS else ""


def unbroken_text(text: str) -> Component:
    """Return a short text without line breaks."""
    return html.Span(visible(text), className="whole")


def subject(name: str, *places: str) -> Component:
    """Return a cell with the name of a row's subject and below it its location, as in every list."""
    return html.Div([visible(name), html.Div(visible(" · ".join(places)), className="dim")], className="whole")


def sentence(code: str) -> str:
    """Return the sentence that explains a reason code; "" for an unknown code."""
    return SENTENCES[Reason(code)] if code in set(Reason) else ""


def reason_chips(codes: Iterable[str]) -> Component:
    """Return a chip for each code with its count and its sentence."""
    counts = sorted(Counter(codes).items())
    return html.Div(
        [panels.chip(f"{label(code)} {count:,}", "gray", sentence(code)) for code, count in counts], className="chips"
    )


def _cell(column: Column, value: Any) -> Any:
    if column.kind is Kind.TEXT:
        value = label(value) if column.name == "reason" else value
        return unbroken_text(value) if len(value) <= LONGEST_WHOLE else visible(value)
    if value is None:
        return display.MISSING
    return {
        Kind.RATIO: display.percent,
        Kind.MILLICORES: lambda number: panels.amount(number, Resource.CPU),
        Kind.BYTES: lambda number: panels.amount(number, Resource.MEMORY),
        Kind.TIME: panels.moment,
    }.get(column.kind, _number)(value)


def _number(value: float) -> str:
    """Format a number with three digits, as the grid does; a whole number with all of them."""
    return display.true_minus(three_digits(value))
