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


def may_delete_pods(cluster: Scene) -> None:
    """What docs/reservations.md asks for where running pods give their place."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    cluster.api.create(f"{rbac}/roles", {"metadata": {"name": "standby"}, "rules": rules})
    who = {"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "standby"}
    cluster.api.create(f"{rbac}/rolebindings", {"metadata": {"name": "standby"}, "roleRef": role, "subjects": [who]})
    attributes = {"namespace": cluster.namespace, "verb": "delete", "resource": "pods"}
    review = {"spec": {"user": "system:serviceaccount:cotenant:cotenant-manager", "resourceAttributes": attributes}}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    # The server goes by roles that it has heard of. A hand-over that is refused for 15 s is given up for good.
    wait_for("the right is in force", lambda: cluster.api.create(reviews, review)["status"]["allowed"])


def test_ten_owners_get_their_room_under_eight_waiting_strangers_each(cluster: Scene, fake_nodes: Nodes) -> None:
    nodes, tally = fake_nodes(5, cpu="4"), Tally()
    with cluster.manager():
        for _ in range(2):
            rounds(cluster, nodes, tally)
        wait_for("the guard is off", lambda: cluster.guarded() == {})
    assert (tally.landed, tally.elsewhere, tally.robbed, tally.overbooked) == (10, 0, 0, 0)


def test_a_running_pod_gives_its_place_to_its_owner(cluster: Scene, fake_nodes: Nodes) -> None:
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
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/standby"
    cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/pods", standby)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    cluster.api.create(f"{path}/binding", {"metadata": {"name": "standby"}, "target": target})
    wait_for("it runs", lambda: cluster.api.get(path)["status"]["phase"] == "Running")
    may_delete_pods(cluster)
    with cluster.manager(operating_mode=True):
        strangers = cluster.strangers(4, **pinned_to(node))
        cluster.pod("owner", app="web", gate=True)
        assert cluster.await_bound("owner") == node
        assert not cluster.api.exists(path)
        assert not any(cluster.node_of(stranger) for stranger in strangers)
        wait_for("the guard is off", lambda: cluster.guarded() == {})


def test_an_owner_that_the_webhook_missed_gets_its_room_too(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with cluster.manager():
        assert hand_over(cluster, node, 0, gate=False) == (node, [])


def test_strangers_of_higher_priority_do_not_get_reserved_room(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    name = f"high-{cluster.namespace[-8:]}"
    cluster.api.create(CLASSES, {"metadata": {"name": name}, "value": 1_000_000, "preemptionPolicy": "Never"})
    with cluster.manager():
        assert hand_over(cluster, node, 0, priorityClassName=name) == (node, [])


def test_what_an_owner_leaves_is_held_on_for_the_next_one(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    pin = pinned_to(node)
    with cluster.manager():
        name = cluster.reservation("shared", "6", owner="web", allocateOnce=False, template=pin)
        cluster.await_phase(name, "Available")
        strangers = cluster.strangers(4, "3", **pin)
        for number in range(3):
            cluster.pod(f"owner-{number}", "2", app="web", gate=True)
            assert cluster.await_bound(f"owner-{number}") == node
        wait_for("all is allocated", lambda: cluster.status(name)["allocated"]["cpu"] == "6")
        assert cluster.placeholders(name) == []
        assert len(cluster.status(name)["currentOwners"]) == 3
        assert not any(cluster.node_of(stranger) for stranger in strangers)
        # An owner that ends gives its room back to the Reservation, once the strangers are gone that want it.
        for stranger in strangers:
            cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods/{stranger}", gracePeriodSeconds="0")
        cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods/owner-0", gracePeriodSeconds="0")
        wait_for("two are allocated", lambda: cluster.status(name)["allocated"]["cpu"] == "4")
        again = wait_for("two cores are held", lambda: cluster.placeholders(name))
        assert again[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"


def test_an_owner_that_grows_in_place_takes_of_its_own_reserved_capacity(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    with cluster.manager():
        name = cluster.reservation("grows", "4", owner="web", allocateOnce=False, template=pinned_to(node))
        cluster.await_phase(name, "Available")
        cluster.pod("owner", "1", app="web", gate=True)
        assert cluster.await_bound("owner") == node
        wait_for("three cores are held", lambda: cluster.held_cpu(name) == ["3"])
        larger = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/owner/resize"
        cluster.api.patch(path, {"spec": larger}, kind="strategic")
        # 4 are reserved and the owner asks for 3 of them: 1 is held beside it, and the node counts 4, not 6.
        wait_for("one core is held", lambda: cluster.held_cpu(name) == ["1"])
        wait_for("three are allocated", lambda: cluster.status(name)["allocated"]["cpu"] == "3")
        assert cluster.status(name)["phase"] == "Available"


def test_a_placeholder_that_a_policy_refuses_is_told_on_its_reservation(cluster: Scene, fake_nodes: Nodes) -> None:
    fake_nodes(1, cpu="8")
    rule = {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}
    # in the namespace of placeholders another policy refuses strangers' pods too, and the server names either
    judged = f"['cotenant-reservations', '{cluster.namespace}']"
    expression = f"!(object.metadata.namespace in {judged}) || !has(object.spec.hostNetwork)"
    validation = {"expression": expression, "message": "no pod uses the network of its node here"}
    probe = f"/api/v1/namespaces/{cluster.namespace}/pods"

    def in_force() -> bool:
        body = {
            "metadata": {"name": "probe"},
            "spec": {"hostNetwork": True, "containers": [{"name": "a", "image": "a"}]},
        }
        try:
            cluster.api.create(probe, body, dryRun="All")
        except ApiError as error:
            return "network of its node" in str(error)
        return False

    with cluster.manager(), refusing(cluster.api, unique_name("no-host"), rule, validation, in_force):
        name = cluster.reservation("refused", "3", owner="web")

        def said() -> str:
            conditions = cluster.status(name).get("conditions") or ()
            return next((c["message"] for c in conditions if c["type"] == "Scheduled"), "")

        assert "no pod uses the network of its node here" in wait_for("the condition", said)

        def events() -> list[Any]:
            items = cluster.api.items("/apis/events.k8s.io/v1/events")
            return [e for e in items if e["reason"] == "NotMade" and e["regarding"].get("name") == name]

        wait_for("the Event", events)


def test_capacity_for_pods_that_keep_apart_is_held_on_a_node_for_each(cluster: Scene, fake_nodes: Nodes) -> None:
    nodes = fake_nodes(2, cpu="16")
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]
    affinity_term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {
        "nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [{"matchExpressions": here}]}},
        "podAntiAffinity": {REQUIRED_TERMS: [affinity_term]},
    }
    with cluster.manager():
        spec: dict[str, Any] = {"owner": "web", "labels": {"app": "web"}, "template": {"affinity": affinity}}
        names = [cluster.reservation(f"apart-{number}", "2", **spec) for number in range(3)]

        def settled() -> list[Json]:
            states = [cluster.status(name) for name in names]
            return states if all(state.get("nodeName") or state.get("conditions") for state in states) else []

        # Each node has place for eight by their size, and for one of these pods: the third has no node.
        states = wait_for("each is placed, or has the scheduler's refusal", settled)
        assert sorted(state.get("nodeName", "") for state in states) == ["", *sorted(nodes)]
        (refused,) = (state["conditions"][0]["message"] for state in states if state["phase"] == "Pending")
        assert "anti-affinity" in refused


def test_restricted_room_takes_only_owners_that_fit_in_it(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="16")
    with cluster.manager():
        name = cluster.reservation("strict", "2", owner="web", allocatePolicy="Restricted", template=pinned_to(node))
        cluster.await_phase(name, "Available")
        cluster.pod("big", "3", app="web", gate=True)
        cluster.await_bound("big")  # it found free room: the gate was lifted
        assert cluster.status(name)["phase"] == "Available"
        cluster.pod("fitting", "2", app="web", gate=True)
        assert cluster.await_bound("fitting") == node
        cluster.await_phase(name, "Succeeded")


def test_a_reservation_ends_on_time_and_gives_its_room_back(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with cluster.manager():
        name = cluster.reservation("brief", ttl="4s", template=pinned_to(node))
        start = time.monotonic()
        cluster.await_phase(name, "Available")
        (stranger,) = cluster.strangers(1, **pinned_to(node))
        status = cluster.await_phase(name, "Failed")
        assert time.monotonic() - start >= 3  # creation times are whole seconds
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Expired")
        assert cluster.await_bound(stranger) == node


def test_ended_reservations_are_deleted_after_their_day(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="4")
    with cluster.manager(keep_ended_seconds=0):
        name = cluster.reservation("gone", ttl="1s", template=pinned_to(node))
        wait_for("it is collected", lambda: not cluster.api.exists(f"{RESERVATIONS}/{name}"))
        assert cluster.placeholders(name) == []


def test_room_that_is_nowhere_says_so_and_is_held_when_it_comes(cluster: Scene, fake_nodes: Nodes) -> None:
    with cluster.manager():
        name = cluster.reservation("large", "50", template={"nodeSelector": {"size": cluster.namespace}})

        def refused() -> bool:
            conditions = cluster.status(name).get("conditions") or []
            return any(c["type"] == "Scheduled" and c["reason"] == "Unschedulable" for c in conditions)

        wait_for("it says that no node fits", refused)
        assert cluster.status(name)["phase"] == "Pending"
        (node,) = fake_nodes(1, cpu="64", labels={"size": cluster.namespace})
        assert cluster.await_phase(name, "Available")["nodeName"] == node


def test_a_lost_node_fails_the_reservation(cluster: Scene) -> None:
    (node,) = create_nodes(cluster.plane, 1, NodeShape(cpu="4", prefix=f"lost-{cluster.namespace[-8:]}"))
    with cluster.manager():
        name = cluster.reservation("orphan", template=pinned_to(node))
        cluster.await_phase(name, "Available")
        cluster.api.delete(f"/api/v1/nodes/{node}")
        status = cluster.await_phase(name, "Failed")
        assert next(c for c in status["conditions"] if c["type"] == "Ready")["reason"] == "Expired"


def test_twenty_reservations_become_available_and_name_their_nodes(cluster: Scene, fake_nodes: Nodes) -> None:
    label = {"batch": cluster.namespace}
    nodes = fake_nodes(5, cpu="16", labels=label)
    with cluster.manager(placeholders_per_node=5):
        names = [cluster.reservation("many", "3", template={"nodeSelector": label}) for _ in range(20)]
        node_names = [cluster.await_phase(name, "Available")["nodeName"] for name in names]
    assert set(node_names) <= set(nodes)
    # 16 cores take five placeholders of three.
    assert max(node_names.count(node) for node in nodes) <= 5


def test_a_last_resort_placeholder_is_taken_by_its_owner_without_a_gate(cluster: Scene, fake_nodes: Nodes) -> None:
    label = {"last": cluster.namespace}
    fake_nodes(1, cpu="4", labels=label)
    high = f"web-{cluster.namespace[-8:]}"
    cluster.api.create(CLASSES, {"metadata": {"name": high}, "value": 100})
    template: dict[str, Any] = {"nodeSelector": label, "priorityClassName": high}
    with cluster.manager(mode="last-resort"):
        name = cluster.reservation("peak", template=template)
        node = cluster.await_phase(name, "Available")["nodeName"]
        assert cluster.placeholders(name)[0]["spec"]["priority"] == 99
        cluster.pod("owner", app=name, **template)
        assert cluster.await_bound("owner") == node
        assert cluster.await_phase(name, "Succeeded")["currentOwners"][0]["name"] == "owner"
        assert cluster.placeholders(name) == []


def test_a_pod_created_through_the_webhook_waits_for_its_room_and_lands_on_it(
    cluster: Scene, fake_nodes: Nodes
) -> None:
    node, _ = fake_nodes(2, cpu="4")
    with cluster.manager(), running(cluster.plane) as webhook:
        name = cluster.reservation("held", template=pinned_to(node))
        cluster.await_phase(name, "Available")
        wait_for("the webhook knows it", lambda: any(r.name == name for r in webhook.state.view().offers.reservations))
        wait_for("the promise is known", lambda: webhook.state.view().offers.served_until_seconds > time.time())
        owner_pod = cluster.pod("owner", app=name)
        assert owner_pod["spec"]["schedulingGates"] == [{"name": "cotenant.dev/reservation"}]
        assert cluster.await_bound("owner") == node
        cluster.await_phase(name, "Succeeded")


def test_without_the_webhook_a_matching_pod_is_scheduled_normally(cluster: Scene, fake_nodes: Nodes) -> None:
    node, other = fake_nodes(2, cpu="4")
    with cluster.manager():
        name = cluster.reservation("held", template=pinned_to(node))
        cluster.await_phase(name, "Available")
        owner_pod = cluster.pod("owner", app=name, **pinned_to(other))
        assert "schedulingGates" not in owner_pod["spec"]
        assert cluster.await_bound("owner") == other
        assert cluster.status(name)["phase"] == "Available"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_api_server_refuses_bindings_to_a_guarded_node(cluster: Scene, fake_nodes: Nodes, allowed: bool) -> None:
    (node,) = fake_nodes(1, cpu="4")
    cluster.pod("pod", schedulerName="nobody")
    let_in = [f"{cluster.namespace}/pod"] if allowed else ["other/pod"]
    guard = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
    guard["spec"] = {"nodes": {node: let_in}}
    cluster.api.create("/apis/cotenant.dev/v1alpha1/swapguards", guard)
    binding = {"metadata": {"name": "pod"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/pod/binding"

    def refused() -> bool:
        try:
            cluster.api.create(path, binding, dryRun="All")
        except ApiError as error:
            assert "is being handed over" in str(error)
            return True
        return False

    if not allowed:
        wait_for("the guard is in force", refused)
    assert refused() is not allowed
