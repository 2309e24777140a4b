"""The node agent's decisions: time of one tick at 200 and 1,000 containers, and memory over half an hour with churn.

.venv/bin/python -m bench.enforcer.node_decisions [--small]

Every strategy is on, with a policy that uses all of them. Figures change from tick to tick (seeded); the clock is
simulated, so that 1,800 ticks of a second pass as fast as they are decided. Reading and writing cgroups is not in it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.record import Row, below, record
from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
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
)
from cotenant.enforcer.decide.container_resources import BATCH_CPU, BATCH_MEMORY
from cotenant.enforcer.decide.loop import Ages, Memory, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.node_policy import NodePolicy, decode
from cotenant.enforcer.settings import EnforcerSettings

MIB, GIB = 1 << 20, 1 << 30
CPUS, CONTAINERS_PER_POD = 64, 2
TIERS = {KubeQos.BURSTABLE: "kubepods/burstable", KubeQos.BEST_EFFORT: "kubepods/besteffort"}
STOCK = frozenset(Knob) - {Knob.CPU_BVT}
POLICY: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cpuset",
        "cpuEvictBESatisfactionLowerPercent": 40,
        "cpuEvictBESatisfactionUpperPercent": 60,
        "cpuEvictTimeWindowSeconds": 60,
        "cpuEvictThresholdPercent": 95,
        "evictEnabledPriorityThreshold": 5999,
    },
    "resourceQOSStrategy": {
        name: {
            "cpuQOS": {"enable": True},
            "memoryQOS": {"enable": True, "minLimitPercent": 20, "lowLimitPercent": 30, "throttlingPercent": 80},
            "blkioQOS": {"enable": True},
        }
        for name in ("lsrClass", "lsClass", "beClass")
    },
    "cpuBurstStrategy": {"policy": "auto"},
}
EXTENDED = msgspec.json.encode(
    {"containers": {f"c{i}": {"limits": {BATCH_CPU: 500, BATCH_MEMORY: 256 * MIB}} for i in range(CONTAINERS_PER_POD)}}
).decode()


@dataclass
class Machine:
    """A node of 64 CPUs whose pods are half services, half batch; `tick` gives the next second."""

    pods: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    created: int = 0
    at_seconds: float = 0.0
    specs: list[PodSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.specs = [self._pod() for _ in range(self.pods)]

    def churn(self, count: int) -> None:
        """So many pods end and others come."""
        for _ in range(count):
            self.specs.pop(int(self.rng.integers(len(self.specs))))
            self.specs.append(self._pod())

    def _pod(self) -> PodSpec:
        number, batch = self.created, self.created % 2
        self.created += 1
        amounts = {BATCH_CPU: 500, BATCH_MEMORY: 256 * MIB} if batch else {"cpu": 500, "memory": 256 * MIB}
        names = [f"c{i}" for i in range(CONTAINERS_PER_POD)]
        return PodSpec(
            "bench",
            f"p{number}",
            f"u{number}",
            kube_qos=KubeQos.BEST_EFFORT if batch else KubeQos.BURSTABLE,
            qos_class=QosClass.BE if batch else QosClass.LS,
            priority=5500 if batch else 9500,
            annotations={EXTENDED_SPEC_ANNOTATION: EXTENDED} if batch else {},
            containers=tuple(ContainerSpec(n, f"{number}-{n}", True, requests=amounts, limits=amounts) for n in names),
            owner=("ReplicaSet", f"w{number % 50}"),
        )

    def tick(self) -> Observation:
        """The next second."""
        self.at_seconds += 1.0
        use = self.rng.gamma(2.0, 100.0, len(self.specs))
        readings = tuple(self._reading(spec, float(u)) for spec, u in zip(self.specs, use, strict=True))
        node = NodeReading(
            "n1",
            tuple(Processor(i, i // 2, i // 32, i // 32) for i in range(CPUS)),
            256 * GIB,
            int(self.rng.integers(100, 140)) * GIB,
            CpuUse(min(float(use.sum()) + 500.0, CPUS * 1000.0)),
            allocatable={BATCH_CPU: 20_000},
            kubelet_static_cpus=False,
        )
        root = GroupReading("kubepods", Level.KUBEPODS)
        tiers = {qos: GroupReading(path, Level.QOS, knobs={Knob.CPU_SHARES: 2}) for qos, path in TIERS.items()}
        wall = 1.7e9 + self.at_seconds
        return Observation(self.at_seconds, wall, node, root, tiers, readings, supported=STOCK)

    def _reading(self, spec: PodSpec, use: float) -> PodReading:
        path = f"{TIERS[spec.kube_qos]}/pod{spec.uid}"
        wait = float(use % 7)
        pod = self._group(path, Level.POD, use)
        pod = replace(
            pod,
            cpu_pressure_percent=wait,
            memory_pressure_percent=wait,
            io_pressure_percent=wait,
            run_delay_seconds=0.01,
        )
        containers = tuple(
            ContainerReading(c, self._group(f"{path}/{c.id}", Level.CONTAINER, use / CONTAINERS_PER_POD))
            for c in spec.containers
        )
        return PodReading(spec, pod, containers)

    def _group(self, path: str, level: Level, use: float) -> GroupReading:
        memory = MemoryUse(int(use) * MIB, int(use) * MIB, int(use) * MIB // 2)
        knobs = {Knob.CPU_SHARES: 512, Knob.CPU_QUOTA: 50_000, Knob.MEMORY_LIMIT: 512 * MIB}
        return GroupReading(path, level, CpuUse(use, 10, int(use) % 2), memory, knobs=knobs)


def decided(machine: Machine, policy: NodePolicy, ticks: int, churn: int = 0) -> Iterator[tuple[float, int]]:
    """CPU seconds of each tick's decision, and how many wants it made."""
    every, memory, ages = strategies(EnforcerSettings()), Memory(), Ages()
    for _ in range(ticks):
        machine.churn(churn)
        observation = machine.tick()
        start = time.process_time()
        decision, memory = decide(observation, policy, memory, every, ages)
        yield time.process_time() - start, len(decision.wants)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def timing(containers: int, policy: NodePolicy, ticks: int) -> tuple[float, float, int]:
    """Median and 99th percentile of a tick's decision, milliseconds, and the wants of the last one."""
    decisions = list(decided(Machine(containers // CONTAINERS_PER_POD), policy, ticks + 5))[5:]
    times = 1000 * np.array([seconds for seconds, _ in decisions])
    return float(np.median(times)), float(np.quantile(times, 0.99)), decisions[-1][1]


def soak(policy: NodePolicy, ticks: int) -> tuple[float, int]:
    """Growth of resident memory from the first third on, percent, and how many containers there were in all."""
    machine, sizes = Machine(100), []
    for number, _ in enumerate(decided(machine, policy, ticks, churn=1)):
        if number % 60 == 59:
            gc.collect()
            sizes.append(resident_bytes())
    third = sizes[len(sizes) // 3]
    return 100 * (max(sizes[len(sizes) // 3 :]) / third - 1), machine.created * CONTAINERS_PER_POD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few ticks, to try it; records nothing")
    small = parser.parse_args().small
    policy = decode(POLICY)
    rows: list[Row] = []
    for containers, ceiling in ((200, 30.0), (1000, None)):
        half, high, wants = timing(containers, policy, 20 if small else 300)
        name, note = f"decision of one tick, {containers} containers", f"{wants} wants"
        rows.append(
            below(f"{name}, median", round(half, 2), "ms", ceiling, note)
            if ceiling
            else Row(f"{name}, median", round(half, 2), "ms", note=note)
        )
        rows.append(Row(f"{name}, p99", round(high, 2), "ms", note="CPU time"))
    growth, containers = soak(policy, 180 if small else 1800)
    note = f"{containers} containers came and went in {180 if small else 1800} ticks"
    rows.append(below("resident memory, growth over a churning half hour", round(growth, 2), "%", 5.0, note))
    if small:
        print(*rows, sep="\n")
        return
    record("node_decisions", " ".join([".venv/bin/python -m bench.enforcer.node_decisions", *sys.argv[1:]]), rows)


if __name__ == "__main__":
    main()
