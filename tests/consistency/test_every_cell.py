"""Each cell of each result table is one value in the store, REST, CSV exports, the command line and Python."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

import cotenant
from cotenant.base.table import Kind, Schema
from cotenant.dashboard.rest import results
from cotenant.dashboard.sources.source import SCHEMAS
from cotenant.python_api.tables import column_name
from cotenant.quantities.quantity import Surface
from cotenant.quantities.registry import every_quantity
from cotenant.recommender.model.views import (
    FINDINGS,
    FORECASTS,
    NODES,
    PLANS,
    PODS,
    RECLAIMABLE,
    RECOMMENDATIONS,
    REPLICAS,
    WORKLOADS,
)
from tests.consistency.settings import Scene
from tests.support.command_line import cotenant as command

pytestmark = [pytest.mark.slow]
TABLES = (WORKLOADS, RECOMMENDATIONS, NODES, PODS, FORECASTS, PLANS, RECLAIMABLE, FINDINGS, REPLICAS)
WORDS = {
    RECOMMENDATIONS.name: ("recs", "list", "--all"),
    FINDINGS.name: ("get", "findings"),
    PODS.name: ("get", "pods"),
    REPLICAS.name: ("get", "replicas"),
    NODES.name: ("get", "reclaimable"),
    RECLAIMABLE.name: ("get", "reclaimable", "--terms"),
}
"""The command that shows a table."""
FRAMES = {one.name for one in (WORKLOADS, RECOMMENDATIONS, NODES, FINDINGS)}
Row = Mapping[str, Any]


def numbers(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns if column.kind not in (Kind.TEXT, Kind.LIST)]


def keyed(schema: Schema, rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    found = {tuple(str(row[name]) for name in schema.key): row for row in rows}
    assert found or schema is REPLICAS or schema is FINDINGS or schema is PLANS, f"{schema.name} is empty"
    return found


def value(cell: Any) -> float | None:
    """A cell of any surface as a number; None where it is missing."""
    if cell is None or str(cell) in ("", "<NA>", "NaT", "nan"):
        return None
    return float(cell.timestamp()) if hasattr(cell, "timestamp") else float(cell)


def differences(schema: Schema, want: Iterable[Row], got: Iterable[Row], names: Sequence[str]) -> Iterator[str]:
    expected, found = keyed(schema, want), keyed(schema, got)
    yield from (f"{schema.name}: only one has {key}" for key in expected.keys() ^ found.keys())
    for key in expected.keys() & found.keys():
        for name in names:
            if name not in found[key]:
                continue
            ours, theirs = value(expected[key][name]), value(found[key][name])
            if (ours is None) != (theirs is None) or (ours is not None and not math.isclose(ours, theirs or 0.0)):
                yield f"{schema.name} {key} {name}: {ours} and {theirs}"


def rest(shown: Scene, schema: Schema, form: str) -> list[Row]:
    """What the endpoint answers; MCP's tools answer with the same endpoint."""
    snapshot = shown.view.source.snapshot()
    filters = shown.setting.search if schema.name in {WORKLOADS.name, RECOMMENDATIONS.name} else ""
    chosen = "&".join(part for part in filters.split("&") if part.startswith("ns="))
    answer = results.answer(snapshot, schema, chosen, form, slice(0, 900))
    text = bytes(answer.body).decode()
    return list(csv.DictReader(io.StringIO(text, newline=""))) if form == "csv" else json.loads(text)["rows"]


def narrowed(shown: Scene, schema: Schema, rows: Iterable[Row]) -> list[Row]:
    """Rows of the store that the setting's person asks for and may read, chosen by a rule of the test's own."""
    asked = schema.name in {WORKLOADS.name, RECOMMENDATIONS.name}
    if not asked and shown.setting.reads is None:
        return list(rows)
    return [row for row in rows if not row.get("namespace") or shown.shows(row)]


def stored(shown: Scene, schema: Schema) -> list[Row]:
    return list(shown.store.read_table(schema).rows())


@pytest.mark.parametrize("schema", [one for one in TABLES if one.name in SCHEMAS], ids=lambda one: one.name)
def test_rest_and_its_exports_show_what_is_stored(shown: Scene, schema: Schema) -> None:
    want = narrowed(shown, schema, stored(shown, schema))
    for form in ("json", "csv"):
        got = rest(shown, schema, form)
        assert list(differences(schema, want, got, numbers(schema))) == [], form


@pytest.mark.parametrize("schema", [one for one in TABLES if one.name in WORDS], ids=lambda one: one.name)
def test_the_command_line_shows_what_is_stored_in_each_form(shown: Scene, schema: Schema) -> None:
    want = stored(shown, schema)
    for form, parsed in (("json", json.loads), ("yaml", yaml.safe_load), ("csv", _of_csv)):
        words = ("--store", shown.store.url, "--cluster", shown.setting.cluster, "-o", form)
        done = command(*WORDS[schema.name], *words, variables={"HOME": str(shown.folder)})
        assert done.returncode == 0, done.stderr
        got = parsed(done.stdout)
        assert list(differences(schema, want, got, numbers(schema))) == [], form


def _of_csv(text: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_frames_of_python_show_what_is_stored(shown: Scene) -> None:
    opened = cotenant.open_store(shown.folder, shown.setting.cluster)
    for schema in (one for one in TABLES if one.name in FRAMES):
        frame = getattr(opened, schema.name)()
        back = {column_name(schema.name, column, None): column.name for column in schema.columns}
        got = [{back[name]: cell for name, cell in row.items()} for row in frame.to_dict("records")]
        assert list(differences(schema, stored(shown, schema), got, numbers(schema))) == [], schema.name


def test_every_column_of_these_tables_is_a_quantity_that_says_where_it_is_shown() -> None:
    of_column = {column: one for one in every_quantity() for column in one.columns}
    for schema in TABLES:
        for name in numbers(schema):
            quantity = of_column[f"{schema.name}.{name}"]
            assert quantity.differs or {Surface.TABLE, Surface.REST} & set(quantity.surfaces), quantity.key
