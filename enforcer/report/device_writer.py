"""EDGE: publishes the node's GPUs as its Device object, when they are others than it says.

What NVML does not tell leaves the object as it is but for GPUs that it lists: where NVML failed or went away, these are
told unhealthy, so that nobody gives them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.enforcer.observe.nvml import Nvml, NvmlState
from cotenant.enforcer.observe.pci_sysfs import pci_location
from cotenant.enforcer.report.device_report import device_address, device_write, gpu_entry, is_made_by_agent

_log = structlog.get_logger(__name__)


class DiscoveryState(StrEnum):
    """The progress of the search for GPUs."""

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
    """The publisher of GPUs that `Reporter` calls per report; `uid` is the Node's, "" before it is known."""

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
        """Look, read what is there, write what differs; False when nothing was written. ClusterError."""
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
    """The search for GPUs, read when Prometheus asks."""

    def __init__(self, read: Callable[[], tuple[DiscoveryState, int, int]]) -> None:
        """read: how far it got, and how many GPUs are healthy and unhealthy."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        state, healthy, unhealthy = self._read()
        meaning = "1 for how far the search for GPUs got: published, nvml-absent, nvml-failed, object-of-others."
        discovery = GaugeMetricFamily("cotenant_enforcer_gpu_discovery", meaning, labels=["state"])
        discovery.add_metric([state.value], 1.0)
        yield discovery
        gpus = GaugeMetricFamily("cotenant_enforcer_gpus", "GPUs that NVML lists.", labels=["health"])
        gpus.add_metric(["healthy"], float(healthy))
        gpus.add_metric(["unhealthy"], float(unhealthy))
        yield gpus
