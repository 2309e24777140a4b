"""Nobody waits in our gate for somebody who has gone: an ordinary end, another handler, a manager that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cotenant.admission.guard_watchdog import GuardWatchdog, gate_removal_patches
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Address, Apply, Patch
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.protocol import GANG_GATE, OWN_GROUP, RESERVATION_GATE
from cotenant.base.process.clock import FixedClock
from cotenant.scheduler_ext.reservations.decide import withdraw_reservation_promise
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.pod_gate import gates_of
from cotenant.scheduler_ext.reservations.view import PodView
from tests.cluster.accounts import account
from tests.cluster.fake_nodes import PodShape, create_pods
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.builders import owner
from tests.scheduler_ext.reservations.scene import GUARD, Scene

Nodes = Callable[..., list[str]]
OTHER_GATE = {"name": "example.com/other"}


def served_until(cluster: Scene) -> float:
    return moment_of(cluster.api.get(GUARD)["spec"]["servedUntil"], "guard") or 0.0


def gates(cluster: Scene, name: str) -> tuple[str, ...]:
    return gates_of(cluster.api.get(f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"))


def promise(cluster: Scene, seconds: float) -> None:
    """What a manager that was killed has left."""
    until = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
    body = {"apiVersion": OWN_GROUP, "kind": "SwapGuard", "metadata": {"name": "swaps"}, "spec": {"servedUntil": until}}
    cluster.api.patch(GUARD, body, kind="apply", fieldManager="cotenant-manager", force="true")


def test_a_manager_that_ends_takes_its_promise_back_and_lets_pods_go(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    pin = {"nodeSelector": {"kubernetes.io/hostname": node}}
    with cluster.manager(swap_settle_seconds=10):
        name = cluster.reservation("held", "6", owner="web", allocateOnce=False, template=pin)
        cluster.await_phase(name, "Available")
        for number in range(2):  # one is being handed its room, the other waits for its turn
            cluster.pod(f"owner-{number}", "2", app="web", gate=True, **pin)
        wait_for("a hand-over has begun", cluster.guarded)
        assert served_until(cluster) > time.time()
        assert RESERVATION_GATE in gates(cluster, "owner-0") + gates(cluster, "owner-1")
    assert served_until(cluster) <= time.time()
    assert gates(cluster, "owner-0") + gates(cluster, "owner-1") == ()


def test_a_member_of_a_gang_that_is_not_placed_keeps_its_gate() -> None:
    """Nobody has room for it yet; without this gate it would start before the others."""
    alone = PodView(PodIdentity("shop", "alone", "1"), gates=(RESERVATION_GATE,))
    member = PodView(PodIdentity("shop", "member", "2"), gates=(GANG_GATE, RESERVATION_GATE))
    intents = withdraw_reservation_promise(Guard(), [alone, member], 0.0)
    assert [intent.address.name for intent in intents] == ["alone"]


def test_where_koordinator_hands_room_over_nobody_waits_for_us(cluster: Scene) -> None:
    promise(cluster, 600)
    cluster.pod("waiting", app="web", gate=True)
    with cluster.manager(handled_by="koordinator"):
        wait_for("the gate is gone", lambda: not gates(cluster, "waiting"))
        wait_for("the promise is withdrawn", lambda: served_until(cluster) <= time.time())
    assert gates(cluster, "waiting") == ()


def test_the_webhook_lifts_gates_a_minute_after_the_promise_ran_out(cluster: Scene) -> None:
    promise(cluster, 30)
    cluster.pod("waiting", gate=True)
    cluster.pod("held", schedulingGates=[{"name": RESERVATION_GATE}, OTHER_GATE])
    client = cluster.plane.client(account(cluster.plane, "cotenant-webhook"))
    early = GuardWatchdog(client, FixedClock(time.time() + 80))
    assert not early.free_forgotten()
    assert gates(cluster, "waiting") == (RESERVATION_GATE,)
    late = GuardWatchdog(client, FixedClock(time.time() + 95))
    assert late.free_forgotten()
    assert (gates(cluster, "waiting"), gates(cluster, "held")) == ((), ("example.com/other",))
    assert not late.free_forgotten()


@pytest.fixture
def webhook(cluster: Scene) -> Callable[[list[dict[str, Any]]], str]:
    """Why the webhook's account may not patch pod `held`, or ""."""
    cluster.pod("held", schedulingGates=[{"name": RESERVATION_GATE}, OTHER_GATE])
    return tried(cluster, "cotenant-webhook", "held")


def tried(cluster: Scene, name: str, pod: str) -> Callable[[list[dict[str, Any]]], str]:
    writer = Writer(cluster.plane.client(account(cluster.plane, name)), name)

    def refused(operations: list[dict[str, Any]]) -> str:
        try:
            writer.send(Patch(Address("v1", "pods", pod, cluster.namespace), tuple(operations)), dry_run=True)
        except ClusterDenied as error:
            return error.message
        return ""

    return refused


def test_the_webhook_changes_nothing_else_of_a_pod(webhook: Callable[[list[dict[str, Any]]], str]) -> None:
    other = [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": RESERVATION_GATE}]}]
    wait_for("the policy is in force", lambda: "changes nothing of a pod" in webhook(other))
    both = [{"op": "remove", "path": "/spec/schedulingGates"}]
    ours: list[dict[str, Any]] = [{"op": "replace", "path": "/spec/schedulingGates", "value": [OTHER_GATE]}]
    label: dict[str, Any] = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    image: dict[str, Any] = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
    toleration: dict[str, Any] = {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}
    assert webhook(ours) == ""
    for operations in (both, [*ours, label], [*ours, image], [*ours, toleration]):
        assert "changes nothing of a pod" in webhook(operations), operations


def test_the_manager_cannot_give_itself_a_running_pod_by_its_label(cluster: Scene, fake_nodes: Nodes) -> None:
    create_pods(cluster.plane, cluster.namespace, 1, PodShape(prefix="running"), fake_nodes(1))
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/running-0"
    refused = tried(cluster, "cotenant-manager", "running-0")
    labels = cluster.api.get(path)["metadata"].get("labels") or {}
    whose = {"scheduling.koordinator.sh/reservation-allocated": '{"name": "r", "uid": "u"}'}
    mine = {"op": "add", "path": "/metadata/labels", "value": {**labels, "cotenant.dev/reservation": "r"}}
    claim = {"op": "add", "path": "/metadata/annotations", "value": whose}
    more = {"op": "add", "path": "/metadata/annotations", "value": {**whose, "a": "b"}}
    image: dict[str, Any] = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
    wait_for("the policy is in force", lambda: "changes no pod that runs" in refused([more]))
    assert refused([mine, claim]) == ""  # a pod that took its room as a last resort
    other = {"op": "add", "path": "/metadata/labels", "value": {"cotenant.dev/reservation": "r", "app": "web"}}
    assert "changes no pod that runs" in refused([mine, more])
    assert "changes no pod that runs" in refused([other])
    assert "changes no pod that runs" in refused([mine, image])
    # nor in two steps
    cluster.api.patch(path, {"metadata": {"labels": {"cotenant.dev/reservation": "r"}}})
    assert "changes no pod that runs" in refused([more])
    assert "changes no pod that runs" in refused([image])


def test_what_is_withdrawn() -> None:
    gated, plain = owner("gated"), owner("plain", gated=False)
    bound = owner("bound", node="n1")
    guard, *lifted = withdraw_reservation_promise(Guard((), 1000.0, "7"), [gated, plain, bound], 900.0)
    assert isinstance(guard, Apply)
    assert guard.body["spec"] == {"servedUntil": "1970-01-01T00:15:00.000000Z"}
    assert guard.body["metadata"]["resourceVersion"] == "7"
    assert [patch.address.name for patch in lifted] == ["gated"]
    assert withdraw_reservation_promise(Guard((), 900.0, "7"), [plain], 900.0) == ()


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    meta = {"name": "p", "namespace": "a", "resourceVersion": "3"}
    waiting = {"metadata": meta, "spec": {"schedulingGates": [{"name": RESERVATION_GATE}, OTHER_GATE]}}
    (patch,) = gate_removal_patches(
        [waiting, {"metadata": {**meta, "deletionTimestamp": "now"}, "spec": waiting["spec"]}]
    )
    version, lifted = patch.operations
    assert (version["value"], lifted["value"]) == ("3", [OTHER_GATE])
    assert (
        gate_removal_patches([{"metadata": meta, "spec": {"schedulingGates": [OTHER_GATE]}}, {"metadata": meta}]) == []
    )
