"""EDGE: decodes pods and nodes for the recorder: addresses of kubelets, ends of containers. It sends no requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from cotenant.base.cluster import Container, ContainerRole
from cotenant.base.identity import PodContainerRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kube import projection
from cotenant.base.kube.seen_pods import PodShape, SeenPod, shape_of, with_shape
from cotenant.base.kubernetes.models.node import AddressedNode
from cotenant.base.kubernetes.models.pod import StatedPod
from cotenant.base.kubernetes.protocol import RESOURCE_STATUS_ANNOTATION
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.profiler.recorder.restarts import ContainerEnd, ContainerEnds


@dataclass(frozen=True, slots=True)
class KubeletAddress:
    """A node, and the host and port at which its kubelet listens."""

    node: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """Host and port as written in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


OOM_KILLED: Final = "OOMKilled"
UNKNOWN_REASONS: Final = frozenset({"", "ContainerStatusUnknown"})
"""Reasons of an end that the kubelet did not observe: the runtime lost the container, or a node was away."""
ADDRESS_ORDER: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP")
KUBELET_PORT: Final = 10250


@dataclass(frozen=True, slots=True)
class RestartedContainer:
    """A container that restarted or ended: its number of restarts, and the ends that its pod's status shows."""

    name: str
    restarts: int
    ends: tuple[ContainerEnd, ...]


@dataclass(frozen=True, slots=True)
class RecordedPod(SeenPod):
    """A pod with its containers that restarted or ended."""

    restarted: tuple[RestartedContainer, ...]

    @property
    def runs_with_quota(self) -> bool:
        """True if the pod runs and one of its containers has a CPU limit, so that it may be throttled."""
        return self.shape.phase == "Running" and any(Resource.CPU in c.limits for c in self.shape.containers)

    def ends(self) -> Iterator[ContainerEnds]:
        """Yield the number of restarts and the known ends of each container that the pod's status reports."""
        restarted = {container.name: container for container in self.restarted}
        for name in self.shape.reported:
            ref, known_ends = PodContainerRef(self.namespace, self.name, name), restarted.get(name)
            restarts, ends = (known_ends.restarts, known_ends.ends) if known_ends else (0, ())
            yield ContainerEnds(ref, self.uid, self.created_seconds, restarts, ends)


class PodRecords:
    """Converter of pod objects to records; equal pod shapes share one object, which exists as long as a pod has it."""

    def __init__(self) -> None:
        """Create a converter that has no pod shapes yet."""
        self._shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()

    def of(self, pod: StatedPod) -> RecordedPod:
        """Return the record of a pod object."""
        # What two pods have in common if and only if their shape is made of the same
        meta, spec, status = pod.metadata, pod.spec, pod.status
        annotations = projection.own_annotations(meta), (meta.annotations or {}).get(RESOURCE_STATUS_ANNOTATION)
        parts = (
            *(meta.namespace, meta.labels, annotations, meta.owner_references),
            msgspec.structs.replace(spec, node_name=""),
            *(status.phase, status.qos_class, status.conditions, status.resources, status.allocated_resources),
            [(state.name, state.resources, state.allocated_resources) for state in status.each_status()],
        )
        key = hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).digest()
        shape = self._shapes.get(key)
        if shape is None:
            shape = shape_of(pod)
            if not shape.refusal:  # that one names the pod
                self._shapes[key] = shape
        restarted: list[RestartedContainer] = []
        for of in status.each_status():
            ends: list[ContainerEnd] = []
            for state, goes_on in ((of.last_state.terminated, True), (of.state.terminated, False)):
                if state and state.finished_at is not None:
                    killed = None if state.reason in UNKNOWN_REASONS else state.reason == OOM_KILLED
                    ends.append(ContainerEnd(state.container_id, state.finished_at.timestamp(), killed, goes_on))
            if ends or of.restart_count:
                restarted.append(RestartedContainer(of.name, of.restart_count, tuple(ends)))
        return RecordedPod(**inherited_fields(with_shape(pod, shape), SeenPod), restarted=tuple(restarted))


class RecordedNode(AddressedNode):
    """A Node with the address of its kubelet."""

    @property
    def kubelet(self) -> KubeletAddress | None:
        """Address at which the node's kubelet listens; None if the node has not published an address yet."""
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
"""(signal, side, resource) in the order of `declared_amounts`."""
Declared = tuple[int | None, int | None, int | None, int | None]


def declared_amounts(pods: Iterable[RecordedPod]) -> dict[PodContainerRef, Declared]:
    """Return the requests and limits of all containers except init containers; None for an amount that is not set."""
    of_shape: dict[int, list[tuple[str, Declared]]] = {}
    amounts: dict[PodContainerRef, Declared] = {}
    for pod in pods:
        if id(pod.shape) not in of_shape:
            of_shape[id(pod.shape)] = [
                (c.name, _amounts_of(c)) for c in pod.shape.containers if c.role is not ContainerRole.INIT
            ]
        for name, declared in of_shape[id(pod.shape)]:
            amounts[PodContainerRef(pod.namespace, pod.name, name)] = declared
    return amounts


def _amounts_of(container: Container) -> Declared:
    sides = {"requests": container.requests, "limits": container.limits}
    cpu_request, cpu_limit, memory_request, memory_limit = (sides[side].get(r) for _, side, r in DECLARED)
    return cpu_request, cpu_limit, memory_request, memory_limit
