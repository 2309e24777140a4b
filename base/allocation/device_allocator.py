"""The allocator of devices: GPUs, RDMA cards and FPGAs, or shares of them, from the node's Device object. Pure.

Its decision is the annotation `device-allocated`. The device's driver and the container's own libraries decide whether
a process keeps to its share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.allocation.allocator import Allotment, HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.device_placement import place_devices
from cotenant.base.allocation.device_request import (
    HINT_ANNOTATION,
    JOINT_ANNOTATION,
    DeviceDemand,
    asks_for_devices,
    demand_of,
)
from cotenant.base.allocation.devices import (
    DEVICE_ALLOCATED_ANNOTATION,
    GPU_PARTITION_POLICY_LABEL,
    Allocations,
    DeviceInventory,
    TakenDevices,
    decode_allocations,
    encode_allocations,
    inventory_of,
)
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import DEVICES_BY_CLAIMS, DEVICES_LABEL, SCHEDULING_GROUP

COLLECTION: Final = f"/apis/{SCHEDULING_GROUP}/devices"
NO_DEVICES: Final = "the node has no readable Device object, or the node's label leaves its devices to ResourceClaims"


@dataclass(frozen=True, slots=True)
class DeviceAllocator:
    """The allocator of devices and shares of devices."""

    collection: str = COLLECTION
    wishes: tuple[str, ...] = (HINT_ANNOTATION, JOINT_ANNOTATION)
    result: str = DEVICE_ALLOCATED_ANNOTATION

    def concerns(self, claim: HardwareClaim) -> bool:
        """Return whether the pod requests a device."""
        return asks_for_devices(claim.requests)

    def request(self, claim: HardwareClaim) -> DeviceDemand:
        """Return the pod's device demand, independent of the node.

        Raise UsageError, naming the pod, if its request cannot be served by any node.
        """
        return demand_of(claim.requests, claim.pod.annotations, f"{claim.pod.namespace}/{claim.pod.name}")

    def allocate(self, node: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]) -> Allotment:
        """Return the pod's devices on this node, or a refusal; raise UsageError for a request that no node serves."""
        inventory = inventory_on(node)
        if inventory is None:
            return Allotment(refusal=NO_DEVICES)
        placement = place_devices(inventory, taken_by(holdings), self.request(claim))
        if placement.refusal:
            claimed = sorted(node.claimed & {device.name for device in inventory.devices})
            others = f"; the node's ResourceSlices still have {', '.join(claimed)}" if claimed else ""
            return Allotment(refusal=f"{placement.refusal}{others}")
        return Allotment({DEVICE_ALLOCATED_ANNOTATION: encode_allocations(placement.allocations)})


def inventory_on(node: NodeHardware) -> DeviceInventory | None:
    """Return a node's devices; None without a readable Device object, or if a Node label leaves them to ResourceClaims.

    A device that the node's ResourceSlices still list (`claimed`) counts as unhealthy. Whole GPUs are given only as
    partitions (`honoured`) if a label of the Device object or of the Node says so.
    """
    body = node.documents.get(COLLECTION)
    if body is None or node.labels.get(DEVICES_LABEL) == DEVICES_BY_CLAIMS:
        return None
    try:
        inventory = inventory_of(body)
    except UsageError:
        return None
    honoured = inventory.honoured or node.labels.get(GPU_PARTITION_POLICY_LABEL) == "Honor"
    devices = tuple(
        replace(device, healthy=False) if device.name in node.claimed else device for device in inventory.devices
    )
    return DeviceInventory(devices, inventory.partitions, honoured)


def taken_by(holdings: Iterable[Holding]) -> TakenDevices:
    """Return the devices that these pods have.

    A pod's annotation is skipped if it is unreadable, or if it exceeds the pod's requests and is not from the ledger.
    """
    taken = []
    for holding in holdings:
        with suppress(UsageError):
            allocations = decode_allocations(holding.annotations.get(DEVICE_ALLOCATED_ANNOTATION, ""), holding.pod)
            if holding.entered or _is_within_demand(allocations, _largest_demand(holding)):
                taken.append(allocations)
    return TakenDevices.of(taken)


def _largest_demand(holding: Holding) -> DeviceDemand:
    """Return the most that a pod may have by its requests, its hint and its joint allocation.

    Other annotations do not change the amount, nor do those that only another scheduler reads.
    """
    annotations_so_far: dict[str, str] = {}
    demand = demand_of(holding.requests, annotations_so_far, holding.pod)
    for name in (HINT_ANNOTATION, JOINT_ANNOTATION):
        if name in holding.annotations:
            added = annotations_so_far | {name: holding.annotations[name]}
            with suppress(UsageError):
                demand, annotations_so_far = demand_of(holding.requests, added, holding.pod), added
    return demand


def _is_within_demand(allocations: Allocations, demand: DeviceDemand) -> bool:
    leading = len(allocations.get(demand.joint[0], ())) if demand.joint else 0
    for kind, shares in allocations.items():
        most = demand.most(kind, leading)
        if most is not None and len(shares) > most:
            return False
        request = demand.requests.get(kind)
        if request is not None and any(
            share.amounts.get(name, 0) > amount for share in shares for name, amount in request.share.items()
        ):
            return False
    return True
