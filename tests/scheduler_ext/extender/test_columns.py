"""The assign cache: what a node is taken to use, with the pods that its report cannot know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import GIB, MIB
from cotenant.scheduler_ext.extender.columns import NodeState, SnapshotColumn, node_row, share_of
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, thresholds_of
from cotenant.scheduler_ext.extender.pod import NewPod, Pair
from cotenant.scheduler_ext.extender.settings import (
    Aggregation,
    ExtenderSettings,
    LoadAwareSettings,
    Percentages,
)
from tests.scheduler_ext.extender.worlds import NOW, World, facts, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
BE = {"koordinator.sh/qosClass": "BE"}


def used(cluster: World, first: SnapshotColumn = SnapshotColumn.USED_CPU) -> tuple[float, float]:
    columns = cluster.show().snapshot.columns
    return float(columns[first, 0]), float(columns[first + 1, 0])


def measured_cluster(**metric: Any) -> World:
    return World().node("n1").metric("n1", **metric)


def prod_pod(name: str = "p", **more: Any) -> dict[str, Any]:
    """A prod pod that is estimated at 850 m and 700 Mi."""
    return pod_json(name, {"cpu": "1", "memory": "1000Mi"}, node="n1", labels=LS, **more)


def test_an_old_measured_pod_counts_what_it_uses() -> None:
    cluster = measured_cluster(cpu="2", memory="10Gi", pods=[("p", "100m", "50Mi", "koord-prod")])
    assert used(cluster.pod(prod_pod(scheduled=NOW - 600))) == (2000, 10 * GIB)


@pytest.mark.parametrize(
    ("scheduled", "young"),
    [
        (NOW + 1, True),  # placed after the report
        (NOW - 59, True),  # less than one report interval (60 s) before it
        (NOW - 60, False),  # exactly one interval before it
        (NOW - 61, False),
    ],
)
def test_a_young_pod_counts_its_estimate_until_a_whole_report_has_seen_it(scheduled: float, young: bool) -> None:
    cluster = measured_cluster(cpu="2", memory="10Gi", pods=[("p", "100m", "50Mi", "koord-prod")])
    # 2,000 + (850 - 100) m and 10 Gi + (700 - 50) Mi
    expected = (2750, 10 * GIB + 650 * MIB) if young else (2000, 10 * GIB)
    assert used(cluster.pod(prod_pod(scheduled=scheduled))) == expected


def test_a_pod_that_is_not_measured_counts_its_estimate_however_old() -> None:
    assert used(measured_cluster(cpu="2", memory="10Gi").pod(prod_pod(scheduled=NOW - 9999))) == (
        2850,
        10 * GIB + 700 * MIB,
    )


def test_an_estimate_below_the_measured_use_takes_nothing_away() -> None:
    cluster = measured_cluster(cpu="2", memory="10Gi", pods=[("p", "1", "1Gi", "koord-prod")])
    assert used(cluster.pod(prod_pod(scheduled=NOW))) == (2000, 10 * GIB)


def test_a_pod_that_left_and_a_placeholder_count_nothing() -> None:
    cluster = measured_cluster(cpu="2", memory="10Gi").pod(prod_pod(scheduled=NOW)).pod(prod_pod("q", scheduled=NOW))
    placeholder = prod_pod("h", scheduled=NOW)
    placeholder["metadata"]["labels"] |= {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": "r"}
    placeholder["metadata"]["namespace"] = "cotenant-reservations"
    cluster.pod(placeholder).remove_pod("q")
    assert used(cluster) == (2850, 10 * GIB + 700 * MIB)
    snapshot = cluster.view.snapshot
    assert snapshot.columns[SnapshotColumn.PLACEHOLDERS, 0] == 1
    # but the scheduler counts the placeholder: 1,000 m each
    assert snapshot.columns[SnapshotColumn.REQUESTED_CPU, 0] == 2000


def test_a_pod_of_another_class_than_reported_counts_as_prod_by_its_estimate() -> None:
    cluster = measured_cluster(
        cpu="2", memory="10Gi", pods=[("p", "100m", "50Mi", "koord-batch"), ("q", "1", "1Gi", "koord-prod")]
    )
    cluster.pod(prod_pod("p", scheduled=NOW - 600)).pod(prod_pod("q", scheduled=NOW - 600))
    # q by its report, 1,000 m; p is reported as batch: its whole estimate, 850 m
    assert used(cluster, SnapshotColumn.PROD_USED_CPU) == (1850, GIB + 700 * MIB)


def test_the_windows_after_scheduling_keep_an_estimate_alive() -> None:
    load = LoadAwareSettings(estimated_seconds_after_scheduled=700)
    cluster = World(ExtenderSettings(load_aware=load)).node("n1")
    cluster.metric("n1", cpu="2", memory="10Gi", pods=[("p", "100m", "50Mi", "koord-prod")])
    assert used(cluster.pod(prod_pod(scheduled=NOW - 600))) == (2750, 10 * GIB + 650 * MIB)


AGGREGATED = [
    {"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "6", "memory": "20Gi"}}}},
    {"duration": "30m0s", "usage": {"p95": {"resources": {"cpu": "7", "memory": "21Gi"}}, "p50": {"resources": {}}}},
]


@pytest.mark.parametrize(
    ("seconds", "statistic", "expected"),
    [
        (300, "p95", 6000),
        (0, "p95", 7000),  # the longest window
        (0, "p50", 2000),  # the longest is empty: plain usage
        (600, "p95", 850),  # no such window: the estimates of all pods instead
    ],
)
def test_an_aggregated_usage_is_looked_up_by_statistic_and_window(
    seconds: int, statistic: Aggregation, expected: float
) -> None:
    load = LoadAwareSettings(
        aggregation=statistic,
        aggregated_seconds=seconds,
        aggregated_usage=Percentages(60, 0),
    )
    cluster = World(ExtenderSettings(load_aware=load)).node("n1").metric("n1", cpu="2", aggregated=AGGREGATED)
    if expected == 850:
        cluster.pod(prod_pod(scheduled=NOW - 600))
    assert used(cluster)[0] == expected
    assert cluster.view.snapshot.columns[SnapshotColumn.LIMIT_CPU, 0] == 60


def test_a_nodes_annotation_overrides_thresholds_and_a_broken_one_does_not() -> None:
    own = '{"usageThresholds": {"cpu": 80}, "prodUsageThresholds": {"memory": 50}, "aggregatedUsage": {}}'
    cluster = World().node("n1", annotations={"scheduling.koordinator.sh/usage-thresholds": own})
    cluster.node("n2", annotations={"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"cpu": "x"}}'})
    columns = cluster.show().snapshot.columns
    # a map replaces the whole map: memory is not looked at on n1
    assert columns[SnapshotColumn.LIMIT_CPU].tolist() == [80, 65]
    assert columns[SnapshotColumn.LIMIT_MEMORY].tolist() == [0, 95]
    assert columns[SnapshotColumn.PROD_LIMIT_MEMORY].tolist() == [50, 0]


def test_an_aggregated_override_needs_thresholds_and_a_statistic() -> None:
    parts = '"usageThresholds": {"cpu": 55}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"'
    annotation = f'{{"aggregatedUsage": {{{parts}}}}}'
    assert thresholds_of(annotation).aggregated == (55, 0)
    assert thresholds_of(annotation).aggregation == ("p95", 300)
    assert thresholds_of('{"aggregatedUsage": {"usageThresholds": {"cpu": 55}}}').aggregated is None
    assert thresholds_of("[" * 100_000).usage is None


def test_an_amplified_node_is_measured_against_its_raw_size() -> None:
    raw = {"node.koordinator.sh/raw-allocatable": '{"cpu": "8"}'}
    snapshot = World().node("n1", cpu="16", annotations=raw).show().snapshot
    assert snapshot.columns[SnapshotColumn.CAPACITY_CPU, 0] == 8000
    assert snapshot.columns[SnapshotColumn.ALLOCATABLE_CPU, 0] == 16000


# --- against a plain loop ---------------------------------------------------------------------------------------------
PAIRS = st.tuples(st.integers(0, 5000), st.integers(0, 2**33)).map(lambda p: (float(p[0]), float(p[1])))


@st.composite
def states(draw: st.DrawFn) -> NodeState:
    pods, reported = [], {}
    for i in range(draw(st.integers(0, 5))):
        labels = {"koordinator.sh/qosClass": draw(st.sampled_from(["LS", "BE", "LSR"]))}
        pod = facts(pod_json(f"p{i}", labels=labels, node="n"))
        assigned = NOW + draw(st.integers(-200, 20))
        until = draw(st.one_of(st.none(), st.integers(-100, 100).map(lambda s: NOW + s)))
        pods.append(replace(pod, estimate=draw(PAIRS), assigned_seconds=assigned, young_until=until))
        if draw(st.booleans()):
            cpu, memory = draw(PAIRS)
            lacking = draw(st.sampled_from(["", "", "cpu", "memory"]))
            measured = (math.nan if lacking == "cpu" else cpu, math.nan if lacking == "memory" else memory)
            reported[pod.key] = (measured, draw(st.booleans()))
    usage = draw(st.one_of(st.none(), PAIRS))
    metric = LoadMetric(
        draw(st.one_of(st.none(), st.just(NOW))), float(draw(st.sampled_from([30, 60]))), usage, pods=reported
    )
    return NodeState(ExtenderNode("n", capacity=(10000.0, 2.0**36)), metric, tuple(pods))


def reference(state: NodeState, resource: int) -> tuple[float, float]:
    """(used, used by prod) of one resource, pod by pod as the source has it.

    It takes an amount that the report lacks for 0. Here a pod's estimate stands in for it in prod's sum; the node's use
    has it.
    """
    metric = state.metric
    assert metric is not None
    delta = estimated = prod_usage = prod_delta = 0.0
    for pod in state.pods:
        pod_usage = metric.pods.get(pod.key)
        u, active = (pod_usage[0][resource], pod.prod and pod_usage[1]) if pod_usage else (None, False)
        e = pod.estimate[resource]
        assert pod.assigned_seconds is not None
        updated = metric.updated_seconds if metric.updated_seconds is not None else -1e18
        should = u is None or updated - metric.report_seconds < pod.assigned_seconds
        should = should or (pod.young_until is not None and pod.young_until > updated)
        if u is not None and math.isnan(u):
            prod_usage += e * (active and not should)
            u = 0.0
        elif active:
            prod_usage += u or 0.0
        if should:
            delta += max(e - (u or 0.0), 0.0)
        estimated += e
        if not pod.prod:
            continue
        if not active and u is not None:
            u, should = None, True
        if should:
            prod_delta += max(e - (u or 0.0), 0.0)
    total = estimated if metric.usage is None else metric.usage[resource] + delta
    return total, prod_usage + prod_delta


@settings(max_examples=150)
@given(states())
def test_a_row_is_what_a_loop_over_the_pods_gives(state: NodeState) -> None:
    row = node_row(state, LoadAwareSettings())
    for resource in (0, 1):
        expected = reference(state, resource)
        assert (row[SnapshotColumn.USED_CPU + resource], row[SnapshotColumn.PROD_USED_CPU + resource]) == expected


@settings(max_examples=100)
@given(states(), st.data())
def test_taking_a_pod_away_takes_its_share_away(state: NodeState, data: st.DataObject) -> None:
    """What preemption counts on. With the pod its measured use goes too, which a node's next report will show."""
    assert state.metric is not None
    if not state.pods or state.metric.usage is None:
        return
    victim: NewPod = data.draw(st.sampled_from(list(state.pods)))
    share = share_of(victim, state.metric)
    measured = state.metric.pods.get(victim.key, ((0.0, 0.0), False))
    without_victim = NodeState(state.node, _without(state.metric, victim.key, measured), _others(state.pods, victim))
    with_it, without = node_row(state, LoadAwareSettings()), node_row(without_victim, LoadAwareSettings())
    assert np.allclose(with_it[4:6] - (share.used_cpu, share.used_memory), without[4:6])
    assert np.allclose(with_it[9:11] - (share.prod_cpu, share.prod_memory), without[9:11])


def _without(metric: LoadMetric, key: str, measured: tuple[Pair, bool]) -> LoadMetric:
    assert metric.usage is not None
    cpu, memory = np.nan_to_num(measured[0]).tolist()
    usage = (metric.usage[0] - cpu, metric.usage[1] - memory)
    return LoadMetric(
        metric.updated_seconds, metric.report_seconds, usage, pods={k: v for k, v in metric.pods.items() if k != key}
    )


def _others(pods: Sequence[NewPod], victim: NewPod) -> tuple[NewPod, ...]:
    return tuple(p for p in pods if p is not victim)


def test_every_column_has_a_place_of_its_own() -> None:
    assert sorted(SnapshotColumn) == list(range(len(SnapshotColumn)))
