"""EDGE: the watched collections of queues, the fields kept of each pod and node, and the view made from them.

50,000 pods are kept in memory, so the fields that decide where a pod may run are kept only while it has no node.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes import quota_tree
from cotenant.base.kubernetes.models.node import QueueNodeWire
from cotenant.base.kubernetes.models.pod import EndedPodWire, QueuePodWire
from cotenant.base.kubernetes.observed import node_of, pod_of
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference, Taint, Toleration, is_placeholder
from cotenant.base.kubernetes.protocol import (
    GANG_LABEL,
    NATIVE_GANG_GROUP,
    NOT_ENDED,
    OWNER_WORKLOAD_ANNOTATION,
    PROFILE_GROUP,
    QUEUED_ANNOTATION,
    QUOTA_GROUP,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_GATE,
)
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.scheduler_ext.queues.model.gang import (
    POD_GROUP_LABEL,
    NativeGroup,
    gang_key,
    gang_of_pod,
    gang_of_pod_group,
    gangs_of,
)
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod, sub_priority
from cotenant.scheduler_ext.queues.quota_status import published_since
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView, QuotaProfile
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

Key = tuple[str, str]
Mirrors = Mapping[str, Mirror[Any]]
READABLE: Final = {
    "quotas": "elasticquotas",
    "quota-profiles": "elasticquotaprofiles",
    "pod-groups": "podgroups",
    "queue-pods": "pods",
    "ended-members": "pods",
    "queue-nodes": "nodes",
    "reservations": "reservations",
}
"""Plural of the kind of each mirror, by which an unreadable object is named."""
ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
"""Field selector of pods that have ended."""
SUCCEEDED: Final = "status.phase=Succeeded"
"""Field selector of pods that succeeded; their run times predict those of others."""


@dataclass(frozen=True, slots=True)
class WatchedQueuePod:
    """A pod whose quota is not resolved yet, because that needs the quota tree.

    `quota_label` is the quota that its label names, `gated_for` the quota for which the webhook gated the pod, "" for
    none. A `never_gated` pod was created by a DaemonSet or the kubelet, so that the webhook never gates it.
    """

    pod: QueuePod
    quota_label: str = ""
    gated_for: str = ""
    never_gated: bool = False


def queue_pod(wire: QueuePodWire) -> WatchedQueuePod:
    """Return the fields of a Pod that queues keep; raise QuantityError if its cpu or memory request is invalid."""
    meta, spec = wire.metadata, wire.spec
    labels, annotations = meta.labels or {}, meta.annotations or {}
    observed = pod_of(wire)
    created_seconds = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
    group = spec.scheduling_group.pod_group_name if spec.scheduling_group else ""
    gang = gang_key(meta.namespace, labels, annotations)
    if group and gang != f"{meta.namespace}/{group}":
        gang = ""  # who names another PodGroup of Kubernetes has left our gangs
    gates = tuple(sys.intern(gate.name) for gate in spec.scheduling_gates or ())
    placement = identity = None
    if not spec.node_name:
        tolerations = (Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations or ())
        placement = Placement(spec.node_selector or {}, spec.affinity or {}, tuple(tolerations))
    if RESERVATION_GATE in gates and not gang:
        references = meta.owner_references or ()
        owners = (Reference(o.kind, o.name, meta.namespace, o.uid, o.api_version, o.controller) for o in references)
        identity = PodIdentity(meta.namespace, meta.name, meta.uid, labels, annotations, tuple(owners))
    pod = QueuePod(
        namespace=observed.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        node=observed.node,
        phase=observed.phase or "Pending",
        deleting=observed.deleting,
        gone_by_seconds=observed.gone_by_seconds,
        gates=gates,
        requests=observed.requests,
        priority=spec.priority or 0,
        sub_priority=sub_priority(labels),
        preemptible=labels.get(quota_tree.PREEMPTIBLE_LABEL) != "false",
        preempts=spec.preemption_policy != "Never",
        started_seconds=wire.status.start_time.timestamp() if wire.status.start_time else None,
        deadline_seconds=spec.active_deadline_seconds,
        ends=spec.restart_policy in ("Never", "OnFailure"),
        created_seconds=created_seconds,
        gang=sys.intern(gang),
        placeholder=is_placeholder(observed.namespace, observed.labels),
        placement=placement,
        declared_gang=gang_of_pod(meta.namespace, meta.name, labels, annotations, created_seconds) if gang else None,
        handed_over=RESERVATION_ALLOCATED_ANNOTATION in annotations,
        scheduling_group=group,
        owner_uid=sys.intern(meta.controller_uid) if gang else "",
        identity=identity,
    )
    quota_label, gated_for = (
        sys.intern(labels.get(quota_tree.NAME_LABEL, "")),
        sys.intern(annotations.get(QUEUED_ANNOTATION, "")),
    )
    return WatchedQueuePod(pod, quota_label, gated_for, never_gated=observed.owner[0] in ("DaemonSet", "Node"))


def ended_member(wire: EndedPodWire) -> tuple[str, str, str]:
    """Return (gang's key, final phase, owner's UID) of an ended pod of a PodGroup."""
    gang = gang_key(wire.metadata.namespace, wire.metadata.labels or {}, {})
    return sys.intern(gang), sys.intern(wire.status.phase), sys.intern(wire.metadata.controller_uid)


def queue_node(wire: QueueNodeWire) -> QueueNode:
    """Return the fields of a Node that queues keep; raise QuantityError if an amount is invalid."""
    observed = node_of(wire)
    return QueueNode(
        name=observed.name,
        allocatable=observed.allocatable,
        labels={sys.intern(k): sys.intern(v) for k, v in observed.labels.items()},
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in wire.spec.taints or ()),
        unschedulable=observed.unschedulable,
        ready=wire.is_ready,
    )


QUEUING: Final = frozenset(
    {"ended-members", "native-gangs", "pod-groups", "queue-nodes", "queue-pods", "quota-profiles", "quotas"}
)
QUEUE_MIRRORS: Final = (*sorted(QUEUING), "reservations", "swapguards")
"""Names of the mirrors, including those of Reservations for gangs."""


def queue_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return a watched copy of a collection; "pod-groups" define cotenant's gangs, "native-gangs" Kubernetes'."""
    json = dict[str, Any]
    kinds: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
        "queue-pods": ("/api/v1/pods", QueuePodWire, queue_pod, {"fieldSelector": NOT_ENDED}),
        "queue-nodes": ("/api/v1/nodes", QueueNodeWire, queue_node, {}),
        "quotas": (f"/apis/{QUOTA_GROUP}/elasticquotas", json, QuotaNode.read, {}),
        "quota-profiles": (f"/apis/{PROFILE_GROUP}/elasticquotaprofiles", json, QuotaProfile.parse, {}),
        "ended-members": (
            "/api/v1/pods",
            EndedPodWire,
            ended_member,
            {"labelSelector": POD_GROUP_LABEL, "fieldSelector": ENDED},
        ),
        "native-gangs": (f"/apis/{NATIVE_GANG_GROUP}/podgroups", json, NativeGroup.parse, {}),
        "pod-groups": (f"/apis/{QUOTA_GROUP}/podgroups", json, gang_of_pod_group, {}),
    }
    path, wire, decoder, selectors = kinds[name]
    return Mirror(client, path, wire, decoder, wake, **selectors)


class QueueViewBuilder:
    """Builds views of the same watched collections; a pod's quota is resolved again only if the tree has changed."""

    def __init__(self, mirrors: Mirrors) -> None:
        """Create the builder; nothing is read yet."""
        self._mirrors = mirrors
        self._quotas: Mapping[Key, QuotaNode] | None = None
        self._tree = QuotaTree()
        self._resolved: dict[str, tuple[WatchedQueuePod, QueuePod]] = {}

    def view(self, now_seconds: float) -> QueueView:
        """Return the view of the watched collections as they are now; the caller adds the results of earlier runs."""
        quotas: Mapping[Key, QuotaNode] = self._mirrors["quotas"].snapshot()
        if quotas is not self._quotas:
            before = self._tree.addressing
            self._quotas = quotas
            self._tree = QuotaTree.of(quotas)
            if self._tree.addressing != before:  # not when only figures were written, as in most rounds
                self._resolved = {}
        previous, self._resolved = self._resolved, {}
        for watched in self._mirrors["queue-pods"].snapshot().values():
            old = previous.get(watched.pod.uid)
            pod = old[1] if old is not None and old[0] is watched else resolve_quota(watched, self._tree)
            self._resolved[pod.uid] = (watched, pod)
        pods = tuple(pod for _, pod in self._resolved.values())
        unreadable = [
            ("/".join(part for part in (plural, namespace, item) if part), why)
            for name, plural in READABLE.items()
            for (namespace, item), why in sorted(self._mirrors[name].refusals.items())
        ]
        for (namespace, name), quota in sorted(quotas.items()):
            first = self._tree.quotas[name]
            if quota is not first:
                why = f"quota {first.namespace}/{name} has the same name and takes precedence"
                unreadable.append((f"elasticquotas/{namespace}/{name}", why))
        groups = self._mirrors["pod-groups"].snapshot().values()
        return QueueView(
            now_seconds=now_seconds,
            quotas=self._tree.quotas,
            profiles=tuple(profile for _, profile in sorted(self._mirrors["quota-profiles"].snapshot().items())),
            gangs=gangs_of(groups, (pod.declared_gang for pod in pods if pod.declared_gang is not None)),
            pods=pods,
            nodes=tuple(self._mirrors["queue-nodes"].snapshot().values()),
            reservations=tuple(r for r in self._mirrors["reservations"].snapshot().values() if counts(r)),
            ended_members=Counter(self._mirrors["ended-members"].snapshot().values()),
            native_groups=self.native_groups(),
            over_since=published_since(self._tree.quotas, quota_tree.OVER_SINCE_ANNOTATION),
            borrows_since=published_since(self._tree.quotas, quota_tree.BORROWS_SINCE_ANNOTATION),
            unreadable=tuple(unreadable),
        )

    def settled(self) -> bool:
        """Return whether the builder knows if the API server has Kubernetes' PodGroups, and which ones exist."""
        mirror = self._mirrors["native-gangs"]
        return mirror.wait_synced(0) or mirror.error is not None

    def native_groups(self) -> dict[str, NativeGroup] | None:
        """Return Kubernetes' PodGroups by "namespace/name"; None if the API server has no such kind or forbids it."""
        mirror = self._mirrors["native-gangs"]
        if not mirror.wait_synced(0) or isinstance(mirror.error, ClusterAbsent | ClusterForbidden):
            return None
        return {f"{namespace}/{name}": group for (namespace, name), group in mirror.snapshot().items()}


def resolve_quota(watched: WatchedQueuePod, tree: QuotaTree) -> QueuePod:
    """Return the pod with the quota against which it counts.

    If the quota, and thus its namespaces, cannot be read, the pod still counts against the quota it was gated for.
    """
    if watched.pod.placeholder:
        return watched.pod
    labels = {quota_tree.NAME_LABEL: watched.quota_label} if watched.quota_label else {}
    quota = tree.of_pod(watched.pod.namespace, labels, watched.gated_for)
    if quota is None:
        quota = tree.quotas.get(watched.gated_for)
        if quota is None or not quota.problem:
            return watched.pod
    return replace(watched.pod, quota=quota.name, missed=not (watched.gated_for or watched.never_gated))


def counts(reservation: Reservation) -> bool:
    """Return whether queues take a Reservation into account: it is for a gang member, or belongs to a plan."""
    return GANG_LABEL in reservation.labels or OWNER_WORKLOAD_ANNOTATION in reservation.annotations
