"""The dictionary of quantities is whole: keys, functions and units agree, and its page is what the code says."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from typing import Any

import pytest

from cotenant.base.table import Kind
from cotenant.base.tables.quantity import Unit
from cotenant.base.usage.peak import PEAK_NAME
from cotenant_lab.quantities.registry import QUANTITIES, Quantity, by_chapter, every_quantity
from tests.house.rooms import ON_TREES, ROOT, trees_by_path
from tests.house.schemas import every_column
from tools.write_quantities import file, page

pytestmark = ON_TREES
SAYS_UNIT = {
    Unit.MILLICORES: ("millicores", "resource's unit"),
    Unit.CORES: ("cores",),
    Unit.BYTES: ("bytes", "resource's unit"),
    Unit.OF_RESOURCE: ("resource",),
    Unit.RATIO: ("ratio", "share", "0..1"),
    Unit.PERCENT: ("percent",),
    Unit.COUNT: ("count", "number of", "how many", "many", "pods", "fewest", "replicas"),
    Unit.NUMBER: ("",),
    Unit.MONTHLY: ("currency", "money", "month"),
    Unit.DAILY: ("currency", "money", "day"),
    Unit.MONEY: ("currency", "money"),
    Unit.MOMENT: ("seconds", "moment", "when"),
    Unit.SECONDS: ("seconds",),
    Unit.MINUTES: ("minutes",),
    Unit.DAYS: ("days",),
    Unit.CORE_HOURS: ("core-hours", "core_hours"),
    Unit.GIB_HOURS: ("gib-hours", "gib_hours"),
    Unit.NODE_SECONDS: ("node-seconds",),
    Unit.CONTAINER_MINUTES: ("minutes",),
    Unit.CORE_HOURS_DAILY: ("core-hours", "core_hours"),
}
"""Words of a name, a docstring or a type by which a function says its unit."""
KEEPS_UNIT = ("in its unit", "in their unit")
"""Words of a function of a line or of values whose result is in their unit."""
KINDS = {
    Unit.MILLICORES: {Kind.MILLICORES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER},
    Unit.BYTES: {Kind.BYTES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER},
    Unit.OF_RESOURCE: {Kind.MILLICORES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER, Kind.NUMBER},
    Unit.RATIO: {Kind.RATIO, Kind.LIST, Kind.NUMBER},
    Unit.PERCENT: {Kind.NUMBER, Kind.INTEGER},
    Unit.COUNT: {Kind.INTEGER, Kind.LIST, Kind.NUMBER},
    Unit.NUMBER: {Kind.NUMBER, Kind.LIST, Kind.INTEGER},
    Unit.MOMENT: {Kind.TIME, Kind.LIST},
    Unit.SECONDS: {Kind.INTEGER, Kind.NUMBER},
    Unit.DAYS: {Kind.NUMBER, Kind.INTEGER},
}
"""Unit of a quantity -> the kinds that its columns may have; money and the like are numbers."""


def resolved(path: str) -> Any:
    """What a dotted path names: a function, a method, or a dataclass and the name of its field."""
    parts = path.split(".")
    for size in range(len(parts) - 1, 0, -1):
        try:
            resolved_object: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError as error:
            if error.name and not path.startswith(error.name):
                raise
            continue
        for name in parts[size:]:
            owner, resolved_object = resolved_object, getattr(resolved_object, name, None)
            fields = getattr(owner, "__dataclass_fields__", getattr(owner, "__struct_fields__", ()))
            if name in fields:
                return owner, name
            assert resolved_object is not None, f"{path}: {owner} has no {name}"
        return resolved_object
    raise AssertionError(f"{path}: no such module")


def tile_labels(tree: ast.Module) -> set[str]:
    """Names of the tiles that a module draws: the first argument of `panels.stat`, followed through its variables."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    labels: set[str] = set()
    wrappers: set[str] = set()
    for scope in (tree, *functions):
        for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.args):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "stat":
                name = call.args[0]
                if isinstance(name, ast.Name) and isinstance(scope, ast.FunctionDef):
                    if name.id in {argument.arg for argument in scope.args.args}:
                        wrappers.add(scope.name)
                    labels |= _values(scope, name.id)
                labels |= _texts(name)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        if isinstance(call.func, ast.Name) and call.func.id in wrappers:
            labels |= _texts(call.args[0])
    return labels


def _texts(node: ast.expr) -> set[str]:
    """The texts that an expression may be."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values)
        return {"".join(map(str, parts))}
    if isinstance(node, ast.IfExp):
        return _texts(node.body) | _texts(node.orelse)
    return {PEAK_NAME} if isinstance(node, ast.Name) and node.id == "PEAK_NAME" else set()


def _values(scope: ast.FunctionDef, name: str) -> set[str]:
    """What a variable of a function may be: what is assigned to it, or the first of each row that a loop walks."""
    texts: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            texts |= _texts(node.value)
        if not isinstance(node, ast.comprehension) or not isinstance(node.target, ast.Tuple):
            continue
        rows = node.iter
        if isinstance(rows, ast.Name) and ast.unparse(node.target.elts[0]) == name:
            for assign in (ast_node for ast_node in ast.walk(scope) if isinstance(ast_node, ast.Assign)):
                if ast.unparse(assign.targets[0]) == rows.id and isinstance(assign.value, ast.Tuple):
                    texts |= {t for row in assign.value.elts if isinstance(row, ast.Tuple) for t in _texts(row.elts[0])}
    return texts


def words_of(quantity: Quantity) -> str:
    function = resolved(quantity.function)
    last = quantity.function.rpartition(".")[2]
    owner = function[0] if isinstance(function, tuple) else function
    return f"{last} {inspect.getdoc(owner) or ''}".lower()


def test_keys_are_unique_and_names_say_one_thing() -> None:
    keys = Counter(quantity.key for quantity in every_quantity())
    assert [key for key, times in keys.items() if times > 1] == []
    assert [key for key in keys if key != key.lower() or not key.replace("_", "").isalnum()] == []


@pytest.mark.parametrize("chapter", by_chapter())
def test_a_quantity_is_one_sentence_of_one_function_that_says_its_unit(chapter: str) -> None:
    for quantity in by_chapter()[chapter]:
        assert quantity.definition.endswith(".") and quantity.definition == quantity.definition.strip(), quantity
        assert quantity.surfaces or quantity.columns, f"{quantity.key}: nobody shows it"
        assert set(quantity.differs) <= set(quantity.surfaces), quantity
        vocabulary = words_of(quantity)
        columns = [every_column()[column] for column in quantity.columns]
        allowed = KINDS.get(quantity.unit, {Kind.NUMBER})
        assert [column.name for column in columns if column.kind not in allowed] == [], quantity
        if not columns:
            assert any(word in vocabulary for word in (*SAYS_UNIT[quantity.unit], *KEEPS_UNIT)), (
                f"{quantity.function} does not say its unit"
            )


WORDS_OR_DRAWINGS = ("str", "Chart", "Component", "list[str]", "Sequence[str]")
"""Results of functions that write a number and so do not compute it."""


def test_the_function_of_a_quantity_computes_a_number_and_writes_no_words() -> None:
    functions = {quantity.key: resolved(quantity.function) for quantity in every_quantity()}
    results = {k: str(getattr(f, "__annotations__", {}).get("return", "")) for k, f in functions.items() if callable(f)}
    assert [key for key, result in results.items() if result in WORDS_OR_DRAWINGS] == []


def test_a_column_is_one_quantity() -> None:
    claimed = Counter(column for quantity in every_quantity() for column in quantity.columns)
    assert [column for column, times in claimed.items() if times > 1] == []


def test_every_tile_of_a_page_shows_a_quantity() -> None:
    """Its name leads to the definition; a tile that is gone leaves the list."""
    shown = {
        label
        for path, tree in trees_by_path().items()
        if ROOT / "dashboard" in path.parents
        for label in tile_labels(tree)
    }
    of_quantities = [label for quantity in every_quantity() for label in quantity.tiles]
    assert sorted(shown - {*of_quantities}) == [], "say in quantities/numbers.csv which quantity it shows"
    assert sorted({*of_quantities} - shown) == [], "no page has such a tile"
    assert len(of_quantities) == len({*of_quantities}), "a tile shows one quantity"


def test_a_tile_that_nobody_explains_is_found_however_it_is_called() -> None:
    page = ast.parse(
        "def _tile(label, value):\n    return panels.stat(label, value)\n"
        "panels.stat('Plain', 1)\n_tile('Through a helper', 2)\npanels.stat(f'{band} now', 3)\n"
        "def _many():\n    pairs = (('In a row', 1), ('And another', 2))\n"
        "    return [panels.stat(word, number) for word, number in pairs]\n"
    )
    assert tile_labels(page) == {"Plain", "Through a helper", "{…} now", "In a row", "And another"}


BY_HAND = {
    "dashboard/autopilot/policy_editor.py": 2,
    "dashboard/changes/explanation.py": 1,
    "dashboard/changes/proposals.py": 5,
    "dashboard/changes/review_end.py": 3,
    "dashboard/changes/review_steps.py": 2,
    "dashboard/changes/snooze.py": 3,
    "dashboard/changes/verdict.py": 2,
    "dashboard/frame/panels.py": 1,
    "dashboard/frame/table_cells.py": 4,
    "dashboard/nodes/weekly.py": 1,
    "recommender/colocation/batch.py": 1,
    "dashboard/nodes/enforcement.py": 3,
    "dashboard/nodes/lent_now.py": 1,
    "dashboard/nodes/pods_of_node.py": 2,
    "dashboard/nodes/policy_offer.py": 1,
    "dashboard/changes/select_bar.py": 6,
    "dashboard/sources/workload_story.py": 1,
    "dashboard/pages/autopilot.py": 2,
    "dashboard/pages/batch.py": 5,
    "dashboard/pages/forecast.py": 4,
    "dashboard/pages/health.py": 10,
    "dashboard/home/overview.py": 4,
    "dashboard/pages/portrait.py": 1,
    "dashboard/pages/queues.py": 5,
    "dashboard/pages/rebalance.py": 2,
    "dashboard/pages/review.py": 1,
    "dashboard/pages/what_if.py": 4,
    "dashboard/reservations/board.py": 6,
    "dashboard/reservations/plan_actions.py": 3,
    "dashboard/reservations/plan_page.py": 2,
    "dashboard/reservations/proposed_plans.py": 2,
    "base/tables/filters.py": 2,
    "dashboard/tables/list_page.py": 3,
    "dashboard/tables/savings.py": 1,
    "base/tables/time_span.py": 1,
}
"""Numbers that a module of pages formats by hand, not by the helpers of a unit. Each count only gets smaller."""
FOLDERS = ("autopilot", "changes", "frame", "nodes", "pages", "reservations", "tables")


def formatted_by_hand(tree: ast.Module) -> int:
    """How many numbers a module writes with a format of its own: `{value:,.1f}`, `{share:.0%}`."""
    specs = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.format_spec.values)
        for node in ast.walk(tree)
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr)
    ]
    return sum(spec.endswith(("f", "%", "e")) or "," in spec for spec in specs)


def test_no_module_of_pages_comes_to_format_more_numbers_by_hand() -> None:
    """`figures/display.py` knows how each unit is written; an amount has no place in a format of a page."""
    folders = (ROOT / "base" / "tables", *(ROOT / "dashboard" / folder for folder in FOLDERS))
    of_pages = {path: tree for path, tree in trees_by_path().items() if {*folders} & {*path.parents}}
    counts = {
        str(p.relative_to(ROOT)): formatted_by_hand(tree) for p, tree in of_pages.items() if p.name != "display.py"
    }
    more = {name: count for name, count in counts.items() if count > BY_HAND.get(name, 0)}
    assert more == {}, "format it by its unit: dashboard/figures/display.py, dashboard/frame/panels.py"


def test_every_number_of_a_table_is_in_the_dictionary() -> None:
    claimed = {column for quantity in every_quantity() for column in quantity.columns}
    numbers = {name for name, column in every_column().items() if column.kind is not Kind.TEXT}
    assert sorted(numbers - claimed) == [], "declare it in lab/cotenant_lab/quantities"
    assert sorted(claimed - numbers) == [], "no such column"


def test_page_and_file_are_what_the_dictionary_says_and_the_page_stays_short() -> None:
    """`make docs` renews them."""
    assert (ROOT / "docs" / "quantities.md").read_text(encoding="utf-8") == page()
    assert (ROOT / "docs" / "quantities.csv").read_text(encoding="utf-8") == file()
    assert len(page().split()) <= 4_000


def test_what_thresholds_are_compared_with_and_the_peak_of_pages_are_named_apart() -> None:
    peak = QUANTITIES["peak"]
    assert "5 min" in peak.name and peak.resolution == "5 minutes"
    for key, use in {"highest_half_hour_ratio": "thresholds for moves", "highest_half_hour_p95": "thresholds"}.items():
        quantity = QUANTITIES[key]
        assert "half hour" in quantity.name and "peak" not in quantity.name and quantity.resolution == "half hour"
        assert use in quantity.definition and use not in peak.definition


def test_confidence_is_three_words_for_people_and_no_probability_anywhere() -> None:
    """Its score orders and compares; a percentage is shown of what is calibrated alone, and this is not."""
    score = QUANTITIES["confidence_score"]
    assert score.unit is Unit.NUMBER and "no probability" in score.definition
    columns = {name: column for name, column in every_column().items() if ".confidence" in name}
    assert {name.rpartition(".")[2]: column.kind for name, column in columns.items()} == {
        "confidence_level": Kind.TEXT, "confidence_reason": Kind.TEXT, "confidence": Kind.NUMBER,
    }  # fmt: skip
    assert all(
        column.wide and "no probability" in column.doc for n, column in columns.items() if n.endswith("confidence")
    )
    texts = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").rglob("*.ipynb"), *(ROOT / "deploy").rglob("*.yaml")]
    offences = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path in (*texts, ROOT / "README.md")
        for line in path.read_text(encoding="utf-8").split("\n")
        if re.search(r"confidence[^.|]{0,30}(\d %|\d%|probab|percent)", line, re.IGNORECASE) and "no probab" not in line
    ]
    assert offences == []


def test_a_notebook_shows_the_words_of_confidence_and_not_its_score() -> None:
    cells = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert "confidence_level" in cells and '\\"confidence\\"' not in cells
