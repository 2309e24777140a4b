"""Many pods between two reports: what was placed counts at once, so that the coldest node does not take them all."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender import decide
from tests.scheduler_ext.extender.worlds import NOW, World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
NODES = [f"n{number}" for number in range(10)]


def placed(cluster: World, pods: int, seed: int, reported: bool) -> Counter[str]:
    """Pods by node when each goes to one of the best; reported: whether the view hears of those placed before."""
    rng, counter = random.Random(seed), Counter[str]()
    for number in range(pods):
        snapshot = cluster.show().snapshot
        pod = pod_json(f"p{number}", {"cpu": "500m", "memory": "512Mi"}, labels=LS)
        rows = snapshot.rows_of(NODES)
        points = decide.points(snapshot, facts(pod), rows, moment(), cluster.settings)
        node = rng.choice([name for name, score in zip(NODES, points.tolist(), strict=True) if score == points.max()])
        counter[node] += 1
        if reported:
            pod["spec"]["nodeName"] = node
            pod["status"] = pod_json("x", scheduled=NOW + 1)["status"]
            cluster.pod(pod)
    return counter


def stale(cold: str = "") -> World:
    """Reports of a minute ago: all alike, but one node may be colder."""
    cluster = World()
    for name in NODES:
        cluster.node(name, cpu="16", memory="64Gi")
        cluster.metric(name, cpu="1" if name == cold else "4", memory="8Gi", updated=NOW - 60)
    return cluster


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_equal_nodes_get_equally_many(seed: int) -> None:
    counter = placed(stale(), 30, seed, reported=True)
    assert max(counter.values()) - min(counter[name] for name in NODES) <= 2


def test_the_coldest_node_does_not_take_them_all() -> None:
    """3 cores colder are room for some seven pods of 425 m; then it is like the others."""
    alone = placed(stale("n3"), 30, 1, reported=False)
    assert alone["n3"] == 30
    counter = placed(stale("n3"), 30, 1, reported=True)
    assert 3 <= counter["n3"] <= 12
    others = [counter[name] for name in NODES if name != "n3"]
    assert max(others) - min(others) <= 2
