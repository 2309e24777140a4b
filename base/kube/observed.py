"""EDGE: what mirrors keep of nodes and pods: decoded from the API's JSON into `base.kubernetes.observed`. Pure itself.

    Mirror(client, "/api/v1/nodes", NodeWire, node_of)
    Mirror(client, "/api/v1/pods", PodWire, pod_of, fieldSelector=ON_NODES)

What is not named here never becomes a Python object. A cpu or memory quantity that cannot be read is a QuantityError
that names the object; another resource's is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from cotenant.base.kube.objects import ObjectOwner, PodObjectStatus
from cotenant.base.kubernetes.observed import ObservedNode, ObservedPod
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_request import named_amounts
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import ContainerStatusWire, PodSpecWire, Quantities, pod_resources
from cotenant.base.kubernetes.protocol import own_texts

Texts = dict[str, str]
NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that may use capacity."""
ON_NODES: Final = f"spec.nodeName!=,{NOT_ENDED}"
"""Field selector of pods that occupy a node."""


class _ObservedMeta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: list[ObjectOwner] | None = None
    deletion_timestamp: datetime | None = None


class _ObservedPodSpec(PodSpecWire, rename="camel"):
    node_name: str = ""
    priority: int | None = None


class ObservedPodWire(msgspec.Struct):
    """A Pod on the wire."""

    metadata: _ObservedMeta
    spec: _ObservedPodSpec
    status: PodObjectStatus = msgspec.field(default_factory=PodObjectStatus)


class _ObservedGate(msgspec.Struct):
    name: str = ""


class _ObservedToleration(msgspec.Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class _QueuePodMeta(_ObservedMeta, rename="camel"):
    resource_version: str = ""
    creation_timestamp: datetime | None = None


class _SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str = ""


class _QueuePodSpec(_ObservedPodSpec, rename="camel"):
    scheduling_group: _SchedulingGroup | None = None
    preemption_policy: str = ""
    restart_policy: str = ""
    active_deadline_seconds: float | None = None
    scheduling_gates: list[_ObservedGate] | None = None
    node_selector: Texts | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[_ObservedToleration] | None = None


class QueuePodWire(ObservedPodWire):
    """A Pod on the wire, with what decides about its place in queues."""

    metadata: _QueuePodMeta
    spec: _QueuePodSpec


class _Terminated(msgspec.Struct, rename="camel"):
    finished_at: datetime | None = None
    reason: str = ""


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None = None


class _ObservedContainerStatus(ContainerStatusWire, rename="camel"):
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)
    last_state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _RunningStatus(PodObjectStatus, rename="camel"):
    container_statuses: list[_ObservedContainerStatus] | None = None


class KilledPodWire(ObservedPodWire):
    """A Pod on the wire, with how its containers ended last."""

    status: _RunningStatus = msgspec.field(default_factory=_RunningStatus)

    def oom_kills(self) -> dict[str, float]:
        """Return the Unix time at which each container was last killed for lack of memory, by container name."""
        kills = {}
        for status in self.status.container_statuses or ():
            for state in (status.last_state, status.state):
                end = state.terminated
                if end is not None and end.reason == "OOMKilled" and end.finished_at is not None:
                    kills[status.name] = end.finished_at.timestamp()
        return kills


class _EndedStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    container_statuses: list[_ObservedContainerStatus] | None = None


class EndedPodWire(msgspec.Struct):
    """A Pod on the wire that has ended: whose it was, and how long it ran."""

    metadata: _ObservedMeta
    status: _EndedStatus = msgspec.field(default_factory=_EndedStatus)

    def run_seconds(self) -> float | None:
        """Return the time from the pod's start to the end of its last container, seconds.

        None if the status lacks either.
        """
        ends = [c.state.terminated.finished_at for c in self.status.container_statuses or () if c.state.terminated]
        known_ends = [end for end in ends if end is not None]
        start = self.status.start_time
        return max(0.0, (max(known_ends) - start).total_seconds()) if start and known_ends else None


class _ObservedNodeSpec(msgspec.Struct):
    unschedulable: bool = False


class _ObservedTaint(msgspec.Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _QueueNodeSpec(_ObservedNodeSpec):
    taints: list[_ObservedTaint] | None = None


class _ObservedNodeStatus(msgspec.Struct):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class _ObservedCondition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _QueueNodeStatus(_ObservedNodeStatus):
    conditions: list[_ObservedCondition] | None = None


class NodeWire(msgspec.Struct):
    """A Node on the wire."""

    metadata: _ObservedMeta
    spec: _ObservedNodeSpec = msgspec.field(default_factory=_ObservedNodeSpec)
    status: _ObservedNodeStatus = msgspec.field(default_factory=_ObservedNodeStatus)


class QueueNodeWire(NodeWire):
    """A Node on the wire, with its taints and conditions."""

    spec: _QueueNodeSpec = msgspec.field(default_factory=_QueueNodeSpec)
    status: _QueueNodeStatus = msgspec.field(default_factory=_QueueNodeStatus)

    @property
    def is_ready(self) -> bool:
        """True if the node's condition Ready is True; False if it has none, as in kube-scheduler and Koordinator."""
        return any(
            condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions or ()
        )


class _ManagedFields(msgspec.Struct):
    manager: str = ""
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _ManagedMeta(_ObservedMeta, rename="camel"):
    managed_fields: list[_ManagedFields] | None = None


class ManagedNodeWire(NodeWire):
    """A Node on the wire, with the server's account of who wrote which field."""

    metadata: _ManagedMeta

    def writers_of(self, resource_names: Iterable[str]) -> tuple[str, ...]:
        """Field managers that own an amount of one of these resources, sorted."""
        keys = [f'"f:{name}"'.encode() for name in resource_names]
        entries = self.metadata.managed_fields or ()
        return tuple(sorted({e.manager for e in entries if any(key in bytes(e.fields) for key in keys)}))


def node_of(node: NodeWire) -> ObservedNode:
    """Convert a Node to the observed form."""
    meta, what = node.metadata, f"node {node.metadata.name}"
    return ObservedNode(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=own_texts(meta.annotations),
        capacity=named_amounts(node.status.capacity, what),
        allocatable=named_amounts(node.status.allocatable, what),
        unschedulable=node.spec.unschedulable,
    )


def pod_of(pod: ObservedPodWire) -> ObservedPod:
    """Convert a Pod to the observed form."""
    meta, spec = pod.metadata, pod.spec
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    return ObservedPod(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=sys.intern(spec.node_name),
        phase=sys.intern(pod.status.phase),
        deleting=meta.deletion_timestamp is not None,
        priority=spec.priority,
        owner=(sys.intern(owner.kind), owner.name) if owner else ("", ""),
        requests=counted_requests(pod_resources(spec, pod.status, f"pod {meta.namespace}/{meta.name}")),
        labels=own_texts(meta.labels),
        annotations=own_texts(meta.annotations),
        best_effort=pod.status.qos_class == PodQos.BEST_EFFORT,
        template_hash=sys.intern((meta.labels or {}).get(TEMPLATE_HASH_LABEL, "")),
        deployment_config=sys.intern((meta.labels or {}).get(DEPLOYMENT_CONFIG_LABEL, "")),
        start_seconds=pod.status.start_time.timestamp() if pod.status.start_time else None,
        gone_by_seconds=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
    )
