"""What the pipeline says, as objects on a real API server: shown by kubectl, written once, collected with owners."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.errors import NoData
from cotenant.base.inventory.one_off import without_over
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.settings.sections.store import StoreSettings
from cotenant.base.store import Store
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.pipeline import Pipeline
from cotenant.profiler.synthetic import SyntheticSpec
from cotenant.settings import Settings
from cotenant.simulation.demo import fill
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import FORECASTS, RECOMMENDATIONS, Scene, deployed, results_of

pytestmark = pytest.mark.server

Nodes = Callable[..., list[str]]
PUBLISHING = ["colocation", "node-slo", "node-metric"]


def publish(scene: Scene, results: RunResults) -> dict[str, int]:
    """Settle a fresh manager on these results; writes by feature, those for what other tests left behind aside."""
    manager = scene.manager(features_off=PUBLISHING)
    manager.pipeline.accept(results)
    try:
        sent = manager.settle()
    finally:
        manager.stop()
    assert {state.standing for state in manager.board.states.values()} == {ControllerCondition.UP}
    other = re.compile(rf"recommendations/(?!{scene.namespace}/)")
    ours = {f: [row for row in rows if not other.match(row["object"])] for f, rows in sent.items()}
    return {feature: len(rows) for feature, rows in ours.items() if feature != "status"}


def test_a_run_is_published_once_and_kubectl_shows_it(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1)
    results = results_of(deployed(scene), node, cpu_millicores=250)
    # A Recommendation takes two writes, the object and its status; a UsageForecast one.
    assert publish(scene, results) == {"recommendations": 2, "forecasts": 1, "load-taints": 0}
    assert publish(scene, results) == {"recommendations": 0, "forecasts": 0, "load-taints": 0}
    path = f"{RECOMMENDATIONS}/namespaces/{scene.namespace}/recommendations/deployment-web"
    found = scene.api.get(path)
    assert found["status"]["podStatus"]["containerStatuses"] == [
        {"containerName": "app", "resources": {"cpu": "250m", "memory": "300Mi"}}
    ]
    assert json.loads(found["metadata"]["annotations"]["cotenant.dev/evidence"])["record"] == "111122223333"
    recom = scene.plane.kubectl("get", "recom", "-n", scene.namespace).splitlines()
    assert len(recom) == 2
    assert {"Deployment", "web", "250m", "300Mi", "Computed"} <= set(recom[1].split())
    (row,) = scene.plane.kubectl("get", "usageforecasts", node, "--no-headers").splitlines()
    assert {node, "2", "3Gi"} & set(row.split()) >= {node, "2"}
    scene.report([node])
    (row,) = scene.plane.kubectl("get", "nodemetrics", node, "--no-headers").splitlines()
    assert {node, "3", "8Gi"} <= set(row.split())


def test_a_moved_amount_and_a_vanished_history_reach_the_object(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1)
    workload = deployed(scene)
    publish(scene, results_of(workload, node, cpu_millicores=250))
    assert publish(scene, results_of(workload, node, cpu_millicores=270))["recommendations"] == 0
    assert publish(scene, results_of(workload, node, cpu_millicores=400))["recommendations"] == 1
    path = f"{RECOMMENDATIONS}/namespaces/{scene.namespace}/recommendations/deployment-web"
    assert scene.api.get(path)["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "400m"
    gone = msgspec.structs.replace(results_of(workload, node), workloads=())
    assert publish(scene, gone)["recommendations"] == 2
    found = scene.api.get(path)
    assert found["metadata"]["labels"]["cotenant.dev/state"] == "stale"
    assert found["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "400m"


def test_kubernetes_collects_what_belonged_to_a_deleted_workload_and_node(scene: Scene) -> None:
    (node,) = create_nodes(scene.plane, 1, NodeShape(prefix=unique_name("collected")))
    workload = deployed(scene)
    assert publish(scene, results_of(workload, node)) == {"recommendations": 2, "forecasts": 1, "load-taints": 0}
    scene.api.delete(f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/{workload.name}")
    scene.api.delete(f"/api/v1/nodes/{node}")
    path = f"{RECOMMENDATIONS}/namespaces/{scene.namespace}/recommendations/deployment-web"
    wait_for("no Recommendation", lambda: not scene.api.exists(path))
    wait_for("no UsageForecast", lambda: not scene.api.exists(f"{FORECASTS}/{node}"))


@pytest.mark.slow
def test_the_pipeline_runs_in_a_child_and_hands_its_results_back(tmp_path: Path) -> None:
    cluster = fill(Store(tmp_path.as_uri(), "small"), SyntheticSpec(nodes=3, workloads=12, days=3), Silent())
    settings = msgspec.structs.replace(Settings(), store=StoreSettings(url=tmp_path.as_uri()))
    metrics = Metrics("test", "3")
    pipeline = Pipeline(
        settings, "small", AlwaysLeads(), lambda: metrics.succeeded("pipeline", FixedClock(1_750_000_000.0))
    )
    pipeline.run_once()
    found = pipeline.results()
    success = metrics.registry.get_sample_value("cotenant_last_success_timestamp_seconds", {"task": "pipeline"})
    assert success == 1_750_000_000.0
    assert {n.node for n in found.nodes} == {n.name for n in cluster.inventory.nodes}
    # A one-off Job that is over has nothing to recommend.
    assert {w.ref for w in found.workloads} == {w.ref for w in without_over(cluster.inventory).workloads}
    for outlook in found.nodes:
        cpu = outlook.series[Resource.CPU]
        assert len(cpu.median) == len(cpu.high) == 48
        assert all(high >= median for median, high in zip(cpu.median, cpu.high, strict=True))


@pytest.mark.slow
def test_a_pipeline_without_history_says_so(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(Settings(), store=StoreSettings(url=tmp_path.as_uri()))
    pipeline = Pipeline(settings, "small", AlwaysLeads())
    pipeline.run_once()
    try:
        pipeline.results()
    except NoData as error:
        assert "no usage of pods of cluster small" in error.message
    else:
        raise AssertionError("there is no history")
