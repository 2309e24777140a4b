"""The Device object of a node from NVML's data on its GPUs, and the part that is written. Pure.

Only an object that an agent made is changed: one by hand or of another program (Koordinator's agent) stays as it is. In
our own, devices of other types stay as people wrote them, and a GPU that does not exist any more is told unhealthy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE, DeviceKind
from cotenant.base.identity import NodeIdentity
from cotenant.base.kubernetes.intent import Address, Create, Intent, Patch
from cotenant.base.kubernetes.protocol import NODE_AGENT, SCHEDULING_GROUP
from cotenant.base.kubernetes.quantity import format_bytes
from cotenant.enforcer.observe.nvml import NvmlGpu
from cotenant.enforcer.observe.pci_sysfs import PciPlace

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_LABEL: Final = 63
_GPU: Final = DeviceKind.GPU.value

Json = dict[str, Any]


def device_address(node: str) -> Address:
    """Return the address of the node's Device."""
    return Address(SCHEDULING_GROUP, "devices", node)


def is_made_by_agent(current: Mapping[str, Any]) -> bool:
    """Return whether an agent of cotenant made the object."""
    labels = (current.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(MANAGED_BY) == NODE_AGENT)


def gpu_entry(gpu: NvmlGpu, place: PciPlace, driver: str) -> Json:
    """Return one GPU as an entry of `spec.devices` of Koordinator's Device; socket -1 (unknown), no empty labels."""
    resources: Json = {GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE}
    if gpu.memory_bytes:
        resources[GPU_MEMORY] = format_bytes(gpu.memory_bytes)
    labels = {"model": label_text(gpu.model), "driver": label_text(driver)}
    return {
        "type": _GPU,
        "id": gpu.uuid,
        "minor": gpu.minor,
        "health": not gpu.problem,
        "labels": {key: text for key, text in labels.items() if text},
        "resources": resources,
        "topology": {"socketID": -1, "nodeID": place.numa_node, "pcieID": place.pcie, "busID": gpu.bus},
    }


def label_text(text: str) -> str:
    """A text as the value of a label: "NVIDIA A100-SXM4-40GB" -> "NVIDIA-A100-SXM4-40GB"."""
    return _NOT_IN_LABELS.sub("-", text)[:_LONGEST_LABEL].strip("-._")


def device_write(gpus: Sequence[Json], node: NodeIdentity, current: Mapping[str, Any] | None) -> Intent | None:
    """Return the write that publishes the GPUs, None if nothing differs.

    current: our object, None = none yet.
    """
    name, uid = node
    address = device_address(name)
    if current is None:
        if not gpus:
            return None
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"labels": {MANAGED_BY: NODE_AGENT}, "ownerReferences": [owner]}
        body = address.manifest("Device", metadata, spec={"devices": list(gpus)})
        return Create(address, body, why="the GPUs of this node")
    listed = (current.get("spec") or {}).get("devices") or []
    # Listed devices that NVML does not speak of: other types as they are, GPUs that are gone as unhealthy.
    ids, minors = {gpu["id"] for gpu in gpus}, {gpu["minor"] for gpu in gpus}
    others = [device for device in listed if device.get("type") != _GPU]
    gone = [
        {**device, "health": False}
        for device in listed
        if device.get("type") == _GPU and device.get("id") not in ids and device.get("minor") not in minors
    ]
    devices = [*gpus, *gone, *others]
    if devices == listed:
        return None
    version = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": (current.get("metadata") or {}).get("resourceVersion"),
    }
    operation = {"op": "add", "path": "/spec", "value": {**(current.get("spec") or {}), "devices": devices}}
    return Patch(address, (version, operation), why="the GPUs or their health have changed")
