"""CPU orchestration on the node: which pods run on which CPUs, as the scheduler assigned them.

LSE and LSR pods own the CPUs of their annotation `resource-status`; all other pods share the rest, without the CPUs
that the kubelet assigned to one pod and those that the node offers to ResourceClaims. For each pod the first matching
rule decides:

0. It has CPUs of the kubelet's static CPU manager, or claims on a node that offers cores: nothing is set
1. CPUs in its annotation: exactly these, and no CFS quota on pod and containers, which could only throttle it there;
   but not if it names more CPUs than the pod requests, which no scheduler does. Where the kubelet's static CPU manager
   assigns CPUs, such annotations are removed before and reported (`cpusets.beside_static_kubelet`)
2. NUMA nodes in its annotation: the share pool of these nodes (for best effort its own pool, if enabled)
3. SYSTEM: the CPUs that the node keeps for it, if any
4. LS: the share pool
5. Kubernetes' BestEffort: nothing is set, as `suppress` decides; but all CPUs except those of LSE pods, if they own any
   and `suppress` does not change cpusets
6. Without a label: nothing is set under the kubelet's static CPU manager, which owns such pods; else the share pool

While it is not known whether the kubelet assigns CPUs, Guaranteed pods and pods without a label stay where they are.

While `suppress` changes cpusets, it decides for best effort, whatever the annotations say: its tier has fewer CPUs.

The share pool is all CPUs without those of LSE and LSR pods and claims, the node's reserved and SYSTEM's exclusive
ones, and those that a kubelet which assigns CPUs, or may do so, keeps free of other pods. Best effort's pool also has
the CPUs of LSR pods, which lend idle time. Only containers are moved; tiers and pods keep all CPUs, so no parent can
lose a CPU that a child still has. A pool without CPUs is reported and moves no container.
Source: Koordinator's koordlet, hook `cpuset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cotenant.base.allocation.cpu_annotations import system_cpus
from cotenant.base.allocation.cpu_topology import Cpus, format_cpus
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.text import counted
from cotenant.enforcer.contract import (
    NO_LIMIT,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    Stateless,
    Step,
    StrategyPlan,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import has_skip_hooks_label
from cotenant.enforcer.decide.kubelet_values import sets_no_quotas, values_before_hooks
from cotenant.enforcer.decide.overrides import UNREADABLE, live
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.observe.cpusets import (
    Assigned,
    forbidden_cpus,
    may_have_claimed_cores,
    online_cpus,
    overclaims,
    owned_cpus,
    pod_assignment,
)

NAME: Final = "cpuset-pools"
EMPTY_POOL: Final = "SharePoolEmpty"
OFFLINE: Final = "AssignedCpusOffline"
OVERCLAIMS: Final = "AssignedCpusNotRequested"
KUBELET_OWNS: Final = "KubeletOwnsCpus"


@dataclass(frozen=True, slots=True)
class Pools:
    """The present CPU pools of a node by kind of pod."""

    online: Cpus
    shared: Cpus
    best_effort: Cpus
    system: Cpus
    exclusive: Cpus = frozenset()
    """CPUs of LSE pods, and those that claims may have."""


@dataclass(frozen=True, slots=True)
class CpusetPlacement:
    """The CPUs of a pod's containers and why; `cpus` is None if the agent does not set them."""

    cpus: Cpus | None = None
    why: str = ""
    bound: bool = False
    """True if the CPUs are the pod's own."""


@dataclass(frozen=True, slots=True)
class CpusetPools(Stateless):
    """The strategy that places pods on CPUs; `best_effort_pools`: BE pods too, unless `suppress` sets their CPUs."""

    best_effort_pools: bool = False
    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return containers' cpuset.cpus in live pods without the skip label; pods with their own CPUs get no quota."""
        pods = [p for p in observation.pods if live(p.spec) and not has_skip_hooks_label(p.spec)]
        pools = pools_of(observation.node, [p.spec for p in observation.pods])
        by_cpuset = policy.thresholds.enable and policy.thresholds.cpu_suppress_policy == "cpuset"
        places = [(p, self._place(p.spec, observation.node, pools, suppressed_by_cpuset=by_cpuset)) for p in pods]
        for index, (pod, place) in enumerate(places if observation.node.kubelet_static_cpus is None else ()):
            # CPUs that a kubelet may have chosen stay: a static CPU manager owns such pods.
            qos_class, kube_qos = pod.spec.qos_class, pod.spec.kube_qos
            theirs = kube_qos is KubeQos.GUARANTEED or (qos_class is QosClass.NONE and not pod.spec.best_effort)
            present = {c.group.knobs.get(Knob.CPUSET_CPUS) for c in pod.containers if c.group is not None}
            if theirs and present != {format_cpus(place.cpus or ())}:
                places[index] = (pod, CpusetPlacement())
        quotas_off = sets_no_quotas(observation)
        wants = tuple(w for pod, place in places for w in _wants(pod, place, pools, quotas_off))
        return Step(StrategyPlan(wants, verdicts=tuple(_placement_verdicts(places, pools, observation.node))), state)

    def _place(self, pod: PodSpec, node: NodeReading, pools: Pools, suppressed_by_cpuset: bool) -> CpusetPlacement:
        """Apply the first rule of the module that matches the pod; an empty placement leaves its CPUs unchanged."""
        assignment = pod_assignment(pod)
        if (pod.best_effort and suppressed_by_cpuset) or pod.key in node.kubelet_cpus:
            return CpusetPlacement()
        if may_have_claimed_cores(pod, node):
            return CpusetPlacement()
        if assignment.cpus and not overclaims(pod):
            return CpusetPlacement(assignment.cpus & pools.online, "CPUs that the scheduler assigned", bound=True)
        if pod.best_effort and self.best_effort_pools and assignment.numa_nodes:
            cpus = pools.best_effort & _cpus_on(node, assignment.numa_nodes)
            return CpusetPlacement(cpus, "CPUs for best effort on the pod's NUMA nodes")
        if pod.best_effort:
            why = "CPUs that no LSE pod or claim has"
            return CpusetPlacement(pools.best_effort, why) if pools.exclusive else CpusetPlacement()
        return _shared_placement(pod, assignment, node, pools)


def pools_of(node: NodeReading, pods: Iterable[PodSpec]) -> Pools:
    """Return the node's pools; `pods` must be all its pods, because LSE and LSR pods own CPUs."""
    everybody = list(pods)
    free = online_cpus(node) - forbidden_cpus(node, everybody)
    shared = free - owned_cpus(everybody, QosClass.LSR)
    system = system_cpus(node.annotations, node.name)[0] & online_cpus(node)
    return Pools(online_cpus(node), shared, free, system, owned_cpus(everybody, QosClass.LSE) | node.offered_cpus)


def _shared_placement(pod: PodSpec, assignment: Assigned, node: NodeReading, pools: Pools) -> CpusetPlacement:
    """Apply rules 2 to 6 to a pod that is not best effort."""
    if assignment.numa_nodes:
        return CpusetPlacement(pools.shared & _cpus_on(node, assignment.numa_nodes), "shared CPUs on its NUMA nodes")
    if pod.qos_class is QosClass.SYSTEM:
        return CpusetPlacement(pools.system or None, "CPUs that the node keeps for class SYSTEM")
    if pod.qos_class is QosClass.LS:
        return CpusetPlacement(pools.shared, "shared CPUs")
    if pod.qos_class is not QosClass.NONE or node.kubelet_static_cpus or pod.kube_qos is KubeQos.BEST_EFFORT:
        return CpusetPlacement()
    return CpusetPlacement(pools.shared, "shared CPUs")


def _cpus_on(node: NodeReading, numa_nodes: Iterable[int]) -> Cpus:
    node_ids = set(numa_nodes)
    return frozenset(p.id for p in node.processors if p.numa_node in node_ids)


def _wants(pod: PodReading, place: CpusetPlacement, pools: Pools, quotas_off: bool) -> Iterator[Want]:
    """Yield a placement's wants; every CPU needs no want, because that is the kubelet's default."""
    if not place.cpus or (not place.bound and place.cpus == pools.online):
        return
    if place.bound and pod.group is not None:
        yield Want(pod.group.path, Knob.CPU_QUOTA, NO_LIMIT, Level.POD, NAME, "the pod has exclusive CPUs")
    text = format_cpus(place.cpus)
    for container in pod.containers:
        if container.group is not None:
            path = container.group.path
            every = format_cpus(pools.online) if place.bound else None
            yield Want(path, Knob.CPUSET_CPUS, text, Level.CONTAINER, NAME, place.why, made_from=every)
            if place.bound:
                before = values_before_hooks(pod.spec, container.spec, quotas_off)
                why = "the pod has exclusive CPUs"
                quota = before.get(Knob.CPU_QUOTA)
                yield Want(path, Knob.CPU_QUOTA, NO_LIMIT, Level.CONTAINER, NAME, why, made_from=quota)


def _placement_verdicts(
    places: Iterable[tuple[PodReading, CpusetPlacement]], pools: Pools, node: NodeReading
) -> Iterator[Verdict]:
    """Yield verdicts on unreadable annotations, too many or offline CPUs, and empty pools."""
    for pod, place in places:
        assignment = pod_assignment(pod.spec)
        if assignment.broken:
            yield Verdict(pod.spec.key, UNREADABLE, assignment.broken, warning=True)
        if pod.spec.refused_cpus:
            cpus = format_cpus(pod.spec.refused_cpus)
            why = f"but the kubelet's static CPU manager assigns CPUs on {node.name}: the annotation is ignored"
            message = f"{pod.spec.key}: its annotation names CPUs {cpus}, {why}"
            yield Verdict(pod.spec.key, KUBELET_OWNS, message, warning=True)
        elif overclaims(pod.spec):
            names = f"its annotation names {counted(len(assignment.cpus), 'CPU')}"
            message = f"{pod.spec.key}: {names}, more than the pod requests: the annotation is ignored"
            yield Verdict(pod.spec.key, OVERCLAIMS, message, warning=True)
        if place.cpus is not None and not place.cpus:
            message = f"{pod.spec.key}: there are no {place.why}; its CPUs are not changed"
            yield Verdict(pod.spec.key, EMPTY_POOL, message, warning=True)
        elif assignment.cpus - pools.online:
            offline_cpus = format_cpus(assignment.cpus - pools.online)
            message = f"{pod.spec.key}: CPUs {offline_cpus} are assigned to it, but offline on {node.name}"
            yield Verdict(pod.spec.key, OFFLINE, message, warning=True)
