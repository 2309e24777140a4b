"""The language of the code: sentences in docstrings, the glossary's words in names. The counts only get smaller."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.house.rooms import ON_TREES, ROOT, trees_by_path

pytestmark = ON_TREES
FRAGMENT = re.compile(
    r"(Of|As|Who|Whose|Whom|What|Which|Where|When|How|From|For|In|By|Whether|That|Those|At|With|Without|Because|Such|"
    r"Like|Nothing|Nobody)\b"
)
PARTICIPLE = re.compile(r"_?[a-z]+(ed|en|wn|ing)")
NOUNS = {"seed", "feed", "open", "token", "screen", "hidden", "string", "setting", "ring", "bring", "ping", "heading"}
"""Words that end like a participle and are none."""
PARTICIPLES = 232
"""Functions whose name is a bare participle."""
REFUSED = 0
"""Identifiers with a word for which the glossary has another: settings, stored and sent fields among them."""
FILLERS = {
    *("one", "found", "made", "told", "there", "seen", "given", "wanted", "known", "kept", "said", "asked", "named"),
    *("held", "stood", "gone", "left", "heard", "apart", "whole", "words", "wish", "begun"),
}
"""Names of a parameter or variable that say nothing of what it is."""
ALLOWED = {"act", "job", "trial", "try", "swap", "group", "guard", "acceptance", "approval"}
"""Words that the glossary refuses in one meaning and uses in another."""

Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions() -> list[tuple[str, Defined]]:
    """(file, function or class) of the product."""
    return [(str(path.relative_to(ROOT)), node) for path, tree in trees_by_path().items() for node in _defined(tree)]


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


@cache
def identifiers() -> list[tuple[str, int, str]]:
    """(file, line, name) of each function, class, parameter and variable of the product."""
    entries = []
    for path, tree in trees_by_path().items():
        for node in ast.walk(tree):
            if isinstance(node, Defined):
                name = node.name
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            else:
                continue
            entries.append((str(path.relative_to(ROOT)), node.lineno, name))
    return entries


def refused_words() -> set[str]:
    """Single words of the glossary's third column, without the remarks in brackets."""
    refused: set[str] = set()
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and cells[0] not in ("term", "---"):
            texts = (text.strip() for text in re.sub(r"\([^)]*\)", "", cells[2]).split(","))
            refused |= {text for text in texts if re.fullmatch("[a-z]+", text)}
    return refused - {*ALLOWED, "not"}


def test_no_more_names_have_a_word_that_the_glossary_refuses() -> None:
    refused = refused_words()
    assert {"room", "held", "look", "tell"} <= refused
    names = [
        f"{file}:{line} {name}"
        for file, line, name in identifiers()
        if refused & {part.lower() for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", name) if part}
    ]
    assert len(names) <= REFUSED, f"docs/glossary.md has another word: {names}"


def fillers_in(function: ast.FunctionDef | ast.AsyncFunctionDef, fillers: set[str]) -> set[str]:
    """Fillers by which the function names a parameter or a variable."""
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return fillers & ({n.arg for n in ast.walk(function) if isinstance(n, ast.arg)} | {n.id for n in stored})


def test_no_parameter_or_variable_is_named_by_a_filler() -> None:
    fillers = [
        f"{file}:{function.lineno} {function.name}: {name}"
        for file, function in definitions()
        if not isinstance(function, ast.ClassDef)
        for name in fillers_in(function, FILLERS)
    ]
    assert fillers == [], "name it by what it holds (pod, candidate, recommendation)"


def test_tests_and_benchmarks_name_the_thing_itself() -> None:
    fillers = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {name}"
        for folder in ("bench", "lab", "tests", "tools")
        for path in ROOT.glob(f"{folder}/**/*.py")
        for function in _defined(ast.parse(path.read_text()))
        if not isinstance(function, ast.ClassDef)
        for name in fillers_in(function, FILLERS | {"answer", "scene", "world"})
    ]
    assert fillers == [], "name it by what it holds (response, cluster, change)"
