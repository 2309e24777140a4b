"""How many lines each room may have: what a change adds, it takes away elsewhere in its room."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

from tests.house.rooms import ON_TREES, PACKAGES, ROOT, trees_by_path

pytestmark = ON_TREES
BUDGETS = Path(__file__).with_name("budgets.toml")


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that are no blank, comment or docstring."""
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [node.body[0] for node in ast.walk(tree) if isinstance(node, described) and ast.get_docstring(node)]
    text_lines = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    numbered = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and at not in text_lines for at, line in numbered
    )


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    text = '"""What it is for."""\n\nA = 1  # why\n# why\n\n\ndef f() -> int:\n    """Return A."""\n    return A\n'
    # A = 1, def, return
    assert code_lines(text, ast.parse(text)) == 3


def test_a_room_stays_within_its_budget_of_lines() -> None:
    budgets = tomllib.loads(BUDGETS.read_text())
    assert set(budgets) == set(PACKAGES)
    all_lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path, tree in trees_by_path().items():
        text, room = path.read_text(), path.relative_to(ROOT).parts[0]
        all_lines[room] += text.count("\n")
        code[room] += code_lines(text, tree)
    above = [
        f"{room}: {all_lines[room]} lines, {code[room]} of code; budget {budget['lines']} and {budget['code']}"
        for room, budget in budgets.items()
        if all_lines[room] > budget["lines"] or code[room] > budget["code"]
    ]
    assert not above, "\n".join([*above, "Take lines away there, or raise the budget in a commit that says why."])
    loose = [
        f"{room} has {all_lines[room]} lines, {code[room]} of code"
        for room, budget in budgets.items()
        if budget["lines"] - all_lines[room] > 400 or budget["code"] - code[room] > 300
    ]
    assert not loose, "\n".join([*loose, "Lower these budgets to what is there: a piece of work ends with it."])
