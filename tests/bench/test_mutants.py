"""The sample of mutants that `bench.platform.mutants` tries: drawn from a seed, without those that change nothing."""

from __future__ import annotations

import ast
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from bench.platform.mutants import GUARDING, Mutants, keep_sample, rows, unread_spans
from bench.record import ROOT

SOURCE = """\
def half(value: int | None) -> int | None:
    return value | 1 if value is None else value // 2
"""
BIT_OR, IS_EQ, FLOOR = "core/ReplaceBinaryOperator_BitOr_Add", "core/ReplaceComparisonOperator_Is_Eq", "core/FloorDiv"


def session(path: Path, *mutants: tuple[str, str, int, int]) -> Path:
    """A session as cosmic-ray stores it, as far as the bench reads it: (job, operator, line, column) each."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE work_items (job_id)")
        connection.execute(
            "CREATE TABLE mutation_specs (job_id, operator_name, start_pos_row, start_pos_col, occurrence INTEGER)"
        )
        connection.executemany("INSERT INTO mutation_specs VALUES (?, ?, ?, ?, 0)", mutants)
        connection.executemany("INSERT INTO work_items VALUES (?)", [mutant[:1] for mutant in mutants])
    return path


def kept_jobs(path: Path) -> list[list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = ("mutation_specs", "work_items")
        return [sorted(job for (job,) in connection.execute(f"SELECT job_id FROM {table}")) for table in tables]


def test_mutants_of_annotations_and_of_identity_are_not_drawn(tmp_path: Path) -> None:
    # line 1 has `int | None` at columns 16 and 32, line 2 `value | 1` at 17 and `is` at 30
    stored = session(
        tmp_path / "s",
        ("parameter", BIT_OR, 1, 16), ("returned", BIT_OR, 1, 32), ("real", BIT_OR, 2, 17), ("identity", IS_EQ, 2, 30),
    )  # fmt: skip
    assert keep_sample(stored, SOURCE, 10, Random(1)) == 1
    assert kept_jobs(stored) == [["real"], ["real"]]


def test_a_sample_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    jobs = [(f"job-{number}", FLOOR, 2, number) for number in range(40)]
    stored = [session(tmp_path / name, *jobs) for name in ("first", "second")]
    for path in stored:
        assert keep_sample(path, SOURCE, 5, Random("same")) == 40
    assert kept_jobs(stored[0]) == kept_jobs(stored[1]) and len(kept_jobs(stored[0])[0]) == 5


def test_spans_are_those_of_parameters_results_and_frozen_classes() -> None:
    # `@dataclass(frozen=True)`: the value begins after 18 characters
    assert list(unread_spans(ast.parse("@dataclass(frozen=True, order=True)\nclass A: ..."))) == [((1, 18), (1, 22))]
    assert list(unread_spans(ast.parse("class A(Struct, frozen=True): ..."))) == [((1, 23), (1, 27))]
    assert sorted(unread_spans(ast.parse(SOURCE))) == [((1, 16), (1, 26)), ((1, 31), (1, 41))]


def test_the_score_is_of_all_mutants_that_were_tried() -> None:
    # 9 + 3 of 10 + 4 mutants: 12 of 14, 85.7 %
    tried = [Mutants("a.py", 50, 9, ("diff",)), Mutants("b.py", 4, 3, ("diff",))]
    values = {row.metric: row.value for row in rows(tried)}
    assert values == {"mutants tried": 14, "mutants that a test notices": 85.7, "a.py": 90.0, "b.py": 75.0}


@pytest.mark.parametrize("module", GUARDING)
def test_each_guarding_module_and_its_tests_are_there(module: str) -> None:
    assert (ROOT / module).is_file()
    assert all((ROOT / "tests" / name).exists() for name in GUARDING[module].split())
