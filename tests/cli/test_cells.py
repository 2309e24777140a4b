"""Cells: human units for the eye, and text that cannot act on a terminal or a spreadsheet."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.commands.cells import csv_cell, human, sparkline
from cotenant.base.table import Kind
from cotenant.base.text import csv_text, percent, visible


def test_a_ratio_is_written_in_percent_with_so_many_digits_and_its_sign_where_it_is_a_change() -> None:
    # 0.4126 = 41.26 %
    assert (percent(0.4126), percent(0.4126, 1), percent(0.4126, signed=True)) == ("41 %", "41.3 %", "+41 %")


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (Kind.TEXT, "web", "web"),
        (Kind.INTEGER, 12, "12"),
        (Kind.NUMBER, 0.5, "0.5"),
        (Kind.NUMBER, 14.0, "14"),
        (Kind.NUMBER, -0.001, "0"),
        (Kind.MILLICORES, 250, "250m"),
        (Kind.MILLICORES, -250, "-250m"),
        (Kind.MILLICORES, 2000, "2"),
        (Kind.BYTES, 1288490189, "1.2Gi"),  # 1.2 x 2^30 = 1,288,490,188.8
        (Kind.BYTES, -(512 * 2**20), "-512.0Mi"),
        (Kind.BYTES, 512, "512"),
        (Kind.RATIO, 0.634, "63 %"),
        (Kind.RATIO, 0.0051, "0.51 %"),
        (Kind.RATIO, 0.08, "8 %"),
        (Kind.RATIO, 0.0, "0 %"),
        (Kind.TIME, 1_763_629_200, "2025-11-20T09:00Z"),
        (Kind.LIST, [0.0, 50.0, None, 100.0], "▁▅ █"),
    ],
)
def test_a_table_shows_human_units(kind: Kind, value: object, shown: str) -> None:
    assert human(kind, value) == shown


@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_missing_is_empty(kind: Kind) -> None:
    assert human(kind, None) == ""
    assert csv_cell(None) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),  # CSI as one C1 byte
        ("a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"),
        ("abc\u202edcba", "abc\\u202edcba"),  # right-to-left override
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\U000e0041", "\\U000e0041"),  # a tag character, invisible
        ("größe-東京", "größe-東京"),
    ],
)
def test_characters_that_nobody_sees_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝"])
def test_text_never_starts_a_formula_in_csv(start: str) -> None:
    assert csv_text(f"{start}1+1").startswith("'")


def test_numbers_stay_numbers_in_csv() -> None:
    assert [csv_cell(v) for v in (-250, -0.5, 12)] == ["-250", "-0.5", "12"]


@given(st.text())
def test_shown_text_is_printable_on_one_line(text: str) -> None:
    shown = visible(text)
    assert all(c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown


@given(st.text())
def test_a_csv_cell_is_one_cell_and_no_formula(text: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerow([csv_text(text), "end"])
    assert next(csv.reader(io.StringIO(buffer.getvalue()))) == [csv_text(text), "end"]
    assert not csv_text(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=84))
def test_a_sparkline_has_one_character_per_value(values: list[float | None]) -> None:
    assert len(sparkline(values)) == len(values)
    assert [c == " " for c in sparkline(values)] == [v is None for v in values]
