"""Which new pods wait for their quota or their gang: those get scheduling gates. Pure.

Gates can only be taken away later, so a member of a gang gets at once all that it will need: the gate of its quota, of
its gang, and of the Reservation that will hold its room. They are promises that the manager lifts them, so they are
given only while it says that it is there (`queuesServedUntil` of the SwapGuard).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from admission.reservation_gate import may_be_gated
from cotenant.core.model.kubernetes.protocol import (
    DEFAULT_QUOTA,
    GANG_GATE,
    QUEUED_ANNOTATION,
    QUOTA_GATE,
    RESERVATION_GATE,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
)
from cotenant.core.model.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.core.model.queues.gang import gang_key

Json = Mapping[str, Any]

NEVER_WAITING: Final = frozenset({ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})
"""Quotas of the system, which divide nothing."""


def queued(pod: Json, quotas: QuotaTree, served_until_seconds: float, namespace: str, now_seconds: float) -> Json:
    """The pod with the gates of its quota and its gang; the same pod when it has neither.

    pod: a pod that is being created. A pod that waits for its quota also gets an annotation with the quota's name, by
    which the manager tells it from pods that the webhook missed.
    """
    if now_seconds >= served_until_seconds or not may_be_gated(pod):
        return pod
    meta, spec = pod["metadata"], pod["spec"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    quota = _quota(quotas, namespace, labels)
    gates = [QUOTA_GATE] if quota else []
    gates += [GANG_GATE, RESERVATION_GATE] if gang_key(namespace, labels, annotations) else []
    existing = spec.get("schedulingGates") or ()
    names = {gate.get("name") for gate in existing}
    added = [{"name": gate} for gate in gates if gate not in names]
    if quota and annotations.get(QUEUED_ANNOTATION) != quota.name:
        meta = {**meta, "annotations": {**annotations, QUEUED_ANNOTATION: quota.name}}
    elif not added:
        return pod
    return {**pod, "metadata": meta, "spec": {**spec, "schedulingGates": [*existing, *added]}}


def _quota(quotas: QuotaTree, namespace: str, labels: Mapping[str, str]) -> QuotaNode | None:
    quota = quotas.of_pod(namespace, labels)
    return quota if quota is not None and quota.name not in NEVER_WAITING else None
