"""Every column of every stored table is one value on every surface that the dictionary of quantities names for it.

Nothing here names a column: a new one is compared the day it is declared, on each surface that its table claims. A
surface that shows another value on purpose has its reason in the quantity's `differs`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from cotenant.base.table import Kind, Schema
from cotenant.base.text import csv_text
from cotenant_lab.quantities.registry import Quantity, Surface, every_quantity, surfaces_of_columns
from tests.consistency.settings import Scene
from tests.consistency.surfaces import READERS, STORED, Row, Shown, Surfaces

pytestmark = [pytest.mark.slow]
OF_COLUMN: Mapping[str, Quantity] = {column: one for one in every_quantity() for column in one.columns}
SHOWN: Mapping[str, tuple[Surface, ...]] = surfaces_of_columns()
OPTIONAL = frozenset({"replicas", "findings", "plans", "events"})
"""Tables that a cluster may have no rows of."""


@pytest.fixture(scope="module")
def surfaces(shown: Scene) -> Surfaces:
    return Surfaces(shown)


def claimed(schema: Schema, surface: Surface) -> set[str]:
    """Columns with numbers that the dictionary says this surface shows."""
    columns = (column.name for column in schema.columns if column.kind is not Kind.TEXT)
    return {name for name in columns if surface in SHOWN[f"{schema.name}.{name}"]}


def plain(kind: Kind, cell: Any) -> Any:
    """A cell of any surface as text, number, None or a tuple of them."""
    if kind is Kind.LIST:
        cells = json.loads(cell) if isinstance(cell, str) else cell
        return tuple(_number(inner) for inner in np.asarray(cells, dtype=object).ravel())
    return str(cell) if kind is Kind.TEXT else _number(cell)


def _number(cell: Any) -> float | None:
    if cell is None or str(cell) in ("", "<NA>", "NaT", "nan"):
        return None
    return float(cell.timestamp()) if hasattr(cell, "timestamp") else float(cell)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second)
    return bool(first == second)


def differences(schema: Schema, surface: Surface, stored: list[Row], shown: Shown) -> Iterator[str]:
    """Cells that a surface shows otherwise than the store has them, rows that one of both lacks."""

    def keyed(rows: list[Row]) -> dict[tuple[str, ...], Row]:
        by_key = {tuple(str(row[name]) for name in schema.key): row for row in rows}
        assert len(by_key) == len(rows), f"{schema.name} on {surface}: rows of one key"
        return by_key

    want, got = keyed(stored), keyed(shown.rows)
    yield from (f"only one of both has {key}" for key in want.keys() ^ got.keys())
    for column in schema.columns:
        name = column.name
        if name not in shown.columns or surface in getattr(OF_COLUMN.get(f"{schema.name}.{name}"), "differs", ()):
            continue
        for key in want.keys() & got.keys():
            ours, theirs = (plain(column.kind, cell) for cell in (want[key][name], got[key][name]))
            if surface is Surface.EXPORT and column.kind is Kind.TEXT:
                ours = csv_text(ours)
            if not same(ours, theirs):
                yield f"{name} of {key}: {ours} and {theirs}"


@pytest.mark.parametrize("schema", STORED, ids=lambda entry: entry.name)
def test_every_column_is_what_is_stored_on_every_surface_of_the_dictionary(surfaces: Surfaces, schema: Schema) -> None:
    stored = surfaces.stored(schema)
    assert stored or schema.name in OPTIONAL
    for surface, (read, tables) in READERS.items():
        columns = claimed(schema, surface)
        if schema.name not in tables:
            assert not columns, f"{surface} shows no {schema.name}, and the dictionary says that it does"
            continue
        narrow = surface in (Surface.REST, Surface.EXPORT, Surface.TABLE)
        rows, answered = surfaces.may_read(schema, stored) if narrow else stored, set[str]()
        for shown in read(surfaces, schema):
            texts = list(differences(schema, surface, shown.matching(rows), shown))
            assert texts[:5] == [], f"{schema.name} on {surface}: {len(texts)} differences"
            answered |= shown.columns
        numeric = {column.name for column in schema.columns if column.kind is not Kind.TEXT}
        if rows and answered:
            assert answered & numeric == columns, f"{schema.name} on {surface}: the dictionary names other columns"
