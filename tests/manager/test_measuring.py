"""NodeMetrics from a real Prometheus into a real API server, and never over a living agent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.colocation.nodemetric import CollectPolicy, from_spec
from cotenant.base.controllers.contract import FIELD_MANAGER, ControllerDecision
from cotenant.base.errors import NoData
from cotenant.base.kube import KubeClient, Mirror, Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.features import mirrors_of
from cotenant.profiler.node_metric.controller import FORECAST_SECONDS, NodeMetricController, policy_of
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.profiler.node_metric.turn import ReportContext, steps
from cotenant.profiler.settings import PrometheusSettings
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.model.slo_forms import SloKey
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.support.exporter import EXPORTER_END as END
from tests.support.exporter import exporter_server

NODE = "10.0.0.1"  # without kube-state-metrics a node is known by its address
PATH = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[NodeMetricSource]:
    with exporter_server(tmp_path) as server:
        metric_source = NodeMetricSource(PrometheusSettings(url=server.url))
        yield metric_source
        metric_source.close()


@pytest.fixture
def client(control_plane: ControlPlane) -> KubeClient:
    """The manager's, with the rights of its account."""
    return control_plane.client(account(control_plane, "cotenant-manager"))


@pytest.fixture
def mirrors(control_plane: ControlPlane, client: KubeClient) -> Iterator[dict[str, Mirror[Any]]]:
    api = control_plane.api()
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    mirrors_by_kind = mirrors_of(client, Settings(), ["node-metric"], threading.Event())
    for mirror in mirrors_by_kind.values():
        mirror.start()
    assert all(mirror.wait_synced(60) for mirror in mirrors_by_kind.values())
    yield mirrors_by_kind
    for mirror in mirrors_by_kind.values():
        mirror.stop()
    api.delete(f"/api/v1/nodes/{NODE}")
    wait_for("its NodeMetric goes with it", lambda: not api.exists(PATH))


def test_a_node_without_an_agent_is_reported_once_and_an_agent_takes_over(
    control_plane: ControlPlane, client: KubeClient, mirrors: dict[str, Mirror[Any]], source: NodeMetricSource
) -> None:
    api, writer = control_plane.api(), Writer(client, FIELD_MANAGER)
    results = RunResults(computed_seconds=END - 600, prod_reclaimable={NODE: {Resource.CPU: 700}})
    feature = NodeMetricController(mirrors, source, lambda: results, 60.0)

    def send(decision: ControllerDecision) -> list[str]:
        own = [i for i in decision.intents if i.address.name == NODE]
        for intent in own:
            writer.send(intent)
        return [i.why for i in own]

    assert send(feature.decide({}, END)) == ["the node's collect policy is missing or outdated"]
    wait_for("the mirror shows the object", lambda: ("", NODE) in mirrors["nodemetrics"].snapshot())
    assert send(feature.decide({}, END)) == ["usage from Prometheus"]
    body = api.get(PATH)
    # busy 0.25 cores, 2 GB; no pod is known to run here, so all of it is the system's
    assert body["status"]["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "250m", "memory": "2000000000"}}
    assert body["status"]["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "700m"}}}
    assert body["metadata"]["ownerReferences"][0]["name"] == NODE
    wait_for("the mirror shows the report", lambda: mirrors["nodemetrics"].snapshot()["", NODE].reporter)
    assert send(feature.decide({}, END + 60)) == []  # no newer sample

    body["status"]["updateTime"] = datetime.fromtimestamp(END + 100, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    api.replace(f"{PATH}/status", body, fieldManager="koordlet")
    wait_for("the agent reports", lambda: mirrors["nodemetrics"].snapshot()["", NODE].reporter == "koordlet")
    assert mirrors["nodemetrics"].snapshot()["", NODE].spec_writers == (FIELD_MANAGER,), "so that it follows the policy"
    before = source.queries
    assert send(feature.decide({}, END + 120)) == []
    others = [n for _, n in mirrors["nodes"].snapshot() if n != NODE]
    assert others or source.queries == before  # nobody to ask for: nothing is asked


def test_samples_of_more_than_the_node_has_are_not_reported_and_told(
    control_plane: ControlPlane, mirrors: dict[str, Mirror[Any]], source: NodeMetricSource
) -> None:
    size = {"cpu": "100m", "memory": "64Gi", "pods": "110"}
    status = {"status": {"capacity": size, "allocatable": size}}
    control_plane.api().patch(f"/api/v1/nodes/{NODE}/status", status, kind="merge")
    wait_for("its size", lambda: mirrors["nodes"].snapshot()["", NODE].node.capacity)
    decision = NodeMetricController(mirrors, source, lambda: RunResults(END), 60.0).decide({}, END)
    # the exporter says 250m, which is 2.5 times the node
    assert [i.why for i in decision.intents if i.address.name == NODE] == [
        "the node's collect policy is missing or outdated"
    ]
    (note,) = [object_note for object_note in decision.notes if object_note.reason == "ImplausibleSamples"]
    assert f"such as {NODE}: nodeUsage: more cpu than the node's 100 millicores" in note.message


def test_a_node_gets_an_object_for_its_agent_also_where_prometheus_has_no_sample(
    client: KubeClient, mirrors: dict[str, Mirror[Any]], source: NodeMetricSource
) -> None:
    feature, late = NodeMetricController(mirrors, source, lambda: RunResults(END), 60.0), END + 30 * DAY_SECONDS
    first = feature.decide({}, late)
    intents = first.intents
    assert NODE in {intent.address.name for intent in intents}
    assert {intent.why for intent in intents} == {"the node's collect policy is missing or outdated"}
    for intent in intents:
        Writer(client, FIELD_MANAGER).send(intent)
    names = {("", intent.address.name) for intent in intents}
    wait_for("the mirror shows them", lambda: names <= mirrors["nodemetrics"].snapshot().keys())
    second = feature.decide({}, late)
    assert (second.intents, [type(decision.trouble) for decision in (first, second)]) == ((), [NoData, NoData])


def test_nodes_are_measured_before_the_pipeline_has_run_and_its_last_word_stands_for_a_day(
    control_plane: ControlPlane, client: KubeClient, mirrors: dict[str, Mirror[Any]], source: NodeMetricSource
) -> None:
    def nothing() -> RunResults:
        raise NoData("the first run of the pipeline has not ended yet")

    def decided(feature: NodeMetricController, now_seconds: float) -> list[Apply]:
        intents = feature.decide({}, now_seconds).intents
        return [i for i in intents if isinstance(i, Apply) and i.address.name == NODE]

    writer = Writer(client, FIELD_MANAGER)
    before = NodeMetricController(
        mirrors, source, lambda: RunResults(END, prod_reclaimable={NODE: {Resource.CPU: 700}}), 60.0
    )
    for what in ("object", "status"):
        for intent in decided(before, END):
            writer.send(intent)
        wait_for(what, lambda: ("", NODE) in mirrors["nodemetrics"].snapshot())
    wait_for("the outlook", lambda: mirrors["nodemetrics"].snapshot()["", NODE].prod_reclaimable)
    control_plane.api().patch(f"{PATH}/status", {"status": {"updateTime": moment(END - 600)}}, kind="merge")
    wait_for("an older report", lambda: mirrors["nodemetrics"].snapshot()["", NODE].update_seconds == END - 600)

    started = NodeMetricController(mirrors, source, nothing, 60.0)  # a manager that was restarted
    (status,) = decided(started, END)
    assert status.body["status"]["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "700m"}}}
    waiting = NodeMetricController(mirrors, source, nothing, 60.0)
    waiting._begun_seconds = END - FORECAST_SECONDS - 1  # more than a day without a run
    (status,) = decided(waiting, END)
    assert "prodReclaimableMetric" not in status.body["status"]


def test_how_usage_is_collected_follows_the_configuration() -> None:
    assert policy_of(SloConfig()) == CollectPolicy()
    colocation_config = {
        "metricAggregateDurationSeconds": 10,
        "metricReportIntervalSeconds": 120,
        "metricAggregatePolicy": {"durations": ["5m", "1h30m"]},
    }
    config = SloConfig().updated({SloKey.COLOCATION.value: json.dumps(colocation_config)})
    assert policy_of(config) == CollectPolicy(60, 120, (300, 5400))  # 10 s is under the floor of a minute
    assert policy_of(config.updated({SloKey.COLOCATION.value: "{"})) == policy_of(config)


DURATIONS = st.builds(
    "{}{}".format, st.sampled_from([1, 24, 25, 90, 1440, 1441, 86_400, 86_401]), st.sampled_from("hms")
)


@given(
    st.fixed_dictionaries(
        {"metricAggregatePolicy": st.fixed_dictionaries({"durations": st.lists(DURATIONS, min_size=1, max_size=3)})},
        optional={
            "metricAggregateDurationSeconds": st.sampled_from([1, 60, 86_400, 86_401]),
            "metricReportIntervalSeconds": st.sampled_from([1, 60, 86_400, 86_401]),
        },
    )
)
def test_the_agent_measures_by_the_windows_of_the_configuration_or_they_are_refused(collect: dict[str, Any]) -> None:
    config = SloConfig().updated({SloKey.COLOCATION.value: json.dumps(collect)})
    policy = policy_of(config)
    (spec,) = steps((), {}, ReportContext({"n1": "uid-1"}, FIELD_MANAGER, policy, END)).specs
    assert isinstance(spec, Apply)
    assert from_spec(spec.body["spec"]["metricCollectPolicy"]) == policy
    refused = [finding for finding in config.findings if finding.fatal]
    # 86,400 seconds are a day.
    too_long = any(seconds > 86_400 for seconds in collect.values() if isinstance(seconds, int))
    too_long |= any(
        int(text[:-1]) * {"h": 3600, "m": 60, "s": 1}[text[-1]] > 86_400
        for text in collect["metricAggregatePolicy"]["durations"]
    )
    assert bool(refused) is too_long
    assert (policy == CollectPolicy()) is too_long
