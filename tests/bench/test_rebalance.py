"""The simulated cluster of the rebalancing benches, and both benches in a small form."""

from __future__ import annotations

import numpy as np
import pytest

from bench.rebalance import rebalance_binpack, rebalance_forecast
from bench.rebalance.rebalance_world import World, WorldSpec

SMALL = WorldSpec(
    seed=3, nodes=6, workloads=40, history_days=3, days=1, cpu_used=0.2, cpu_requested=0.4, memory_used=0.2,
    memory_requested=0.3, forecast_slots=144,
)  # fmt: skip


def test_a_moved_pod_uses_from_now_on_what_it_would_have_used_elsewhere() -> None:
    cluster = World.of(SMALL)
    loads, pod = cluster.loads(0.0), int(cluster.alive()[0])
    source, target = int(cluster.at[pod]), (int(cluster.at[pod]) + 1) % 6
    used = cluster.pod_loads(np.array([pod]), 0.0)[:, 0]
    key = f"{cluster.pods[pod].namespace}/{cluster.pods[pod].name}"
    cluster.carry_out([(key, cluster.nodes[target].name)])
    moved = cluster.loads(0.0)
    assert moved[:, source] == pytest.approx(loads[:, source] - used)
    assert moved[:, target] == pytest.approx(loads[:, target] + used)
    slot = cluster.slot
    cluster.advance()
    # what a node has used is recorded with the pods that it had
    assert cluster.node_usage[:, target, slot] == pytest.approx(moved[:, target], rel=1e-5)
    assert {load.node.name for load in cluster.inputs(removed=frozenset({source})).loads} == {
        node.name for row, node in enumerate(cluster.nodes) if row != source
    }


def test_a_forecast_knows_only_what_was_used_before() -> None:
    cluster, altered = World.of(SMALL), World.of(SMALL)
    altered.usage[:, :, altered.slot :] = 0
    altered.node_usage[:, :, altered.slot :] = 0
    cluster.forecast()
    altered.forecast()
    assert [outlook.high for outlook in cluster.outlooks if outlook] == [
        altered_outlook.high for altered_outlook in altered.outlooks if altered_outlook
    ]
    assert len(cluster.outlooks) == 6 and all(
        outlook and outlook.start_seconds == cluster.now(0.0) for outlook in cluster.outlooks
    )


def test_a_forecast_of_workloads_knows_only_what_was_used_before_and_the_oracle_what_comes() -> None:
    cluster, altered = World.of(SMALL), World.of(SMALL)
    altered.usage[:, :, altered.slot :] *= 3
    cluster.forecast_workloads()
    altered.forecast_workloads()
    assert cluster.workloads and cluster.workloads == altered.workloads
    cluster.know_workloads()
    altered.know_workloads()
    foreseen = next(ref for ref, outlook in cluster.workloads.items() if sum(outlook.median[0]) > 0)
    before, after = (np.array(variant.workloads[foreseen].median[0]) for variant in (cluster, altered))
    assert after == pytest.approx(3 * before, rel=1e-5)


@pytest.mark.slow
def test_the_rule_empties_nodes_of_a_cluster_that_has_too_many() -> None:
    result = rebalance_binpack.course(SMALL, rebalance_binpack.high_node_load, with_forecast=True)
    assert 0 < len(result.removed) < 6 and result.moves > 0 and result.present < 6 * 288


def test_upstreams_rule_empties_what_is_below_its_threshold_onto_what_is_above() -> None:
    cluster, nothing = World.of(SMALL), rebalance_binpack.Course()
    rebalance_binpack.high_node_utilization(100)(cluster, nothing)
    assert nothing.moves == 0  # all nodes are sources, and none is left to take pods
    requested = 1 - (cluster.free() / cluster.allocatable()).min(axis=0)
    result = rebalance_binpack.Course()
    rebalance_binpack.high_node_utilization(100 * float(np.median(requested)))(cluster, result)
    assert result.moves > 0 and result.removed <= set(np.flatnonzero(requested <= np.median(requested)).tolist())


def test_rules_are_compared_at_equal_violation() -> None:
    def course(emptied: int, over: int) -> rebalance_binpack.Course:
        return rebalance_binpack.Course(set(range(emptied)), over=over, present=100)

    upstream = {30: course(1, 0), 40: course(3, 2), 50: course(9, 3)}
    compared = rebalance_binpack.RuleComparison(course(4, 2), course(0, 0), upstream)
    # 50 % empties nine nodes, at 3 % of node time above the thresholds; ours has 2 %
    assert compared.emptied == 3


def test_a_week_without_a_descheduler_moves_nothing() -> None:
    result = rebalance_forecast.week(SMALL, rebalance_forecast.NONE)
    assert result.moves == 0 and result.node_minutes >= 0
