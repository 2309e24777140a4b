"""Whose each CPU of a node is: a pod's, the kubelet's, reserved, or shared. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from string import ascii_letters
from typing import Final

from cotenant.base.allocation.cpu_annotations import reserved_cpus, system_cpus
from cotenant.base.allocation.cpu_lists import Cpus, format_cpus
from cotenant.base.allocation.topology_document import NodeCpus


class CpuState(StrEnum):
    """The use of a CPU: shared, of one pod alone, reserved, of the system, isolated or offline."""

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


SIGNS: Final = {
    CpuState.SHARED: ".",
    CpuState.RESERVED: "#",
    CpuState.KUBELET_RESERVED: "%",
    CpuState.SYSTEM: "$",
    CpuState.ISOLATED: "!",
    CpuState.OFFLINE: "-",
}
MANY: Final = "*"
"""Sign of pods behind the last letter."""


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """The cores of a socket in one NUMA node, each with its threads, in the order of a drawing."""

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
    """A sign of the drawing, its meaning and its CPUs as a list of ranges; `pod` is "" unless one pod owns them."""

    sign: str
    state: CpuState
    pod: str
    cpus: str

    @property
    def label(self) -> str:
        """The pod, else the state."""
        return self.pod or self.state.value


def core_groups(owners: Sequence[CpuOwner]) -> Iterator[CoreGroup]:
    """CPUs that are online, by socket, NUMA node, core and number."""
    online = sorted(
        (o for o in owners if o.core is not None), key=lambda o: (o.socket or 0, o.numa_node or 0, o.core or 0, o.cpu)
    )
    for (socket, numa_node), group in groupby(online, key=lambda o: (o.socket, o.numa_node)):
        cores = (tuple(threads) for _, threads in groupby(group, key=lambda o: o.core))
        yield CoreGroup(socket, numa_node, tuple(cores))


def legend(owners: Sequence[CpuOwner]) -> list[CpuLegendEntry]:
    """An entry for each pod and each state that occurs; a pod's sign is a letter, or MANY behind the last one."""
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
    """The sign of one CPU in a drawing with that legend."""
    if not owner.pod:
        return SIGNS[owner.state]
    return next((entry.sign for entry in entries if entry.pod == owner.pod), MANY)
