"""What a NodeMetric does not say is unknown to the rules of load, and one of the future says nothing."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.extender.columns import NodeState, SnapshotColumn, rows_of
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.load import load_aware
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, NodeMetricWire, metric_of
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import (
    Aggregation,
    LoadAwareSettings,
    Percentages,
)
from cotenant.scheduler_ext.rebalance.classification import state_of
from cotenant.scheduler_ext.rebalance.load import NodeLoad

GIB = 1024.0**3
NOW = 1_700_000_000.0
NODE = ExtenderNode("n", capacity=(32_000.0, 64 * GIB), whole=(40_000.0, 80 * GIB))


def metric(usage: Any) -> LoadMetric:
    node = None if usage is None else {"nodeUsage": usage}
    return metric_of(msgspec.convert({"status": {"nodeMetric": node}}, NodeMetricWire))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"resources": None}, None),
        ({"resources": {}}, None),
        ({"resources": {"cpu": "much", "memory": "-1"}}, None),
        ({"resources": {"memory": "0"}}, None),
        ({"resources": {"cpu": "1"}}, (1000.0, math.nan)),
        ({"resources": {"cpu": "1", "memory": "0"}}, (1000.0, math.nan)),
        ({"resources": {"memory": "1Gi"}}, (math.nan, GIB)),
        ({"resources": {"cpu": "0", "memory": "1Gi"}}, (math.nan, GIB)),  # a machine that reports uses some
        ({"resources": {"cpu": "0n", "memory": "0Mi"}}, None),
    ],
)
def test_a_usage_that_is_not_reported_is_not_zero(usage: Any, expected: tuple[float, float] | None) -> None:
    measured_usage = metric(usage).usage
    assert (measured_usage is None) is (expected is None)
    if expected is not None:
        np.testing.assert_equal(measured_usage, expected)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        # the node uses 6 cores and 8 GiB, its pods 2 and 3
        (None, (4000.0, 5 * GIB)),
        ({}, (4000.0, 5 * GIB)),
        ({"cpu": "1"}, (1000.0, 5 * GIB)),
        ({"cpu": "much", "memory": "1Gi"}, (4000.0, GIB)),
        ({"cpu": "0", "memory": "1Gi"}, (0.0, GIB)),
    ],
)
def test_what_runs_outside_of_pods_is_the_rest_where_it_is_not_reported(
    system: dict[str, str] | None, expected: tuple[float, float]
) -> None:
    pods = [{"namespace": "ns", "name": "p", "podUsage": {"resources": {"cpu": "2", "memory": "3Gi"}}}]
    node = {"nodeUsage": {"resources": {"cpu": "6", "memory": "8Gi"}}}
    node |= {} if system is None else {"systemUsage": {"resources": system}}
    report = metric_of(msgspec.convert({"status": {"nodeMetric": node, "podsMetric": pods}}, NodeMetricWire))
    assert report.system == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"cpu": "1500m"}, (1500.0, math.nan)),
        ({"memory": "2Gi"}, (math.nan, 2 * GIB)),
        ({"cpu": "1500m", "memory": "much"}, (1500.0, math.nan)),
        ({"cpu": "0", "memory": "2Gi"}, (0.0, 2 * GIB)),
        # every running pod has memory
        ({"cpu": "1500m", "memory": "0"}, (1500.0, math.nan)),
        ({"cpu": "0", "memory": "0"}, None),
        ({}, None),
    ],
)
def test_a_pod_s_amount_that_the_report_lacks_is_not_measured(
    resources: dict[str, str], expected: tuple[float, float] | None
) -> None:
    other = {"namespace": "ns", "name": "q", "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
    pods = [{"namespace": "ns", "name": "p", "podUsage": {"resources": resources}}, other]
    node = {"nodeUsage": {"resources": {"cpu": "6", "memory": "8Gi"}}}
    report = metric_of(msgspec.convert({"status": {"nodeMetric": node, "podsMetric": pods}}, NodeMetricWire))
    np.testing.assert_equal(report.pods.get("ns/p", (None, False))[0], expected)
    # what is not measured of the pod is in the rest of the node's use: 6 cores and 8 GiB less what is measured
    cpu, memory = np.nan_to_num(expected or (0.0, 0.0))
    assert report.system == (6000 - 1000 - cpu, 8 * GIB - GIB - memory)


@pytest.mark.parametrize("missing", ["cpu", "memory"])
def test_a_statistic_of_one_resource_says_nothing_of_the_other(missing: str) -> None:
    amounts = {"cpu": "3", "memory": "4Gi"}
    del amounts[missing]
    window = {"duration": "5m0s", "usage": {"p95": {"resources": amounts}, "p99": {"resources": {}}}}
    node = {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}, "aggregatedNodeUsages": [window]}
    report = metric_of(msgspec.convert({"status": {"nodeMetric": node}}, NodeMetricWire))
    pair = (math.nan, 4 * GIB) if missing == "cpu" else (3000.0, math.nan)
    assert report.aggregated.keys() == {("p95", 300.0), ("p95", 0.0)}
    np.testing.assert_equal(report.aggregated["p95", 300.0], pair)


EVERY_SECOND_CORE = {f"ns/p{i}": ((20_000.0, GIB), False) for i in range(3)}
"""Three pods that use half of a machine of 40 cores each."""


def column(report: LoadMetric) -> Any:
    return rows_of([NodeState(NODE, report)], LoadAwareSettings()).T


@pytest.mark.parametrize(("at", "old"), [(NOW, False), (NOW + 120, False), (NOW + 121, True), (NOW - 10_000, True)])
def test_a_report_of_the_future_has_expired(at: float, old: bool) -> None:
    columns = column(LoadMetric(at, usage=(1000.0, GIB)))
    assert load_aware.expired_metric_mask(columns, NOW, LoadAwareSettings()).tolist() == [old]


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (None, Reason.METRIC_MISSING),
        (LoadMetric(None, usage=(1.0, 1.0)), Reason.METRIC_MISSING),
        (LoadMetric(NOW), Reason.METRIC_INCOMPLETE),
        (LoadMetric(NOW, usage=(1000.0, math.nan)), Reason.METRIC_INCOMPLETE),
        (LoadMetric(NOW + 3600, usage=(1000.0, GIB)), Reason.METRIC_AHEAD),
        (LoadMetric(NOW, usage=(1_484_000.0, GIB)), Reason.METRIC_IMPLAUSIBLE),
        (LoadMetric(NOW, usage=(1000.0, GIB), pods=EVERY_SECOND_CORE), Reason.METRIC_IMPLAUSIBLE),
        (LoadMetric(NOW - 180, usage=(1000.0, GIB)), Reason.METRIC_EXPIRED),
        (LoadMetric(NOW, usage=(1000.0, GIB)), Reason.OK),
    ],
)
def test_no_pod_is_moved_by_a_report_that_cannot_be_used(report: LoadMetric | None, reason: Reason) -> None:
    load = NodeLoad(NODE, report)
    assert state_of(load, NOW, 180) is reason


def test_a_load_that_passes_what_pods_may_have_is_believed_and_one_that_passes_the_machine_is_not() -> None:
    """The kubelet keeps a quarter of 40 cores back: 39 cores in use are 1.22 times what pods may have, and possible."""
    busy, impossible = (LoadMetric(NOW, usage=(cpu, GIB)) for cpu in (39_000.0, 1_484_000.0))
    assert state_of(NodeLoad(NODE, busy), NOW, 180) is Reason.OK
    assert column(busy)[SnapshotColumn.MEASURED].tolist() == [1.0]
    assert column(impossible)[SnapshotColumn.MEASURED].tolist() == [0.0]
    pod = NewPod(PodIdentity("ns", "p"))
    settings = LoadAwareSettings()
    assert load_aware.check_usage(column(busy), pod, NOW, settings).codes.tolist() == [Code.CPU]
    assert load_aware.check_usage(column(impossible), pod, NOW, settings).codes.tolist() == [Code.PASS]
    assert load_aware.points(column(impossible), pod, NOW, settings).tolist() == [0.0]


def test_a_statistic_that_passes_the_machine_is_as_one_that_is_not_reported() -> None:
    """One garbage sample of the last half hour makes the p99; the mean, and the other statistics, are possible."""
    p99: tuple[Aggregation, float] = ("p99", 1800.0)
    p95: tuple[Aggregation, float] = ("p95", 1800.0)
    wrong = LoadMetric(NOW, usage=(1000.0, GIB), aggregated={p99: (1_484_000.0, GIB), p95: (38_000.0, GIB)})
    without = LoadMetric(NOW, usage=(1000.0, GIB), aggregated={p95: (38_000.0, GIB)})
    for statistic, code in ((p99, Code.PASS), (p95, Code.AGGREGATED_CPU)):
        settings = LoadAwareSettings(
            aggregation=statistic[0], aggregated_seconds=1800, aggregated_usage=Percentages(65, 0)
        )
        values, other = (rows_of([NodeState(NODE, report)], settings).T for report in (wrong, without))
        np.testing.assert_array_equal(values, other)
        pod = NewPod(PodIdentity("ns", "p"))
        assert load_aware.check_usage(values, pod, NOW, settings).codes.tolist() == [code]
