"""Which devices of a node a pod gets: the best fit, device by device and place by place. Pure.

One device: the one that is left with the least. Several, or kinds that are allocated jointly: from the narrowest place
(PCIe switch, NUMA node, node) that has all of them, and among such places from the one that is left with the least.
Whole GPUs follow the partitions of the Device object. A device is never given beyond 100 percent of any of its amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cotenant.core.model.allocation.device_request import DeviceDemand, DeviceScope, KindRequest
from cotenant.core.model.allocation.devices import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    WHOLE,
    Allocations,
    DeviceInventory,
    DeviceKind,
    DeviceShare,
    GpuPartition,
    NodeDevice,
    TakenDevices,
    VirtualFunction,
)
from cotenant.core.model.kubernetes.pod_request import Room, fits

_NARROW_TO_WIDE: Final = (DeviceScope.PCIE, DeviceScope.NUMA_NODE, DeviceScope.NODE)


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """The devices that a pod gets, or why it gets none."""

    allocations: Allocations = field(default_factory=dict)
    refusal: str = ""


class _Candidate(NamedTuple):
    """A device that can serve a request, and its free share afterwards (0 to 1)."""

    device: NodeDevice
    share: DeviceShare
    left: float

    @property
    def rank(self) -> tuple[float, int]:
        return self.left, self.device.minor


_Picks = Mapping[DeviceKind, tuple[_Candidate, ...]]


def place_devices(inventory: DeviceInventory, taken: TakenDevices, demand: DeviceDemand) -> DevicePlacement:
    """The best fit for a pod on one node."""
    chosen: dict[DeviceKind, tuple[_Candidate, ...]] = {}
    for group in _groups(demand):
        options = _Options(inventory, taken, demand, group)
        picks = options.best()
        if picks is None:
            return DevicePlacement(refusal=options.refusal())
        chosen |= picks
    allocations = {
        kind: tuple(sorted((one.share for one in picked), key=lambda share: share.minor))
        for kind, picked in chosen.items()
    }
    return DevicePlacement(allocations)


def _groups(demand: DeviceDemand) -> list[tuple[DeviceKind, ...]]:
    """Kinds that are placed together: the joint ones, and every other by itself."""
    alone = [(kind,) for kind in demand.requests if kind not in demand.joint]
    return [demand.joint, *alone] if demand.joint else list(alone)


class _Options:
    """What a node can offer to one group of kinds."""

    def __init__(
        self, inventory: DeviceInventory, taken: TakenDevices, demand: DeviceDemand, group: tuple[DeviceKind, ...]
    ) -> None:
        self._inventory, self._taken, self._demand, self._group = inventory, taken, demand, group
        self._candidates = {kind: tuple(self._serving(kind)) for kind in group}
        self._counts = {kind: self._count(kind) for kind in group}

    def best(self) -> _Picks | None:
        """The best choice; None when there is none."""
        if any(not count or count > len(self._candidates[kind]) for kind, count in self._counts.items()):
            return None
        if self._partitioned():
            picks = self._narrowest(by_partition=True)
            if picks is not None or self._inventory.honoured or self._demand.restricted or self._demand.ring_bandwidth:
                return picks
        return self._narrowest(by_partition=False)

    def refusal(self) -> str:
        """Why there is no choice, in words."""
        for kind, request in self._requests():
            healthy = [one for one in self._inventory.devices if one.kind is kind and one.healthy]
            if not healthy:
                return f"no healthy {kind} on the node"
            count, free = self._counts[kind], len(self._candidates[kind])
            if not count or free < count:
                amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(request.share.items()))
                return f"{free} of {len(healthy)} {kind} devices have {amounts} free, {count or 'all'} needed"
        if self._partitioned() and (self._inventory.honoured or self._demand.restricted or self._demand.ring_bandwidth):
            return f"no partition of {self._counts[DeviceKind.GPU]} GPUs is free"
        return f"no place on the node has {' and '.join(self._group)} near enough to each other"

    def _requests(self) -> Iterator[tuple[DeviceKind, KindRequest]]:
        return ((kind, self._demand.requests[kind]) for kind in self._group)

    def _count(self, kind: DeviceKind) -> int:
        """How many devices of a kind are needed; all that it has when the request says so."""
        request = self._demand.requests[kind]
        if request.count is not None:
            return request.count
        return sum(one.kind is kind and request.selector.matches(one.labels) for one in self._inventory.devices)

    def _serving(self, kind: DeviceKind) -> Iterator[_Candidate]:
        request = self._demand.requests[kind]
        for device in self._inventory.devices:
            if device.kind is kind and device.healthy and request.selector.matches(device.labels):
                candidate = candidate_on(device, self._taken, request)
                if candidate is not None:
                    yield candidate

    # --- places -------------------------------------------------------------------------------------------------------
    def _narrowest(self, *, by_partition: bool) -> _Picks | None:
        for scope in self._scopes(by_partition):
            options = [
                (self._rank(picks, place), picks)
                for place in self._places(scope)
                if (picks := self._picked(place, by_partition)) is not None
            ]
            if options:
                return min(options, key=lambda option: option[0])[1]
        if self._demand.together and len(self._group) > 1 and not by_partition:
            return self._paired()
        return None

    def _scopes(self, by_partition: bool) -> Iterable[DeviceScope]:
        """Places worth a look, from narrow to wide: a single device shares its place with none, partitions name it."""
        widest = min(request.scope for _, request in self._requests())
        if self._demand.together and len(self._group) > 1:
            widest = min(widest, DeviceScope.PCIE)
        if len(self._group) == 1 and self._counts[self._group[0]] == 1:
            return (DeviceScope.NODE,)
        scopes = [scope for scope in _NARROW_TO_WIDE if scope <= widest]
        return scopes[-1:] if by_partition and len(self._group) == 1 else scopes

    def _places(self, scope: DeviceScope) -> list[dict[DeviceKind, list[_Candidate]]]:
        """Candidates by place; a device whose place is not known is in none but the node."""
        places: dict[object, dict[DeviceKind, list[_Candidate]]] = {}
        for kind, candidates in self._candidates.items():
            for one in candidates:
                place = _place(one.device, scope)
                if place is not None:
                    places.setdefault(place, {}).setdefault(kind, []).append(one)
        return list(places.values())

    def _picked(self, place: Mapping[DeviceKind, list[_Candidate]], by_partition: bool) -> _Picks | None:
        """The best fit of every kind within one place; None when it has too few of one."""
        picks = {}
        for kind, request in self._requests():
            offered, count = place.get(kind, []), self._counts[kind]
            if by_partition and kind is DeviceKind.GPU:
                picked = self._partition(offered, count)
            else:
                picked = _best_fit(offered, count, request.apart)
            if len(picked) < count:
                return None
            picks[kind] = picked
        return picks

    def _rank(self, picks: _Picks, place: Mapping[DeviceKind, list[_Candidate]]) -> tuple[int, float, int, list[int]]:
        """Smaller is better: the better partition, what is left on the devices, then what is left in the place."""
        gpus = frozenset(one.device.minor for one in picks.get(DeviceKind.GPU, ()))
        score = max((partition.score for partition in self._fitting(gpus)), default=0)
        left = sum(one.left for picked in picks.values() for one in picked)
        beside = sum(map(len, place.values())) - sum(map(len, picks.values()))
        return -score, left, beside, sorted(one.device.minor for one in picks[self._group[0]])

    def _paired(self) -> _Picks | None:
        """Devices over several PCIe switches, each of which has some of every kind; as few switches as can be."""
        leading, *others = self._group
        switches = [place for place in self._places(DeviceScope.PCIE) if all(place.get(kind) for kind in self._group)]
        switches.sort(key=lambda place: (-len(place[leading]), min(one.rank for one in place[leading])))
        used: list[dict[DeviceKind, list[_Candidate]]] = []
        leads: list[_Candidate] = []
        for place in switches:
            if len(leads) < self._counts[leading]:
                leads += sorted(place[leading], key=lambda one: one.rank)[: self._counts[leading] - len(leads)]
                used.append(place)
        if len(leads) < self._counts[leading]:
            return None
        picks = {leading: tuple(leads)}
        for kind in others:
            picked = _one_from_each([sorted(place[kind], key=lambda one: one.rank) for place in used])
            if not len(used) <= self._counts[kind] <= len(picked):
                return None
            picks[kind] = tuple(picked[: self._counts[kind]])
        return picks

    # --- partitions ---------------------------------------------------------------------------------------------------
    def _partitioned(self) -> bool:
        """Whether the node's partitions bear on this group: it asks for whole GPUs."""
        request = self._demand.requests.get(DeviceKind.GPU)
        return bool(
            DeviceKind.GPU in self._group and request is not None and request.whole and self._inventory.partitions
        )

    def _partition(self, offered: list[_Candidate], count: int) -> tuple[_Candidate, ...]:
        """The best free partition among these GPUs; empty when none is."""
        by_minor = {one.device.minor: one for one in offered}
        free = [one for one in self._fitting() if one.minors <= by_minor.keys() and len(one.minors) == count]
        if not free:
            return ()
        whole = frozenset(one.device.minor for one in self._candidates[DeviceKind.GPU])
        best = min(free, key=lambda one: (-one.score, self._broken(one, whole), sorted(one.minors)))
        return tuple(by_minor[minor] for minor in sorted(best.minors))

    def _fitting(self, minors: frozenset[int] | None = None) -> list[GpuPartition]:
        """Partitions of the demanded size that its bandwidth and policy allow; minors: only the one of these GPUs."""
        if not self._partitioned():
            return []
        listed = self._inventory.partitions.get(self._counts[DeviceKind.GPU], ())
        allowed = [one for one in listed if one.ring_bandwidth >= self._demand.ring_bandwidth]
        if self._demand.restricted and allowed:
            highest = max(one.score for one in allowed)
            allowed = [one for one in allowed if one.score == highest]
        return [one for one in allowed if minors is None or one.minors == minors]

    def _broken(self, partition: GpuPartition, whole: frozenset[int]) -> int:
        """How many partitions that are free now would not be free afterwards."""
        return sum(
            bool(other.minors & partition.minors) and other.minors <= whole
            for partitions in self._inventory.partitions.values()
            for other in partitions
        )


def candidate_on(device: NodeDevice, taken: TakenDevices, request: KindRequest) -> _Candidate | None:
    """The share that a request would have of a device; None when that much is not free."""
    amounts = amounts_on(request.share, device.memory_bytes)
    free = taken.left(device)
    if not fits(amounts, free):
        return None
    functions: tuple[VirtualFunction, ...] = ()
    if request.function_selector is not None:
        functions = tuple(
            one
            for one in device.functions
            if request.function_selector.matches(one.labels) and (device.key, one.bus) not in taken.functions
        )[:1]
        if not functions:
            return None
    left = sum((free[name] - amount) / device.amounts[name] for name, amount in amounts.items() if amount)
    share = DeviceShare(device.minor, amounts, device.id, functions)
    return _Candidate(device, share, left / max(len(amounts), 1))


def amounts_on(share: Room, memory_bytes: int) -> dict[str, int]:
    """The share in a device's own amounts: memory in percent and in bytes, as Koordinator writes both.

    memory_bytes: all that the device has, 0 = none or not known.

    A percent of bytes is rounded down, and so are bytes in percent: neither ever adds up to more than the device has.
    """
    amounts = dict(share)
    if GPU_MEMORY_RATIO in share and memory_bytes:
        amounts[GPU_MEMORY] = share[GPU_MEMORY_RATIO] * memory_bytes // WHOLE
    elif GPU_MEMORY in share and memory_bytes:
        amounts[GPU_MEMORY_RATIO] = share[GPU_MEMORY] * WHOLE // memory_bytes
    return amounts


def _place(device: NodeDevice, scope: DeviceScope) -> object:
    """Where a device is at a scope; None when that is not known."""
    if scope is DeviceScope.PCIE:
        return device.pcie or None
    if scope is DeviceScope.NUMA_NODE:
        return device.numa_node if device.numa_node >= 0 else None
    return "node"


def _best_fit(offered: list[_Candidate], count: int, apart: bool) -> tuple[_Candidate, ...]:
    """Those that are left with the least, at most `count`; apart: no two on one PCIe switch."""
    picked: list[_Candidate] = []
    for one in sorted(offered, key=lambda one: one.rank):
        if len(picked) < count and not (apart and one.device.pcie in {p.device.pcie for p in picked if p.device.pcie}):
            picked.append(one)
    return tuple(picked)


def _one_from_each(lists: list[list[_Candidate]]) -> list[_Candidate]:
    """The first of each, then the second of each, and so on."""
    longest = max(map(len, lists), default=0)
    return [one[number] for number in range(longest) for one in lists if number < len(one)]
