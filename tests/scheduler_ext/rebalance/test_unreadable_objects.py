"""One NodeMetric or forecast that cannot be read leaves the others to the round, which names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from cotenant.base.kube import KubeClient, connect
from cotenant.base.kube.watch import read_each
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.extender.watch.cluster_reader import read_cluster
from cotenant.scheduler_ext.rebalance.cluster_reading import read
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

pytestmark = [pytest.mark.server]

NOW: Final = 1_795_089_600.0
LEAP_SECOND: Final = "2026-11-19T23:59:60Z"
"""RFC 3339 has it, and so a definition's format date-time; no date of ours does."""
METRICS: Final = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
FORECASTS: Final = "/apis/cotenant.dev/v1alpha1/usageforecasts"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeClient]:
    """Two nodes: one is reported and foreseen, the other one by objects whose times cannot be read."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        for name in ("nodemetrics.slo.koordinator.sh", "usageforecasts.cotenant.dev"):
            install_crd(api, name)
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        usage = {"resources": {"cpu": "4", "memory": "8Gi"}}
        for name, time in (("good", "2026-11-19T23:59:50Z"), ("bad", LEAP_SECOND)):
            status = {"capacity": amounts, "allocatable": amounts}
            api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
            head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
            api.create(METRICS, head)
            report = {**head, "status": {"updateTime": time, "nodeMetric": {"nodeUsage": usage}}}
            api.patch(f"{METRICS}/{name}/status", report, "apply", fieldManager="test")
            api.create(FORECASTS, forecast(name, time))
        yield connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path_factory.mktemp("k") / "config"))))


def forecast(node: str, start: str) -> dict[str, Any]:
    usage = {"q50Millicores": [1000] * 48, "q95Millicores": [2000] * 48, "peak": "2"}
    memory = {"q50Bytes": [1 << 30] * 48, "q95Bytes": [1 << 31] * 48, "peak": "2Gi"}
    spec = {"start": start, "validUntil": "2026-11-21T00:00:00Z", "settingsDigest": "d", "cpu": usage, "memory": memory}
    return {"apiVersion": "cotenant.dev/v1alpha1", "kind": "UsageForecast", "metadata": {"name": node}, "spec": spec}


def test_a_round_takes_the_node_for_silent_and_says_why(client: KubeClient) -> None:
    reading = read(client, Settings().extender.load_aware, NOW)
    by_node = {load.node.name: load for load in reading.inputs.loads}
    assert by_node["good"].metric is not None and by_node["good"].outlook is not None
    assert (by_node["bad"].metric, by_node["bad"].outlook) == (None, None)
    metric, outlook, *_ = reading.gaps
    assert metric.startswith("NodeMetric bad cannot be read, so its node cannot be judged: ")
    assert outlook.startswith("forecast bad is not read: ")


def test_what_a_running_extender_would_see_has_the_other_node(client: KubeClient) -> None:
    reading = read_cluster(client, Settings().extender)
    assert {node.name for node in reading.nodes} == {"bad", "good"}
    error = reading.snapshot.sources["nodemetrics"].error
    assert error.startswith("nodemetrics bad cannot be read: ") and reading.snapshot.sources["nodemetrics"].synced


def test_each_object_is_read_or_refused_and_none_is_both(client: KubeClient) -> None:
    class Stop(Exception):
        pass

    def project(body: dict[str, Any]) -> str:
        if body["metadata"]["name"] == "bad":
            raise Stop("not this one")
        return str(body["metadata"]["name"])

    values, refused = read_each(client, "/api/v1/nodes", dict[str, Any], project)
    assert (values, refused) == ({("", "good"): "good"}, {("", "bad"): "Stop: not this one"})
