"""EDGE: write a command's results to stdout and its messages to stderr.

A `cotenant.base.table.Table` is written as table, wide, json, yaml or csv, always with the same rows in the same order.
Format `table` has one unit a column, in the title, leaves out the schema's wide columns, and is fitted to the terminal.
Format `wide` has all columns. The others have all columns with exact numbers in millicores and bytes, a missing value
as null (empty in CSV). A single object is written by `print_document`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.base.text import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console

    from cotenant.base.table import Column, Table


class Format(StrEnum):
    """The output format of a table."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class DocumentFormat(StrEnum):
    """The output format of a single object."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Output format of the rows.")]
DocumentOption = Annotated[DocumentFormat, typer.Option("--output", "-o", help="Output format of the result.")]
NoHeadersOption = Annotated[bool, typer.Option("--no-headers", help="Leave out the header line (table, wide, csv).")]

SEVERITY_STYLES: Final = {"critical": "bold red", "warning": "yellow", "ok": "green", "good": "green", "unknown": "dim"}


def console(stream: IO[str]) -> Console:
    """Return a rich console that never interprets data as markup, and writes no escape sequences if NO_COLOR is set."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=stream, markup=False, highlight=False, emoji=False, color_system=None if plain else "auto")


def message(text: str, *, style: str = "") -> None:
    """Write a text for people to stderr with a line end; invisible characters are escaped, but not line breaks."""
    safe = visible_lines(text)
    if sys.stderr.isatty():
        console(sys.stderr).print(safe, style=style or None, soft_wrap=True)
    else:
        print(safe, file=sys.stderr)  # noqa: T201 - stderr is where messages go


def print_totals(text: str, output: Format) -> None:
    """Write the totals of a table to stderr as the last line for people; nothing if the output is for programs."""
    if output in (Format.TABLE, Format.WIDE):
        message(text)


def print_table(table: Table, output: Format, *, headers: bool = True) -> None:
    """Write the table's rows to stdout in the given format."""
    if output in (Format.TABLE, Format.WIDE) and sys.stdout.isatty():
        _print_styled(table, _visible_columns(table, output is Format.WIDE), headers, cut=output is Format.TABLE)
    else:
        sys.stdout.writelines(render(table, output, headers=headers))


def render(table: Table, output: Format, *, headers: bool = True) -> Iterator[str]:
    """Yield, in pieces, the text that `print_table` writes if stdout is not a terminal."""
    if output is Format.JSON:
        yield _json(list(table.rows()))
    elif output is Format.YAML:
        yield _yaml(list(table.rows()))
    elif output is Format.CSV:
        from cotenant.base.commands.cells import csv_cell

        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if headers:
            writer.writerow([c.name for c in table.schema.columns])
        writer.writerows([csv_cell(v) for v in row.values()] for row in table.rows())
        yield buffer.getvalue()
    else:
        columns = _visible_columns(table, output is Format.WIDE)
        from cotenant.base.commands.cells import title

        titles = [[title(c, plain=True) for c in columns]] if headers else []
        rows = titles + _cells(table, columns)
        yield from align_columns(rows, [c.kind.numeric for c in columns]) if rows else iter(())


def print_document(obj: Any, output: DocumentFormat) -> None:
    """Write one object (mapping, dataclass, msgspec struct) to stdout; format `table` has one line per dotted key."""
    import msgspec

    plain = _without_nan(msgspec.to_builtins(obj, str_keys=True))
    if output is DocumentFormat.JSON:
        sys.stdout.write(_json(plain))
    elif output is DocumentFormat.YAML:
        sys.stdout.write(_yaml(plain))
    else:
        sys.stdout.writelines(align_columns([(path, _word(value)) for path, value in flatten_mapping(plain)]))


def _without_nan(value: Any) -> Any:
    """Return the plain value with None in place of numbers that JSON does not have (NaN, infinities)."""
    if isinstance(value, dict):
        return {key: _without_nan(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_without_nan(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flatten_mapping(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of each leaf of nested mappings, in order; items of lists of mappings are numbered."""
    if isinstance(value, Mapping) and (value or not path):
        children: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
        children = enumerate(value)
    else:
        yield path, value
        return
    for key, child in children:
        yield from flatten_mapping(child, f"{path}.{key}" if path else str(key))


def align_columns(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> Iterator[str]:
    """Yield rows as lines with aligned columns, two blanks between them; `right` marks the right-aligned columns."""
    return ("  ".join(cells).rstrip() + "\n" for cells in _pad_cells(rows, right))


def _pad_cells(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[list[str]]:
    """Yield rows with each cell padded to the width of its column on a terminal; wide characters take two places."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    to_right = list(right) or [False] * len(widths)
    for row in rows:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        yield [pad + cell if r else cell + pad for cell, pad, r in zip(row, blanks, to_right, strict=True)]


def _json(value: Any) -> str:
    import msgspec

    # ASCII only: a terminal may act on C1 controls and direction marks that JSON itself would let through.
    dense = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return msgspec.json.format(dense, indent=2) + "\n"  # json's own indentation takes ten times as long


def _yaml(value: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=False, width=2**20))


def _visible_columns(table: Table, wide: bool) -> list[Column]:
    return [c for c in table.schema.columns if wide or not c.wide]


def _cells(table: Table, columns: list[Column]) -> list[list[str]]:
    from cotenant.base.commands.cells import row_cells

    return [row_cells(columns, row) for row in table.rows()]


def _print_styled(table: Table, columns: list[Column], headers: bool, *, cut: bool) -> None:
    """Write the table to a terminal, with a rule below the titles and coloured severities.

    It is made of rich's texts, not of its table, which takes seconds for a thousand rows.
    """
    from rich.text import Text

    from cotenant.base.commands.cells import join_moves, split_parts, title
    from cotenant.base.commands.fitting import fit_columns

    out = console(sys.stdout)
    cells_of_rows = _cells(table, columns)
    if cut:
        columns, cells_of_rows = join_moves(columns, cells_of_rows)
        cells_of_rows = split_parts(columns, cells_of_rows)
    titles, lines, note = [[title(c) for c in columns]] if headers else [], cells_of_rows, ""
    if cut and columns:
        fitted = fit_columns(columns, table.schema.identity, titles[0] if titles else [], cells_of_rows, out.width)
        left_out = [column.title for place, column in enumerate(columns) if place not in fitted.places]
        titles, lines, columns = fitted.titles, fitted.lines, [columns[place] for place in fitted.places]
        if cells_of_rows and not fitted.whole:
            # Name the columns that a terminal of that width has no place for, where the names take no second line.
            cut_note = f"cut to the terminal's width, without {', '.join(left_out)}; -o wide shows all"
            note = (
                cut_note
                if left_out and len(cut_note) <= out.width
                else "cut to the terminal's width; -o wide shows all columns"
            )
    rows = titles + lines
    for index, cells in enumerate(_pad_cells(rows, [c.kind.numeric for c in columns]) if rows else ()):
        styles = [
            "bold" if index < len(titles) else (SEVERITY_STYLES.get(cell.strip(), "") if c.name == "severity" else "")
            for c, cell in zip(columns, cells, strict=True)
        ]
        line = Text("  ").join(Text(cell, style) for cell, style in zip(cells, styles, strict=True))
        out.print(line, soft_wrap=True)
        if index == len(titles) - 1:
            out.print(Text("─" * line.cell_len, "dim"), soft_wrap=True)
    if note:
        message(note)


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_word(v) for v in value)
    return "" if value is None else visible(value) if isinstance(value, str) else json.dumps(value)
