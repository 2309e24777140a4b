"""One living cluster in this process, on which people have acted, for the comparison of what is read from the cluster.

Its clock is days behind this machine's and stands still: commands count ages and windows by the cluster's time, as
pages do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from mcp.client import Client
from mcp.types import TextContent

from cotenant.base.commands.session import EXIT_PARTIAL
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.protocol import OWN_GROUP, RESERVATION_PLANS
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.model.service import ChangeRequest
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.mcp_server import server_of
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources.source import StoreSource
from cotenant.manager.decisions.results import collect
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.views import NODES, RECOMMENDATIONS
from cotenant.scheduler_ext.reservations.acts import MakePlan
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import PlanStatus, Score, Span
from cotenant.scheduler_ext.reservations.model.plan_service import PlanService, PlanTerms
from cotenant.scheduler_ext.reservations.model.plan_wire import status_body
from cotenant.settings import Settings
from cotenant_lab.demo.live_cluster import demo_dashboard_context, write_config
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import demand_of
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.simulation.local_client import LocalClient
from cotenant_lab.simulation.node_reports import node_metrics
from cotenant_lab.simulation.usage_now import curves
from cotenant_lab.synthetic import SyntheticSpec
from tests.consistency.settings import LEAN
from tests.support import enforcement
from tests.support.command_line import cotenant as command
from tests.support.coroutines import run_coroutine

Row = Mapping[str, Any]
BEHIND_SECONDS = 3 * 86_400
MACHINES = "machine_type,price_per_hour,currency,cpu,memory,pods,provider\nm5.4xlarge,0.768,USD,16,64Gi,234,eks\n"
SNOOZED_DAYS = 2.0
"""By the cluster's clock they are hidden; by this machine's, which is a day further, they would not be."""


@dataclass(frozen=True)
class Living:
    """A cluster whose time stands still, the view of its pages, and the file by which commands reach it."""

    cluster: DemoCluster
    store: Store
    view: View
    config: Path

    @cached_property
    def api(self) -> Any:
        """The dashboard with its API."""
        return create_app(self.view.source, self.view.settings, self.cluster.clock, self.view.given)

    def rest(self, path: str) -> str:
        async def ask() -> str:
            transport = httpx2.ASGITransport(app=self.api)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                response = await client.get(f"/api/v1/{path}")
            assert response.status_code == 200, response.text
            return response.text

        return run_coroutine(ask)

    def tool(self, name: str, **arguments: Any) -> Any:
        """The document that a tool of language models answers with."""

        async def ask() -> Any:
            async with Client(server_of(self.api)) as client:
                return document_of(await client.call_tool(name, arguments))

        return run_coroutine(ask)

    @property
    def size(self) -> tuple[str, ...]:
        """The words of a command that sizes the cluster, with a list of machine types."""
        return ("size", "--shapes", str(self.config.parent / "machines.csv"))

    def printed(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.command(*arguments, "-o", "json").stdout)

    def command(self, *arguments: str) -> Any:
        """A command on this cluster; partial where the demo's API server lacks a kind of object."""
        done = command("--config", str(self.config), *arguments, variables={"HOME": str(self.config.parent)})
        assert done.returncode in (0, EXIT_PARTIAL), (arguments, done.stderr)
        return done


def until(what: str, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def document_of(response: Any) -> Any:
    """The document that a tool of language models answered with."""
    (text, *_) = response.content
    assert isinstance(text, TextContent)
    return json.loads(text.text)


@contextmanager
def living_cluster(folder: Path) -> Iterator[Living]:
    """Scan a synthetic cluster, let it live, halt it, act on it."""
    store, settings = Store((folder / "store").as_uri(), CLUSTER), msgspec.convert(LEAN, Settings)
    ended = int(time.time()) - BEHIND_SECONDS
    spec = SyntheticSpec(nodes=6, workloads=60, days=8, seed=11, end_seconds=ended, rush=True)
    generated = fill(store, spec, Silent())
    inventory = generated.inventory
    analysis = daily_analysis.analyse(store, settings, FixedClock(inventory.time_seconds), Silent())
    store.write_document(FACTS, StoreFacts(demo=True))
    daily_analysis.publish(analysis, store, settings)
    enforcement.fill(store, inventory.time_seconds)
    demand = demand_of(generated, (w.ref for w in inventory.workloads if w.autoscaler))
    story = DemoScenario(inventory, collect(analysis), demand, node_metrics(generated), curves(generated))
    settings = msgspec.structs.replace(settings, store=msgspec.structs.replace(settings.store, url=store.url))
    with DemoCluster(story, settings, folder) as cluster:
        cluster.course.halt(True)
        until("the halt", lambda: cluster.course.halted)
        source = StoreSource(store, settings.dashboard)
        view = View(source, settings.dashboard, cluster.clock.now_seconds, demo_dashboard_context(cluster, store))
        living = Living(cluster, store, view, write_config(cluster, store, folder))
        (folder / "machines.csv").write_text(MACHINES, encoding="utf-8")
        act(living)
        yield living


def act(living: Living) -> None:
    """What people do: accept a change and a ladder, put a recommendation off, make a plan, ask for the size."""
    context, who = living.view.given, living.view.given.current_user()
    assert context.changes is not None and context.plans is not None
    rows = living.store.read_table(RECOMMENDATIONS).rows()
    workloads = tuple(dict.fromkeys(WorkloadRef(row["namespace"], row["kind"], row["workload"]) for row in rows))
    reviewed = context.changes.review(who, ChangeRequest(workloads))
    plain = [candidate.workload for candidate in reviewed if not candidate.error and not candidate.blocked(())]
    in_steps = [candidate.workload for candidate in reviewed if candidate.workload in plain and not candidate.no_ladder]
    assert in_steps and len(plain) > 2, "no workload of this population can be changed in steps"
    first, hidden, *_ = (candidate for candidate in plain if candidate != in_steps[0])
    context.changes.accept(who, ChangeRequest((first,), key="00000000"))
    context.changes.accept(who, ChangeRequest((in_steps[0],), key="00000001", ladder=True))
    context.changes.snooze(who, (hidden,), SNOOZED_DAYS, "after the sale")
    _play_plan(living, context.plans, first)
    node = living.store.read_table(NODES).columns["node"][0]
    LocalClient(living.cluster.server.api).create("/api/v1/namespaces/default/pods", _batch_pod(str(node)))
    living.command(*living.size)


def _batch_pod(node: str) -> dict[str, Any]:
    """A pod on capacity that is lent."""
    amounts = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "4Gi"}
    container = {"name": "work", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lent", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [container]},
    }  # fmt: skip


def _play_plan(living: Living, plans: PlanService, workload: WorkloadRef) -> None:
    """A plan whose last two windows are over: of three pods one waited, at first; then none was needed."""
    now = living.cluster.clock.now_seconds()
    begin = now + 6 * HOUR_SECONDS
    plan = plans.do(
        living.view.given.current_user(),
        MakePlan(workload=workload, terms=PlanTerms(3, window=Span(begin, begin + 2 * HOUR_SECONDS))),
    )
    late = Score(
        now - 8 * HOUR_SECONDS, now - 6 * HOUR_SECONDS, reserved=2, used=2, missed=1, hit_ratio=0.98, coverage=0.16,
        idle_core_hours=1.5, cost=0.25, lead_seconds=-265 * 60, lent_core_hours=0.5, planned=3, needed=3,
        others_waiting=1,
    )  # fmt: skip
    idle = replace(
        late, start_seconds=now - 4 * HOUR_SECONDS, end_seconds=now - 2 * HOUR_SECONDS, used=0, missed=0,
        hit_ratio=0.0, coverage=1.0, needed=0, lead_seconds=800,
    )  # fmt: skip
    window = Span(begin, begin + 2 * HOUR_SECONDS)
    status = PlanStatus(PlanPhase.SCORED, window, begin - 900, 900, count=3, score=idle, history=(late,))
    items = living.cluster.server.state.items((OWN_GROUP.partition("/")[0], RESERVATION_PLANS))
    (item,) = [plan_object for (_, name), plan_object in items if name == plan.name]
    writer = LocalClient(living.cluster.server.api, "cotenant-manager")
    assert writer.told(item, status_body(status, plan.generation))
