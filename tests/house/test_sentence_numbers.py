"""Each number in a sentence of a page, a command, a report or a note is a quantity of the dictionary."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from cotenant.base.table import Kind
from cotenant_lab.quantities.registry import QUANTITIES, Surface
from tests.house import sentence_numbers
from tests.house.rooms import ON_TREES, PACKAGES, ROOT, trees_by_path
from tests.house.schemas import every_column
from tests.house.sentence_numbers import declared, numbers_of

pytestmark = ON_TREES
WORDS_OF_ROOMS = frozenset({"plan_scores", "plan_states", "incident_story", "shortage"})
"""Modules of rooms whose sentences pages and commands show as they are."""
NO_PAGES = ("dashboard/server", "dashboard/access")
LISTED = tomllib.loads((Path(__file__).parent / "sentence_numbers.toml").read_text(encoding="utf-8"))


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of the product by its path in the repository, from the ground up: of two classes of one name the
    upper one counts."""
    upwards = sorted(trees_by_path(), key=lambda path: PACKAGES.index(path.relative_to(ROOT).parts[0]))
    return {path.relative_to(ROOT).as_posix(): (path, trees_by_path()[path]) for path in upwards}


@cache
def names() -> sentence_numbers.Declared:
    kinds: dict[str, set[Kind]] = {}
    for name, column in every_column().items():
        kinds.setdefault(name.partition(".")[2], set()).add(column.kind)
    columns = frozenset(name for name, column_kinds in kinds.items() if Kind.TEXT not in column_kinds)
    return declared([tree for _, tree in sources().values()], columns)


def is_surface(name: str) -> bool:
    """Whether a module writes sentences that people read."""
    of_page = name.startswith("dashboard/") and not name.startswith(NO_PAGES)
    return (
        of_page
        or "/cli/" in name
        or "commands" in name
        or name.startswith("lab/cotenant_lab/demo/")
        or Path(name).stem in WORDS_OF_ROOMS
    )


@cache
def formatted() -> dict[str, str]:
    """Each number of a sentence -> the module that writes it."""
    surfaces = {name: path_and_tree for name, path_and_tree in sources().items() if is_surface(name)}
    return {number: name for name, (path, tree) in surfaces.items() for number in numbers_of(tree, path.stem, names())}


def test_every_number_of_a_sentence_is_a_quantity_of_the_dictionary() -> None:
    listed = [number for part in ("quantities", "others") for group in LISTED[part].values() for number in group]
    new = set(formatted()) - set(listed)
    assert sorted(new) == [], (
        "say in sentence_numbers.toml which quantity it is, and declare it in lab/cotenant_lab/quantities"
    )
    assert sorted(set(listed) - set(formatted())) == [], "no sentence writes it any more"
    assert [number for number, times in Counter(listed).items() if times > 1] == []
    assert sorted(set(LISTED["quantities"]) - set(QUANTITIES)) == [], "no such quantity"


def test_no_sentence_computes_the_number_that_it_writes() -> None:
    """Sums, ratios, rests and extremes have one pure function each, which the dictionary names."""
    free = {number for group in LISTED["others"].values() for number in group}
    surfaces = {name: path_and_tree for name, path_and_tree in sources().items() if is_surface(name)}
    computed = {n for path, tree in surfaces.values() for n in sentence_numbers.computed_in(tree, path.stem, names())}
    assert sorted(computed - free) == [], "call a function of the subject, or of cotenant.base.measures"


@pytest.mark.parametrize(
    "line",
    [
        "f'{used / room:.0%} of it'",
        "f'{sum(one.ready for one in rows)} ready'",
        "f'{max(used, room):.1f} at most'",
        "display.amount(used - room, resource)",
        "f'{(100 * used - room):.1f} %'",
        "f'{display.percent(float(np.median(rows)))}'",
    ],
)
@pytest.mark.parametrize("through", ["", "some", "other"])
def test_arithmetic_in_a_sentence_is_found_also_through_variables(line: str, through: str) -> None:
    """The number stands in the sentence, or one or two assignments before it."""
    (number,) = {
        ast.unparse(ast_node)
        for node in ast.walk(ast.parse(line))
        for ast_node in sentence_numbers._written(node, sentence_numbers.Scope({"used", "room"}, {}, names()))
    }
    before = {"": "", "some": f"    some = {number}\n", "other": f"    some = {number}\n    other = some\n"}[through]
    shown = f"f'{{{through}:,.0f}}'" if through else line
    body = f"def lead(used: float, room: float, rows, resource):\n{before}    return {shown}\n"
    assert sentence_numbers.computed_in(ast.parse(body), "page", names())


@pytest.mark.parametrize(
    "line",
    [
        "f'{used / 1000:.1f} cores'",
        "f'{used / HOUR_SECONDS:.1f} h'",
        "f'{len(rows)} rows'",
        "f'{ratio_of(used, room):.0%}'",
    ],
)
def test_another_unit_a_length_and_a_call_are_no_arithmetic(line: str) -> None:
    body = f"def lead(used: float, room: float, rows):\n    return {line}\n"
    assert sentence_numbers.computed_in(ast.parse(body), "page", names()) == set()


@cache
def number_sources() -> dict[str, sentence_numbers.Made]:
    """What makes each number of a sentence."""
    surfaces = [path_and_tree for name, path_and_tree in sources().items() if is_surface(name)]
    numbers = (sentence_numbers.calls_in(tree, path.stem, names()).items() for path, tree in surfaces)
    return {number: source for items in numbers for number, source in items}


GENERIC = {
    "matching_count": {"matching_count"},
    "by_kind_count": {"Counter", "items", "counted"},
    "left_out_count": {"left_out_count"},
    "age_seconds": {"age_seconds"},
    "length_seconds": {"length_seconds"},
    "named_count": {"len"},
}
"""Quantities of many sentences -> the calls of which one makes their number."""


@pytest.mark.parametrize("key", sorted(GENERIC))
def test_a_number_of_a_general_quantity_is_made_by_the_function_that_the_dictionary_names(key: str) -> None:
    """Or it is handed to the function that writes it, whose callers call that one."""
    wrong = [
        n
        for n in LISTED["quantities"][key]
        if number_sources()[n].calls and not number_sources()[n].calls & GENERIC[key]
    ]
    assert wrong == []


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
    assert number in {text.partition(": ")[2] for text in numbers_of(ast.parse(body), "page", names())}


@pytest.mark.parametrize("line", ["f'{name} is gone'", "f'{title}: {words}'", "raise UsageError(f'{n} is too many')"])
def test_names_words_and_what_errors_repeat_are_no_numbers(line: str) -> None:
    body = f"def lead(name: str, title, words, n: int):\n    {line}\n"
    assert numbers_of(ast.parse(body), "page", names()) == set()
