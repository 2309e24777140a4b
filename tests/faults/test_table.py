"""The table of faults is whole and names tests that are there; the report says what a run has seen and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.report import Outcome, lost, of_row, outcome_text, outcomes, page
from tests.faults.rows import ROOT, Row, missing, rows

FAULTS = 69
TABLE = rows()


def test_each_fault_has_its_row_once_and_in_order() -> None:
    assert [row.number for row in TABLE] == list(range(1, FAULTS + 1))
    assert all(row.fault and row.where and row.expected for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(row.number))
def test_each_row_has_tests_that_are_there_or_a_reason(row: Row) -> None:
    assert missing(row) == []
    assert row.tests or row.benches or row.why or row.open
    assert not row.loss or row.tests or row.open, "what may lose data is tried in the suite, or said not to be"


def test_a_test_that_was_renamed_a_bench_without_results_and_a_file_without_tests_are_missed() -> None:
    here = str(Path(__file__).relative_to(ROOT))
    own_test = f"{here}::{test_each_fault_has_its_row_once_and_in_order.__name__}"
    names = (own_test, here, f"{here}::test_renamed", "tests/faults/test_gone.py", "tests/faults/rows.py")
    row = Row(1, "a", "b", "c", tests=names, benches=("scan", "never_run"))
    assert missing(row) == [*names[2:], "never_run"]


REPORT = """<testsuites><testsuite>
<testcase classname="tests.base.test_a" name="test_one[x-1]"/>
<testcase classname="tests.base.test_a" name="test_one[x-2]"><skipped/></testcase>
<testcase classname="tests.base.test_a" name="test_two@group"><failure>no</failure></testcase>
<testcase classname="tests.base.test_b" name="test_one"><error>no</error></testcase>
</testsuite></testsuites>"""
RUN = outcomes(REPORT)
A = "tests/base/test_a.py"


def test_a_run_is_read_without_parameters_and_groups() -> None:
    ends = [("test_a.py::test_one", "passed"), ("test_a.py::test_one", "skipped"), ("test_a.py::test_two", "failed"),
            ("test_b.py::test_one", "failed")]  # fmt: skip
    assert [Outcome(f"tests/base/{test}", ended) for test, ended in ends] == RUN


def test_a_row_is_about_its_tests_alone() -> None:
    row = Row(1, "a", "b", "c", loss="a row", tests=(f"{A}::test_one",))
    assert of_row(row, RUN) == {"passed": 1, "skipped": 1}
    assert of_row(replace(row, tests=(A,)), RUN) == {"passed": 1, "skipped": 1, "failed": 1}
    assert of_row(replace(row, tests=("tests/base/test_c.py",)), RUN) == {}


def test_what_was_not_run_is_not_called_kept() -> None:
    row = Row(1, "a", "b", "c", loss="a row is lost", tests=(A,), why="power is not cut", open="half of it")
    assert (outcome_text(row, {}), lost(row, {})) == ("not run; open: half of it; power is not cut", "?")
    assert lost(row, {"skipped": 3}) == "?"
    assert lost(row, {"passed": 1}) == "0"
    assert lost(row, {"passed": 5, "failed": 1}) == lost(row, {"passed": 5, "skipped": 1}) == "?"
    assert lost(replace(row, loss=""), {"failed": 1}) == "—"


def test_the_report_counts_rows_and_names_what_failed_and_what_was_left_out() -> None:
    table = [
        Row(1, "a", "b", "c", tests=(f"{A}::test_one",)),
        Row(2, "a", "b", "c", tests=(f"{A}::test_two",)),
        Row(3, "a", "b", "c", tests=("tests/base/test_c.py",), open="half of it"),
        Row(4, "a", "b", "c", why="no such disk here"),
    ]
    text = page(table, RUN, "abc on a machine")
    assert "abc on a machine. 4 rows: 2 with tests or benches, 1 explained, 1 open.\n" in text
    assert "In this run failed: 2; not or not wholly run: 1, 3.\n" in text
    assert "| 4 | a | b | c | no such disk here | — |" in text


def test_the_report_has_every_row_of_the_table() -> None:
    text = (ROOT / "bench" / "faults.md").read_text(encoding="utf-8")
    for row in TABLE:
        assert f"| {row.number} | {row.fault} | {row.where} | {row.expected} | " in text, "run `make faults`"
