"""What each surface answers of each stored table, for the comparison that the dictionary of quantities drives.

A reader is asked for a table of one surface and gives rows by the columns' own names, or the part of the rows that it
was asked for. A table or column that the dictionary claims for a surface without a reader here fails the comparison.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import httpx2
from mcp.client import Client

import cotenant
from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import Resource
from cotenant.base.table import Schema
from cotenant.base.usage.week import WEEKS
from cotenant.dashboard import pages
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.mcp_server import server_of
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables import list_page
from cotenant.dashboard.tables.list_page import Listing
from cotenant.python_api.tables import column_name
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import (
    COVERAGE,
    COVERAGE_BY_DAY,
    EVENTS,
    FINDINGS,
    FORECASTS,
    NODES,
    PLANS,
    PODS,
    PORTRAITS,
    RECLAIMABLE,
    RECOMMENDATION_LOG,
    RECOMMENDATIONS,
    REPLICAS,
    WORKLOADS,
    portraits_of,
)
from cotenant_lab.quantities.registry import Surface
from tests.consistency.living import document_of
from tests.consistency.settings import Scene
from tests.support import dashboard as support
from tests.support.command_line import cotenant as command
from tests.support.coroutines import run_coroutine

Row = Mapping[str, Any]
STORED: Final = (
    *(RECOMMENDATIONS, WORKLOADS, NODES, PODS, FORECASTS, PLANS, RECLAIMABLE, FINDINGS, REPLICAS),
    *(PORTRAITS, EVENTS, NODE_HISTORY, RECOMMENDATION_LOG, COVERAGE, COVERAGE_BY_DAY, WEEKS),
)
"""Tables that an analysis writes and the store keeps."""
LISTS: Final[Mapping[str, Listing]] = {
    found.schema.name: found
    for module in pkgutil.iter_modules(pages.__path__, "cotenant.dashboard.pages.")
    for found in vars(importlib.import_module(module.name)).values()
    if isinstance(found, Listing)
}
"""The pages that are one list, by their table: found in the modules of pages."""
SCOPES: Final = tuple((scope, resource.value) for scope in ("cluster", "node", "workload") for resource in Resource)
COMMANDS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    RECOMMENDATIONS.name: (("recs", "list", "--all"),),
    NODES.name: (("get", "reclaimable"),),
    PODS.name: (("get", "pods"),),
    FORECASTS.name: tuple(("get", "forecast", "--scope", s, "--resource", r) for s, r in SCOPES),
    PLANS.name: (("reservations", "list", "--proposed"),),
    RECLAIMABLE.name: (("get", "reclaimable", "--terms"),),
    FINDINGS.name: (("get", "findings"),),
    REPLICAS.name: (("get", "replicas"),),
}
"""Table -> the commands that show its rows, together all of them."""
BY_RESOURCE: Final = frozenset({FORECASTS.name, RECLAIMABLE.name})
"""Tables of which a DataFrame holds one resource."""
FRAMES: Final = (RECOMMENDATIONS, WORKLOADS, NODES, FORECASTS, RECLAIMABLE, FINDINGS)
WORKLOAD: Final = ("namespace", "kind", "workload")
MOST: Final = 3
"""Workloads whose whole story is asked for, and nodes and workloads whose forecasts are, of each setting."""
PIECE: Final = 25
"""Rows that one call of a tool asks for: the length of an answer is bounded."""


@dataclass(frozen=True)
class Shown:
    """Rows that a surface shows. about: the key columns and values that it was asked for; None: all rows."""

    rows: list[Row]
    columns: frozenset[str]
    about: tuple[tuple[str, ...], frozenset[tuple[str, ...]]] | None = None

    def matching(self, rows: Iterable[Row]) -> list[Row]:
        """Of the store's rows those that this answer is about."""
        if self.about is None:
            return list(rows)
        names, values = self.about
        return [row for row in rows if tuple(str(row[name]) for name in names) in values]


def shown_of(rows: Iterable[Row], names: tuple[str, ...] = (), values: Iterable[tuple[str, ...]] = ()) -> Shown:
    """An answer with all columns that any of its rows has."""
    shown_rows = list(rows)
    return Shown(
        shown_rows, frozenset().union(*map(frozenset, shown_rows)), (names, frozenset(values)) if names else None
    )


@dataclass(frozen=True)
class Surfaces:
    """Everything that can be asked under one setting; what several tables need is asked once."""

    cluster: Scene
    _kept: dict[str, list[Row]] = field(default_factory=dict, repr=False)

    def stored(self, schema: Schema) -> list[Row]:
        """Rows of the store, in which a table of each namespace is one."""
        if schema.name not in self._kept:
            self._kept[schema.name] = self._read(schema)
        return self._kept[schema.name]

    def _read(self, schema: Schema) -> list[Row]:
        if schema is not PORTRAITS:
            return list(self.cluster.store.read_table(schema).rows())
        spaces = sorted({row["namespace"] for row in self.stored(WORKLOADS)})
        return [row for space in spaces for row in self._read(portraits_of(space))]

    def may_read(self, schema: Schema, rows: Iterable[Row]) -> list[Row]:
        """Rows that the setting's person asks for and may read, by a rule of the test's own."""
        is_chosen = schema in (WORKLOADS, RECOMMENDATIONS)
        if not is_chosen and self.cluster.setting.reads is None:
            return list(rows)
        return [row for row in rows if not row.get("namespace") or self.cluster.shows(row)]

    def chosen(self) -> list[Row]:
        """The first workloads that the person may read: their stories are asked for."""
        return [row for row in self.stored(WORKLOADS) if self.cluster.shows(row)][:MOST]

    # ---- REST and its exports, with the rights of the setting's person

    @cached_property
    def _view(self) -> View:
        return self.cluster.view

    @cached_property
    def _api(self) -> Any:
        context = DashboardContext(prices=self.cluster.settings.recommender.prices)
        return create_app(self._view.source, support.QUICK, FixedClock(self.cluster.end_seconds), context)

    def _get(self, paths: list[str]) -> list[str]:
        async def ask() -> list[str]:
            transport = httpx2.ASGITransport(app=self._api)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                answers = [await client.get(f"/api/v1/{path}") for path in paths]
            assert [response.text for response in answers if response.status_code >= 400] == []
            return [response.text for response in answers]

        return run_coroutine(ask)

    def rest(self, schema: Schema) -> Iterable[Shown]:
        """The table's endpoint, and the documents that hold its rows."""
        if schema.name in ENDPOINTS:
            yield shown_of(json.loads(self._get([self._path(schema)])[0])["rows"])
        if schema.name in DOCUMENTS:
            yield DOCUMENTS[schema.name](self, lambda texts: [json.loads(text) for text in self._get(texts)])

    def export(self, schema: Schema) -> Iterable[Shown]:
        """The table's endpoint as CSV."""
        (text,) = self._get([f"{self._path(schema)}format=csv"])
        yield shown_of(csv.DictReader(io.StringIO(text, newline="")))

    def _path(self, schema: Schema) -> str:
        return f"{schema.name}?{self._asked(schema)}"

    def _asked(self, schema: Schema) -> str:
        """Namespaces that the setting chooses, for tables that can be narrowed by them."""
        chosen = [f"{part}&" for part in self.cluster.setting.search.split("&") if part.startswith("ns=")]
        return "".join(chosen) if schema in (WORKLOADS, RECOMMENDATIONS) else ""

    # ---- tools of a language model, which read the whole store

    @cached_property
    def _whole(self) -> Any:
        source = StoreSource(self.cluster.store, support.QUICK)
        return create_app(source, support.QUICK, FixedClock(self.cluster.end_seconds), DashboardContext())

    def mcp(self, schema: Schema) -> Iterable[Shown]:
        """The table's tool, piece by piece, and the tools whose documents hold its rows."""
        if schema.name in ENDPOINTS:
            yield shown_of(run_coroutine(lambda: self._pieces(schema)))
        if schema.name in DOCUMENTS:
            yield DOCUMENTS[schema.name](self, self._documents)

    def _documents(self, paths: list[str]) -> list[Any]:
        async def ask() -> list[Any]:
            async with Client(server_of(self._whole)) as client:
                answers = [await client.call_tool(*_as_tool(path)) for path in paths]
            return [document_of(response) for response in answers]

        return run_coroutine(ask)

    async def _pieces(self, schema: Schema) -> list[Row]:
        rows: list[Row] = []
        async with Client(server_of(self._whole)) as client:
            while True:
                response = await client.call_tool(schema.name, {"limit": PIECE, "offset": len(rows)})
                piece = document_of(response)
                rows += piece["rows"]
                if len(rows) >= piece["total"] or not piece["rows"]:
                    return rows

    # ---- the command line, DataFrames, lists of pages

    def cli(self, schema: Schema) -> Iterable[Shown]:
        """What the table's commands print as JSON; the other forms are compared for every schema in test_forms."""
        rows: list[Row] = []
        for arguments in COMMANDS[schema.name]:
            where = ("--store", self.cluster.store.url, "--cluster", self.cluster.setting.cluster, "-o", "json")
            done = command(*arguments, *where, variables={"HOME": str(self.cluster.folder)})
            assert done.returncode == 0, done.stderr
            rows += json.loads(done.stdout)
        yield shown_of(rows)

    def python(self, schema: Schema) -> Iterable[Shown]:
        """The DataFrame of a table, its columns by the store's names."""
        opened = cotenant.open_store(self.cluster.folder, self.cluster.setting.cluster)
        if schema is PORTRAITS:
            yield self._portraits(opened)
            return
        rows: list[Row] = []
        for resource in Resource if schema.name in BY_RESOURCE else (None,):
            arguments = {} if resource is None else {"resource": resource.value}
            frame = getattr(opened, schema.name)(**arguments)
            back = {column_name(column, resource): column.name for column in schema.columns}
            rows += [{back[name]: cell for name, cell in row.items()} for row in frame.to_dict("records")]
        yield shown_of(rows)

    def _portraits(self, opened: cotenant.ClusterStore) -> Shown:
        rows: list[Row] = []
        for resource in Resource:
            unit, names = resource.unit, ("p50", "p90", "p95", "p98", "p99", "maximum")
            rows += [
                {
                    **{name: row[name] for name in WORKLOAD},
                    "resource": resource.value,
                    "heat": row[f"hour_of_week_{unit}"],
                    "bounds": row[f"histogram_bounds_{unit}"],
                    "weights": row["histogram_weights"],
                    "ladder": [row[f"{name}_{unit}"] for name in names],
                }
                for row in opened.portraits(resource=resource.value).to_dict("records")
            ]
        return shown_of(rows)

    def table(self, schema: Schema) -> Iterable[Shown]:
        """The rows that a page's list comes with, its first page; tests/browser has the texts that are made of them."""
        body = list_page.body(LISTS[schema.name], self._view, f"?{self._asked(schema)}")
        (grid,) = [component for component in _walk(body) if _is_grid(component)]
        drawn = {columnDef["field"] for columnDef in grid.columnDefs}
        document = json.loads(grid.dashGridOptions["context"]["first"]["text"])
        rows: list[Row] = [{name: row[name] for name in row if name in drawn} for row in document["rows"]]
        key = schema.key
        yield Shown(rows, frozenset(drawn), (key, frozenset(tuple(str(row[k]) for k in key) for row in rows)))


def _is_grid(component: Any) -> bool:
    return hasattr(component, "columnDefs")


def _walk(component: Any) -> Iterable[Any]:
    yield component
    children = getattr(component, "children", None)
    for child in children if isinstance(children, list | tuple) else (children,):
        if child is not None and not isinstance(child, str | int | float):
            yield from _walk(child)


def _as_tool(path: str) -> tuple[str, dict[str, str]]:
    """The tool and arguments that answer what a path of the REST API answers."""
    parts = path.split("/")
    if parts[0] == "workloads":
        return "workload", dict(zip(("namespace", "kind", "name"), parts[1:], strict=True))
    if parts[0] == "nodes":
        return "node_history", {"node": parts[1]}
    name, _, query = path.partition("?")
    return name, dict(parse_qsl(query))


Ask = Callable[[list[str]], list[Any]]


def _stories(surfaces: Surfaces, ask: Ask, rows_of: Callable[[Any], Iterable[Row]]) -> Shown:
    keys = [tuple(str(row[name]) for name in WORKLOAD) for row in surfaces.chosen()]
    stories = ask([f"workloads/{'/'.join(key)}" for key in keys])
    return shown_of((row for story in stories for row in rows_of(story)), WORKLOAD, keys)


def _hours(surfaces: Surfaces, ask: Ask) -> Shown:
    names = [str(row["node"]) for row in surfaces.stored(NODES)]
    histories = ask([f"nodes/{name}/history" for name in names])
    rows = (
        {"node": name, "resource": resource, **row}
        for name, history in zip(names, histories, strict=True)
        for resource, row in history.items()
    )
    return shown_of(rows, ("node",), [(name,) for name in names])


def _forecasts(surfaces: Surfaces, ask: Ask) -> Shown:
    """One by one, with their lines: of the cluster, the nodes and some workloads."""
    workloads = [tuple(row[name] for name in WORKLOAD) for row in surfaces.chosen()]
    nodes = [("", "", row["node"]) for row in surfaces.stored(NODES)[:MOST]]
    keys = [
        tuple(row[name] for name in FORECASTS.key)
        for row in surfaces.stored(FORECASTS)
        if row["resource"] in tuple(Resource)
        and (row["scope"] == "cluster" or (row["namespace"], row["kind"], row["name"]) in (*workloads, *nodes))
    ]
    forecasts = ask([f"forecast?{urlencode(dict(zip(FORECASTS.key, key, strict=True)))}" for key in keys])
    return shown_of((forecast["forecast"] for forecast in forecasts), FORECASTS.key, keys)


DOCUMENTS: Final[Mapping[str, Callable[[Surfaces, Ask], Shown]]] = {
    FORECASTS.name: _forecasts,
    PORTRAITS.name: lambda s, ask: _stories(s, ask, lambda story: story["portraits"].values()),
    EVENTS.name: lambda s, ask: _stories(s, ask, lambda story: story["events"]),
    RECOMMENDATION_LOG.name: lambda s, ask: _stories(s, ask, lambda story: story["log"]),
    NODE_HISTORY.name: _hours,
    COVERAGE.name: lambda _s, ask: shown_of(ask(["health"])[0]["coverage"]),
    COVERAGE_BY_DAY.name: lambda _s, ask: shown_of(ask(["health"])[0]["coverage_by_day"]),
}
"""Tables whose rows, or lines of them, stand in documents that REST and the tools answer with."""
ENDPOINTS: Final = frozenset(schema.name for schema in STORED[:8])
"""Tables with an endpoint of their own."""
READERS: Final[Mapping[Surface, tuple[Callable[[Surfaces, Schema], Iterable[Shown]], frozenset[str]]]] = {
    Surface.REST: (Surfaces.rest, ENDPOINTS | DOCUMENTS.keys()),
    Surface.MCP: (Surfaces.mcp, ENDPOINTS | DOCUMENTS.keys()),
    Surface.EXPORT: (Surfaces.export, ENDPOINTS),
    Surface.CLI: (Surfaces.cli, frozenset(COMMANDS)),
    Surface.PYTHON: (Surfaces.python, frozenset({*(s.name for s in FRAMES), PORTRAITS.name})),
    Surface.TABLE: (Surfaces.table, frozenset(LISTS)),
}
"""Surface -> how it is asked, and of which tables."""
