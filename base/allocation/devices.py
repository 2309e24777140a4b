"""The devices of a node as its Device object (scheduling.koordinator.sh/v1alpha1) lists them, and the shares of pods.

Pure. Amounts are integers by resource name: percent of one device for `gpu-core`, `gpu-memory-ratio`, `rdma` and
`fpga`, bytes for `gpu-memory`. Source of names and forms: Koordinator's `apis/scheduling/v1alpha1` and `apis/extension`
(DeviceAllocations, GPUPartitionTable).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.metadata import ObjectLabels
from cotenant.base.kubernetes.pod_request import Amounts, parse_quantities, rest, sum_amounts
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.base.kubernetes.quantity import format_bytes, parse_bytes
from cotenant.base.text import format_value

GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
DEVICE_ALLOCATED_ANNOTATION: Final = "scheduling.koordinator.sh/device-allocated"
"""On a bound pod: the devices that it has, written together with its binding."""
GPU_PARTITIONS_ANNOTATION: Final = "scheduling.koordinator.sh/gpu-partitions"
"""On a Device: the groups of whole GPUs that belong together, by the number of GPUs in a group."""
GPU_PARTITION_POLICY_LABEL: Final = "node.koordinator.sh/gpu-partition-policy"
"""On a Device: "Honor" = no other combination of whole GPUs than the partitions; else they are only preferred."""
WHOLE: Final = 100
"""Percent of a device."""


class DeviceKind(StrEnum):
    """The kinds of devices that can be shared."""

    GPU = "gpu"
    RDMA = "rdma"
    FPGA = "fpga"


PERCENTS: Final[Mapping[DeviceKind, tuple[str, ...]]] = {
    DeviceKind.GPU: (GPU_CORE, GPU_MEMORY_RATIO),
    DeviceKind.RDMA: (RDMA,),
    DeviceKind.FPGA: (FPGA,),
}
"""Resources of a kind in percent of one device."""
DeviceKey: TypeAlias = tuple[DeviceKind, int]
"""Kind and minor."""


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """A virtual function (SR-IOV) of a card; `labels` are those of its group in the Device object."""

    minor: int
    bus: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def device_name(key: DeviceKey) -> str:
    """Return the name of a device in ResourceSlices."""
    kind, minor = key
    return f"{kind}-{minor}"


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device of a node; `numa_node` -1 and `pcie` "" mean an unknown location, which no other device shares."""

    kind: DeviceKind
    minor: int
    id: str = ""
    healthy: bool = True
    amounts: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    numa_node: int = -1
    pcie: str = ""
    functions: tuple[VirtualFunction, ...] = ()

    @property
    def key(self) -> DeviceKey:
        """Kind and minor number, which are unique on the node."""
        return self.kind, self.minor

    @property
    def name(self) -> str:
        """The device's name in ResourceSlices."""
        return device_name(self.key)

    @property
    def memory_bytes(self) -> int:
        """A GPU's memory in bytes; 0 if it has none or it is unknown."""
        return self.amounts.get(GPU_MEMORY, 0)


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """Whole GPUs (by minor) that are connected to each other; a higher score is better."""

    minors: frozenset[int]
    score: int = 0
    ring_bandwidth: int = 0


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """A node's devices; `partitions` are by number of GPUs; if `honoured`, whole GPUs are given only as partitions."""

    devices: tuple[NodeDevice, ...] = ()
    partitions: Mapping[int, tuple[GpuPartition, ...]] = field(default_factory=dict)
    honoured: bool = False


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A pod's share of one device; `id` is the device's own name, `functions` its virtual functions."""

    minor: int
    amounts: Amounts = field(default_factory=dict)
    id: str = ""
    functions: tuple[VirtualFunction, ...] = ()


Allocations: TypeAlias = Mapping[DeviceKind, tuple[DeviceShare, ...]]
"""A pod's devices."""


@dataclass(frozen=True, slots=True)
class TakenDevices:
    """The devices of a node that pods have: amounts by device, and virtual functions as (device, bus)."""

    amounts: Mapping[DeviceKey, Amounts] = field(default_factory=dict)
    functions: frozenset[tuple[DeviceKey, str]] = frozenset()

    @classmethod
    def of(cls, pods: Iterable[Allocations]) -> TakenDevices:
        """Return the devices that these pods have together."""
        amounts: dict[DeviceKey, Amounts] = {}
        functions = set()
        for allocations in pods:
            for kind, shares in allocations.items():
                for share in shares:
                    key = (kind, share.minor)
                    amounts[key] = sum_amounts((amounts.get(key, {}), share.amounts))
                    functions |= {(key, function.bus) for function in share.functions}
        return cls(amounts, frozenset(functions))

    def free_amounts(self, device: NodeDevice) -> dict[str, int]:
        """Return the amounts of a device that no pod has, by resource name, in the units of the device's amounts."""
        return rest(device.amounts, self.amounts.get(device.key, {}))


# --- the Device object ------------------------------------------------------------------------------------------------
class _TopologyWire(msgspec.Struct, rename="camel"):
    node_id: int = msgspec.field(name="nodeID", default=-1)
    pcie_id: str = msgspec.field(name="pcieID", default="")


class _FunctionWire(msgspec.Struct, omit_defaults=True):
    minor: int = 0
    bus_id: str = msgspec.field(name="busID", default="")


class _FunctionGroupWire(msgspec.Struct):
    labels: dict[str, str] | None = None
    vfs: list[_FunctionWire] | None = None


class _DeviceWire(msgspec.Struct, rename="camel"):
    type: str = ""
    id: str = ""
    minor: int = 0
    health: bool = False
    resources: dict[str, str | int | float] | None = None
    labels: dict[str, str] | None = None
    topology: _TopologyWire | None = None
    vf_groups: list[_FunctionGroupWire] | None = None


class _PartitionWire(msgspec.Struct, rename="camel"):
    minors: list[int]
    ring_bus_bandwidth: str | int | float = 0
    allocation_score: int = 0


class _DevicesWire(msgspec.Struct):
    devices: list[_DeviceWire] | None = None


class _DeviceObjectWire(msgspec.Struct):
    """The fields of a Device object that are read here."""

    metadata: ObjectLabels = msgspec.field(default_factory=ObjectLabels)
    spec: _DevicesWire = msgspec.field(default_factory=_DevicesWire)


def device_address(node: str) -> Address:
    """Return the API address of the node's Device object."""
    return Address(SCHEDULING_GROUP, "devices", node)


def inventory_of(body: Mapping[str, Any]) -> DeviceInventory:
    """Return the devices of a Device object; raise UsageError if it is unreadable or lists a type and minor twice.

    Unknown kinds are left out. An RDMA card or FPGA that lists no resources has 100 percent of itself.
    """
    try:
        wire = msgspec.convert(body, _DeviceObjectWire)
    except msgspec.ValidationError as error:
        raise UsageError(f"this is not a Device object: {error}", fix="See deploy/examples/device.yaml.") from error
    what = f"Device {wire.metadata.name or '?'}"
    listed = [device for device in wire.spec.devices or () if device.type in set(DeviceKind)]
    devices = tuple(_device(device, f"{what}, {device.type} {device.minor}") for device in listed)
    twice = {device.key for number, device in enumerate(devices) if device.key in {d.key for d in devices[:number]}}
    if twice:
        kind, minor = min(twice)
        raise UsageError(f"{what}: {kind} {minor} is listed twice", fix="Give each device of a type its own number.")
    honoured = (wire.metadata.labels or {}).get(GPU_PARTITION_POLICY_LABEL) == "Honor"
    return DeviceInventory(devices, _partitions((wire.metadata.annotations or {}), what), honoured)


def _device(wire: _DeviceWire, what: str) -> NodeDevice:
    kind = DeviceKind(wire.type)
    amounts = parse_quantities(wire.resources or {}, what)
    if not amounts and kind is not DeviceKind.GPU:
        amounts = dict.fromkeys(PERCENTS[kind], WHOLE)
    place = wire.topology or _TopologyWire()
    functions = tuple(
        VirtualFunction(function.minor, function.bus_id, group.labels or {})
        for group in wire.vf_groups or ()
        for function in group.vfs or ()
    )
    return NodeDevice(
        kind, wire.minor, wire.id, wire.health, amounts, wire.labels or {}, place.node_id, place.pcie_id, functions
    )


def _partitions(annotations: Mapping[str, str], what: str) -> dict[int, tuple[GpuPartition, ...]]:
    text = annotations.get(GPU_PARTITIONS_ANNOTATION, "")
    if not text:
        return {}
    try:
        table = msgspec.json.decode(text, type=dict[int, list[_PartitionWire]])
    except UNDECODABLE as error:
        raise UsageError(
            f"{what}: annotation {GPU_PARTITIONS_ANNOTATION} is {format_value(text)}: {error}",
            fix='Write JSON such as {"2": [{"minors": [0, 1], "allocationScore": 1}]}.',
        ) from error
    return {
        count: tuple(
            GpuPartition(
                frozenset(partition.minors), partition.allocation_score, parse_bytes(partition.ring_bus_bandwidth, what)
            )
            for partition in partitions
        )
        for count, partitions in table.items()
    }


# --- the annotation ---------------------------------------------------------------------------------------------------
class _ExtensionWire(msgspec.Struct, omit_defaults=True):
    vfs: list[_FunctionWire] = msgspec.field(default_factory=list)


class _ShareWire(msgspec.Struct, omit_defaults=True):
    minor: int
    resources: dict[str, str | int | float]
    id: str = ""
    extension: _ExtensionWire | None = None


_TABLE: Final = msgspec.json.Decoder(dict[str, list[_ShareWire]])


def encode_allocations(allocations: Allocations) -> str:
    """Return the text of the annotation device-allocated, as Koordinator's scheduler writes it."""
    table = {
        kind.value: [
            _ShareWire(
                share.minor,
                {
                    name: format_bytes(amount) if name == GPU_MEMORY else str(amount)
                    for name, amount in sorted(share.amounts.items())
                },
                share.id,
                _ExtensionWire([_FunctionWire(f.minor, f.bus) for f in share.functions]) if share.functions else None,
            )
            for share in shares
        ]
        for kind, shares in sorted(allocations.items())
    }
    return msgspec.json.encode(table).decode()


def decode_allocations(text: str, what: str = "pod") -> Allocations:
    """Parse a pod's devices from its annotation ("" is none), without unknown kinds; UsageError if it is unreadable."""
    if not text:
        return {}
    try:
        table = _TABLE.decode(text)
    except UNDECODABLE as error:
        raise UsageError(
            f"{what}: annotation {DEVICE_ALLOCATED_ANNOTATION} is {format_value(text)}: {error}",
            fix="The scheduler writes the annotation when it binds the pod; delete the pod if somebody changed it.",
        ) from error
    return {
        DeviceKind(kind): tuple(_share(share, f"{what}, {kind} {share.minor}") for share in shares)
        for kind, shares in table.items()
        if kind in set(DeviceKind)
    }


def _share(wire: _ShareWire, what: str) -> DeviceShare:
    functions = wire.extension.vfs if wire.extension else ()
    return DeviceShare(
        wire.minor,
        parse_quantities(wire.resources, what),
        wire.id,
        tuple(VirtualFunction(function.minor, function.bus_id) for function in functions),
    )
