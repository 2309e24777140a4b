"""The demo's round of rebalancing: reports that add up, a plan on its cluster, and a manager that moves pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.people import Role
from cotenant.base.resource import Resource
from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
from cotenant.scheduler_ext.rebalance.model.move_service import MigrationJobs
from cotenant.scheduler_ext.rebalance.model.tables import RebalanceReport
from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService, move_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.simulation.controllers.scheduler import NodeCapacity, Sizes, assign_nodes
from cotenant_lab.simulation.feature_objects import DESCHEDULER_CONFIGURATION
from cotenant_lab.simulation.node_reports import node_metrics
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.cluster.waiting import wait_for
from tests.support.plans import person

ADMIN = person(Role.ADMIN)


@pytest.mark.slow
@pytest.mark.server
def test_the_demo_has_a_plan_and_its_manager_moves_an_approved_pod(tmp_path: Path) -> None:
    generated = generate(SyntheticSpec(nodes=6, workloads=60, days=1))
    metrics = node_metrics(generated)
    for metric in map(NodeMetric.parse, metrics):
        assert metric.notes == () and metric.pods
        parts = metric.system_usage[Resource.CPU] + sum(pod.usage[Resource.CPU] for pod in metric.pods)
        # each of the pods, and the system, is rounded to a millicore
        assert abs(parts - metric.node_usage[Resource.CPU]) <= len(metric.pods) + 1
    inventory = generated.inventory
    capacity = {node.name: node.capacity[Resource.CPU] for node in inventory.nodes}
    busy = next(metric for metric in metrics if metric["metadata"]["name"] == inventory.nodes[0].name)
    # above the demo's threshold of 50 % whatever its pods use; the other nodes are far below it
    system = {"cpu": f"{capacity[inventory.nodes[0].name] * 45 // 100}m", "memory": "1Gi"}
    busy["status"]["nodeMetric"]["systemUsage"]["resources"] = system
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), NOTHING, metrics)
    with DemoCluster(story, Settings(), tmp_path) as cluster:
        service = move_service_of(cluster.settings, clock=cluster.clock)
        report = service.report(ADMIN)
        assert len(report.nodes) == 6 and not report.gaps
        moves = [row for row in report.moves.rows() if row["decision"] == "move"]
        assert moves and {row["source"] for row in moves} == {inventory.nodes[0].name}
        wait_for("the manager carries moves out", lambda: _fresh(service).carrier.carries, 60)
        (outcome,) = service.approve(ADMIN, [moves[0]["pod"]])
        assert not outcome.error
        wait_for("the successor starts", lambda: _at(service, "WaitForBoundPodReady"), 60)
        cluster.course.forward(cluster.clock.now_seconds() + 120)  # of the five minutes that a job may take
        (row,) = wait_for(
            "the move ends", lambda: [r for r in _fresh(service).jobs.rows() if r["step"] == "Complete"], 120
        )
        after = wait_for("the reports follow", lambda: _moved(service, moves[0], report), 60)
    assert (row["phase"], row["target"]) == ("Succeeded", moves[0]["target"])
    # the pods of its workload are alike: the target gains about what the source lost, of nodes that may differ in size
    assert after[moves[0]["target"]] > 0 > after[moves[0]["source"]]


def _moved(service: ClusterMoveService, move: dict[str, Any], before: RebalanceReport) -> dict[str, float]:
    """CPU of source and target against what a round before said, as shares; {} until both differ."""
    service._reading.forget()
    service._round.forget()
    then = {row["node"]: row["cpu_now"] for row in before.nodes.rows()}
    now = {row["node"]: row["cpu_now"] for row in service.report(ADMIN).nodes.rows()}
    changes = {name: now[name] - then[name] for name in (move["source"], move["target"])}
    return changes if all(changes.values()) else {}


def _fresh(service: ClusterMoveService) -> MigrationJobs:
    service._jobs.forget()  # not the answer of a moment ago
    return service.jobs(ADMIN)


def _at(service: ClusterMoveService, step: str) -> bool:
    return any(row["step"] == step for row in _fresh(service).jobs.rows())


def _ended(service: ClusterMoveService) -> list[dict[str, Any]]:
    return [row for row in _fresh(service).jobs.rows() if row["phase"] in ("Succeeded", "Failed")]


def test_the_demos_configuration_is_one_of_koordinators() -> None:
    arguments = arguments_from_settings(DESCHEDULER_CONFIGURATION)
    assert arguments.warnings == () and arguments.low_node_load.node_metric_expiration_seconds == 0


def test_the_simulated_scheduler_prefers_the_node_that_a_pod_prefers() -> None:
    preference = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["small"]}]}
    terms = [{"weight": 100, "preference": preference}]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {
            "containers": [container],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}},
        },
    }

    def places(small_millicores: int) -> list[NodeCapacity]:
        free = {"small": small_millicores, "large": 9000}
        return [NodeCapacity(name, {}, {"cpu": amount, "pods": 10}) for name, amount in free.items()]

    assert Sizes().of(pod)["cpu"] == 1000
    assert [node for _, node in assign_nodes([pod], places(2000))] == ["small"]
    assert [node for _, node in assign_nodes([pod], places(500))] == ["large"], "a preference is no requirement"


def test_the_simulated_scheduler_counts_what_a_resize_that_is_put_off_still_has() -> None:
    small, large = ({"requests": {"cpu": amount}} for amount in ("1", "20"))
    pod = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c", "resources": large}]}}
    sizes = Sizes()
    assert sizes.of(pod)["cpu"] == 20_000
    in_force = {"name": "c", "resources": large, "allocatedResources": large["requests"]}
    condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    pod = {**pod, "spec": {"containers": [{"name": "c", "resources": small}]}}
    pod["status"] = {"containerStatuses": [in_force], "conditions": [condition]}
    # asked 1, allocated and in force 20 cores: the node owes the larger
    assert sizes.of(pod)["cpu"] == 20_000
    # the resize is done: the status alone has changed
    done = {"name": "c", "resources": small, "allocatedResources": small["requests"]}
    assert sizes.of({**pod, "status": {"containerStatuses": [done], "conditions": []}})["cpu"] == 1000
