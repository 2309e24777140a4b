"""How a pod is asked to leave: the Eviction API, or an annotation for whoever ends it in its own way. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cotenant.base.json_documents.json_pointer import escape_pointer_key
from cotenant.base.kubernetes.intent import Address, Create, Patch, eviction_of
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import MANAGER, SOFT_EVICTION_ANNOTATION
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView

INITIATOR: Final = MANAGER


def eviction(view: MigrationView, job: MigrationJob, pod: RebalancePod) -> Create | Patch | None:
    """Ask for the end of this very pod, by `evictionPolicy`; None where its annotation asks for it already."""
    identity = pod.facts.identity
    address, why = Address("v1", "pods", identity.name, identity.namespace), f"podmigrationjob {job.name}"
    if view.arguments.eviction_policy == "SoftEviction":
        return None if SOFT_EVICTION_ANNOTATION in identity.annotations else _annotation(view, job, pod, address, why)
    return eviction_of(address, identity.uid, why, job.delete_options)


def _annotation(view: MigrationView, job: MigrationJob, pod: RebalancePod, address: Address, why: str) -> Patch:
    """Koordinator's SoftEvictionSpec as the pod's annotation (`apis/extension/descheduling.go`)."""
    identity = pod.facts.identity
    request: dict[str, Any] = {"timestamp": moment(view.now_seconds), "initiator": INITIATOR, "reason": why}
    if job.delete_options:
        request["deleteOptions"] = job.delete_options
    key, text = escape_pointer_key(SOFT_EVICTION_ANNOTATION), msgspec.json.encode(request).decode()
    added = (
        {"op": "add", "path": f"/metadata/annotations/{key}", "value": text}
        if identity.annotations
        else {"op": "add", "path": "/metadata/annotations", "value": {SOFT_EVICTION_ANNOTATION: text}}
    )
    return Patch(address, ({"op": "test", "path": "/metadata/uid", "value": identity.uid}, added), why=why)
