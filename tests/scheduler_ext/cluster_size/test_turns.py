"""Nodes that leave in their turns: the order, and the nodes that are still there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cotenant.scheduler_ext.cluster_size.constraints import compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, SizedCluster
from cotenant.scheduler_ext.cluster_size.placing import Order, PlacingState, PlacingTrial, ScoreRule, place_pods
from cotenant.scheduler_ext.cluster_size.tables import notes_of
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state
from tests.support.sized_clusters import SeededCluster, state_of

Json = dict[str, Any]


def requesting(cpu: str) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]}


def bound_pod(name: str, where: str, cpu: str) -> Json:
    """A pod without a controller, which keeps its node."""
    return pod(name, where, requesting(cpu), owners=[])


def half_full_nodes() -> SizedCluster:
    """Nodes a and b stay with 2 of 4 cores free each; c has a pod of 2 cores, d two of one core."""
    pods = [bound_pod("x", "a", "2"), bound_pod("y", "b", "2")]
    pods += [pod("large", "c", requesting("2")), *(pod(f"small-{n}", "d", requesting("1")) for n in range(2))]
    return state([node(name) for name in "abcd"], pods)


def names(size: ClusterSize) -> list[str]:
    return [leaving.name for leaving in size.leaving]


def test_nodes_with_the_largest_pods_take_the_first_turns() -> None:
    # The pod of 2 cores fits on a or b as long as the small ones, which a levelling scheduler puts on each, are not
    # there: c must leave before d.
    size = decide_size(half_full_nodes())
    assert names(size) == ["c", "d"]
    assert any("cordon all these nodes" in note for note in notes_of(size))


def test_requests_whose_sum_exceeds_64_bits_leave_no_node_free() -> None:
    # Two pods of 8E are 2^63 - 1 bytes each: in 64 bits their sum is -2, so that node b would count as empty.
    asking = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "8E"}}}]}
    huge = [pod(name, "b", asking) for name in ("one", "two")]
    assert names(decide_size(state([node("a"), node("b")], [pod("web", "a"), *huge]))) == []
    assert names(decide_size(state([node("a"), node("b")], [pod("web", "a")]))) == ["b"]


def test_a_pod_on_a_node_that_leaves_later_still_counts_in_its_domain() -> None:
    # Both pods of one workload avoid each other in a zone. p leaves a, whose zone is x, for the only node that stays,
    # which is in zone y beside b: q is on b until b leaves too, and then finds p in zone y. Neither order works.
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    avoiding = {
        **requesting("1"),
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }
    zones = {"a": "x", "b": "y", "c": "y"}
    nodes = [node(name, labels={"zone": zone}) for name, zone in zones.items()]
    other_pod = pod("kept", "c", requesting("1"), owners=[], labels={"app": "other"})
    size = decide_size(state(nodes, [pod("p", "a", avoiding), pod("q", "b", avoiding), other_pod]))
    # b may leave alone: q moves to c, in the same zone.
    assert names(size) == ["b"]


@pytest.mark.parametrize("rule", ScoreRule)
def test_sums_after_nodes_were_taken_away_are_those_of_a_state_without_them(rule: ScoreRule) -> None:
    sized_cluster = state_of(SeededCluster.of(11, nodes=12, fill=0.5))
    cluster = compile_cluster(sized_cluster)
    alive = np.arange(12) >= 3
    turned = PlacingState.of(cluster, alive, ~alive)
    for leaving in (2, 0, 1):
        turned.take_away(leaving)
        pods = [pod for pod in cluster.pods_of_node[leaving].tolist() if not cluster.pods[pod].goes_with_node]
        place_pods(
            turned, pods, PlacingTrial(Order.RANDOM, rule, 5)
        )  # a pod that finds no place waits, and counts nowhere
    where = {
        number: sized_cluster.nodes[int(turned.places[place])].name
        for number, place in enumerate(turned.place_of.tolist())
        if place >= 0
    }
    moved = tuple(replace(pod, node=where.get(number, "")) for number, pod in enumerate(sized_cluster.pods))
    anew = compile_cluster(replace(sized_cluster, pods=moved))
    fresh = PlacingState.of(anew, alive)
    assert turned.puts > 3
    assert (turned.free == fresh.free).all() and (turned.place_of == fresh.place_of).all()
    everywhere = np.arange(len(turned.places))
    for number in range(len(sized_cluster.pods)):
        assert (turned.stock_scores(number, everywhere) == fresh.stock_scores(number, everywhere)).all()
    for own, same in zip(cluster.classes, anew.classes, strict=True):
        assert (turned.fitting_nodes(own) == fresh.fitting_nodes(same)).all(), own.example.address


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4])
def test_a_seeded_cluster_keeps_few_nodes_more_than_its_bound_and_gives_the_same_answer_twice(seed: int) -> None:
    cluster = state_of(SeededCluster.of(seed, nodes=40, fill=0.6))
    size = decide_size(cluster)
    assert decide_size(cluster) == size
    # The bound is 20 and 21 nodes; before nodes left in turns 23 were kept.
    assert len(size.staying) <= 22
