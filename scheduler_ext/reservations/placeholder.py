"""The pod that holds capacity: what it takes over of a Reservation's template, and what it cannot. Pure.

It asks for the template's sum and nothing else, sleeps in the host's network without a port, and ends at once. It lives
in a namespace of its own, so terms that meant the template's namespace by saying none say it here; and it does not
carry the template's labels, so where pods of the template keep apart from each other, placeholders do by their own.
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
"""Only of these a limit may differ from the request."""
HOST_LABEL: Final = "kubernetes.io/hostname"
ALIKE_LABEL: Final = "cotenant.dev/owners-alike"
"""On a placeholder: digest of the namespace and the labels of the pods that its template is of."""
LABEL_LENGTH: Final = 63
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LENGTH: Final = 40
_SYSTEM: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


@dataclass(frozen=True, slots=True)
class PlaceholderSpec:
    """A placeholder to be made: its name, its capacity, the node it must be on ("" for any), nodes that it avoids."""

    name: str
    amounts: Mapping[str, int]
    node: str = ""
    avoid: tuple[str, ...] = ()


def label_of(name: str) -> str:
    """A name as the value of a label: with a digest where it is too long for one, or has what none may have."""
    text = _NO_LABEL.sub("-", name).strip("-._")
    if text == name and len(name) <= LABEL_LENGTH:
        return name
    return f"{text[:50].rstrip('-._')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def fresh_name(reservation: Reservation, taken: Sequence[str]) -> str:
    """The first free name of a Reservation's placeholders; the same names give the same answer."""
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
    """Make a placeholder; the scheduler finds its node."""
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
    """End a placeholder at once, and only this one; a running pod that gives its place has its own time to end."""
    grace = None if placeholder.standby else 0
    return Delete(
        Address("v1", "pods", placeholder.name, placeholder.namespace), placeholder.uid, why, grace_seconds=grace
    )


def require_usable(reservation: Reservation) -> None:
    """Raise whatever error the template gives where placeholders are made of it.

    A template is any JSON: one that is no pod's must not end a decision about all other Reservations.
    """
    settings = ReservationSettings()
    not_considered(reservation.template, settings.scheduler_name)
    for mode in Mode:
        placeholder_creation(reservation, PlaceholderSpec("any", reservation.size, avoid=("any",)), mode, {}, settings)


def lower_class(reservation: Reservation, classes: Mapping[str, int]) -> tuple[str, int]:
    """Name and value of the PriorityClass just below the owners', which the template says."""
    spec = reservation.template.get("spec") or {}
    class_name, priority = spec.get("priorityClassName") or "", spec.get("priority")
    value = priority if isinstance(priority, int) else {**classes, **_SYSTEM}.get(class_name, 0) if class_name else 0
    below = max(min(value, 1_000_000_000) - 1, -1_000_000_000)
    return f"{LOWER_CLASS_PREFIX}{'minus-' if below < 0 else ''}{abs(below)}", below


def class_intent(name: str, value: int, asker: str = "") -> Create:
    """Create a priority class for LastResort placeholders, below the owners' class; its pods do not preempt."""
    address = Address("scheduling.k8s.io/v1", "priorityclasses", name)
    body = address.manifest(
        "PriorityClass",
        {"labels": MANAGED},
        value=value,
        preemptionPolicy="Never",
        description="Placeholders whose capacity pods of the class above take when nothing else is free.",
    )
    return Create(address, body, why="owners must be able to preempt placeholders", asker=asker)


def not_considered(template: Json, scheduler_name: str) -> list[str]:
    """Return what a placeholder cannot ask for of a template, in words; the owners themselves still do.

    scheduler_name: of the scheduler that places placeholders, which may be another than the template's.
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
    """Why no placeholder can hold this capacity, or ""."""
    if not reservation.size:
        return "the template requests nothing, so there is nothing to reserve; give its containers requests"
    if not reservation.owners:
        return "no owners are named, so no pod could ever use the capacity"
    return ""


def on_nodes(spec: Json, node: str, avoid: Sequence[str]) -> dict[str, Any]:
    """Required node affinity of a template, narrowed to a node or away from nodes; {} when nothing is required."""
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
    """Spec of a placeholder: the template's rules, no rights, no grace; in the host's network it takes no address."""
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
    """Return a digest of the namespace and labels of the template's pods; "" where it gives them no labels."""
    labels = _labels_of_pods(reservation)
    text = msgspec.json.encode([reservation.namespace, labels], order="sorted")
    return hashlib.sha256(text).hexdigest()[:12] if labels else ""


def _inside(affinity: Json, namespace: str) -> dict[str, Any]:
    """Pod (anti-)affinity that names the namespace which it meant."""
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
        raise UsageError(f"affinity term {format_value(term)} is not an object", fix="Look at the template's affinity.")
    has_namespaces = term.get("namespaces") or term.get("namespaceSelector") is not None
    return dict(term) if has_namespaces else {**term, "namespaces": [namespace]}
