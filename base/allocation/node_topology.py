"""Whose the CPUs and devices of a node are, as pages and commands show it, and who sees which of its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cotenant.base.allocation.cpu_ownership import CpuOwner
from cotenant.base.allocation.devices import PERCENTS, WHOLE, Allocations, DeviceInventory, NodeDevice, TakenDevices
from cotenant.base.people import Person

HIDDEN: Final = "(hidden)"
"""In the place of a pod's name that the person may not see."""


@dataclass(frozen=True, slots=True)
class DeviceOwnership:
    """One device. pods: (namespace/name, percent of it), of each pod the largest of its resources."""

    name: str
    id: str
    place: str
    state: str
    pods: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's CPUs and devices; notes: what could not be read, as (the pod that it is about or "", why)."""

    node: str
    cpus: tuple[CpuOwner, ...]
    devices: tuple[DeviceOwnership, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class TopologyService(Protocol):
    """Thread-safe. Raises CotenantError: the cluster is away, forbids reading, or the node publishes nothing."""

    def topology(self, who: Person, node: str) -> NodeTopology:
        """The present node, with the names of pods that the person may see."""


def device_owners(inventory: DeviceInventory, pods: Mapping[str, Allocations]) -> Iterator[DeviceOwnership]:
    """Yield the owners of each device, by kind and minor; pods: the allocations by "namespace/name"."""
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
            pods=tuple(_owners(device, pods)),
        )


def visible_to(topology: NodeTopology, who: Person) -> NodeTopology:
    """The same without names of pods in namespaces that the person does not read."""
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
    """The pods with their percentages, those that are hidden as one: the sum says no more than what is free."""
    hidden = [percent for pod, percent in pods if pod == HIDDEN]
    own = tuple(pod_requests for pod_requests in pods if pod_requests[0] != HIDDEN)
    return (*own, (HIDDEN, sum(hidden))) if hidden else own


def _owners(device: NodeDevice, pods: Mapping[str, Allocations]) -> Iterator[tuple[str, int]]:
    """Yield the pods that have the device, each with the largest percentage that it has of one of its resources."""
    for pod, allocations in sorted(pods.items()):
        for share in allocations.get(device.kind, ()):
            if share.minor == device.minor:
                yield pod, max((share.amounts.get(name, 0) for name in PERCENTS[device.kind]), default=WHOLE)
