"""Convert a Reservation of Koordinator's first design to the present one (`cotenant config convert reservation`). Pure.

The first design was namespaced and had `resourceOwners`, `timeToLiveInSeconds` and `nodeName`; the present Reservation
(scheduling.koordinator.sh/v1alpha1) is cluster-scoped and has `owners`, `ttl` and a pod template with the node. A field
without a counterpart is an error that names it; no field is dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import REQUIRED_TERMS, SCHEDULING_GROUP
from cotenant.base.text import format_value

Json = Mapping[str, Any]

_SKETCHED: Final = frozenset({"template", "resourceOwners", "timeToLiveInSeconds", "nodeName"})
_OWNERS: Final = frozenset({"object", "controller", "labelSelector"})
_CONTROLLER: Final = ("apiVersion", "kind", "name")
_REPLICA_SET: Final = re.compile(r".+-[bcdfghjklmnpqrstvwxz2456789]{8,10}")
"""Names of ReplicaSets: the Deployment's name, and a hash in the alphabet of apimachinery's `rand.SafeEncodeString`."""
LONGEST_SECONDS: Final = 2**63 // 10**9
"""The longest Go duration."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The converted Reservation, and notes for people about the conversion."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()


def convert_reservation(sketch: Json) -> Converted:
    """Convert a Reservation to its present form if it has the sketch's; UsageError for fields without counterpart."""
    _object("the document", sketch)
    if sketch.get("kind") != "Reservation":
        raise UsageError(
            f"kind {format_value(sketch.get('kind'))} is not Reservation", fix="Give a file with Reservations only."
        )
    if sketch.get("apiVersion") not in (None, "", SCHEDULING_GROUP):
        raise UsageError(
            f"apiVersion {format_value(sketch['apiVersion'])} is not {SCHEDULING_GROUP}", fix="Leave apiVersion out."
        )
    spec = _part(sketch, "spec", "")
    if "owners" in spec and not spec.keys() & (_SKETCHED - {"template"}):
        return Converted(dict(sketch), ("The object is already a Reservation of the present API.",))
    # A Reservation of Koordinator's design sketch converted to v1alpha1, with notes on what changed its meaning.
    # UsageError for a field without a counterpart: leaving it out silently would hold something else.
    for name in sorted(spec.keys() - _SKETCHED):
        raise UsageError(f"spec.{name} cannot be converted", fix=f"Use only the fields {', '.join(sorted(_SKETCHED))}.")
    meta = dict(_part(sketch, "metadata", ""))
    if not meta.get("name"):
        raise UsageError("metadata.name is missing", fix="Give the Reservation a name.")
    namespace = str(meta.pop("namespace", "") or "default")
    notes = [f"The Reservation is cluster-scoped now; namespace {namespace} is in its template and owners."]
    # a pod template; the sketch holds a copy of a pod's spec
    document = spec.get("template")
    template = dict(_object("spec.template", document if document is not None else {}))
    if "spec" not in template:
        template = {"spec": template} if template else {}
    if not _part(template, "spec", "spec.template").get("containers"):
        notes.append("spec.template has no containers, so it reserves nothing: copy the owner's pod spec there.")
    template_meta = _part(template, "metadata", "spec.template")
    template["metadata"] = {**template_meta, "namespace": template_meta.get("namespace", namespace)}
    if node := spec.get("nodeName"):
        template["spec"] = on_node(template.get("spec") or {}, str(node))
    now: dict[str, Any] = {"template": template, "owners": _owners(spec.get("resourceOwners"), namespace, notes)}
    if "timeToLiveInSeconds" in spec:
        seconds = spec["timeToLiveInSeconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= LONGEST_SECONDS:
            raise UsageError(
                f"spec.timeToLiveInSeconds {format_value(seconds)} is not a whole number of seconds, 0 or more",
                fix="Write seconds such as 300, or 0 for a Reservation that never expires.",
            )
        now["ttl"] = f"{seconds}s"
    if "status" in sketch:
        notes.append("The status is left out: the controller writes a new status.")
    body = {"apiVersion": SCHEDULING_GROUP, "kind": "Reservation", "metadata": meta, "spec": now}
    return Converted(body, tuple(notes))


def on_node(pod: Json, node: str) -> dict[str, Any]:
    """Return the pod spec with a required affinity to one node added."""
    affinity = _part(pod, "affinity", "pod spec")
    nodes = dict(_part(affinity, "nodeAffinity", "affinity"))
    required = dict(_part(nodes, REQUIRED_TERMS, "nodeAffinity"))
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [_object("nodeSelectorTerms", term) for term in _items(required, "nodeSelectorTerms") or [{}]]
    required["nodeSelectorTerms"] = [{**t, "matchFields": [*_items(t, "matchFields"), here]} for t in terms]
    nodes[REQUIRED_TERMS] = required
    return {**pod, "affinity": {**affinity, "nodeAffinity": nodes}}


def _owners(owners: Any, namespace: str, notes: list[str]) -> list[dict[str, Any]]:
    entries = owners if isinstance(owners, list) else [owners]
    if not owners or not all(entries):
        raise UsageError("spec.resourceOwners is missing or empty", fix="Name the controller that owns the capacity.")
    result = []
    for entry in entries:
        owner = dict(_object("spec.resourceOwners", entry))
        for name in sorted(owner.keys() - _OWNERS):
            raise UsageError(
                f"spec.resourceOwners.{name} cannot be converted", fix=f"Name owners by {', '.join(sorted(_OWNERS))}."
            )
        if "controller" in owner:
            # as it stands in a pod's ownerReferences: of a Deployment's pods that is the ReplicaSet
            controller = dict(_object("spec.resourceOwners.controller", owner["controller"]))
            for name in _CONTROLLER:
                if not controller.get(name):
                    raise UsageError(
                        f"spec.resourceOwners.controller.{name} is missing", fix="Give apiVersion, kind and name."
                    )
            if controller["kind"] == "Deployment":
                name = controller["name"]
                if not _REPLICA_SET.fullmatch(str(name)):
                    raise UsageError(
                        f"spec.resourceOwners.controller: pods of Deployment {name} belong to its ReplicaSets",
                        fix="Name the ReplicaSet (kubectl get replicasets), or give a labelSelector instead.",
                    )
                notes.append(f"{name} is the name of a ReplicaSet: kind Deployment became ReplicaSet.")
                controller["kind"] = "ReplicaSet"
            owner["controller"] = {"namespace": namespace, "uid": "", **controller}
        result.append(owner)
    return result


def _object(path: str, value: Any) -> Json:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} is {type(value).__name__}, not an object", fix="Check the indentation.")
    return value


def _part(parent: Json, name: str, path: str) -> Json:
    """Return an object inside another; empty if it is missing or null."""
    value = parent.get(name)
    return {} if value is None else _object(f"{path}.{name}".lstrip("."), value)


def _items(parent: Json, name: str) -> list[Any]:
    """Return a list inside an object; empty if it is missing or null."""
    value = parent.get(name)
    if not isinstance(value, list | None):
        raise UsageError(f"{name} is {type(value).__name__}, not a list", fix="Check the indentation.")
    return value or []
