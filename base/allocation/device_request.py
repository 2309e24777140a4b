"""What a pod asks of devices: its extended resources and annotations, as a number of devices and a share of each. Pure.

| resources of the pod                              | devices                | of each                           |
|---------------------------------------------------|------------------------|-----------------------------------|
| nvidia.com/gpu N                                  | N                      | all of it                         |
| koordinator.sh/gpu P                              | P / 100, at least 1    | P percent of cores and memory     |
| [gpu-core C and] gpu-memory-ratio R               | R / 100, at least 1    | C, R divided by the number        |
| [gpu-core C and] gpu-memory B                     | 1                      | C percent and B bytes             |
| gpu.shared N, [gpu-core C and] gpu-memory(-ratio) | N                      | C, R or B divided by N            |
| koordinator.sh/rdma P, koordinator.sh/fpga P      | P / 100, at least 1    | P divided by the number           |

Over 100 percent only whole devices can be asked for. Source: Koordinator's DeviceShare plugin, v1.8.0.
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
_UNIT_FIX: Final = "Ask for at most 100 percent of one device, or for whole devices: 200, 300 and so on."


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
    """`count` devices and `share` of each; count None: of every device that the selectors leave.

    scope: the widest place that all of them must share. apart: no two of them on one PCIe switch. function_selector:
    one virtual function of each device, of those it selects.
    """

    count: int | None
    share: Amounts
    selector: LabelSelector = field(default_factory=LabelSelector)
    function_selector: LabelSelector | None = None
    scope: DeviceScope = DeviceScope.NODE
    apart: bool = False

    @property
    def whole(self) -> bool:
        """True if no other pod can have a share of its devices."""
        return any(amount == WHOLE for name, amount in self.share.items() if name not in (GPU_CORE, GPU_MEMORY))

    @property
    def chooses(self) -> bool:
        """True if the devices' labels, functions or places matter, or if all of them are requested."""
        plain = (LabelSelector(), None, DeviceScope.NODE, False)
        return self.count is None or (self.selector, self.function_selector, self.scope, self.apart) != plain


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """All that a pod asks of devices.

    joint: kinds that should be near each other, the first one leads; together: each of its PCIe switches must have
    devices of all these kinds. restricted: GPUs only as one of the best partitions; ring_bandwidth: at least so much.
    A kind with `ApplyForAll` is in none of `joint`, as in Koordinator. Kinds that the annotations name and of which the
    pod asks nothing have no effect.
    """

    requests: Mapping[DeviceKind, KindRequest] = field(default_factory=dict)
    joint: tuple[DeviceKind, ...] = ()
    together: bool = False
    restricted: bool = False
    ring_bandwidth: int = 0

    @property
    def chooses(self) -> bool:
        """True if it matters which devices are free, beyond how many of them have the requested share."""
        return bool(self.joint) or any(request.chooses for request in self.requests.values())

    def most(self, kind: DeviceKind, leading: int) -> int | None:
        """Return the most devices of a kind that the pod may get; 0 = it asks for none, None = all that exist.

        leading: how many devices of the leading kind it has; one that follows is given once for each of their switches.
        """
        request = self.requests.get(kind)
        if request is None or request.count is None:
            return None if request else 0
        follows = kind in self.joint[1:] and kind is not DeviceKind.GPU
        return max(request.count, leading) if follows else request.count


class _Hint(msgspec.Struct, rename="camel"):
    """A null is an absent field, here and below, as the field's own types read it."""

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
    """Return the names in SHARED_RESOURCES that a pod asks for."""
    return tuple(name for name in SHARED_RESOURCES if requests.get(name))


def asks_for_devices(requests: Amounts) -> bool:
    """Return whether a pod asks for any device."""
    return any(requests.get(name) for name in DEVICE_RESOURCES)


def demand_of(requests: Amounts, annotations: Mapping[str, str], what: str = "pod") -> DeviceDemand:
    """Return a pod's device demand; requests: its amounts by resource name (`pod_request.requests_of`).

    Raises UsageError that names the resource or annotation that cannot be served, and what to write instead.
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
    named = dict.fromkeys(joint.device_types or ())
    return DeviceDemand(
        hinted,
        tuple(DeviceKind(kind) for kind in named if kind in hinted and kind not in for_all),
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
            f"{what}: {_join_names(names)} cannot be asked for together",
            fix=f"Ask for {NVIDIA_GPU} or {GPU} alone, or for {GPU_CORE} with {GPU_MEMORY_RATIO} or {GPU_MEMORY}.",
        )
    if len(names & {GPU_MEMORY, GPU_MEMORY_RATIO}) != 1:
        raise UsageError(
            f"{what}: {_join_names(names)} does not say how much GPU memory",
            fix=f"Add either {GPU_MEMORY} (bytes) or {GPU_MEMORY_RATIO} (percent).",
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
                f"{what}: {name} {amount} does not divide by the {count} GPUs that it is for",
                fix=f"Ask for a multiple of {count}.",
            )
        if name != GPU_MEMORY and amount // count > WHOLE:
            devices = "one device" if count == 1 else f"{count} devices"
            raise UsageError(f"{what}: {name} {amount} is over 100 percent of {devices}", fix=_UNIT_FIX)
    return KindRequest(count, {name: amount // count for name, amount in shares.items()})


def _count(name: str, percent: int, what: str) -> int:
    """Return the number of devices for a percentage.

    Up to 100 % is one device; raises UsageError above that if it is not a multiple of 100.
    """
    if percent <= WHOLE:
        return 1
    if percent % WHOLE:
        raise UsageError(f"{what}: {name} {percent} is not a whole number of devices", fix=_UNIT_FIX)
    return percent // WHOLE


def _apply_hint(kind: DeviceKind, request: KindRequest, hint: _Hint | None, what: str) -> KindRequest:
    """The request with what the pod's hint says of its kind."""
    if hint is None:
        return request
    where = f"{what}: {HINT_ANNOTATION}.{kind}"
    count, share = request.count, request.share
    if hint.allocate_strategy and kind is DeviceKind.GPU:
        raise UsageError(f"{where}: allocateStrategy is for rdma and fpga", fix="Leave it out for gpu.")
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
    """An annotation's value; None where it is not there."""
    check_length(annotations, name, what)
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind | None)
    except UNDECODABLE as error:
        raise UsageError(
            f"{what}: annotation {name} is {format_value(text)}: {error}", fix="See docs/devices.md for its form."
        ) from error


def _join_names(names: set[str]) -> str:
    return " and ".join(sorted(names))
