"""What the kubelet would have set, for the case that our own note of original values is lost. Pure.

Conservative: only knobs that hold somebody back are named, and only where the kubelet's value gives more; what protects
somebody, and what the kubelet itself moves all the time, stays as it is.
Source: kubelet's container manager: shares = millicores * 1024 / 1000, at least 2; quota = millicores * 100 us of a
period of 100 ms, at least 1000; a pod's are the sums, without limit when one of its containers has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from enforcer.changes import Note, Place
from enforcer.contract import NO_LIMIT, ContainerSpec, GroupReading, Knob, KubeQos, Observation, PodReading, Value
from enforcer.knobs import LEAST_QUOTA, SHARES
from enforcer.ordering import wider
from enforcer.settle import AFTER_IDLE

AUTHOR: Final = "lost-journal"
Values = dict[Knob, Value]


def lost_notes(seen: Observation) -> dict[Place, Note]:
    """Notes as if what holds pods back now were ours: giving back then sets the kubelet's values."""
    return {note.place: note for group, values in _expected(seen) for note in _notes(group, values)}


def _notes(group: GroupReading, values: Values) -> Iterator[Note]:
    for knob, expected in values.items():
        present = group.knobs.get(knob)
        hidden = knob is Knob.CPU_SHARES and group.knobs.get(Knob.CPU_IDLE) == 1
        if hidden:
            yield Note(group.path, knob, group.level, expected, AFTER_IDLE, AUTHOR)
        elif present is not None and _holds_back(knob, present, expected):
            yield Note(group.path, knob, group.level, expected, (present,), AUTHOR)


def _holds_back(knob: Knob, present: Value, expected: Value) -> bool:
    if knob is Knob.CPU_IDLE:
        return present == 1
    if knob is Knob.CPUSET_CPUS:
        return bool(present) and bool(expected) and present != expected
    return wider(expected, present)


def _expected(seen: Observation) -> Iterator[tuple[GroupReading, Values]]:
    if seen.kubepods is not None:
        yield seen.kubepods, {Knob.CPU_IDLE: 0, Knob.CPU_QUOTA: NO_LIMIT}
    all_cpus = seen.kubepods.knobs.get(Knob.CPUSET_CPUS, "") if seen.kubepods else ""
    best_effort = seen.tiers.get(KubeQos.BEST_EFFORT)
    if best_effort is not None:
        yield best_effort, {**_free(), Knob.CPU_SHARES: SHARES[0], Knob.CPUSET_CPUS: all_cpus}
    for pod in seen.pods:
        yield from _of_pod(pod, all_cpus)


def _of_pod(pod: PodReading, all_cpus: Value) -> Iterator[tuple[GroupReading, Values]]:
    # CPU lists of others may be the kubelet's own choice (static CPU manager).
    cpus = {Knob.CPUSET_CPUS: all_cpus} if pod.spec.kube_qos is KubeQos.BEST_EFFORT else {}
    for container in pod.containers:
        if container.group is not None:
            yield container.group, {**_free(), **_amounts([container.spec]), **cpus}
    if pod.group is not None:
        yield pod.group, {**_free(), **_amounts([c.spec for c in pod.containers]), **cpus}


def _free() -> Values:
    return {Knob.CPU_IDLE: 0, Knob.CPU_QUOTA: NO_LIMIT, Knob.MEMORY_LIMIT: NO_LIMIT, Knob.MEMORY_HIGH: NO_LIMIT}


def kubelet_amounts(containers: Sequence[ContainerSpec]) -> Values:
    """Shares, quota and memory limit that the kubelet gives a container, or a pod of these."""
    return {Knob.CPU_QUOTA: NO_LIMIT, Knob.MEMORY_LIMIT: NO_LIMIT, **_amounts(containers)}


def _amounts(containers: Sequence[ContainerSpec]) -> Values:
    """Shares of the requests; quota and memory limit where each container has one."""
    millicores = sum(c.requests.get("cpu", c.limits.get("cpu", 0)) for c in containers)
    found: Values = {Knob.CPU_SHARES: min(max(millicores * 1024 // 1000, SHARES[0]), SHARES[1])}
    if all("cpu" in c.limits for c in containers):
        found[Knob.CPU_QUOTA] = max(sum(c.limits["cpu"] for c in containers) * 100, LEAST_QUOTA)
    if all("memory" in c.limits for c in containers):
        found[Knob.MEMORY_LIMIT] = sum(c.limits["memory"] for c in containers)
    return found
