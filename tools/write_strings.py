"""Print every sentence that people read on pages, in commands and in refusals, to review in one go.

    python -m tools.write_strings > build/strings.md

A sentence is a text of the code with a blank between words, whoever prints it, and the help of a command; other
docstrings, keys of the page's markup and queries are left out. Parts that are filled in are written as {…}.
tests/house/test_strings.py compares the words with the glossary.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (
    *(
        "dashboard",
        "cotenant/cli",
        "changes",
        "base",
        "enforcer/model",
        "recommender/model",
        "recommender/colocation/model",
    ),
    *("scheduler_ext/queues/model", "scheduler_ext/rebalance/model", "scheduler_ext/rebalance/moves"),
    *("scheduler_ext/reservations/model", "scheduler_ext/reservations/service"),
)
PLATFORM: Final = tuple(
    ROOT / "base" / name for name in ("kube", "store", "ledger", "http", "logs", "process", "settings")
)
"""Its sentences are for whoever runs it; docs/settings.md has those of settings."""
MARKUP: Final = frozenset({"className", "style", "id", "href", "metavar", "d", "viewBox", "path", "pattern", "style_"})
"""Keyword arguments that no one reads."""
WORDED: Final = re.compile(r"[A-Za-z]{2,}[,.:;]? +(?:[A-Za-z(]|\{…\})|(?:\{…\}) +[a-z]{2,}")
CODE: Final = re.compile(
    r"^\s*(SELECT|INSERT|CREATE|PRAGMA|UPDATE)\b|[{}]{2}|=>|^<|^default-src|\bby \(|\[\$"
    r"|^[a-z0-9_.-]+( [a-z0-9_-]+)*-[a-z0-9-]*$"
)
"""Statements, markup and lists of class names."""
SCRIPT_TEXT: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SELECTOR: Final = re.compile(r"[#.\[>][\w-]+|^[MLz0-9 .-]+$")
HEAD: Final = """# Every sentence of pages, commands and refusals

By file, in the order of the code; {…} is filled in.
"""


def texts(tree: ast.AST) -> list[str]:
    """All texts of a module's syntax tree, also those of one word or number."""
    return [text for text in _of_python(tree) if not CODE.search(text)]


def sentences(path: Path) -> list[str]:
    """Texts of one file that people read, each once, in the order of the code."""
    source = path.read_text()
    return _worded(_of_script(source)) if path.suffix == ".js" else sentences_of(ast.parse(source))


def sentences_of(tree: ast.AST) -> list[str]:
    """The same of a module's syntax tree."""
    return _worded(_of_python(tree))


def _worded(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in map(_one_line, texts) if WORDED.search(text) and not CODE.search(text)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _of_script(source: str) -> Iterator[str]:
    for text in SCRIPT_TEXT.findall(source):
        if not SELECTOR.search(text):
            yield text


def _of_python(tree: ast.AST) -> Iterator[str]:
    skipped: set[int] = set()
    helps = {id(node.body[0]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_command(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in helps:
            skipped.add(id(node.value))  # a docstring, or one of an attribute
        if isinstance(node, ast.keyword) and node.arg in MARKUP:
            skipped.update(id(part) for part in ast.walk(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for value in node.values for part in _literals(value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            skipped.update(id(part) for part in ast.walk(node))
    texts = [
        (node.lineno, node.col_offset, _text(node))
        for node in ast.walk(tree)
        if id(node) not in skipped and isinstance(node, ast.Constant | ast.JoinedStr)
    ]
    yield from (text for _, _, text in sorted(texts))


def _is_command(function: ast.FunctionDef) -> bool:
    """Whether its docstring is the help of a command."""
    calls = [decorator.func for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in ("command", "callback") for call in calls)


def _literals(value: ast.expr) -> Iterable[ast.AST]:
    """The fixed parts of an f-string; texts inside of what is filled in are sentences of their own."""
    return [value] if isinstance(value, ast.Constant) else []


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else _filled_in(part) for part in node.values)


def _filled_in(part: ast.expr) -> str:
    """What stands for an expression; a format of percents writes their sign."""
    form = part.format_spec if isinstance(part, ast.FormattedValue) else None
    return "{…}%" if form is not None and ast.unparse(form).strip("f\"'").endswith("%") else "{…}"


def files() -> list[Path]:
    """Files with sentences, in their order."""
    every = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    scripts = (path for path in every if path.suffix in (".py", ".js") and ".min." not in path.name)
    return [path for path in scripts if not any(folder in path.parents for folder in PLATFORM)]


@cache
def catalogue() -> dict[str, list[str]]:
    """Sentences by file."""
    by_file = {str(path.relative_to(ROOT)): sentences(path) for path in files()}
    return {name: texts for name, texts in by_file.items() if texts}


def page() -> str:
    """The catalogue as Markdown."""
    parts = [HEAD]
    for name, texts in catalogue().items():
        listed = "\n".join(texts)
        parts.append(f"\n## {name}\n\n```text\n{listed}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
