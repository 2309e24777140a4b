"""The rules of cgroup v1 that order writes, as a small model: what the real kernel refused in test_cgroup_v1_errors.

For property tests over many trees and wants; the same way is walked on the real kernel in test_apply_v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    CgroupPath,
    ContainerReading,
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    MemoryUse,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    StrategyPlan,
    Value,
    Want,
)
from cotenant.enforcer.decide.changes import KnobWrite
from cotenant.enforcer.decide.knobs import Dialect
from cotenant.enforcer.decide.write_order import ancestors, depth, wider
from cotenant.enforcer.knob_table import Version

V1 = Dialect(dict.fromkeys(("cpu", "cpuacct", "cpuset", "memory", "blkio"), Version.V1))
V2 = Dialect(dict.fromkeys(("cpu", "cpuset", "memory", "io"), Version.V2))
TOP, TIER, POD = "kubepods", "kubepods/besteffort", "kubepods/besteffort/podu-1"
C1, C2 = f"{POD}/c1", f"{POD}/c2"
LEVELS = {TOP: Level.KUBEPODS, TIER: Level.QOS, POD: Level.POD, C1: Level.CONTAINER, C2: Level.CONTAINER}
FRESH: dict[Knob, Value] = {
    Knob.CPU_SHARES: 1024, Knob.CPU_QUOTA: NO_LIMIT, Knob.CPU_BURST: 0, Knob.CPU_IDLE: 0, Knob.CPUSET_CPUS: "0-3",
    Knob.MEMORY_LIMIT: NO_LIMIT, Knob.MEMORY_HIGH: NO_LIMIT,
}  # fmt: skip


class Refused(Exception):
    """EINVAL, EBUSY or EACCES."""


class V1Kernel:
    """Five cgroups and their knobs."""

    def __init__(self, knobs: dict[CgroupPath, dict[Knob, Value]] | None = None) -> None:
        self.knobs = {path: {**FRESH, **(knobs or {}).get(path, {})} for path in LEVELS}

    def write(self, path: CgroupPath, knob: Knob, value: Value) -> None:
        """Set it, or refuse and change nothing."""
        mine = self.knobs[path]
        if knob is Knob.CPU_SHARES and mine[Knob.CPU_IDLE] == 1:
            raise Refused(f"{path}: shares while idle")
        if knob is Knob.CPUSET_CPUS:
            value = format_cpus(parse_cpus(str(value)))
        before, mine[knob] = mine[knob], value
        try:
            self.check()
        except Refused:
            mine[knob] = before
            raise
        if knob is Knob.CPU_IDLE and before == 1 and value == 0:
            mine[Knob.CPU_SHARES] = 1024

    def check(self) -> None:
        """Every rule, in the state as it is."""
        for path, mine in self.knobs.items():
            quota, burst = mine[Knob.CPU_QUOTA], mine[Knob.CPU_BURST]
            if quota != NO_LIMIT and wider(burst, quota):
                raise Refused(f"{path}: burst {burst} above quota {quota}")
            for above in (a for a in ancestors(path) if a in self.knobs):
                theirs = self.knobs[above]
                if quota != NO_LIMIT and wider(quota, theirs[Knob.CPU_QUOTA]):
                    raise Refused(f"{path}: quota {quota} above {theirs[Knob.CPU_QUOTA]} of {above}")
                cpus, allowed = (parse_cpus(str(k[Knob.CPUSET_CPUS])) for k in (mine, theirs))
                if not cpus or not cpus <= allowed:
                    raise Refused(f"{path}: CPUs {sorted(cpus)} not within {sorted(allowed)} of {above}")

    def carry_out(self, writes: Iterable[KnobWrite]) -> None:
        for write in writes:
            self.write(write.path, write.knob, write.value)

    def observation(self, usage: int = 0) -> Observation:
        """As the observer reads it: idle cgroups show no shares."""
        groups = {path: self._reading(path, usage) for path in LEVELS}
        spec = PodSpec(
            "ns", "p", "u-1", qos_class=QosClass.BE, containers=(ContainerSpec("c1", "c1"), ContainerSpec("c2", "c2"))
        )
        readings = tuple(ContainerReading(s, groups[p]) for s, p in zip(spec.containers, (C1, C2), strict=True))
        return Observation(
            1.0, 1.0, NodeReading("n", (), 1 << 34, 1 << 33), groups[TOP], {KubeQos.BEST_EFFORT: groups[TIER]},
            (PodReading(spec, groups[POD], readings),), supported=frozenset(FRESH),
        )  # fmt: skip

    def _reading(self, path: CgroupPath, usage: int) -> GroupReading:
        knobs = dict(self.knobs[path])
        if knobs[Knob.CPU_IDLE] == 1:
            del knobs[Knob.CPU_SHARES]
        return GroupReading(path, LEVELS[path], memory=MemoryUse(usage, usage), knobs=knobs)


def made_valid(knobs: dict[CgroupPath, dict[Knob, Value]]) -> V1Kernel:
    """A state that the kernel can be in: the given values, from the top down, where it takes them."""
    kernel = V1Kernel()
    for path in sorted(knobs, key=depth):
        for knob, value in knobs[path].items():
            try:
                kernel.write(path, knob, value)
            except Refused:
                continue
    return kernel


def want(
    path: CgroupPath,
    knob: Knob,
    value: Value,
    strategy: str = "s",
    back_to: Value | None = None,
    made_from: Value | None = None,
) -> Want:
    level = LEVELS.get(path, Level.POD)
    return Want(path, knob, value, level, strategy, f"{strategy} says so", back_to, made_from)


def plan(*wants: Want) -> StrategyPlan:
    return StrategyPlan(wants)


def with_memory(observation: Observation, path: CgroupPath, memory: MemoryUse, high: Value) -> Observation:
    """The same with another memory reading of one container."""
    pod = observation.pods[0]
    containers = tuple(
        replace(c, group=replace(c.group, memory=memory, knobs={**c.group.knobs, Knob.MEMORY_HIGH: high}))
        if c.group and c.group.path == path
        else c
        for c in pod.containers
    )
    return replace(observation, pods=(replace(pod, containers=containers),))
