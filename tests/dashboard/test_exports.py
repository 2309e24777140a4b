"""What leaves as CSV: of every table, by the API and by the command line alike, no cell is the start of a formula."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.commands.output import Format, render
from cotenant.base.table import Kind, Schema, Table
from cotenant.base.text import csv_text
from cotenant.changes.model import tables
from cotenant.changes.model.ledger_marks import COLUMNS
from cotenant.dashboard.rest import results
from cotenant.dashboard.sources.source import SCHEMAS
from cotenant.recommender.model import views

STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
HOSTILE = ('=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1+1")
TABLES = {schema.name: schema for schema in (*SCHEMAS.values(), *vars(views).values(), *vars(tables).values())
          if isinstance(schema, Schema)}  # fmt: skip


def filled(schema: Schema, text: str) -> Table:
    """One row whose texts are all this, and whose numbers are negative."""
    values = {Kind.TEXT: text, Kind.LIST: [-1.5, float("nan")]}
    return Table.from_rows(schema, [{c.name: values.get(c.kind, -2) for c in schema.columns}])


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_no_export_of_a_table_holds_a_formula_and_both_ways_agree(name: str) -> None:
    schema = TABLES[name]
    for nasty in HOSTILE:
        table = filled(schema, nasty)
        exported = b"".join(results.to_csv([table])).decode()
        assert exported == "".join(render(table, Format.CSV))
        (row,) = cells(exported)
        texts = [row[c.name] for c in schema.columns if c.kind is Kind.TEXT]
        assert all(text == csv_text(nasty) and not text.startswith(STARTS) for text in texts)


@settings(max_examples=100)
@given(st.text(max_size=20))
def test_whatever_a_cell_holds_it_starts_no_formula_and_stays_one_cell(text: str) -> None:
    cell_text = csv_text(text)
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow([cell_text, "end"])
    assert not cell_text.startswith(STARTS)
    assert next(csv.reader(io.StringIO(buffer.getvalue(), newline=""))) == [cell_text, "end"]


def test_columns_that_people_write_into_are_among_the_tables() -> None:
    written = [c.name for c in COLUMNS if c.kind is Kind.TEXT]
    table = filled(Schema("reasons", COLUMNS, ("postponed",)), "=1+1")
    (row,) = cells(b"".join(results.to_csv([table])).decode())
    assert written and [row[name] for name in written] == ["'=1+1"] * len(written)
    assert np.all([not value.startswith("=") for value in row.values()])
