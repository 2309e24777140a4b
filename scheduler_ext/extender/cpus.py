"""Find the nodes with free CPUs for a pod with exclusive CPUs, from a summary per node. Pure.

A filter call may name thousands of nodes, so the filter compares only counts; the bind verb chooses the CPUs, from
objects that it reads itself. The counts ignore which exclusive policies are compatible, so that bind may still refuse a
node that passed; the scheduler then tries again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from cotenant.base.allocation.allocator import HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuRequest,
    NumaPolicy,
    NumaStrategy,
    fewest_numa_nodes,
)
from cotenant.base.allocation.cpu_allocator import (
    CpuAllocator,
    NodeCpuPolicies,
    amplified_free_cpus,
    node_policies,
    occupation,
    request_on,
)
from cotenant.base.allocation.topology_document import STATIC, UNKNOWN, parse_topology
from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.arrays import Codes, Rows
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import CpuAllocationSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot
from cotenant.scheduler_ext.extender.watch.frame import FreeCpus

BIND_POLICY: Final = "FullPCPUs"
"""Placement of CPUs on cores if neither pod nor node sets one. Default of Koordinator's NodeNUMAResource
(defaultCPUBindPolicy); pods and nodes may set their own."""
NUMA_STRATEGY: Final = "LeastAllocated"
"""The NUMA node that is filled first if the node does not set it. Default of Koordinator's NodeNUMAResource
(scoringStrategy); nodes may set their own."""

_REFUSED: Final = {"topology": Code.NO_CPU_TOPOLOGY, "kubelet": Code.KUBELET_CPUS}


def cpu_allocator() -> CpuAllocator:
    """Return the allocator of exclusive CPUs that filter and bind share."""
    return CpuAllocator(CpuBindPolicy(BIND_POLICY), NumaStrategy(NUMA_STRATEGY))


def free_cpu_capacity(node: NodeHardware, pods: Iterable[NewPod]) -> FreeCpus:
    """Return the CPUs of a node that these pods leave free, by the NodeResourceTopology in `node.documents`."""
    document = next(iter(node.documents.values()), {})
    try:
        cpus = parse_topology(document)
    except UsageError:
        return FreeCpus("topology")
    if cpus.kubelet_policy in (STATIC, UNKNOWN):
        return FreeCpus("kubelet")
    holdings = [Holding(pod.key, pod.identity.uid, pod.identity.annotations, pod.requests) for pod in pods]
    topology = cpus.topology
    usable = topology.cpus - topology.isolated
    free_cpus = usable - occupation(cpus, node, holdings).taken
    counts: list[tuple[int, int, int, int]] = []
    for numa_node, cores in topology.cores_of_numa_node.items():
        free_of_core = [sum(1 for cpu in topology.cores[core] if cpu in free_cpus) for core in cores]
        full = [n for n, core in zip(free_of_core, cores, strict=True) if n == len(topology.cores[core])]
        size = len(usable & topology.cpus_on([numa_node]))
        counts.append((sum(free_of_core), sum(full), sum(1 for n in free_of_core if n), size))
    free, totals, idle, sizes = (list(column) for column in zip(*counts, strict=True)) if counts else ([], [], [], [])
    policies = node_policies(node.labels)
    step = int(np.gcd.reduce([len(threads) for threads in topology.cores.values()])) if topology.cores else 1
    bind, numa, strategy = (policy or "" for policy in (policies.bind, policies.numa, policies.strategy))
    return FreeCpus("", free, totals, idle, sizes, step, bind, numa, strategy, amplified_free_cpus(node, holdings))


def refusal(cpus: FreeCpus | None, request: CpuRequest) -> Code:
    """Return PASS if the free CPUs suffice for the request, else the reason; if `cpus` is None, NO_CPU_TOPOLOGY."""
    if cpus is None or cpus.closed:
        return _REFUSED[cpus.closed] if cpus else Code.NO_CPU_TOPOLOGY
    policies = NodeCpuPolicies(
        CpuBindPolicy(cpus.bind) if cpus.bind else None,
        NumaPolicy(cpus.numa) if cpus.numa else None,
        NumaStrategy(cpus.strategy) if cpus.strategy else None,
    )
    on_node = request_on(request, policies)
    if on_node is None:
        return Code.CPU_POLICY
    if cpus.amplified is not None and cpus.amplified < on_node.count:
        return Code.NO_CPUS
    of_kind = cpus.free
    if on_node.required:
        if on_node.bind is CpuBindPolicy.FULL_PCPUS and on_node.count % cpus.step:
            return Code.NO_CPUS
        of_kind = cpus.whole if on_node.bind is CpuBindPolicy.FULL_PCPUS else cpus.cores
    if on_node.numa is NumaPolicy.SINGLE_NUMA_NODE:
        numa_nodes = 1
    elif on_node.numa is NumaPolicy.RESTRICTED:
        numa_nodes = fewest_numa_nodes(cpus.sizes, on_node.count)
    else:
        numa_nodes = len(cpus.sizes)
    return Code.PASS if sum(sorted(of_kind, reverse=True)[:numa_nodes]) >= on_node.count else Code.NO_CPUS


def apply(codes: Codes, snapshot: NodeSnapshot, rows: Rows, pod: NewPod, settings: CpuAllocationSettings) -> None:
    """Set a refusal in `codes` (n,), in place, for rows without CPUs for the pod; row -1 (an unknown node) passes.

    Rows that other rules refuse are checked too, because those rules may withdraw their refusal.
    """
    request, unread = _request(pod, settings)
    if request is None and not unread:
        return
    for index, row in enumerate(rows.tolist()):
        if row >= 0:
            code = refusal(snapshot.rooms.get(snapshot.names[row]), request) if request else Code.CPU_REQUEST
            if code != Code.PASS:
                codes[index] = code


def together(snapshot: NodeSnapshot, pod: NewPod, rows: Rows, settings: CpuAllocationSettings) -> Rows:
    """Return the indices (m,) of `rows` whose node has enough free CPUs in one NUMA node; all indices if none has."""
    request, _ = _request(pod, settings)
    everywhere = np.arange(len(rows), dtype=np.intp)
    if request is None:  # nearly every pod
        return everywhere
    rooms = [snapshot.rooms.get(snapshot.names[row]) if row >= 0 else None for row in rows.tolist()]
    near = np.array([cpus is not None and max(cpus.free, default=0) >= request.count for cpus in rooms], np.bool_)
    return everywhere[near] if near.any() else everywhere


def _request(pod: NewPod, settings: CpuAllocationSettings) -> tuple[CpuRequest | None, bool]:
    """Return the pod's request for exclusive CPUs (None if it has none), and whether it has one that is invalid."""
    if not (settings.on and pod.wants_bind):
        return None, False
    claim, allocator = HardwareClaim(pod.identity, pod.requests), cpu_allocator()
    if not allocator.concerns(claim):
        return None, False
    try:
        return allocator.request(claim), False
    except UsageError:
        return None, True
