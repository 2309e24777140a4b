"""Lists of CPUs, and which CPUs belong to whom: the kernel's text form, pods' and the node's annotations.

Pure; read by every strategy that moves cpusets and by the hooks at container creation. An annotation that cannot be
read gives no CPUs and says so (`Assigned.broken`): a caller must tell "has none" from "cannot be read".
Sources: cpuset(7) "List format"; Koordinator's annotations `scheduling.koordinator.sh/resource-status`,
`node.koordinator.sh/reservation` and `node.koordinator.sh/system-qos-resource`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from cotenant.core.model.allocation.cpu_lists import Cpus, parse_cpus
from cotenant.core.model.colocation.reclaimable import Band
from cotenant.core.model.errors import UsageError
from cotenant.core.model.kubernetes.protocol import (
    EXTENDED_RESOURCES,
    NODE_RESERVATION_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
)
from cotenant.core.model.kubernetes.qos import QosClass
from cotenant.core.model.resource import MILLICORES_PER_CORE, Resource
from enforcer.contract import NodeReading, PodSpec

NO_JSON: Final = (msgspec.DecodeError, RecursionError, UnicodeError)
"""What reading an annotation as JSON may raise, also one that is nested for its own sake or has half a surrogate."""
CPU_RESOURCES: Final = frozenset({"cpu", *(EXTENDED_RESOURCES[band, Resource.CPU] for band in Band)})
"""Wire names under which the scheduler allocates CPU on a NUMA node; a batch pod's is kubernetes.io/batch-cpu."""
SYSTEM_QOS_ANNOTATION: Final = "node.koordinator.sh/system-qos-resource"


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the scheduler gave a pod; cpus empty and numa_nodes empty = nothing. broken: why it is unreadable, or ""."""

    cpus: Cpus = frozenset()
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes that hold CPU of the pod."""
    broken: str = ""


class _NumaPart(msgspec.Struct, frozen=True):
    node: Annotated[int, msgspec.Meta(ge=0)]
    resources: dict[str, int | float | str] = {}


class _CpusetStatus(msgspec.Struct, frozen=True, rename="camel"):
    cpuset: str = ""
    numa_node_resources: tuple[_NumaPart, ...] | None = ()


class _Reservation(msgspec.Struct, frozen=True):
    reserved: str = msgspec.field(default="", name="reservedCPUs")


class _System(msgspec.Struct, frozen=True):
    cpuset: str = ""
    exclusive: bool = msgspec.field(default=True, name="cpusetExclusive")


def assigned(pod: PodSpec) -> Assigned:
    """CPUs and NUMA nodes of a pod's resource-status annotation."""
    text = pod.annotations.get(RESOURCE_STATUS_ANNOTATION)
    if text is None:
        return Assigned()
    try:
        status = msgspec.json.decode(text, type=_CpusetStatus)
        parts = status.numa_node_resources or ()
        numa_nodes = tuple(part.node for part in parts if CPU_RESOURCES & part.resources.keys())
        return Assigned(parse_cpus(status.cpuset, pod.key), numa_nodes)
    except (*NO_JSON, UsageError) as bad:
        return Assigned(broken=f"{pod.key}: annotation {RESOURCE_STATUS_ANNOTATION} cannot be read: {bad}")


def owned_cpus(pods: Iterable[PodSpec], *classes: QosClass) -> Cpus:
    """CPUs assigned to pods of these classes that have not ended; of a pod that claims too many none."""
    live = (p for p in pods if p.qos_class in classes and p.phase in ("Running", "Pending") and not overclaims(p))
    return frozenset().union(*(assigned(pod).cpus for pod in live))


def overclaims(pod: PodSpec) -> bool:
    """Whether its annotation names more CPUs than it asks for.

    The scheduler never gives more; anybody may write an annotation, and could otherwise shut everybody else out.
    """
    requested_millicores = sum(c.requests.get("cpu", c.limits.get("cpu", 0)) for c in pod.containers)
    return len(assigned(pod).cpus) * MILLICORES_PER_CORE > requested_millicores


def reserved_cpus(node: NodeReading) -> Cpus:
    """CPUs that the node reserves for non-pods; an undecodable annotation counts as none."""
    try:
        reservation = msgspec.json.decode(node.annotations.get(NODE_RESERVATION_ANNOTATION, "{}"), type=_Reservation)
        return parse_cpus(reservation.reserved, node.name)
    except (*NO_JSON, UsageError):
        return frozenset()


def system_cpus(node: NodeReading) -> tuple[Cpus, bool]:
    """CPUs of QoS class SYSTEM, and whether they are exclusive; an undecodable annotation counts as none."""
    try:
        system_qos = msgspec.json.decode(node.annotations.get(SYSTEM_QOS_ANNOTATION, "{}"), type=_System)
        return parse_cpus(system_qos.cpuset, node.name), system_qos.exclusive
    except (*NO_JSON, UsageError):
        return frozenset(), False


def forbidden_cpus(node: NodeReading, pods: Iterable[PodSpec]) -> Cpus:
    """CPUs that neither the share pools nor best effort may touch.

    Of LSE pods, reserved, exclusively SYSTEM's, and those that the kubelet gave to a pod alone.
    """
    system, exclusive = system_cpus(node)
    closed = owned_cpus(pods, QosClass.LSE) | reserved_cpus(node) | (system if exclusive else frozenset())
    return closed.union(*node.kubelet_cpus.values())


def online_cpus(node: NodeReading) -> Cpus:
    """All CPUs of the machine."""
    return frozenset(p.id for p in node.processors)
