"""NodeMetric's status from samples and pods: sums, system usage, windows, and what is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import Pod
from cotenant.base.colocation.nodemetric import CollectPolicy, NodeMetric, go_duration
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.profiler.node_metric.status import Observed, ProdOutlook, reports
from cotenant.profiler.node_metric.windows import Track

CPU, MEMORY = Resource.CPU, Resource.MEMORY
END = 1_790_000_040
POLICY = CollectPolicy()


def pod(name: str, node: str = "n1", **classes: Any) -> Pod:
    return Pod("shop", name, WorkloadRef("shop", "Deployment", "web"), node, END - 3600, **classes)


def track(values: dict[str, list[float]]) -> Track:
    return Track(tuple(values), END, 60, np.array(list(values.values()), dtype=np.float64))


def observed(cpu: list[float], sums: list[float], pods: dict[str, tuple[float, float]]) -> Observed:
    """One node n1; memory is a thousand times the CPU's figures."""
    usage = np.array(list(pods.values()), dtype=np.float64).reshape(-1, 2)
    return Observed(
        {CPU: track({"n1": cpu}), MEMORY: track({"n1": [v * 1000 for v in cpu]})},
        {CPU: track({"n1": sums}), MEMORY: track({"n1": [v * 1000 for v in sums]})},
        {"n1": END - 7.5},
        tuple(("shop", name) for name in pods),
        {CPU: usage[:, 0], MEMORY: usage[:, 1]},
    )


HALF_HOUR = [float(i) for i in range(1, 31)]


def test_usage_is_the_mean_of_the_window_and_the_system_has_what_pods_do_not() -> None:
    observation = observed(HALF_HOUR, [0.0] * 30, {"a": (10, 9_000), "b": (5, 2_000), "elsewhere": (1, 1)})
    node_reports = reports(observation, [pod("a"), pod("b"), pod("elsewhere", "n2"), pod("unknown")], POLICY, {})
    status = node_reports[0].status
    # the last five minutes are 26..30: mean 28; pods use 15 and 11,000 of 28 and 28,000
    assert status["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "28m", "memory": "28000"}}
    assert status["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "13m", "memory": "17000"}}
    assert [m["name"] for m in status["podsMetric"]] == ["a", "b"]
    assert status["updateTime"] == "2026-09-21T14:13:52Z"  # the newest sample's time, whole seconds


def test_system_usage_is_never_below_zero() -> None:
    node_reports = reports(observed([10.0] * 30, [0.0] * 30, {"a": (50, 50_000)}), [pod("a")], POLICY, {})
    assert node_reports[0].status["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "0m", "memory": "0"}}


def test_windows_have_average_and_percentiles_of_node_and_system() -> None:
    node_reports = reports(observed(HALF_HOUR, [1.0] * 30, {}), [], POLICY, {})
    windows = node_reports[0].status["nodeMetric"]["aggregatedNodeUsages"]
    assert [w["duration"] for w in windows] == ["5m0s", "10m0s", "30m0s"]
    cpu = {k: v["resources"]["cpu"] for k, v in windows[2]["usage"].items()}
    # samples 1..30: mean 15.5 (rounds to even), ranks ceil(30 x p): 15th, 27th, 29th, 30th
    assert cpu == {"avg": "16m", "p50": "15m", "p90": "27m", "p95": "29m", "p99": "30m"}
    system = node_reports[0].status["nodeMetric"]["aggregatedSystemUsages"][0]["usage"]
    assert system["p50"]["resources"]["cpu"] == "27m"  # 26..30 less 1: the third of 25..29


def test_a_window_is_left_out_until_samples_span_more_than_half_of_it() -> None:
    young = [math.nan] * 24 + [5.0] * 6  # 5 minutes from first to last sample: more than half of 5, not of 10
    windows = reports(observed(young, young, {}), [], POLICY, {})[0].status["nodeMetric"]["aggregatedNodeUsages"]
    assert [w["duration"] for w in windows] == ["5m0s"]


def test_classes_are_published_with_their_default_and_unknown_ones_left_out() -> None:
    observation = observed(HALF_HOUR, [0.0] * 30, {"a": (1, 1), "b": (2, math.nan), "c": (3, 3)})
    pods = [
        pod("a", qos=QosClass.BE),
        pod("b", qos=QosClass.LS, priority=PriorityClass.MID),
        pod("c"),
    ]
    assert reports(observation, pods, POLICY, {})[0].status["podsMetric"] == [
        {
            "namespace": "shop",
            "name": "a",
            "podUsage": {"resources": {"cpu": "1m", "memory": "1"}},
            "priority": "koord-batch",
            "qos": "BE",
        },
        {
            "namespace": "shop",
            "name": "b",
            "podUsage": {"resources": {"cpu": "2m"}},
            "priority": "koord-mid",
            "qos": "LS",
        },
        {"namespace": "shop", "name": "c", "podUsage": {"resources": {"cpu": "3m", "memory": "3"}}},
    ]


def test_a_node_without_usage_is_not_reported() -> None:
    assert reports(observed([math.nan] * 30, [math.nan] * 30, {}), [], POLICY, {}) == []


def test_our_own_report_reads_back_as_the_decisions_read_it() -> None:
    outlook = ProdOutlook({CPU: 1200, MEMORY: 5_000_000}, {CPU: 300})
    observation = observed(HALF_HOUR, [0.0] * 30, {"a": (10, 9_000)})
    report = reports(observation, [pod("a", qos=QosClass.LS)], POLICY, {"n1": outlook})[0]
    read = NodeMetric.parse({"metadata": {"name": "n1"}, "status": report.status})
    assert (read.notes, read.update_seconds) == ((), END - 8)
    assert read.node_usage == {CPU: 28, MEMORY: 28_000} == report.usage
    assert read.system_usage == {CPU: 18, MEMORY: 19_000} == report.system
    assert read.prod_reclaimable == {CPU: 1200, MEMORY: 5_000_000}
    assert [(p.name, p.usage, p.priority) for p in read.pods] == [("a", {CPU: 10, MEMORY: 9000}, PriorityClass.PROD)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45s"), (300, "5m0s"), (600, "10m0s"), (3600, "1h0m0s"), (5400, "1h30m0s")]
)
def test_durations_are_written_as_go_writes_them(seconds: int, text: str) -> None:
    assert go_duration(seconds) == text
