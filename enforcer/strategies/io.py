"""Disk limits and weights per QoS class and block device, pod by pod.

The policy of a class names block devices, volume groups or pod volumes; `NodeReading.block_devices` maps them to
devices. Each pod of the class gets the limits on its own cgroup: bytes and operations per second, and a weight of 1 to
100 percent of the ordinary one. A pod's annotation `koordinator.sh/blkioQOS` replaces blocks of the same name and type.
A missing device is reported and skipped. Of several weights for a cgroup the smallest applies, as stock kernels have
one weight for all devices. Latency targets and cost models are features of vendor kernels and not supported. Source:
Koordinator's koordlet, `blkio`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from cotenant.base.kubernetes.protocol import BLKIO_QOS_ANNOTATION
from cotenant.enforcer.contract import (
    Knob,
    Observation,
    PodReading,
    PodSpec,
    Stateless,
    Step,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.overrides import apply_annotation, class_of, live
from cotenant.enforcer.model.node_policy import BlkioQos, Block, IoLimits, NodePolicy

NAME: Final = "blkio"
NO_DEVICE: Final = "BlockDeviceUnknown"
ORDINARY_WEIGHT: Final = 100
_FIELDS: Final = {
    Knob.BLKIO_READ_BPS: "read_bps",
    Knob.BLKIO_WRITE_BPS: "write_bps",
    Knob.BLKIO_READ_IOPS: "read_iops",
    Knob.BLKIO_WRITE_IOPS: "write_iops",
}


@dataclass(frozen=True, slots=True)
class DiskLimits(Stateless):
    """The strategy that sets disk limits and weights."""

    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return the disk limits and weights of all live pods with a cgroup, without files that this kernel lacks."""
        wants: list[Want] = []
        verdicts: list[Verdict] = []
        for pod in (p for p in observation.pods if live(p.spec) and p.group is not None):
            blocks, complaint = blocks_of(pod.spec, policy)
            limits, missing = on_devices(pod.spec, blocks, observation.node.block_devices)
            verdicts += (*complaint, *missing)
            wants += (w for w in _wants(pod, limits) if w.knob in observation.supported)
        return Step(StrategyPlan(tuple(wants), verdicts=tuple(verdicts)), state)


def blocks_of(pod: PodSpec, policy: NodePolicy) -> tuple[tuple[Block, ...], tuple[Verdict, ...]]:
    """Return a pod's blocks: those of its class if enabled, replaced or extended by those of its annotation."""
    of_class = policy.classes.of(class_of(pod)).blkio_qos
    own, verdicts = apply_annotation(BlkioQos(enable=of_class.enable), pod, BLKIO_QOS_ANNOTATION)
    by_name = {(b.type, b.name): b for b in (of_class.blocks if of_class.enable else ())}
    by_name |= {(b.type, b.name): b for b in own.blocks}
    return tuple(by_name.values()), verdicts


def on_devices(
    pod: PodSpec, blocks: Iterable[Block], devices: Mapping[str, str]
) -> tuple[dict[str, IoLimits], tuple[Verdict, ...]]:
    """Return limits by "major:minor" (the last block counts), and verdicts on missing disks and volume groups."""
    limits: dict[str, IoLimits] = {}
    verdicts = []
    for block in blocks:
        device = device_of(block, pod, devices)
        if device is not None and block.limits is not None:
            limits[device] = block.limits
        elif device is None and block.type != "podvolume":
            message = f'{pod.key}: no {block.type or "block device"} called "{block.name}" on this node'
            verdicts.append(Verdict(pod.key, NO_DEVICE, message, warning=True))
    return limits, tuple(verdicts)


def device_of(block: Block, pod: PodSpec, devices: Mapping[str, str]) -> str | None:
    """Return the "major:minor" of a block, None if this node lacks it; a pod volume must be this pod's."""
    if not block.name:
        return None
    if block.type == "podvolume":
        for mount, device in sorted(devices.items()):  # .../pods/UID/volumes/PLUGIN/VOLUME, with anything below
            parts = PurePosixPath(mount).parts
            at = next((i for i in range(len(parts) - 4) if parts[i] == "pods" and parts[i + 2] == "volumes"), None)
            if at is not None and pod.uid and (parts[at + 1], parts[at + 4]) == (pod.uid, block.name):
                return device
        return None
    names = (block.name, block.name.removeprefix("/dev/"), f"/dev/{block.name}")
    return next((devices[name] for name in names if name in devices), None)


def _wants(pod: PodReading, limits: Mapping[str, IoLimits]) -> Iterator[Want]:
    """Yield a pod's limits by device and its smallest weight; the ordinary weight is not written."""
    assert pod.group is not None
    for knob, name in _FIELDS.items():
        amounts = {device: getattr(limit, name) for device, limit in limits.items() if getattr(limit, name)}
        if amounts:
            in_order = sorted(amounts, key=lambda device: [int(part) for part in device.split(":")])
            text = ",".join(f"{device} {amounts[device]}" for device in in_order)
            yield _want(pod, knob, text, "disk limits of the pod's QoS class")
    weights = [limit.io_weight_percent for limit in limits.values() if limit.io_weight_percent is not None]
    if weights and min(weights) != ORDINARY_WEIGHT:
        yield _want(pod, Knob.IO_WEIGHT, min(weights), "disk weight of the pod's QoS class")


def _want(pod: PodReading, knob: Knob, value: Value, why: str) -> Want:
    assert pod.group is not None
    return Want(pod.group.path, knob, value, pod.group.level, NAME, why)
