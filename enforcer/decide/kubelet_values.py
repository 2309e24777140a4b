"""Values that only a node agent sets, and the values that the kubelet would have set in their place. Pure.

With another state folder, or after or beside an agent of another kind (koordlet), the node has values without a
recorded original; best effort would stay at 2 % of a core for ever. But most values may also be the kubelet's, and
removing one of those would leave a pod without a limit. So only a value that the kubelet can never have written counts
as an agent's (a tier is the cgroup of a QoS class):

    kubepods and all below          cpu.burst, group identity other than 0
    pods, best effort's tier        cpu.idle, where the weight that it hides is known
    best effort's tier              weight other than the smallest, a CPU quota, CPUs fewer than kubepods has
    pods of class BestEffort        weight other than the smallest, a CPU quota, a memory limit, memory.high,
                                    the tier's few CPUs

Every other value stays, whoever set it: the limit of a pod itself, of an unfinished resize, of a kubelet's MemoryQoS
(memory.high, memory.min), or of an operator. No limit computed from the spec replaces it: what the kubelet sets also
depends on its flags and on what it has granted, and may be tighter. `unexplained_limits` reports limits that are
tighter than what the kubelet says that it has granted. A tier's memory limit may be the kubelet's (QOSReserved). CPU
lists of containers are the choice of the runtime or the kubelet (static CPU manager, NRI policies) unless the tier
itself is narrowed. Source: kubelet's container manager of Kubernetes 1.35 (ResourceConfigForPod,
qosContainerManagerImpl, generateLinuxContainerResources).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    CgroupPath,
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    PodReading,
    PodSpec,
    Value,
)
from cotenant.enforcer.decide.changes import OriginalValue, Place
from cotenant.enforcer.decide.container_resources import shares_of
from cotenant.enforcer.decide.granted import CPU, MEMORY, container_limit, container_request, pod_limit, pod_request
from cotenant.enforcer.decide.knobs import LEAST_QUOTA, SHARES, weight_of
from cotenant.enforcer.decide.settle import AFTER_IDLE
from cotenant.enforcer.decide.write_order import wider
from cotenant.enforcer.observe.cpusets import may_have_claimed_cores, pod_assignment

AUTHOR: Final = "lost-journal"
Values = dict[Knob, Value]
_NEVER_WRITTEN: Final[Values] = {Knob.CPU_IDLE: 0, Knob.CPU_BURST: 0, Knob.CPU_BVT: 0}
"""Neither by the kubelet nor, at its request, by a runtime."""
_BEST_EFFORT: Final[Values] = {Knob.CPU_SHARES: SHARES[0], Knob.CPU_QUOTA: NO_LIMIT, Knob.MEMORY_LIMIT: NO_LIMIT}
"""Of a pod of class BestEffort, which has no amounts of cpu and memory at all, and of its containers."""
_TOLERANCE: Final = 100
"""Microseconds per 100 ms by which a quota in a kubelet's other CFS period may be less than its limit: a millicore."""


def lost_notes(observation: Observation) -> dict[Place, OriginalValue]:
    """Return journal entries for values that only an agent can have set, with the kubelet's values as originals.

    While cpu.idle is 1, the kernel hides the earlier weight, so cpu.shares gets an entry too. Its `written` is
    AFTER_IDLE, the values that the kernel sets when the cgroup ceases to be idle; the agent then restores the original.
    """
    notes = {}
    for group, values in _expected_values(observation):
        for knob, expected in values.items():
            present = group.knobs.get(knob)
            hidden = knob is Knob.CPU_SHARES and group.knobs.get(Knob.CPU_IDLE) == 1
            if knob is Knob.CPUSET_CPUS:
                differs = bool(present) and bool(expected) and present != expected
            elif knob is Knob.CPU_SHARES:  # cgroup v2 weighs more coarsely
                differs = isinstance(present, int) and weight_of(present) != weight_of(SHARES[0])
            else:
                differs = present != expected
            if hidden:
                written: tuple[Value, ...] = AFTER_IDLE
            elif differs and present is not None:
                written = (present,)
            else:
                continue
            notes[group.path, knob] = OriginalValue(group.path, knob, group.level, expected, written, AUTHOR)
    return notes


def _expected_values(observation: Observation) -> Iterator[tuple[GroupReading, Values]]:
    """Yield cgroups with the values that they have unless an agent has changed them."""
    all_cpus = observation.kubepods.knobs.get(Knob.CPUSET_CPUS, "") if observation.kubepods else ""
    best_effort = observation.best_effort_root
    narrowed = best_effort is not None and best_effort.knobs.get(Knob.CPUSET_CPUS, "") not in ("", all_cpus)
    cpus: Values = {Knob.CPUSET_CPUS: all_cpus} if narrowed else {}
    for tier in observation.tiers.values():
        if tier is best_effort:
            yield tier, {**_NEVER_WRITTEN, Knob.CPU_SHARES: SHARES[0], Knob.CPU_QUOTA: NO_LIMIT, **cpus}
        else:
            yield tier, _without_idle()
    for pod in observation.pods:
        yield from _of_pod(pod, observation, cpus)


def _of_pod(pod: PodReading, observation: Observation, cpus: Values) -> Iterator[tuple[GroupReading, Values]]:
    """Yield a pod's cgroups with these values; its Kubernetes class never changes, so an old list of pods is enough."""
    if pod.spec.kube_qos is not KubeQos.BEST_EFFORT:
        # The groups of a pod that has amounts, with the kubelet's values. Its weight is included only where cpu.idle
        # hides it, because it would be restored as another weight.
        request = pod_request(pod.spec, CPU)
        requests = [(c.group, _weight(pod.spec, c.spec)) for c in pod.containers]
        requests.append((pod.group, None if request is None else request + pod.spec.overhead.get(CPU, 0)))
        for group, millicores in requests:
            if group is None:
                continue
            if group.knobs.get(Knob.CPU_IDLE) != 1:
                yield group, _NEVER_WRITTEN
            elif millicores is None:
                yield group, _without_idle()
            else:
                yield group, {**_NEVER_WRITTEN, Knob.CPU_SHARES: shares_of(millicores)}
        return
    values = {**_NEVER_WRITTEN, **_BEST_EFFORT, Knob.MEMORY_HIGH: NO_LIMIT}
    placed = observation.node.kubelet_static_cpus is not False or may_have_claimed_cores(pod.spec, observation.node)
    for container in pod.containers:
        if container.group is not None:
            yield container.group, {**values, **({} if placed else cpus)}
    if pod.group is not None:
        yield pod.group, {**values, **cpus}


def _weight(pod: PodSpec, container: ContainerSpec) -> int | None:
    """Return the millicores from which the kubelet computes a container's weight: its request, else its limit."""
    request = container_request(pod, container, CPU)
    return container_limit(pod, container, CPU) if request == 0 else request


def _without_idle() -> Values:
    return {knob: value for knob, value in _NEVER_WRITTEN.items() if knob is not Knob.CPU_IDLE}


# --- values of which nobody knows the origin --------------------------------------------------------------------------
def unexplained_limits(observation: Observation) -> Iterator[tuple[CgroupPath, str]]:
    """Yield a sentence for each limit below what the kubelet reports as granted, except in BestEffort pods."""
    for pod in (p for p in observation.pods if p.spec.kube_qos is not KubeQos.BEST_EFFORT):
        for container in pod.containers:
            limits = {name: container_limit(pod.spec, container.spec, name) for name in (CPU, MEMORY)}
            yield from _narrower_than_granted(container.group, limits, f"{pod.spec.key}/{container.spec.name}")
        limits = {name: pod_limit(pod.spec, name) for name in (CPU, MEMORY)}
        yield from _narrower_than_granted(pod.group, limits, pod.spec.key)


def _narrower_than_granted(
    group: GroupReading | None, granted: dict[str, int | None], whose: str
) -> Iterator[tuple[CgroupPath, str]]:
    """Yield (cgroup, text) for a limit that is lower than the kubelet granted, without a record of who lowered it."""
    if group is None:
        return
    for name, knob, unit in ((CPU, Knob.CPU_QUOTA, "us"), (MEMORY, Knob.MEMORY_LIMIT, "bytes")):
        limit = granted[name]
        if limit is None:
            continue
        expected = NO_LIMIT if limit <= 0 else limit * 100 if knob is Knob.CPU_QUOTA else limit
        present = group.knobs.get(knob)
        slack = _TOLERANCE if knob is Knob.CPU_QUOTA else 1 << 16
        if isinstance(present, int) and present != NO_LIMIT and wider(expected, present + slack):
            amount = "no limit" if expected == NO_LIMIT else f"{expected} {unit}"
            text = (
                f"{whose}: {knob} is {present} {unit} and the kubelet has granted {amount}; no original value is known"
            )
            yield group.path, f"{text}, so the value is left as it is"


# --- whether it sets quotas at all --------------------------------------------------------------------------------
def sets_no_quotas(observation: Observation) -> bool:
    """Return whether the kubelet sets no CPU quotas (cpuCFSQuota: false), however it was configured.

    The quotas of Burstable pods with a limit show it, because the agent neither adds nor removes quotas of such pods.
    If no such pod runs, the kubelet's configuration file decides.
    """
    limited = False
    for pod in observation.pods:
        spec, quota = pod.spec, pod.group.knobs.get(Knob.CPU_QUOTA) if pod.group is not None else None
        if quota is None or spec.kube_qos is not KubeQos.BURSTABLE:
            continue
        ours = spec.qos_class in {QosClass.BE, QosClass.LSE, QosClass.LSR} or pod_assignment(spec).cpus
        if not ours and (pod_limit(spec, CPU) or 0) > 0:
            if quota != NO_LIMIT:
                return False
            limited = True
    return limited or observation.node.kubelet_quotas_off


# --- what the kubelet sets: on a pod, and on a container before a runtime hook ----------------------------------------
def values_of_pod(pod: PodSpec, quotas_off: bool = False) -> Values:
    """Return the kubelet's known values for a pod's cgroup: CPU shares, quota and memory limit."""
    if pod.kube_qos is KubeQos.BEST_EFFORT:
        return {**_BEST_EFFORT}
    request = pod_request(pod, CPU)
    weight = None if request is None else request + pod.overhead.get(CPU, 0)
    return _values(weight, pod_limit(pod, CPU), pod_limit(pod, MEMORY), quotas_off)


def values_before_hooks(pod: PodSpec, container: ContainerSpec, quotas_off: bool = False) -> Values:
    """Return the known shares, quota and memory limit that the kubelet passes to a runtime for a container.

    A BestEffort pod has the smallest weight and no limits. For other pods the kubelet's report is used only where it
    equals the spec, because the report also shows a hook's values. `quotas_off`: the kubelet sets no CPU quota.
    """
    if pod.kube_qos is KubeQos.BEST_EFFORT:
        return {**_BEST_EFFORT}
    weight = _weight(pod, container)
    if container_request(pod, container, CPU) != container.amounts.requests.get(CPU, 0):
        weight = None
    own = {name: container.limits.get(name, 0) or (pod.own_limits or {}).get(name, 0) for name in (CPU, MEMORY)}
    limits = {name: container_limit(pod, container, name) for name in own}
    cpu, memory = (limits[name] if limits[name] == own[name] else None for name in (CPU, MEMORY))
    return _values(weight, cpu, memory, quotas_off)


def _values(weight: int | None, cpu: int | None, memory: int | None, quotas_off: bool) -> Values:
    """Return the knobs of a weight and limits in millicores and bytes: None = not known, a limit of 0 = none."""
    values: Values = {} if weight is None else {Knob.CPU_SHARES: shares_of(weight)}
    if cpu is not None:
        values[Knob.CPU_QUOTA] = NO_LIMIT if quotas_off or cpu <= 0 else max(cpu * 100, LEAST_QUOTA)
    if memory is not None:
        values[Knob.MEMORY_LIMIT] = memory if memory > 0 else NO_LIMIT
    return values
