"""A pod's request for devices, from its resources and annotations: a number of devices and a share of each. Pure.

| resources of the pod                              | devices                | of each                           |
|---------------------------------------------------|------------------------|-----------------------------------|
| nvidia.com/gpu N                                  | N                      | all of it                         |
| koordinator.sh/gpu P                              | P / 100, at least 1    | P percent of cores and memory     |
| [gpu-core C and] gpu-memory-ratio R               | R / 100, at least 1    | C, R divided by the number        |
| [gpu-core C and] gpu-memory B                     | 1                      | C percent and B bytes             |
| gpu.shared N, [gpu-core C and] gpu-memory(-ratio) | N                      | C, R or B divided by N            |
| koordinator.sh/rdma P, koordinator.sh/fpga P      | P / 100, at least 1    | P divided by the number           |

Above 100 percent only whole devices can be requested. Source: Koordinator's DeviceShare plugin, v1.8.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal

import msgspec

from cotenant.base.allocation.allocator import check_length
from cotenant.base.allocation.devices import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    PERCENTS,
    RDMA,
    WHOLE,
    DeviceKind,
)
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_request import Amounts
from cotenant.base.kubernetes.quantity import parse_bytes
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.text import format_value

NVIDIA_GPU: Final = "nvidia.com/gpu"
GPU: Final = "koordinator.sh/gpu"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
SHARED_RESOURCES: Final = (GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, FPGA)
"""Resources that no kubelet knows of: only an extender of the scheduler gives them out."""
DEVICE_RESOURCES: Final = (*SHARED_RESOURCES, NVIDIA_GPU)
HINT_ANNOTATION: Final = "scheduling.koordinator.sh/device-allocate-hint"
JOINT_ANNOTATION: Final = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION_ANNOTATION: Final = "scheduling.koordinator.sh/gpu-partition-spec"
_GPU_SHARES: Final = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)
_UNIT_FIX: Final = "Request at most 100 percent of one device, or whole devices: 200, 300 and so on."


class DeviceScope(IntEnum):
    """The required proximity of devices to each other; wider scopes are greater."""

    DEVICE = 0
    PCIE = 1
    NUMA_NODE = 2
    NODE = 3


_SCOPES: Final = {
    "": DeviceScope.NODE,
    "Device": DeviceScope.DEVICE,
    "PCIe": DeviceScope.PCIE,
    "NUMANode": DeviceScope.NUMA_NODE,
    "Node": DeviceScope.NODE,
}


@dataclass(frozen=True, slots=True)
class KindRequest:
    """A request for `count` devices of one kind and a `share` of each; count None is every device that is selected.

    All these devices must be in one `scope`, such as one NUMA node. If `apart`, no two of them are on one PCIe switch.
    `function_selector` selects one virtual function of each device.
    """

    count: int | None
    share: Amounts
    selector: LabelSelector = field(default_factory=LabelSelector)
    function_selector: LabelSelector | None = None
    scope: DeviceScope = DeviceScope.NODE
    apart: bool = False

    @property
    def whole(self) -> bool:
        """True if no other pod can have a share of the devices."""
        return any(amount == WHOLE for name, amount in self.share.items() if name not in (GPU_CORE, GPU_MEMORY))

    @property
    def chooses(self) -> bool:
        """True if the request names labels, functions or locations of devices, or is for every selected device."""
        plain = (LabelSelector(), None, DeviceScope.NODE, False)
        return self.count is None or (self.selector, self.function_selector, self.scope, self.apart) != plain


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """All devices that a pod requests.

    `joint` kinds should be near each other, the first one leads; if `together`, each PCIe switch that is used must have
    all these kinds. If `restricted`, whole GPUs are given only as a partition of the highest score; `ring_bandwidth` is
    a partition's least bandwidth, in the Device object's unit, 0 for any. `joint` never has a kind that is requested by
    `ApplyForAll`, as in Koordinator. Annotations for kinds that the pod does not request are ignored.
    """

    requests: Mapping[DeviceKind, KindRequest] = field(default_factory=dict)
    joint: tuple[DeviceKind, ...] = ()
    together: bool = False
    restricted: bool = False
    ring_bandwidth: int = 0

    @property
    def chooses(self) -> bool:
        """True if it matters which devices are free, and not only how many of them have the requested share."""
        return bool(self.joint) or any(request.chooses for request in self.requests.values())

    def most(self, kind: DeviceKind, leading: int) -> int | None:
        """Return the largest number of devices of a kind that the pod may get; 0 if it requests none, None for all.

        `leading` is the pod's number of devices of the leading kind: for each PCIe switch with such a device, the pod
        may get one device of a kind that follows.
        """
        request = self.requests.get(kind)
        if request is None or request.count is None:
            return None if request else 0
        follows = kind in self.joint[1:] and kind is not DeviceKind.GPU
        return max(request.count, leading) if follows else request.count


class _Hint(msgspec.Struct, rename="camel"):
    """The hint in a pod's annotation; a null is an absent field, here and below, as in the field's own types."""

    selector: dict[str, Any] | None = None
    vf_selector: dict[str, Any] | None = None
    allocate_strategy: Literal["", "ApplyForAll", "RequestsAsCount"] | None = None
    required_topology_scope: Literal["", "Device", "PCIe", "NUMANode", "Node"] | None = None
    exclusive_policy: Literal["", "DeviceLevel", "PCIeLevel"] | None = None


class _Joint(msgspec.Struct, rename="camel"):
    device_types: list[str] | None = None
    required_scope: Literal["", "SamePCIe"] | None = None


class _Partitioning(msgspec.Struct, rename="camel"):
    allocate_policy: Literal["", "BestEffort", "Restricted"] | None = None
    ring_bus_bandwidth: str | int | float | None = None


def shared_resources_of(requests: Amounts) -> tuple[str, ...]:
    """Return the names in SHARED_RESOURCES that a pod requests."""
    return tuple(name for name in SHARED_RESOURCES if requests.get(name))


def asks_for_devices(requests: Amounts) -> bool:
    """Return whether a pod requests any device."""
    return any(requests.get(name) for name in DEVICE_RESOURCES)


def demand_of(requests: Amounts, annotations: Mapping[str, str], what: str = "pod") -> DeviceDemand:
    """Return a pod's device demand from its requests by resource name (`pod_wire.requests_of`) and annotations.

    Raise UsageError, naming the resource or annotation that cannot be served, with what to write instead.
    """
    hints: dict[str, _Hint | None] = _annotation(annotations, HINT_ANNOTATION, dict[str, _Hint | None], what) or {}
    joint = _annotation(annotations, JOINT_ANNOTATION, _Joint, what) or _Joint()
    partitioning = _annotation(annotations, PARTITION_ANNOTATION, _Partitioning, what) or _Partitioning()
    amounts = {name: requests[name] for name in DEVICE_RESOURCES if requests.get(name)}
    by_kind: dict[DeviceKind, KindRequest] = {}
    if any(name not in (RDMA, FPGA) for name in amounts):
        by_kind[DeviceKind.GPU] = _gpu_request(amounts, what)
    for kind, name in ((DeviceKind.RDMA, RDMA), (DeviceKind.FPGA, FPGA)):
        if name in amounts:
            amount = amounts[name]
            count = _count(name, amount, what)
            by_kind[kind] = KindRequest(count, {name: amount // count})
    hinted = {kind: _apply_hint(kind, request, hints.get(kind), what) for kind, request in by_kind.items()}
    for_all = {kind for kind, hint in hints.items() if hint is not None and hint.allocate_strategy == "ApplyForAll"}
    device_types = dict.fromkeys(joint.device_types or ())
    return DeviceDemand(
        hinted,
        tuple(DeviceKind(kind) for kind in device_types if kind in hinted and kind not in for_all),
        joint.required_scope == "SamePCIe",
        partitioning.allocate_policy == "Restricted",
        parse_bytes(partitioning.ring_bus_bandwidth or 0, f"{what}: {PARTITION_ANNOTATION}"),
    )


def _gpu_request(amounts: Amounts, what: str) -> KindRequest:
    names = {name for name in amounts if name not in (RDMA, FPGA)}
    if names == {NVIDIA_GPU}:
        return KindRequest(amounts[NVIDIA_GPU], {GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE})
    if names == {GPU}:
        count = _count(GPU, amounts[GPU], what)
        return KindRequest(count, dict.fromkeys(PERCENTS[DeviceKind.GPU], amounts[GPU] // count))
    if names & {NVIDIA_GPU, GPU}:
        raise UsageError(
            f"{what}: {_join_names(names)} cannot be requested together",
            fix=f"Request {NVIDIA_GPU} or {GPU} alone, or {GPU_CORE} with {GPU_MEMORY_RATIO} or {GPU_MEMORY}.",
        )
    if len(names & {GPU_MEMORY, GPU_MEMORY_RATIO}) != 1:
        raise UsageError(
            f"{what} must request GPU memory exactly once, but requests {_join_names(names)}",
            fix=f"Request either {GPU_MEMORY} (bytes) or {GPU_MEMORY_RATIO} (percent).",
        )
    # Cores and memory of one GPU, of whole ones, or of as many as `gpu.shared` says.
    if GPU_SHARED in amounts:
        count = amounts[GPU_SHARED]
    else:
        count = _count(GPU_MEMORY_RATIO, amounts[GPU_MEMORY_RATIO], what) if GPU_MEMORY_RATIO in amounts else 1
    shares = {name: amounts[name] for name in _GPU_SHARES if name in amounts}
    for name, amount in shares.items():
        if name != GPU_MEMORY and amount % count:
            raise UsageError(
                f"{what}: {name} {amount} is not divisible by the {count} requested GPUs",
                fix=f"Request a multiple of {count}.",
            )
        if name != GPU_MEMORY and amount // count > WHOLE:
            devices = "one device" if count == 1 else f"{count} devices"
            raise UsageError(f"{what}: {name} {amount} is over 100 percent of {devices}", fix=_UNIT_FIX)
    return KindRequest(count, {name: amount // count for name, amount in shares.items()})


def _count(name: str, percent: int, what: str) -> int:
    """Return the number of devices for a percentage.

    Up to 100 % is one device; raise UsageError above that if it is not a multiple of 100.
    """
    if percent <= WHOLE:
        return 1
    if percent % WHOLE:
        raise UsageError(f"{what}: {name} {percent} is not a whole number of devices", fix=_UNIT_FIX)
    return percent // WHOLE


def _apply_hint(kind: DeviceKind, request: KindRequest, hint: _Hint | None, what: str) -> KindRequest:
    """Return the request changed by the pod's hint for its kind."""
    if hint is None:
        return request
    where = f"{what}: {HINT_ANNOTATION}.{kind}"
    count, share = request.count, request.share
    if hint.allocate_strategy and kind is DeviceKind.GPU:
        raise UsageError(f"{where}: allocateStrategy applies only to rdma and fpga", fix="Remove allocateStrategy.")
    # whole devices (200, 300 ...) are a number already, which no strategy changes
    strategy = hint.allocate_strategy if count == 1 else ""
    if strategy == "ApplyForAll":
        count = None
    elif strategy == "RequestsAsCount":
        (name,) = PERCENTS[kind]
        count = share[name]
        share = {name: WHOLE if hint.exclusive_policy == "DeviceLevel" else 1}
    functions = hint.vf_selector
    return KindRequest(
        count,
        share,
        LabelSelector() if hint.selector is None else LabelSelector.parse(hint.selector, f"{where}.selector"),
        None if functions is None else LabelSelector.parse(functions, f"{where}.vfSelector"),
        _SCOPES[hint.required_topology_scope or ""],
        # of GPUs it says nothing: those of one pod may share a switch, as Koordinator places them
        hint.exclusive_policy == "PCIeLevel" and kind is not DeviceKind.GPU,
    )


def _annotation(annotations: Mapping[str, str], name: str, kind: Any, what: str) -> Any:
    """Return an annotation's value, or None if it is missing."""
    check_length(annotations, name, what)
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind | None)
    except UNDECODABLE as error:
        raise UsageError(
            f"{what}: annotation {name} is {format_value(text)}: {error}", fix="See the format in docs/devices.md."
        ) from error


def _join_names(names: set[str]) -> str:
    return " and ".join(sorted(names))
