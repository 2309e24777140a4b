"""Whose each CPU of a node is: a pod's, the kubelet's, reserved, or shared. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cotenant.core.model.allocation.cpu_annotations import reserved_cpus, system_cpus
from cotenant.core.model.allocation.cpu_lists import Cpus
from cotenant.core.model.allocation.topology_document import NodeCpus


class CpuState(StrEnum):
    """What a CPU is used for."""

    SHARED = "shared"
    POD = "pod"
    RESERVED = "reserved"
    KUBELET_RESERVED = "kubelet-reserved"
    SYSTEM = "system"
    ISOLATED = "isolated"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class CpuOwner:
    """One CPU; pod: NAMESPACE/NAME of who has it alone, or ""."""

    cpu: int
    state: CpuState
    core: int | None = None
    socket: int | None = None
    numa_node: int | None = None
    pod: str = ""


def withheld_cpus(cpus: NodeCpus, annotations: Mapping[str, str], node: str) -> dict[CpuState, Cpus]:
    """CPUs that no pod is given, by why; annotations: of the Node."""
    system, exclusive = system_cpus(annotations, node)
    return {
        CpuState.ISOLATED: cpus.topology.isolated,
        CpuState.RESERVED: reserved_cpus(annotations, node),
        CpuState.KUBELET_RESERVED: cpus.kubelet_reserved,
        CpuState.SYSTEM: system if exclusive else frozenset(),
    }


def owners(cpus: NodeCpus, annotations: Mapping[str, str], node: str) -> Iterator[CpuOwner]:
    """Every CPU of the machine by rising number, those that are offline behind."""
    withheld = withheld_cpus(cpus, annotations, node)
    state_of = {cpu: state for state, members in reversed(withheld.items()) for cpu in members}
    pod_of = {cpu: f"{pod.namespace}/{pod.name}" for pod in cpus.pods for cpu in pod.cpus}
    for p in cpus.topology.processors:
        state = state_of.get(p.id, CpuState.POD if p.id in pod_of else CpuState.SHARED)
        yield CpuOwner(p.id, state, p.core, p.socket, p.numa_node, pod_of.get(p.id, ""))
    for cpu in sorted(cpus.topology.offline):
        yield CpuOwner(cpu, CpuState.OFFLINE)
