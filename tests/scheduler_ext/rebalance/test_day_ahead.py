"""The next day from the forecasts of workloads: expected seconds above the threshold, and moves that spare them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors
from cotenant.scheduler_ext.rebalance.day_ahead import LEAST_SPARED_SECONDS, SPREAD, DayAhead, per_pod
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, WorkloadOutlook
from tests.scheduler_ext.rebalance.small_cluster import CPU, MEMORY, NOW, arguments, foreseen, node, pod, without_memory

HIGH = np.array([[0.7 * CPU, 0.8 * MEMORY]])
DAY = (10.0,) * 3 + (50.0,) * 24 + (10.0,) * 21
NIGHT = tuple(60.0 - one for one in DAY)


def day(cluster: RebalanceInputs) -> DayAhead:
    """Its next day."""
    return DayAhead.of(cluster, np.array([load.node.capacity for load in cluster.loads]))


def moves(plan: Any) -> list[tuple[str, str, str]]:
    """(pod, source, target) of each move."""
    return [(move.pod.partition("/")[2], move.source, move.target) for move in plan.moves]


def test_a_nodes_load_is_that_of_its_system_and_of_the_pods_it_has_now() -> None:
    cluster = foreseen(
        node("n", pod("a-1", 10), pod("b-1", 5), system=3), node("m", pod("a-2", 10)), forecasts={"a": (20.0, *DAY[1:])}
    )
    # a has two pods, which use 10 % each now and, by its forecast of 20 %, did so all along: 10 % -> 25 % at noon;
    # b has no forecast and stays at 5 %
    loads = day(cluster).loads[:, :, 0] / CPU
    assert loads[0].tolist() == pytest.approx([0.18, 0.10])
    assert loads[20].tolist() == pytest.approx([0.33, 0.25])
    # the half hour after the forecast's end is its first one again
    assert loads[48].tolist() == pytest.approx([0.18, 0.10])


def test_a_pod_whose_memory_nobody_measured_stays_in_the_load_of_its_node() -> None:
    lacking = without_memory(node("n", pod("a-1", 10), pod("b-1", 5), system=3), 30)
    loads = day(foreseen(lacking, forecasts={"a": DAY})).loads / (CPU, MEMORY)
    # 3 % + 10 % + 5 % of CPU now, and 30 % of memory, which is the node's
    np.testing.assert_allclose(loads[:, 0], np.tile([0.18, 0.30], (len(loads), 1)))


def test_a_pod_that_uses_twice_its_forecast_is_drawn_to_what_it_uses() -> None:
    # the path is 2 ** 0.2 = 1.1487 times 10 %; 0.75 ** 5 = 0.2373 of the other 8.513 % is left in the fifth half hour
    cluster = foreseen(node("n", pod("a-1", 20)), forecasts={"a": (10.0,) * 48})
    loads = day(cluster).loads[:, 0, 0] / CPU
    assert (loads[0], loads[5]) == (pytest.approx(0.2), pytest.approx(0.11487 + 0.2373 * 0.08513, rel=1e-4))


series = st.lists(st.floats(0, 1e6), min_size=48, max_size=48)


@given(series, st.lists(st.integers(1, 50), min_size=48, max_size=48), st.integers(1, 50), st.integers(0, 47))
def test_pods_of_all_times_share_what_the_workload_uses(
    total: list[float], replicas: list[int], present: int, passed: int
) -> None:
    now = NOW + passed * 1800.0
    fixed, scaled = (
        per_pod(WorkloadOutlook(NOW, (tuple(total), ()), counts), present, now)[:, 0]
        for counts in ((), tuple(replicas))
    )
    steps = [(passed + step) % 48 for step in range(49)]
    assert fixed.tolist() == pytest.approx([total[step] / present for step in steps])
    assert scaled[0] == pytest.approx(total[passed] / present)
    assert scaled[1:].tolist() == pytest.approx([total[step] / replicas[step] for step in steps[1:]])


def test_what_an_autoscaler_spreads_over_more_pods_overloads_no_node() -> None:
    # 40 % of a node become 90 %, by a pod of 40 % or, with three times the pods, by one of 30 %
    days = (40.0,) * 24 + (90.0,) * 24
    cluster = foreseen(node("hot", pod("a-1", 40)), node("free"), forecasts={"a": days})
    ((ref, outlook),) = cluster.workloads.items()
    scaled = replace(cluster, workloads={ref: replace(outlook, replicas=(1,) * 24 + (3,) * 24)})
    assert [day(inputs).loads[30, 0, 0] / CPU for inputs in (cluster, scaled)] == pytest.approx([0.9, 0.3])


def test_a_forecast_that_has_ended_says_nothing() -> None:
    outlook = WorkloadOutlook(NOW, ((1.0,) * 48, ()))
    for now in (NOW - 1800, NOW + 86400):
        assert np.isnan(per_pod(outlook, 1, now)).all()
    assert np.isnan(per_pod(None, 1, NOW)).all()


def test_forecasts_of_workloads_that_have_run_out_leave_the_nodes_own_in_place() -> None:
    # the node itself expects 90 % from the next half hour on; a flat path of its pod would stay at 50 %
    hot = node("hot", pod("a-1", 25), system=25, ahead=(50, *(90,) * 48))
    cluster = foreseen(hot, node("free", ahead=(5,) * 49), forecasts={"a": (25.0,) * 48})
    ((ref, outlook),) = cluster.workloads.items()
    ended = replace(cluster, workloads={ref: replace(outlook, start_seconds=NOW - 86_400)})
    assert (cluster.foreseen_workloads, ended.foreseen_workloads) == (1, 0)
    plan = decide(ended, arguments(), with_forecast=True)
    assert plan == decide(replace(cluster, workloads={}), arguments(), with_forecast=True)
    assert moves(plan) == [("a-1", "hot", "free")]


@pytest.mark.parametrize(("now", "moved"), [(80.0, ["a-1"]), (72.0, [])])
def test_an_overload_that_no_forecast_knew_of_counts_by_how_far_it_is_above(now: float, moved: list[str]) -> None:
    # a uses 60 % or 52 % where 30 % was expected: the node is above 70 % for some half hours, or for less than one
    hot = node("hot", pod("a-1", now - 20), pod("b-1", 20))
    cluster = foreseen(hot, node("free"), forecasts={"a": (30.0,) * 48, "b": (20.0,) * 48})
    plan = decide(cluster, arguments(), with_forecast=True)
    assert [move.pod.partition("/")[2] for move in plan.moves] == moved
    assert [refusal.reason for refusal in plan.refusals] == ([] if moved else [Reason.OVERLOAD_ENDS_FIRST])


@pytest.mark.parametrize("minutes", [0, 1, 16, 29])
def test_an_overload_that_ends_with_this_half_hour_counts_once_at_any_minute(minutes: int) -> None:
    cluster = foreseen(node("n", pod("a-1", 90)), forecasts={"a": (90.0,) + (10.0,) * 47})
    now = cluster.now_seconds // 1800 * 1800 + 60 * minutes
    above = day(replace(cluster, now_seconds=now)).above(HIGH, slice(None))[0]
    # what is left of it now, and tomorrow what has passed of it: together half an hour
    assert above == pytest.approx(1800, rel=1e-3)


def test_expected_seconds_above_the_threshold() -> None:
    # at the threshold all day: half of the day
    cluster = foreseen(node("n", pod("a-1", 70)), forecasts={"a": (70.0,) * 48})
    assert day(cluster).above(HIGH, slice(None))[0] == pytest.approx(86_400 / 2, rel=1e-3)
    # one scale below it: 1 / (1 + e) of the day
    below = 0.7 - SPREAD * math.sqrt(3) / math.pi
    cluster = foreseen(node("n", pod("a-1", 100 * below)), forecasts={"a": (100 * below,) * 48})
    assert day(cluster).above(HIGH, slice(None))[0] == pytest.approx(86_400 / (1 + math.e), rel=1e-3)


def test_a_pod_leaves_before_its_peak_meets_another_and_goes_where_it_meets_none() -> None:
    # at night nobody is above 70 %; by day both pods of `hot` use 50 %, and so does the one of `day`. `night` is busy
    # when they are not: 10 + 50 = 60 % at any time
    hot = node("hot", pod("a-1", 10), pod("b-1", 10))
    cluster = foreseen(
        hot,
        node("day", pod("c-1", 10)),
        node("night", pod("d-1", 50)),
        forecasts={"a": DAY, "b": DAY, "c": DAY, "d": NIGHT},
    )
    plan = decide(cluster, arguments(), with_forecast=True)
    assert moves(plan) == [("a-1", "hot", "night")]
    assert plan.moves[0].by_forecast
    # 24 half hours at 100 % become none
    assert plan.moves[0].price.overload_seconds == pytest.approx(24 * 1800, rel=0.01)
    assert decide(cluster, arguments(), with_forecast=False).moves == ()


@pytest.mark.parametrize(("ahead", "moved"), [(3, True), (4, False), (24, False)])
def test_an_overload_that_is_hours_away_waits_for_better_forecasts(ahead: int, moved: bool) -> None:
    # 20 % now, 100 % from the half hour `ahead` on: more than one of the first five must be above
    cluster = foreseen(
        node("hot", pod("a-1", 10), pod("b-1", 10)),
        node("free", pod("c-1", 1)),
        forecasts=dict.fromkeys("ab", ((10.0,) * ahead + (50.0,) * 24 + (10.0,) * 24)[:48]),
    )
    assert bool(decide(cluster, arguments(), with_forecast=True).moves) == moved


def test_an_overload_that_no_single_pod_ends_is_relieved_too() -> None:
    # 40 % of the system and five pods of 10 % are 90 %: one pod less is 80 % all day, two are the threshold of 70 %
    hot = node("hot", *(pod(f"{name}-1", 10) for name in "abcde"), system=40)
    cluster = foreseen(hot, node("free"), forecasts=dict.fromkeys("abcde", (10.0,) * 48))
    plan = decide(cluster, arguments(), with_forecast=True)
    assert [(source, target) for _, source, target in moves(plan)] == [("hot", "free")] * 2


def test_a_day_that_is_bad_everywhere_moves_nothing() -> None:
    hot = node("hot", pod("a-1", 10), pod("b-1", 10))
    cluster = foreseen(hot, node("day", pod("c-1", 10)), forecasts={"a": DAY, "b": DAY, "c": DAY})
    assert decide(cluster, arguments(), with_forecast=True).moves == ()


@pytest.mark.parametrize(
    ("changes", "migration", "reason"),
    [
        ({"local_storage": True}, {}, Reason.LOCAL_STORAGE),
        ({}, {"maxMigratingPerNamespace": 0}, Reason.NAMESPACE_MOVE_LIMIT),
        ({}, {"maxMigratingGlobally": 0}, Reason.MOVE_LIMIT),
    ],
)
def test_a_node_that_nothing_may_leave_says_why(
    changes: dict[str, Any], migration: dict[str, Any], reason: Reason
) -> None:
    hot = node("hot", pod("a-1", 10, **changes), pod("b-1", 10, **changes))
    cluster = foreseen(hot, node("free", pod("c-1", 1)), forecasts={"a": DAY, "b": DAY})
    plan = decide(cluster, arguments(**migration), with_forecast=True)
    assert plan.moves == ()
    assert [(refusal.pod, refusal.node, refusal.reason) for refusal in plan.refusals] == [("", "hot", reason)]


def test_a_coming_day_is_confirmed_by_as_many_rounds_as_a_present_overload() -> None:
    hot = node("hot", pod("a-1", 10), pod("b-1", 10))
    cluster = foreseen(hot, node("free", pod("c-1", 1)), forecasts={"a": DAY, "b": DAY})
    detectors, rounds = AnomalyDetectors(), 0
    while not (plan := decide(cluster, arguments(), with_forecast=True, detectors=detectors)).moves:
        detectors, rounds = plan.detectors, rounds + 1
        assert rounds < 10
    assert rounds == 5  # more than consecutiveAbnormalities, 5


def test_pods_are_of_the_deployment_whose_hash_their_replica_set_bears() -> None:
    owner = Reference("ReplicaSet", "web-7d4b9", "shop", "", "apps/v1", True)
    web, _ = pod("web-7d4b9-x", 1, owner=owner)
    assert web.workload == WorkloadRef("shop", "ReplicaSet", "web-7d4b9")
    labels = {"pod-template-hash": "7d4b9"}
    labelled = replace(web, facts=replace(web.facts, identity=replace(web.facts.identity, labels=labels)))
    assert labelled.workload == WorkloadRef("shop", "Deployment", "web")
    bare, _ = pod("alone", 1, owner=None)
    assert bare.workload == WorkloadRef("shop", "Pod", "alone")


shares = st.floats(0, 60)
node_pods = st.lists(st.tuples(shares, st.lists(shares, min_size=2, max_size=4)), max_size=4)


@pytest.mark.slow
@given(st.lists(node_pods, min_size=1, max_size=5))
def test_no_move_ahead_brings_its_target_more_than_it_spares_its_source(cluster_pods: list[Any]) -> None:
    forecasts, loads = {}, []
    for number, pods in enumerate(cluster_pods):
        for index, (_, parts) in enumerate(pods):
            forecasts[f"n{number}p{index}"] = tuple(parts[step * len(parts) // 48] for step in range(48))
        loads.append(node(f"n{number}", *(pod(f"n{number}p{i}-1", now) for i, (now, _) in enumerate(pods))))
    cluster = foreseen(*loads, forecasts=forecasts)
    plan = decide(cluster, arguments(), with_forecast=True)
    high = np.repeat(HIGH, len(loads), axis=0)
    current = day(cluster)
    rows = {load.node.name: row for row, load in enumerate(loads)}
    pods = {rebalance_pod.key: rebalance_pod for load in loads for rebalance_pod in load.pods}
    for move in plan.moves:
        before = current.above(high, slice(None)).sum()
        current.move(pods[move.pod], rows[move.source], rows[move.target])
        if move.by_forecast:
            assert current.above(high, slice(None)).sum() < before - LEAST_SPARED_SECONDS + 1e-6
    assert len({move.pod for move in plan.moves}) == len(plan.moves)
    after = {n.name for n in plan.nodes if n.after[0] > n.high[0] + 1e-9}
    assert after <= {n.name for n in plan.nodes if n.now[0] > n.high[0] + 1e-9}
