"""A table on a terminal that is narrower than it: names stay whole, numbers stay whole, the rest gives way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cotenant.base.commands.cells import join_moves, split_parts, title
from cotenant.base.commands.fitting import GAP, Fitted, fit_columns, wrap_text
from cotenant.base.table import Column, Kind, Schema
from cotenant.recommender.model.views import FORECASTS, RECOMMENDATIONS
from tests.house.schemas import every_schema

NAME = Column("name", "Name", Kind.TEXT, "")
REASON = Column("reason", "Reason", Kind.TEXT, "")
CPU = Column("cpu", "CPU", Kind.MILLICORES, "")
MOVED = Column("moved", "Moved", Kind.TEXT, "", essential=True, uncut=True)
ROWS = [["web", "a-very-long-reason-indeed", "12.500"], ["checkout", "ok", "3.000"]]
WIDTHS = (40, 60, 80, 200)


def width_of(fitted: Fitted) -> int:
    """Widest line, in places of a terminal."""
    columns = list(zip(*fitted.titles, *fitted.lines, strict=True))
    return sum(max(map(cell_len, column)) for column in columns) + GAP * (len(columns) - 1)


def read_cells(fitted: Fitted, column: int) -> str:
    """All of a column's cells without blanks, one after the other, as somebody reads them line by line."""
    place = fitted.places.index(column)
    return "".join(line[place].replace(" ", "") for line in fitted.lines)


def test_a_narrow_terminal_cuts_the_longest_texts_and_then_leaves_out_last_columns() -> None:
    # Widths 8 + 25 + 6 and two gaps of 2: 43. In 36 the reason has 36 - 8 - 6 - 4 = 18 places, one for the ellipsis.
    fitted = fit_columns((NAME, REASON, CPU), (), [], ROWS, 36)
    assert fitted == Fitted(
        [0, 1, 2], [], [["web", "a-very-long-reaso…", "12.500"], ["checkout", "ok", "3.000"]], whole=False
    )
    # No text goes below 12: 8 + 2 + 12 + 2 + 6 = 30 do not fit into 24; without the number 24 - 8 - 2 = 14 are left.
    fitted = fit_columns((NAME, REASON, CPU), (), [], ROWS, 24)
    assert fitted == Fitted([0, 1], [], [["web", "a-very-long-re"[:13] + "…"], ["checkout", "ok"]], whole=False)
    assert fit_columns((NAME, REASON, CPU), (), [], ROWS, 43) == Fitted([0, 1, 2], [], ROWS, whole=True)


def test_essential_columns_are_left_out_last() -> None:
    # 8 + 2 + 6 = 16 without the text between; in 15 the number goes too, and the first column is never cut below 8.
    name, cpu = replace(NAME, essential=True), replace(CPU, essential=True)
    assert fit_columns((name, REASON, cpu), (), [], ROWS, 24).lines == [["web", "12.500"], ["checkout", "3.000"]]
    assert fit_columns((name, REASON, cpu), (), [], ROWS, 15).lines == [["web"], ["checkout"]]
    assert fit_columns((NAME, REASON, cpu), (), [], ROWS, 15).lines == [["12.500"], ["3.000"]]


def test_what_identifies_a_row_stays_before_what_is_essential() -> None:
    # Name and number need 16; in 15 the name takes 15 - 2 - 6 = 7 and goes on below, in 13 it would have 5, less
    # than half of 12, so that the number goes.
    cpu = replace(CPU, essential=True, uncut=True)
    assert fit_columns((NAME, cpu), {"name"}, [], [["checkout", "12.500"]], 15).lines == [
        ["checkou", "12.500"],
        ["t", ""],
    ]
    assert fit_columns((NAME, cpu), {"name"}, [], [["checkout", "12.500"]], 13).lines == [["checkout"]]


def test_a_column_that_no_row_has_is_left_out_first() -> None:
    rows = [["", "web", "1.000"], ["", "api", "2.000"]]
    columns = (replace(MOVED, name="empty"), NAME, CPU)
    assert fit_columns(columns, {"empty", "name"}, ["Empty", "Name", "CPU"], rows, 12).places == [1, 2]
    assert fit_columns(columns, {"empty", "name"}, ["Empty", "Name", "CPU"], [], 12).places == [0, 1]


def test_a_long_title_takes_lines_and_no_place_of_its_numbers() -> None:
    fitted = fit_columns((NAME, CPU), {"name"}, ["Name", "CPU free for batch"], [["web", "12.500"]], 15)
    # 15 - 4 - 2 = 9 places: "CPU free" has 8.
    assert fitted == Fitted([0, 1], [["", "CPU free"], ["Name", "for batch"]], [["web", "12.500"]], whole=True)


def test_a_name_goes_on_after_a_separator_where_there_is_one() -> None:
    assert wrap_text("collector-gateway-ap", 18) == ["collector-gateway-", "ap"]
    assert wrap_text("collector-gateway-ap", 8) == ["collecto", "r-gatewa", "y-ap"]
    assert wrap_text("app: CPU request 1 → 2", 14) == ["app: CPU", "request 1 → 2"]
    # an indented name keeps its blanks where they leave room for a part of it
    assert wrap_text("  collector-gateway ", 12) == ["  collector-", "gateway"]
    assert wrap_text("      gateway  ", 6) == ["gatewa", "y"]


@given(st.text(max_size=40), st.integers(2, 20))
def test_a_wrapped_text_loses_only_blanks_is_nowhere_wider_and_no_line_ends_in_them(text: str, size: int) -> None:
    pieces = wrap_text(text, size)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(cell_len(piece) <= size and piece == piece.rstrip() for piece in pieces)
    assert all(pieces) or pieces == [""]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("schema", every_schema().values(), ids=lambda schema: schema.name)
def test_every_table_says_at_every_width_what_its_rows_are(schema: Schema, width: int) -> None:
    """Names of 30 characters, no two alike, are there to the last; no line is wider than the terminal."""
    shown = [column for column in schema.columns if not column.wide]
    names = [
        ["12.345" if c.kind.numeric else f"{c.name[:4]}-of-some-{row}-length-{row}1234567"[:30] for c in shown]
        for row in range(3)
    ]
    columns, rows = join_moves(shown, names)
    fitted = fit_columns(columns, schema.identity, [title(column) for column in columns], rows, width)
    assert width_of(fitted) <= width
    known_by = [place for place, column in enumerate(columns) if column.name in schema.identity]
    assert known_by, "some column that is shown without `wide` tells the rows apart"
    for place in known_by:
        assert read_cells(fitted, place) == "".join(row[place] for row in rows)


@pytest.mark.parametrize(
    ("schema", "width", "names"),
    [
        (RECOMMENDATIONS, 80, {"namespace", "workload", "container", "cpu_request", "memory_request"}),
        (RECOMMENDATIONS, 60, {"namespace", "workload", "container", "cpu_request", "memory_request"}),
        (RECOMMENDATIONS, 40, {"namespace", "workload", "container", "cpu_request"}),
        (FORECASTS, 60, {"namespace", "name", "peak"}),
    ],
)
def test_a_narrow_terminal_shows_whose_amount_it_is(schema: Schema, width: int, names: set[str]) -> None:
    columns = [replace(c, kind=Kind.MILLICORES) if c.name == "peak" else c for c in schema.columns if not c.wide]
    cells = ["a-name-of-twenty-odd" if c.kind is Kind.TEXT else "12.345" for c in columns]
    columns, rows = join_moves(columns, [cells])
    fitted = fit_columns(columns, schema.identity, [title(c) for c in columns], rows, width)
    assert names <= {columns[place].name for place in fitted.places}
    moves = [fitted.lines[0][at] for at, place in enumerate(fitted.places) if columns[place].uncut]
    assert set(moves) <= {"12.345 → 12.345"}, "from and to stand there to their last digit"


@given(st.lists(st.text("ab;", max_size=12), min_size=1, max_size=4), st.integers(20, 200))
def test_every_field_of_a_change_is_readable_at_any_width(fields: list[str], width: int) -> None:
    """Each part of the text that says what moves begins in a line of its own, in their order, and nothing is cut."""
    parts = [f"{field.replace(';', '')} 1 → 2" for field in fields]
    columns = [Column("id", "Id", Kind.TEXT, "", essential=True), MOVED]
    lines = split_parts(columns, [["4f2a", "; ".join(parts)]])
    assert [line[1] for line in lines] == parts
    assert [line[0] for line in lines] == ["4f2a", *[""] * (len(parts) - 1)]
    fitted = fit_columns(columns, {"id"}, [], lines, width)
    assert fitted.places == [0, 1] and fitted.whole
    if width >= 4 + 2 + 12 + 6:  # the id, a gap, and the longest part
        assert [line[1] for line in fitted.lines] == parts
    assert read_cells(fitted, 1) == "".join(parts).replace(" ", "")


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(st.lists(st.text(max_size=30), min_size=count, max_size=count), min_size=1, max_size=4)
    ),
    st.integers(1, 80),
    st.sets(st.integers(0, 3)),
)
def test_what_is_fitted_is_no_wider_than_the_terminal_or_one_column(
    rows: list[list[str]], width: int, identity: set[int]
) -> None:
    columns = [replace(CPU if index % 2 else NAME, name=str(index)) for index in range(len(rows[0]))]
    fitted = fit_columns(columns, {str(index) for index in identity}, [], rows, width)
    assert len(fitted.lines) >= len(rows)
    assert {len(line) for line in fitted.lines} == {len(fitted.places)}
    assert width_of(fitted) <= width or len(fitted.places) == 1
