"""How intents are sent: one probe a right, nothing twice, a refused object is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition, condition_of_error
from cotenant.base.controllers.loop import AlwaysLeads, NoElection
from cotenant.base.controllers.sender import (
    FIRST_MOMENTARY_SECONDS,
    FIRST_REFUSAL_SECONDS,
    LONGEST_REFUSAL_SECONDS,
    PROBES,
    SEEN_SECONDS,
    Sender,
)
from cotenant.base.errors import (
    ClusterAbsent,
    ClusterDenied,
    ClusterForbidden,
    ClusterInvalid,
    ClusterNamespaceGone,
    ClusterObjectGone,
    NotLeader,
)
from cotenant.base.kube import send_all
from cotenant.base.kubernetes.intent import Address, Apply, Patch
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.revoke import eviction
from tests.cluster import faults
from tests.cluster.accounts import await_right, certified
from tests.cluster.admission_rules import refusing
from tests.cluster.faults import FaultProxy
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import Scene

Nodes = Callable[..., list[str]]


class Watch:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def config_map(namespace: str, name: str, **data: Any) -> Apply:
    address = Address("v1", "configmaps", name, namespace)
    metadata = {"name": name, "namespace": namespace}
    return Apply(address, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def status_of(node: str) -> Apply:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    amounts = {"allocatable": {"kubernetes.io/batch-cpu": "1"}}
    return Apply(Address("v1", "nodes", node), {**body, "status": amounts}, subresource="status")


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_write_is_held_back_until_its_change_was_seen(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    intents = [config_map(cluster.namespace, name, a="1") for name in ("x", "y")]
    assert [o.error for o in sender.send(sender.due(intents))] == [None, None]
    assert sender.due(intents) == []
    sender.seen(f"/api/v1/namespaces/{cluster.namespace}/configmaps", [(cluster.namespace, "x")])
    assert sender.due(intents) == intents[:1]
    sender.seen("/api/v1/configmaps", [(cluster.namespace, "y")])
    assert sender.due(intents) == intents


def test_connections_are_kept_for_the_next_batch_until_the_sender_closes(
    cluster: Scene, watch: Watch, tmp_path: Path
) -> None:
    account = certified(cluster.plane, "cotenant-manager")
    with FaultProxy(cluster.plane, tmp_path, account) as proxy:
        sender = Sender(cluster.plane.client(proxy.kubeconfig), AlwaysLeads(), watch)
        sender.send([config_map(cluster.namespace, "x", a="1")])
        first = proxy.connections
        sender.send([config_map(cluster.namespace, "x", a="2")])
        assert len(first) == 1
        assert proxy.connections == first
        assert len(proxy.requests) >= 2
        sender.close()
        wait_for("they are closed", lambda: not proxy.connections)


def test_a_change_that_never_shows_holds_nothing_back_for_ever(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    intents = [config_map(cluster.namespace, "x", a="1")]
    sender.send(intents)
    watch.seconds += SEEN_SECONDS + 1
    assert sender.due(intents) == intents


def test_a_write_that_no_mirror_shows_may_follow_another_at_once(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch, mirrored=False)
    intents = [config_map(cluster.namespace, "z", a="1")]
    assert [o.error for o in sender.send(sender.due(intents))] == [None]
    assert sender.due(intents) == intents


def test_what_does_not_fit_the_time_is_left_to_the_next_decision(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    intents = [config_map(cluster.namespace, f"late-{number}", a="1") for number in range(20)]
    # Without any time: the one that tries the right, and the first of the others.
    assert [o.intent for o in sender.send(sender.due(intents), seconds=0.0)] == intents[:2]
    assert sender.due(intents) == intents[2:]
    assert [o.error for o in sender.send(sender.due(intents))] == [None] * 18


def test_an_eviction_that_the_server_granted_is_no_error(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    containers = [{"name": "main", "image": "example.invalid/app:1"}]
    created = cluster.api.create(
        f"/api/v1/namespaces/{cluster.namespace}/pods", {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    )
    (outcome,) = sender.send([eviction(QueuePod(cluster.namespace, "p", created["metadata"]["uid"]), "it is a test")])
    assert outcome.error is None


def test_an_object_that_is_refused_waits_longer_each_time_and_says_why(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    good, bad = config_map(cluster.namespace, "x", a="1"), config_map(cluster.namespace, "y", **{"no key!": "1"})
    outcomes = sender.send([bad, good])
    assert isinstance(outcomes[0].error, ClusterInvalid)
    assert outcomes[1].ok  # the other one is none the worse
    assert sender.due([bad]) == []
    assert sender.refusal([bad]) is outcomes[0].error
    watch.seconds += FIRST_REFUSAL_SECONDS + 1
    assert sender.due([bad]) == [bad]
    sender.send([bad])
    watch.seconds += FIRST_REFUSAL_SECONDS + 1
    assert sender.due([bad]) == []
    watch.seconds += FIRST_REFUSAL_SECONDS
    assert sender.due([bad]) == [bad]


def test_an_object_at_which_the_server_fails_is_tried_ever_less_often_but_once_a_minute(
    cluster: Scene, watch: Watch, tmp_path: Path
) -> None:
    with FaultProxy(cluster.plane, tmp_path, cluster.plane.admin_kubeconfig) as proxy:
        proxy.fault = faults.always(faults.BROKEN, lambda request: "/configmaps/bad" in request.path)
        client = cluster.plane.client(proxy.kubeconfig)
        client = client.sibling(msgspec.structs.replace(client.settings, retries=0))
        sender = Sender(client, AlwaysLeads(), watch, mirrored=False)
        intents = [config_map(cluster.namespace, name, a="1") for name in ("bad", "good")]
        waits = []
        for _ in range(8):
            outcomes = sender.send(sender.due(intents))
            assert [(o.intent.address.name, o.ok) for o in outcomes] == [("bad", False), ("good", True)]
            assert sender.due(intents) == intents[1:]
            assert sender.refusal(intents) is outcomes[0].error
            began = watch.seconds
            while len(sender.due(intents)) < 2:
                watch.seconds += 1.0
            waits.append(watch.seconds - began)
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]  # doubled from FIRST_MOMENTARY_SECONDS up to LONGEST_FAULT_SECONDS


def test_a_patch_that_came_after_another_write_is_due_again_at_once(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch, mirrored=False)
    config_intent = config_map(cluster.namespace, "raced", a="1")
    assert sender.send([config_intent])[0].ok
    before = cluster.api.get(f"{config_intent.address.path}")["metadata"]["resourceVersion"]

    def patch(version: str) -> Patch:
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        return Patch(config_intent.address, (test, {"op": "add", "path": "/data/b", "value": "2"}))

    cluster.api.patch(config_intent.address.path, {"data": {"a": "by somebody else"}})
    (refused,) = sender.send([patch(before)])
    assert isinstance(refused.error, ClusterInvalid)
    present = cluster.api.get(config_intent.address.path)["metadata"]["resourceVersion"]
    assert sender.due([patch(present)]) == []
    watch.seconds += FIRST_MOMENTARY_SECONDS
    assert [o.ok for o in sender.send(sender.due([patch(present)]))] == [True]


def test_a_missing_right_costs_two_requests_however_many_are_due(cluster: Scene, watch: Watch) -> None:
    nobody = cluster.plane.user(unique_name("nobody"))
    sender = Sender(cluster.plane.client(nobody), AlwaysLeads(), watch)
    requests_before = cluster.plane.requests("APPLY", "configmaps")
    outcomes = sender.send([config_map(cluster.namespace, f"c-{i}", a="1") for i in range(50)])
    assert [type(o.error) for o in outcomes] == [ClusterForbidden] * PROBES
    assert cluster.plane.requests("APPLY", "configmaps") - requests_before <= PROBES


LOCKED = "locked until the audit is over"


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid"])
def test_an_object_that_a_rule_refuses_holds_up_no_other_of_its_kind(
    cluster: Scene, fake_nodes: Nodes, watch: Watch, reason: str
) -> None:
    locked, *others = sorted(fake_nodes(4))
    client, intents = cluster.plane.client(cluster.account), [status_of(node) for node in (locked, *others)]
    rule = {"apiGroups": [""], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    validation = {"expression": f"request.name != '{locked}'", "message": LOCKED, "reason": reason}
    in_force = lambda: LOCKED in str(send_all(client, intents[:1], "t")[0].error)  # noqa: E731
    sender = Sender(client, AlwaysLeads(), watch)
    with refusing(cluster.api, unique_name("lock"), rule, validation, in_force):
        outcomes = sender.send(sender.due(intents))
        # A webhook that says nothing else, quotas and pod security answer 403, too: no right is missing.
        assert [(o.intent.address.name, o.ok) for o in outcomes] == [
            (locked, False),
            *((node, True) for node in others),
        ]
        error = outcomes[0].error
        assert isinstance(error, ClusterInvalid) and isinstance(error, ClusterDenied) is (reason == "Forbidden")
        assert condition_of_error(error) is ControllerCondition.DEGRADED
        assert f"nodes/{locked}" in error.message and LOCKED in error.message
        assert sender.due(intents[:1]) == []  # it rests, for long where no other moment would be answered otherwise
        watch.seconds += FIRST_MOMENTARY_SECONDS
        assert sender.due(intents[:1]) == (intents[:1] if reason == "Forbidden" else [])
        watch.seconds += max(SEEN_SECONDS, FIRST_REFUSAL_SECONDS) + 1
        assert [o.ok for o in sender.send(sender.due(intents))] == [False, True, True, True]


def test_a_right_that_is_bound_in_some_namespaces_alone_is_used_there(cluster: Scene, watch: Watch) -> None:
    name = unique_name("local")
    file = cluster.plane.user(name)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}]
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}"
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    cluster.api.create(f"{path}/roles", {"metadata": {"name": name}, "rules": rules})
    cluster.api.create(f"{path}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    await_right(cluster.plane, file, ("patch", "configmaps", "", cluster.namespace))
    sender = Sender(cluster.plane.client(file), AlwaysLeads(), watch)
    here = [config_map(cluster.namespace, "x", a="1"), config_map(cluster.namespace, "y", a="1")]
    elsewhere = [config_map(namespace, "z") for namespace in ("default", "kube-public", "kube-system")]
    rounds = []
    for _ in range(3):
        intents = sender.due([*elsewhere, *here])
        rounds.append([(o.intent.address.namespace, o.intent.address.name, o.ok) for o in sender.send(intents)])
        watch.seconds += 1
    # Two of other namespaces are refused first; then those that were not tried yet come before them, and pass.
    refused = [("default", "z", False), ("kube-public", "z", False), ("kube-system", "z", False)]
    written = [(cluster.namespace, "x", True), (cluster.namespace, "y", True)]
    assert rounds[0] == refused[:2]
    assert rounds[1] == [refused[2], *written, *refused[:2]]
    assert rounds[2] == refused[:2]


def test_an_object_whose_namespace_is_gone_holds_up_nobody_else(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    deleted = unique_name("gone")
    of = ((deleted, "a"), (deleted, "b"), (cluster.namespace, "x"))
    intents = [replace(config_map(*place), asker=f"reservations/{place[1]}") for place in of]
    outcomes = sender.send(sender.due(intents))
    # "b" would be refused like "a", so it is not sent
    assert [(o.intent.address.name, type(o.error)) for o in outcomes] == [
        ("a", ClusterNamespaceGone),
        ("x", type(None)),
    ]
    assert condition_of_error(outcomes[0].error or Exception()) is ControllerCondition.DEGRADED
    assert [i.address.name for i in sender.due(intents)] == ["b"]  # "a" rests, "x" is awaited
    errors = {who: type(why) for who, why in sender.unmade(intents).items()}
    assert errors == {"reservations/a": ClusterNamespaceGone, "reservations/b": ClusterNamespaceGone}


def test_an_object_that_was_deleted_meanwhile_holds_up_no_other(
    cluster: Scene, fake_nodes: Nodes, watch: Watch
) -> None:
    (node,) = fake_nodes(1)
    sender = Sender(cluster.plane.client(cluster.account), AlwaysLeads(), watch)
    intents = [status_of("deleted-meanwhile"), status_of(node)]
    outcomes = sender.send(sender.due(intents))
    assert [type(o.error) for o in outcomes] == [ClusterObjectGone, type(None)]
    assert condition_of_error(outcomes[0].error or Exception()) is ControllerCondition.DEGRADED
    assert sender.due(intents) == []  # the first rests, the second is awaited


def test_a_kind_that_is_not_served_is_asked_for_once(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    outcomes = sender.send([Apply(Address("nosuch.example/v1", "things", name), {}, "status") for name in "ab"])
    assert [type(o.error) for o in outcomes] == [ClusterAbsent]


def test_refusals_of_long_ago_are_forgotten(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), AlwaysLeads(), watch)
    bad = config_map(cluster.namespace, "y", **{"no key!": "1"})
    sender.send([bad])
    assert sender.refusal([bad]) is not None
    watch.seconds += FIRST_REFUSAL_SECONDS + LONGEST_REFUSAL_SECONDS + 1
    assert sender.due([]) == []
    assert sender.refusal([bad]) is None


def test_who_does_not_lead_sends_nothing(cluster: Scene, watch: Watch) -> None:
    sender = Sender(cluster.plane.admin_client(), NoElection(), watch)
    outcomes = sender.send([config_map(cluster.namespace, "x", a="1"), config_map(cluster.namespace, "y", a="1")])
    assert {type(o.error) for o in outcomes} == {NotLeader}
    assert not cluster.api.exists(f"/api/v1/namespaces/{cluster.namespace}/configmaps/x")


def test_who_asked_for_what_a_missing_right_keeps_from_being_made_is_named(cluster: Scene, watch: Watch) -> None:
    """Also those whose own was not tried: two refusals are enough to know that a right is missing."""
    stranger = cluster.plane.user(unique_name("stranger"))
    intents = [
        replace(config_map(cluster.namespace, f"made-{number}"), asker=f"reservations/r{number}") for number in range(4)
    ]
    sender = Sender(cluster.plane.client(stranger), AlwaysLeads(), watch)
    sender.send(sender.due(intents))
    unmade = sender.unmade(intents)
    assert sorted(unmade) == [f"reservations/r{number}" for number in range(4)]
    assert all(isinstance(error, ClusterForbidden) for error in unmade.values())
    assert sender.unmade(intents[:1]).keys() == {"reservations/r0"}, "nobody is told of what is wanted no more"
    assert sender.unmade(intents).keys() == {"reservations/r0"}
