"""EDGE: the demo's cluster: embedded API server, its objects, simulated controllers, manager, clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.logs.metrics import Metrics
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.batch_load import Evening
from cotenant_lab.simulation.clock import SteeredClock
from cotenant_lab.simulation.controllers.autoscaler import CpuDemand
from cotenant_lab.simulation.controllers.cluster_controllers import ClusterControllers
from cotenant_lab.simulation.controllers.node_metrics import NodeMetricReports
from cotenant_lab.simulation.definitions import define
from cotenant_lab.simulation.demo import CLUSTER
from cotenant_lab.simulation.feature_objects import (
    DESCHEDULER_CONFIGURATION,
    MINIMUM_CONFIDENCE,
    policy_objects,
    queue_objects,
)
from cotenant_lab.simulation.local_client import LocalClient
from cotenant_lab.simulation.metric_source import BURSTING, LATENCY_QUERY, SimulatedComparison
from cotenant_lab.simulation.node_reports import node_report_objects
from cotenant_lab.simulation.population import initial_objects
from cotenant_lab.simulation.time_course import ClusterParts, TimeCourse
from cotenant_lab.simulation.usage_now import Curves

Json = dict[str, Any]
RUNS = ("reservations", "plans", "queues", "migrations", "autopilot")
"""Controllers of the manager that run in the demo."""

BATCH_HOURS = (15, 23)
"""Of the day, UTC: when batch work fills the cluster; its pods end one by one before the first plan reserves."""


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """The contents of the demo's cluster: its objects, the pipeline's results, and the actual demand and usage."""

    inventory: Inventory
    results: RunResults
    demand: CpuDemand
    node_metrics: tuple[Json, ...] = ()
    """NodeMetrics at the end of the history, one a node."""
    curves: Curves | None = None
    """Usage of one pod of each workload, which the demo's metric source rests on; None: there is no such source."""
    gpus: Mapping[WorkloadRef, str] = field(default_factory=dict)
    """By workload the container that requests a whole GPU."""
    bursting: tuple[str, str] = BURSTING
    """Namespace and name of the workload whose cut does harm."""


class DemoCluster:
    """A cluster in this process that leaves nothing outside `folder`; as a context manager."""

    def __init__(
        self, story: DemoScenario, settings: Settings, folder: Path, machine: Callable[[], float] = time.monotonic
    ) -> None:
        """Objects are there, nothing moves yet. `settings`: of the demo; its kubeconfig and ledger are replaced.

        machine: seconds that pass, of which the demo's clock is made while it runs by itself.
        """
        self.clock = SteeredClock(float(story.inventory.time_seconds), machine)
        self.server = EmbeddedServer(clock=self.clock)
        for collection, item in initial_objects(story.inventory, story.inventory.time_seconds, story.gpus):
            key = item["metadata"].get("namespace", ""), item["metadata"]["name"]
            self.server.state.put(collection, key, item)
        client = LocalClient(self.server.api, "cotenant-install")
        define(client)
        for path, item in (*queue_objects(story.inventory), *policy_objects(story.inventory)):
            client.create(path, item)
        nodes = {name: node["metadata"]["uid"] for (_, name), node in self.server.state.items(("", "nodes"))}
        for collection, item in node_report_objects(story.node_metrics, story.results, nodes):
            self.server.state.put(collection, ("", item["metadata"]["name"]), item)
        self.kubeconfig = folder / "kubeconfig"
        change, latency = msgspec.structs.replace, LATENCY_QUERY if story.curves else ""
        ledger, ceiling = str(folder / "ledger.db"), settings.autopilot.ceiling
        ceiling = change(ceiling, minimum_confidence=MINIMUM_CONFIDENCE)
        self.settings = change(
            settings,
            kube=change(settings.kube, kubeconfig=str(self.kubeconfig), context=""),
            actions=change(settings.actions, ledger=ledger, latency_query=latency, auto_rollback=True),
            queues=change(settings.queues, enabled=True),
            descheduler=change(settings.descheduler, enabled=True, configuration=DESCHEDULER_CONFIGURATION),
            autopilot=change(settings.autopilot, enabled=True, ceiling=ceiling),
        )
        self._story = story
        self._course: TimeCourse | None = None

    @property
    def course(self) -> TimeCourse:
        """The course that steers the demo's time; it is available once the cluster has been started."""
        assert self._course is not None, "the simulation has not been started"
        return self._course

    @property
    def comparison(self) -> dict[str, Any]:
        """The comparison that verifies changes beside their pods, as fields of a service's configuration.

        It is empty without usage curves.
        """
        if self._story.curves is None:
            return {}
        source = SimulatedComparison(self._story.curves, self._story.bursting)
        return {"compare": source, "trace": source.trace}

    def __enter__(self) -> DemoCluster:
        """Serve, and live."""
        self.server.start()
        self.server.write_kubeconfig(self.kubeconfig, name=CLUSTER)
        demand, batch = self._story.demand, evening_of(self._story.inventory)
        living = ClusterControllers(self.server.state, LocalClient(self.server.api), demand, batch)
        agents = NodeMetricReports(self.server.state, LocalClient(self.server.api, "cotenant-demo-agents"))
        off = [name for name in NAMES if name not in RUNS]
        own = msgspec.structs.replace(self.settings.manager, write=True, features_off=off)
        settings = msgspec.structs.replace(self.settings, manager=own)
        metrics, options = Metrics("demo", sys.version.split()[0]), Options("demo", elect=False, fast_forward=True)
        manager = Manager(connect(self.settings.kube), settings, metrics, options, self.clock)
        manager.pipeline.accept(self._story.results)
        parts = ClusterParts(self.server.state, living, agents, manager, manager.mirrors["plans"], demand, batch)
        self._course = TimeCourse(parts, self.clock)
        self._course.settle()
        self._course.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything; the objects are forgotten."""
        self.course.stop()
        self.server.stop()


def evening_of(inventory: Inventory) -> Evening:
    """Return the evening from 15:00 to 23:00 UTC of the day on which the history ends."""
    day = inventory.time_seconds // DAY_SECONDS * DAY_SECONDS
    begin, end = (float(day + hour * HOUR_SECONDS) for hour in BATCH_HOURS)
    return Evening.of(begin, end, len(inventory.nodes))
