"""docs/architecture.md names files and functions that exist: a newcomer follows them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\|[^|]+\| `([^`]+\.py)` \| `(\w+)` \|$", PAGE, re.MULTILINE)


def functions_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


@pytest.mark.slow
@pytest.mark.parametrize(("path", "function"), STEPS)
def test_a_step_of_the_two_ways_names_a_function_that_exists(path: str, function: str) -> None:
    assert function in functions_of(ROOT / path)


def test_each_way_is_told_in_at_most_twenty_files() -> None:
    ways = [re.findall(r"^\|[^|]+\| `([^`]+\.py)` \|", part, re.MULTILINE) for part in PAGE.split("### From")[1:]]
    assert len(ways) == 2
    assert all(5 <= len(set(files)) <= 20 for files in ways)


def test_every_folder_of_the_floors_exists() -> None:
    folders = re.findall(r"^\|[^|]*\| `([a-z_/]+)` \|", PAGE, re.MULTILINE)
    assert len(folders) >= 15
    assert [name for name in folders if not (ROOT / name / "__init__.py").is_file()] == []
