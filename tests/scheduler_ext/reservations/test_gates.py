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


def served_until(scene: Scene) -> float:
    return moment_of(scene.api.get(GUARD)["spec"]["servedUntil"], "guard") or 0.0


def gates(scene: Scene, name: str) -> tuple[str, ...]:
    return gates_of(scene.api.get(f"/api/v1/namespaces/{scene.namespace}/pods/{name}"))


def promise(scene: Scene, seconds: float) -> None:
    """What a manager that was killed has left."""
    until = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
    body = {"apiVersion": OWN_GROUP, "kind": "SwapGuard", "metadata": {"name": "swaps"}, "spec": {"servedUntil": until}}
    scene.api.patch(GUARD, body, kind="apply", fieldManager="cotenant-manager", force="true")


def test_a_manager_that_ends_takes_its_promise_back_and_lets_pods_go(scene: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="8")
    pin = {"nodeSelector": {"kubernetes.io/hostname": node}}
    with scene.manager(swap_settle_seconds=10):
        name = scene.reservation("held", "6", owner="web", allocateOnce=False, template=pin)
        scene.await_phase(name, "Available")
        for number in range(2):  # one is being handed its room, the other waits for its turn
            scene.pod(f"owner-{number}", "2", app="web", gate=True, **pin)
        wait_for("a hand-over has begun", scene.guarded)
        assert served_until(scene) > time.time()
        assert RESERVATION_GATE in gates(scene, "owner-0") + gates(scene, "owner-1")
    assert served_until(scene) <= time.time()
    assert gates(scene, "owner-0") + gates(scene, "owner-1") == ()


def test_a_member_of_a_gang_that_is_not_placed_keeps_its_gate() -> None:
    """Nobody has room for it yet; without this gate it would start before the others."""
    alone = PodView(PodIdentity("shop", "alone", "1"), gates=(RESERVATION_GATE,))
    member = PodView(PodIdentity("shop", "member", "2"), gates=(GANG_GATE, RESERVATION_GATE))
    intents = withdraw_reservation_promise(Guard(), [alone, member], 0.0)
    assert [intent.address.name for intent in intents] == ["alone"]


def test_where_koordinator_hands_room_over_nobody_waits_for_us(scene: Scene) -> None:
    promise(scene, 600)
    scene.pod("waiting", app="web", gate=True)
    with scene.manager(handled_by="koordinator"):
        wait_for("the gate is gone", lambda: not gates(scene, "waiting"))
        wait_for("the promise is withdrawn", lambda: served_until(scene) <= time.time())
    assert gates(scene, "waiting") == ()


def test_the_webhook_lifts_gates_a_minute_after_the_promise_ran_out(scene: Scene) -> None:
    promise(scene, 30)
    scene.pod("waiting", gate=True)
    scene.pod("held", schedulingGates=[{"name": RESERVATION_GATE}, OTHER_GATE])
    client = scene.plane.client(account(scene.plane, "cotenant-webhook"))
    early = GuardWatchdog(client, FixedClock(time.time() + 80))
    assert not early.free_forgotten()
    assert gates(scene, "waiting") == (RESERVATION_GATE,)
    late = GuardWatchdog(client, FixedClock(time.time() + 95))
    assert late.free_forgotten()
    assert (gates(scene, "waiting"), gates(scene, "held")) == ((), ("example.com/other",))
    assert not late.free_forgotten()


@pytest.fixture
def webhook(scene: Scene) -> Callable[[list[dict[str, Any]]], str]:
    """Why the webhook's account may not patch pod `held`, or ""."""
    scene.pod("held", schedulingGates=[{"name": RESERVATION_GATE}, OTHER_GATE])
    return tried(scene, "cotenant-webhook", "held")


def tried(scene: Scene, name: str, pod: str) -> Callable[[list[dict[str, Any]]], str]:
    writer = Writer(scene.plane.client(account(scene.plane, name)), name)

    def refused(operations: list[dict[str, Any]]) -> str:
        try:
            writer.send(Patch(Address("v1", "pods", pod, scene.namespace), tuple(operations)), dry_run=True)
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


def test_the_manager_cannot_give_itself_a_running_pod_by_its_label(scene: Scene, fake_nodes: Nodes) -> None:
    create_pods(scene.plane, scene.namespace, 1, PodShape(prefix="running"), fake_nodes(1))
    path = f"/api/v1/namespaces/{scene.namespace}/pods/running-0"
    refused = tried(scene, "cotenant-manager", "running-0")
    labels = scene.api.get(path)["metadata"].get("labels") or {}
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
    scene.api.patch(path, {"metadata": {"labels": {"cotenant.dev/reservation": "r"}}})
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
