"""EDGE: the watched collections of objects that the controllers of Reservations and plans read."""

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
    """Return the mirror (a watched copy) of a collection in RESERVING; `wake` is set at every change."""
    pods, classes = "/api/v1/pods", "/apis/scheduling.k8s.io/v1/priorityclasses"
    kinds: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "plans": (f"/apis/{OWN_GROUP}/{PLANS}", _plan, {}),
        "reservations": (f"/apis/{SCHEDULING_GROUP}/reservations", _reservation, {}),
        "swapguards": (f"/apis/{OWN_GROUP}/swapguards", Guard.parse, {"fieldSelector": f"metadata.name={SWAP_GUARD}"}),
        "priorityclasses": (classes, lambda item: item.value, {}),
        "standby-pods": (
            pods,
            lambda pod: (Reservation.of_pod(pod), PodView.parse(pod)),
            {"labelSelector": f"{OPERATING_MODE_LABEL}=Reservation"},
        ),
        "pending-pods": (pods, PodView.parse, {"fieldSelector": "spec.nodeName=,status.phase=Pending"}),
        "reserved-pods": (pods, PodView.parse, {"labelSelector": RESERVATION_LABEL}),
    }
    path, decoder, selectors = kinds[name]
    wire: Any = _MirroredPriorityClass if path == classes else dict[str, Any]
    return Mirror(client, path, wire, decoder, wake, **selectors)


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
