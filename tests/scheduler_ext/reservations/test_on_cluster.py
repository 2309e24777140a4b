"""Reservations on a real kube-apiserver and kube-scheduler: held, handed over, expired, whoever else wants the room."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import REQUIRED_TERMS
from tests.cluster.admission_rules import refusing
from tests.cluster.api import ApiError, Json
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.reservations.disturbed import Tally, rounds
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, hand_over

Nodes = Callable[..., list[str]]
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def pinned_to(node: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def may_delete_pods(scene: Scene) -> None:
    """What docs/reservations.md asks for where running pods give their place."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    scene.api.create(f"{rbac}/roles", {"metadata": {"name": "standby"}, "rules": rules})
    who = {"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "standby"}
    scene.api.create(f"{rbac}/rolebindings", {"metadata": {"name": "standby"}, "roleRef": role, "subjects": [who]})
    asked = {"namespace": scene.namespace, "verb": "delete", "resource": "pods"}
    review = {"spec": {"user": "system:serviceaccount:cotenant:cotenant-manager", "resourceAttributes": asked}}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    # The server goes by roles that it has heard of. A hand-over that is refused for 15 s is given up for good.
    wait_for("the right is in force", lambda: scene.api.create(reviews, review)["status"]["allowed"])


def test_ten_owners_get_their_room_under_eight_waiting_strangers_each(scene: Scene, fake_nodes: Nodes) -> None:
    nodes, tally = fake_nodes(5, cpu="4"), Tally()
    with scene.manager():
        for _ in range(2):
            rounds(scene, nodes, tally)
        wait_for("the guard is off", lambda: scene.guarded() == {})
    assert (tally.landed, tally.elsewhere, tally.robbed, tally.overbooked) == (10, 0, 0, 0)


def test_a_running_pod_gives_its_place_to_its_owner(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    owners = '[{"labelSelector": {"matchLabels": {"app": "web"}}}]'
    requests = {"cpu": "3", "memory": "1Gi"}
    standby = {
        "metadata": {
            "name": "standby",
            "labels": {"scheduling.koordinator.sh/operating-mode": "Reservation"},
            "annotations": {"scheduling.koordinator.sh/reservation-owners": owners},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}],
            "schedulerName": "nobody",
            **pinned_to(node),
        },
    }
    path = f"/api/v1/namespaces/{scene.namespace}/pods/standby"
    scene.api.create(f"/api/v1/namespaces/{scene.namespace}/pods", standby)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    scene.api.create(f"{path}/binding", {"metadata": {"name": "standby"}, "target": target})
    wait_for("it runs", lambda: scene.api.get(path)["status"]["phase"] == "Running")
    may_delete_pods(scene)
    with scene.manager(operating_mode=True):
        strangers = scene.strangers(4, **pinned_to(node))
        scene.pod("owner", app="web", gate=True)
        assert scene.await_bound("owner") == node
        assert not scene.api.exists(path)
        assert not any(scene.node_of(stranger) for stranger in strangers)
        wait_for("the guard is off", lambda: scene.guarded() == {})


def test_an_owner_that_the_webhook_missed_gets_its_room_too(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with scene.manager():
        assert hand_over(scene, node, 0, gate=False) == (node, [])


def test_strangers_of_higher_priority_do_not_get_reserved_room(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    name = f"high-{scene.namespace[-8:]}"
    scene.api.create(CLASSES, {"metadata": {"name": name}, "value": 1_000_000, "preemptionPolicy": "Never"})
    with scene.manager():
        assert hand_over(scene, node, 0, priorityClassName=name) == (node, [])


def test_what_an_owner_leaves_is_held_on_for_the_next_one(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    pin = pinned_to(node)
    with scene.manager():
        name = scene.reservation("shared", "6", owner="web", allocateOnce=False, template=pin)
        scene.await_phase(name, "Available")
        strangers = scene.strangers(4, "3", **pin)
        for number in range(3):
            scene.pod(f"owner-{number}", "2", app="web", gate=True)
            assert scene.await_bound(f"owner-{number}") == node
        wait_for("all is allocated", lambda: scene.status(name)["allocated"]["cpu"] == "6")
        assert scene.placeholders(name) == []
        assert len(scene.status(name)["currentOwners"]) == 3
        assert not any(scene.node_of(stranger) for stranger in strangers)
        # An owner that ends gives its room back to the Reservation, once the strangers are gone that want it.
        for stranger in strangers:
            scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{stranger}", gracePeriodSeconds="0")
        scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/owner-0", gracePeriodSeconds="0")
        wait_for("two are allocated", lambda: scene.status(name)["allocated"]["cpu"] == "4")
        again = wait_for("two cores are held", lambda: scene.placeholders(name))
        assert again[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"


def test_an_owner_that_grows_in_place_takes_of_its_own_reserved_capacity(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    with scene.manager():
        name = scene.reservation("grows", "4", owner="web", allocateOnce=False, template=pinned_to(node))
        scene.await_phase(name, "Available")
        scene.pod("owner", "1", app="web", gate=True)
        assert scene.await_bound("owner") == node
        wait_for("three cores are held", lambda: scene.held_cpu(name) == ["3"])
        larger = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
        path = f"/api/v1/namespaces/{scene.namespace}/pods/owner/resize"
        scene.api.patch(path, {"spec": larger}, kind="strategic")
        # 4 are reserved and the owner asks for 3 of them: 1 is held beside it, and the node counts 4, not 6.
        wait_for("one core is held", lambda: scene.held_cpu(name) == ["1"])
        wait_for("three are allocated", lambda: scene.status(name)["allocated"]["cpu"] == "3")
        assert scene.status(name)["phase"] == "Available"


def test_a_placeholder_that_a_policy_refuses_is_told_on_its_reservation(scene: Scene, fake_nodes: Nodes) -> None:
    fake_nodes(1, cpu="8")
    rule = {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}
    # in the namespace of placeholders another policy refuses strangers' pods too, and the server names either
    judged = f"['cotenant-reservations', '{scene.namespace}']"
    expression = f"!(object.metadata.namespace in {judged}) || !has(object.spec.hostNetwork)"
    validation = {"expression": expression, "message": "no pod uses the network of its node here"}
    probe = f"/api/v1/namespaces/{scene.namespace}/pods"

    def in_force() -> bool:
        body = {
            "metadata": {"name": "probe"},
            "spec": {"hostNetwork": True, "containers": [{"name": "a", "image": "a"}]},
        }
        try:
            scene.api.create(probe, body, dryRun="All")
        except ApiError as error:
            return "network of its node" in str(error)
        return False

    with scene.manager(), refusing(scene.api, unique_name("no-host"), rule, validation, in_force):
        name = scene.reservation("refused", "3", owner="web")

        def said() -> str:
            conditions = scene.status(name).get("conditions") or ()
            return next((c["message"] for c in conditions if c["type"] == "Scheduled"), "")

        assert "no pod uses the network of its node here" in wait_for("the condition", said)

        def events() -> list[Any]:
            items = scene.api.items("/apis/events.k8s.io/v1/events")
            return [e for e in items if e["reason"] == "NotMade" and e["regarding"].get("name") == name]

        wait_for("the Event", events)


def test_capacity_for_pods_that_keep_apart_is_held_on_a_node_for_each(scene: Scene, fake_nodes: Nodes) -> None:
    nodes = fake_nodes(2, cpu="16")
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {
        "nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [{"matchExpressions": here}]}},
        "podAntiAffinity": {REQUIRED_TERMS: [apart]},
    }
    with scene.manager():
        spec: dict[str, Any] = {"owner": "web", "labels": {"app": "web"}, "template": {"affinity": affinity}}
        names = [scene.reservation(f"apart-{number}", "2", **spec) for number in range(3)]

        def settled() -> list[Json]:
            states = [scene.status(name) for name in names]
            return states if all(state.get("nodeName") or state.get("conditions") for state in states) else []

        # Each node has place for eight by their size, and for one of these pods: the third has no node.
        states = wait_for("each is placed, or has the scheduler's refusal", settled)
        assert sorted(state.get("nodeName", "") for state in states) == ["", *sorted(nodes)]
        (refused,) = (state["conditions"][0]["message"] for state in states if state["phase"] == "Pending")
        assert "anti-affinity" in refused


def test_restricted_room_takes_only_owners_that_fit_in_it(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="16")
    with scene.manager():
        name = scene.reservation("strict", "2", owner="web", allocatePolicy="Restricted", template=pinned_to(node))
        scene.await_phase(name, "Available")
        scene.pod("big", "3", app="web", gate=True)
        scene.await_bound("big")  # it found free room: the gate was lifted
        assert scene.status(name)["phase"] == "Available"
        scene.pod("fitting", "2", app="web", gate=True)
        assert scene.await_bound("fitting") == node
        scene.await_phase(name, "Succeeded")


def test_a_reservation_ends_on_time_and_gives_its_room_back(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with scene.manager():
        name = scene.reservation("brief", ttl="4s", template=pinned_to(node))
        begun = time.monotonic()
        scene.await_phase(name, "Available")
        (stranger,) = scene.strangers(1, **pinned_to(node))
        status = scene.await_phase(name, "Failed")
        assert time.monotonic() - begun >= 3  # creation times are whole seconds
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Expired")
        assert scene.await_bound(stranger) == node


def test_ended_reservations_are_deleted_after_their_day(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with scene.manager(keep_ended_seconds=0):
        name = scene.reservation("gone", ttl="1s", template=pinned_to(node))
        wait_for("it is collected", lambda: not scene.api.exists(f"{RESERVATIONS}/{name}"))
        assert scene.placeholders(name) == []


def test_room_that_is_nowhere_says_so_and_is_held_when_it_comes(scene: Scene, fake_nodes: Nodes) -> None:
    with scene.manager():
        name = scene.reservation("large", "50", template={"nodeSelector": {"size": scene.namespace}})

        def refused() -> bool:
            conditions = scene.status(name).get("conditions") or []
            return any(c["type"] == "Scheduled" and c["reason"] == "Unschedulable" for c in conditions)

        wait_for("it says that no node fits", refused)
        assert scene.status(name)["phase"] == "Pending"
        (node,) = fake_nodes(1, cpu="64", labels={"size": scene.namespace})
        assert scene.await_phase(name, "Available")["nodeName"] == node


def test_a_lost_node_fails_the_reservation(scene: Scene) -> None:
    (node,) = create_nodes(scene.plane, 1, NodeShape(cpu="4", prefix=f"lost-{scene.namespace[-8:]}"))
    with scene.manager():
        name = scene.reservation("orphan", template=pinned_to(node))
        scene.await_phase(name, "Available")
        scene.api.delete(f"/api/v1/nodes/{node}")
        status = scene.await_phase(name, "Failed")
        assert next(c for c in status["conditions"] if c["type"] == "Ready")["reason"] == "Expired"


def test_twenty_reservations_become_available_and_name_their_nodes(scene: Scene, fake_nodes: Nodes) -> None:
    label = {"batch": scene.namespace}
    nodes = fake_nodes(5, cpu="16", labels=label)
    with scene.manager(placeholders_per_node=5):
        names = [scene.reservation("many", "3", template={"nodeSelector": label}) for _ in range(20)]
        found = [scene.await_phase(name, "Available")["nodeName"] for name in names]
    assert set(found) <= set(nodes)
    # 16 cores take five placeholders of three.
    assert max(found.count(node) for node in nodes) <= 5


def test_a_last_resort_placeholder_is_taken_by_its_owner_without_a_gate(scene: Scene, fake_nodes: Nodes) -> None:
    label = {"last": scene.namespace}
    fake_nodes(1, cpu="4", labels=label)
    high = f"web-{scene.namespace[-8:]}"
    scene.api.create(CLASSES, {"metadata": {"name": high}, "value": 100})
    template: dict[str, Any] = {"nodeSelector": label, "priorityClassName": high}
    with scene.manager(mode="last-resort"):
        name = scene.reservation("peak", template=template)
        node = scene.await_phase(name, "Available")["nodeName"]
        assert scene.placeholders(name)[0]["spec"]["priority"] == 99
        scene.pod("owner", app=name, **template)
        assert scene.await_bound("owner") == node
        assert scene.await_phase(name, "Succeeded")["currentOwners"][0]["name"] == "owner"
        assert scene.placeholders(name) == []


def test_a_pod_created_through_the_webhook_waits_for_its_room_and_lands_on_it(scene: Scene, fake_nodes: Nodes) -> None:
    node, _ = fake_nodes(2, cpu="4")
    with scene.manager(), running(scene.plane) as webhook:
        name = scene.reservation("held", template=pinned_to(node))
        scene.await_phase(name, "Available")
        wait_for("the webhook knows it", lambda: any(r.name == name for r in webhook.state.view().offers.reservations))
        wait_for("the promise is known", lambda: webhook.state.view().offers.served_until_seconds > time.time())
        made = scene.pod("owner", app=name)
        assert made["spec"]["schedulingGates"] == [{"name": "cotenant.dev/reservation"}]
        assert scene.await_bound("owner") == node
        scene.await_phase(name, "Succeeded")


def test_without_the_webhook_a_matching_pod_is_scheduled_normally(scene: Scene, fake_nodes: Nodes) -> None:
    node, other = fake_nodes(2, cpu="4")
    with scene.manager():
        name = scene.reservation("held", template=pinned_to(node))
        scene.await_phase(name, "Available")
        made = scene.pod("owner", app=name, **pinned_to(other))
        assert "schedulingGates" not in made["spec"]
        assert scene.await_bound("owner") == other
        assert scene.status(name)["phase"] == "Available"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_api_server_refuses_bindings_to_a_guarded_node(scene: Scene, fake_nodes: Nodes, allowed: bool) -> None:
    (node,) = fake_nodes(1, cpu="4")
    scene.pod("pod", schedulerName="nobody")
    let_in = [f"{scene.namespace}/pod"] if allowed else ["other/pod"]
    guard = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
    guard["spec"] = {"nodes": {node: let_in}}
    scene.api.create("/apis/cotenant.dev/v1alpha1/swapguards", guard)
    binding = {"metadata": {"name": "pod"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    path = f"/api/v1/namespaces/{scene.namespace}/pods/pod/binding"

    def refused() -> bool:
        try:
            scene.api.create(path, binding, dryRun="All")
        except ApiError as error:
            assert "is being handed over" in str(error)
            return True
        return False

    if not allowed:
        wait_for("the guard is in force", refused)
    assert refused() is not allowed
