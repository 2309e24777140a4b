"""Which new pods wait for reserved room; all others are created as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.view import ClusterView
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.pod_gate import Offers, add_reservation_gate

GATE = [{"name": "cotenant.dev/reservation"}]
NOW = 1_000.0


def reservation(phase: str = "Available", **spec: Any) -> Reservation:
    owners = spec.pop("owners", [{"labelSelector": {"matchLabels": {"app": "web"}}}])
    annotations = spec.pop("annotations", {})
    return Reservation.parse(
        {
            "metadata": {"name": "r", "uid": "u", "annotations": annotations},
            "spec": {"owners": owners, "template": {}, **spec},
            "status": {"phase": phase},
        }
    )


def offers(*reservations: Reservation, until: float = NOW + 30) -> Offers:
    return Offers.of(reservations or (reservation(),), until)


def pod(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    owners = spec.pop("ownerReferences", [])
    return {
        "metadata": {"generateName": "web-", "labels": labels or {"app": "web"}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "x"}], **spec},
    }


def test_a_pod_that_a_reservation_names_waits_for_it() -> None:
    assert add_reservation_gate(pod(), offers(), "shop", NOW)["spec"]["schedulingGates"] == GATE


def test_gates_of_others_stay() -> None:
    gated_pod = add_reservation_gate(pod(schedulingGates=[{"name": "theirs"}]), offers(), "shop", NOW)
    assert gated_pod["spec"]["schedulingGates"] == [{"name": "theirs"}, *GATE]


@pytest.mark.parametrize(
    "pod_body",
    [
        pod({"app": "other"}),
        pod({"app": "web", "scheduling.koordinator.sh/reservation-ignored": "true"}),
        pod(nodeName="n1"),
        pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1"}]),
        pod(schedulingGates=GATE),
    ],
    ids=["other labels", "ignores reservations", "has a node", "DaemonSet", "gated already"],
)
def test_no_other_pod_is_touched(pod_body: dict[str, Any]) -> None:
    assert add_reservation_gate(pod_body, offers(), "shop", NOW) is pod_body


def test_a_placeholder_is_not_touched_and_its_label_alone_makes_none() -> None:
    body = pod({"app": "web", "cotenant.dev/placeholder": "true"})
    assert add_reservation_gate(body, offers(), PLACEHOLDER_NAMESPACE, NOW) is body
    assert add_reservation_gate(body, offers(), "shop", NOW)["spec"]["schedulingGates"] == GATE


@pytest.mark.parametrize(
    "closed",
    [
        reservation("Pending"),
        reservation("Succeeded"),
        reservation(unschedulable=True),
        reservation(annotations={"cotenant.dev/reservation-mode": "last-resort"}),
        reservation(taints=[{"key": "held", "effect": "NoSchedule"}]),
    ],
    ids=["Pending", "Succeeded", "unschedulable", "last resort", "not tolerated"],
)
def test_a_reservation_that_takes_no_owner_holds_nobody_back(closed: Reservation) -> None:
    pod_body = pod()
    assert add_reservation_gate(pod_body, offers(closed), "shop", NOW) is pod_body


def test_nobody_waits_for_a_manager_that_is_away() -> None:
    pod_body = pod()
    assert add_reservation_gate(pod_body, offers(until=NOW), "shop", NOW) is pod_body


def test_the_webhook_gates_once_however_often_it_is_called() -> None:
    view, call = ClusterView(offers=offers()), AdmissionCall("CREATE", "shop", now_seconds=NOW)
    once = compute_mutation(pod(), view, call).pod
    assert once["spec"]["schedulingGates"] == GATE
    assert compute_mutation(once, view, call).pod["spec"]["schedulingGates"] == GATE


@pytest.mark.parametrize("owner", [{}, {"labelSelector": {}}, {"object": {"kind": "Pod", "namespace": "shop"}}])
def test_a_running_pod_offers_its_place_to_pods_of_its_own_namespace_alone(owner: dict[str, Any]) -> None:
    """Whoever may create a pod somewhere would else hold back every new pod of the cluster."""
    acting = pod()
    acting["metadata"] |= {
        "namespace": "tenant",
        "annotations": {"scheduling.koordinator.sh/reservation-owners": json.dumps([owner])},
    }
    acting["status"] = {"phase": "Running"}
    offered = offers(Reservation.of_pod(acting))
    assert add_reservation_gate(pod(), offered, "shop", NOW) == pod()
    if "object" not in owner:
        assert add_reservation_gate(pod(), offered, "tenant", NOW) != pod()
