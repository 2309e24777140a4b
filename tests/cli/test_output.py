"""A table is the same rows in the same order however it is written; documents keep their values."""

from __future__ import annotations

import csv
import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.commands.cells import join_moves
from cotenant.base.commands.output import (
    DocumentFormat,
    Format,
    align_columns,
    flatten_mapping,
    print_document,
    print_table,
    print_totals,
    render,
)
from cotenant.base.table import Column, Kind, Schema, Table

SCHEMA = Schema(
    "pods",
    (
        Column("name", "Name", Kind.TEXT, "Name."),
        Column("replicas", "Replicas", Kind.INTEGER, "Count."),
        Column("cpu", "CPU req", Kind.MILLICORES, "Amount."),
        Column("memory", "Memory", Kind.BYTES, "Amount."),
        Column("used", "Used", Kind.RATIO, "Share."),
        Column("error", "Error", Kind.NUMBER, "Loss.", wide=True),
        Column("seen", "Seen", Kind.TIME, "Moment.", wide=True),
        Column("line", "Line", Kind.LIST, "Series.", wide=True),
    ),
    ("name",),
)
ROWS: list[dict[str, Any]] = [
    {"name": "web", "replicas": 3, "cpu": 250, "memory": 1288490189, "used": 0.5, "error": 0.25, "line": (0.0, 1.0)},
    {"name": "-evil\x1b[2J", "cpu": -250},
    {"name": "a=b, c", "replicas": 1, "cpu": 2000, "memory": 2**30, "seen": 1_763_629_200},
]
TABLE = Table.from_rows(SCHEMA, ROWS)


def text(table: Table, output: Format, *, headers: bool = True) -> str:
    return "".join(render(table, output, headers=headers))


def test_a_table_is_aligned_columns_with_the_unit_in_the_title() -> None:
    # 1288490189 bytes / 2^30 = 1.2000 GiB
    assert text(TABLE, Format.TABLE).splitlines() == [
        "NAME          REPLICAS  CPU-REQ(cores)  MEMORY(GiB)  USED(%)",
        "web                  3           0.250        1.200       50",
        "-evil\\x1b[2J                    -0.250",
        "a=b, c               1           2.000        1.000",
    ]


def test_an_amount_keeps_the_unit_of_its_rows_resource() -> None:
    columns = (Column("resource", "Resource", Kind.TEXT, ""), Column("used", "Used", Kind.AMOUNT, ""))
    rows = [{"resource": "cpu", "used": 250}, {"resource": "memory", "used": 2**30}, {"resource": "pods", "used": 3}]
    lines = text(Table.from_rows(Schema("s", columns, ("resource",)), rows), Format.TABLE).splitlines()
    assert [line.split() for line in lines] == [
        ["RESOURCE", "USED"],
        ["cpu", "250m"],
        ["memory", "1.0Gi"],
        ["pods", "3"],
    ]


NOW_AND_THEN = (
    Column("name", "Name", Kind.TEXT, "", essential=True),
    Column("cpu_now", "CPU now", Kind.MILLICORES, ""),
    Column("cpu", "CPU", Kind.MILLICORES, ""),
)


def test_what_is_now_and_what_would_be_stand_in_one_column() -> None:
    rows = [["web", "0.500", "0.250"], ["api", "", "0.100"], ["job", "1.000", ""], ["db", "", ""]]
    columns, joined = join_moves(NOW_AND_THEN, rows)
    assert [c.name for c in columns] == ["name", "cpu"]
    assert [row[1] for row in joined] == ["0.500 → 0.250", "– → 0.100", "1.000 → –", ""]


def test_totals_are_for_people_and_never_among_data(capsys: pytest.CaptureFixture[str]) -> None:
    for output in Format:
        print_totals("3 pods", output)
        output_streams = capsys.readouterr()
        assert (output_streams.out, output_streams.err) == (
            "",
            "3 pods\n" if output in (Format.TABLE, Format.WIDE) else "",
        )


def test_wide_adds_the_wide_columns() -> None:
    header = text(TABLE, Format.WIDE).splitlines()[0]
    assert header.split() == [
        *("NAME", "REPLICAS", "CPU-REQ(cores)", "MEMORY(GiB)", "USED(%)"),
        *("ERROR", "SEEN", "LINE"),
    ]


@pytest.mark.parametrize("output", [Format.TABLE, Format.WIDE, Format.CSV])
def test_no_headers_leaves_out_exactly_the_first_line(output: Format) -> None:
    with_headers, without = text(TABLE, output).splitlines(), text(TABLE, output, headers=False).splitlines()
    assert [line.split() for line in without] == [line.split() for line in with_headers[1:]]


LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(LEAVES | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@pytest.mark.slow
@given(DOCUMENTS)
def test_json_is_indented_as_python_would_indent_it(document: Any) -> None:
    with redirect_stdout(io.StringIO()) as stream:
        print_document(document, DocumentFormat.JSON)
    assert stream.getvalue() == json.dumps(document, indent=2) + "\n"


def test_json_has_exact_numbers_and_nulls() -> None:
    rows = json.loads(text(TABLE, Format.JSON))
    assert rows[0]["memory"] == 1288490189
    assert rows[1] == {
        "name": "-evil\x1b[2J",
        "replicas": None,
        "cpu": -250,
        "memory": None,
        "used": None,
        "error": None,
        "seen": None,
        "line": [],
    }


def test_csv_quotes_formulas_and_keeps_numbers() -> None:
    lines = text(TABLE, Format.CSV).splitlines()
    assert lines[0] == "name,replicas,cpu,memory,used,error,seen,line"
    assert lines[2] == "'-evil\\x1b[2J,,-250,,,,,[]"


@pytest.mark.parametrize("output", list(Format))
def test_no_format_lets_a_control_character_through(output: Format) -> None:
    assert not any(c in text(TABLE, output) for c in "\x1b\x9b\u202e")


@pytest.mark.parametrize("output", list(Format))
def test_what_is_not_finite_is_missing_in_every_format(output: Format) -> None:
    endless = {c: float("inf") for c in ("replicas", "cpu", "memory", "used", "error", "seen")}
    rows = [{"name": "a", **endless}]
    assert text(Table.from_rows(SCHEMA, rows), output) == text(Table.from_rows(SCHEMA, [{"name": "a"}]), output)


def test_an_empty_table_is_its_headers_or_an_empty_list() -> None:
    empty = Table.from_rows(SCHEMA, [])
    assert text(empty, Format.TABLE) == "NAME  REPLICAS  CPU-REQ(cores)  MEMORY(GiB)  USED(%)\n"
    assert text(empty, Format.TABLE, headers=False) == ""
    assert json.loads(text(empty, Format.JSON)) == yaml.safe_load(text(empty, Format.YAML)) == []
    assert len(text(empty, Format.CSV).splitlines()) == 1


_text = st.text(st.characters(codec="utf-8"), max_size=12)
_whole = st.none() | st.integers(-(2**50), 2**50)
_real = st.none() | st.floats(-1e12, 1e12)
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "name": _text,
            "replicas": _whole,
            "cpu": _whole,
            "memory": _whole,
            "used": _real,
            "error": _real,
            "seen": st.none() | st.integers(0, 2**32),
            "line": st.lists(st.floats(0, 1e9), max_size=4),
        }
    ),
    max_size=6,
)


@pytest.mark.slow
@given(_rows)
def test_all_formats_are_the_same_rows_in_the_same_order(rows: list[dict[str, Any]]) -> None:
    table = Table.from_rows(SCHEMA, rows)
    plain = list(table.rows())
    as_json = json.loads(text(table, Format.JSON))
    as_csv = list(csv.DictReader(io.StringIO(text(table, Format.CSV))))
    assert as_json == yaml.safe_load(text(table, Format.YAML)) == plain
    assert [[_number(r[c]) for c in ("replicas", "cpu", "memory", "used", "error", "seen")] for r in as_csv] == [
        [r[c] for c in ("replicas", "cpu", "memory", "used", "error", "seen")] for r in plain
    ]
    assert [json.loads(r["line"]) for r in as_csv] == [r["line"] for r in plain]
    # One line of the table is one row: its CSV name, without the quote that guards a formula, stands at its start.
    lines = text(table, Format.WIDE, headers=False).split("\n")[:-1]
    assert len(lines) == len(as_csv) == len(plain)
    for line, row in zip(lines, as_csv, strict=True):
        assert line.startswith((row["name"].rstrip(), row["name"].removeprefix("'").rstrip()))


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


@given(st.lists(st.tuples(_text, _text), max_size=5))
def test_aligned_lines_lose_nothing_but_trailing_blanks(rows: list[tuple[str, str]]) -> None:
    lines = list(align_columns(rows))
    assert len(lines) == len(rows)
    assert all(line[:-1].startswith(row[0].rstrip()) for line, row in zip(lines, rows, strict=True))


@dataclass(frozen=True)
class Pair:
    left: int
    right: dict[str, Any]


def test_a_document_is_the_same_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    pair = Pair(1, {"deep": {"a": None, "b": [1, 2]}, "many": [{"x": True}, {"x": "\x1b"}], "none": {}})
    shown = {}
    for output in DocumentFormat:
        print_document(pair, output)
        shown[output] = capsys.readouterr().out
    expected = {"left": 1, "right": pair.right}
    assert json.loads(shown[DocumentFormat.JSON]) == yaml.safe_load(shown[DocumentFormat.YAML]) == expected
    assert [line.split() for line in shown[DocumentFormat.TABLE].splitlines()] == [
        ["left", "1"],
        ["right.deep.a"],
        ["right.deep.b", "1,", "2"],
        ["right.many.0.x", "true"],
        ["right.many.1.x", "\\x1b"],
        ["right.none", "{}"],
    ]
    assert dict(flatten_mapping(expected))["right.deep.b"] == [1, 2]


def test_print_table_writes_what_render_says(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TABLE, Format.CSV)
    assert capsys.readouterr() == (text(TABLE, Format.CSV), "")
