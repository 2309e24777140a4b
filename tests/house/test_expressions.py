"""Every regular expression of the product is linear: what a tenant writes into a name or an annotation may meet it.

An expression that takes longer than linear time holds the interpreter's lock meanwhile, so that the whole process
stands still: no watch, no webhook, no Lease. Each expression is tried as the product uses it (`fullmatch` alone cannot
be led on by what stands before a match), on texts made from its own parts.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tests.house.attacks import ENDS, attacks
from tests.house.rooms import ON_TREES, ROOT, SOURCES, module_name, trees_by_path

pytestmark = ON_TREES
SIZES = (20, 24, 28, 40, 400, 16_000)
"""Runs up to 40, where what is exponential shows without taking for ever; then characters, where the square shows."""
MOST_SECONDS = 0.02
"""Of processor time. 16,000 characters take 0.4 ms where time is linear, and 80 ms and more where it is the square."""
WAYS = {
    **dict.fromkeys(("search", "match", "fullmatch"), ""),
    **dict.fromkeys(("sub", "subn", "split", "findall", "finditer"), "findall"),
}
"""Functions of `re`, and by which other one each is tried; "" for itself."""
Expression = tuple[str, re.Pattern[Any], frozenset[str]]
"""(where it is, the expression, the functions by which the product uses it)."""


@pytest.mark.slow
def test_no_expression_takes_more_than_linear_time() -> None:
    assert [f"{where}: {text[:60]!r}" for where, text in map(slow_text, expressions()) if text is not None] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [r"(-(\d+|[b2]{5}|[b2]{8,10}))+$", r"([0-9]*\.?[0-9]+)(ns|s)", r"(?:a|a)+b", r"[\w.-]*\w", r"\[[^\]]*\]", "(.+)=x"],
)
def test_the_texts_show_expressions_whose_time_is_the_square_or_worse(expression: str) -> None:
    assert slow_text(("here", re.compile(expression), frozenset({"findall", "search"})))[1] is not None


@pytest.mark.parametrize("expression", [r"-(\d+|[b2]{5})", r"(?<![0-9])[0-9]+s", r"(?<![\w.-])[\w.-]*\w"])
def test_the_texts_do_not_blame_expressions_whose_time_is_linear(expression: str) -> None:
    assert slow_text(("here", re.compile(expression), frozenset({"findall", "search", "fullmatch"})))[1] is None


def test_the_expressions_of_every_room_are_found() -> None:
    texts = {where.partition("/")[0] for where, _, _ in expressions()}
    assert texts >= {"admission", "base", "changes", "enforcer", "profiler", "recommender", "scheduler_ext"}


def slow_text(expression: Expression) -> tuple[str, str | None]:
    """Where it is, and a text on which it takes longer; None for none."""
    where, pattern, ways = expression
    encoded = isinstance(pattern.pattern, bytes)
    for before, run, after in attacks(pattern):
        for end in ENDS:
            for size in SIZES:
                text = before + run * (size if size <= 40 else size // len(run)) + after + end
                subject = text.encode("utf-8", "replace") if encoded else text
                if any(is_slow(partial(getattr(pattern, way), subject)) for way in ways):
                    return where, text
    return where, None


def is_slow(call: partial[Any]) -> bool:
    """Return whether a call takes far too long, or too long three times: another process may disturb one."""
    for _ in range(3):
        began = time.process_time()
        call()
        seconds = time.process_time() - began
        if seconds <= MOST_SECONDS or seconds > 10 * MOST_SECONDS:
            return seconds > MOST_SECONDS
    return True


@cache
def expressions() -> tuple[Expression, ...]:
    """All of them, also of fields of structs, with names of constants put in as their modules have them."""
    return tuple(expression for path in SOURCES for expression in expressions_of(path))


def expressions_of(path: Path) -> Iterator[Expression]:
    calls = [node for node in ast.walk(trees_by_path()[path]) if isinstance(node, ast.Call)]
    call_patterns = [(call, *expression_args) for call in calls if (expression_args := arguments(call)) is not None]
    if not call_patterns:
        return
    names = vars(importlib.import_module(module_name(path)))
    for call, written, way in call_patterns:
        flags = (value_of(argument, names) for argument in call.args[1:])
        total = sum(int(flag) for flag in flags if isinstance(flag, re.RegexFlag))
        ways = frozenset({way}) if way else ways_of(path, call)
        yield f"{path.relative_to(ROOT)}:{call.lineno}", re.compile(value_of(written, names), total), ways


def arguments(call: ast.Call) -> tuple[ast.expr, str] | None:
    """(the expression, the function of `re`), "" for one that is compiled for later; None for another call."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re":
        if function.attr in WAYS:
            return call.args[0], WAYS[function.attr] or function.attr
        return (call.args[0], "") if function.attr == "compile" else None
    fields = [keyword.value for keyword in call.keywords if keyword.arg == "pattern"]
    return (fields[0], "search") if fields and ast.unparse(function).rpartition(".")[2] == "Meta" else None


def ways_of(path: Path, call: ast.Call) -> frozenset[str]:
    """How the constant that has the expression is used, in its module or, if it is public, in all; else all ways."""
    for node in trees_by_path()[path].body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is call:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = target.id if isinstance(target, ast.Name) else ""
            used = frozenset[str]().union(
                *(ways for (user, used), ways in uses().items() if used == name and (user == path or name[0] != "_"))
            )
            return used or frozenset(way or name for name, way in WAYS.items())
    return frozenset({"search", "fullmatch", "findall"})


@cache
def uses() -> dict[tuple[Path, str], set[str]]:
    """(module, name) -> functions by which an expression of this name is used there."""
    functions_by_name: dict[tuple[Path, str], set[str]] = {}
    for path, tree in trees_by_path().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in WAYS
                and isinstance(node.value, ast.Name | ast.Attribute)
            ):
                name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                functions_by_name.setdefault((path, name), set()).add(WAYS[node.attr] or node.attr)
    return functions_by_name


def value_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of a part of a module; a word for a name that only exists while a function runs."""
    try:
        return eval(compile(ast.Expression(node), "part", "eval"), dict(names))
    except (NameError, AttributeError, TypeError):
        pass
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value_of(part, names)) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return value_of(node.value, names)
    if isinstance(node, ast.BinOp):
        left_operand, right_operand = value_of(node.left, names), value_of(node.right, names)
        return left_operand + (
            right_operand.encode()
            if isinstance(left_operand, bytes) and isinstance(right_operand, str)
            else right_operand
        )
    return "word"
