"""EDGE: publishes the node's GPUs as its Device object, if they differ from it.

Only an object that an agent of cotenant made is changed; one that a person or another program (Koordinator's agent)
made is left alone. In the agent's own object, devices of other types stay as people wrote them. GPUs that are gone, or
that NVML does not list because it failed, are marked unhealthy, so that no pod gets them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE, DeviceKind, device_address
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Create, Intent, Patch
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.base.kubernetes.quantity import format_bytes
from cotenant.enforcer.observe.nvml import Nvml, NvmlGpu, NvmlState
from cotenant.enforcer.observe.sysfs import PciPlace, pci_location

_log = structlog.get_logger(__name__)
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_LABEL: Final = 63
_GPU: Final = DeviceKind.GPU.value

Json = dict[str, Any]


def is_made_by_agent(current: Mapping[str, Any]) -> bool:
    """Return whether an agent of cotenant created the object."""
    labels = (current.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(MANAGED_BY) == NODE_AGENT)


def gpu_entry(gpu: NvmlGpu, place: PciPlace, driver: str) -> Json:
    """Return one GPU as an entry of `spec.devices` of Koordinator's Device; its socket is -1 (unknown)."""
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
    """Return a text as a label's value: "NVIDIA A100-SXM4-40GB" -> "NVIDIA-A100-SXM4-40GB"."""
    return _NOT_IN_LABELS.sub("-", text)[:_LONGEST_LABEL].strip("-._")


def device_write(gpus: Sequence[Json], node: NodeIdentity, current: Mapping[str, Any] | None) -> Intent | None:
    """Return the request that publishes the GPUs; None if nothing differs.

    `current` is the agent's Device object, None if there is none: its GPUs that are not in `gpus` become unhealthy.
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
    removed_devices = [
        {**device, "health": False}
        for device in listed
        if device.get("type") == _GPU and device.get("id") not in ids and device.get("minor") not in minors
    ]
    devices = [*gpus, *removed_devices, *others]
    if devices == listed:
        return None
    read_version = (current.get("metadata") or {}).get("resourceVersion")
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": read_version}
    operation = {"op": "add", "path": "/spec", "value": {**(current.get("spec") or {}), "devices": devices}}
    return Patch(address, (version, operation), why="the GPUs or their health have changed")


class DiscoveryState(StrEnum):
    """The present state of the search for GPUs."""

    NOT_LOOKED = "not-looked"
    ABSENT = "nvml-absent"
    FAILED = "nvml-failed"
    FOREIGN = "object-of-others"
    PUBLISHED = "published"


_OF_NVML: Final = {
    NvmlState.ABSENT: DiscoveryState.ABSENT,
    NvmlState.FAILED: DiscoveryState.FAILED,
    NvmlState.READ: DiscoveryState.PUBLISHED,
}


@dataclass(slots=True)
class DevicePublisher:
    """Publishes GPUs when `Reporter` calls it with each report; `uid` returns the Node's uid, "" before it is known."""

    node: str
    uid: Callable[[], str]
    nvml: Nvml
    sys: Path
    subject: str = "GPUs"
    state: DiscoveryState = DiscoveryState.NOT_LOOKED
    healthy: int = 0
    unhealthy: int = 0
    _problem: str = ""

    def publish(self, client: KubeClient, writer: Writer) -> bool:
        """Write the Device unless it is current or another writer's; return whether it was sent; raise ClusterError."""
        uid = self.uid()
        if not uid:
            return False
        reading = self.nvml.read()
        # Why GPUs cannot be looked for, or what is wrong with one, once.
        ill = (f"{gpu.uuid}: {gpu.problem}" for gpu in reading.gpus if gpu.problem)
        problem = "; ".join((*([reading.problem] if reading.problem else ()), *reading.unnamed, *ill))
        if problem and problem != self._problem:
            log = _log.info if reading.state is NvmlState.ABSENT else _log.warning
            log("GPUs", state=reading.state.value, reason=problem)
        self._problem = problem
        gpus = [gpu_entry(gpu, pci_location(self.sys, gpu.bus), reading.driver) for gpu in reading.gpus]
        self.healthy = sum(bool(gpu["health"]) for gpu in gpus)
        self.unhealthy = len(gpus) - self.healthy + len(reading.unnamed)
        current: dict[str, Any] | None = client.get(device_address(self.node).path)
        if current is not None and not is_made_by_agent(current):
            if self.state is not DiscoveryState.FOREIGN:
                _log.warning("GPUs are not published: another writer owns the Device", device=self.node)
            self.state = DiscoveryState.FOREIGN
            return False
        intent = device_write(gpus, NodeIdentity(self.node, uid), current)
        if intent is not None:
            writer.send(intent, full_response=False)
            _log.info("GPUs published", gpus=len(gpus), unhealthy=self.unhealthy)
        self.state = _OF_NVML[reading.state]
        return intent is not None


class DeviceMetrics(Collector):
    """Metrics of the search for GPUs, read when Prometheus scrapes."""

    def __init__(self, read: Callable[[], tuple[DiscoveryState, int, int]]) -> None:
        """Keep `read`, which returns the state of the search and the numbers of healthy and unhealthy GPUs."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        state, healthy, unhealthy = self._read()
        meaning = "1 for the state of the search for GPUs: published, nvml-absent, nvml-failed, object-of-others."
        discovery = GaugeMetricFamily("cotenant_enforcer_gpu_discovery", meaning, labels=["state"])
        discovery.add_metric([state.value], 1.0)
        yield discovery
        gpus = GaugeMetricFamily("cotenant_enforcer_gpus", "GPUs that NVML lists.", labels=["health"])
        gpus.add_metric(["healthy"], float(healthy))
        gpus.add_metric(["unhealthy"], float(unhealthy))
        yield gpus
