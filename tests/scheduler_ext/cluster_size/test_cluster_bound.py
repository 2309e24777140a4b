"""The lower bound of nodes: known cases, and never above a placing that exists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.cluster_size.cluster_bound import fewest_nodes
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state
from tests.support.sized_clusters import SeededCluster, state_of

Json = dict[str, Any]


def requesting(cpu: str, memory: str = "1Gi", **spec: Any) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}], **spec}


def in_zone(zone: str) -> Json:
    return requesting("1", nodeSelector={"topology.kubernetes.io/zone": zone})


ALIKE = [node(name) for name in "abcd"]
"""Four nodes of 4 cores, 8 GiB and 10 pods, each in a zone of its own."""
OWNED_BY_DAEMON = {"owners": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}
CASES: dict[str, tuple[list[Json], int]] = {
    # 9 pods of 1 core: 9 / 4 = 2.25, so 3 nodes.
    "cpu": ([pod(f"p{n}", "a", requesting("1", "1Mi")) for n in range(9)], 3),
    # 5 pods of 3 GiB: 15 / 8 = 1.875, so 2; two pods of 3 GiB a node would be 3, which a bound by parts cannot see.
    "memory": ([pod(f"p{n}", "a", requesting("1m", "3Gi")) for n in range(5)], 2),
    # 21 pods of nearly nothing, 10 a node: 3.
    "pod count": ([pod(f"p{n}", "a", requesting("1m", "1Mi")) for n in range(21)], 3),
    # A cluster that runs nothing has a node all the same.
    "nothing runs": ([], 1),
    # A DaemonSet takes 2 of 4 cores of each node: 5 pods of 1 core need 2.5 nodes.
    "DaemonSets": (
        [pod(f"d{n}", n, requesting("2"), **OWNED_BY_DAEMON) for n in "abcd"]
        + [pod(f"p{n}", "a", requesting("1", "1Mi")) for n in range(5)],
        3,
    ),
    # A pod without controller keeps its node whole, wherever the others would fit: b, and the rest of b for the other.
    "a node that cannot leave": ([pod("p", "b", owners=[]), pod("q", "a")], 1),
    # 4 cores of pods that only zone a's node may run, 4 that only zone b's may: 2.
    "selectors": ([pod(f"{zone}{n}", zone, in_zone(zone)) for zone in "ab" for n in range(4)], 2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_a_small_cluster_is_the_one_by_hand(case: str) -> None:
    pods, fewest = CASES[case]
    bound = fewest_nodes(state(ALIKE, pods))
    assert (bound.nodes, bound.reason) == (fewest, "")


def test_a_waiting_pod_that_finds_no_place_today_raises_no_bound() -> None:
    # 3 of 4 cores are free on each of two nodes, and one core is all that runs on either: the one kept holds both.
    pods = [pod("x", "a"), pod("y", "b"), pod("new", "", requesting("3500m"))]
    cluster = state([node("a"), node("b")], pods)
    size = decide_size(cluster)
    assert size.waiting == ("shop/new",) and len(size.staying) == 1
    # With it the pods would request 5.5 cores, and so two nodes of 4.
    assert fewest_nodes(cluster).nodes == 2
    assert fewest_nodes(cluster, uncounted=size.waiting).nodes == 1


def test_nodes_that_have_less_than_their_pods_request_have_no_bound_and_a_reason() -> None:
    # 5 pods of 1 core run on a node that has 4 cores left to offer.
    bound = fewest_nodes(state([node("a")], [pod(f"p{n}", "a") for n in range(5)]))
    assert (bound.nodes, bound.reason) == (0, "the pods request more than the present nodes have")


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 500), nodes=st.integers(15, 18))  # all of these hold their own pods
def test_no_answer_keeps_fewer_nodes_than_the_bound(seed: int, nodes: int) -> None:
    cluster = state_of(SeededCluster.of(seed, nodes=nodes, fill=0.4))
    assert fewest_nodes(cluster).nodes <= len(decide_size(cluster).staying)
