"""Windows of usage, and the NodeMetric made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.colocation.nodemetric import CollectPolicy, NodeMetric, from_spec, go_duration, seconds_of
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import CpuUse, KubeQos, MemoryUse, Observation
from cotenant.enforcer.report.usage import UsageHistory, node_metric, own_object
from tests.enforcer.readings import GIB, node, observation_of, pod

POLICY = CollectPolicy(aggregate_seconds=60, durations_seconds=(60, 120))


def at(second: float, millicores: float | None, web: float | None = 300.0) -> Observation:
    """A node of 8 GiB of which 4 are available, with one pod of 1 GiB."""
    reading = pod(
        "web",
        qos=QosClass.LS,
        kube=KubeQos.BURSTABLE,
        cpu=CpuUse(web),
        memory=MemoryUse(2 * GIB, GIB),
        priority_class=PriorityClass.PROD,
    )
    return observation_of(reading, machine=node(4, millicores), at=second)


def status_of(usage: UsageHistory, last: Observation, policy: CollectPolicy = POLICY) -> dict[str, Any]:
    metric_request = node_metric(last, usage, policy)
    assert metric_request is not None and metric_request.subresource == "status"
    status: dict[str, Any] = metric_request.body["status"]
    return status


def test_usage_is_the_mean_of_the_window_and_the_system_has_the_rest() -> None:
    usage = UsageHistory(120)
    for second in range(60):
        usage.take(at(second, 1000.0 + 10 * (second % 2)))
    status = status_of(usage, at(59, 1000.0))
    # Half of the samples are 1000, half 1010; the pod uses 300 of it, and 1 of the 4 GiB that are taken.
    assert status["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "1005m", "memory": str(4 * GIB)}
    assert status["nodeMetric"]["systemUsage"]["resources"] == {"cpu": "705m", "memory": str(3 * GIB)}
    assert status["podsMetric"] == [
        {
            "namespace": "default",
            "name": "web",
            "podUsage": {"resources": {"cpu": "300m", "memory": str(GIB)}},
            "priority": "koord-prod",
            "qos": "LS",
        }
    ]


def test_what_is_written_is_read_by_the_manager_as_it_was_meant() -> None:
    usage = UsageHistory()
    for second in range(30):
        usage.take(at(second, 1000.0))
    metric_request = node_metric(at(29, 1000.0), usage, POLICY)
    assert metric_request is not None
    read = NodeMetric.parse(metric_request.body)
    assert (read.node, read.notes) == ("n1", ())
    assert read.update_seconds == 1.7e9 + 29
    assert read.node_usage == {Resource.CPU: 1000, Resource.MEMORY: 4 * GIB}
    assert read.pods[0].usage == {Resource.CPU: 300, Resource.MEMORY: GIB}


def test_a_window_is_told_once_its_samples_span_more_than_half_of_it() -> None:
    usage = UsageHistory()
    for second in range(45):
        usage.take(at(second, float(second)))
    status = status_of(usage, at(44, 44.0))
    # 44 s are more than half of a minute, not of two.
    windows = status["nodeMetric"]["aggregatedNodeUsages"]
    assert [window["duration"] for window in windows] == ["1m0s"]
    # Of 0..44, 45 samples: the ceil(0.5 x 45) = 23rd is 22, the ceil(0.9 x 45) = 41st is 40, the 45th is 44.
    cpu = {kind: usage["resources"]["cpu"] for kind, usage in windows[0]["usage"].items()}
    assert cpu == {"avg": "22m", "p50": "22m", "p90": "40m", "p95": "42m", "p99": "44m"}


def test_before_the_first_cpu_reading_there_is_nothing_to_tell() -> None:
    usage = UsageHistory()
    usage.take(at(0, None))
    assert node_metric(at(0, None), usage, POLICY) is None


def test_a_pod_whose_cpu_is_not_known_yet_is_told_with_its_memory_alone() -> None:
    usage = UsageHistory()
    for second in range(3):
        usage.take(at(second, 500.0, web=None))
    assert status_of(usage, at(2, 500.0))["podsMetric"][0]["podUsage"]["resources"] == {"memory": str(GIB)}


def test_the_system_never_uses_less_than_nothing() -> None:
    usage = UsageHistory()
    usage.take(at(0, 100.0, web=300.0))
    assert status_of(usage, at(0, 100.0))["nodeMetric"]["systemUsage"]["resources"]["cpu"] == "0m"


def test_old_samples_and_pods_that_left_are_forgotten() -> None:
    usage = UsageHistory(keep_seconds=100)
    for second in range(0, 1000, 5):
        usage.take(at(second, 500.0))
    # Samples every 5 s of the last 100 s: 0, 5, ..., 100 back = 21; ten-second sums: at most 11.
    assert len(usage.samples) == 21 and len(usage.buckets) <= 11


def test_a_fast_tick_does_not_fill_the_memory() -> None:
    usage = UsageHistory(keep_seconds=100)
    for step in range(2000):
        usage.take(at(step / 10, 500.0))
    # One sample in 0.9 s or more: ticks of 0.1 s give one every 0.9 s at most.
    assert len(usage.samples) <= 100 / 0.9 + 1


def test_an_object_that_nobody_made_belongs_to_its_node() -> None:
    body = own_object("n1", "uid-1", POLICY).body
    assert body["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"}]
    assert from_spec(body["spec"]["metricCollectPolicy"]) == replace(POLICY, memory_policy="usageWithoutPageCache")


@given(st.integers(1, 86_400))
def test_durations_are_read_as_they_are_written(seconds: int) -> None:
    assert seconds_of(go_duration(seconds)) == seconds


@given(
    st.dictionaries(
        st.sampled_from(["aggregateDurationSeconds", "reportIntervalSeconds", "nodeAggregatePolicy"]),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.booleans()
        | st.fixed_dictionaries({"durations": st.lists(st.text(max_size=6) | st.integers(), max_size=3)}),
    )
)
def test_any_collect_policy_is_a_usable_one(collect: dict[str, Any]) -> None:
    policy = from_spec(collect)
    assert policy.aggregate_seconds >= 60 and policy.report_seconds >= 30
    assert policy.durations_seconds and 0 < policy.longest_seconds <= 86_400


@given(st.lists(st.integers(0, 64_000), min_size=32, max_size=60))
@settings(max_examples=40)
def test_percentiles_are_of_the_nearest_rank(values: list[int]) -> None:
    usage = UsageHistory()
    for second, value in enumerate(values):
        usage.take(at(second, float(value)))
    usage_of = status_of(usage, at(len(values), 0.0))["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]
    percents = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
    expected = {name: f"{int(np.percentile(values, p, method='inverted_cdf'))}m" for name, p in percents.items()}
    assert {name: usage_of[name]["resources"]["cpu"] for name in percents} == expected
