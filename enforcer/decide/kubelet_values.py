"""Values that only a node agent sets, and the kubelet's values for them: unrecorded originals. Pure.

Another state folder, an agent of another kind before us (koordlet) or a second one beside us leave values that nothing
is noted of; best effort would stay at 2 % of a core for ever. But most values may as well be the kubelet's own, and
taking one of those away ends in a pod without a limit. So only what the kubelet can never have written is an agent's:

    kubepods and all below          cpu.burst, group identity other than 0
    pods, best effort's tier        cpu.idle, where the weight that it hides is known
    best effort's tier              weight other than the smallest, a CPU quota, CPUs fewer than kubepods has
    pods of class BestEffort        weight other than the smallest, a CPU quota, a memory limit, memory.high,
                                    the tier's few CPUs

Everything else stays as it stands, whoever set it: the limit of a pod itself, of a resize that is not done, by a
kubelet's MemoryQoS (memory.high, memory.min), by an operator. What the kubelet sets depends on its flags and on what it
has allocated; a limit that was made from the spec was looser than its own. `unexplained_limits` names such values where
the kubelet reports to have granted more, for a person. Source: kubelet's container manager of Kubernetes 1.35
(ResourceConfigForPod, qosContainerManagerImpl, generateLinuxContainerResources). A tier's memory limit may be the
kubelet's (QOSReserved). CPU lists of containers are the runtime's or the kubelet's choice (static CPU manager, NRI
policies) unless the tier itself is narrowed.
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
    """Notes as if what only an agent can have set were ours: giving back then sets what the kubelet had set.

    While cpu.idle is 1 the kernel hides the weight that was set before. So cpu.shares is noted unseen, with the values
    that the kernel sets when the cgroup ceases to be idle (AFTER_IDLE) as those that may be replaced.
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
    """Cgroups, and what stands there unless an agent has changed it."""
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
    """A pod's cgroups. Its class never changes, so that also an old list of pods tells it."""
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
    """Millicores by which the kubelet weighs a container: its request, else its limit or the pod's own."""
    request = container_request(pod, container, CPU)
    return container_limit(pod, container, CPU) if request == 0 else request


def _without_idle() -> Values:
    return {knob: value for knob, value in _NEVER_WRITTEN.items() if knob is not Knob.CPU_IDLE}


# --- values of which nobody knows the origin --------------------------------------------------------------------------
def unexplained_limits(observation: Observation) -> Iterator[tuple[CgroupPath, str]]:
    """Limits below what the kubelet reports to have granted, a sentence for each cgroup; not of BestEffort pods."""
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
            text = f"{whose}: {knob} is {present} {unit} and the kubelet has granted {amount}; no original is recorded"
            yield group.path, f"{text}, so it is left as it is"


# --- whether it sets quotas at all --------------------------------------------------------------------------------
def sets_no_quotas(observation: Observation) -> bool:
    """Return whether the kubelet sets no CPU quota anywhere (cpuCFSQuota: false, however it was configured).

    What stands on pods with a limit says so: on Burstable pods nothing of ours makes a quota, or takes one away. Where
    no such pod runs its configuration file is believed.
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
    """Shares, quota (unless quotas_off) and memory limit that the kubelet gives a pod's own cgroup, as far as known."""
    if pod.kube_qos is KubeQos.BEST_EFFORT:
        return {**_BEST_EFFORT}
    request = pod_request(pod, CPU)
    weight = None if request is None else request + pod.overhead.get(CPU, 0)
    return _values(weight, pod_limit(pod, CPU), pod_limit(pod, MEMORY), quotas_off)


def values_before_hooks(pod: PodSpec, container: ContainerSpec, quotas_off: bool = False) -> Values:
    """Shares, quota and memory limit that the kubelet asks a runtime for; a knob that is not known is left out.

    Of a BestEffort pod these are the smallest weight and no limits. Of others the kubelet's report, where it says the
    same as the spec: a hook's values show in the report too. quotas_off: the kubelet sets no CPU quota.
    """
    if pod.kube_qos is KubeQos.BEST_EFFORT:
        return {**_BEST_EFFORT}
    weight = _weight(pod, container)
    if container_request(pod, container, CPU) != container.amounts.requests.get(CPU, 0):
        weight = None
    asked = {name: container.limits.get(name, 0) or (pod.own_limits or {}).get(name, 0) for name in (CPU, MEMORY)}
    limits = {name: container_limit(pod, container, name) for name in asked}
    cpu, memory = (limits[name] if limits[name] == asked[name] else None for name in (CPU, MEMORY))
    return _values(weight, cpu, memory, quotas_off)


def _values(weight: int | None, cpu: int | None, memory: int | None, quotas_off: bool) -> Values:
    """Knobs for a weight and limits in millicores and bytes: None = not known, a limit of 0 = none."""
    values: Values = {} if weight is None else {Knob.CPU_SHARES: shares_of(weight)}
    if cpu is not None:
        values[Knob.CPU_QUOTA] = NO_LIMIT if quotas_off or cpu <= 0 else max(cpu * 100, LEAST_QUOTA)
    if memory is not None:
        values[Knob.MEMORY_LIMIT] = memory if memory > 0 else NO_LIMIT
    return values
