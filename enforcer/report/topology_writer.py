"""EDGE: publishes the node's CPUs as its NodeResourceTopology, if they differ from it.

The content comes from the agent's last observation. Without the CRD, which is not cotenant's, ClusterAbsent is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology
from cotenant.base.allocation.topology_document import (
    STATIC,
    UNKNOWN,
    NodeCpus,
    PodCpus,
    annotations_of,
    topology_address,
    zones_of,
)
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Apply, Create, Intent, Patch
from cotenant.enforcer.contract import Observation
from cotenant.enforcer.decide.overrides import live
from cotenant.enforcer.observe.cpusets import overclaims, pod_assignment
from cotenant.enforcer.observe.sysfs import numa_memory_bytes, read_topology
from cotenant.enforcer.strategies.cpuset_pools import pools_of

_POLICIES: Final = {True: STATIC, False: "none", None: UNKNOWN}


@dataclass(frozen=True, slots=True)
class MachineCpus:
    """The machine's CPUs from sysfs, its memory by NUMA node, and the CPUs that the kubelet's settings reserve."""

    topology: CpuTopology
    memory_bytes: Mapping[int, int]
    kubelet_reserved: Cpus = frozenset()


def node_cpus(observation: Observation, machine: MachineCpus) -> NodeCpus:
    """Return the CPUs that single pods own, by the kubelet or an annotation, and the CPUs that other pods share."""
    node, pods = observation.node, [pod.spec for pod in observation.pods]
    pools = pools_of(node, pods)
    exclusive = []
    for pod in pods:
        if kubelet_cpus := node.kubelet_cpus.get(pod.key):
            exclusive.append(PodCpus(pod.namespace, pod.name, pod.uid, kubelet_cpus, by_kubelet=True))
        elif live(pod) and (cpus := pod_assignment(pod).cpus) and not overclaims(pod):
            exclusive.append(PodCpus(pod.namespace, pod.name, pod.uid, cpus))
    return NodeCpus(
        machine.topology,
        _POLICIES[node.kubelet_static_cpus],
        machine.kubelet_reserved,
        tuple(exclusive),
        pools.shared,
        pools.best_effort,
    )


def topology_write(
    cpus: NodeCpus, memory_bytes: Mapping[int, int], node: NodeIdentity, current: Mapping[str, Any] | None
) -> Intent | None:
    """Return the request that publishes the CPUs; None if nothing differs.

    `current` is the present object, None if there is none. Its zones are kept as long as their CPUs are right, because
    the manager adds batch amounts to them. Otherwise they are replaced, provided the object has not changed since it
    was read.
    """
    name, uid = node
    address, annotations = topology_address(name), annotations_of(cpus)
    zones = zones_of(cpus.topology, memory_bytes)
    if current is None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"annotations": annotations, "ownerReferences": [owner]}
        body = address.manifest("NodeResourceTopology", metadata, topologyPolicies=["None"], zones=zones)
        return Create(address, body, why="the CPUs of this node")
    present: Mapping[str, Any] = current.get("metadata") or {}
    if _cpus_by_zone(current.get("zones")) != _cpus_by_zone(zones):
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": present.get("resourceVersion")}
        return Patch(address, (version, {"op": "add", "path": "/zones", "value": zones}), why="the CPUs have changed")
    published = present.get("annotations") or {}
    if all(published.get(key) == text for key, text in annotations.items()):
        return None
    body = address.manifest("NodeResourceTopology", {"annotations": annotations})
    return Apply(address, body, why="which pods own CPUs of this node")


def _cpus_by_zone(zones: Any) -> dict[str, str]:
    """Return the CPU capacity of each zone that is a NUMA node, as text."""
    return {
        str(zone.get("name")): str(resource.get("capacity"))
        for zone in zones or ()
        for resource in zone.get("resources") or ()
        if resource.get("name") == "cpu"
    }


@dataclass(frozen=True, slots=True)
class TopologyPublisher:
    """Publishes CPUs when `Reporter` calls it with each report; `uid` returns the Node's uid, "" before it is known."""

    node: str
    uid: Callable[[], str]
    report: Callable[[MachineCpus], NodeCpus | None]
    """Returns the owners of the machine's CPUs; None before the agent has read its node."""
    sys: Path
    kubelet_reserved: Cpus = frozenset()
    subject: str = "CPUs"

    def publish(self, client: KubeClient, writer: Writer) -> bool:
        """Write the NodeResourceTopology and return True if CPUs changed; raise ClusterError or NodeUnreadable."""
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
