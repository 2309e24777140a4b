"""EDGE: publishes the node's CPUs as its NodeResourceTopology, when they are others than it says.

The definition of the kind is not ours: where it is not installed, ClusterAbsent says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.base.allocation.cpu_lists import Cpus
from cotenant.base.allocation.topology_document import NodeCpus, topology_address
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.enforcer.observe.cpu_sysfs import numa_memory_bytes, read_topology
from cotenant.enforcer.report.topology_report import MachineCpus, topology_write

CpuReport = Callable[[MachineCpus], NodeCpus | None]
"""Whose the machine's CPUs are; None before the agent has seen its node."""


@dataclass(frozen=True, slots=True)
class TopologyPublisher:
    """The publisher of CPUs that `Reporter` calls per report; `uid` is the Node's, "" before it is known."""

    node: str
    uid: Callable[[], str]
    report: CpuReport
    sys: Path
    kubelet_reserved: Cpus = frozenset()
    subject: str = "CPUs"

    def publish(self, client: KubeClient, writer: Writer) -> bool:
        """Read what is there, write what differs; False when nothing was written. ClusterError, NodeUnreadable."""
        machine = MachineCpus(read_topology(self.sys), numa_memory_bytes(self.sys), self.kubelet_reserved)
        cpus, uid = self.report(machine), self.uid()
        if cpus is None or not uid:
            return False
        current: dict[str, Any] | None = client.get(topology_address(self.node).path)
        intent = topology_write(cpus, machine.memory_bytes, NodeIdentity(self.node, uid), current)
        if intent is None:
            return False
        writer.send(intent, full_response=False)
        return True
