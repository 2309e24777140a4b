"""A list of a node's devices: what is free of each, and which pods have how much. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cotenant.core.model.allocation.devices import (
    PERCENTS,
    WHOLE,
    Allocations,
    DeviceInventory,
    DeviceKey,
    NodeDevice,
    TakenDevices,
)


def listed(inventory: DeviceInventory, pods: Mapping[str, Allocations]) -> Iterator[str]:
    """The lines, without line ends; pods: what each ("namespace/name") has."""
    taken = TakenDevices.of(pods.values())
    for device in sorted(inventory.devices, key=lambda one: one.key):
        free = min((taken.left(device).get(name, 0) for name in PERCENTS[device.kind]), default=0)
        state = f"{free} % free" if device.healthy else "ill"
        owners = [f"{pod} {percent} %" for pod, percent in _owners(device, pods)]
        yield "  ".join([f"{device.kind} {device.minor}", device.id or "-", _place(device), state, *owners])


def _owners(device: NodeDevice, pods: Mapping[str, Allocations]) -> Iterator[tuple[str, int]]:
    """Who has it, and the largest percentage that each has of one of its resources."""
    key: DeviceKey = device.key
    for pod, allocations in sorted(pods.items()):
        for share in allocations.get(device.kind, ()):
            if (device.kind, share.minor) == key:
                yield pod, max((share.amounts.get(name, 0) for name in PERCENTS[device.kind]), default=WHOLE)


def _place(device: NodeDevice) -> str:
    numa_node = f"NUMA node {device.numa_node}" if device.numa_node >= 0 else ""
    pcie = f"PCIe {device.pcie}" if device.pcie else ""
    return ", ".join(filter(None, (numa_node, pcie))) or "place not known"
