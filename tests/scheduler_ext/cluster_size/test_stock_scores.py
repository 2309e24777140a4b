"""Scores of kube-scheduler's default profile: numbers worked out by hand from the formulas of its plugins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cotenant.scheduler_ext.cluster_size.constraints import compile_cluster
from cotenant.scheduler_ext.cluster_size.placing import Order, PlacingState, PlacingTrial, ScoreRule, place_pods
from cotenant.scheduler_ext.cluster_size.stock_scores import most_scored, resource_scores, spread_scores
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state

Json = dict[str, Any]


def test_levelled_and_balanced_nodes_score_in_whole_per_cent() -> None:
    # (50 + 30) / 2 = 40 and 100 - 20 / 2 = 90; then 0.29, of which a float's 100 times is less than 29: 29 and 100.
    scores = resource_scores(np.array([[0.5, 0.29], [0.3, 0.29]]))
    assert scores.tolist() == [130, 129]


def test_nodes_and_zones_with_few_pods_of_the_controller_are_preferred() -> None:
    # Nodes 0 and 1 in zone 0, 2 in zone 1; one pod on node 0. A host's pod counts ln(3 + 2), a zone's ln(2 + 2), with
    # maxSkew - 1 (2 and 4) on top: 9.0, 7.4 and 6, so 9, 7 and 6. Of 100 x (9 + 6 - count) / 9: 66, 88, 100; twice.
    scores = spread_scores(np.array([1, 0, 0]), np.array([1, 0, 0]), np.array([0, 0, 1]))
    assert scores.tolist() == [132, 176, 200]


def test_nodes_without_a_zone_are_compared_by_their_own_pods_alone() -> None:
    # One pod on node 0, no zones: ln(2 + 2) + 2 = 3.4 and 2, rounded 3 and 2; 100 x 2 / 3 = 66 and 100; twice.
    scores = spread_scores(np.array([1, 0]), np.array([1]), np.array([-1, -1]))
    assert scores.tolist() == [132, 200]


@pytest.mark.parametrize(("nodes", "scored"), [(99, 99), (200, 100), (1_000, 420), (10_000, 500)])
def test_of_many_nodes_that_fit_only_some_are_scored(nodes: int, scored: int) -> None:
    # 50 % less one for each 125 nodes, at least 5 %, and at least 100 nodes: 49 % of 200 are fewer; 42 % of 1,000.
    assert most_scored(nodes) == scored


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({}, "Job"),
        (
            {
                "topologySpreadConstraints": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "maxSkew": 9,
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ]
            },
            "ReplicaSet",
        ),
    ],
    ids=["a Job selects nothing", "constraints of its own"],
)
def test_the_default_spread_is_not_that_of_every_pod(spec: Json, kind: str) -> None:
    # Both nodes have 4 cores and 8 GiB. A pod on a leaves 3 cores, 7 GiB there; the pod to come takes 1 and 1 GiB more.
    # a: (50 + 75) / 2 = 62 and 100 - 25 / 2 = 87; b: (75 + 87) / 2 = 81 and 100 - 12.5 / 2 = 93.
    owners = [{"kind": kind, "name": "web", "controller": True}]
    pods = [pod("x", "a", spec, owners=owners), pod("y", "", spec, owners=owners)]
    placing = PlacingState.of(compile_cluster(state([node("a"), node("b")], pods)), np.array([True, True]))
    assert placing.stock_scores(1, np.arange(2)).tolist() == [62 + 87, 81 + 93]


def test_a_zone_without_pods_of_the_controller_outweighs_a_fuller_node() -> None:
    # Zone z has node c alone, which is three quarters full; a and b in zone y are empty but for a pod of web on a. With
    # the pod, b has 75 % CPU and 87 % memory free: 81 + 93 = 174; c has 0 and 75 %: 37 + 62 = 99, 75 points fewer.
    # Pods counted as in the test above but with two zones: b 7 of most 9, c 6: 176 and 200, 24 points: b wins.
    # Where c is as empty as b, the zone decides.
    nodes = [node(name, labels={"topology.kubernetes.io/zone": zone}) for name, zone in zip("abc", "yyz", strict=True)]
    other = [{"kind": "ReplicaSet", "name": "other", "controller": True}]
    filler = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}
    web, new = pod("web-0", "a"), pod("web-1", "")
    chosen = []
    for pods in ([web, new, pod("f", "c", filler, owners=other)], [web, new]):
        placing = PlacingState.of(compile_cluster(state(nodes, pods)), np.ones(3, dtype=np.bool_))
        assert place_pods(placing, [1], PlacingTrial(Order.RANDOM, ScoreRule.STOCK, 1)) is None
        chosen.append(nodes[int(placing.place_of[1])].name)
    assert chosen == ["b", "c"]
