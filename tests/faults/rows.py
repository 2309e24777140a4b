"""The table of faults and bad inputs: what goes wrong where, what is expected, and the tests and benches that show it.

`faults.toml` is the table; a row is proved by tests, or by a bench whose results are in the repository, explained where
it cannot be injected here, or open where something of what is expected is not shown yet. Pure but for reading it.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("faults.toml")


@dataclass(frozen=True, slots=True)
class Row:
    """A fault. tests: node ids of pytest without parameters, or files; benches: names below `bench/results`.

    loss: what would be a loss of data, "" = there is none to lose; why: of what no test here can show, the reason;
    open: what is expected and not shown yet.
    """

    number: int
    fault: str
    where: str
    expected: str
    loss: str = ""
    tests: tuple[str, ...] = ()
    benches: tuple[str, ...] = ()
    why: str = ""
    open: str = ""

    @property
    def state(self) -> str:
        """proved, explained or open."""
        if self.open:
            return "open"
        return "proved" if self.tests or self.benches else "explained"


def rows() -> list[Row]:
    """The table, in its order."""
    document = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    all_rows = []
    for fields in document["fault"]:
        tests, benches = (tuple(fields.pop(name, ())) for name in ("tests", "benches"))
        all_rows.append(Row(**fields, tests=tests, benches=benches))
    return all_rows


def missing(row: Row) -> list[str]:
    """What a row names that is not there."""
    absent = [name for name in row.tests if not _is_test(name)]
    return absent + [name for name in row.benches if not (ROOT / "bench" / "results" / f"{name}.json").exists()]


def _is_test(name: str) -> bool:
    path, _, test = name.partition("::")
    return bool(functions(path)) and (not test or test in functions(path))


@cache
def functions(path: str) -> frozenset[str]:
    """Names of the tests of a file; empty when there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    function_names = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in function_names if name.startswith("test_"))
