"""How a pod is asked to leave: the Eviction API, or an annotation for whoever ends it in its own way. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cotenant.core.model.kubernetes.intent import Address, Create, Patch
from cotenant.core.model.kubernetes.protocol import SOFT_EVICTION_ANNOTATION
from scheduler_ext.rebalance.load import RebalancePod
from scheduler_ext.rebalance.migration.job import MigrationJob
from scheduler_ext.rebalance.migration.view import MigrationView
from scheduler_ext.reservations.guard import stamp

INITIATOR: Final = "cotenant-manager"


def eviction(view: MigrationView, job: MigrationJob, pod: RebalancePod) -> Create | Patch | None:
    """Ask for the end of this very pod, by `evictionPolicy`; None where its annotation asks for it already."""
    identity = pod.facts.identity
    address, why = Address("v1", "pods", identity.name, identity.namespace), f"podmigrationjob {job.name}"
    if view.arguments.eviction_policy == "SoftEviction":
        return None if SOFT_EVICTION_ANNOTATION in identity.annotations else _annotation(view, job, pod, address, why)
    conditions = {**(job.delete_options.get("preconditions") or {}), "uid": identity.uid}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": identity.name, "namespace": identity.namespace},
        "deleteOptions": {**job.delete_options, "preconditions": conditions},
    }
    return Create(address, body, "eviction", why)


def _annotation(view: MigrationView, job: MigrationJob, pod: RebalancePod, address: Address, why: str) -> Patch:
    """Koordinator's SoftEvictionSpec as the pod's annotation (`apis/extension/descheduling.go`)."""
    identity = pod.facts.identity
    moment = stamp(int(view.now_seconds)).replace(".000000", "")
    request: dict[str, Any] = {"timestamp": moment, "initiator": INITIATOR, "reason": why}
    if job.delete_options:
        request["deleteOptions"] = job.delete_options
    key, text = SOFT_EVICTION_ANNOTATION.replace("/", "~1"), msgspec.json.encode(request).decode()
    added = (
        {"op": "add", "path": f"/metadata/annotations/{key}", "value": text}
        if identity.annotations
        else {"op": "add", "path": "/metadata/annotations", "value": {SOFT_EVICTION_ANNOTATION: text}}
    )
    return Patch(address, ({"op": "test", "path": "/metadata/uid", "value": identity.uid}, added), why=why)
