"""When rounds of the descheduler look at marked nodes, step by step on the embedded API server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.errors import NoData
from cotenant.base.kube import KubeClient, Mirror, Writer, connect
from cotenant.base.kubernetes.intent import Outcome, Patch
from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.rebalance.arguments import DEFAULT_ARGS, MigrationArgs, RebalanceArgs
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerConfig, DeschedulerController
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs, emptying_arguments_of
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import DESCHEDULER_LABEL
from tests.cluster.api import Json
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.support import moves
from tests.support.moves import COLD, GROUP, HOT, METRICS, MoveScene

pytestmark = pytest.mark.server
MARK = {"key": "cotenant.dev/emptying", "effect": "PreferNoSchedule"}
BOTH = ["LowNodeLoad", "HighNodeLoad"]
EMPTYING = emptying_arguments_of({"kind": "HighNodeLoadArgs", "highThresholds": {"cpu": 100, "memory": 100}})
"""The hot node carries all ten cores that are used; the cold one is under-used, and empty."""
DRY_RUN = MigrationArgs(dry_run=True)
ACTING = (DEFAULT_ARGS, EMPTYING)
DRY = (replace(DEFAULT_ARGS, migration=DRY_RUN), replace(EMPTYING, migration=DRY_RUN))
INTERVAL = 120.0


def no_run() -> RunResults:
    """No run of the pipeline has ended yet."""
    raise NoData("no run has ended yet", fix="Wait.")


@dataclass
class Rounds:
    """A controller on the cluster; each step has its mirrors as they are, an interval later."""

    controller: DeschedulerController
    client: KubeClient
    jobs: Mirror[Any]
    registry: CollectorRegistry
    now_seconds: float

    def step(self) -> ControllerDecision:
        self.jobs.list_once()
        self.now_seconds += INTERVAL
        return self.controller.decide({}, self.now_seconds)

    def send(self, decision: ControllerDecision) -> None:
        writer = Writer(self.client, "cotenant-manager")
        outcomes = []
        for intent in decision.intents:
            writer.send(intent)
            outcomes.append(Outcome(intent))
        self.controller.sent(outcomes)

    def marks(self, change: str) -> float | None:
        return self.registry.get_sample_value("cotenant_descheduler_marks_total", {"change": change})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MoveScene]:
    with moves.embedded(tmp_path) as move_scene:
        yield move_scene


def rounds(cluster: MoveScene, arguments: tuple[RebalanceArgs, EmptyingArgs] = ACTING, **own: Any) -> Rounds:
    """Of a manager that has just begun."""
    client, registry = connect(cluster.settings.kube), CollectorRegistry()
    settings = msgspec.structs.replace(cluster.settings.descheduler, interval_seconds=INTERVAL, **own)
    jobs: Mirror[Any] = Mirror(client, f"{GROUP}/podmigrationjobs", dict[str, Any], MigrationJob.parse)
    config = DeschedulerConfig(settings, cluster.settings.extender.load_aware, cluster.settings.manager, *arguments)
    controller = DeschedulerController(client, {"migration-jobs": jobs}, config, no_run, registry)
    return Rounds(controller, client, jobs, registry, cluster.clock.now_seconds() - INTERVAL)


def move_under_way(cluster: MoveScene) -> None:
    """A job of a plan that has not ended, and made a step just now."""
    spec = {"podRef": {"namespace": "shop", "name": "web-0"}}
    kind: Json = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
    meta = {"name": "open", "labels": DESCHEDULER_LABEL}
    cluster.api.create(f"{GROUP}/podmigrationjobs", {**kind, "metadata": meta, "spec": spec})
    arbitrated = {"type": "Arbitrated", "status": "True", "lastTransitionTime": moment(cluster.clock.now_seconds())}
    status = {"op": "add", "path": "/status", "value": {"phase": "Running", "conditions": [arbitrated]}}
    cluster.api.patch(f"{GROUP}/podmigrationjobs/open/status", [status], "json")


def taints(cluster: MoveScene) -> list[Json]:
    return list(cluster.api.get(f"/api/v1/nodes/{COLD}").get("spec", {}).get("taints") or ())


def test_a_mark_that_a_killed_manager_left_is_looked_at_at_once_while_pods_are_moved(cluster: MoveScene) -> None:
    cluster.api.patch(f"/api/v1/nodes/{COLD}", [{"op": "add", "path": "/spec", "value": {"taints": [MARK]}}], "json")
    move_under_way(cluster)
    # a dry run of LowNodeLoad alone: nobody goes on with what rounds of HighNodeLoad marked
    after = rounds(cluster)
    after.send(after.step())
    assert taints(cluster) == []
    assert (after.marks("set"), after.marks("taken")) == (0, 1)


def test_without_a_mark_nothing_is_read_while_pods_are_moved(cluster: MoveScene) -> None:
    move_under_way(cluster)
    acting = rounds(cluster, plugins=BOTH, dry_run=False)
    assert acting.step().intents == ()  # the first look, which finds no mark
    for name in (HOT, COLD):
        cluster.api.delete(f"{METRICS}/{name}")
    assert acting.step().intents == ()  # a look would end for want of reports
    cluster.api.delete(f"{GROUP}/podmigrationjobs/open")
    with pytest.raises(NoData):
        acting.step()


def test_a_dry_run_of_koordinators_file_begins_nothing(cluster: MoveScene) -> None:
    planned = rounds(cluster, plugins=BOTH, dry_run=False, arguments=DRY)
    assert planned.step().intents == () and taints(cluster) == []


def test_a_mark_that_was_set_just_now_is_looked_at_while_pods_are_moved(cluster: MoveScene) -> None:
    acting = rounds(cluster, plugins=["HighNodeLoad"], dry_run=False)
    acting.send(acting.step())
    assert [taint["key"] for taint in taints(cluster)] == [MARK["key"]] and acting.marks("set") == 1
    move_under_way(cluster)
    # eight cores of the system and five of pods are more than the ten of the hot node, and no other is left for it
    busier = {"op": "replace", "path": "/status/nodeMetric/systemUsage/resources/cpu", "value": "8"}
    cluster.api.patch(f"{METRICS}/{HOT}/status", [busier], "json")
    decision = acting.step()
    assert [type(intent) for intent in decision.intents] == [Patch]
    assert [(note.reason, note.event) for note in decision.notes] == [("EmptyingBegun", True)]
    acting.send(decision)
    assert taints(cluster) == [] and acting.marks("taken") == 1
