"""What the pipeline says, as objects on a real API server: shown by kubectl, written once, collected with owners."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.controllers.sender import Sender
from cotenant.base.errors import CotenantError, NoData, SourceUnreachable
from cotenant.base.inventory.partial_inventory import without_over
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import StoreSettings
from cotenant.base.store import Store
from cotenant.manager.controllers.result_controllers import RecommendationController
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.pipeline import Pipeline
from cotenant.profiler.settings import ProfilerSettings
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import FORECASTS, RECOMMENDATIONS, Scene, deployed, results_of

pytestmark = pytest.mark.server

Nodes = Callable[..., list[str]]
PUBLISHING = ["colocation", "node-slo", "node-metric"]


def publish(cluster: Scene, results: RunResults) -> dict[str, int]:
    """Settle a fresh manager on these results; writes by feature, those for what other tests left behind aside."""
    manager = cluster.manager(features_off=PUBLISHING)
    manager.pipeline.accept(results)
    try:
        sent = manager.settle()
    finally:
        manager.stop()
    assert {state.condition for state in manager.board.states.values()} == {ControllerCondition.UP}
    other = re.compile(rf"recommendations/(?!{cluster.namespace}/)")
    ours = {f: [row for row in rows if not other.match(row["object"])] for f, rows in sent.items()}
    return {feature: len(rows) for feature, rows in ours.items() if feature != "status"}


def test_a_run_is_published_once_and_kubectl_shows_it(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1)
    results = results_of(deployed(cluster), node, cpu_millicores=250)
    # A Recommendation takes two writes, the object and its status; a UsageForecast one.
    assert publish(cluster, results) == {"recommendations": 2, "forecasts": 1, "load-taints": 0}
    assert publish(cluster, results) == {"recommendations": 0, "forecasts": 0, "load-taints": 0}
    path = f"{RECOMMENDATIONS}/namespaces/{cluster.namespace}/recommendations/deployment-web"
    live = cluster.api.get(path)
    assert live["status"]["podStatus"]["containerStatuses"] == [
        {"containerName": "app", "resources": {"cpu": "250m", "memory": "300Mi"}}
    ]
    assert json.loads(live["metadata"]["annotations"]["cotenant.dev/evidence"])["record"] == "111122223333"
    recom = cluster.plane.kubectl("get", "recom", "-n", cluster.namespace).splitlines()
    assert len(recom) == 2
    assert {"Deployment", "web", "250m", "300Mi", "Computed"} <= set(recom[1].split())
    (row,) = cluster.plane.kubectl("get", "usageforecasts", node, "--no-headers").splitlines()
    assert {node, "2", "3Gi"} & set(row.split()) >= {node, "2"}
    cluster.report([node])
    (row,) = cluster.plane.kubectl("get", "nodemetrics", node, "--no-headers").splitlines()
    assert {node, "3", "8Gi"} <= set(row.split())


def test_a_moved_amount_and_a_vanished_history_reach_the_object(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1)
    workload = deployed(cluster)
    publish(cluster, results_of(workload, node, cpu_millicores=250))
    assert publish(cluster, results_of(workload, node, cpu_millicores=270))["recommendations"] == 0
    assert publish(cluster, results_of(workload, node, cpu_millicores=400))["recommendations"] == 1
    path = f"{RECOMMENDATIONS}/namespaces/{cluster.namespace}/recommendations/deployment-web"
    assert cluster.api.get(path)["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "400m"
    without_history = msgspec.structs.replace(results_of(workload, node), workloads=())
    assert publish(cluster, without_history)["recommendations"] == 2
    live = cluster.api.get(path)
    assert live["metadata"]["labels"]["cotenant.dev/state"] == "stale"
    assert live["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "400m"


DAY = 24 * 3600


class Drive:
    """The controller at moments of a test, with what it writes in the cluster's namespace sent."""

    def __init__(self, cluster: Scene, results: Callable[[], RunResults], until: Callable[[], float | None]) -> None:
        client = cluster.plane.client(cluster.account)
        self.controller = RecommendationController(client, results, until)
        self.sender = Sender(client, AlwaysLeads(), time.monotonic, mirrored=False)
        self.cluster = cluster

    def at(self, seconds: float) -> tuple[int, CotenantError | None]:
        """How many writes its rounds make now, and what the last one says is wrong."""
        count, trouble = 0, None
        for _ in range(3):  # the object, its status, nothing
            decision = self.controller.decide({}, seconds)
            ours = [i for i in decision.intents if i.address.namespace == self.cluster.namespace]
            outcomes = self.sender.send(ours)
            assert all(outcome.ok for outcome in outcomes)
            self.controller.sent(outcomes)
            count, trouble = count + len(ours), decision.trouble
        return count, trouble

    def marks(self, name: str) -> tuple[str, dict[str, tuple[str, str]], str]:
        """Label, conditions and amount of cpu of one object."""
        path = f"{RECOMMENDATIONS}/namespaces/{self.cluster.namespace}/recommendations/{name}"
        live = self.cluster.api.get(path)
        conditions = {c["type"]: (c["status"], c["reason"]) for c in live["status"]["conditions"]}
        cpu = live["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"]
        return live["metadata"]["labels"]["cotenant.dev/state"], conditions, cpu


STALE = {"Ready": ("False", "Stale"), "Stale": ("True", "HistoryEnded"), "Withheld": ("False", "None")}


def test_what_is_published_grows_stale_although_no_new_run_ends(cluster: Scene) -> None:
    results = results_of(deployed(cluster), "nowhere")
    end = results.workloads[0].end_seconds
    drive = Drive(cluster, lambda: results, lambda: None)
    assert drive.at(end + 60) == (2, None)
    assert drive.at(end + DAY) == (0, None)  # 24 hours are the last moment at which it is current
    assert drive.marks("deployment-web")[0] == "current"
    assert drive.at(end + DAY + 1) == (2, None)
    assert drive.marks("deployment-web") == ("stale", STALE, "250m")
    assert drive.at(end + 9 * DAY) == (0, None)


def test_a_manager_that_begins_without_results_marks_what_is_surely_too_old_and_says_what_is_wrong(
    cluster: Scene,
) -> None:
    results = results_of(deployed(cluster), "nowhere")
    end = results.workloads[0].end_seconds
    Drive(cluster, lambda: results, lambda: None).at(end + 60)
    away, until = SourceUnreachable("prometheus is away"), end + 600.0

    def fail() -> RunResults:
        raise away

    restarted, ignorant = Drive(cluster, fail, lambda: until), Drive(cluster, fail, lambda: None)
    with pytest.raises(SourceUnreachable):
        ignorant.at(end + 9 * DAY)  # nothing is known of the history: it may be younger than a day
    with pytest.raises(SourceUnreachable):
        restarted.at(until + DAY)
    assert restarted.marks("deployment-web")[0] == "current"
    assert restarted.at(until + DAY + 1) == (2, away)
    assert restarted.marks("deployment-web") == ("stale", STALE, "250m")
    assert restarted.at(end + 9 * DAY) == (0, away)
    # A run that ends well makes it current again.
    assert Drive(cluster, lambda: results, lambda: None).at(end + DAY) == (2, None)
    assert restarted.marks("deployment-web")[0] == "current"


def test_kubernetes_collects_what_belonged_to_a_deleted_workload_and_node(cluster: Scene) -> None:
    (node,) = create_nodes(cluster.plane, 1, NodeShape(prefix=unique_name("collected")))
    workload = deployed(cluster)
    assert publish(cluster, results_of(workload, node)) == {"recommendations": 2, "forecasts": 1, "load-taints": 0}
    cluster.api.delete(f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/{workload.name}")
    cluster.api.delete(f"/api/v1/nodes/{node}")
    path = f"{RECOMMENDATIONS}/namespaces/{cluster.namespace}/recommendations/deployment-web"
    wait_for("no Recommendation", lambda: not cluster.api.exists(path))
    wait_for("no UsageForecast", lambda: not cluster.api.exists(f"{FORECASTS}/{node}"))


@pytest.mark.slow
def test_the_pipeline_runs_in_a_child_and_hands_its_results_back(tmp_path: Path) -> None:
    cluster = fill(Store(tmp_path.as_uri(), "small"), SyntheticSpec(nodes=3, workloads=12, days=3), Silent())
    settings = msgspec.structs.replace(Settings(), store=StoreSettings(url=tmp_path.as_uri()))
    metrics = Metrics("test", "3")
    pipeline = Pipeline(
        settings, "small", AlwaysLeads(), lambda: metrics.succeeded("pipeline", FixedClock(1_750_000_000.0))
    )
    pipeline.run_once()
    results = pipeline.results()
    success = metrics.registry.get_sample_value("cotenant_last_success_timestamp_seconds", {"task": "pipeline"})
    assert success == 1_750_000_000.0
    assert {n.node for n in results.nodes} == {n.name for n in cluster.inventory.nodes}
    # A one-off Job that is over has nothing to recommend.
    assert {w.ref for w in results.workloads} == {w.ref for w in without_over(cluster.inventory).workloads}
    for outlook in results.nodes:
        cpu = outlook.series[Resource.CPU]
        assert len(cpu.median) == len(cpu.high) == 48
        assert all(high >= median for median, high in zip(cpu.median, cpu.high, strict=True))


@pytest.mark.slow
def test_a_run_that_fails_says_until_when_history_is_stored(tmp_path: Path) -> None:
    fill(Store(tmp_path.as_uri(), "small"), SyntheticSpec(nodes=1, workloads=2, days=1), Silent())
    span = Store(tmp_path.as_uri(), "small").usage_span()
    closed = {"prometheus": {"url": "http://127.0.0.1:9"}}  # the port that discards answers nobody here
    profiler = msgspec.convert(closed, ProfilerSettings)
    settings = msgspec.structs.replace(Settings(), store=StoreSettings(url=tmp_path.as_uri()), profiler=profiler)
    pipeline = Pipeline(settings, "small", AlwaysLeads())
    assert pipeline.published_until() is None
    pipeline.run_once()
    with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:9"):
        pipeline.results()
    assert span is not None and pipeline.published_until() == span[1]


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
