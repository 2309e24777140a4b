"""Each number in a sentence of a page, a command, a report or a note is a quantity of the dictionary."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from cotenant.base.table import Kind
from cotenant.quantities.quantity import Surface
from cotenant.quantities.registry import QUANTITIES
from tests.house import sentence_numbers
from tests.house.schemas import every_column
from tests.house.sentence_numbers import declared, numbers_of
from tests.house.test_style import ROOT

ROOMS = (
    *("base", "enforcer", "forecasting", "recommender", "profiler", "changes", "scheduler_ext", "admission"),
    *("autopilot", "dashboard", "cotenant"),
)
WORDS_OF_ROOMS = frozenset({"plan_scores", "plan_states", "occurrence_report", "incident_story", "shortage"})
"""Modules of rooms whose sentences pages and commands show as they are."""
NO_PAGES = ("dashboard/server", "dashboard/access")
LISTED = tomllib.loads((Path(__file__).parent / "sentence_numbers.toml").read_text(encoding="utf-8"))


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of the product by its path in the repository; links to rooms are met once."""
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    own = [path for path in paths if not any(parent.is_symlink() for parent in path.parents)]
    return {path.relative_to(ROOT).as_posix(): (path, ast.parse(path.read_text(encoding="utf-8"))) for path in own}


@cache
def names() -> sentence_numbers.Declared:
    kinds: dict[str, set[Kind]] = {}
    for name, column in every_column().items():
        kinds.setdefault(name.partition(".")[2], set()).add(column.kind)
    columns = frozenset(name for name, found in kinds.items() if Kind.TEXT not in found)
    return declared([tree for _, tree in sources().values()], columns)


def is_surface(name: str) -> bool:
    """Whether a module writes sentences that people read."""
    of_page = name.startswith("dashboard/") and not name.startswith(NO_PAGES)
    return of_page or "/cli/" in name or "commands" in name or Path(name).stem in WORDS_OF_ROOMS


@cache
def formatted() -> dict[str, str]:
    """Each number of a sentence -> the module that writes it."""
    surfaces = {name: path_and_tree for name, path_and_tree in sources().items() if is_surface(name)}
    return {number: name for name, (path, tree) in surfaces.items() for number in numbers_of(tree, path.stem, names())}


def test_every_number_of_a_sentence_is_a_quantity_of_the_dictionary() -> None:
    listed = [number for part in ("quantities", "others") for group in LISTED[part].values() for number in group]
    new = set(formatted()) - set(listed)
    assert sorted(new) == [], "say in sentence_numbers.toml which quantity it is, and declare it in cotenant/quantities"
    assert sorted(set(listed) - set(formatted())) == [], "no sentence writes it any more"
    assert [number for number, times in Counter(listed).items() if times > 1] == []
    assert sorted(set(LISTED["quantities"]) - set(QUANTITIES)) == [], "no such quantity"


def test_a_quantity_says_that_sentences_show_it() -> None:
    """Beside tables' cells, "where shown" of the dictionary is the truth about pages and commands."""
    table_or_words = set(Surface) - {Surface.EXPORT, Surface.REST, Surface.PYTHON, Surface.MCP, Surface.OBJECT}
    silent = [key for key in LISTED["quantities"] if not table_or_words & set(QUANTITIES[key].surfaces)]
    assert silent == []


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("f'{share:.0%} of it'", "share"),
        ("f'{overview.nodes} nodes'", "overview.nodes"),
        ("f'{len(rows)} rows'", "len(rows)"),
        ("f'{row[\"cpu_delta_total\"]} more'", "row['cpu_delta_total']"),
        ("html.Strong(display.amount(view.wonderful, resource))", "view.wonderful"),
        ("f'{money(cost, currency)} a month'", "cost"),
        ("' '.join([percent(some), 'sure'])", "some"),
        ("f'{many} of them'", "many"),
        ("f'{count} plans'", "count"),
    ],
)
def test_a_new_number_is_found_however_it_comes_into_the_sentence(line: str, number: str) -> None:
    head = "def lead(share, overview, rows, view, cost, some, n: int):\n    many = n + 1\n"
    body = f"{head}    for name, count in rows:\n        yield {line}\n"
    assert number in {one.partition(": ")[2] for one in numbers_of(ast.parse(body), "page", names())}


@pytest.mark.parametrize("line", ["f'{name} is gone'", "f'{title}: {words}'", "raise UsageError(f'{n} is too many')"])
def test_names_words_and_what_errors_repeat_are_no_numbers(line: str) -> None:
    body = f"def lead(name: str, title, words, n: int):\n    {line}\n"
    assert numbers_of(ast.parse(body), "page", names()) == set()
