"""What the kubelet would have set: the original of a value where our own note of it is lost, or never was. Pure.

Another state folder, an agent of another kind before us (koordlet) or a second one beside us leave values that nothing
is noted of. What the kubelet would never have written is no original: best effort would stay at 2 % of a core for ever.

    kubepods, best effort's tier, pods of Kubernetes' class BestEffort     exactly these values, whatever stands there
    other pods                                                            only what holds them back more than these

What protects somebody, and what the kubelet itself moves all the time, stays as it is. CPU lists are the kubelet's or
the runtime's own choice (static CPU manager, NRI policies) unless the tier itself is narrowed, which neither does.
Source: kubelet's container manager: shares = millicores * 1024 / 1000, at least 2; quota = millicores * 100 us of a
period of 100 ms, at least 1000; a pod's are the sums, without limit when one of its containers has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from enforcer.contract import NO_LIMIT, ContainerSpec, GroupReading, Knob, KubeQos, Observation, PodReading, Value
from enforcer.decide.changes import OriginalValue, Place
from enforcer.decide.knobs import LEAST_QUOTA, SHARES, weight_of
from enforcer.decide.settle import AFTER_IDLE
from enforcer.decide.write_order import wider

AUTHOR: Final = "lost-journal"
Values = dict[Knob, Value]
_NEVER_WRITTEN: Final = (Knob.CPU_IDLE, Knob.CPU_BURST, Knob.CPU_BVT)
"""Neither by the kubelet nor, at its request, by a runtime: they are 0."""


def lost_notes(observation: Observation) -> dict[Place, OriginalValue]:
    """Notes as if what is not the kubelet's own now were ours: giving back then sets the kubelet's values."""
    return {
        note.place: note for group, values, exact in _expected(observation) for note in _notes(group, values, exact)
    }


def _notes(group: GroupReading, values: Values, exact: bool) -> Iterator[OriginalValue]:
    """Notes for one cgroup: knobs whose present value is not the kubelet's, with the kubelet's value as the original.

    While cpu.idle is 1 the kernel hides the weight that was set before. So cpu.shares is noted unseen, with the values
    that the kernel sets when the cgroup ceases to be idle (AFTER_IDLE) as those that may be replaced.
    """
    for knob, expected in values.items():
        present = group.knobs.get(knob)
        hidden = knob is Knob.CPU_SHARES and group.knobs.get(Knob.CPU_IDLE) == 1
        if hidden:
            yield OriginalValue(group.path, knob, group.level, expected, AFTER_IDLE, AUTHOR)
        elif present is not None and _not_the_kubelets(knob, present, expected, exact):
            yield OriginalValue(group.path, knob, group.level, expected, (present,), AUTHOR)


def _not_the_kubelets(knob: Knob, present: Value, expected: Value, exact: bool) -> bool:
    """Whether the value cannot be the kubelet's; without `exact` only what allows less than `expected` counts."""
    if knob is Knob.CPUSET_CPUS:
        return bool(present) and bool(expected) and present != expected
    if knob in _NEVER_WRITTEN:
        return present != expected
    if knob is Knob.CPU_SHARES and exact:  # cgroup v2 weighs more coarsely
        return isinstance(present, int) and weight_of(present) != weight_of(SHARES[0])
    return wider(expected, present)


def _expected(observation: Observation) -> Iterator[tuple[GroupReading, Values, bool]]:
    """Cgroups, what the kubelet writes there, and whether it can be nothing else."""
    if observation.kubepods is not None:
        yield observation.kubepods, {Knob.CPU_IDLE: 0, Knob.CPU_QUOTA: NO_LIMIT}, True
    all_cpus = observation.kubepods.knobs.get(Knob.CPUSET_CPUS, "") if observation.kubepods else ""
    best_effort = observation.best_effort_root
    narrowed = best_effort is not None and best_effort.knobs.get(Knob.CPUSET_CPUS, "") not in ("", all_cpus)
    cpus: Values = {Knob.CPUSET_CPUS: all_cpus} if narrowed else {}
    if best_effort is not None:
        yield best_effort, {**_free(), Knob.CPU_SHARES: SHARES[0], **cpus}, True
    for pod in observation.pods:
        exact = pod.spec.kube_qos is KubeQos.BEST_EFFORT
        yield from ((group, values, exact) for group, values in _of_pod(pod, cpus if exact else {}))


def _of_pod(pod: PodReading, cpus: Values) -> Iterator[tuple[GroupReading, Values]]:
    for container in pod.containers:
        if container.group is not None:
            yield container.group, {**_free(), **_amounts([container.spec]), **cpus}
    if pod.group is not None:
        yield pod.group, {**_free(), **_amounts([c.spec for c in pod.containers]), **cpus}


def _free() -> Values:
    limits = dict.fromkeys((Knob.CPU_QUOTA, Knob.MEMORY_LIMIT, Knob.MEMORY_HIGH), NO_LIMIT)
    return {**dict.fromkeys(_NEVER_WRITTEN, 0), **limits}


def kubelet_amounts(containers: Sequence[ContainerSpec]) -> Values:
    """Shares, quota and memory limit that the kubelet gives a container, or a pod of these."""
    return {Knob.CPU_QUOTA: NO_LIMIT, Knob.MEMORY_LIMIT: NO_LIMIT, **_amounts(containers)}


def _amounts(containers: Sequence[ContainerSpec]) -> Values:
    """Shares of the requests; quota and memory limit where each container has one."""
    millicores = sum(c.requests.get("cpu", c.limits.get("cpu", 0)) for c in containers)
    values: Values = {Knob.CPU_SHARES: min(max(millicores * 1024 // 1000, SHARES[0]), SHARES[1])}
    if all("cpu" in c.limits for c in containers):
        values[Knob.CPU_QUOTA] = max(sum(c.limits["cpu"] for c in containers) * 100, LEAST_QUOTA)
    if all("memory" in c.limits for c in containers):
        values[Knob.MEMORY_LIMIT] = sum(c.limits["memory"] for c in containers)
    return values
