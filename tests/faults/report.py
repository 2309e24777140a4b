"""bench/faults.md from a run of the table's tests: what was seen of each fault, and what was lost.

    .venv/bin/python -m tests.faults.report --tests                     # the tests of the table, one a line
    .venv/bin/python -m tests.faults.report build/faults.xml            # writes bench/faults.md from that run

`make faults` does both. A fault whose tests were all left out, because the machine lacks a program, is said to be not
run: the report never speaks of what it has not seen.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.record import commit, machine
from tests.faults.rows import ROOT, Row, rows

PAGE = ROOT / "bench" / "faults.md"
HEAD = """# Faults and bad inputs

Written by `make faults` from a run of the tests that the table in `tests/faults/faults.toml` names; do not edit.
*Seen* is what those tests did in this run. *Lost* is 0 where data could be lost and every test of the row has passed, a
dash where there is nothing to lose, and a question mark where a test failed or was left out, as are those of a control
plane on a machine without its programs.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A test of a run, by its file and function without parameters, and how it ended: passed, failed or skipped."""

    test: str
    ended: str


def outcomes(document: str) -> list[Outcome]:
    """Of a report of pytest as JUnit has it."""
    return [Outcome(_named(case), _ended(case)) for case in ET.fromstring(document).iter("testcase")]


def _named(case: ET.Element) -> str:
    module = case.get("classname", "").replace(".", "/")
    return f"{module}.py::{case.get('name', '').partition('[')[0].partition('@')[0]}"


def _ended(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def of_row(row: Row, run: Iterable[Outcome]) -> Counter[str]:
    """How many tests of a row passed, failed and were left out."""
    return Counter(outcome.ended for outcome in run if any(names(test, outcome.test) for test in row.tests))


def names(test: str, run: str) -> bool:
    """Whether a name of the table, a test or a whole file, is about a test of the run."""
    return run == test or ("::" not in test and run.partition("::")[0] == test)


def outcome_text(row: Row, ended: Mapping[str, int]) -> str:
    """What was seen, in words."""
    parts = [f"{ended[how]} {how}" for how in ("passed", "failed", "skipped") if ended.get(how)]
    if row.tests and not parts:
        parts = ["not run"]
    parts += [f"bench {name}" for name in row.benches]
    parts += [f"open: {row.open}"] if row.open else []
    parts += [row.why] if row.why else []
    return "; ".join(parts)


def lost(row: Row, ended: Mapping[str, int]) -> str:
    """0 where every test of the row has passed, a dash where nothing could be, "?" where that is not shown."""
    if not row.loss:
        return "—"
    return "0" if is_whole(ended) else "?"


def is_whole(ended: Mapping[str, int]) -> bool:
    """Whether every test of a row was run and has passed."""
    return bool(ended.get("passed")) and not ended.get("failed") and not ended.get("skipped")


def page(table: Sequence[Row], run: Sequence[Outcome], made_by: str) -> str:
    """The whole report. made_by: commit and machine of the run."""
    states = Counter(row.state for row in table)
    ended = {row.number: of_row(row, run) for row in table}
    failed = [row.number for row in table if ended[row.number]["failed"]]
    idle = [row.number for row in table if row.tests and not is_whole(ended[row.number]) and row.number not in failed]
    summary = f"{states['proved']} with tests or benches, {states['explained']} explained, {states['open']} open"
    lines = [HEAD, f"{made_by}. {len(table)} rows: {summary}."]
    lines += [f"In this run failed: {_listed(failed)}; not or not wholly run: {_listed(idle)}."]
    lines += ["", "| row | fault | where | expected | seen | lost |", "|---|---|---|---|---|---|"]
    for row in table:
        cells = (
            row.number,
            row.fault,
            row.where,
            row.expected,
            outcome_text(row, ended[row.number]),
            lost(row, ended[row.number]),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def main(arguments: Sequence[str]) -> int:
    table = rows()
    if arguments == ["--tests"]:
        print(*sorted({test for row in table for test in row.tests}), sep="\n")
        return 0
    (file,) = arguments
    PAGE.write_text(page(table, outcomes(Path(file).read_text()), f"{commit()}, {machine()}"))
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
