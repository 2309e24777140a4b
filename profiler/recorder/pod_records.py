"""EDGE: decodes pods and nodes for the recorder: addresses of kubelets, ends of containers. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import QuantityError
from cotenant.base.identity import PodContainerRef
from cotenant.base.kube import projection
from cotenant.base.kubernetes.models.node import AddressedNode
from cotenant.base.kubernetes.models.pod import StatedPod, Terminated
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant.profiler.recorder.kubelets import KubeletAddress
from cotenant.profiler.recorder.restarts import ContainerEnd, ContainerEnds

OOM_KILLED: Final = "OOMKilled"
UNKNOWN_REASONS: Final = frozenset({"", "ContainerStatusUnknown"})
"""Of an end that the kubelet did not see itself: the runtime lost the container, or a node was away."""
ADDRESS_ORDER: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP")
KUBELET_PORT: Final = 10250


class RecordedPod(StatedPod):
    """A Pod with how its containers ended."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def occupies_node(self) -> bool:
        """True if it was placed and has not ended."""
        return bool(self.spec.node_name) and self.status.phase not in ENDED_PHASES

    @property
    def runs_with_quota(self) -> bool:
        """True if it runs and a container of it has a limit of CPU, and so a quota that may throttle it."""
        if self.status.phase != "Running":
            return False
        each = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        return any(c.resources is not None and Resource.CPU in (c.resources.limits or ()) for c in each)

    def ends(self) -> Iterator[ContainerEnds]:
        """Yield each container with its number of restarts and its known ends for lack of memory."""
        meta = self.metadata
        created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        for status in (*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())):
            shown = ((status.last_state.terminated, True), (status.state.terminated, False))
            ends = tuple(
                end for state, restarted in shown if state and (end := _container_end(state, restarted)) is not None
            )
            ref = PodContainerRef(meta.namespace, meta.name, status.name)
            yield ContainerEnds(ref, meta.uid, created, status.restart_count, ends)


def _container_end(state: Terminated, restarted: bool) -> ContainerEnd | None:
    """Return the end of the container; None for one without a time."""
    if state.finished_at is None:
        return None
    killed = None if state.reason in UNKNOWN_REASONS else state.reason == OOM_KILLED
    return ContainerEnd(state.container_id, state.finished_at.timestamp(), killed, restarted)


class RecordedNode(AddressedNode):
    """A Node with the address of its kubelet."""

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
