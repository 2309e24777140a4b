"""The demo's stand-in for node agents on an API server: whom it reports, whom it leaves alone, who believes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.errors import ClusterAbsent
from cotenant.base.kube import KubeClient, connect
from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.profiler.node_metric.turn import ReportContext, unreported_nodes
from cotenant_lab.simulation import node_agents, usage_now
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.cluster_population import present_cluster, resident
from cotenant_lab.simulation.node_agents import NodeAgents, ReportPace
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.api import Api
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

NOW = 1_795_089_600
SPEC = SyntheticSpec(workloads=8, days=1, end_seconds=NOW)
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SIZE = {"cpu": "32", "memory": "128Gi", "pods": "110"}
KWOK = {"annotations": {"kwok.x-k8s.io/node": "fake"}}
DEMO = {"labels": {"cotenant.dev/demo": "true"}}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with EmbeddedServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield embedded_api(server)


@pytest.fixture
def client(api: Api, tmp_path: Path) -> KubeClient:
    del api  # its server has written the kubeconfig
    return connect(KubeSettings(kubeconfig=str(tmp_path / "kubeconfig")))


def node(api: Api, name: str, **metadata: Any) -> None:
    status = {"capacity": SIZE, "allocatable": SIZE}
    api.create("/api/v1/nodes", {"metadata": {"name": name, **metadata}, "status": status})


def pod(api: Api, name: str, on: str) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {"nodeName": on, "containers": [{"name": "x", "image": "x", "resources": resources}]}
    api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})


def agents_of(client: KubeClient, now_seconds: float = NOW, **pace: float) -> NodeAgents:
    standing = present_cluster(resident(SPEC, node_agents.nodes_of(client)), "test", NOW)
    return NodeAgents(client, usage_now.curves(standing), FixedClock(now_seconds), ReportPace(**pace))


def test_only_nodes_that_no_kubelet_runs_are_reported(api: Api, client: KubeClient) -> None:
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    node(api, "kwok", **KWOK)
    node(api, "demo", **DEMO)
    node(api, "test", labels={"cotenant.dev/test": "true"})  # a real one, lent for tests: it has a kubelet
    node(api, "real")
    pod(api, "a", "kwok")
    pod(api, "b", "real")
    agent_round = agents_of(client).round()
    assert sorted(metric["metadata"]["name"] for metric in api.items(METRICS)) == ["demo", "kwok"]
    assert (agent_round.reported, agent_round.nodes, agent_round.pods) == (2, 2, 1)
    node_metric = node_agents.metrics(client)["kwok"]
    assert (node_metric.reporter, node_metric.update_seconds) == ("cotenant-demo", NOW)
    # system: 0.015 x 32000 + 80 = 560; a pod without a curve uses 0.6 x 1000, by at most 15 % more or less
    assert node_metric.node_usage[Resource.CPU] == pytest.approx(560 + 600, abs=91)
    assert [(p.namespace, p.name) for p in node_metric.pods] == [("default", "a")]


def test_a_living_agents_report_is_left_alone_and_a_silent_ones_is_taken_over(api: Api, client: KubeClient) -> None:
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    node(api, "n1", **KWOK)
    api.create(METRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n1"}})
    theirs = {"updateTime": "2026-11-19T11:59:30Z", "nodeMetric": {"nodeUsage": {"resources": {"cpu": "7"}}}}
    body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "status": theirs}
    api.patch(f"{METRICS}/n1/status", body, "apply", fieldManager="koordlet")
    assert agents_of(client, NOW).round().reported == 0  # their report is 30 s old
    assert node_agents.metrics(client)["n1"].node_usage[Resource.CPU] == 7000
    assert agents_of(client, NOW + 600).round().reported == 1
    assert node_agents.metrics(client)["n1"].reporter == "cotenant-demo"


def test_every_round_renews_its_report_and_the_manager_takes_it_for_a_living_agent(
    api: Api, client: KubeClient
) -> None:
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    node(api, "n1", **KWOK)
    for later in (0, 60, 120):
        agents_of(client, NOW + later).round()
        metrics = node_agents.metrics(client)
        assert metrics["n1"].update_seconds == NOW + later
        view = ReportContext({"n1": "u"}, "cotenant-manager", CollectPolicy(), NOW + later + 60)
        assert unreported_nodes(["n1"], metrics, view) == []


def test_what_it_reported_can_be_withdrawn_and_nothing_else(api: Api, client: KubeClient) -> None:
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    node(api, "n1", **KWOK)
    api.create(METRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n2"}})
    agents_of(client).round()
    assert [d.address.name for d in node_agents.own_metric_deletes(node_agents.metrics(client).values())] == ["n1"]


def test_without_the_kind_it_says_so(api: Api, client: KubeClient) -> None:
    node(api, "n1", **KWOK)
    with pytest.raises(ClusterAbsent):
        agents_of(client).round()


def test_time_may_run_faster_than_reports(api: Api, client: KubeClient) -> None:
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    node(api, "n1", **KWOK)

    class Clock:
        seconds = float(NOW)

        def now_seconds(self) -> float:
            return self.seconds

    clock = Clock()
    standing = present_cluster(resident(SPEC, node_agents.nodes_of(client)), "test", NOW)
    fast = NodeAgents(client, usage_now.curves(standing), clock, ReportPace(5.0, 60.0))
    clock.seconds += 10
    # ten seconds of the clock are ten minutes of the day, and the report's time is the clock's
    assert fast.round().of_day_seconds == NOW + 600
    assert node_agents.metrics(client)["n1"].update_seconds == NOW + 10
