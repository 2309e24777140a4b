"""Koordinator's annotations about CPUs: what a pod requests, what it got, what a node reserves. Pure.

pod   resource-spec          {"requiredCPUBindPolicy", "preferredCPUBindPolicy", "preferredCPUExclusivePolicy"}
pod   numa-topology-spec     {"numaTopologyPolicy": "SingleNUMANode"}
pod   resource-status        {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}
node  reservation            {"reservedCPUs": "0-1"}
node  system-qos-resource    {"cpuset": "2", "cpusetExclusive": true}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from cotenant.base.allocation.allocator import check_length
from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology, format_cpus, parse_cpus
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import (
    EXTENDED_RESOURCES,
    NODE_RESERVATION_ANNOTATION,
    NUMA_SPEC_ANNOTATION,
    RESOURCE_SPEC_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
    SYSTEM_QOS_ANNOTATION,
)
from cotenant.base.resource import Resource

CPU_RESOURCES: Final = frozenset({"cpu", *(EXTENDED_RESOURCES[band, Resource.CPU] for band in Band)})
"""Resource names for CPU allocation on a NUMA node; batch pods use kubernetes.io/batch-cpu."""
WireT = TypeVar("WireT")


@dataclass(frozen=True, slots=True)
class CpuAssignment:
    """The CPUs that a pod owns exclusively, and the NUMA nodes on which it has CPU."""

    cpus: Cpus = frozenset()
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuWish:
    """The CPU policies in a pod's annotations, as text; "" if not set."""

    required_bind: str = ""
    preferred_bind: str = ""
    exclusive: str = ""
    numa: str = ""


class _NumaPart(msgspec.Struct, frozen=True):
    node: Annotated[int, msgspec.Meta(ge=0)]
    resources: dict[str, int | float | str] = {}


class _CpusetStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    cpuset: str = ""
    numa_node_resources: tuple[_NumaPart, ...] | None = ()


class _ResourceSpec(msgspec.Struct, frozen=True):
    required: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    exclusive: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")


class _NumaSpec(msgspec.Struct, frozen=True):
    policy: str = msgspec.field(default="", name="numaTopologyPolicy")


class _Reservation(msgspec.Struct, frozen=True):
    reserved: str = msgspec.field(default="", name="reservedCPUs")


class _System(msgspec.Struct, frozen=True):
    cpuset: str = ""
    exclusive: bool = msgspec.field(default=True, name="cpusetExclusive")


def assignment_of(annotations: Mapping[str, str], pod: str) -> CpuAssignment:
    """Return the CPUs and NUMA nodes of a pod's resource-status; raise UsageError, naming the pod, if unreadable."""
    status = _decode_annotation(annotations, RESOURCE_STATUS_ANNOTATION, _CpusetStatus, pod)
    if status is None:
        return CpuAssignment()
    parts = status.numa_node_resources or ()
    numa_nodes = tuple(part.node for part in parts if CPU_RESOURCES & part.resources.keys())
    try:
        return CpuAssignment(parse_cpus(status.cpuset, pod), numa_nodes)
    except UsageError as bad:
        raise UsageError(f"{pod}: annotation {RESOURCE_STATUS_ANNOTATION} cannot be read: {bad}") from bad


def assignment_text(topology: CpuTopology, cpus: Cpus) -> str:
    """Return the resource-status for a pod that gets these CPUs: their list, and their number on each NUMA node."""
    counts: dict[int, int] = {}
    for cpu in cpus:
        node = topology.by_id[cpu].numa_node
        counts[node] = counts.get(node, 0) + 1
    parts = tuple(_NumaPart(node, {"cpu": str(count)}) for node, count in sorted(counts.items()))
    return msgspec.json.encode(_CpusetStatus(format_cpus(cpus), parts)).decode()


def wish_of(annotations: Mapping[str, str], pod: str) -> CpuWish:
    """Return the CPU policies in a pod's annotations.

    Raise UsageError, naming the pod and the annotation, if one is unreadable or too long.
    """
    for key in (RESOURCE_SPEC_ANNOTATION, NUMA_SPEC_ANNOTATION):
        check_length(annotations, key, pod)
    spec = _decode_annotation(annotations, RESOURCE_SPEC_ANNOTATION, _ResourceSpec, pod) or _ResourceSpec()
    numa = _decode_annotation(annotations, NUMA_SPEC_ANNOTATION, _NumaSpec, pod) or _NumaSpec()
    return CpuWish(spec.required, spec.preferred, spec.exclusive, numa.policy)


def reserved_cpus(annotations: Mapping[str, str], node: str) -> Cpus:
    """Return the CPUs that the node reserves for processes outside of pods; none if the annotation is unreadable."""
    try:
        reservation = _decode_annotation(annotations, NODE_RESERVATION_ANNOTATION, _Reservation, node)
        return parse_cpus(reservation.reserved, node) if reservation else frozenset()
    except UsageError:
        return frozenset()


def system_cpus(annotations: Mapping[str, str], node: str) -> tuple[Cpus, bool]:
    """Return the CPUs of QoS class SYSTEM, and whether they are exclusive; none if the annotation is unreadable."""
    try:
        system = _decode_annotation(annotations, SYSTEM_QOS_ANNOTATION, _System, node) or _System()
        return parse_cpus(system.cpuset, node), system.exclusive
    except UsageError:
        return frozenset(), False


def _decode_annotation(annotations: Mapping[str, str], key: str, kind: type[WireT], whose: str) -> WireT | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE as bad:
        raise UsageError(f"{whose}: annotation {key} cannot be read: {bad}") from bad
