"""Find the nodes with free devices for a pod that requests shares of devices, from a summary per node. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np

from cotenant.base.allocation.allocator import HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.device_allocator import DeviceAllocator, inventory_on, taken_by
from cotenant.base.allocation.device_candidates import amounts_on
from cotenant.base.allocation.device_placement import place_devices
from cotenant.base.allocation.device_request import DeviceDemand, KindRequest
from cotenant.base.allocation.devices import DeviceInventory, TakenDevices
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_request import fits
from cotenant.scheduler_ext.arrays import Codes, Rows
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import DeviceAllocationSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot
from cotenant.scheduler_ext.extender.watch.frame import FreeDevices


def free_devices(node: NodeHardware, pods: Iterable[NewPod]) -> FreeDevices | None:
    """Return the amounts of a node's healthy devices that these pods leave; None without a readable Device object."""
    inventory = inventory_on(node)
    if inventory is None:
        return None
    taken = taken_by(Holding(pod.key, pod.identity.uid, pod.identity.annotations, pod.requests) for pod in pods)
    free: dict[str, list[tuple[dict[str, int], int]]] = {}
    begun_devices: dict[str, list[tuple[dict[str, int], int]]] = {}
    for device in inventory.devices:
        if device.healthy:
            left_amounts = taken.free_amounts(device)
            free.setdefault(device.kind.value, []).append((left_amounts, device.memory_bytes))
            if left_amounts != device.amounts:
                begun_devices.setdefault(device.kind.value, []).append((left_amounts, device.memory_bytes))
    return FreeDevices(free, begun_devices, inventory, taken, _digest(inventory, taken))


def _digest(inventory: DeviceInventory, taken: TakenDevices) -> bytes:
    """Return a digest of everything that a placement reads; the devices' own names are not part of it."""
    devices = tuple(replace(device, id="") for device in inventory.devices)
    use = (sorted(taken.amounts.items()), sorted(taken.functions))
    content = (devices, sorted(inventory.partitions.items()), inventory.honoured, use)
    return hashlib.blake2b(msgspec.msgpack.encode(content, order="deterministic"), digest_size=16).digest()


def refusal(of_node: FreeDevices | None, demand: DeviceDemand, parsed_demand: _Demand | None = None) -> Code:
    """Return PASS if a node with these free devices can serve the demand, else the reason; NO_DEVICES for None.

    `parsed_demand` is the demand as a `_Demand`, if the caller has one already.
    """
    if of_node is None:
        return Code.NO_DEVICES
    for kind, request in demand.requests.items():
        devices = of_node.free.get(kind.value, [])
        if not devices or _count_fitting_devices(devices, request) < (request.count or 1):
            return Code.FEW_DEVICES
    if of_node.inventory is None or not (demand.chooses or of_node.inventory.partitions):
        return Code.PASS
    return _placement_code(_State(of_node), parsed_demand or _Demand(demand))


class _State:
    """A node's devices and their use; equal for nodes on which a placement finds the same."""

    def __init__(self, devices: FreeDevices) -> None:
        self.inventory, self.taken = devices.inventory or DeviceInventory(), devices.taken or TakenDevices()
        self._digest = devices.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _State) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


class _Demand:
    """A pod's demand for devices, hashable; pods with the same demand are equal."""

    def __init__(self, demand: DeviceDemand) -> None:
        self.demand, self._text = demand, repr(demand)
        self._hash = hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Demand) and self._text == other._text

    def __hash__(self) -> int:
        return self._hash


@lru_cache(maxsize=4096)
def _placement_code(state: _State, parsed_demand: _Demand) -> Code:
    """Return PASS if the placement finds devices that fit, else DEVICES_UNFIT."""
    placement = place_devices(state.inventory, state.taken, parsed_demand.demand)
    return Code.DEVICES_UNFIT if placement.refusal else Code.PASS


def apply(codes: Codes, snapshot: NodeSnapshot, rows: Rows, pod: NewPod, settings: DeviceAllocationSettings) -> None:
    """Set a refusal in `codes` (n,), in place, for rows without devices for the pod; row -1 (unknown node) passes."""
    demand, unread = _demand(pod, settings)
    if demand is None and not unread:
        return
    parsed_demand = _Demand(demand) if demand else None
    for index, row in enumerate(rows.tolist()):
        if row >= 0:
            devices = snapshot.device_rooms.get(snapshot.names[row])
            code = refusal(devices, demand, parsed_demand) if demand else Code.DEVICE_REQUEST
            if code != Code.PASS:
                codes[index] = code


def begun(snapshot: NodeSnapshot, pod: NewPod, rows: Rows, settings: DeviceAllocationSettings) -> Rows:
    """Return the indices (m,) of `rows` where the pod's share fits on partly used devices, so that others stay whole.

    All indices if there is no such row, and for a pod that requests no share.
    """
    demand, _ = _demand(pod, settings)
    everywhere = np.arange(len(rows), dtype=np.intp)
    shares = {kind: r for kind, r in demand.requests.items() if not r.whole} if demand else {}
    if not shares:
        return everywhere
    rooms = [snapshot.device_rooms.get(snapshot.names[row]) if row >= 0 else None for row in rows.tolist()]
    fitting = [
        devices is not None
        and all(_count_fitting_devices(devices.begun.get(k.value, []), r) >= (r.count or 1) for k, r in shares.items())
        for devices in rooms
    ]
    near = np.array(fitting, np.bool_)
    return everywhere[near] if near.any() else everywhere


def _count_fitting_devices(devices: list[tuple[dict[str, int], int]], request: KindRequest) -> int:
    return sum(fits(amounts_on(request.share, memory_bytes), free) for free, memory_bytes in devices)


def _demand(pod: NewPod, settings: DeviceAllocationSettings) -> tuple[DeviceDemand | None, bool]:
    """Return the pod's demand for devices (None if it has none), and whether it is one that cannot be served."""
    if not (settings.on and pod.wants_bind):  # nearly every pod
        return None, False
    claim, allocator = HardwareClaim(pod.identity, pod.requests), DeviceAllocator()
    if not allocator.concerns(claim):
        return None, False
    try:
        return allocator.request(claim), False
    except UsageError:
        return None, True
