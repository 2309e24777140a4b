"""Hand-overs of reservations in filter and preempt."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.watch.frame import CollectionState
from tests.scheduler_ext.extender.worlds import NOW, SOURCES, World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
BE = {"koordinator.sh/qosClass": "BE"}
OLD = {**SOURCES, "guard": CollectionState(121.0), "reservations": CollectionState(121.0)}


def reservation(name: str, app: str, **status: str) -> bytes:
    owners = [{"labelSelector": {"matchLabels": {"app": app}}}]
    spec = {"owners": owners, "template": {}}
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec, "status": status})


def placeholder(node: str, name: str = "h", of: str = "r1", **more: Any) -> dict[str, Any]:
    labels = {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": of}
    return pod_json(
        name, {"cpu": "4"}, namespace="cotenant-reservations", labels=labels, node=node, scheduled=NOW, **more
    )


def reserved_cluster() -> World:
    """n1 holds room for r1, whose owners carry app=web; nothing is wrong with any node's load."""
    cluster = World().node("n1").node("n2").node("n3").pod(placeholder("n1"))
    cluster.table.put_reservation("r1", reservation("r1", "web"))
    return cluster


def codes(cluster: World, pod: Any, sources: Any = None) -> dict[str, int]:
    snapshot = cluster.show(sources=sources).snapshot
    judged, _ = decide.check_nodes(snapshot, pod, snapshot.rows_of(snapshot.names), moment(), cluster.settings)
    return dict(zip(snapshot.names, judged.codes.tolist(), strict=True))


def owner(**more: Any) -> Any:
    return facts(pod_json("web-1", {"cpu": "4"}, labels={"app": "web", **LS}, **more))


def stranger() -> Any:
    return facts(pod_json("other", {"cpu": "4"}, labels=LS))


def test_during_a_hand_over_only_the_named_pods_get_onto_the_node() -> None:
    cluster = reserved_cluster()
    cluster.table.put_guards({"n1": ["default/web-1"], "gone": ["default/web-1"]})
    assert codes(cluster, stranger()) == {"n1": Code.RESERVED, "n2": 0, "n3": 0}
    assert codes(cluster, owner()) == {"n1": 0, "n2": 0, "n3": 0}
    # the right labels alone are not enough: another replica of the same app waits
    assert codes(cluster, facts(pod_json("web-2", labels={"app": "web"})))["n1"] == Code.RESERVED
    cluster.table.put_guards({})
    assert codes(cluster, stranger())["n1"] == 0


def test_with_an_old_view_nodes_that_hold_room_are_closed_to_all_but_owners() -> None:
    cluster = reserved_cluster()
    assert codes(cluster, stranger(), OLD) == {"n1": Code.MAY_BE_RESERVED, "n2": 0, "n3": 0}
    assert codes(cluster, owner(), OLD) == {"n1": 0, "n2": 0, "n3": 0}
    # what was guarded stays so
    cluster.table.put_guards({"n3": ["default/web-1"]})
    assert codes(cluster, stranger(), OLD)["n3"] == Code.RESERVED


def test_load_rules_fall_silent_with_an_old_view_while_the_guard_does_not() -> None:
    metric = reserved_cluster().metric("n2", cpu="9")
    metric.table.put_guards({"n1": []})
    stale = {name: CollectionState(500.0) for name in SOURCES}
    assert codes(metric, stranger(), stale) == {"n1": Code.RESERVED, "n2": 0, "n3": 0}


def test_owners_get_the_room_that_is_held_for_them_also_on_a_busy_node() -> None:
    metric = reserved_cluster().metric("n1", cpu="8").metric("n2", cpu="8")
    assert codes(metric, owner()) == {"n1": Code.CPU, "n2": Code.CPU, "n3": 0}
    metric.table.put_reservation("r1", reservation("r1", "web", phase="Available", nodeName="n1"))
    assert codes(metric, owner()) == {"n1": 0, "n2": Code.CPU, "n3": 0}
    assert codes(metric, stranger())["n1"] == Code.CPU
    metric.table.put_reservation("r1", reservation("r1", "web", phase="Succeeded", nodeName="n1"))
    assert codes(metric, owner())["n1"] == Code.CPU
    # in the hand-over itself the guard's list says who comes
    metric.table.put_guards({"n1": ["default/web-1"]})
    assert codes(metric, owner())["n1"] == 0


def test_whichever_busy_node_has_the_reservation_lets_its_owners_in() -> None:
    for chosen in ("n1", "n2", "n3"):
        cluster = World()
        for name in ("n1", "n2", "n3"):
            cluster.node(name).metric(name, cpu="8")
        cluster.pod(placeholder(chosen))
        cluster.table.put_reservation("r1", reservation("r1", "web", phase="Available", nodeName=chosen))
        assert [name for name, code in codes(cluster, owner()).items() if code == Code.PASS] == [chosen]


def test_what_a_former_watcher_knew_is_forgotten_when_the_next_begins() -> None:
    cluster = reserved_cluster()
    cluster.table.put_reservation("r1", reservation("r1", "web", phase="Available", nodeName="n1"))
    assert set(cluster.show().snapshot.reservations) == {"r1"}
    nextone = World().node("n1")
    nextone.view = cluster.view
    assert cluster.view.shares
    snapshot = nextone.show().snapshot
    assert (dict(snapshot.reservations), dict(snapshot.placeholders), cluster.view.shares) == ({}, {}, {})


def spared(cluster: World, pod: Any, victims: dict[str, list[str]]) -> dict[str, str]:
    view = cluster.show()
    return decide.protected_nodes(view.snapshot, pod, victims, view.shares, (moment(), cluster.settings))


def test_nobody_displaces_a_placeholder_of_somebody_else() -> None:
    cluster = reserved_cluster()
    assert spared(cluster, stranger(), {"n1": ["uid-h"], "n2": ["x"]}) == {"n1": "reservation r1 is not for this pod"}
    assert spared(cluster, owner(), {"n1": ["uid-h"]}) == {}
    cluster.table.put_reservation("r1", None)
    assert "n1" in spared(cluster, owner(), {"n1": ["uid-h"]})


def test_nobody_displaces_pods_on_a_node_that_is_being_handed_over() -> None:
    cluster = reserved_cluster()
    cluster.table.put_guards({"n2": ["default/web-1"]})
    assert spared(cluster, stranger(), {"n2": ["x"]}) == {
        "n2": "the node's capacity is being handed over to another pod"
    }


def test_victims_do_not_die_for_nothing() -> None:
    """The node stays too busy without them: the pod would be refused there afterwards."""
    metric = World().node("n2").metric("n2", cpu="1m")  # takes the pod with anybody's leave
    metric.node("n1").metric("n1", cpu="8", pods=[("small", "500m", "1Gi", ""), ("big", "4", "1Gi", "")])
    for name in ("small", "big"):
        metric.pod(pod_json(name, {"cpu": "1"}, labels=LS, node="n1", scheduled=NOW - 900))
    # 8,000 - 500 + 3,400 = 109 % of 10 cores; without big 8,000 - 4,000 + 3,400 = 74 %; without both 69 %
    busy = {"n1": "cpu usage above 65 %"}
    assert spared(metric, stranger(), {"n1": ["uid-small"]}) == busy
    assert spared(metric, stranger(), {"n1": ["uid-small", "uid-big"], "n2": ["x"]}) == busy
    # 35 % are reported without both: where no other node is left, an estimate of the pod keeps nobody from it
    assert spared(metric, stranger(), {"n1": ["uid-small", "uid-big"]}) == {}
    light = facts(pod_json("light", {"cpu": "2"}, labels=LS))
    # 8,000 - 4,500 + 1,700 = 52 %
    assert spared(metric, light, {"n1": ["uid-small", "uid-big"], "unknown": ["y"]}) == {}


def test_batch_pods_that_close_no_node_do_not_die_for_one_that_stays_too_busy() -> None:
    metric = World().node("n2").metric("n2", cpu="1m")
    metric.node("n1", annotations={"node.cotenant.dev/batch-cpu-policy": "forecast"})
    metric.metric("n1", cpu="9", pods=[("b", "3", "1Gi", "koord-batch")])
    metric.pod(pod_json("b", {"kubernetes.io/batch-cpu": "3000"}, labels=BE, node="n1", scheduled=NOW - 900))
    light = facts(pod_json("light", {"cpu": "1"}, labels=LS))
    # others than batch use 6,000; with 850 of the pod 68.5 -> 69 %, whether the batch pod goes or stays
    assert spared(metric, light, {"n1": ["uid-b"], "n2": ["x"]}) == {"n1": "cpu usage above 65 %"}


def test_shares_of_pods_that_left_are_forgotten() -> None:
    cluster = World().node("n1").pod(pod_json("p", node="n1", scheduled=NOW))
    assert set(cluster.show().shares) == {"uid-p"}
    cluster.pod(pod_json("p", node="n1", scheduled=NOW, uid="second"))
    assert set(cluster.show().shares) == {"second"}
    assert cluster.remove_pod("p").show().shares == {}
