"""Builds the placeholder pod that reserves capacity, from a Reservation's template. Pure.

The pod requests the sum of the template's requests, sleeps in the host's network without a port, and stops at once. It
is in its own namespace, so affinity terms without a namespace get that of the template. It does not have the template's
labels, so if pods of the template repel each other, placeholders repel each other by a label of their own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Address, Create, Delete
from cotenant.base.kubernetes.pod_identity import object_of
from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.kubernetes.protocol import (
    BIND_RESOURCE,
    OWNER_WORKLOAD_ANNOTATION,
    PLACEHOLDER_LABEL,
    PLACEHOLDER_NAMESPACE,
    PREFERRED_TERMS,
    REQUIRED_TERMS,
    RESERVATION_LABEL,
    SCHEDULING_GROUP,
)
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.text import format_value
from cotenant.scheduler_ext.reservations.guard import MANAGED, SwapPlaceholder
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings

Json = Mapping[str, Any]

ACCOUNT: Final = "cotenant-placeholder"
PINNED_CLASS: Final = "cotenant-placeholder"
LOWER_CLASS_PREFIX: Final = "cotenant-below-"
OVERCOMMITTED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources whose limit may differ from the request."""
HOST_LABEL: Final = "kubernetes.io/hostname"
ALIKE_LABEL: Final = "cotenant.dev/owners-alike"
"""Label of a placeholder: digest of the namespace and labels of its template's pods."""
LABEL_LENGTH: Final = 63
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LENGTH: Final = 40
_SYSTEM: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


@dataclass(frozen=True, slots=True)
class PlaceholderSpec:
    """A placeholder to be created: name, capacity by resource, required node ("" for any), and nodes to avoid."""

    name: str
    amounts: Mapping[str, int]
    node: str = ""
    avoid: tuple[str, ...] = ()


def label_of(name: str) -> str:
    """Return a name as a label value; if it is too long or has invalid characters, it is shortened with a digest."""
    text = _NO_LABEL.sub("-", name).strip("-._")
    if text == name and len(name) <= LABEL_LENGTH:
        return name
    return f"{text[:50].rstrip('-._')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def fresh_name(reservation: Reservation, taken: Sequence[str]) -> str:
    """Return the first name for a Reservation's placeholder that is not in `taken`; deterministic."""
    base = f"{reservation.name[:_NAME_LENGTH].rstrip('.-')}-{reservation.uid[:8]}"
    number = 0
    while f"{base}-{number}" in taken:
        number += 1
    return f"{base}-{number}"


def placeholder_creation(
    reservation: Reservation,
    placeholder: PlaceholderSpec,
    mode: Mode,
    classes: Mapping[str, int],
    s: ReservationSettings,
) -> Create:
    """Return the creation of a placeholder pod, which the scheduler places."""
    address = Address("v1", "pods", placeholder.name, PLACEHOLDER_NAMESPACE)
    name = PINNED_CLASS if mode is Mode.PINNED else lower_class(reservation, classes)[0]
    owner, alike = reservation.annotations.get(OWNER_WORKLOAD_ANNOTATION), _alike(reservation)
    labels = {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: label_of(reservation.name)}
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
    # The Reservation owns it, so that both are deleted together.
    owned_by = {"apiVersion": SCHEDULING_GROUP, "kind": "Reservation", "name": reservation.name, "uid": reservation.uid}
    metadata = {
        "labels": MANAGED | labels | ({ALIKE_LABEL: alike} if alike else {}),
        "annotations": annotations | ({OWNER_WORKLOAD_ANNOTATION: owner} if owner else {}),
        "ownerReferences": [owned_by | {"controller": True}],
    }
    pod = address.manifest("Pod", metadata, spec=_spec(reservation, placeholder, name, s))
    return Create(
        address, pod, why=f"placeholder of reservation {reservation.name}", asker=f"reservations/{reservation.name}"
    )


def placeholder_deletion(placeholder: SwapPlaceholder, why: str) -> Delete:
    """Return the deletion of exactly this pod: a placeholder at once, a user's running pod with its grace period."""
    grace = None if placeholder.standby else 0
    return Delete(
        Address("v1", "pods", placeholder.name, placeholder.namespace), placeholder.uid, why, grace_seconds=grace
    )


def require_usable(reservation: Reservation) -> None:
    """Raise an exception, of any class, if no placeholder can be created from the Reservation's template.

    A template can be any JSON: an invalid one must not stop the decision about all other Reservations.
    """
    settings = ReservationSettings()
    not_considered(reservation.template, settings.scheduler_name)
    for mode in Mode:
        placeholder_creation(reservation, PlaceholderSpec("any", reservation.size, avoid=("any",)), mode, {}, settings)


def lower_class(reservation: Reservation, classes: Mapping[str, int]) -> tuple[str, int]:
    """Return the name and value of the PriorityClass just below that of the template's pods."""
    spec = reservation.template.get("spec") or {}
    class_name, priority = spec.get("priorityClassName") or "", spec.get("priority")
    value = priority if isinstance(priority, int) else {**classes, **_SYSTEM}.get(class_name, 0) if class_name else 0
    below = max(min(value, 1_000_000_000) - 1, -1_000_000_000)
    return f"{LOWER_CLASS_PREFIX}{'minus-' if below < 0 else ''}{abs(below)}", below


def class_intent(name: str, value: int, asker: str = "") -> Create:
    """Return the creation of a PriorityClass for placeholders of mode last-resort; its pods preempt no others."""
    address = Address("scheduling.k8s.io/v1", "priorityclasses", name)
    body = address.manifest(
        "PriorityClass",
        {"labels": MANAGED},
        value=value,
        preemptionPolicy="Never",
        description="Pods that reserve capacity; pods of the next higher class preempt them if no node has capacity.",
    )
    return Create(address, body, why="owners must be able to preempt placeholders", asker=asker)


def not_considered(template: Json, scheduler_name: str) -> list[str]:
    """Return which requirements of a template its placeholder cannot express; the owners' pods still have them.

    `scheduler_name` is the scheduler that places placeholders, which may differ from the template's.
    """
    spec = template.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    ports = [p for c in containers for p in c.get("ports") or () if p.get("hostPort")]
    claims = [v for v in spec.get("volumes") or () if "persistentVolumeClaim" in v or "ephemeral" in v]
    fields = [
        ("host ports", ports),
        ("volume claims", claims),
        ("topologySpreadConstraints", spec.get("topologySpreadConstraints")),
        ("resourceClaims", spec.get("resourceClaims")),
    ]
    other = str(spec.get("schedulerName") or scheduler_name)
    scheduler = [] if other == scheduler_name else [f"schedulerName {other} ({scheduler_name} places it)"]
    return [word for word, value in fields if value] + scheduler


def impossible(reservation: Reservation) -> str:
    """Return why no placeholder can reserve the Reservation's capacity, or "" if a placeholder can."""
    if not reservation.size:
        return "the template requests no resources, so there is nothing to reserve; set requests of its containers"
    if not reservation.owners:
        return "the Reservation has no owners, so no pod could ever use its capacity"
    return ""


def on_nodes(spec: Json, node: str, avoid: Sequence[str]) -> dict[str, Any]:
    """Return the template's required node affinity, limited to `node` or to nodes outside of `avoid`; {} if none."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED_TERMS) or {}
    terms = [dict(term) for term in required.get("nodeSelectorTerms") or ()]
    if not node and not avoid:
        return {"nodeSelectorTerms": terms} if terms else {}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}] if node else []
    away = [{"key": HOST_LABEL, "operator": "NotIn", "values": list(avoid)}] if avoid and not node else []
    for term in terms or (terms := [{}]):
        if fields:
            term["matchFields"] = [*(term.get("matchFields") or ()), *fields]
        if away:
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *away]
    return {"nodeSelectorTerms": terms}


def _spec(
    reservation: Reservation, placeholder: PlaceholderSpec, priority_class: str, s: ReservationSettings
) -> dict[str, Any]:
    """Return the pod spec: the template's placement rules, no rights, no grace period, no IP address of its own."""
    template, reserved = reservation.template.get("spec") or {}, placeholder.amounts
    requests = {
        name: text for name, text in format_quantities(reserved).items() if name != BIND_RESOURCE and reserved[name]
    }
    # extended resources demand limits that equal the requests
    limits = {name: text for name, text in requests.items() if name not in OVERCOMMITTED}
    container = {
        "name": "hold",
        "image": s.image,
        "resources": {"requests": requests} | ({"limits": limits} if limits else {}),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: dict[str, Any] = {
        "schedulerName": s.scheduler_name,
        "priorityClassName": priority_class,
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": True,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65_535, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    node = placeholder.node or str(template.get("nodeName") or "")
    affinity = _affinity(reservation, template, node, placeholder.avoid)
    optional = {
        "affinity": affinity,
        "nodeSelector": dict(template.get("nodeSelector") or {}),
        "tolerations": list(template.get("tolerations") or ()),
    }
    return spec | {name: value for name, value in optional.items() if value}


def _affinity(reservation: Reservation, template: Json, node: str, avoid: Sequence[str]) -> dict[str, Any]:
    template_affinity = template.get("affinity") or {}
    nodes = dict(template_affinity.get("nodeAffinity") or {})
    required = on_nodes(template, node, avoid)
    if required:
        nodes[REQUIRED_TERMS] = required
    affinity = {"nodeAffinity": nodes} | {
        kind: _inside(template_affinity.get(kind) or {}, reservation.namespace)
        for kind in ("podAffinity", "podAntiAffinity")
    }
    # Placeholders of like pods keep apart by the terms by which such pods do: required ones, which name namespaces
    # now. Those of one Reservation stand together: it is one capacity.
    labels, what = _labels_of_pods(reservation), f"reservation {reservation.name}: podAntiAffinity"
    others = {"key": RESERVATION_LABEL, "operator": "NotIn", "values": [label_of(reservation.name)]}
    alike = {"matchLabels": {ALIKE_LABEL: _alike(reservation)}, "matchExpressions": [others]}
    own = [
        {"topologyKey": term.get("topologyKey"), "namespaces": [PLACEHOLDER_NAMESPACE], "labelSelector": alike}
        for term in affinity["podAntiAffinity"].get(REQUIRED_TERMS) or ()
        if (selector := term.get("labelSelector")) is not None and labels
        if reservation.namespace in (term.get("namespaces") or ()) or term.get("namespaceSelector") == {}
        if LabelSelector.parse(selector, what).matches(labels)
    ]
    if own:
        affinity["podAntiAffinity"][REQUIRED_TERMS] += own
    return {kind: value for kind, value in affinity.items() if value}


def _labels_of_pods(reservation: Reservation) -> Json:
    metadata = object_of(reservation.template.get("metadata"), f"reservation {reservation.name}: template.metadata")
    return object_of(metadata.get("labels"), f"reservation {reservation.name}: template.metadata.labels")


def _alike(reservation: Reservation) -> str:
    """Return a digest of the namespace and labels of the template's pods; "" if the template has no labels."""
    labels = _labels_of_pods(reservation)
    text = msgspec.json.encode([reservation.namespace, labels], order="sorted")
    return hashlib.sha256(text).hexdigest()[:12] if labels else ""


def _inside(affinity: Json, namespace: str) -> dict[str, Any]:
    """Return pod (anti-)affinity whose terms without namespaces name the template's namespace."""
    scoped: dict[str, Any] = {}
    if required := affinity.get(REQUIRED_TERMS):
        scoped[REQUIRED_TERMS] = [_with_namespaces(t, namespace) for t in required]
    if preferred := affinity.get(PREFERRED_TERMS):
        scoped[PREFERRED_TERMS] = [
            {**t, "podAffinityTerm": _with_namespaces(t.get("podAffinityTerm") or {}, namespace)} for t in preferred
        ]
    return scoped


def _with_namespaces(term: Json, namespace: str) -> dict[str, Any]:
    if not isinstance(term, Mapping):
        raise UsageError(f"affinity term {format_value(term)} is not an object", fix="Correct the template.")
    has_namespaces = term.get("namespaces") or term.get("namespaceSelector") is not None
    return dict(term) if has_namespaces else {**term, "namespaces": [namespace]}
