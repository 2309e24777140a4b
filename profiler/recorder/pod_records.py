"""EDGE: decodes pods and nodes for the recorder: addresses of kubelets, ends of containers. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import QuantityError
from cotenant.base.identity import PodContainerRef
from cotenant.base.kube import projection
from cotenant.base.kube.objects import Meta, NodeObject, NodeObjectStatus, PodObject, PodObjectStatus
from cotenant.base.kubernetes.pod_wire import ContainerStatusWire
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.profiler.recorder.kubelets import KubeletAddress
from cotenant.profiler.recorder.restarts import ContainerEnd, ContainerEnds

OOM_KILLED: Final = "OOMKilled"
UNKNOWN_REASONS: Final = frozenset({"", "ContainerStatusUnknown"})
"""Of an end that the kubelet did not see itself: the runtime lost the container, or a node was away."""
ADDRESS_ORDER: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP")
KUBELET_PORT: Final = 10250


class _Terminated(msgspec.Struct, rename={"finished_at": "finishedAt", "container_id": "containerID"}):
    finished_at: datetime | None = None
    reason: str = ""
    container_id: str = ""

    def as_end(self, restarted: bool) -> ContainerEnd | None:
        """Return the end of the container; None for one without a time."""
        if self.finished_at is None:
            return None
        killed = None if self.reason in UNKNOWN_REASONS else self.reason == OOM_KILLED
        return ContainerEnd(self.container_id, self.finished_at.timestamp(), killed, restarted)


class _State(msgspec.Struct):
    terminated: _Terminated | None = None


class _ContainerStatus(ContainerStatusWire, rename="camel"):
    restart_count: int = 0
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class _RecordedStatus(PodObjectStatus, rename="camel"):
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _RecordedMeta(Meta, rename="camel"):
    uid: str = ""


class RecordedPod(PodObject):
    """A Pod with how its containers ended."""

    metadata: _RecordedMeta
    status: _RecordedStatus = msgspec.field(default_factory=_RecordedStatus)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def occupies_node(self) -> bool:
        """True if it was placed and has not ended."""
        return bool(self.spec.node_name) and self.status.phase not in ("Succeeded", "Failed")

    def ends(self) -> Iterator[ContainerEnds]:
        """Yield each container with its number of restarts and its known ends for lack of memory."""
        meta = self.metadata
        created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        for status in (*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())):
            shown = ((status.last_state.terminated, True), (status.state.terminated, False))
            ends = tuple(end for state, restarted in shown if state and (end := state.as_end(restarted)) is not None)
            ref = PodContainerRef(meta.namespace, meta.name, status.name)
            yield ContainerEnds(ref, meta.uid, created, status.restart_count, ends)


class _NodeAddress(msgspec.Struct):
    type: str = ""
    address: str = ""


class _Endpoint(msgspec.Struct, rename={"port": "Port"}):
    port: int = 0


class _Endpoints(msgspec.Struct, rename="camel"):
    kubelet_endpoint: _Endpoint = msgspec.field(default_factory=_Endpoint)


class _RecordedNodeStatus(NodeObjectStatus, rename="camel"):
    addresses: list[_NodeAddress] | None = None
    daemon_endpoints: _Endpoints = msgspec.field(default_factory=_Endpoints)


class RecordedNode(NodeObject):
    """A Node with the address of its kubelet."""

    status: _RecordedNodeStatus = msgspec.field(default_factory=_RecordedNodeStatus)

    @property
    def kubelet(self) -> KubeletAddress | None:
        """Address at which its kubelet listens; None while it has told no address."""
        by_type = {address.type: address.address for address in reversed(self.status.addresses or ())}
        host = next((by_type[kind] for kind in ADDRESS_ORDER if by_type.get(kind)), "")
        port = self.status.daemon_endpoints.kubelet_endpoint.port or KUBELET_PORT
        return KubeletAddress(self.metadata.name, host, port) if host else None


DECLARED: Final = (
    (Signal.CPU_REQUEST, "requests", Resource.CPU),
    (Signal.CPU_LIMIT, "limits", Resource.CPU),
    (Signal.MEMORY_REQUEST, "requests", Resource.MEMORY),
    (Signal.MEMORY_LIMIT, "limits", Resource.MEMORY),
)
"""Signal, side, resource: the order of `declared_amounts`."""
Declared = tuple[int | None, int | None, int | None, int | None]


def declared_amounts(pod: RecordedPod) -> dict[PodContainerRef, Declared]:
    """Requests and limits of each container that stays, None where it has none; empty where one cannot be read."""
    try:
        containers = projection.containers_of(pod)
    except QuantityError:
        return {}
    namespace, name = pod.key
    return {
        PodContainerRef(namespace, name, container.name): (
            container.requests.get(Resource.CPU),
            container.limits.get(Resource.CPU),
            container.requests.get(Resource.MEMORY),
            container.limits.get(Resource.MEMORY),
        )
        for container in containers
        if container.role is not ContainerRole.INIT
    }
