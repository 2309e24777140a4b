"""EDGE: the watched collections that Reservations and plans read."""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.protocol import (
    OPERATING_MODE_LABEL,
    OWN_GROUP,
    RESERVATION_LABEL,
    SCHEDULING_GROUP,
    SWAP_GUARD,
)
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.plan import PLURAL as PLANS
from cotenant.scheduler_ext.reservations.model.plan import Plan
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.placeholder import require_usable
from cotenant.scheduler_ext.reservations.plans import realise
from cotenant.scheduler_ext.reservations.view import PodView

RESERVING: Final = frozenset(
    {"pending-pods", "plans", "priorityclasses", "reservations", "reserved-pods", "standby-pods", "swapguards"}
)


class _MirroredPriorityClass(msgspec.Struct):
    value: int = 0


def reservation_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return a mirror that Reservations need; of pods only those without a node and those that carry our label."""
    json = dict[str, Any]
    if name == "plans":
        return Mirror(client, f"/apis/{OWN_GROUP}/{PLANS}", json, _plan, wake)
    if name == "reservations":
        return Mirror(client, f"/apis/{SCHEDULING_GROUP}/reservations", json, _reservation, wake)
    if name == "swapguards":
        selector = f"metadata.name={SWAP_GUARD}"
        return Mirror(client, f"/apis/{OWN_GROUP}/swapguards", json, Guard.parse, wake, fieldSelector=selector)
    if name == "priorityclasses":
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        return Mirror(client, path, _MirroredPriorityClass, lambda item: item.value, wake)
    return _reservation_pod_mirror(name, client, wake)


def _reservation_pod_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Pods without a node, pods that are Reservations themselves, pods that carry our label."""
    if name == "standby-pods":
        mine = f"{OPERATING_MODE_LABEL}=Reservation"
        return Mirror(client, "/api/v1/pods", dict[str, Any], _standby, wake, labelSelector=mine)
    if name == "pending-pods":
        waiting = "spec.nodeName=,status.phase=Pending"
        return Mirror(client, "/api/v1/pods", dict[str, Any], PodView.parse, wake, fieldSelector=waiting)
    return Mirror(client, "/api/v1/pods", dict[str, Any], PodView.parse, wake, labelSelector=RESERVATION_LABEL)


def _plan(body: dict[str, Any]) -> Plan:
    plan = parse_plan(body)
    if plan.template is not None:
        template = realise.template(plan, realise.OwnerTemplate({}, {}))
        _reservation({"metadata": {"name": f"of plan {plan.namespace}/{plan.name}"}, "spec": {"template": template}})
    return plan


def _reservation(body: dict[str, Any]) -> Reservation:
    reservation = Reservation.parse(body)
    require_usable(reservation)
    return reservation


def _standby(pod: dict[str, Any]) -> tuple[Reservation, PodView]:
    return Reservation.of_pod(pod), PodView.parse(pod)
