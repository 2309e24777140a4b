"""The language of the code: docstrings are sentences, functions are verbs or nouns. Both counts only get smaller."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.house.rooms import ROOT, SOURCES

FRAGMENT = re.compile(
    r"(Of|As|Who|Whose|Whom|What|Which|Where|When|How|From|For|In|By|Whether|That|Those|At|With|Without|Because|Such|"
    r"Like|Nothing|Nobody)\b"
)
PARTICIPLE = re.compile(r"_?[a-z]+(ed|en|wn|ing)")
NOUNS = {"seed", "feed", "open", "token", "screen", "hidden", "string", "setting", "ring", "bring", "ping", "heading"}
"""Words that end like a participle and are none."""
PARTICIPLES = 340
"""Functions whose name is a bare participle."""

Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions() -> list[tuple[str, Defined]]:
    """(file, function or class) of the product."""
    return [(str(path.relative_to(ROOT)), node) for path in SOURCES for node in _defined(ast.parse(path.read_text()))]


def _defined(tree: ast.Module) -> Iterator[Defined]:
    return (node for node in ast.walk(tree) if isinstance(node, Defined))


def is_command(node: Defined) -> bool:
    """Its docstring is the help of a command, which opens with what the command shows."""
    return any(word in ast.unparse(entry) for entry in node.decorator_list for word in ("command", "callback"))


def test_no_docstring_begins_as_a_fragment() -> None:
    fragments = [
        f"{name}:{node.lineno} {node.name}"
        for name, node in definitions()
        if FRAGMENT.match(ast.get_docstring(node) or "") and not is_command(node)
    ]
    assert fragments == [], "say what it does or is in a sentence: a verb and its object, or a noun phrase"
    assert FRAGMENT.match("Whether it holds.") and not FRAGMENT.match("Informs the node.")


def test_no_more_functions_are_named_by_a_bare_participle() -> None:
    names = [
        f"{name}:{node.lineno} {node.name}"
        for name, node in definitions()
        if not isinstance(node, ast.ClassDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.lstrip("_") not in {*NOUNS, "pending"}
    ]
    assert len(names) <= PARTICIPLES, "name it by what it does (restore_values) or returns (free_capacity)"
