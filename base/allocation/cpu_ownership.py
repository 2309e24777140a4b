"""The owners of a node's CPUs and devices for pages and commands, without pod names that a person may not see. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from string import ascii_letters
from typing import Final, Protocol

from cotenant.base.allocation.cpu_annotations import reserved_cpus, system_cpus
from cotenant.base.allocation.cpu_topology import Cpus, format_cpus
from cotenant.base.allocation.devices import PERCENTS, WHOLE, Allocations, DeviceInventory, TakenDevices
from cotenant.base.allocation.topology_document import NodeCpus
from cotenant.base.people import Person


class CpuState(StrEnum):
    """The use of a CPU: shared, exclusive to one pod, reserved, of the system, isolated or offline."""

    SHARED = "shared"
    POD = "pod"
    RESERVED = "reserved"
    KUBELET_RESERVED = "kubelet-reserved"
    SYSTEM = "system"
    ISOLATED = "isolated"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class CpuOwner:
    """One CPU with its state; `pod` is NAMESPACE/NAME of the pod that owns it exclusively, or ""."""

    cpu: int
    state: CpuState
    core: int | None = None
    socket: int | None = None
    numa_node: int | None = None
    pod: str = ""


def withheld_cpus(cpus: NodeCpus, annotations: Mapping[str, str], node: str) -> dict[CpuState, Cpus]:
    """Return the CPUs that no pod may get, by the reason; `annotations` are those of the Node."""
    system, exclusive = system_cpus(annotations, node)
    return {
        CpuState.ISOLATED: cpus.topology.isolated,
        CpuState.RESERVED: reserved_cpus(annotations, node),
        CpuState.KUBELET_RESERVED: cpus.kubelet_reserved,
        CpuState.SYSTEM: system if exclusive else frozenset(),
    }


def owners(cpus: NodeCpus, annotations: Mapping[str, str], node: str) -> Iterator[CpuOwner]:
    """Yield every CPU of the machine with its owner, by number, offline CPUs last."""
    withheld = withheld_cpus(cpus, annotations, node)
    state_of = {cpu: state for state, members in reversed(withheld.items()) for cpu in members}
    pod_of = {cpu: f"{pod.namespace}/{pod.name}" for pod in cpus.pods for cpu in pod.cpus}
    for p in cpus.topology.processors:
        state = state_of.get(p.id, CpuState.POD if p.id in pod_of else CpuState.SHARED)
        yield CpuOwner(p.id, state, p.core, p.socket, p.numa_node, pod_of.get(p.id, ""))
    for cpu in sorted(cpus.topology.offline):
        yield CpuOwner(cpu, CpuState.OFFLINE)


SIGNS: Final = {
    CpuState.SHARED: ".",
    CpuState.RESERVED: "#",
    CpuState.KUBELET_RESERVED: "%",
    CpuState.SYSTEM: "$",
    CpuState.ISOLATED: "!",
    CpuState.OFFLINE: "-",
}
MANY: Final = "*"
"""Sign of the pods for which no letter is left."""


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """The cores of a socket in one NUMA node, each with its threads, in the order in which they are drawn."""

    socket: int | None
    numa_node: int | None
    cores: tuple[tuple[CpuOwner, ...], ...]

    @property
    def title(self) -> str:
        """The socket, the NUMA node and the numbers of cores and CPUs as text."""
        cpus, cores = sum(map(len, self.cores)), len(self.cores)
        counts = f"{cores} core{'s' * (cores > 1)}, {cpus} CPU{'s' * (cpus > 1)}"
        return f"socket {self.socket}, NUMA node {self.numa_node}: {counts}"


@dataclass(frozen=True, slots=True)
class CpuLegendEntry:
    """A legend entry for a drawing of CPUs: the sign of the CPUs of one pod or, if `pod` is "", in one state."""

    sign: str
    state: CpuState
    pod: str
    cpus: str

    @property
    def label(self) -> str:
        """The pod's name, or the state if no pod owns the CPUs."""
        return self.pod or self.state.value


def core_groups(owners: Sequence[CpuOwner]) -> Iterator[CoreGroup]:
    """Yield the online CPUs by socket and NUMA node, each group with its cores and their threads in ascending order."""
    online = sorted(
        (o for o in owners if o.core is not None), key=lambda o: (o.socket or 0, o.numa_node or 0, o.core or 0, o.cpu)
    )
    for (socket, numa_node), group in groupby(online, key=lambda o: (o.socket, o.numa_node)):
        cores = (tuple(threads) for _, threads in groupby(group, key=lambda o: o.core))
        yield CoreGroup(socket, numa_node, tuple(cores))


def legend(owners: Sequence[CpuOwner]) -> list[CpuLegendEntry]:
    """Return an entry for each pod and each state; a pod's sign is a letter, or MANY if all letters are used."""
    pods = list(dict.fromkeys(owner.pod for owner in owners if owner.state is CpuState.POD))
    entries = []
    for number, pod in enumerate(pods):
        sign = ascii_letters[number] if number < len(ascii_letters) else MANY
        entries.append(CpuLegendEntry(sign, CpuState.POD, pod, format_cpus(o.cpu for o in owners if o.pod == pod)))
    for state, sign in SIGNS.items():
        members = [o.cpu for o in owners if o.state is state]
        if members:
            entries.append(CpuLegendEntry(sign, state, "", format_cpus(members)))
    return entries


def sign_of(owner: CpuOwner, entries: Sequence[CpuLegendEntry]) -> str:
    """Return the sign of a CPU in a drawing with the legend `entries`; MANY if the legend lacks the CPU's pod."""
    if not owner.pod:
        return SIGNS[owner.state]
    return next((entry.sign for entry in entries if entry.pod == owner.pod), MANY)


HIDDEN: Final = "(hidden)"
"""Text in place of the name of a pod that the person may not see."""


@dataclass(frozen=True, slots=True)
class DeviceOwnership:
    """One device and its owners; `pods` are (namespace/name, the pod's largest percent of one of its resources)."""

    name: str
    id: str
    place: str
    state: str
    pods: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's CPUs and devices; `notes` are unreadable parts, as (the pod concerned or "", the reason)."""

    node: str
    cpus: tuple[CpuOwner, ...]
    devices: tuple[DeviceOwnership, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class TopologyService(Protocol):
    """A thread-safe reader of nodes' topologies; raises CotenantError if a right or the topology is missing."""

    def topology(self, who: Person, node: str) -> NodeTopology:
        """Return the node's current topology, with the names of only those pods that the person may see."""


def device_owners(inventory: DeviceInventory, pods: Mapping[str, Allocations]) -> Iterator[DeviceOwnership]:
    """Yield the owners of each device, by kind and minor; `pods` has the allocations by "namespace/name"."""
    taken = TakenDevices.of(pods.values())
    for device in sorted(inventory.devices, key=lambda candidate: candidate.key):
        free = min((taken.free_amounts(device).get(name, 0) for name in PERCENTS[device.kind]), default=0)
        numa_node = f"NUMA node {device.numa_node}" if device.numa_node >= 0 else ""
        pcie = f"PCIe {device.pcie}" if device.pcie else ""
        yield DeviceOwnership(
            name=f"{device.kind} {device.minor}",
            id=device.id or "-",
            place=", ".join(filter(None, (numa_node, pcie))) or "place not known",
            state=f"{free} % free" if device.healthy else "ill",
            pods=tuple(
                # the largest percentage that the pod has of one of the device's resources
                (pod, max((share.amounts.get(name, 0) for name in PERCENTS[device.kind]), default=WHOLE))
                for pod, allocations in sorted(pods.items())
                for share in allocations.get(device.kind, ())
                if share.minor == device.minor
            ),
        )


def visible_to(topology: NodeTopology, who: Person) -> NodeTopology:
    """Return the topology without the names of pods that the person may not see, and without notes on them."""
    namespaces = who.reads
    if namespaces is None:
        return topology

    def name_of(pod: str) -> str:
        return pod if not pod or pod.partition("/")[0] in namespaces else HIDDEN

    return replace(
        topology,
        cpus=tuple(replace(cpu, pod=name_of(cpu.pod)) for cpu in topology.cpus),
        devices=tuple(
            replace(device, pods=_of_others_together(tuple((name_of(pod), percent) for pod, percent in device.pods)))
            for device in topology.devices
        ),
        notes=tuple((pod, text) for pod, text in topology.notes if name_of(pod) == pod),
    )


def _of_others_together(pods: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return the pods with their percentages, hidden ones summed up, which reveals no more than the free rest."""
    hidden = [percent for pod, percent in pods if pod == HIDDEN]
    own = tuple(pod_requests for pod_requests in pods if pod_requests[0] != HIDDEN)
    return (*own, (HIDDEN, sum(hidden))) if hidden else own
