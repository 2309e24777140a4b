"""Builds the patches of pods that get reserved capacity: nomination, affinity, Reservation, removal of the gate.

Pure. Every patch tests the pod's resourceVersion, so that it is refused if the pod has changed; the next run tries
again. A pod without cotenant's gate keeps its affinity, because Kubernetes lets only gated pods change theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.protocol import (
    PREFERRED_TERMS,
    REQUIRED_TERMS,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_LABEL,
)
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy, Reservation
from cotenant.scheduler_ext.reservations.placeholder import label_of
from cotenant.scheduler_ext.reservations.pod_gate import without_gate
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION, PodView

Json = Mapping[str, Any]


def preparations(pod: PodView, reservation: Reservation, node: str) -> list[Patch]:
    """Return the patches that an owner pod needs before the placeholder is deleted; empty if the pod is ready."""
    patches = []
    if pod.allocated_from != reservation.uid:
        claim = _claim_operations(pod, reservation)
        patches.append(_patch(pod, claim, f"the pod will use the capacity of reservation {reservation.name}"))
    if pod.nominated != node:
        nominate = [
            {"op": "replace", "path": "/metadata/uid", "value": pod.uid},
            {"op": "add", "path": "/status/nominatedNodeName", "value": node},
        ]
        patches.append(Patch(_address(pod), tuple(nominate), "status", f"capacity for the pod is reserved on {node}"))
    return patches


def claim_patch(pod: PodView, reservation: Reservation) -> Patch:
    """Return the patch that notes on a pod which Reservation it uses, so that the controller keeps watching the pod."""
    return _patch(pod, _claim_operations(pod, reservation), f"the pod got capacity of reservation {reservation.name}")


def handing_patch(pod: PodView, node: str, policy: AllocatePolicy) -> Patch:
    """Return the patch that removes the gate and restricts the pod to the node, once its capacity there is free.

    The patch must not be sent earlier, because a failed hand-over could not widen the affinity again.
    """
    operations = without_gate(pod.gates, pod.version)
    if (affinity := pin_affinity(pod.affinity, node, policy)) != pod.affinity:
        operations.append({"op": "add", "path": "/spec/affinity", "value": affinity})
    return _patch(pod, operations, f"the pod's reserved capacity on node {node} is free")


def release_patch(pod: PodView, missed: str = "") -> Patch:
    """Return the patch that removes the gate; `missed` is the UID of the Reservation whose hand-over failed, or ""."""
    operations = without_gate(pod.gates, pod.version)
    if missed:
        operations += _set("annotations", pod.identity.annotations, {MISSED_ANNOTATION: missed})
    return _patch(pod, operations, "the pod may be scheduled now")


def pin_affinity(affinity: Json, node: str, policy: AllocatePolicy) -> Json:
    """Return the affinity with the node added: required under policy Restricted, else preferred with highest weight."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    nodes = dict(affinity.get("nodeAffinity") or {})
    if policy is not AllocatePolicy.RESTRICTED:
        term = {"weight": 100, "preference": {"matchFields": [here]}}
        if term in (nodes.get(PREFERRED_TERMS) or ()):
            return affinity
        nodes[PREFERRED_TERMS] = [*(nodes.get(PREFERRED_TERMS) or ()), term]
        return {**affinity, "nodeAffinity": nodes}
    terms = copy.deepcopy((nodes.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or [{}])
    if all(here in (term.get("matchFields") or ()) for term in terms):
        return affinity
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or ()), here]
    nodes[REQUIRED_TERMS] = {"nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": nodes}


def _claim_operations(pod: PodView, reservation: Reservation) -> list[Json]:
    whose = msgspec.json.encode({"name": reservation.name, "uid": reservation.uid}).decode()
    return [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": pod.version},
        *_set("labels", pod.identity.labels, {RESERVATION_LABEL: label_of(reservation.name)}),
        *_set("annotations", pod.identity.annotations, {RESERVATION_ALLOCATED_ANNOTATION: whose}),
    ]


def _set(what: str, current: Mapping[str, str], texts: Mapping[str, str]) -> list[Json]:
    """Return the operations that add labels or annotations, and their map if the pod has none."""
    if not current:
        return [{"op": "add", "path": f"/metadata/{what}", "value": dict(texts)}]
    return [
        {"op": "add", "path": f"/metadata/{what}/{escape_pointer_key(key)}", "value": value}
        for key, value in texts.items()
    ]


def _patch(pod: PodView, operations: list[Json], why: str) -> Patch:
    return Patch(_address(pod), tuple(operations), why=why)


def _address(pod: PodView) -> Address:
    return Address("v1", "pods", pod.identity.name, pod.identity.namespace)
