"""The effect of a write on one object, as pure functions: the server's metadata, defaults, checks, subresources.

`verbs` reads the live object, calls one of these and stores the result.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant_lab.simulation.api_server.kinds import ApiKind, established_status
from cotenant_lab.simulation.api_server.quantities import canonical_quantities
from cotenant_lab.simulation.api_server.refusal import Refusal, conflict, invalid
from cotenant_lab.simulation.api_server.schema import Json, compact_value, prune_value, unknown_fields
from cotenant_lab.simulation.api_server.validation import violations, wrong_types

FIXED: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that no client writes."""
_COUNTED_APART: Final = ("metadata", "status", "apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class KindWriter:
    """Computes the objects that writes of one kind store; `warnings` collects the warnings to send to the client."""

    kind: ApiKind
    now: str
    strict: bool
    warnings: list[str]

    def checked(self, item: Json, *, partial: bool = False) -> Json:
        """Return the item without undeclared fields, with defaults and with quantities in the server's form.

        Raise Refusal, 400 or 422, if it does not fit the kind. `partial` is true for an applied configuration, which
        may lack required fields; the rest is checked on the merged object.
        """
        kind, schema = self.kind, self.kind.schema
        problem = f"{kind.name} in version {kind.version!r} cannot be handled as a {kind.name}: "
        unknown = [f'unknown field "{path}"' for path in unknown_fields(schema, item)]
        if unknown and self.strict:
            raise Refusal(400, f"{problem}strict decoding error: {', '.join(unknown)}")
        self.warnings.extend(unknown)
        wrong = list(wrong_types(schema, item))
        if wrong and not kind.custom:
            raise Refusal(400, f"{problem}{wrong[0][1]}")
        fitting: Json = prune_value(schema, item)
        if kind.custom:
            fitting["metadata"] = compact_value(schema.child("metadata"), fitting["metadata"])
        else:
            fitting = canonical_quantities(schema, compact_value(schema, fitting))
        wrong = wrong or ([] if partial else list(violations(schema, fitting)))
        if wrong:
            raise invalid(f"{kind.name}.{kind.group}", item["metadata"].get("name", ""), wrong)
        return fitting

    def created(self, item: Json) -> Json:
        """Return a new object as the server stores it."""
        fitting = self.checked(item)
        entries = fitting["metadata"].items()
        metadata = {name: value for name, value in entries if name not in (*FIXED, "resourceVersion")}
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now}
        if self.kind.generations:
            metadata["generation"] = 1
        stored = {**fitting, "metadata": metadata}
        if "status" in self.kind.subresources and self.kind.name != "Node":
            stored.pop("status", None)
        first = _FIRST.get(self.kind.name)
        return first(stored, self.now) if first else stored

    def changed(self, old: Json, new: Json, subresource: str) -> Json:
        """Return an object after a write; raise Refusal (409) if the write is based on another version or object."""
        new_meta, old_meta = new["metadata"], old["metadata"]
        if new_meta.get("resourceVersion", old_meta["resourceVersion"]) not in ("", old_meta["resourceVersion"]):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(self.kind.resource, old_meta["name"], why)
        if new_meta.get("uid", old_meta["uid"]) != old_meta["uid"]:
            cause = ("metadata.uid", f'Invalid value: "{new_meta["uid"]}": field is immutable')
            raise invalid(self.kind.name, old_meta["name"], [cause])
        checked = self.checked(new)
        metadata = {name: value for name, value in checked["metadata"].items() if name not in FIXED}
        metadata |= {name: old_meta[name] for name in FIXED if name in old_meta}
        isolated = _isolate_subresource(self.kind, old, {**checked, "metadata": metadata}, subresource)
        if self.kind.generations and _generation_content(old) != _generation_content(isolated):
            isolated["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return isolated


def _isolate_subresource(kind: ApiKind, old: Json, new: Json, subresource: str) -> Json:
    """Only what the subresource writes; metadata stays, but for its managedFields."""
    if subresource == "resize":  # the new resources of the pod's containers and native sidecars, and nothing else
        spec = old["spec"]
        sizes = {c["name"]: c.get("resources", {}) for key in _GROUPS for c in new["spec"].get(key) or ()}
        for key in _GROUPS:
            if listed := old["spec"].get(key):
                allowed = {c["name"] for c in listed if resizable(c, key)} & sizes.keys()
                resized = [{**c, "resources": sizes[c["name"]]} if c["name"] in allowed else c for c in listed]
                spec = {**spec, key: resized}
        return {**old, "metadata": _meta_of(old, new), "spec": spec}
    if subresource == "status":
        status = {"status": new["status"]} if "status" in new else {}
        rest = {name: value for name, value in old.items() if name != "status"}
        metadata = new["metadata"] if not kind.custom and kind.name in ("Node", "Pod") else _meta_of(old, new)
        return {**rest, "metadata": metadata, **status}
    if "status" in kind.subresources:
        status = {"status": old["status"]} if "status" in old else {}
        return {**{name: value for name, value in new.items() if name != "status"}, **status}
    return new


def _meta_of(old: Json, new: Json) -> Json:
    fields = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
    return {**fields, "managedFields": new["metadata"].get("managedFields", [])}


_GROUPS: Final = ("containers", "initContainers")


def resizable(container: Json, group: str) -> bool:
    """Return whether a container of the group may be resized; of `initContainers` only native sidecars may."""
    return group == "containers" or container.get("restartPolicy") == "Always"


def _generation_content(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in _COUNTED_APART}


def _namespace(item: Json, _now: str) -> Json:
    labels = {**item["metadata"].get("labels", {}), "kubernetes.io/metadata.name": item["metadata"]["name"]}
    metadata = {**item["metadata"], "labels": labels}
    return {**item, "metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


_FIRST: Final[dict[str, Callable[[Json, str], Json]]] = {
    "Pod": lambda pod, _now: {**pod, "status": {"phase": "Pending", "qosClass": pod_qos(pod["spec"]).value}},
    "Namespace": _namespace,
    "CustomResourceDefinition": lambda item, now: {**item, "status": established_status(item, now)},
}
