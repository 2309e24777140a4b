"""Requests and limits that a new pod takes from its workload's annotation instead of its template. Pure; never refuses.

The workload is found by the pod's owner: a StatefulSet or DaemonSet itself, a Deployment by the name of its ReplicaSet
without the template's hash. When a webhook is called, API defaults and LimitRanges have already added to what the
template states: that is kept. If the annotation does not fit (the template has changed, a request would exceed its
limit, the QoS class would change), the pod is left as it is, and its creator gets a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.changes.model.annotated_resources import (
    CHANGE_ANNOTATION,
    KINDS,
    RESOURCES_ANNOTATION,
    AnnotatedResources,
    above_limits,
    same,
    states,
    swapped_amounts,
)

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace, name of a workload."""
HASH_LABEL: Final = "pod-template-hash"
GROUPS: Final = ("initContainers", "containers")


def owner_of(pod: Mapping[str, Any], namespace: str) -> tuple[Key, str] | None:
    """Return a pod's workload and its uid ("" for a Deployment, whose uid no pod has); None if it is not of KINDS."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences")
    references = owners if isinstance(owners, list) else ()
    owner = next((o for o in references if isinstance(o, Mapping) and o.get("controller")), None)
    if owner is None:
        return None
    kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
    if kind == "ReplicaSet":
        template = (metadata.get("labels") or {}).get(HASH_LABEL, "")
        ours = bool(template) and name.endswith(f"-{template}")
        return (("Deployment", namespace, name.removesuffix(f"-{template}")), "") if ours else None
    return ((kind, namespace, name), str(owner.get("uid", ""))) if kind in KINDS else None


def apply_annotated_resources(pod: Json, noted: Mapping[Key, AnnotatedResources], namespace: str) -> list[str]:
    """Set the requests and limits in the given pod to those in its workload's annotation, and return warnings."""
    owner = owner_of(pod, namespace) if noted else None
    note = noted.get(owner[0]) if owner else None
    if owner is None or note is None or (owner[1] and note.uid != owner[1]):
        return []
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(CHANGE_ANNOTATION) == note.change and note.change:
        return []  # an earlier call of this request has done it
    name = "/".join(owner[0])
    if note.wrong:
        return [f"{name}: {note.wrong}"]
    spec, warnings, new = pod["spec"], list[str](), dict[str, Any]()
    for container in (container for group in GROUPS for container in spec.get(group) or ()):
        own, present = container.get("name", ""), container.get("resources")
        swap = note.swaps.get(own)
        if swap is None or same(present, swap.after):
            continue
        after = None if own in note.stale else swapped_amounts(present, swap)
        if after is None:
            if own in note.stale or not states(present, swap.after):
                warnings.append(f"the template of container {own} has changed since the annotation was written")
        elif high := above_limits(after):
            warnings.append(f"container {own} would request more {high} than its limit")
        elif not same(present, after):
            new[own] = after
    named_containers = {group: [(c, c.get("name", "")) for c in spec[group]] for group in GROUPS if spec.get(group)}
    changed = dict(spec) | {
        group: [{**c, "resources": new[own]} if own in new else dict(c) for c, own in members]
        for group, members in named_containers.items()
    }
    before, then = pod_qos(spec), pod_qos(changed)
    if new and before != then:
        warnings.append(f"the pod's QoS class would change from {before} to {then}")
    if new and not warnings:
        pod["spec"] = changed
        if note.change:
            pod["metadata"]["annotations"] = {**annotations, CHANGE_ANNOTATION: note.change}
    return [f"{RESOURCES_ANNOTATION} of {name} was not used: {why}" for why in warnings]
