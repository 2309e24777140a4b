"""What REST and MCP answer of one workload, node or forecast, line by line, is what the analysis stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from mcp.client import Client
from mcp.server.lowlevel import Server

from cotenant.base.process.clock import FixedClock
from cotenant.base.table import Kind, Schema
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.mcp_server import server_of
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.colocation.model.lendable_tables import NODE_HISTORY
from cotenant.recommender.model.views import (
    COVERAGE,
    COVERAGE_BY_DAY,
    FORECASTS,
    NODES,
    PORTRAITS,
    WORKLOADS,
    portraits_of,
)
from tests.consistency.settings import Scene
from tests.consistency.test_every_cell import stored, value
from tests.support import dashboard as support

pytestmark = [pytest.mark.slow]
Row = Mapping[str, Any]
Question = tuple[str, dict[str, Any]]
MOST = 6
"""Workloads whose whole story is read."""
WORKLOAD = ("namespace", "kind", "workload")


async def _asked(server: Server[dict[str, object]], questions: Iterable[Question]) -> list[Any]:
    async with Client(server) as client:
        answers = [await client.call_tool(tool, arguments) for tool, arguments in questions]
    return [json.loads(answer.content[0].text) for answer in answers]


def answers(shown: Scene, questions: Iterable[Question]) -> list[Any]:
    """What the tools answer, which is what REST answers: they are made of its endpoints."""
    source = StoreSource(shown.store, support.QUICK)
    api = create_app(source, support.QUICK, FixedClock(shown.end_seconds), DashboardContext())
    with ThreadPoolExecutor(1) as other_thread:  # a test of browsers in this process leaves its event loop running
        return other_thread.submit(asyncio.run, _asked(server_of(api), questions)).result()


def flat(cell: Any) -> Iterator[float | None]:
    """The numbers of a cell, of a line in their order."""
    if isinstance(cell, list | tuple | np.ndarray):
        for inner in cell:
            yield from flat(inner)
    else:
        yield value(cell)


def differences(schema: Schema, want: Row, got: Row) -> Iterator[str]:
    """Numbers and lines of a row that an answer has otherwise, or lacks."""
    for column in schema.columns:
        if column.kind is Kind.TEXT:
            continue
        ours, theirs = list(flat(want[column.name])), list(flat(got[column.name]))
        if ours != theirs:
            yield f"{schema.name} {column.name}: {ours[:3]} and {theirs[:3]}"


def by_resource(rows: Iterable[Row], names: Iterable[str], key: Row) -> dict[str, Row]:
    return {row["resource"]: row for row in rows if all(row[name] == key[name] for name in names)}


def test_the_whole_story_of_a_workload_is_what_is_stored(shown: Scene) -> None:
    rows = [row for row in stored(shown, WORKLOADS) if shown.shows(row)][:MOST]
    forecasts = [row for row in stored(shown, FORECASTS) if row["scope"] == "workload"]
    told = answers(shown, [("workload", {"namespace": row["namespace"], "kind": row["kind"], "name": row["workload"]})
                           for row in rows])  # fmt: skip
    lines = 0
    for row, story in zip(rows, told, strict=True):
        assert list(differences(WORKLOADS, row, story["workload"])) == []
        ours = by_resource(stored(shown, portraits_of(row["namespace"])), WORKLOAD, row)
        assert ours.keys() == story["portraits"].keys() and ours
        ahead = by_resource(forecasts, ("namespace", "kind", "name"), {**row, "name": row["workload"]})
        assert ahead.keys() == story["forecasts"].keys()
        for schema, want, got in (
            (PORTRAITS, ours, story["portraits"]), (FORECASTS, ahead, story["forecasts"]),
        ):  # fmt: skip
            for resource, one in want.items():
                assert list(differences(schema, one, got[resource])) == []
                lines += 1
    assert lines > MOST


def test_the_hours_of_a_node_are_what_is_stored(shown: Scene) -> None:
    names = [row["node"] for row in stored(shown, NODES)]
    history = stored(shown, NODE_HISTORY)
    for name, told in zip(names, answers(shown, [("node_history", {"node": name}) for name in names]), strict=True):
        want = by_resource(history, ("node",), {"node": name})
        assert want.keys() == told.keys() and want
        for resource, row in want.items():
            assert list(differences(NODE_HISTORY, row, told[resource])) == [], name


def test_a_forecast_asked_for_by_name_is_the_stored_one(shown: Scene) -> None:
    rows = [row for row in stored(shown, FORECASTS) if row["scope"] in ("node", "cluster")]
    told = answers(shown, [
        ("forecast", {name: row[name] for name in ("scope", "name", "resource", "namespace", "kind")}) for row in rows
    ])  # fmt: skip
    assert {row["scope"] for row in rows} == {"node", "cluster"}
    for row, answer in zip(rows, told, strict=True):
        assert list(differences(FORECASTS, row, answer["forecast"])) == [], row["name"]


def test_data_quality_is_what_is_stored(shown: Scene) -> None:
    (told,) = answers(shown, [("health", {})])
    for schema, key, name in ((COVERAGE, "namespace", "coverage"), (COVERAGE_BY_DAY, "day", "coverage_by_day")):
        want, got = {r[key]: r for r in stored(shown, schema)}, {r[key]: r for r in told[name]}
        assert want.keys() == got.keys() and want
        for which, row in want.items():
            assert list(differences(schema, row, got[which])) == [], which
