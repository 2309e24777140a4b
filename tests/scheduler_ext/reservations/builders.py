"""Reservations, placeholders and owners for tests of the pure decisions."""

from __future__ import annotations

from typing import Any

from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.view import PodView

NOW = 10_000.0
CREATED = "1970-01-01T02:00:00Z"  # 7,200 s
AVAILABLE = [
    {"type": "Scheduled", "status": "True", "reason": "Scheduled", "lastTransitionTime": CREATED},
    {"type": "Ready", "status": "True", "reason": "Available", "lastTransitionTime": CREATED},
]


def reservation(
    name: str = "r", cpu: str = "4", phase: str = "", node: str = "n1", meta: Any = None, **spec: Any
) -> Reservation:
    """One for pods with app=web; with a phase it was told so before."""
    containers = [{"name": "x", "image": "web", "resources": {"requests": {"cpu": cpu}}}]
    template = {"spec": {"containers": containers, **spec.pop("template", {})}}
    conditions = spec.pop("conditions", AVAILABLE)
    status = {"phase": phase, "nodeName": node, "allocatable": {"cpu": cpu}, "conditions": conditions} if phase else {}
    return Reservation.parse(
        {
            "metadata": {"name": name, "uid": f"{name}-uid", "creationTimestamp": CREATED, **(meta or {})},
            "spec": {
                "template": template,
                "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                "ttl": "0s",
                **spec,
            },
            "status": status,
        }
    )


def placeholder(of: str = "r", number: int = 0, cpu: str = "4", node: str = "n1", **status: Any) -> PodView:
    """One of a Reservation's placeholders; without a node it waits."""
    return PodView.parse(
        {
            "metadata": {
                "name": f"{of}-{of[:1]}-uid"[:20] + f"-{number}",
                "namespace": PLACEHOLDER_NAMESPACE,
                "uid": f"{of}-hold-{number}",
                "resourceVersion": "3",
                "labels": {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": of},
                "ownerReferences": [{"kind": "Reservation", "name": of, "uid": f"{of}-uid", "controller": True}],
            },
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running" if node else "Pending", **status},
        }
    )


def owner(
    name: str = "web-0", cpu: str = "4", *, node: str = "", gated: bool = True, of: str = "", **spec: Any
) -> PodView:
    """A pod with app=web; `of`: the Reservation whose room it got."""
    labels, annotations = {"app": "web"}, {}
    if of:
        labels["cotenant.dev/reservation"] = of
        whose = f'{{"name":"{of}","uid":"{of}-uid"}}'
        annotations["scheduling.koordinator.sh/reservation-allocated"] = whose
    return PodView.parse(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"{name}-uid",
                "resourceVersion": "5",
                "creationTimestamp": "1970-01-01T02:46:30Z",  # 9,990 s
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "nodeName": node,
                "schedulingGates": [{"name": "cotenant.dev/reservation"}] if gated and not node else [],
                "containers": [{"resources": {"requests": {"cpu": cpu}}}],
                **spec,
            },
            "status": {"phase": "Running" if node else "Pending"},
        }
    )
