"""LoadAware over all nodes: thresholds, expiry, ranking, the circuit breaker; numbers derived beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.columns import WIDTH, SnapshotColumn
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.load import load_aware
from cotenant.scheduler_ext.extender.settings import (
    ExtenderSettings,
    LoadAwareSettings,
    Percentages,
    PredictionSettings,
    Weights,
)
from cotenant.scheduler_ext.extender.watch.frame import CollectionState
from tests.scheduler_ext.extender.worlds import ELSEWHERE, NOW, SOURCES, World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
BE = {"koordinator.sh/qosClass": "BE"}


def new_pod(cpu: str = "1", memory: str = "1000Mi", **more: Any) -> Any:
    """A prod pod that is estimated at 85 % of cpu and 70 % of memory."""
    return facts(pod_json("new", {"cpu": cpu, "memory": memory}, **{"labels": LS, **more}))


def refusals(cluster: World, pod: Any, seconds: float = NOW) -> list[str]:
    """Of each node, in a question that leaves another one."""
    snapshot = cluster.show(seconds).snapshot
    rows = snapshot.rows_of([*snapshot.names, ELSEWHERE])
    judged, _ = decide.check_nodes(snapshot, pod, rows, moment(seconds), cluster.settings)
    node_refusals = judged.refused()
    reasons = dict(zip(node_refusals.at.tolist(), node_refusals.texts(), strict=True))
    return [reasons.get(i, "") for i in range(len(snapshot.names))]


def points(cluster: World, pod: Any) -> list[int]:
    snapshot = cluster.show().snapshot
    rows = snapshot.rows_of(snapshot.names)
    return [int(p) for p in load_aware.points(snapshot.columns, pod, NOW, cluster.settings.load_aware)[rows]]


def test_a_node_is_refused_only_above_the_threshold() -> None:
    # 10 cores, threshold 65 %. 850 m of the pod + 5,690 = 6,540 -> 65.4 -> 65 passes; 5,700 -> 65.5 -> 66 does not
    cluster = World().node("a").metric("a", cpu="5690m").node("b").metric("b", cpu="5700m")
    assert refusals(cluster, new_pod()) == ["", "cpu usage above 65 %"]


def test_memory_has_a_threshold_of_its_own_and_cpu_is_named_where_both_are_passed() -> None:
    # 100 Gi, threshold 95 %: 700 Mi = 0.68 % on 95.2 Gi is 95.88 -> 96
    cluster = World().node("a").metric("a", cpu="1", memory="95.2Gi").node("b").metric("b", cpu="9", memory="99Gi")
    assert refusals(cluster, new_pod()) == ["memory usage above 95 %", "cpu usage above 65 %"]


def test_daemons_pass_everywhere() -> None:
    daemon = facts(pod_json("d", {"cpu": "9"}, owners=[{"kind": "DaemonSet", "name": "d", "uid": "u"}]))
    cluster = World().node("a").metric("a", cpu="9").node("b").metric("b", updated=NOW - 999)
    assert refusals(cluster, daemon) == ["", ""]


def test_a_node_without_a_report_passes_and_one_with_an_old_report_does_not() -> None:
    cluster = World().node("none").node("new").metric("new", updated=NOW - 179.9)
    cluster.node("fresh").metric("fresh").node("old").metric("old", updated=NOW - 180)
    assert refusals(cluster, new_pod()) == ["", "", "", "the node's usage is no longer reported"]
    lenient = LoadAwareSettings(schedule_when_expired=True)
    cluster.settings = ExtenderSettings(load_aware=lenient)
    assert refusals(cluster, new_pod()) == ["", "", "", ""]


def test_a_report_that_was_never_filled_counts_as_old() -> None:
    cluster = World().node("a").metric("a", updated=None).node("b").metric("b")
    assert refusals(cluster, new_pod()) == ["the node's usage is no longer reported", ""]


def test_prod_thresholds_hold_for_prod_pods_alone_and_look_at_prods_use() -> None:
    load = LoadAwareSettings(prod_usage=Percentages(50, 0))
    cluster = World(ExtenderSettings(load_aware=load)).node("a")
    # prod uses 4 of 10 cores; the node 9: refused to others (65 %), to prod only above 50 %
    cluster.metric("a", cpu="9", pods=[("p", "4", "1Gi", "koord-prod")])
    cluster.pod(pod_json("p", {"cpu": "4"}, node="a", labels=LS, scheduled=NOW - 900))
    # prod: 4,000 + 850 = 48.5 -> 49 passes; 4,000 + 1,700 = 57 does not
    assert refusals(cluster, new_pod("1")) == [""]
    assert refusals(cluster, new_pod("2")) == ["cpu usage above 50 %"]
    batch = facts(pod_json("b", {"kubernetes.io/batch-cpu": "100"}, labels=BE))
    assert refusals(cluster, batch) == ["cpu usage above 65 %"]


FORECAST = {"node.cotenant.dev/batch-cpu-policy": "forecast"}


def shared_cluster(
    annotations: dict[str, str], used: str, by_batch: str, load: LoadAwareSettings | None = None
) -> World:
    """A node of 10 cores of which `used` are used, `by_batch` of them by a batch pod that has run for a while."""
    cluster = World(ExtenderSettings(load_aware=load or LoadAwareSettings())).node("a", annotations=annotations)
    cluster.metric("a", cpu=used, pods=[("b", by_batch, "1Gi", "koord-batch")])
    batch = {"kubernetes.io/batch-cpu": "9000"}
    return cluster.pod(pod_json("b", batch, node="a", labels=BE, scheduled=NOW - 900))


@pytest.mark.parametrize(
    ("used", "by_batch", "to_batch", "to_others"),
    [
        # a batch pod of 1,000 m counts 850 m: 8,650 + 850 = 95 % is not above 95; others: 3,650 + 850 = 45 %
        ("8650m", "5", "", ""),
        # 8,700 + 850 = 95.5 -> 96 %
        ("8700m", "5", "cpu usage above 95 %", ""),
        # the others alone: 7,000 - 1,000 + 850 = 68.5 -> 69 %; batch: 78.5 %
        ("7", "1", "", "cpu usage above 65 %"),
        # batch that the report had in excess never counts below nothing
        ("1", "5", "", ""),
    ],
)
def test_where_a_forecast_lends_batch_may_fill_a_node_and_no_other_pod_is_refused_for_it(
    used: str, by_batch: str, to_batch: str, to_others: str
) -> None:
    batch = facts(pod_json("new", {"kubernetes.io/batch-cpu": "1000"}, labels=BE))
    cluster = shared_cluster(FORECAST, used, by_batch)
    assert refusals(cluster, batch) == [to_batch]
    assert refusals(cluster, new_pod()) == [to_others]


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"node.cotenant.dev/batch-cpu-policy": "usage"},
        FORECAST | {"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"cpu": 65}}'},
    ],
)
def test_under_koordinators_policies_and_where_a_node_has_thresholds_they_hold_for_all_alike(
    annotations: dict[str, str],
) -> None:
    batch = facts(pod_json("new", {"kubernetes.io/batch-cpu": "1000"}, labels=BE))
    cluster = shared_cluster(annotations, "7", "5")
    assert refusals(cluster, batch) == refusals(cluster, new_pod()) == ["cpu usage above 65 %"]


@pytest.mark.parametrize(
    ("load", "to_batch"),
    [
        (LoadAwareSettings(usage=Percentages(75, 95)), "cpu usage above 75 %"),
        (LoadAwareSettings(usage=Percentages(98, 95)), ""),
        (LoadAwareSettings(usage=Percentages(0, 95)), ""),  # CPU is not looked at
    ],
)
def test_a_threshold_of_the_settings_holds_for_batch_pods_too(load: LoadAwareSettings, to_batch: str) -> None:
    cluster = shared_cluster(FORECAST, "8900m", "5", load)
    # 8,900 + 850 = 97.5 -> 98 %; others: 3,900 + 850 = 47.5 %
    batch = facts(pod_json("new", {"kubernetes.io/batch-cpu": "1000"}, labels=BE))
    assert (refusals(cluster, batch), refusals(cluster, new_pod())) == ([to_batch], [""])


def test_batch_pods_that_a_report_lacks_take_nothing_from_the_use_that_it_names() -> None:
    # others use 7 of 10 cores; a batch pod that just came counts 0.85 * 4,000 m, which the report does not hold
    cluster = World().node("a", annotations=FORECAST).metric("a", cpu="7")
    cluster.pod(pod_json("b", {"kubernetes.io/batch-cpu": "4000"}, node="a", labels=BE, scheduled=NOW))
    # 7,000 + 3,400 - 3,400 + 850 = 78.5 %
    assert refusals(cluster, new_pod()) == ["cpu usage above 65 %"]
    # and by the report alone it is 70 %
    assert load_aware.over_by_report(cluster.show().snapshot.columns, new_pod()).tolist() == [True]


def test_where_a_nodes_use_is_but_a_sum_of_estimates_batch_pods_count() -> None:
    load = LoadAwareSettings(aggregation="p95", aggregated_seconds=300, aggregated_usage=Percentages(65, 0))
    cluster = shared_cluster(FORECAST, "7", "5", load)
    # no p95 is reported: 0.85 * 9,000 m of the batch pod, and 850
    assert refusals(cluster, new_pod()) == ["cpu usage above 65 % (aggregated)"]


def test_a_refusal_by_an_aggregated_usage_says_so() -> None:
    load = LoadAwareSettings(aggregation="p95", aggregated_seconds=300, aggregated_usage=Percentages(60, 0))
    cluster = World(ExtenderSettings(load_aware=load)).node("a")
    window = {"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "5300m"}}}}
    # p95 5,300 + 850 = 61.5 -> 62 %, while the mean is 1 core
    cluster.metric("a", cpu="1", aggregated=[window])
    assert refusals(cluster, new_pod()) == ["cpu usage above 60 % (aggregated)"]


def test_the_score_is_least_used_first() -> None:
    # cpu: (10,000 - 2,000 - 850) x 100 // 10,000 = 71; memory: (102,400 - 10,240 - 700) x 100 // 102,400 Mi = 89
    # (71 + 89) // 2 = 80
    cluster = World().node("a").metric("a", cpu="2", memory="10Gi")
    assert points(cluster, new_pod()) == [80]
    # cpu 0 above capacity: (0 + 89) // 2 = 44
    assert points(World().node("a").metric("a", cpu="9.5", memory="10Gi"), new_pod()) == [44]


def test_weights_and_the_dominant_resource_move_the_score() -> None:
    load = LoadAwareSettings(weights=Weights(2, 1), dominant_weight=3)
    cluster = World(ExtenderSettings(load_aware=load)).node("a").metric("a", cpu="2", memory="10Gi")
    # (2 x 71 + 89 + 3 x 71) // 6 = 444 // 6 = 74
    assert points(cluster, new_pod()) == [74]


def test_score_according_to_prods_use() -> None:
    load = LoadAwareSettings(score_according_prod_usage=True)
    cluster = World(ExtenderSettings(load_aware=load)).node("a").metric("a", cpu="9", memory="90Gi")
    # nobody of prod runs: (10,000 - 850) -> 91, (102,400 - 700) -> 99; (91 + 99) // 2 = 95
    assert points(cluster, new_pod()) == [95]


def test_old_and_missing_reports_score_nothing() -> None:
    cluster = World().node("a").node("b").metric("b", updated=NOW - 300)
    assert points(cluster, new_pod()) == [0, 0]


def test_the_breaker_opens_when_most_reports_are_old_and_says_so() -> None:
    cluster = World()
    for i in range(4):
        cluster.node(f"n{i}").metric(f"n{i}", cpu="9", updated=NOW - (300 if i < 2 else 0))
    # two of four: not more than half
    assert refusals(cluster, new_pod())[0] == "the node's usage is no longer reported"
    cluster.metric("n2", cpu="9", updated=NOW - 300)
    assert refusals(cluster, new_pod()) == [""] * 4
    stance = decide.posture(cluster.view.snapshot, moment(), cluster.settings)
    assert stance.load_off == "most nodes do not report their usage"
    snapshot = cluster.view.snapshot
    assert decide.points(snapshot, new_pod(), snapshot.rows_of(snapshot.names), moment(), cluster.settings).sum() == 0


def test_nodes_that_never_had_a_report_do_not_open_the_breaker() -> None:
    cluster = World().node("old").metric("old", updated=NOW).node("a").node("b").node("c")
    assert decide.posture(cluster.show().snapshot, moment(), cluster.settings).load_off == ""


@pytest.mark.parametrize("broken", ["nodes", "pods", "nodemetrics"])
def test_an_old_view_says_nothing_of_load(broken: str) -> None:
    cluster = World().node("a").metric("a", cpu="9")
    assert refusals(cluster, new_pod()) == ["cpu usage above 65 %"]
    snapshot = cluster.show(sources={**SOURCES, broken: CollectionState(121.0)}).snapshot
    judged, stance = decide.check_nodes(snapshot, new_pod(), snapshot.rows_of(["a"]), moment(), cluster.settings)
    assert judged.codes.tolist() == [0]
    assert stance.load_off == "the view of the cluster is out of date"


def test_a_cluster_without_nodemetrics_has_no_load_to_speak_of() -> None:
    snapshot = (
        World().node("a").show(sources={**SOURCES, "nodemetrics": CollectionState(0, "", False, absent=True)}).snapshot
    )
    assert decide.posture(snapshot, moment(), ExtenderSettings()).load_off == ""


def test_a_node_that_nobody_here_knows_passes_with_no_points() -> None:
    cluster = World().node("a").metric("a", cpu="9").node("b").metric("b", cpu="1m")
    snapshot = cluster.show().snapshot
    rows = snapshot.rows_of(["b", "stranger", "a"])
    assert rows.tolist() == [1, -1, 0]
    judged, _ = decide.check_nodes(snapshot, new_pod(), rows, moment(), cluster.settings)
    assert judged.codes.tolist() == [Code.PASS, Code.PASS, Code.CPU]
    assert decide.points(snapshot, new_pod(), rows, moment(), cluster.settings).tolist()[1] == 0


@pytest.mark.parametrize(
    ("points", "span", "expected"),
    [
        ([90, 90, 65, 40, 0], 25, [10, 10, 0, 0, 0]),
        ([90, 87.4, 86.3, 66], 25, [10, 9, 9, 0]),  # 2.6 points are 1.04 steps, 3.7 are 1.48, 24 are 9.6 -> 0.4
        ([90, 87, 0], 100, [10, 10, 0]),
        ([3, 0], 25, [10, 0]),  # unknown nodes get nothing, however bad the others are
        ([0, 0], 25, [0, 0]),
        ([], 25, []),
    ],
)
def test_eleven_steps_hang_below_the_best(points: list[float], span: int, expected: list[int]) -> None:
    assert decide.scale_scores(np.array(points, dtype=np.float64), span).tolist() == expected


# --- against a plain loop ---------------------------------------------------------------------------------------------
@st.composite
def columns(draw: st.DrawFn) -> Any:
    count = draw(st.integers(1, 8))
    values = np.zeros((WIDTH, count))
    amount = st.one_of(st.integers(0, 12_000), st.sampled_from([0, 10_000, 2**40])).map(float)
    for column in range(WIDTH):
        values[column] = [draw(amount) for _ in range(count)]
    for column in (
        SnapshotColumn.LIMIT_CPU,
        SnapshotColumn.LIMIT_MEMORY,
        SnapshotColumn.PROD_LIMIT_CPU,
        SnapshotColumn.PROD_LIMIT_MEMORY,
    ):
        values[column] = [draw(st.integers(0, 120)) for _ in range(count)]
    for column in (SnapshotColumn.MEASURED, SnapshotColumn.AGGREGATED):
        values[column] = [draw(st.integers(0, 1)) for _ in range(count)]
    # the plugin knows no node that lends by forecast
    values[SnapshotColumn.BATCH_LIMIT_CPU] = 0
    values[SnapshotColumn.RECLAIMED_CPU] = values[SnapshotColumn.RECLAIMED_REPORTED_CPU] = 0
    times = st.sampled_from([np.nan, -np.inf, NOW, NOW - 179, NOW - 180, NOW - 500])
    values[SnapshotColumn.UPDATED] = [draw(times) for _ in range(count)]
    return values


def plain_filter(row: Any, pod: Any, load: LoadAwareSettings) -> int:
    """One node, as the plugin has it."""
    if np.isnan(row[SnapshotColumn.UPDATED]):
        return Code.PASS
    if NOW - row[SnapshotColumn.UPDATED] >= load.metric_expiration_seconds:
        return Code.PASS if load.schedule_when_expired else Code.EXPIRED
    if not row[SnapshotColumn.MEASURED]:
        return Code.PASS
    prod = pod.prod and (row[SnapshotColumn.PROD_LIMIT_CPU] > 0 or row[SnapshotColumn.PROD_LIMIT_MEMORY] > 0)
    for r in (0, 1):
        limit = row[(SnapshotColumn.PROD_LIMIT_CPU if prod else SnapshotColumn.LIMIT_CPU) + r]
        total = row[SnapshotColumn.CAPACITY_CPU + r]
        if limit == 0 or total == 0:
            continue
        value = row[(SnapshotColumn.PROD_USED_CPU if prod else SnapshotColumn.USED_CPU) + r] + pod.estimate[r]
        if int(value / total * 100 + 0.5) > limit:
            return (Code.AGGREGATED_CPU if row[SnapshotColumn.AGGREGATED] and not prod else Code.CPU) + r
    return Code.PASS


def plain_score(row: Any, pod: Any, load: LoadAwareSettings) -> int:
    """One node, in whole numbers as the plugin has it."""
    has_report = (
        not np.isnan(row[SnapshotColumn.UPDATED]) and NOW - row[SnapshotColumn.UPDATED] < load.metric_expiration_seconds
    )
    if not has_report or not row[SnapshotColumn.MEASURED]:
        return 0
    first = SnapshotColumn.PROD_USED_CPU if pod.prod and load.score_according_prod_usage else SnapshotColumn.RANKED_CPU
    total, weights, lowest = 0, 0, 100
    for r, weight in ((0, load.weights.cpu), (1, load.weights.memory)):
        value, capacity = int(row[first + r]) + int(pod.estimate[r]), int(row[SnapshotColumn.CAPACITY_CPU + r])
        score = 0 if capacity == 0 or value > capacity else (capacity - value) * 100 // capacity
        total, weights, lowest = total + score * weight, weights + weight, min(lowest, score)
    return (total + lowest * load.dominant_weight) // (weights + load.dominant_weight)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    table=columns(),
    prod=st.booleans(),
    estimate=st.tuples(st.integers(0, 5000), st.integers(0, 2**39)),
    load=st.builds(
        LoadAwareSettings,
        schedule_when_expired=st.booleans(),
        score_according_prod_usage=st.booleans(),
        weights=st.builds(Weights, st.integers(0, 3), st.integers(1, 3)),
        dominant_weight=st.integers(0, 3),
    ),
)
def test_all_nodes_at_once_are_judged_and_ranked_as_one_by_one(
    table: Any, prod: bool, estimate: tuple[int, int], load: LoadAwareSettings
) -> None:
    pod = replace(new_pod(labels=LS if prod else BE), estimate=(float(estimate[0]), float(estimate[1])))
    assert pod.prod is prod
    judged = load_aware.check_usage(table, pod, NOW, load)
    assert judged.codes.tolist() == [plain_filter(row, pod, load) for row in table.T]
    assert load_aware.points(table, pod, NOW, load).tolist() == [plain_score(row, pod, load) for row in table.T]


def test_switching_the_rules_off_lets_everything_pass() -> None:
    off = ExtenderSettings(load_aware=LoadAwareSettings(on=False), prediction=PredictionSettings(on=True))
    cluster = World(off).node("a", cpu="1").metric("a", cpu="9", memory="99Gi")
    assert refusals(cluster, new_pod()) == [""]
