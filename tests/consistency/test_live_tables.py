"""Tables that come from the cluster and not from the store are one value in REST, its export and on the command line.

One living cluster in this process, whose clock is days behind this machine's and stands still: commands count ages and
windows by the cluster's time, as its page does.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from cotenant.autopilot import model as autopilot
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.settings.root import Settings
from cotenant.base.store import Store
from cotenant.base.table import Kind, Schema
from cotenant.changes.model import tables as changes
from cotenant.cli.demo.live_cluster import demo_dashboard_context, write_config
from cotenant.dashboard.app import create_app
from cotenant.dashboard.sources.source import StoreSource
from cotenant.manager.decisions.results import collect
from cotenant.pipeline import corridor
from cotenant.profiler.synthetic import SyntheticSpec
from cotenant.quantities.quantity import Surface, Unit
from cotenant.quantities.registry import TABLES
from cotenant.quantities.tables import SUBJECTS
from cotenant.scheduler_ext.queues.model.tables import GANGS, QUOTAS, WAITING_PODS
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, JOBS, MOVES, NODES
from cotenant.simulation.cluster import DemoCluster, DemoScenario
from cotenant.simulation.controllers.autoscaler import demand_of
from cotenant.simulation.demo import CLUSTER, fill
from cotenant.simulation.rebalance import node_metrics
from cotenant.simulation.usage_now import curves
from tests.consistency.settings import LEAN
from tests.consistency.test_every_column import OF_COLUMN, plain, same
from tests.support.command_line import cotenant as command
from tests.support.coroutines import run_coroutine

pytestmark = [pytest.mark.slow, pytest.mark.server]
Row = Mapping[str, Any]
BEHIND_SECONDS = 3 * 86_400
DESCHEDULER = ("serve", "descheduler", "--once", "--show")


@dataclass(frozen=True)
class LiveTable:
    """Where a live table is read: its endpoint below api/v1, and its command, if it has one."""

    schema: Schema
    path: str
    words: tuple[str, ...] = ()
    may_be_empty: bool = False


LIVE = (
    LiveTable(QUOTAS, "queues/quotas", ("get", "quotas")),
    LiveTable(WAITING_PODS, "queues/pods", ("get", "waiting"), may_be_empty=True),
    LiveTable(GANGS, "queues/gangs", ("get", "gangs")),
    LiveTable(NODES, "rebalance/nodes", (*DESCHEDULER, "nodes")),
    LiveTable(MOVES, "rebalance/moves", (*DESCHEDULER, "moves"), may_be_empty=True),
    LiveTable(
        EMPTYING, "rebalance/emptying", (*DESCHEDULER, "emptying", "--plugin", "HighNodeLoad"), may_be_empty=True
    ),
    LiveTable(JOBS, "rebalance/jobs", may_be_empty=True),
    LiveTable(autopilot.STATUS, "autopilot/status", ("autopilot", "status")),
    LiveTable(autopilot.QUEUE, "autopilot/queue", ("autopilot", "preview")),
    LiveTable(autopilot.QUEUE, "autopilot/preview", ("autopilot", "preview", "--in-window")),
    LiveTable(autopilot.REPORT, "autopilot/report", ("autopilot", "report"), may_be_empty=True),
    LiveTable(changes.CHANGES, "changes", ("recs", "changes"), may_be_empty=True),
)


@dataclass(frozen=True)
class Living:
    """A cluster whose time stands still, its pages' API, and the file by which commands reach it."""

    cluster: DemoCluster
    api: Any
    config: Path

    def rest(self, path: str) -> str:
        async def ask() -> str:
            transport = httpx2.ASGITransport(app=self.api)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                answer = await client.get(f"/api/v1/{path}")
            assert answer.status_code == 200, answer.text
            return answer.text

        return run_coroutine(ask)

    def printed(self, words: tuple[str, ...]) -> list[Row]:
        done = command("--config", str(self.config), *words, "-o", "json", variables={"HOME": str(self.config.parent)})
        assert done.returncode == 0, done.stderr
        rows: list[Row] = json.loads(done.stdout)
        return rows


def until(what: str, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    folder = tmp_path_factory.mktemp("living")
    store, settings = Store((folder / "store").as_uri(), CLUSTER), msgspec.convert(LEAN, Settings)
    ended = int(time.time()) - BEHIND_SECONDS
    spec = SyntheticSpec(nodes=6, workloads=60, days=7, seed=11, end_seconds=ended, rush=True)
    generated = fill(store, spec, Silent())
    inventory = generated.inventory
    analysis = corridor.analyse(store, settings, FixedClock(inventory.time_seconds), Silent())
    corridor.publish(analysis, store, settings, demo=True)
    demand = demand_of(generated, (w.ref for w in inventory.workloads if w.autoscaler))
    story = DemoScenario(inventory, collect(analysis), demand, node_metrics(generated), curves(generated))
    settings = msgspec.structs.replace(settings, store=msgspec.structs.replace(settings.store, url=store.url))
    with DemoCluster(story, settings, folder) as cluster:
        cluster.course.halt(True)
        until("the halt", lambda: cluster.course.halted)
        source = StoreSource(store, settings.dashboard)
        api = create_app(source, settings.dashboard, cluster.clock, demo_dashboard_context(cluster, store))
        yield Living(cluster, api, write_config(cluster, store, folder))


def differences(schema: Schema, want: list[Row], got: list[Row], apart_seconds: float) -> Iterator[str]:
    """Cells that differ; ages by more than the time between the two questions."""
    assert len(got) == len(want), (schema.name, want, got)
    for ours, theirs in zip(_sorted(schema, want), _sorted(schema, got), strict=True):
        for column in schema.columns:
            one, other = (plain(column.kind, row[column.name]) for row in (ours, theirs))
            quantity = OF_COLUMN.get(f"{schema.name}.{column.name}")
            ages = quantity is not None and quantity.unit is Unit.SECONDS and None not in (one, other)
            if not (same(one, other) or (ages and abs(one - other) <= apart_seconds)):
                yield f"{schema.name}.{column.name} of {[ours[k] for k in schema.key]}: {one} and {other}"


def _sorted(schema: Schema, rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in schema.key])


@pytest.mark.parametrize("live", LIVE, ids=lambda one: one.path.replace("/", "-"))
def test_a_live_table_is_the_same_on_the_command_line_in_rest_and_in_its_export(
    living: Living, live: LiveTable
) -> None:
    before = time.monotonic()
    document = json.loads(living.rest(live.path))
    want: list[Row] = document["rows"] if isinstance(document, dict) else document
    assert want or live.may_be_empty, f"{live.path} has no rows to compare"
    if Surface.EXPORT in surfaces_of(live.schema):
        text = living.rest(f"{live.path}?format=csv")
        exported = list(csv.DictReader(io.StringIO(text, newline="")))
        numbers = replace(
            live.schema,
            columns=tuple(c for c in live.schema.columns if c.kind is not Kind.TEXT or c.name in live.schema.key),
        )
        assert list(differences(numbers, want, exported, time.monotonic() - before)) == []
    if live.words:
        got = living.printed(live.words)
        # The cluster's clock stands still while a command counts on from the last answer, in whole seconds.
        assert list(differences(live.schema, want, got, 1 + time.monotonic() - before)) == []


def surfaces_of(schema: Schema) -> tuple[Surface, ...]:
    return next(subject.surfaces for subject in TABLES if subject.schema.name == schema.name)


def test_each_table_that_is_read_live_is_compared_here_where_the_dictionary_says_it_is_shown() -> None:
    compared = {live.schema.name for live in LIVE}
    live = {
        s.schema.name
        for s in SUBJECTS
        if {Surface.EXPORT, Surface.REST} <= set(s.surfaces) and Surface.MCP not in s.surfaces
    }
    assert live - compared == set()
    for table in LIVE:
        assert (Surface.CLI in surfaces_of(table.schema)) == bool(table.words), table.path
