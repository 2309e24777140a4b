"""The allocator of CPUs: LSE and LSR pods get exclusive CPUs, from those that their node publishes. Pure.

A node publishes its CPUs by its NodeResourceTopology, the reserved ones by annotations and its CPU policies by labels;
a pod has its policies in the annotations resource-spec and numa-topology-spec. If both have a policy, they must agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from cotenant.base.allocation.allocator import Allotment, HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuExclusivePolicy,
    CpuOccupation,
    CpuRequest,
    NumaPolicy,
    NumaStrategy,
    allocate_cpus,
)
from cotenant.base.allocation.cpu_annotations import CpuWish, assignment_of, assignment_text, wish_of
from cotenant.base.allocation.cpu_ownership import withheld_cpus
from cotenant.base.allocation.cpu_topology import Cpus
from cotenant.base.allocation.topology_document import COLLECTION, STATIC, UNKNOWN, NodeCpus, parse_topology
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.amplification import amplification_of, raw_allocatable
from cotenant.base.kubernetes.protocol import (
    CPU_BIND_POLICY_LABEL,
    NUMA_POLICY_LABEL,
    NUMA_SPEC_ANNOTATION,
    NUMA_STRATEGY_LABEL,
    RESOURCE_SPEC_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
)
from cotenant.base.kubernetes.qos import QosClass, qos_of
from cotenant.base.resource import MILLICORES_PER_CORE

EXCLUSIVE: Final = (QosClass.LSE, QosClass.LSR)
"""Classes whose pods have CPUs of their own."""
BURST: Final = "ConstrainedBurst"
"""Bind policy of a pod that shares CPUs: it gets none of its own."""
NO_TOPOLOGY: Final = "the node publishes no readable CPU topology"
KUBELET_OWNS: Final = "the kubelet's static CPU manager assigns the node's CPUs, or may do so"
TOO_FEW: Final = "too few free CPUs that match the pod's CPU policy"
AMPLIFIED: Final = "the node's CPU is amplified: {} CPUs are left after the requests of its other pods"
OTHER_POLICY: Final = "the node's CPU or NUMA policy differs from the pod's"
_BIND: Final = {"FullPCPUsOnly": CpuBindPolicy.FULL_PCPUS, "SpreadByPCPUs": CpuBindPolicy.SPREAD_BY_PCPUS}
_NO_POLICY: Final = ("", "Default", "None")
PolicyT = TypeVar("PolicyT", CpuBindPolicy, CpuExclusivePolicy, NumaPolicy, NumaStrategy)


@dataclass(frozen=True, slots=True)
class NodeCpuPolicies:
    """The CPU policies that a node's labels require; None if not set."""

    bind: CpuBindPolicy | None = None
    numa: NumaPolicy | None = None
    strategy: NumaStrategy | None = None


@dataclass(frozen=True, slots=True)
class CpuAllocator:
    """The allocator of exclusive CPUs; `bind` and `strategy` are defaults for pods and nodes without a policy."""

    bind: CpuBindPolicy = CpuBindPolicy.FULL_PCPUS
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED
    collection: str = COLLECTION
    wishes: tuple[str, ...] = (RESOURCE_SPEC_ANNOTATION, NUMA_SPEC_ANNOTATION)
    result: str = RESOURCE_STATUS_ANNOTATION

    def concerns(self, claim: HardwareClaim) -> bool:
        """Return whether the pod is LSE or LSR, requests CPU and does not request the shared pool by annotation."""
        if qos_of(claim.pod.labels) not in EXCLUSIVE or not claim.requests.get("cpu"):
            return False
        try:
            return _bind_text(wish_of(claim.pod.annotations, claim.pod.name)) != BURST
        except UsageError:
            return True  # `request` says why

    def request(self, claim: HardwareClaim) -> CpuRequest:
        """Return the pod's CPU request, independent of the node.

        Raise UsageError, naming the pod, if its request or its policies are invalid.
        """
        pod = f"{claim.pod.namespace}/{claim.pod.name}"
        millicores = claim.requests.get("cpu", 0)
        if millicores % MILLICORES_PER_CORE:
            raise UsageError(
                f"{pod} requests {millicores}m CPU: LSE and LSR pods get whole CPUs", fix="Request whole CPUs."
            )
        cpu_wish = wish_of(claim.pod.annotations, pod)
        bind = _policy(CpuBindPolicy, _bind_text(cpu_wish), pod)
        return CpuRequest(
            count=millicores // MILLICORES_PER_CORE,
            bind=bind or self.bind,
            required=cpu_wish.required_bind not in _NO_POLICY,
            exclusive=_policy(CpuExclusivePolicy, cpu_wish.exclusive, pod) or CpuExclusivePolicy.NONE,
            numa=_policy(NumaPolicy, cpu_wish.numa, pod) or NumaPolicy.NONE,
            strategy=self.strategy,
        )

    def allocate(self, node: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]) -> Allotment:
        """Return the pod's resource-status annotation for the node, or a refusal; UsageError for an invalid request."""
        request = self.request(claim)
        try:
            cpus = parse_topology(node.documents.get(COLLECTION, {}))
        except UsageError:
            return Allotment(refusal=NO_TOPOLOGY)
        if cpus.kubelet_policy in (STATIC, UNKNOWN):
            return Allotment(refusal=KUBELET_OWNS)
        on_node = request_on(request, node_policies(node.labels))
        if on_node is None:
            return Allotment(refusal=OTHER_POLICY)
        free_cpus = amplified_free_cpus(node, holdings)
        if free_cpus is not None and free_cpus < on_node.count:
            return Allotment(refusal=AMPLIFIED.format(free_cpus))
        chosen = allocate_cpus(cpus.topology, occupation(cpus, node, holdings), on_node)
        if chosen is None:
            return Allotment(refusal=TOO_FEW)
        return Allotment({RESOURCE_STATUS_ANNOTATION: assignment_text(cpus.topology, chosen)})


def node_policies(labels: Mapping[str, str]) -> NodeCpuPolicies:
    """Return the policies of a node's labels; an unknown value counts as not set."""
    numa, strategy = labels.get(NUMA_POLICY_LABEL, ""), labels.get(NUMA_STRATEGY_LABEL, "")
    return NodeCpuPolicies(
        _BIND.get(labels.get(CPU_BIND_POLICY_LABEL, "")),
        NumaPolicy(numa) if numa in list(NumaPolicy) and numa not in _NO_POLICY else None,
        NumaStrategy(strategy) if strategy in list(NumaStrategy) else None,
    )


def request_on(request: CpuRequest, policies: NodeCpuPolicies) -> CpuRequest | None:
    """Return the request under the policies that the node requires, or None if the pod requires another policy."""
    if policies.strategy is not None:
        request = replace(request, strategy=policies.strategy)
    if policies.bind is not None:
        if request.required and request.bind is not policies.bind:
            return None
        request = replace(request, bind=policies.bind, required=True)
    if policies.numa is not None:
        if request.numa not in (NumaPolicy.NONE, policies.numa):
            return None
        request = replace(request, numa=policies.numa)
    return request


def occupation(cpus: NodeCpus, node: NodeHardware, holdings: Iterable[Holding]) -> CpuOccupation:
    """Return the CPUs that pods own or may not get (`withheld_cpus`), and the cores and NUMA nodes not shared."""
    taken = frozenset[int]().union(*withheld_cpus(cpus, node.annotations, node.name).values())
    taken |= frozenset[int]().union(*(pod.cpus for pod in cpus.pods if pod.by_kubelet))
    cores: set[int] = set()
    numa_nodes: set[int] = set()
    for holding in holdings:
        own, exclusive = _cpus_of(holding)
        taken |= own
        places = [cpus.topology.by_id[cpu] for cpu in own if cpu in cpus.topology.by_id]
        if exclusive == CpuExclusivePolicy.PCPU_LEVEL:
            cores.update(place.core for place in places)
        if exclusive == CpuExclusivePolicy.NUMA_NODE_LEVEL:
            numa_nodes.update(place.numa_node for place in places)
    return CpuOccupation(taken, frozenset(cores), frozenset(numa_nodes))


def exclusive_cpus(holdings: Iterable[Holding]) -> Cpus:
    """Return the CPUs that pods own exclusively according to their annotations (`holdings`)."""
    return frozenset[int]().union(*(_cpus_of(holding)[0] for holding in holdings))


def amplified_free_cpus(node: NodeHardware, holdings: Iterable[Holding]) -> int | None:
    """Return the number of CPUs that a node with amplified CPU can still give exclusively; None if it is not amplified.

    An exclusive CPU takes `ratio` amplified CPUs, but kube-scheduler counts only one. This must therefore hold, where
    raw is the allocatable CPU before amplification: exclusive CPUs * ratio + requests of pods without exclusive CPUs <=
    raw * ratio. Source: Koordinator's NodeNUMAResource, `filterAmplifiedCPUs`.
    """
    ratio, raw = amplification_of(node.annotations, "cpu"), raw_allocatable(node.annotations).get("cpu")
    if ratio == 1 or raw is None:
        return None
    own = shared = 0
    for holding in holdings:
        cpus, _ = _cpus_of(holding)
        own += MILLICORES_PER_CORE * len(cpus)
        shared += 0 if cpus else holding.requests.get("cpu", 0)
    return max(math.floor((raw - own - shared / ratio) / MILLICORES_PER_CORE), 0)


def _cpus_of(holding: Holding) -> tuple[Cpus, str]:
    """Return a holding's CPUs and its exclusive policy; no CPUs if its annotation claims more than its pod requests."""
    try:
        cpus = assignment_of(holding.annotations, holding.pod).cpus
    except UsageError:
        return frozenset(), ""
    if not holding.entered and len(cpus) * MILLICORES_PER_CORE > holding.requests.get("cpu", 0):
        return frozenset(), ""
    try:
        return cpus, wish_of(holding.annotations, holding.pod).exclusive
    except UsageError:
        return cpus, ""


def _bind_text(cpu_wish: CpuWish) -> str:
    return next((text for text in (cpu_wish.required_bind, cpu_wish.preferred_bind) if text not in _NO_POLICY), "")


def _policy(kind: type[PolicyT], text: str, pod: str) -> PolicyT | None:
    if text in _NO_POLICY:
        return None
    try:
        return kind(text)
    except ValueError:
        choices = ", ".join(kind)
        raise UsageError(f"{pod}: policy {text[:40]!r} is not one of {choices}", fix="Correct the policy.") from None
