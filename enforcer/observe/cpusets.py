"""Lists of CPUs and their owners: the kernel's text form, and the annotations of pods and of the node. Pure.

Every strategy that changes cpusets and the hooks at container creation use it. An annotation that cannot be read gives
no CPUs and a reason (`Assigned.broken`): a caller must distinguish "has none" from "cannot be read". Sources: cpuset(7)
"List format"; Koordinator's annotations `scheduling.koordinator.sh/resource-status`, `node.koordinator.sh/reservation`
and `node.koordinator.sh/system-qos-resource`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from cotenant.base.allocation.cpu_annotations import assignment_of, reserved_cpus, system_cpus
from cotenant.base.allocation.cpu_topology import Cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.protocol import RESOURCE_STATUS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import GroupReading, Knob, KubeQos, NodeReading, PodReading, PodSpec
from cotenant.enforcer.decide.changes import Place
from cotenant.enforcer.decide.overrides import live


@dataclass(frozen=True, slots=True)
class Assigned:
    """The CPUs that the scheduler assigned to a pod; `broken` says why its annotation cannot be read, or is ""."""

    cpus: Cpus = frozenset()
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes that the scheduler assigned to the pod."""
    broken: str = ""


def pod_assignment(pod: PodSpec) -> Assigned:
    """Return the CPUs and NUMA nodes of a pod's resource-status annotation."""
    try:
        assignment = assignment_of(pod.annotations, pod.key)
    except UsageError as bad:
        return Assigned(broken=bad.message)
    return Assigned(assignment.cpus, assignment.numa_nodes)


def beside_static_kubelet(pod: PodSpec) -> PodSpec:
    """Return the pod with its annotated CPUs moved to `refused_cpus`, for nodes whose kubelet assigns CPUs.

    The scheduler and the kubelet would assign the same CPUs twice. An annotation with NUMA nodes alone stays in force,
    because it selects among shared CPUs.
    """
    cpus = pod_assignment(pod).cpus
    if not cpus:
        return pod
    others = {key: text for key, text in pod.annotations.items() if key != RESOURCE_STATUS_ANNOTATION}
    return replace(pod, annotations=others, refused_cpus=cpus)


def owned_cpus(pods: Iterable[PodSpec], *classes: QosClass) -> Cpus:
    """Return the CPUs assigned to live pods of these classes; skip pods whose annotation names too many CPUs."""
    owners = (p for p in pods if p.qos_class in classes and live(p) and not overclaims(p))
    return frozenset().union(*(pod_assignment(pod).cpus for pod in owners))


def overclaims(pod: PodSpec) -> bool:
    """Return whether the pod's annotation names more CPUs than the pod requests.

    The scheduler never assigns more, but any user may write an annotation and could exclude all other pods. Requests
    are counted as by a scheduler: without a resize that the kubelet calls infeasible.
    """
    cpus = pod_assignment(pod).cpus
    return bool(cpus) and len(cpus) * MILLICORES_PER_CORE > counted_requests(pod.resources).get("cpu", 0)


def kubelet_shared_cpus(pods: Iterable[PodReading], online: Cpus, ours: Container[Place]) -> Cpus:
    """Return the CPUs on which a kubelet that may assign CPUs lets pods without assigned CPUs run.

    They are the CPUs of the containers of Burstable and BestEffort pods, except cpusets that the agent set. The kubelet
    keeps such containers off the CPUs of Guaranteed pods and, by a policy option, off reserved CPUs. An empty cpuset
    means every CPU.
    """
    shared: Cpus = frozenset()
    for pod in pods:
        for group in (c.group for c in pod.containers if pod.spec.kube_qos is not KubeQos.GUARANTEED):
            if group is not None and (group.path, Knob.CPUSET_CPUS) not in ours:
                cpus = _cpuset_of(group)
                shared |= frozenset() if cpus is None else cpus or online
    return shared & online


def has_own_cpus(pod: PodReading, node: NodeReading) -> bool:
    """Return whether a pod has exclusive CPUs, by its annotation or by the kubelet.

    If the kubelet does not report its assignments, cgroups show them: only a pod with exclusive CPUs has a container
    whose cpuset has no CPU of `node.kubelet_shared`.
    """
    if pod_assignment(pod.spec).cpus or pod.spec.key in node.kubelet_cpus:
        return True
    cpusets = (_cpuset_of(c.group) for c in pod.containers if c.group is not None)
    return bool(node.kubelet_shared) and any(cpus and not cpus & node.kubelet_shared for cpus in cpusets)


def _cpuset_of(group: GroupReading) -> Cpus | None:
    """Return the CPUs of a cgroup's own list, no CPUs if it is empty; None if it cannot be read."""
    try:
        return parse_cpus(str(group.knobs[Knob.CPUSET_CPUS]))
    except (UsageError, KeyError):
        return None


def forbidden_cpus(node: NodeReading, pods: Iterable[PodSpec]) -> Cpus:
    """Return the CPUs that neither the share pools nor best effort may use.

    They are the CPUs of LSE pods, reserved CPUs, those of the SYSTEM class if it has them exclusively, those offered to
    ResourceClaims, and those that the kubelet assigned to one pod or keeps free.
    """
    system, exclusive = system_cpus(node.annotations, node.name)
    closed = owned_cpus(pods, QosClass.LSE) | reserved_cpus(node.annotations, node.name)
    kept_free = online_cpus(node) - node.kubelet_shared if node.kubelet_shared else frozenset()
    own_system = system if exclusive else frozenset()
    return closed.union(own_system, node.offered_cpus, kept_free, *node.kubelet_cpus.values())


def may_have_claimed_cores(pod: PodSpec, node: NodeReading) -> bool:
    """Return whether the pod's CPUs may be from a ResourceClaim, so that only the creation hook may set them."""
    return pod.claims and bool(node.offered_cpus)


def online_cpus(node: NodeReading) -> Cpus:
    """Return all online CPUs of the machine."""
    return frozenset(p.id for p in node.processors)
