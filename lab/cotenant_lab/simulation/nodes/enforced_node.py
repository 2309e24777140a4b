"""A simulated node for the agent's real strategies: turns demand into cgroup readings and applies the knobs. Pure.

    demand of this second, knobs --observe--> Observation -> the agent's own decide and settle -> obey

All pods except best effort get CPU first, each container up to its quota; best effort shares the rest, up to the quota
and the CPUs of its tier. The weights of a real kernel have the same result if the online pods do not want all CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.allocation.cpu_topology import Processor, format_cpus, parse_cpus
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerReading,
    ContainerSpec,
    CpuUse,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    MemoryUse,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    Value,
)
from cotenant.enforcer.decide.changes import KnobWrite
from cotenant.enforcer.decide.knobs import Dialect
from cotenant.enforcer.knob_table import Version
from cotenant.enforcer.strategies.baseline import BASELINE_ANNOTATION

ROOT: Final = "kubepods"
BURSTABLE: Final = "kubepods/burstable"
TIER: Final = "kubepods/besteffort"
DIALECT: Final = Dialect(dict.fromkeys(("cpu", "cpuset", "memory"), Version.V2))
MICROSECONDS: Final = 100
"""Of quota a millicore."""
PERIODS: Final = 10
"""Of 100 ms in a second."""
BATCH_CPU: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.CPU]
BATCH_MEMORY: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.MEMORY]
NORMAL_CYCLES: Final = 1.1
LEAVING_SECONDS: Final = 5.0
_OPEN: Final[dict[Knob, Value]] = {
    Knob.CPU_SHARES: 1024,
    Knob.CPU_QUOTA: NO_LIMIT,
    Knob.CPU_BURST: 0,
    Knob.MEMORY_MIN: 0,
    Knob.MEMORY_LOW: 0,
    Knob.MEMORY_HIGH: NO_LIMIT,
    Knob.MEMORY_LIMIT: NO_LIMIT,
}
SUPPORTED: Final = frozenset({*_OPEN, Knob.CPUSET_CPUS})


@dataclass(frozen=True, slots=True)
class Actor:
    """A simulated pod of one container, its amounts in millicores and bytes; online pods have their limit as quota."""

    namespace: str
    name: str
    online: bool
    request_millicores: int
    limit_millicores: int
    memory_bytes: int = GIB

    @property
    def path(self) -> str:
        """The path of the actor's cgroup."""
        return f"{BURSTABLE if self.online else TIER}/pod{self.name}"

    @property
    def spec(self) -> PodSpec:
        """The pod's spec as the API server would have it.

        It includes the normal cycles per instruction, so that the agent need not learn them.
        """
        cpu, memory = ("cpu", "memory") if self.online else (BATCH_CPU, BATCH_MEMORY)
        requests = {cpu: self.request_millicores, memory: self.memory_bytes}
        limits = {cpu: self.limit_millicores, memory: 2 * self.memory_bytes}
        container = ContainerSpec("main", f"c-{self.name}", requests=requests, limits=limits, running=True)
        return PodSpec(
            self.namespace,
            self.name,
            f"uid-{self.name}",
            kube_qos=KubeQos.BURSTABLE if self.online else KubeQos.BEST_EFFORT,
            qos_class=QosClass.LS if self.online else QosClass.BE,
            priority_class=PriorityClass.PROD if self.online else PriorityClass.BATCH,
            priority=9500 if self.online else 5500,
            annotations={BASELINE_ANNOTATION: f'{{"cpi": {NORMAL_CYCLES}}}'} if self.online else {},
            containers=(container,),
        )


@dataclass(frozen=True, slots=True)
class SecondDemand:
    """The demand in one second: millicores that each actor wants, by name, those of the system, and who slows whom."""

    millicores: Mapping[str, float]
    system: float
    noisy: str = ""
    """A pod that fills the caches; "" = nobody."""
    disturbs: Mapping[str, float] = field(default_factory=dict)
    """Cycles per instruction that an online pod gains for each core that the noisy one uses."""
    quiet_cycles: float = NORMAL_CYCLES
    """Of every online pod while nobody disturbs it."""
    memory_bytes: Mapping[str, float] = field(default_factory=dict)
    """Resident memory by name, where it is not the actor's own."""


@dataclass(slots=True)
class SimulatedNode:
    """A simulated node's state: its pods, and the present value of each knob (cgroup file) by path."""

    name: str
    cores: int
    actors: list[Actor]
    knobs: dict[str, dict[Knob, Value]] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    """Name -> since when, seconds."""

    def __post_init__(self) -> None:
        """Set the knobs as a kubelet leaves them: online containers have their limit, everything else is unlimited."""
        every: dict[Knob, Value] = _OPEN | {Knob.CPUSET_CPUS: format_cpus(range(self.cores))}
        for path in (ROOT, BURSTABLE, TIER):
            self.knobs[path] = dict(every)
        for actor in self.actors:
            quota = actor.limit_millicores * MICROSECONDS if actor.online else NO_LIMIT
            for path in (actor.path, f"{actor.path}/c-{actor.name}"):
                self.knobs[path] = every | {Knob.CPU_QUOTA: quota}

    def observe(self, demand: SecondDemand, at_seconds: float, wall_seconds: float) -> Observation:
        """Return what an agent would read after this second."""
        ended = [name for name, since in self.leaving.items() if at_seconds - since >= LEAVING_SECONDS]
        self.actors = [actor for actor in self.actors if actor.name not in ended]
        used = self._used_millicores(demand)
        everything = CpuUse(sum(used.values()) + demand.system)
        pods = tuple(self._pod(actor, demand, used) for actor in self.actors)
        # Groups above pods need no usage: strategies add up the pods.
        tier_paths = {KubeQos.BURSTABLE: BURSTABLE, KubeQos.BEST_EFFORT: TIER}
        tiers = {qos: self._group(path, Level.QOS) for qos, path in tier_paths.items()}
        kubepods = self._group(ROOT, Level.KUBEPODS)
        processors = tuple(Processor(i, i // 2) for i in range(self.cores))
        amounts = {"cpu": MILLICORES_PER_CORE * self.cores, "memory": 4 * GIB * self.cores}
        free = amounts["memory"] - int(sum(demand.memory_bytes.get(a.name, a.memory_bytes) for a in self.actors))
        node = NodeReading(
            self.name, processors, amounts["memory"], free, everything, allocatable=amounts, capacity=amounts
        )
        return Observation(at_seconds, wall_seconds, node, kubepods, tiers, pods, supported=SUPPORTED)

    def obey(self, writes: Iterable[KnobWrite]) -> None:
        """Apply the writes to the knobs, as a kernel would."""
        for write in writes:
            self.knobs[write.path][write.knob] = write.value

    def dismiss(self, name: str, at_seconds: float) -> None:
        """Let an evicted pod end; it is gone a little later."""
        self.leaving.setdefault(name, at_seconds)

    def _used_millicores(self, demand: SecondDemand) -> dict[str, float]:
        quotas = {a.name: self.knobs[self._container(a)][Knob.CPU_QUOTA] for a in self.actors}
        used = {name: min(demand.millicores.get(name, 0.0), _millicores(quota)) for name, quota in quotas.items()}
        online = sum(used[a.name] for a in self.actors if a.online) + demand.system
        tier = self.knobs[TIER]
        cpus = len(parse_cpus(str(tier[Knob.CPUSET_CPUS])))
        spare = max(MILLICORES_PER_CORE * self.cores - online, 0.0)
        granted = min(_millicores(tier[Knob.CPU_QUOTA]), float(MILLICORES_PER_CORE * cpus), spare)
        batch_demand = sum(used[a.name] for a in self.actors if not a.online)
        share = min(1.0, granted / batch_demand) if batch_demand else 1.0
        return {a.name: used[a.name] * (1.0 if a.online else share) for a in self.actors}

    def _container(self, actor: Actor) -> str:
        return f"{actor.path}/c-{actor.name}"

    def _pod(self, actor: Actor, demand: SecondDemand, used: Mapping[str, float]) -> PodReading:
        spec = replace(actor.spec, deleting=actor.name in self.leaving)
        throttled = actor.online and demand.millicores.get(actor.name, 0.0) > used[actor.name] + 1
        cpu = CpuUse(used[actor.name], PERIODS, PERIODS if throttled else 0)
        resident = demand.memory_bytes.get(actor.name, actor.memory_bytes)
        memory = MemoryUse(int(resident * 3 // 4), int(resident * 7 // 10))
        slowed = demand.disturbs.get(actor.name, 0.0) * used.get(demand.noisy, 0.0) / MILLICORES_PER_CORE
        cycles = demand.quiet_cycles + slowed if actor.online else None
        group = replace(self._group(actor.path, Level.POD), cpu=cpu, memory=memory, cycles_per_instruction=cycles)
        inner = replace(self._group(self._container(actor), Level.CONTAINER), cpu=cpu, memory=memory)
        return PodReading(spec, group, (ContainerReading(spec.containers[0], inner),))

    def _group(self, path: str, level: Level) -> GroupReading:
        return GroupReading(path, level, knobs=dict(self.knobs[path]))


def _millicores(quota: Value) -> float:
    return float("inf") if not isinstance(quota, int) or quota == NO_LIMIT else quota / MICROSECONDS


def shares(total: float, actors: Sequence[Actor]) -> dict[str, float]:
    """Return a total demand divided among the actors in proportion to their requests; empty if they request nothing."""
    requested = sum(actor.request_millicores for actor in actors)
    return {actor.name: total * actor.request_millicores / requested for actor in actors} if requested else {}
