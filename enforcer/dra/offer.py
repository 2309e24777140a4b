"""The devices and cores that a node offers by dynamic resource allocation (resource.k8s.io/v1 ResourceSlice). Pure.

Only whole devices are offered: partitions and shares of a device are alpha in Kubernetes 1.35 and off by default. A
core is one device with all of its threads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.base.allocation.allocator import Holding
from cotenant.base.allocation.cpu_allocator import exclusive_cpus
from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology
from cotenant.base.allocation.device_allocator import taken_by
from cotenant.base.allocation.devices import DeviceInventory, DeviceKey, NodeDevice
from cotenant.base.errors import UsageError
from cotenant.base.identity import NodeIdentity
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Intent
from cotenant.base.kubernetes.protocol import CLAIM_DRIVER, NODE_AGENT
from cotenant.base.kubernetes.quantity import format_bytes

DRIVER: Final = CLAIM_DRIVER
GONE: Final = "gone"
"""Kind of a claimed device that is no longer described; no claim requests this kind."""
API_VERSION: Final = "resource.k8s.io/v1"
DEVICES_PER_SLICE: Final = 128
"""Most devices that the API server accepts in one slice."""
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LONGEST_TEXT: Final = 64
OWN_ATTRIBUTES: Final = frozenset({"kind", "minor", "id", "numaNode", "pcie"})
"""Attributes that no label of a Device may set, even if the device lacks them: claims rely on them."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """The additions to a container that uses a device: environment variables, and device files below /dev."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One offered device of the node's pool; a core has `cpus`, any other device an `id`."""

    name: str
    kind: str
    id: str = ""
    cpus: Cpus = frozenset()
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    memory_bytes: int = 0


def offered_devices(
    inventory: DeviceInventory, edits: Mapping[DeviceKey, ContainerEdits] | None = None, claimed: Collection[str] = ()
) -> list[OfferedDevice]:
    """Return the healthy devices and all claimed ones; `edits` is what a container gets besides the device's id."""
    chosen = (device for device in inventory.devices if device.healthy or device.name in claimed)
    return [_device_offer(device, (edits or {}).get(device.key)) for device in chosen]


def offered_cores(topology: CpuTopology, cpus: Cpus) -> list[OfferedDevice]:
    """Return the cores all of whose threads are in `cpus`; raise UsageError for CPUs that the machine does not have."""
    if absent := cpus - topology.cpus:
        raise UsageError(
            f"enforcer.dra.cpus: the machine has no CPU {min(absent)}", fix=f"It has {len(topology.cpus)} CPUs."
        )
    cores = []
    for core, threads in topology.cores.items():
        if cpus >= set(threads):
            first = topology.by_id[threads[0]]
            attributes = {"socket": first.socket, "numaNode": first.numa_node, "threads": len(threads)}
            attributes |= {f"l{level}": number for level, number in topology.caches_of_cpu.get(first.id, {}).items()}
            attributes["isolated"] = not topology.isolated.isdisjoint(threads)
            cores.append(OfferedDevice(f"cpu-{core}", "cpu", cpus=frozenset(threads), attributes=attributes))
    return cores


def unshared_offers(
    offers: Sequence[OfferedDevice], inventory: DeviceInventory, holdings: Iterable[Holding]
) -> tuple[list[OfferedDevice], list[str]]:
    """Return the offers that no pod uses through an annotation, and the names of the other offers."""
    pods = list(holdings)
    cpus, taken = exclusive_cpus(pods), taken_by(pods)
    shared = {device.name for device in inventory.devices if any(taken.amounts.get(device.key, {}).values())}
    names = [offer.name for offer in offers if offer.name in shared or offer.cpus & cpus]
    return [offer for offer in offers if offer.name not in names], names


def with_claimed(
    offers: Sequence[OfferedDevice], described: Iterable[OfferedDevice], claimed: Collection[str]
) -> list[OfferedDevice]:
    """Return the devices to publish: first those that have a claim but are not offered now, then the offered ones.

    In the other order, a device that moves to a later slice would be in no slice between the two writes. A claimed
    device that is no longer described has kind GONE, so that no other pod gets it if it returns.
    """
    by_name = {offer.name: offer for offer in described}
    missing = sorted(set(claimed) - {offer.name for offer in offers})
    return [*(by_name.get(name, OfferedDevice(name, GONE)) for name in missing), *offers]


def _device_offer(device: NodeDevice, edits: ContainerEdits | None) -> OfferedDevice:
    attributes: dict[str, str | int] = {
        key: value[:_LONGEST_TEXT]
        for key, value in sorted(device.labels.items())
        if _ATTRIBUTE.fullmatch(key) and key not in OWN_ATTRIBUTES
    }
    attributes |= {"minor": device.minor, "id": device.id[:_LONGEST_TEXT]}
    if device.numa_node >= 0:
        attributes["numaNode"] = device.numa_node
    if device.pcie:
        attributes["pcie"] = device.pcie[:_LONGEST_TEXT]
    edits = edits or ContainerEdits()
    return OfferedDevice(device.name, device.kind, device.id, frozenset(), edits, attributes, device.memory_bytes)


def publication(
    node: NodeIdentity, offers: Sequence[OfferedDevice], published: Iterable[Mapping[str, Any]]
) -> list[Intent]:
    """Return the writes after which the node's ResourceSlices offer these devices.

    `published`: the driver's present slices. A changed set of slices gets a higher generation of the pool, so that the
    scheduler never mixes it with slices of the old set.
    """
    name, uid = node
    slices = {slice_["metadata"]["name"]: slice_ for slice_ in published}
    generations = [slice_["spec"]["pool"]["generation"] for slice_ in slices.values()]
    current = max(generations, default=1)
    desired = _bodies(name, uid, offers, current)
    if slices.keys() == desired.keys() and all(slices[key]["spec"] == desired[key]["spec"] for key in desired):
        return []
    if slices:
        desired = _bodies(name, uid, offers, current + 1)
    why = "the devices that the node offers"
    writes: list[Intent] = [Apply(_address(key), body, why=why) for key, body in desired.items()]
    removed = [key for key in slices if key not in desired]
    return writes + [Delete(_address(key), why="the node offers fewer devices") for key in removed]


def _bodies(node: str, uid: str, offers: Sequence[OfferedDevice], generation: int) -> dict[str, Json]:
    parts = [offers[first : first + DEVICES_PER_SLICE] for first in range(0, len(offers), DEVICES_PER_SLICE)]
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    bodies = {}
    for number, part in enumerate(parts):
        name = f"{node}-cotenant-{number}"
        bodies[name] = _address(name).manifest(
            "ResourceSlice",
            {"labels": {"app.kubernetes.io/managed-by": NODE_AGENT}, "ownerReferences": [owner]},
            spec={"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [_device(offer) for offer in part]},
        )
    return bodies


def _device(offer: OfferedDevice) -> Json:
    attributes = {"kind": offer.kind, **offer.attributes}
    typed = {
        key: {"bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string": value}
        for key, value in attributes.items()
    }
    body: Json = {"name": offer.name, "attributes": typed}
    if offer.memory_bytes:
        body["capacity"] = {"memory": {"value": format_bytes(offer.memory_bytes)}}
    return body


def _address(name: str) -> Address:
    return Address(API_VERSION, "resourceslices", name)
