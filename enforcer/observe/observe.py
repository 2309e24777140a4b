"""EDGE: one consistent reading of the node per tick: an `Observation` from cgroup files, proc and sys.

    observer = Observer(hierarchy, layout)
    observation = observer.read(pods, applications, facts, fresh=applier.overridden_knobs)

Counters and memory of every cgroup are read in each tick. Knobs, pressure, out-of-memory kills and waiting times, which
change rarely or are averages, are read in turn, once per cgroup in SLOW_TICKS ticks; knobs with the agent's values are
read in each tick, to detect other writers at once. So 200 containers cost about 1,500 reads a tick instead of 5,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_resources import ContainerKind
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.enforcer.contract import (
    CgroupPath,
    ContainerReading,
    ContainerSpec,
    CpuUse,
    GroupReading,
    HostApplicationReading,
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
from cotenant.enforcer.decide.changes import Place
from cotenant.enforcer.decide.knobs import PERIOD_MICROSECONDS, least_quota
from cotenant.enforcer.knob_table import Version
from cotenant.enforcer.observe.cgroupfs import PRESSURE, Hierarchy, Unavailable
from cotenant.enforcer.observe.cpusets import kubelet_shared_cpus, online_cpus
from cotenant.enforcer.observe.cycles import CycleReader
from cotenant.enforcer.observe.layout import Layout, Runtime
from cotenant.enforcer.observe.machine import MachineReader
from cotenant.enforcer.observe.rates import (
    CpuCounters,
    Waits,
    cpu_counters_v1,
    cpu_counters_v2,
    cpu_use,
    memory_use,
    pressure_percent,
    value_of,
    waiting_rate,
)

SLOW_TICKS: Final = 10
RARE_TURNS: Final = 6
"""Knobs that only strategies set are read in every sixth reading of a cgroup's knobs; those just written, in each."""
_OFTEN: Final = frozenset(
    {Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPU_BURST, Knob.CPU_IDLE, Knob.CPUSET_CPUS, Knob.MEMORY_LIMIT}
)
_NO_PRESSURE: Final = (None, None, None)
_SHORT_LIVED: Final = (ContainerKind.INIT, ContainerKind.EPHEMERAL)
"""Kinds of containers that end while their pod goes on; their cgroups are looked for while they run."""


@dataclass(frozen=True, slots=True)
class HostApplicationSpec:
    """A host application that the policy declares, with the path of its cgroup."""

    name: str
    qos_class: QosClass
    priority_class: PriorityClass
    path: CgroupPath


@dataclass(slots=True)
class _GroupHistory:
    """The observer's memory of a cgroup between ticks."""

    turn: int
    turns: int = 0
    counters: CpuCounters | None = None
    used: tuple[bytes, bytes, int] = (b"", b"", 0)
    """Texts from which `use` was read, and the kills then: mostly those of the tick before."""
    use: MemoryUse | None = None
    knobs: dict[Knob, Value] = field(default_factory=dict)
    pressures: tuple[float | None, float | None, float | None] = _NO_PRESSURE
    oom_kills: int = 0
    processes: int | None = None
    waits: Waits = field(default_factory=dict)
    waits_at: float = 0.0
    waiting: float | None = None
    cycles: float | None = None
    known: bool = False


class Observer:
    """Reads the node, and remembers counters between ticks to compute rates; for use by a single thread."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        layout: Layout,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hierarchy, self._layout = hierarchy, layout
        self._clock, self._monotonic = clock or SystemClock(), monotonic
        self._machine = MachineReader(proc, sys, monotonic)
        self._groups: dict[CgroupPath, _GroupHistory] = {}
        self._paths: dict[tuple[str, str], CgroupPath] = {}
        """Of pods and containers whose cgroups are there, by (uid, id); "" for the pod."""
        self._supported: frozenset[Knob] = frozenset()
        self._pressed = False
        self._tick = 0
        self._before: float | None = None
        self._v1_cpu = hierarchy.dialect.versions.get("cpuacct") is Version.V1
        self._v1_memory = hierarchy.dialect.versions.get("memory") is Version.V1
        self.cycles: CycleReader | None = None
        """Set it to count cycles per instruction of containers that are not best effort."""

    def read(
        self,
        pods: Sequence[PodSpec],
        applications: Sequence[HostApplicationSpec],
        facts: NodeReading,
        fresh: frozenset[Place] = frozenset(),
    ) -> Observation:
        """Read the node once; the cgroup settings in `fresh` are read now, others may be up to 10 ticks old.

        Raises NodeUnreadable, upon which the tick is skipped, if no more files can be opened or /proc cannot be read.
        The caller adds the forecast, and the ages of policy and pods, with `dataclasses.replace`.
        """
        at = self._monotonic()
        elapsed = at - self._before if self._before is not None else 1.0
        # Detect the knobs and pressure files; repeated every tick while there is no knob, else every 60 ticks.
        if not self._supported or self._tick % 60 == 0:
            knobs = self._hierarchy.probe(self._layout.tier(KubeQos.BEST_EFFORT))
            self._supported = knobs or self._hierarchy.probe(self._layout.kubepods())
            pressure_file = self._hierarchy.read(self._layout.kubepods(), PRESSURE, "cpu.pressure")
            self._pressed = not isinstance(pressure_file, Unavailable)
        knobs_by_path: dict[CgroupPath, list[Knob]] = {}
        for path, knob in fresh:
            knobs_by_path.setdefault(path, []).append(knob)
        reader = _TickReader(self, knobs_by_path, elapsed)
        node = self._machine.read(facts, self._hierarchy.usable_cpus())
        kubepods = reader.group(self._layout.kubepods(), Level.KUBEPODS)
        tiers = {q: reader.group(self._layout.tier(q), Level.QOS) for q in (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT)}
        readings = tuple(reader.pod(pod) for pod in pods)
        if facts.kubelet_static_cpus is not False:
            node = replace(node, kubelet_shared=kubelet_shared_cpus(readings, online_cpus(node), fresh))
        observation = Observation(
            at_seconds=at,
            wall_seconds=self._clock.now_seconds(),
            node=node,
            kubepods=kubepods,
            tiers={qos: group for qos, group in {KubeQos.GUARANTEED: kubepods, **tiers}.items() if group is not None},
            pods=readings,
            host_applications=tuple(reader.application(application) for application in applications),
            supported=self._supported,
            elapsed_seconds=elapsed,
        )
        self._before = at
        self._tick += 1
        for path in self._groups.keys() - reader.seen:
            del self._groups[path]
        if len(self._paths) > len(reader.seen):
            self._paths = {key: path for key, path in self._paths.items() if path in reader.seen}
        self._hierarchy.keep_only(reader.seen | {""})
        if self.cycles:
            self.cycles.keep_only(reader.seen)
        return observation

    def close(self) -> None:
        """Close all open files."""
        self._groups.clear()
        self._paths.clear()
        self._hierarchy.close_files()
        if self.cycles:
            self.cycles.close()


class _TickReader:
    def __init__(self, observer: Observer, fresh: Mapping[CgroupPath, list[Knob]], elapsed: float) -> None:
        self._of, self._fresh, self._elapsed = observer, fresh, elapsed
        self._files = observer._hierarchy
        self.seen: set[CgroupPath] = set()

    def pod(self, spec: PodSpec) -> PodReading:
        layout, key = self._of._layout, (spec.uid, "")
        path = self._of._paths.get(key) or self._path(lambda: layout.pod(spec.uid, spec.kube_qos))
        group = self.group(path, Level.POD) if path else None
        self._keep(key, path, group)
        containers = []
        for container in spec.every_container:
            reading = None
            if group is not None and container.id and (container.running or container.kind not in _SHORT_LIVED):
                reading = self._read_container(self._of._layout, spec, container)
                if reading is None and container.running:
                    # A node that had no container when its layout was told says nothing about its runtime.
                    other = Runtime.CRIO if self._of._layout.runtime is Runtime.CONTAINERD else Runtime.CONTAINERD
                    corrected = replace(self._of._layout, runtime=other)
                    reading = self._read_container(corrected, spec, container)
                    if reading is not None:
                        self._of._layout = corrected
            containers.append(ContainerReading(container, reading))
        return PodReading(spec, group, tuple(containers))

    def application(self, spec: HostApplicationSpec) -> HostApplicationReading:
        group = self.group(spec.path, Level.HOST_APPLICATION)
        return HostApplicationReading(spec.name, spec.qos_class, spec.priority_class, group)

    def _read_container(self, layout: Layout, pod: PodSpec, spec: ContainerSpec) -> GroupReading | None:
        """Read a container's cgroup and remember its path; None if the container has no cgroup."""
        key = (pod.uid, spec.id)
        path = self._of._paths.get(key) or self._path(lambda: layout.container(pod.uid, pod.kube_qos, spec.id))
        group = self.group(path, Level.CONTAINER, not pod.best_effort) if path else None
        self._keep(key, path, group)
        return group

    def _keep(self, key: tuple[str, str], path: CgroupPath | None, group: GroupReading | None) -> None:
        """Remember the path of a cgroup that exists, so that it is computed only once."""
        if group is None:
            self._of._paths.pop(key, None)
        elif path:
            self._of._paths[key] = path

    def _path(self, path: Callable[[], CgroupPath]) -> CgroupPath | None:
        """Return the path; None for ids that are none, as in a damaged file of the last inputs."""
        try:
            return path()
        except UsageError:
            return None

    def group(self, path: CgroupPath, level: Level, waits: bool = False) -> GroupReading | None:
        at, counters = self._cpu(path)
        if counters is None:
            self._of._groups.pop(path, None)
            return None
        self.seen.add(path)
        memory = self._of._groups.get(path)
        if memory is None:
            memory = self._of._groups[path] = _GroupHistory(crc32(path.encode()) % SLOW_TICKS)
        if level is Level.CONTAINER and memory.processes == 0:  # made but not started: knobs come with its start
            memory.known = not self._pids(path)
        if not memory.known or (self._of._tick + memory.turn) % SLOW_TICKS == 0:
            supported = self._of._supported
            all_of_them = not memory.known or memory.turns % RARE_TURNS == 0
            due = supported if all_of_them else supported & {*_OFTEN, *self._fresh.get(path, ())}
            memory.knobs = self._knobs(path, {} if all_of_them else memory.knobs, due)
            memory.known, memory.turns = True, memory.turns + 1
            pids = self._pids(path)
            memory.processes = None if pids is None else len(pids)
            memory.pressures = self._pressures(path)
            if self._of._v1_memory:
                control = self._files.read(path, "memory", "memory.oom_control")
                memory.oom_kills = 0 if isinstance(control, Unavailable) else value_of(control, b"oom_kill") or 0
            if waits and self._of.cycles:
                memory.cycles = self._of.cycles.read(path)
            if waits and pids:
                now = self._of._machine.waits(pids)
                memory.waiting = waiting_rate(memory.waits, now, at - memory.waits_at)
                memory.waits, memory.waits_at = now, at
        elif path in self._fresh:
            memory.knobs = self._knobs(path, memory.knobs, self._fresh[path])
        use: CpuUse = cpu_use(memory.counters, counters)
        memory.counters = counters
        cpu, of_memory, io = memory.pressures
        # known with its quota: the runtime sets both before the container starts
        period = self._files.cfs_period(path) if Knob.CPU_QUOTA in memory.knobs else PERIOD_MICROSECONDS
        return GroupReading(
            path=path,
            level=level,
            cpu=use,
            memory=self._memory_of(path, memory),
            cpu_pressure_percent=cpu,
            memory_pressure_percent=of_memory,
            io_pressure_percent=io,
            run_delay_seconds=None if memory.waiting is None else memory.waiting * self._elapsed,
            cycles_per_instruction=memory.cycles,
            processes=memory.processes,
            knobs=memory.knobs,
            least_quota=least_quota(period),
        )

    def _cpu(self, path: CgroupPath) -> tuple[float, CpuCounters | None]:
        stat = self._files.read(path, "cpu", "cpu.stat", hold=True)
        if isinstance(stat, Unavailable):
            return 0.0, None
        at = self._of._monotonic()
        if not self._of._v1_cpu:
            return at, cpu_counters_v2(at, stat)
        usage = self._files.read(path, "cpuacct", "cpuacct.usage", hold=True)
        return at, None if isinstance(usage, Unavailable) else cpu_counters_v1(at, usage, stat)

    def _memory_of(self, path: CgroupPath, memory: _GroupHistory) -> MemoryUse | None:
        v1 = self._of._v1_memory
        usage = self._files.read(path, "memory", "memory.usage_in_bytes" if v1 else "memory.current", hold=True)
        stat = self._files.read(path, "memory", "memory.stat", hold=True)
        if isinstance(usage, Unavailable) or isinstance(stat, Unavailable):
            return None
        if v1:
            if memory.used != (usage, stat, memory.oom_kills):
                memory.used = usage, stat, memory.oom_kills
                memory.use = memory_use(usage, stat, v1, memory.oom_kills)
            return memory.use
        events = self._files.read(path, "memory", "memory.events", hold=True)
        text = b"" if isinstance(events, Unavailable) else events
        return memory_use(usage, stat, v1, value_of(text, b"oom_kill") or 0, value_of(text, b"high") or 0)

    # --- in turn ---------------------------------------------------------------------------------------------------
    def _knobs(self, path: CgroupPath, before: Mapping[Knob, Value], knobs: Iterable[Knob]) -> dict[Knob, Value]:
        values, ours = dict(before), self._fresh.get(path, ())
        for knob in knobs:
            value = self._files.read_knob(path, knob, hold=knob in ours)
            if isinstance(value, Unavailable):
                values.pop(knob, None)
            else:
                values[knob] = value
        if values.get(Knob.CPU_IDLE) == 1:  # the kernel then shows a number of its own, not the shares
            values.pop(Knob.CPU_SHARES, None)
        return values

    def _pids(self, path: CgroupPath) -> list[int] | None:
        contents = self._files.read(path, "cpu", "cgroup.procs")
        return None if isinstance(contents, Unavailable) else [int(word) for word in contents.split() if word.isdigit()]

    def _pressures(self, path: CgroupPath) -> tuple[float | None, float | None, float | None]:
        if not self._of._pressed:
            return _NO_PRESSURE
        first = self._files.read(path, PRESSURE, "cpu.pressure")
        if isinstance(first, Unavailable):
            return _NO_PRESSURE
        texts = (self._files.read(path, PRESSURE, f"{name}.pressure") for name in ("memory", "io"))
        memory, io = (None if isinstance(text, Unavailable) else pressure_percent(text) for text in texts)
        return pressure_percent(first), memory, io
