"""Pods that replace others: a forecast that holds their predecessors is not added to twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import GIB
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.settings import Percentages
from cotenant.scheduler_ext.extender.watch.frame import SLOT_SECONDS
from tests.scheduler_ext.extender.worlds import NOW, World, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
BE = {"koordinator.sh/qosClass": "BE"}
KNOWN_UNTIL = NOW - NOW % SLOT_SECONDS
BEFORE, AFTER = KNOWN_UNTIL - 600, KNOWN_UNTIL + 60


def forecast_cluster(*old: str, node: str = "n1", cpu: int = 4000) -> World:
    """A node whose forecast knows pods of one core; it is watched since ever."""
    forecast = World().node(node).metric(node, cpu="4").forecast(node, [cpu] * 48, [GIB] * 48)
    for name in old:
        forecast.pod(pod_json(name, {"cpu": "1"}, labels=LS, node=node, scheduled=BEFORE))
    forecast.show()
    return forecast


def added(cluster: World, node: str = "n1") -> int:
    """Millicores beyond the forecast."""
    snapshot = cluster.show().snapshot
    return int(snapshot.column(SnapshotColumn.SINCE_CPU)[snapshot.rows[node]])


def arrive(cluster: World, *names: str, cpu: str = "1", node: str = "n1", **more: Any) -> World:
    for name in names:
        cluster.pod(pod_json(name, {"cpu": cpu}, **{"labels": LS, "node": node, "scheduled": AFTER, **more}))
    return cluster


def test_a_pod_that_replaces_another_adds_nothing_and_one_more_counts() -> None:
    cluster = forecast_cluster("a-1", "a-2")
    cluster.remove_pod("a-1")
    cluster.remove_pod("a-2")
    assert added(arrive(cluster, "a-3", "a-4")) == 0
    assert added(arrive(cluster, "a-5")) == 850


def test_a_pod_that_ends_or_comes_back_under_its_name_has_left_too() -> None:
    cluster = forecast_cluster("job", "web-0")
    cluster.pod(pod_json("job", {"cpu": "1"}, labels=LS, node="n1", scheduled=BEFORE, phase="Succeeded"))
    arrive(cluster, "web-0", uid="second")
    assert added(arrive(cluster, "web-1")) == 0
    assert added(arrive(cluster, "web-2")) == 850


def test_a_pod_that_moves_counts_where_it_goes_and_makes_room_where_it_was() -> None:
    cluster = forecast_cluster("a-1")
    cluster.node("n2").metric("n2").forecast("n2", [4000] * 48, [GIB] * 48)
    cluster.remove_pod("a-1")
    arrive(cluster, "a-2", node="n2")
    assert (added(cluster, "n1"), added(cluster, "n2")) == (0, 850)
    assert added(arrive(cluster, "b-1"), "n1") == 0


def test_batch_that_left_makes_no_room_for_services() -> None:
    cluster = forecast_cluster()
    cluster.pod(pod_json("b", {"kubernetes.io/batch-cpu": "1000"}, labels=BE, node="n1", scheduled=BEFORE))
    cluster.show()
    cluster.remove_pod("b")
    assert added(arrive(cluster, "web")) == 850
    arrive(cluster, "c", labels=BE, cpu="0")
    assert added(cluster) == 850


def test_who_came_and_left_after_the_forecast_makes_no_room() -> None:
    cluster = forecast_cluster()
    arrive(cluster, "short").show()
    cluster.remove_pod("short")
    assert added(arrive(cluster, "next")) == 850


def test_a_new_forecast_forgets_who_left_before_its_history_ended() -> None:
    cluster = forecast_cluster("a-1")
    cluster.remove_pod("a-1")
    assert added(arrive(cluster, "a-2")) == 0
    cluster.forecast("n1", [4000] * 48, [GIB] * 48, history_end=NOW + 1)
    assert added(cluster) == 0
    arrive(cluster, "a-3", scheduled=NOW + 2)
    assert added(cluster) == 850
    assert cluster.table.departures == {}


def test_nodes_that_come_and_go_leave_nothing_behind() -> None:
    """A watcher lives for months, beside an autoscaler that gives each machine a new name."""
    cluster = forecast_cluster()
    for number in range(3):
        node = f"spot-{number}"
        cluster.node(node).metric(node)
        arrive(cluster, "web", node=node, uid=node).show()
        # As the API server tells it: the Node first, its pods when they are collected.
        cluster.table.put_node(node, None)
        cluster.table.put_metric(node, None)
        cluster.remove_pod("web").show()
    view = cluster.show(NOW + SLOT_SECONDS)
    assert (view.snapshot.names, view.shares, cluster.table.departures) == (("n1",), {}, {})


@pytest.mark.parametrize(("used", "expected"), [("4", 0), ("4300m", 300), ("9", 1700)])
def test_what_came_before_anybody_watched_counts_by_what_the_node_uses_more_than_forecast(
    used: str, expected: int
) -> None:
    """Two pods of 850 m that may have replaced two others; the forecast says 4,000 for now."""
    forecast = World().node("n1").forecast("n1", [4000] * 48, [GIB] * 48)
    forecast.metric("n1", cpu=used, pods=[("a", "100m", "0", ""), ("b", "100m", "0", "")])
    forecast.table.watched_since = NOW
    assert added(arrive(forecast, "a", "b")) == expected
    # one that the report does not measure yet counts whole
    assert added(arrive(forecast, "c")) == expected + 850


def test_an_unwatched_node_is_looked_at_again_with_the_next_half_hour() -> None:
    metric = World().node("n1").metric("n1", cpu="4", pods=[("a", "100m", "0", "")])
    metric.forecast("n1", [4000, 1000, *[4000] * 46], [GIB] * 48)
    metric.table.watched_since = NOW
    assert added(arrive(metric, "a")) == 0
    column = metric.show(NOW + SLOT_SECONDS).snapshot.column(SnapshotColumn.SINCE_CPU)
    assert column.tolist() == [850]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=12), st.integers(0, 5))
def test_a_node_never_counts_more_than_came_nor_less_than_came_less_left(
    events: list[tuple[bool, int]], replaced: int
) -> None:
    cluster = forecast_cluster(*[f"old-{i}" for i in range(replaced)])
    for i in range(replaced):
        cluster.remove_pod(f"old-{i}")
    cores = 0
    for i, (_, cpu) in enumerate(events):
        arrive(cluster, f"new-{i}", cpu=str(cpu))
        cores += cpu
    for i, (leaves, cpu) in enumerate(events):
        if leaves:
            cluster.remove_pod(f"new-{i}")
            cores -= cpu
    assert added(cluster) == pytest.approx(max(0, 850 * (cores - replaced)))
    assert cluster.settings.load_aware.scaling_factors == Percentages(85, 70)
