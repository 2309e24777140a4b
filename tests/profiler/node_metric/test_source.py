"""Questions to a real Prometheus, their answers as status, and the status on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import Pod
from cotenant.base.colocation.nodemetric import CollectPolicy, NodeMetric
from cotenant.base.errors import NoData, SourceError, SourceUnfit
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import Writer
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.profiler.node_metric.status import Observed, reports
from cotenant.profiler.node_metric.turn import ReportContext, ReportDecision, steps
from cotenant.profiler.settings import PrometheusSettings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fake_nodes import delete_nodes
from tests.cluster.waiting import wait_for
from tests.profiler.conftest import Served, serve
from tests.support.exporter import EXPORTER_END, exporter_server
from tests.support.openmetrics import Dress

pytestmark = [pytest.mark.server, pytest.mark.slow]

CPU, MEMORY = Resource.CPU, Resource.MEMORY
POLICY = CollectPolicy()


def settings(url: str) -> PrometheusSettings:
    return PrometheusSettings(url=url, backoff_seconds=0.01, connect_timeout_seconds=2.0)


@pytest.fixture
def source(served: Served) -> Iterator[NodeMetricSource]:
    metric_source = NodeMetricSource(settings(served.server.url))
    yield metric_source
    metric_source.close()


def observed(source: NodeMetricSource, served: Served, back: int = 0) -> Observed:
    return source.observe(served.end - back, POLICY, {})


def test_a_round_has_what_the_nodes_and_pods_really_used(source: NodeMetricSource, served: Served) -> None:
    observation = observed(source, served)
    truth = served.cluster.usage[Signal.NODE_CPU_USAGE_MEAN]
    names = [ref.name for ref in truth.refs]
    assert observation.nodes[CPU].nodes == tuple(sorted(names)) and observation.nodes[CPU].values.shape == (
        len(names),
        30,
    )
    # The root group's mean over the last half hour; rates reach four minutes back, so the edges are smoothed.
    expected = {ref.name: float(row[-6:].mean()) for ref, row in zip(truth.refs, truth.values, strict=True)}
    got = dict(
        zip(observation.nodes[CPU].nodes, np.nanmean(observation.nodes[CPU].values, axis=1).tolist(), strict=True)
    )
    assert got == pytest.approx(expected, rel=0.25)
    running = {(p.namespace, p.name) for p in served.cluster.inventory.pods if p.running}
    assert len(running & set(observation.pods)) >= 0.95 * len(running)
    assert all(served.end - 120 < t <= served.end for t in observation.newest.values())


def test_a_pods_usage_is_the_mean_over_its_containers(source: NodeMetricSource, served: Served) -> None:
    observation = observed(source, served)
    truth = served.cluster.usage[Signal.CPU_USAGE_MEAN]
    expected: dict[tuple[str, str], float] = {}
    for ref, row in zip(truth.refs, truth.values, strict=True):
        if np.isfinite(row[-2:]).all():
            key = (ref.namespace, ref.pod)
            expected[key] = expected.get(key, 0.0) + float(row[-1])
    got = dict(zip(observation.pods, observation.usage[CPU].tolist(), strict=True))
    shared = [k for k in expected if k in got and expected[k] > 20]
    assert len(shared) > 10
    ratios = np.array([got[k] / expected[k] for k in shared])
    # one 5-minute slot, seen through scrapes that lie up to a minute before its end
    assert 0.9 < np.median(ratios) < 1.1


def test_a_second_round_asks_for_the_new_minutes_only_and_has_the_same_half_hour(
    source: NodeMetricSource, served: Served
) -> None:
    observed(source, served, back=180)
    before = source.queries
    again = observed(source, served)
    assert source.queries - before == 7
    fresh = NodeMetricSource(settings(served.server.url))
    unsplit = observed(fresh, served)
    fresh.close()
    np.testing.assert_allclose(again.nodes[CPU].values, unsplit.nodes[CPU].values, rtol=1e-6)
    np.testing.assert_allclose(again.sums[MEMORY].values, unsplit.sums[MEMORY].values, rtol=1e-6)


def test_a_node_that_two_servers_scrape_counts_once(served: Served, tmp_path: Path) -> None:
    twice = Dress(interval_seconds=60, scrapers=({}, {"replica": "b"}))
    with serve(served.cluster, tmp_path, twice) as server:
        source = NodeMetricSource(settings(server.url))
        both = source.observe(served.end, POLICY, {})
        source.close()
    metric_source = NodeMetricSource(settings(served.server.url))
    alone = metric_source.observe(served.end, POLICY, {})
    metric_source.close()
    assert both.nodes[CPU].nodes == alone.nodes[CPU].nodes
    # the second scraper looks at other moments, so values differ a little, never by a factor of two
    ratios = (
        both.usage[CPU].sum() / alone.usage[CPU].sum(),
        both.sums[CPU].values[:, -1] / alone.sums[CPU].values[:, -1],
    )
    assert 0.9 < ratios[0] < 1.4 and (ratios[1] < 1.5).all()


@pytest.mark.parametrize(("first", "names"), [({"cluster": "lab"}, "lab, prod"), ({}, r"\(none\), prod")])
def test_a_server_that_holds_two_clusters_is_refused_by_name(
    served: Served, tmp_path: Path, first: dict[str, str], names: str
) -> None:
    two_clusters = Dress(interval_seconds=60, scrapers=(first, {"cluster": "prod"}))
    with serve(served.cluster, tmp_path, two_clusters) as server:
        source = NodeMetricSource(settings(server.url))
        with pytest.raises(SourceUnfit, match=f"2 clusters, by the label cluster: {names}") as refusal:
            source.observe(served.end, POLICY, {})
        source.close()
    assert "profiler.prometheus.labels" in refusal.value.fix


def test_a_server_without_nodes_is_no_data_and_a_gone_one_an_error(source: NodeMetricSource, served: Served) -> None:
    with pytest.raises(NoData, match="no recent sample"):
        source.observe(served.end + 7200, POLICY, {})
    unreachable_source = NodeMetricSource(
        PrometheusSettings(url="http://127.0.0.1:9", retries=0, connect_timeout_seconds=0.5)
    )
    with pytest.raises(SourceError):
        unreachable_source.observe(served.end, POLICY, {})
    unreachable_source.close()


@pytest.mark.parametrize("off_seconds", [3600, -3600, 60])
def test_a_server_whose_clock_is_off_is_asked_by_the_clock_that_its_samples_have(
    tmp_path: Path, off_seconds: int
) -> None:
    """The caller's time is off instead of the server's, which is the same for the two."""
    with exporter_server(tmp_path, int(time.time())) as server:
        source = NodeMetricSource(settings(server.url), compares_clocks=True)
        now = int(time.time())
        observation = source.observe(now - off_seconds, POLICY, {})
        # 2 CPUs, of which 1.7 are idle and 0.05 wait for a disk: 250 millicores, in the half hour that has just passed
        assert float(np.nanmean(observation.nodes[CPU].values)) == pytest.approx(250.0, rel=0.01)
        # the newest sample is 30 s old as the server starts, and 300 s old at most; its time is by the caller's clock
        expected = off_seconds if off_seconds != 60 else 0
        (newest,) = observation.newest.values()
        assert 0 <= now - newest - expected <= 300
        assert observation.clock_ahead_seconds == pytest.approx(expected, abs=60)
        # once the clock is set, nothing of the other time is left
        again = source.observe(int(time.time()), POLICY, {})
        assert again.clock_ahead_seconds == 0 and 0 <= time.time() - max(again.newest.values()) <= 360
        source.close()


def metrics(control_plane: ControlPlane) -> dict[str, NodeMetric]:
    """The NodeMetrics of the cluster by node."""
    items = control_plane.admin_client().list("/apis/slo.koordinator.sh/v1alpha1/nodemetrics", dict[str, Any])
    return {metric.node: metric for metric in map(NodeMetric.parse, items)}


@pytest.fixture
def node_uids(served: Served, control_plane: ControlPlane) -> Iterator[dict[str, str]]:
    """UIDs of new Nodes by their names, those of the served cluster; gone after the test with their NodeMetrics."""
    api = control_plane.api()
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    names = [node.name for node in served.cluster.inventory.nodes]
    bodies = ({"kind": "Node", "metadata": {"name": name}} for name in names)
    uids = {n: api.create("/api/v1/nodes", b)["metadata"]["uid"] for n, b in zip(names, bodies, strict=True)}
    yield uids
    delete_nodes(control_plane, uids)
    wait_for("their NodeMetrics to go with them", lambda: not metrics(control_plane).keys() & uids)


def test_the_api_server_takes_the_report_and_gives_nothing_to_do_afterwards(
    source: NodeMetricSource, served: Served, control_plane: ControlPlane, node_uids: dict[str, str]
) -> None:
    api = control_plane.api()
    node_reports = reports(observed(source, served), served.cluster.inventory.pods, POLICY, {})
    assert {r.node for r in node_reports} == node_uids.keys()
    assert sum(len(r.status["podsMetric"]) for r in node_reports) > 20
    view = ReportContext(node_uids, "cotenant-manager", POLICY, float(served.end))
    writer = Writer(control_plane.client(account(control_plane, "cotenant-manager")), "cotenant-manager")
    for _ in range(2):  # the objects, then their statuses
        report_steps = steps(node_reports, metrics(control_plane), view)
        for intent in (*report_steps.specs, *report_steps.statuses):
            writer.send(intent)
    stored_metrics = metrics(control_plane)
    assert all(stored_metrics[n].reporter == "cotenant-manager" for n in node_uids)
    second = steps(node_reports, stored_metrics, view)
    assert (second.specs, second.statuses, second.turns[ReportDecision.NO_NEWER]) == ((), (), len(node_reports))
    # an agent that reports by itself becomes the reporter, and ours steps back
    node = node_reports[0].node
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{node}"
    metric_body = api.get(path)
    metric_body["status"]["updateTime"] = "2030-01-01T00:00:00Z"
    api.replace(f"{path}/status", metric_body, fieldManager="koordlet")
    assert metrics(control_plane)[node].reporter == "koordlet"
    assert api.get(path)["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"].endswith("m")


def test_node_exporter_stands_in_for_a_kubelet_whose_root_group_is_not_scraped(tmp_path: Path) -> None:
    with exporter_server(tmp_path) as server:
        source = NodeMetricSource(settings(server.url))
        observation = source.observe(EXPORTER_END, POLICY, {"10.0.0.1": "n1"})
        source.close()
    pod = Pod("shop", "web", WorkloadRef("shop", "Pod", "web"), "n1", EXPORTER_END - 3600)
    report = reports(observation, [pod], POLICY, {})[0]
    # busy = user + system = 0.25 cores; used = 8 - 6 GB; the pod has 0.1 cores and 1 GB of it
    assert report.usage == {CPU: 250, MEMORY: 2_000_000_000}
    assert report.system == {CPU: 150, MEMORY: 1_000_000_000}
    assert report.time_seconds == EXPORTER_END - 30
    assert [w["duration"] for w in report.status["nodeMetric"]["aggregatedNodeUsages"]] == ["5m0s", "10m0s", "30m0s"]
