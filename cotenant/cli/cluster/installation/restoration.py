"""What components have written into objects of others, and the patch that takes it away again. Pure.

Nodes: our taints, amounts and annotations of our field managers. NodeResourceTopologies: batch
amounts of zones. Pods: our scheduling gates, and the marks of a hand-over. Workloads: the marks of an accepted change;
the requests that somebody accepted are theirs and stay. HorizontalPodAutoscalers: the floor of a plan, and one that
the autopilot lends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.json_pointer import escape_pointer_key
from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.node_taints import OUR_TAINTS, untaint_patch
from cotenant.base.kubernetes.protocol import (
    MANAGER,
    NODE_AGENT,
    QUEUED_ANNOTATION,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_LABEL,
    TOPOLOGIES,
)
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION, RESOURCES_ANNOTATION, RESOURCES_LABEL
from cotenant.recommender.colocation.zones import Topology, publish_zones
from cotenant.scheduler_ext.reservations.model.plan import FLOOR_ANNOTATIONS
from cotenant.scheduler_ext.reservations.model.scheduling_gate import OUR_GATES
from cotenant.scheduler_ext.reservations.plans.realise import restore
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION

Json = Mapping[str, Any]

NODE_WRITERS: Final = (MANAGER, NODE_AGENT)
"""Field managers that write into nodes and their status."""
WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers", "cronjobs")
_WORKLOAD_MARKS: Final = {"labels": {RESOURCES_LABEL}, "annotations": {RESOURCES_ANNOTATION, CHANGE_ANNOTATION}}
_POD_MARKS: Final = {
    "labels": {RESERVATION_LABEL},
    "annotations": {MISSED_ANNOTATION, CHANGE_ANNOTATION, QUEUED_ANNOTATION},
}
_WHY: Final = "cotenant uninstall"


def restoring_patch(address: Address, live: Json) -> Patch | None:
    """The patch that leaves nothing of ours in somebody else's object; None where nothing is.

    Of a node: that of its taints first, for a patch of its spec leaves the status as it is.
    """
    if address.resource == "nodes" and (ours := untaint_patch(msgspec.convert(live, TaintedNode), OUR_TAINTS, _WHY)):
        return ours
    if address.resource == "horizontalpodautoscalers":
        return restore(live, address.namespace, _WHY, FLOOR_ANNOTATIONS)
    if address.resource == TOPOLOGIES:
        return next(publish_zones([Topology.parse(live)], {}, _reject_lending, 0.0), None)
    operations = _operations(address, live)
    return Patch(address, operations, "status" if address.resource == "nodes" else "", _WHY) if operations else None


def _operations(address: Address, live: Json) -> tuple[Json, ...]:
    if address.resource == "nodes":
        return given_back(live)
    marks = pod_marks(live["metadata"]) if address.resource == "pods" else _WORKLOAD_MARKS
    operations = [*without_marks(live["metadata"], marks)]
    gates = (live.get("spec") or {}).get("schedulingGates") or () if address.resource == "pods" else ()
    others = [gate for gate in gates if gate.get("name") not in OUR_GATES]
    if len(others) < len(gates):
        operations.append({"op": "replace", "path": "/spec/schedulingGates", "value": others})
    uid = {"op": "test", "path": "/metadata/uid", "value": live["metadata"].get("uid")}
    return (uid, *operations) if operations else ()


def pod_marks(metadata: Json) -> Mapping[str, Collection[str]]:
    """Labels and annotations of ours on a pod; whose capacity it got is ours where our label stands beside it."""
    if RESERVATION_LABEL not in (metadata.get("labels") or {}):
        return _POD_MARKS
    return {**_POD_MARKS, "annotations": {*_POD_MARKS["annotations"], RESERVATION_ALLOCATED_ANNOTATION}}


def without_marks(metadata: Json, marks: Mapping[str, Collection[str]]) -> Iterator[Json]:
    """JSON patch operations that remove these labels and annotations where they are."""
    for part, names in marks.items():
        for name in sorted(set(metadata.get(part) or {}) & set(names)):
            yield {"op": "remove", "path": f"/metadata/{part}/{escape_pointer_key(name)}"}


def given_back(node: Json) -> tuple[Json, ...]:
    """JSON patch that takes from a node the amounts and annotations that our field managers own, and nothing else.

    An empty server-side apply would not do: it removes what nobody owns along with us, such as the amounts that a
    kubelet registered the node with.
    """
    metadata = node["metadata"]
    owned = [f.get("fieldsV1", {}) for f in metadata.get("managedFields", ()) if f.get("manager") in NODE_WRITERS]
    places = (("metadata", "annotations"), ("status", "allocatable"), ("status", "capacity"))
    paths = []
    for outer, inner in places:
        keys = {key for fields in owned for key in fields.get(f"f:{outer}", {}).get(f"f:{inner}", {})}
        present = node.get(outer, {}).get(inner, {})
        paths += [f"/{outer}/{inner}/{escape_pointer_key(name)}" for name in sorted(present) if f"f:{name}" in keys]
    return tuple({"op": "remove", "path": path} for path in paths)


def _reject_lending(node: str, resource: Any, capacities: Sequence[int]) -> Any:  # noqa: ARG001 - the shape of `Lend`
    raise AssertionError("nothing is offered, so nothing is spread over zones")
