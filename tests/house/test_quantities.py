"""The dictionary of quantities is whole: keys, functions and units agree, and its page is what the code says."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from typing import Any

import pytest

from cotenant.core.model.quantities.quantity import Quantity, Unit
from cotenant.core.model.quantities.registry import by_chapter, every_quantity
from cotenant.core.model.table import Kind
from tests.house.schemas import every_column
from tests.house.test_style import ROOT
from tools.write_quantities import page

SAYS_UNIT = {
    Unit.MILLICORES: ("millicores", "resource's unit"),
    Unit.BYTES: ("bytes", "resource's unit"),
    Unit.OF_RESOURCE: ("resource",),
    Unit.RATIO: ("ratio", "share", "0..1"),
    Unit.PERCENT: ("percent",),
    Unit.COUNT: ("count", "number of", "how many", "many", "pods", "fewest", "replicas"),
    Unit.NUMBER: ("",),
    Unit.MONEY_PER_MONTH: ("currency", "money", "month"),
    Unit.MONEY_PER_DAY: ("currency", "money", "day"),
    Unit.MOMENT: ("seconds", "moment", "when"),
    Unit.SECONDS: ("seconds",),
    Unit.MINUTES: ("minutes",),
    Unit.DAYS: ("days",),
    Unit.CORE_HOURS: ("core-hours", "core_hours"),
    Unit.NODE_SECONDS: ("node-seconds",),
    Unit.CONTAINER_MINUTES: ("minutes",),
    Unit.CORE_HOURS_PER_DAY: ("core-hours", "core_hours"),
}
"""Words of a name, a docstring or a type by which a function says its unit."""
KINDS = {
    Unit.MILLICORES: {Kind.MILLICORES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER},
    Unit.BYTES: {Kind.BYTES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER},
    Unit.OF_RESOURCE: {Kind.MILLICORES, Kind.AMOUNT, Kind.LIST, Kind.INTEGER, Kind.NUMBER},
    Unit.RATIO: {Kind.RATIO, Kind.LIST, Kind.NUMBER},
    Unit.PERCENT: {Kind.NUMBER, Kind.INTEGER},
    Unit.COUNT: {Kind.INTEGER, Kind.LIST, Kind.NUMBER},
    Unit.NUMBER: {Kind.NUMBER, Kind.LIST},
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
            found: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError as error:
            if error.name and not path.startswith(error.name):
                raise
            continue
        for name in parts[size:]:
            owner, found = found, getattr(found, name, None)
            fields = getattr(owner, "__dataclass_fields__", {})
            if name in fields:
                return owner, name
            assert found is not None, f"{path}: {owner} has no {name}"
        return found
    raise AssertionError(f"{path}: no such module")


def words_of(quantity: Quantity) -> str:
    found = resolved(quantity.function)
    last = quantity.function.rpartition(".")[2]
    owner = found[0] if isinstance(found, tuple) else found
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
        words = words_of(quantity)
        columns = [every_column()[column] for column in quantity.columns]
        allowed = KINDS.get(quantity.unit, {Kind.NUMBER})
        assert [column.name for column in columns if column.kind not in allowed] == [], quantity
        if not columns:
            assert any(word in words for word in SAYS_UNIT[quantity.unit]), f"{quantity.function} does not say its unit"


def test_a_column_is_one_quantity() -> None:
    claimed = Counter(column for quantity in every_quantity() for column in quantity.columns)
    assert [column for column, times in claimed.items() if times > 1] == []


OTHERS = {
    "forecast_scores", "forecast_coverage", "policy_scores", "simulated_sharing", "why", "node-status", "node-replay",
    "node-topology", "reservation_plans", "peak_replays", "plan_scores", "plan_backtest",
}  # fmt: skip
"""Tables of single commands whose columns are explained by the command alone. This list only gets shorter."""


def test_every_number_of_a_table_is_in_the_dictionary() -> None:
    claimed = {column for quantity in every_quantity() for column in quantity.columns}
    numbers = {name for name, column in every_column().items() if column.kind is not Kind.TEXT}
    missing = {name for name in numbers - claimed if name.partition(".")[0] not in OTHERS}
    assert sorted(missing) == [], "declare it in cotenant/core/model/quantities"
    assert sorted(claimed - numbers) == [], "no such column"
    tables_without = {name.partition(".")[0] for name in numbers - claimed}
    assert sorted(OTHERS - tables_without) == [], "these are whole now: take them off the list"


def test_the_page_is_what_the_dictionary_says() -> None:
    """`make docs` renews it."""
    assert (ROOT / "docs" / "quantities.md").read_text(encoding="utf-8") == page()
