"""Frames and snapshots: whatever the order of changes, the last snapshot is the cluster; readers keep theirs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender.snapshot import RESERVING, NodeSnapshot
from cotenant.scheduler_ext.extender.watch.frame import SLOT_SECONDS, CollectionState
from tests.scheduler_ext.extender.worlds import NOW, SOURCES, World, pod_json

NAMES = ["n0", "n1", "n2"]
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("metric"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("forecast"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("show"), st.just(""), st.integers(0, 3)),
)


def change(cluster: World, what: str, name: str, value: int) -> None:
    """Value 0 takes the object away."""
    if what == "show":
        cluster.show(NOW + value * SLOT_SECONDS)
    elif what == "node":
        cluster.node(name, cpu=str(value)) if value else cluster.table.put_node(name, None)
    elif what == "metric":
        cluster.metric(name, cpu=str(value)) if value else cluster.table.put_metric(name, None)
    elif what == "forecast":
        cluster.forecast(name, [value] * 48) if value else cluster.table.put_outlook(name, None)
    elif value:
        cluster.pod(pod_json("p", {"cpu": str(value)}, node=name, scheduled=NOW))
    else:
        cluster.remove_pod("p")


@settings(max_examples=150)
@given(st.lists(CHANGES, max_size=25))
def test_step_by_step_and_all_at_once_give_the_same_cluster(changes: list[tuple[str, str, int]]) -> None:
    stepwise, at_once = World(), World()
    for what, name, value in changes:
        change(stepwise, what, name, value)
        if what != "show":
            change(at_once, what, name, value)
    snapshot, other = stepwise.show().snapshot, at_once.show().snapshot
    assert snapshot.names == other.names
    assert np.array_equal(snapshot.columns, other.columns, equal_nan=True)
    assert np.array_equal(snapshot.ahead, other.ahead, equal_nan=True)
    assert stepwise.view.shares == at_once.view.shares
    assert dict(snapshot.rows) == {name: i for i, name in enumerate(snapshot.names)}
    assert snapshot.heads.tolist() == other.heads.tolist()


def test_who_reads_keeps_what_it_began_with() -> None:
    cluster = World().node("n1").metric("n1", cpu="1")
    before = cluster.show().snapshot
    copy = before.columns.copy()
    after = cluster.metric("n1", cpu="5").show().snapshot
    assert np.array_equal(before.columns, copy, equal_nan=True)
    assert not np.array_equal(after.columns, copy, equal_nan=True)
    assert after.names is before.names


def test_a_pod_whose_placing_nobody_dated_was_placed_when_it_was_first_seen() -> None:
    cluster = World().node("n1").pod(pod_json("p", {"cpu": "1"}, node="n1"))
    assert cluster.table.pods["default", "p"].assigned_seconds == NOW
    cluster.table.put_pod(("default", "p"), cluster.table.pods["default", "p"], NOW + 50)
    assert cluster.table.pods["default", "p"].assigned_seconds == NOW


def test_what_a_kubelet_writes_of_a_pod_without_moving_it_is_no_change_of_its_node() -> None:
    cluster = World().node("n1").metric("n1", cpu="1")
    young = pod_json("p", {"cpu": "1"}, node="n1", scheduled=NOW, phase="Pending")
    before = cluster.pod(young).show().snapshot
    running = pod_json("p", {"cpu": "1"}, node="n1", scheduled=NOW, initialized=NOW + 2, phase="Running")
    assert cluster.pod(running).show().snapshot.steps == before.steps
    resized = pod_json("p", {"cpu": "2"}, node="n1", scheduled=NOW, phase="Running")
    assert cluster.pod(resized).show().snapshot.steps == before.steps + 1
    ended = pod_json("p", {"cpu": "2"}, node="n1", scheduled=NOW, phase="Succeeded")
    assert cluster.pod(ended).show().snapshot.steps == before.steps + 2


def test_pods_of_nodes_that_are_not_there_yet_count_once_they_are() -> None:
    cluster = World().pod(pod_json("p", {"cpu": "1"}, node="late", scheduled=NOW))
    assert cluster.show().snapshot.names == ()
    cluster.node("late")
    assert cluster.show().snapshot.columns[24, 0] == 1000


def test_a_view_for_whom_nobody_displaces_pods_lacks_only_what_each_pod_counts() -> None:
    full_cluster, without = (
        World().node("n1").metric("n1", cpu="1").pod(pod_json("p", {"cpu": "2"}, node="n1", scheduled=NOW))
        for _ in range(2)
    )
    without.view.take(without.table.take(SOURCES, NOW, 100.0, with_shares=False))
    feed = full_cluster.show()
    assert np.array_equal(without.view.snapshot.columns, feed.snapshot.columns, equal_nan=True)
    assert len(feed.shares) == 1
    assert without.view.shares == {}


def test_the_age_of_a_view_is_that_of_its_oldest_part() -> None:
    snapshot = World().node("n1").show(sources={**SOURCES, "pods": CollectionState(30.0)}).snapshot
    # sent at 100 on the monotonic clock
    assert snapshot.age_seconds(110.0) == 40.0
    assert snapshot.age_seconds(110.0, ["guard"]) == 10.0


def test_a_view_that_never_was_is_infinitely_old_and_what_is_not_installed_is_not() -> None:
    assert NodeSnapshot().age_seconds(0.0) == math.inf
    assert NodeSnapshot().problem() == "nothing has been read from the cluster yet"
    absent: dict[str, Any] = {**SOURCES, "guard": CollectionState(math.inf, "no such kind", synced=False, absent=True)}
    snapshot = World().node("n1").show(sources=absent).snapshot
    assert snapshot.age_seconds(100.0, RESERVING) == 0.0
    assert snapshot.problem() == ""
    waiting = World().show(sources={**SOURCES, "pods": CollectionState(math.inf, "forbidden", synced=False)}).snapshot
    assert waiting.problem() == "pods: forbidden"
    assert waiting.age_seconds(100.0) == math.inf
