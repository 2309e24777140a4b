"""Which nodes are handed back: those that load does not tell apart from the best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.scheduler_ext.extender.worlds import World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
SET = [{"kind": "ReplicaSet", "name": "web-1", "uid": "u", "apiVersion": "apps/v1", "controller": True}]
ZONE = "topology.kubernetes.io/zone"


def loaded(cpu: dict[str, str | None], zones: dict[str, str] | None = None) -> World:
    """Nodes of 10 cores that use so much CPU; None: no report."""
    cluster = World()
    for name, used in cpu.items():
        cluster.node(name, labels={ZONE: (zones or {})[name]} if zones else {})
        if used is not None:
            cluster.metric(name, cpu=used)
    return cluster


def handed_back(cluster: World, pod: dict[str, Any] | None = None, **settings: Any) -> list[str]:
    """Names, in the order asked."""
    chosen, snapshot = ExtenderSettings(**settings), cluster.show().snapshot
    rows, now = snapshot.rows_of(snapshot.names), moment()
    context = decide.known_now(snapshot, now, chosen)
    new_pod = facts(pod or pod_json("p", {"cpu": "10m"}, labels=LS))
    return [snapshot.names[place] for place in decide.best_row_indices(snapshot, new_pod, rows, now, chosen, context)]


def test_nodes_that_are_nearly_as_idle_as_the_best_come_back() -> None:
    # CPU is half of the points: 10 points of it are 5 of the mean. 1 core: 10 points; 8 m of estimate tip each floor
    cluster = loaded({"idle": "1", "near": "2", "far": "2200m", "busy": "5"})
    assert handed_back(cluster) == ["idle", "near"]
    assert handed_back(cluster, near_points=6) == ["idle", "near", "far"]
    assert handed_back(cluster, near_points=0) == ["idle"]
    assert handed_back(cluster, near_points=100) == ["idle", "near", "far", "busy"]


def test_who_asks_for_points_gets_all_nodes() -> None:
    assert handed_back(loaded({"idle": "1", "busy": "5"}), weight=1) == ["idle", "busy"]


def test_a_node_that_reports_nothing_stays() -> None:
    assert handed_back(loaded({"idle": "1", "silent": None, "busy": "5"})) == ["idle", "silent"]
    assert handed_back(loaded({"one": None, "other": None})) == ["one", "other"]


@pytest.mark.parametrize("owners", [[], SET])
def test_nodes_take_turns_also_where_none_reports(owners: list[dict[str, Any]]) -> None:
    cluster = loaded(dict.fromkeys((f"n{number}" for number in range(40)), None))
    pods = [pod_json(f"p{number}", {"cpu": "10m"}, labels=LS, owners=owners) for number in range(20)]
    handed = [handed_back(cluster, pod, most_nodes=5) for pod in pods]
    assert {len(names) for names in handed} == {5}
    # twenty times five names in turn are most of forty; without turns they would be the same five
    assert len({name for names in handed for name in names}) > 20


def test_replicas_keep_the_best_of_every_zone_and_others_do_not() -> None:
    cluster = loaded({"a1": "1", "a2": "5", "b1": "4", "b2": "6"}, {"a1": "a", "a2": "a", "b1": "b", "b2": "b"})
    assert handed_back(cluster) == ["a1"]
    assert handed_back(cluster, pod_json("r", {"cpu": "10m"}, labels=LS, owners=SET)) == ["a1", "b1"]
    plain_owners = [{**SET[0], "controller": False}]
    assert handed_back(cluster, pod_json("h", {"cpu": "10m"}, labels=LS, owners=plain_owners)) == ["a1"]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}, True),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"affinity": None, "topologySpreadConstraints": []}, False),
    ],
)
def test_a_pod_with_preferences_of_its_own_gets_all_nodes(spec: dict[str, Any], chosen: bool) -> None:
    """What it requires was judged before we are asked."""
    pod = pod_json("p", {"cpu": "10m"}, labels=LS)
    pod["spec"] |= spec
    assert handed_back(loaded({"idle": "1", "busy": "5"}), pod) == (["idle", "busy"] if chosen else ["idle"])


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_the_best_are_of_every_zone_equally_many(nodes: list[tuple[int, int]], most: int) -> None:
    points = np.array([float(p) for p, _ in nodes])
    zones = np.unique([z for _, z in nodes], return_inverse=True)[1]
    places, count = decide.best(points, zones, most), zones.max() + 1
    # without zones it is as with one
    assert decide.best(points, None, most).tolist() == decide.best(points, 0 * zones, most).tolist()
    assert sorted(set(places.tolist())) == places.tolist()
    assert len(places) <= most
    groups = zones if most >= count else np.zeros_like(zones)
    share = most // (groups.max() + 1)
    for zone in range(groups.max() + 1):
        members = np.flatnonzero(groups == zone)
        zone_places = [place for place in places.tolist() if groups[place] == zone]
        assert len(zone_places) == min(share, len(members))
        # nobody who was left out is better than one who was kept
        other_points = points[[m for m in members.tolist() if m not in zone_places]]
        assert not len(other_points) or other_points.max() <= points[zone_places].min()


@given(st.lists(st.one_of(st.none(), st.integers(1, 9)), min_size=1, max_size=30), st.integers(0, 100))
def test_somebody_comes_back_always_and_the_idlest_is_among_them(used: list[int | None], near: int) -> None:
    cluster = loaded({f"n{number}": None if load is None else str(load) for number, load in enumerate(used)})
    texts = handed_back(cluster, near_points=near, most_nodes=0)
    reported_loads = [load for load in used if load is not None]
    silent = {f"n{number}" for number, load in enumerate(used) if load is None}
    idlest = {f"n{number}" for number, load in enumerate(used) if reported_loads and load == min(reported_loads)}
    assert silent | idlest <= set(texts)
    assert texts
