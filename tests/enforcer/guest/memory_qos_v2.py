"""Pods by lot under a kubelet with MemoryQoS on a real cgroup v2 kernel, beside every strategy; run in the guest.

No kubelet runs here: the tree has what kubelet 1.35 writes with its feature MemoryQoS (`ResourceConfigForPod`,
`generateLinuxContainerResources`, `setMemoryQoS`), computed from the plans alone.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import CpuUse, KubeQos, NodeReading, PodSpec, StrategyPlan
from cotenant.enforcer.decide.loop import Ages, Memory, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.enforcer.sources.wire import pod_of
from tests.enforcer.pod_matrix import (
    NONE,
    Amounts,
    CgroupValues,
    Container,
    PodPlan,
    kubelet_values,
    largest_moment,
    plans,
)
from tests.enforcer.readings import policy

ROOT, LAYOUT, PAGE = Path("/sys/fs/cgroup"), Layout(), 4096
FACTOR = 0.9
"""memoryThrottlingFactor, the kubelet's default."""
ALLOCATABLE = 8 << 30
FILES = (
    "cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle",
    "memory.max", "memory.high", "memory.min", "memory.low", "memory.oom.group",
)  # fmt: skip
QOS = {"enable": True, "minLimitPercent": 60, "lowLimitPercent": 70, "throttlingPercent": 60, "oomKillGroup": 1}
EVERYTHING: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65},
    "cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 300},
    "resourceQOSStrategy": {
        f"{name}Class": {"memoryQOS": QOS, "cpuQOS": {"enable": True}} for name in ("lsr", "ls", "be", "system")
    },
}
FACTS = NodeReading(
    "guest",
    allocatable={"cpu": 8000, "memory": ALLOCATABLE},
    capacity={"cpu": 8000, "memory": ALLOCATABLE},
)
FASTER = {"node.koordinator.sh/cpu-normalization-ratio": "1.5"}


def memory_high(container: Container) -> int:
    """floor((request + 0.9 * (limit, else allocatable, - request)) / page) * page; 0 = none, as of a limit as large."""
    request, limit = container.granted.memory_request, container.granted.memory_limit
    if request == limit:
        return 0
    high = int((request + ((limit or ALLOCATABLE) - request) * FACTOR) / PAGE) * PAGE
    return high if high > request else 0


def pod_minimum(plan: PodPlan) -> int:
    own = plan.own or Amounts()
    own_memory = own.memory_request or largest_moment(plan, lambda a: a.memory_request or a.memory_limit)
    return own_memory + plan.overhead[1] if own_memory else 0


class Node:
    """The guest's tree as the kubelet leaves it; `kubelets` has every file's text."""

    def __init__(self, planned: list[PodPlan]) -> None:
        self.plans = planned
        for tier in (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT):
            self._make(LAYOUT.tier(tier))
        self._write(LAYOUT.tier(KubeQos.BEST_EFFORT), "cpu.weight", 1)
        self.paths: list[str] = [LAYOUT.kubepods(), *map(LAYOUT.tier, (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT))]
        for plan in planned:
            self._kubelet(plan)
        burstable = sum(pod_minimum(p) for p in planned if p.kube_qos == "Burstable")
        guaranteed = sum(pod_minimum(p) for p in planned if p.kube_qos == "Guaranteed")
        self._write(LAYOUT.tier(KubeQos.BURSTABLE), "memory.min", burstable)
        self._write(LAYOUT.kubepods(), "memory.min", burstable + guaranteed)
        self.kubelets = self.texts()

    def _kubelet(self, plan: PodPlan) -> None:
        values, pod = kubelet_values(plan), LAYOUT.pod(plan.uid, KubeQos(plan.kube_qos))
        self._make(pod)
        self._set(pod, values[""])
        self._write(pod, "memory.min", pod_minimum(plan))
        self.paths.append(pod)
        for container in (c for c in plan.containers if c.name in plan.running):
            path = f"{pod}/{LAYOUT.container_name(plan.container_id(container.name))}"
            self._make(path, leaf=True)
            self._set(path, values[container.name])
            self._write(path, "memory.min", container.granted.memory_request)
            if high := memory_high(container):
                self._write(path, "memory.high", high)
            self.paths.append(path)

    def _set(self, path: str, values: CgroupValues) -> None:
        self._write(path, "cpu.weight", 1 + (values.shares - 2) * 9999 // 262142)
        self._write(path, "cpu.max", f"{'max' if values.quota == NONE else values.quota} 100000")
        self._write(path, "memory.max", "max" if values.memory == NONE else values.memory)

    def _make(self, path: str, leaf: bool = False) -> None:
        folder = ROOT
        for part in path.split("/"):
            folder /= part
            folder.mkdir(exist_ok=True)
            if not leaf or folder != ROOT / path:
                (folder / "cgroup.subtree_control").write_text("+cpu +memory +io +pids")

    def _write(self, path: str, name: str, value: object) -> None:
        (ROOT / path / name).write_text(str(value))

    def texts(self) -> dict[tuple[str, str], str]:
        return {(path, name): (ROOT / path / name).read_text().strip() for path in self.paths for name in FILES}

    def changed(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Files whose text is not the kubelet's: (now, the kubelet's)."""
        now = self.texts()
        return {key: (now[key], text) for key, text in self.kubelets.items() if now[key] != text}

    def looser(self) -> list[str]:
        """More quota or memory than the kubelet gives, or less of it protected than the kubelet protects."""
        return [
            f"{path} {name} {now} for {kubelets}"
            for (path, name), (now, kubelets) in self.changed().items()
            if (name in ("cpu.max", "memory.max", "memory.high") and amount(now) > amount(kubelets))
            or (name in ("memory.min", "memory.low") and amount(now) < amount(kubelets))
        ]

    def remove(self) -> None:
        for path in reversed(self.paths):
            (ROOT / path).rmdir()


def amount(text: str) -> float:
    first = text.split(maxsplit=1)[0]
    return float("inf") if first == "max" else float(first)


class Agent:
    """All strategies, with the agent's own observer, journal and applier."""

    def __init__(self, node: Node, folder: Path, boot: str = "now", facts: NodeReading = FACTS) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))  # a guest's is smaller than a container's
        hierarchy = Hierarchy()
        self._journal = OriginalValues(folder, boot)
        self._observer, self._applier = Observer(hierarchy, LAYOUT), Applier(hierarchy, self._journal, dry_run=False)
        self._pods: list[PodSpec] = [pod_of(msgspec.convert(p.shown(), NodePodWire)) for p in node.plans]
        self._memory, self._facts = Memory(), facts

    def tick(self, spec: dict[str, Any]) -> None:
        observation = self._observer.read(self._pods, (), self._facts, self._applier.overridden_knobs)
        at_full_cpu = replace(observation, node=replace(observation.node, cpu=CpuUse(100.0)))
        decided, self._memory = decide(at_full_cpu, policy(spec), self._memory, strategies(EnforcerSettings()), Ages())
        assert not [v for v in decided.verdicts if v.reason == "StrategyFailed"]
        self._applier.apply([StrategyPlan(wants=decided.wants)], at_full_cpu)

    def killed(self) -> None:
        self._journal.close()
        self._observer.close()

    def end(self) -> None:
        self._applier.restore()
        self.killed()


@pytest.fixture
def node() -> Iterator[Node]:
    matrix_node = Node([plan.phase("running") for plan in plans(seed=45, count=48)])
    yield matrix_node
    matrix_node.remove()


@pytest.fixture
def agent(node: Node, tmp_path: Path) -> Callable[..., Agent]:
    return lambda **more: Agent(node, tmp_path / "state", **more)


def test_the_kubelets_own_protection_and_throttling_are_no_leftover_of_an_agent(
    node: Node, agent: Callable[..., Agent]
) -> None:
    """Installed with nothing on, ended, started with a journal of another boot, ended."""
    assert len([1 for (_, name), text in node.kubelets.items() if name == "memory.high" and text != "max"]) > 20
    assert len([1 for (_, name), text in node.kubelets.items() if name == "memory.min" and text != "0"]) > 50
    yielding = {plan.uid for plan in node.plans if plan.qos == "BE"}  # batch resources are set whatever the policy says
    for boot in ("before", "now"):
        acting = agent(boot=boot)
        for _ in range(3):
            acting.tick({})
            assert [key for key in node.changed() if not any(uid in key[0] for uid in yielding)] == []
            assert node.looser() == []
        acting.end()
        assert node.changed() == {}


@pytest.mark.parametrize("faster", [False, True], ids=["plain", "normalised"])
def test_every_strategy_keeps_within_the_kubelets_memory_qos_and_gives_it_back(
    node: Node, agent: Callable[..., Agent], faster: bool
) -> None:
    facts = replace(FACTS, annotations=FASTER) if faster else FACTS
    for _ in range(2):  # the second one after a kill
        acting = agent(facts=facts)
        for _ in range(3):
            acting.tick(EVERYTHING)
            assert node.looser() == []
        acting.killed()
    names = {name for _, name in node.changed()}
    assert {"memory.low", "memory.high", "cpu.max.burst"} <= names and len(node.changed()) > 60
    acting = agent(facts=facts)
    acting.tick(EVERYTHING)
    acting.end()
    assert node.changed() == {}
