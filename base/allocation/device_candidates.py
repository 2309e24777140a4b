"""The devices that can serve a request, each with the share that it would give, and their locations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from cotenant.base.allocation.device_request import DeviceScope, KindRequest
from cotenant.base.allocation.devices import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    WHOLE,
    DeviceShare,
    NodeDevice,
    TakenDevices,
    VirtualFunction,
)
from cotenant.base.kubernetes.pod_request import Amounts, fits

NARROW_TO_WIDE: Final = (DeviceScope.PCIE, DeviceScope.NUMA_NODE, DeviceScope.NODE)
"""Places that several devices can share."""


class Candidate(NamedTuple):
    """A device that can serve a request, and the share of it (0 to 1) that would then be left."""

    device: NodeDevice
    share: DeviceShare
    left: float

    @property
    def rank(self) -> tuple[float, int]:
        """The order of preference, smaller is better: by the share that would be left, then by the device's number."""
        return self.left, self.device.minor


def candidate_on(device: NodeDevice, taken: TakenDevices, request: KindRequest) -> Candidate | None:
    """Return the device as a candidate, or None if the requested share or virtual function is not free."""
    amounts = amounts_on(request.share, device.memory_bytes)
    free = taken.free_amounts(device)
    if not fits(amounts, free):
        return None
    functions: tuple[VirtualFunction, ...] = ()
    if request.function_selector is not None:
        functions = tuple(
            function
            for function in device.functions
            if request.function_selector.matches(function.labels) and (device.key, function.bus) not in taken.functions
        )[:1]
        if not functions:
            return None
    remaining = sum((free[name] - amount) / device.amounts[name] for name, amount in amounts.items() if amount)
    share = DeviceShare(device.minor, amounts, device.id, functions)
    return Candidate(device, share, remaining / max(len(amounts), 1))


def amounts_on(share: Amounts, memory_bytes: int) -> dict[str, int]:
    """Return a share as amounts of one device, its memory both in percent and in bytes, the way Koordinator writes it.

    `memory_bytes` is the device's memory, 0 if it has none or it is unknown. A conversion between percent and bytes
    rounds down, so that shares never exceed the device.
    """
    amounts = dict(share)
    if GPU_MEMORY_RATIO in share and memory_bytes:
        amounts[GPU_MEMORY] = share[GPU_MEMORY_RATIO] * memory_bytes // WHOLE
    elif GPU_MEMORY in share and memory_bytes:
        amounts[GPU_MEMORY_RATIO] = share[GPU_MEMORY] * WHOLE // memory_bytes
    return amounts


def location_at_scope(device: NodeDevice, scope: DeviceScope) -> object:
    """Return the location of a device at a scope, or None if it is unknown."""
    if scope is DeviceScope.DEVICE:
        return device.key
    if scope is DeviceScope.PCIE:
        return device.pcie or None
    if scope is DeviceScope.NUMA_NODE:
        return device.numa_node if device.numa_node >= 0 else None
    return "node"


def group_by_location(candidates: Iterable[Candidate], scope: DeviceScope) -> dict[object, list[Candidate]]:
    """Group candidates by their location at a scope, in the given order; those of unknown location are left out."""
    places: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        place = location_at_scope(candidate.device, scope)
        if place is not None:
            places.setdefault(place, []).append(candidate)
    return places


def first_per_switch(in_order: Iterable[Candidate]) -> list[Candidate]:
    """Return the first candidate of each PCIe switch, and all whose switch is unknown."""
    switches: set[str] = set()
    chosen = []
    for candidate in in_order:
        if candidate.device.pcie not in switches:
            chosen.append(candidate)
        if candidate.device.pcie:
            switches.add(candidate.device.pcie)
    return chosen


def best_fit(offered: Iterable[Candidate], count: int, request: KindRequest) -> tuple[Candidate, ...]:
    """Return at most `count` candidates, the least left over first; if `apart` is requested, one per PCIe switch."""
    in_order = sorted(offered, key=lambda candidate: candidate.rank)
    return tuple((first_per_switch(in_order) if request.apart else in_order)[:count])
