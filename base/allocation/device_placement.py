"""The choice of a pod's devices on a node: the best fit, device by device and place by place. Pure.

One device: the one with the least share left over. Several: from the narrowest place (PCIe switch, NUMA node, node)
that has all of them, and among such places from the one with the least left over. Kinds that are allocated jointly:
`device_joint`. Whole GPUs follow the partitions of the Device object. A device is never given beyond 100 percent of any
of its amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cotenant.base.allocation.device_candidates import (
    NARROW_TO_WIDE,
    Candidate,
    best_fit,
    candidate_on,
    group_by_location,
)
from cotenant.base.allocation.device_joint import JointPlacement, Partition, Picks
from cotenant.base.allocation.device_request import DeviceDemand, DeviceScope
from cotenant.base.allocation.devices import Allocations, DeviceInventory, DeviceKind, GpuPartition, TakenDevices


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """The devices that a pod gets; if it gets none, `refusal` is the reason."""

    allocations: Allocations = field(default_factory=dict)
    refusal: str = ""


def place_devices(inventory: DeviceInventory, taken: TakenDevices, demand: DeviceDemand) -> DevicePlacement:
    """Return the best-fitting devices for a pod on one node, or the reason why it gets none."""
    chosen: dict[DeviceKind, tuple[Candidate, ...]] = {}
    # Kinds that are placed together: the joint ones, and every other by itself
    alone = [(kind,) for kind in demand.requests if kind not in demand.joint]
    for group in [demand.joint, *alone] if demand.joint else list(alone):
        options = _Options(inventory, taken, demand, group)
        picks = options.best()
        if picks is None:
            return DevicePlacement(refusal=options.refusal())
        chosen |= picks
    allocations = {
        kind: tuple(sorted((candidate.share for candidate in picked), key=lambda share: share.minor))
        for kind, picked in chosen.items()
    }
    return DevicePlacement(allocations)


class _Options:
    """The devices that a node can offer to one group of kinds."""

    def __init__(
        self, inventory: DeviceInventory, taken: TakenDevices, demand: DeviceDemand, group: tuple[DeviceKind, ...]
    ) -> None:
        self._inventory, self._taken, self._demand, self._group = inventory, taken, demand, group
        self._candidates = {kind: tuple(self._serving_candidates(kind)) for kind in group}
        self._counts = {kind: self._count(kind) for kind in group}

    def best(self) -> Picks | None:
        if any(not count or count > len(self._candidates[kind]) for kind, count in self._counts.items()):
            return None
        if self._partitions_apply():
            picks = self._narrowest(by_partition=True)
            if picks is not None or self._inventory.honoured or self._demand.restricted or self._demand.ring_bandwidth:
                return picks
        return self._narrowest(by_partition=False)

    def refusal(self) -> str:
        for kind, request in ((kind, self._demand.requests[kind]) for kind in self._group):
            healthy = [device for device in self._inventory.devices if device.kind is kind and device.healthy]
            if not healthy:
                return f"no healthy {kind} on the node"
            count, free = self._counts[kind], len(self._candidates[kind])
            if not count or free < count:
                amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(request.share.items()))
                return f"{free} of {len(healthy)} {kind} devices have {amounts} free; the pod needs {count or 'all'}"
        if self._partitions_apply() and (
            self._inventory.honoured or self._demand.restricted or self._demand.ring_bandwidth
        ):
            return f"no partition of {self._counts[DeviceKind.GPU]} GPUs is free"
        return f"no part of the node has {' and '.join(self._group)} near enough to each other"

    def _count(self, kind: DeviceKind) -> int:
        """Return how many devices of a kind are needed; all that match its selector if the request asks for all."""
        request = self._demand.requests[kind]
        if request.count is not None:
            return request.count
        return sum(
            device.kind is kind and request.selector.matches(device.labels) for device in self._inventory.devices
        )

    def _serving_candidates(self, kind: DeviceKind) -> Iterator[Candidate]:
        request = self._demand.requests[kind]
        for device in self._inventory.devices:
            if device.kind is kind and device.healthy and request.selector.matches(device.labels):
                candidate = candidate_on(device, self._taken, request)
                if candidate is not None:
                    yield candidate

    # --- places -------------------------------------------------------------------------------------------------------
    def _narrowest(self, *, by_partition: bool) -> Picks | None:
        """Return a choice from the narrowest place that has the devices; `by_partition`: as one GPU partition."""
        if len(self._group) > 1:
            return JointPlacement(
                self._group,
                {kind: self._demand.requests[kind] for kind in self._group},
                self._candidates,
                self._counts,
                self._demand.together,
                self._free_partitions(self._candidates[DeviceKind.GPU]) if by_partition else None,
            ).best()
        (kind,) = self._group
        # From narrow to wide: a single device shares its place with none, partitions name it.
        scopes = [scope for scope in NARROW_TO_WIDE if scope <= self._demand.requests[kind].scope]
        if self._counts[kind] == 1:
            scopes = [DeviceScope.NODE]
        for scope in scopes[-1:] if by_partition else scopes:
            options = []
            for place in group_by_location(self._candidates[kind], scope).values():
                rank, picked = self._ranked_best_fit(kind, place, by_partition)
                if len(picked) == self._counts[kind]:
                    remaining = sum(candidate.left for candidate in picked)
                    options.append(((rank, remaining, len(place), _minors(picked)), picked))
            if options:
                return {kind: min(options, key=lambda option: option[0])[1]}
        return None

    def _ranked_best_fit(
        self, kind: DeviceKind, place: list[Candidate], by_partition: bool
    ) -> tuple[int, tuple[Candidate, ...]]:
        """Return the rank of a place, and the best fit in it, which may have too few devices."""
        if not by_partition:
            picked = best_fit(place, self._counts[kind], self._demand.requests[kind])
            minors = frozenset(candidate.device.minor for candidate in picked)
            return -max((partition.score for partition in self._suitable_partitions(minors)), default=0), picked
        best = min(
            self._free_partitions(place), key=lambda partition: (partition.rank, _minors(partition.gpus)), default=None
        )
        return (best.rank[0], best.gpus) if best else (0, ())

    # --- partitions ---------------------------------------------------------------------------------------------------
    def _partitions_apply(self) -> bool:
        """Return whether the node's partitions apply: this group requests GPUs that are not shared."""
        request = self._demand.requests.get(DeviceKind.GPU)
        return bool(
            DeviceKind.GPU in self._group and request is not None and request.whole and self._inventory.partitions
        )

    def _free_partitions(self, offered: Iterable[Candidate]) -> list[Partition]:
        """Return the free partitions of these GPUs; one that breaks fewer others is better."""
        by_minor = {candidate.device.minor: candidate for candidate in offered}
        whole_gpus = frozenset(candidate.device.minor for candidate in self._candidates[DeviceKind.GPU])
        return [
            Partition(
                tuple(by_minor[minor] for minor in sorted(partition.minors)),
                (-partition.score, self._count_broken(partition, whole_gpus)),
            )
            for partition in self._suitable_partitions()
            if partition.minors <= by_minor.keys() and len(partition.minors) == self._counts[DeviceKind.GPU]
        ]

    def _suitable_partitions(self, minors: frozenset[int] | None = None) -> list[GpuPartition]:
        """Return partitions of the requested size that bandwidth and policy allow; `minors`: only of these GPUs."""
        if not self._partitions_apply():
            return []
        listed = self._inventory.partitions.get(self._counts[DeviceKind.GPU], ())
        allowed = [partition for partition in listed if partition.ring_bandwidth >= self._demand.ring_bandwidth]
        if self._demand.restricted and allowed:
            highest = max(partition.score for partition in allowed)
            allowed = [partition for partition in allowed if partition.score == highest]
        return [partition for partition in allowed if minors is None or partition.minors == minors]

    def _count_broken(self, partition: GpuPartition, whole_gpus: frozenset[int]) -> int:
        """Return how many partitions that are free now would no longer be free afterwards."""
        return sum(
            bool(other.minors & partition.minors) and other.minors <= whole_gpus
            for partitions in self._inventory.partitions.values()
            for other in partitions
        )


def _minors(devices: Iterable[Candidate]) -> list[int]:
    return sorted(candidate.device.minor for candidate in devices)
