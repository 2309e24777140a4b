"""Values that components wrote into objects of other owners, and the patch that removes them again. Pure.

Nodes: our taints, and the amounts and annotations of our field managers. NodeResourceTopologies: batch amounts of
zones. Pods: our scheduling gates, and labels and annotations of pods that got reserved capacity. Workloads: labels and
annotations of an accepted change; the accepted requests are kept. HorizontalPodAutoscalers: minReplicas raised by a
plan or by the autopilot. Reservations of people: the status Available, if we set it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes import protocol
from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.node_taints import OUR_TAINTS, untaint_patch
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION, RESOURCES_ANNOTATION, RESOURCES_LABEL
from cotenant.recommender.colocation.zones import Topology, publish_zones
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.plan import FLOOR_ANNOTATION, FLOOR_ANNOTATIONS, LENT_FLOOR_ANNOTATION
from cotenant.scheduler_ext.reservations.plans.realise import restore
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION

Json = Mapping[str, Any]

WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers", "cronjobs")
_WORKLOAD_MARKS: Final = {"labels": {RESOURCES_LABEL}, "annotations": {RESOURCES_ANNOTATION, CHANGE_ANNOTATION}}
_WHY: Final = "cotenant uninstall"


@dataclass(frozen=True, slots=True)
class OurWrites:
    """The names of values that we wrote into other owners' objects and that are to be removed.

    `node_writers` are field managers whose amounts and annotations on nodes are removed; `floors` are annotations of
    autoscalers. With `zones`, amounts of NUMA zones are removed too; with `reservations`, the status that we gave to
    Reservations, and labels and annotations of pods that got reserved capacity.
    """

    taints: tuple[str, ...] = OUR_TAINTS
    gates: tuple[str, ...] = OUR_GATES
    floors: tuple[str, ...] = FLOOR_ANNOTATIONS
    pod_annotations: tuple[str, ...] = (CHANGE_ANNOTATION, protocol.QUEUED_ANNOTATION)
    node_writers: tuple[str, ...] = (protocol.MANAGER, protocol.NODE_AGENT)
    zones: bool = True
    reservations: bool = True


EVERYTHING: Final = OurWrites()


def writes_of(features: Collection[str], *, node_agent: bool) -> OurWrites:
    """Return the values that these features (and the node agent if `node_agent`) write, except by accepted changes."""

    def of(*pairs: tuple[str, str]) -> tuple[str, ...]:
        return tuple(name for feature, name in pairs if feature in features)

    return OurWrites(
        taints=of(("descheduler", protocol.EMPTYING_TAINT), ("load-taints", protocol.LOAD_TAINT)),
        gates=of(
            ("reservations", protocol.RESERVATION_GATE), ("queues", protocol.QUOTA_GATE), ("queues", protocol.GANG_GATE)
        ),
        floors=of(("plans", FLOOR_ANNOTATION), ("autopilot", LENT_FLOOR_ANNOTATION)),
        pod_annotations=of(("queues", protocol.QUEUED_ANNOTATION)),
        node_writers=of(("colocation", protocol.MANAGER)) + ((protocol.NODE_AGENT,) if node_agent else ()),
        zones="colocation" in features,
        reservations="reservations" in features,
    )


def restoring_patch(address: Address, live: Json, ours: OurWrites = EVERYTHING) -> Patch | None:
    """Return the patch that removes our values from another owner's object; None if it has none.

    A node with our taints gets a patch of the taints alone; the amounts in its status need a second patch afterwards.
    """
    if address.resource == "nodes":
        if untainted := untaint_patch(msgspec.convert(live, TaintedNode), ours.taints, _WHY):
            return untainted
        amounts = given_back(live, ours.node_writers)
        return Patch(address, amounts, "status", _WHY) if amounts else None
    if address.resource == "horizontalpodautoscalers":
        return restore(live, address.namespace, _WHY, ours.floors)
    if address.resource == "reservations":
        return status_release(address, live) if ours.reservations else None
    if address.resource == protocol.TOPOLOGIES:
        return next(publish_zones([Topology.parse(live)], {}, _reject_lending, 0.0), None) if ours.zones else None
    marks = pod_marks(live["metadata"].get("labels") or {}, ours) if address.resource == "pods" else _WORKLOAD_MARKS
    metadata = live["metadata"]
    operations: list[Json] = [
        {"op": "remove", "path": f"/metadata/{part}/{escape_pointer_key(name)}"}
        for part, names in marks.items()
        for name in sorted(set(metadata.get(part) or {}) & set(names))
    ]
    gates = (live.get("spec") or {}).get("schedulingGates") or () if address.resource == "pods" else ()
    others = [gate for gate in gates if gate.get("name") not in ours.gates]
    if len(others) < len(gates):
        operations.append({"op": "replace", "path": "/spec/schedulingGates", "value": others})
    uid = {"op": "test", "path": "/metadata/uid", "value": live["metadata"].get("uid")}
    return Patch(address, (uid, *operations), "", _WHY) if operations else None


def pod_marks(pod_labels: Collection[str], ours: OurWrites) -> Mapping[str, Collection[str]]:
    """Return our label and annotation keys on a pod; reservation-allocated only if the pod has RESERVATION_LABEL."""
    if not ours.reservations:
        return {"annotations": ours.pod_annotations}
    got = (protocol.RESERVATION_ALLOCATED_ANNOTATION,) if protocol.RESERVATION_LABEL in pod_labels else ()
    return {"labels": (protocol.RESERVATION_LABEL,), "annotations": (*ours.pod_annotations, MISSED_ANNOTATION, *got)}


def given_back(node: Json, writers: Collection[str]) -> tuple[Json, ...]:
    """Return a JSON patch that removes from a node only the amounts and annotations that these field managers set.

    An empty server-side apply would also remove fields that have no owner, such as the amounts with which the kubelet
    registered the node.
    """
    metadata = node["metadata"]
    owned = [f.get("fieldsV1", {}) for f in metadata.get("managedFields", ()) if f.get("manager") in writers]
    places = (("metadata", "annotations"), ("status", "allocatable"), ("status", "capacity"))
    paths = []
    for outer, inner in places:
        keys = {key for fields in owned for key in fields.get(f"f:{outer}", {}).get(f"f:{inner}", {})}
        present = node.get(outer, {}).get(inner, {})
        paths += [f"/{outer}/{inner}/{escape_pointer_key(name)}" for name in sorted(present) if f"f:{name}" in keys]
    return tuple({"op": "remove", "path": path} for path in paths)


def status_release(address: Address, reservation: Json) -> Patch | None:
    """Return the patch that resets a Reservation to Pending if we set it to Available; None for any other.

    The Reservation then waits for another controller that reserves capacity.
    """
    metadata, status = reservation["metadata"], reservation.get("status") or {}
    writers = {f.get("manager") for f in metadata.get("managedFields", ()) if f.get("subresource") == "status"}
    if status.get("phase") != Phase.AVAILABLE or protocol.MANAGER not in writers:
        return None
    fields = sorted({"nodeName", "allocatable", "allocated", "currentOwners", "conditions"} & status.keys())
    operations = (
        {"op": "test", "path": "/metadata/uid", "value": metadata.get("uid")},
        {"op": "test", "path": "/status/phase", "value": Phase.AVAILABLE.value},
        {"op": "replace", "path": "/status/phase", "value": Phase.PENDING.value},
        *({"op": "remove", "path": f"/status/{field}"} for field in fields),
    )
    return Patch(address, operations, "status", _WHY)


def _reject_lending(node: str, resource: Any, capacities: Sequence[int]) -> Any:  # noqa: ARG001 - the shape of `Lend`
    raise AssertionError("nothing is lent, so nothing is spread over zones")
