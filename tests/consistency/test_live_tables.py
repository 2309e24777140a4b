"""Tables that come from the cluster and not from the store are one value on every surface that shows them.

One living cluster in this process, whose clock is days behind this machine's and stands still: commands count ages and
windows by the cluster's time, as its page does.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import unescape
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
from dash import html

import cotenant
from cotenant.autopilot import model as autopilot
from cotenant.base.amount_text import money
from cotenant.base.resource import GIB, Resource
from cotenant.base.store import Store
from cotenant.base.table import Kind, Schema
from cotenant.base.tables.quantity import Unit
from cotenant.changes.model import tables as changes
from cotenant.changes.model.ladder_tables import LADDERS, RUNGS
from cotenant.dashboard import pages
from cotenant.dashboard.changes import ladders
from cotenant.dashboard.commands.dashboard import ServedCluster, application
from cotenant.dashboard.figures import display
from cotenant.dashboard.pages import rebalance
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT
from cotenant.python_api.tables import column_name
from cotenant.recommender.model.clusters import CLUSTERS
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.scheduler_ext.cluster_size import tables as size
from cotenant.scheduler_ext.queues.model.tables import GANGS, QUOTAS, WAITING_PODS
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, JOBS, MOVES, NODES
from cotenant.scheduler_ext.reservations.commands.rows import RESERVATION_PLANS, SCORES
from cotenant_lab.quantities.registry import TABLES, Surface
from tests.consistency.living import BEHIND_SECONDS, SNOOZED_DAYS, Living, Row, living_cluster
from tests.consistency.surfaces import _is_grid, _walk
from tests.consistency.test_charts import drawn, floats
from tests.consistency.test_every_column import OF_COLUMN, plain, same
from tests.support.command_line import cotenant as command
from tests.support.component_text import text_of
from tests.support.coroutines import run_coroutine

pytestmark = [pytest.mark.slow, pytest.mark.server]
DESCHEDULER = ("serve", "descheduler", "--once", "--show")
Rows = list[Row]


def all_rows(document: Any) -> Rows:
    """Of an endpoint of a table, or of a list."""
    return list(document["rows"] if isinstance(document, dict) else document)


@dataclass(frozen=True)
class LiveTable:
    """Where a live table is read: its endpoint below api/v1, its command and its tool, if it has them.

    rows: the table's rows of the endpoint's document.
    """

    schema: Schema
    path: str
    words: tuple[str, ...] = ()
    may_be_empty: bool = False
    rows: Callable[[Any], Rows] = all_rows
    tool: tuple[str, Mapping[str, Any]] = ("", {})


SIZE_PARTS: Mapping[str, Schema] = {
    "nodes": size.NODES,
    "moves": size.MOVES,
    "steps": size.STEPS,
    "obstacles": size.OBSTACLES,
    "mix": size.MIX,
    "bills": size.BILLS,
}
"""The tables of the answer for one level of requests, by their names in its document."""
LIVE_NODES = LiveTable(NODES, "rebalance/nodes", (*DESCHEDULER, "nodes"))
LIVE = (
    LiveTable(RECOMMENDATIONS, "recommendations", ("recs", "list", "--all"), tool=("recommendations", {"limit": 100})),
    LiveTable(QUOTAS, "queues/quotas", ("get", "quotas")),
    LiveTable(WAITING_PODS, "queues/pods", ("get", "waiting"), may_be_empty=True),
    LiveTable(GANGS, "queues/gangs", ("get", "gangs")),
    LIVE_NODES,
    LiveTable(MOVES, "rebalance/moves", (*DESCHEDULER, "moves"), may_be_empty=True),
    LiveTable(
        EMPTYING, "rebalance/emptying", (*DESCHEDULER, "emptying", "--plugin", "HighNodeLoad"), may_be_empty=True
    ),
    LiveTable(JOBS, "rebalance/jobs", may_be_empty=True),
    LiveTable(autopilot.STATUS, "autopilot/status", ("autopilot", "status")),
    LiveTable(autopilot.QUEUE, "autopilot/queue", ("autopilot", "preview")),
    LiveTable(autopilot.QUEUE, "autopilot/preview", ("autopilot", "preview", "--in-window")),
    LiveTable(autopilot.REPORT, "autopilot/report", ("autopilot", "report"), may_be_empty=True),
    LiveTable(changes.CHANGES, "changes", ("recs", "changes")),
    LiveTable(changes.ENTRIES, "ledger/entries", ("audit", "export")),
    LiveTable(LADDERS, "ladders", ("recs", "ladders"), rows=lambda found: [one["ladder"] for one in found]),
    LiveTable(ENFORCEMENT, "enforcement", ("node", "enforcement", "list"), tool=("enforcement", {"limit": 100})),
)


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    with living_cluster(tmp_path_factory.mktemp("living")) as running_demo:
        yield running_demo


def differences(schema: Schema, want: list[Row], got: list[Row], apart_seconds: float) -> Iterator[str]:
    """Cells that differ; ages by more than the time between the two questions."""
    assert len(got) == len(want), (schema.name, want, got)
    for ours, theirs in zip(_sorted(schema, want), _sorted(schema, got), strict=True):
        for column in schema.columns:
            first, second = (plain(column.kind, row[column.name]) for row in (ours, theirs))
            quantity = OF_COLUMN.get(f"{schema.name}.{column.name}")
            ages = quantity is not None and quantity.unit is Unit.SECONDS and None not in (first, second)
            if not (same(first, second) or (ages and abs(first - second) <= apart_seconds)):
                yield f"{schema.name}.{column.name} of {[ours[k] for k in schema.key]}: {first} and {second}"


def _sorted(schema: Schema, rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in schema.key])


@pytest.mark.parametrize("live", LIVE, ids=lambda entry: entry.path.replace("/", "-"))
def test_a_live_table_is_the_same_on_the_command_line_in_rest_in_its_export_and_for_tools(
    living: Living, live: LiveTable
) -> None:
    before = time.monotonic()
    want = live.rows(json.loads(living.rest(live.path)))
    assert want or live.may_be_empty, f"{live.path} has no rows to compare"
    if Surface.EXPORT in surfaces_of(live.schema):
        text = living.rest(f"{live.path}?format=csv")
        exported: list[Row] = list(csv.DictReader(io.StringIO(text, newline="")))
        numbers = replace(
            live.schema,
            columns=tuple(c for c in live.schema.columns if c.kind is not Kind.TEXT or c.name in live.schema.key),
        )
        assert list(differences(numbers, want, exported, time.monotonic() - before)) == []
    if live.words:
        got = living.printed(*live.words)
        # The cluster's clock stands still while a command counts on from the last answer, in whole seconds.
        assert list(differences(live.schema, want, got, 1 + time.monotonic() - before)) == []
    name, arguments = live.tool
    if name:
        answered = live.rows(living.tool(name, **arguments))
        assert list(differences(live.schema, want, answered, 1 + time.monotonic() - before)) == []


def surfaces_of(schema: Schema) -> tuple[Surface, ...]:
    return next(subject.surfaces for subject in TABLES if subject.schema.name == schema.name)


@pytest.mark.parametrize("level", ["now", "all-steps"])
def test_the_size_of_a_cluster_is_one_answer_on_every_surface(living: Living, level: str) -> None:
    """The command computes and stores it; REST, tools, Python and the page have what is stored."""
    done = living.command(*living.size, "--requests", level, "--show", "all", "-o", "json")
    want = json.loads(living.rest(f"cluster-size/{level}"))
    assert json.loads(done.stdout) == want == living.tool("cluster_size_rows", requests=level)
    opened = cotenant.open_store(living.store.url, living.store.cluster)
    for part, schema in SIZE_PARTS.items():
        back = {column_name(column, None): column.name for column in schema.columns}
        records = opened.cluster_size(requests=level, rows=part).to_dict("records")
        got: list[Row] = [{back[name]: cell for name, cell in row.items()} for row in records]
        assert list(differences(schema, want[part], got, 0)) == [], part
    totals = json.loads(living.rest("cluster-size"))
    assert totals == living.tool("cluster_size")
    (of_level,) = (entry for entry in totals["levels"] if entry["level"] == want["level"])
    assert {name: want[name] for name in of_level} == of_level
    currency, mix, bound = totals["currency"], want["mix_month"], want["mix_lower_bound_month"]
    alone = totals["batch_on_lent_capacity"]
    page = text_of(
        next(entry for entry in pages.ALL if entry.path == "cluster-size").render(living.view, f"?show={level}")
    )
    of_mix = f"No mix of machine types: {want['mix_reason']}"
    if mix is not None:
        of_mix = f"{money(mix, currency)} a month"
        of_mix += f", {mix / bound:.2f} x the lowest possible price ({money(bound, currency)})" if bound else ""
    of_batch = f"batch would cost {money(alone['price_month'], currency)} a month"
    assert all(phrase in page and phrase in done.stderr for phrase in (of_mix, of_batch))


def test_each_step_of_a_ladder_is_the_same_on_the_command_line_and_in_rest(living: Living) -> None:
    ladders = json.loads(living.rest("ladders"))
    assert ladders
    for ladder in ladders:
        got = living.printed("recs", "ladders", ladder["ladder"]["ladder"])
        assert list(differences(RUNGS, ladder["rungs"], got, 0)) == [] and len(got) > 1


def test_a_plan_and_its_scores_are_the_same_on_the_command_line_and_in_rest(living: Living) -> None:
    # the demo may have made a plan too, by the hour
    (document,) = (plan for plan in json.loads(living.rest("reservations")) if plan["reports"])
    (row,) = (row for row in living.printed("reservations", "list") if row["plan"] == document["plan"]["name"])
    plan, status = document["plan"], document["plan"]["status"]
    window, score = status["window"], status["score"]
    want = {
        "pods": document["wanted_pods"], "there": document["available_pods"], "standby": plan["standby"],
        "quantile": plan["quantile"], "start": window["start_seconds"], "end": window["end_seconds"],
        "reserve_at": status["reserve_at_seconds"], "hit": score["hit_ratio"], "expected_hit": status["expected"],
        "coverage": document["reports"][0]["coverage"], "idle_core_hours": score["idle_core_hours"],
    }  # fmt: skip
    assert want.keys() == numbers_of(RESERVATION_PLANS)
    assert different(want, row) == []
    scores = living.printed("reservations", "scores", f"{row['namespace']}/{row['plan']}")
    assert len(scores) == len(document["reports"]) == 2
    for got, report, status_score in zip(scores, document["reports"], (score, *status["history"]), strict=True):
        want = {
            "start": report["start_seconds"], "planned": report["expected_pods"], "needed": report["needed_pods"],
            "held": report["reserved_pods"], "used": report["used_pods"], "missed": report["waiting_pods"],
            "coverage": report["coverage"], "hit": status_score["hit_ratio"],
            "idle_core_hours": report["idle_core_hours"], "lent_core_hours": report["lent_core_hours"],
            "cost": report["cost"], "others_waiting": status_score["others_waiting"],
            "lead_seconds": report["ready_seconds"],
        }  # fmt: skip
        assert want.keys() == numbers_of(SCORES)
        assert different(want, got) == []
    # Nobody needed the last window, so that no share of it was covered; of the one before, 16 %.
    assert [listed_score["coverage"] for listed_score in scores] == [None, 0.16]


def numbers_of(schema: Schema) -> set[str]:
    return {column.name for column in schema.columns if column.kind is not Kind.TEXT}


def different(want: Row, got: Row) -> list[str]:
    """Cells that are not the same; a moment to the second, in which objects of a cluster write it."""
    pairs = ((name, plain(Kind.NUMBER, cell), plain(Kind.NUMBER, got[name])) for name, cell in want.items())
    return [name for name, ours, theirs in pairs if not (same(ours, theirs) or same(ours and float(int(ours)), theirs))]


@dataclass(frozen=True)
class PageTable:
    """A table that a page writes with words: the page, the address' query, its endpoint."""

    schema: Schema
    page: str
    path: str
    search: str = ""
    may_be_absent: bool = False
    rows: Callable[[Any], Rows] = all_rows


PAGE_TABLES = (
    PageTable(QUOTAS, "queues", "queues/quotas"),
    PageTable(WAITING_PODS, "queues", "queues/pods"),
    PageTable(GANGS, "queues", "queues/gangs"),
    PageTable(NODES, "rebalance", "rebalance/nodes"),
    PageTable(MOVES, "rebalance", "rebalance/moves", may_be_absent=True),
    PageTable(EMPTYING, "rebalance", "rebalance/emptying", "?plugin=HighNodeLoad", may_be_absent=True),
    PageTable(JOBS, "rebalance", "rebalance/jobs", may_be_absent=True),
    PageTable(autopilot.STATUS, "autopilot", "autopilot/status"),
    PageTable(autopilot.QUEUE, "autopilot", "autopilot/queue"),
    PageTable(autopilot.REPORT, "autopilot", "autopilot/report", may_be_absent=True),
    PageTable(size.NODES, "cluster-size", "cluster-size/now", "?show=now", rows=itemgetter("nodes")),
    *(
        PageTable(schema, "cluster-size", "cluster-size/all-steps", "?show=all-steps", True, itemgetter(part))
        for part, schema in SIZE_PARTS.items()
        if part != "nodes"
    ),
)


def drawn_tables(body: Any) -> Iterator[tuple[list[str], list[list[Any]]]]:
    """The heads and the cells of each table that a page writes, without its total."""
    for table in (component for component in _walk(body) if isinstance(component, html.Table)):
        parts = [part for part in table.children if not isinstance(part, html.Tfoot)]
        lines = [component for part in parts for component in _walk(part) if isinstance(component, html.Tr)]
        rows = [[component for component in _walk(line) if isinstance(component, html.Th | html.Td)] for line in lines]
        yield [text_of(cell) for cell in rows[0]], rows[1:]


def number_in(cell: Any) -> float | None:
    """What a cell says, to its last digit where the page keeps it for the unit and the zone switch."""
    for part in _walk(cell):
        if hasattr(part, "data-value"):
            return float(getattr(part, "data-value"))
        if isinstance(part, html.Time):
            return datetime.fromisoformat(part.dateTime).timestamp()
    text = text_of(cell).replace(",", "").replace("\u2212", "-").strip()
    if text in ("", display.MISSING):
        return None
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def written_as(kind: Kind, values: Iterable[Any]) -> list[float]:
    """Values in order; a page may leave a zero out as it leaves out what is missing."""
    return sorted(float(value) for value in values if value is not None and float(value) != 0)


@pytest.mark.parametrize("table", PAGE_TABLES, ids=lambda entry: f"{entry.page}-{entry.schema.name}")
def test_a_page_writes_the_rows_that_rest_answers_with(living: Living, table: PageTable) -> None:
    page = next(entry for entry in pages.ALL if entry.path == table.page)
    rows = table.rows(json.loads(living.rest(table.path)))
    titles = {column.title: column for column in table.schema.columns}
    drawn = [
        (heads, cells)
        for heads, cells in drawn_tables(page.render(living.view, table.search))
        if len(set(heads) & titles.keys()) > len(heads) / 2
    ]
    assert bool(drawn) == bool(rows) and (rows or table.may_be_absent), table
    compared = 0
    for heads, cells in drawn[:1]:
        assert len(cells) == len(rows)
        for index, head in enumerate(heads):
            column = titles.get(head)
            if column is None or column.kind is Kind.TEXT:
                continue
            got, want = (
                written_as(column.kind, values)
                for values in ((number_in(row[index]) for row in cells), (row[column.name] for row in rows))
            )
            # A moment is written to the minute, a share to a whole percent, a plain number to three digits.
            loose = {Kind.TIME: 60.0, Kind.RATIO: 0.0051}.get(column.kind, 0.0)
            assert got == pytest.approx(want, abs=loose, rel=0.0051 if column.kind is Kind.NUMBER else 1e-9), head
            compared += 1
    assert compared or not rows


LISTED = [one for one in LIVE if one.schema in (changes.CHANGES, ENFORCEMENT)]


@pytest.mark.parametrize("live", LISTED, ids=lambda entry: entry.path)
def test_a_list_of_a_page_has_the_cells_that_rest_answers_with(living: Living, live: LiveTable) -> None:
    page = next(entry for entry in pages.ALL if entry.path == live.path)
    (grid,) = [component for component in _walk(page.render(living.view, "")) if _is_grid(component)]
    drawn = {columnDef["field"] for columnDef in grid.columnDefs}
    rows = json.loads(grid.dashGridOptions["context"]["first"]["text"])["rows"]
    shown = replace(live.schema, columns=tuple(c for c in live.schema.columns if c.name in {*drawn, *live.schema.key}))
    assert numbers_of(live.schema) <= drawn
    assert list(differences(shown, all_rows(json.loads(living.rest(live.path))), rows, 0)) == []


def test_the_page_of_changes_writes_the_steps_of_a_ladder(living: Living) -> None:
    page = next(entry for entry in pages.ALL if entry.path == "changes").render(living.view, "")
    for load in json.loads(living.rest("ladders")):
        row, rungs = load["ladder"], load["rungs"]
        (line,) = [cells for heads, table_rows in drawn_tables(page) for cells in table_rows if "Next step" in heads]
        assert text_of(line[2]) == f"{row['taken']} of {row['steps']}"
        assert number_in(line[1]) == pytest.approx(row["time"], abs=60)
        assert number_in(line[4]) == pytest.approx(row["next"], abs=60)
        ((_, steps),) = drawn_tables(html.Div(ladders.section(living.view, row["ladder"])))
        assert [int(text_of(cells[0])) for cells in steps] == [rung["step"] for rung in rungs]
        assert [number_in(cells[2]) for cells in steps] == pytest.approx([rung["time"] for rung in rungs], abs=60)


def test_clusters_side_by_side_are_one_table_on_page_command_line_and_rest(living: Living, tmp_path: Path) -> None:
    for name in ("east", "west"):
        shutil.copytree(Path(urlsplit(living.store.url).path) / living.store.cluster, tmp_path / name)
    stores = [Store(tmp_path.as_uri(), name) for name in ("east", "west")]
    app = application([ServedCluster(store, living.cluster.settings, {}) for store in stores])

    async def ask() -> tuple[str, str]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/api/v1/clusters")).text, (await client.get("/")).text

    answered, page = run_coroutine(ask)
    rows = json.loads(answered)["rows"]
    arguments = ("status", "--all-clusters", "--store", stores[0].url, "-o", "json")
    done = command(*arguments, variables={"HOME": str(tmp_path)})
    assert list(differences(CLUSTERS, rows, json.loads(done.stdout), 0)) == []
    columns = [column for column in CLUSTERS.columns if not column.wide]
    cells = [html_text(cell) for cell in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)]
    assert len(cells) == len(columns) * len(rows)
    for index, cell in enumerate(cells):
        column, row = columns[index % len(columns)], rows[index // len(columns)]
        if column.kind is Kind.TIME:
            assert cell == f"{datetime.fromtimestamp(row[column.name], UTC):%a %d %b %H:%M} UTC"
        elif column.kind is not Kind.TEXT:
            # Amounts are written with three digits, a share to a whole percent.
            assert amount_in(cell) == pytest.approx(row[column.name], rel=0.006, abs=0.0051)


def amount_in(cell: str) -> float:
    """A cell of the page of clusters in the unit of its column, by a reading of the test's own."""
    match = re.fullmatch(r"([\d.,]+)\s*(\S*)", cell)
    assert match is not None
    number, unit = match.groups()
    factors = {"cores": 1000.0, "core": 1000.0, "m": 1.0, "%": 0.01, "": 1.0}
    return float(number.replace(",", "")) * (factors | {"MiB": 2.0**20, "GiB": float(GIB), "TiB": 2.0**40})[unit]


def html_text(cell: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", cell)).strip()


def test_the_maps_of_a_round_draw_its_nodes_and_their_captions_name_the_highest(living: Living) -> None:
    by_name = {row["node"]: row for row in all_rows(json.loads(living.rest(LIVE_NODES.path)))}
    for resource in Resource:
        page = rebalance.overview(living.view, f"?show={resource}")
        foreseen = any(row[f"{resource}_peak"] is not None for row in by_name.values())
        for of, columns in (("now", ("now", "after")), *((("peak", ("peak", "peak_after")),) if foreseen else ())):
            chart = drawn(page, f"rebalance-{of}")
            (trace,) = chart.traces.values()
            for cells, column, marks in zip(trace["z"], columns, trace["customdata"], strict=True):
                want = 100 * floats([by_name[name][f"{resource}_{column}"] for name, _ in marks])
                assert floats(cells) == pytest.approx(want, nan_ok=True)
                assert f"highest {np.nanmax(want):.0f} %" in chart.caption


def test_commands_count_waits_of_the_ledger_by_the_time_of_the_cluster_as_pages_do(living: Living) -> None:
    """By this machine's clock, three days ahead, both the postponement and the cool-downs would be over."""
    postponed = json.loads(living.rest("postponements"))
    assert [postponement["until"] - postponement["since"] for postponement in postponed] == [SNOOZED_DAYS * 86_400]
    stderr = living.command("recs", "list").stderr
    for postponement in postponed:
        until = datetime.fromtimestamp(postponement["until"], UTC)
        assert (
            f"hidden: {postponement['workload']} until {until:%Y-%m-%d %H:%M} UTC by {postponement['actor']}" in stderr
        )
    assert living.view.given.changes is not None
    waits = living.view.given.changes.cool_downs()
    assert waits
    for ref, until_seconds in waits.items():
        until = datetime.fromtimestamp(until_seconds, UTC)
        assert (
            f"waiting: {ref} was changed lately; its requests are not lowered before {until:%Y-%m-%dT%H:%MZ}" in stderr
        )
    newest = re.search(r"Newest sample .* (\d+) s ago", living.command("status").stdout)
    assert newest and int(newest.group(1)) < BEHIND_SECONDS
