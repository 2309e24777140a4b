"""Suppression on real cgroups and real processes: what a load step of a service does to best effort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import CpuUse, Knob, NodeReading, Observation
from cotenant.enforcer.decide.container_resources import BATCH_CPU, BATCH_MEMORY
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.sources.wire import pod_of
from cotenant.enforcer.strategies.baseline import InterferenceSignal, measured_signals
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.best_effort import BestEffort
from tests.enforcer.own_cgroups import wait_for
from tests.enforcer.readings import policy, values
from tests.support.kubepods import Kubepods, Pod, missing

pytestmark = pytest.mark.server

TIER = "kubepods/besteffort"
BURN = ["/bin/sh", "-c", "while :; do :; done"]
BATCH = {BATCH_CPU: "1000", BATCH_MEMORY: "64Mi"}
SHARES = 65_536
"""Of the test's tree, lest others on the machine take its CPU."""


@pytest.fixture
def node() -> Iterator[Kubepods]:
    if reason := missing():
        pytest.skip(f"SUPPRESSION IS NOT TESTED ON REAL CGROUPS: {reason}")
    with Kubepods(outer_shares=SHARES) as kubepods:
        yield kubepods


class Agent:
    """Observer, strategies and applier, as in the loop; ticks when told. The machine is only what the pods use."""

    def __init__(self, node: Kubepods, folder: Path, **settings: Any) -> None:
        hierarchy = Hierarchy()
        self._node = node
        self._observer = Observer(hierarchy, Layout(base=(node.base,)))
        self._applier = Applier(hierarchy, OriginalValues(folder), dry_run=False)
        self._strategy = BestEffort(BestEffortSettings(**settings))
        self._state = self._strategy.initial()
        self.facts = NodeReading("n1", kubelet_static_cpus=False)

    def look(self) -> Observation:
        pods = [pod_of(msgspec.convert(p.body, NodePodWire)) for p in self._node.pods.values()]
        observation = self._observer.read(pods, (), self.facts, self._applier.overridden_knobs)
        use = sum(p.group.cpu.millicores or 0.0 for p in observation.pods if p.group)
        return replace(
            observation,
            node=replace(observation.node, cpu=CpuUse(use), memory_available_bytes=observation.node.memory_total_bytes),
        )

    def tick(self, **thresholds: Any) -> tuple[Observation, dict[str, Any]]:
        """What was seen, and the quotas that were wanted."""
        observation = self.look()
        at = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota", **thresholds}})
        step = self._strategy.step(observation, at, self._state)
        self._state = step.state
        self._applier.apply([step.plan, BeTotals().step(observation, at, None).plan], observation)
        return observation, values(step.plan, Knob.CPU_QUOTA)

    def restore(self) -> None:
        self._applier.restore()


def used_seconds(node: Kubepods, path: str) -> float:
    return int(node.read(path, "cpuacct", "cpuacct.usage")) / 1e9


def burn(node: Kubepods, pod: Pod, seconds: float) -> None:
    """Wait until the pod has used so much more CPU."""
    before = used_seconds(node, pod.path)
    wait_for(lambda: used_seconds(node, pod.path) - before >= seconds)


def quota(node: Kubepods, path: str = TIER) -> int:
    return int(node.read(path, "cpu", "cpu.cfs_quota_us"))


@pytest.mark.slow
def test_a_load_step_is_followed_within_two_ticks_and_the_kernel_holds_best_effort_there(
    node: Kubepods, tmp_path: Path
) -> None:
    web = node.pod("web", qos="LS", kube="Burstable", resources={"requests": {"cpu": "1"}})
    job = node.pod("job", qos="BE")
    for _ in range(2):
        node.run(job, BURN)
    agent = Agent(node, tmp_path)
    agent.tick()
    burn(node, job, 0.2)
    agent.tick()
    before = quota(node)
    node.run(web, BURN)
    burn(node, web, 0.3)
    agent.tick()
    burn(node, web, 0.3)
    observation, quotas = agent.tick()
    # The threshold leaves 65 % of the machine; the service now takes about a core of it.
    everything = observation.node.cpu_millicores * 100
    assert before == everything * 65 // 100
    assert list(quotas.values()) == [quota(node)]
    use = next(p.group.cpu.millicores or 0.0 for p in observation.pods if p.spec.name == "web" and p.group)
    assert use > 100.0
    # Not moved for less than 1 % of the machine, never below 2 ms.
    assert quota(node) <= max(before - int(use) * 100, 2000) + everything // 100
    used_before, start = used_seconds(node, TIER), agent.look().at_seconds
    burn(node, web, 0.5)
    used = used_seconds(node, TIER) - used_before
    passed = agent.look().at_seconds - start
    # A period of 100 ms at either end may be paid twice.
    assert used <= quota(node) / 100_000 * (passed + 0.2) * 1.15 + 0.02
    agent.restore()
    assert quota(node) == -1
    assert node.read(TIER, "cpu", "cpu.shares") == "2"


def test_best_effort_pods_give_up_their_own_quota_where_the_tier_has_one(node: Kubepods, tmp_path: Path) -> None:
    job = node.pod("job", qos="BE", resources={"requests": BATCH, "limits": BATCH})
    agent = Agent(node, tmp_path)
    agent.tick(cpuSuppressPolicy="cpuset")
    # 1000 batch millicores
    assert [quota(node, path) for path in (TIER, job.path, job.container)] == [-1, 100_000, 100_000]
    assert node.read(job.path, "cpu", "cpu.shares") == "1024"
    # 10 % of the machine: below what the pod had, which cgroup v1 would refuse while the pod has it
    observation, _ = agent.tick(cpuSuppressThresholdPercent=10)
    assert [quota(node, path) for path in (TIER, job.path, job.container)] == [
        observation.node.cpu_millicores * 10,
        -1,
        -1,
    ]
    agent.tick(enable=False)
    assert [quota(node, path) for path in (TIER, job.path, job.container)] == [-1, 100_000, 100_000]
    agent.restore()
    assert [quota(node, path) for path in (TIER, job.path, job.container)] == [-1, -1, -1]


@pytest.mark.parametrize(
    "facts", [NodeReading("n1"), NodeReading("n1", kubelet_static_cpus=True)], ids=["unknown", "reserves-cpus"]
)
def test_best_effort_stays_off_the_cpus_that_a_kubelet_keeps_free_of_it(
    node: Kubepods, tmp_path: Path, facts: NodeReading
) -> None:
    """As a static CPU manager leaves cpusets: CPU 0 is a Guaranteed pod's, or kept by `strict-cpu-reservation`."""
    one_core = {"cpu": "1", "memory": "64Mi"}
    own = node.pod("own", kube="Guaranteed", resources={"requests": one_core, "limits": one_core})
    web = node.pod("web", kube="Burstable", resources={"requests": {"cpu": "100m"}})
    job = node.pod("job", qos="BE", resources={"requests": BATCH, "limits": BATCH})
    every = node.read(job.container, "cpuset", "cpuset.cpus")
    own_cpus, others = every[:1], format_cpus(parse_cpus(every) - {int(every[:1])})
    for pod, cpus in ((own, own_cpus), (web, others), (job, others)):
        node.write(pod.container, "cpuset", "cpuset.cpus", cpus)
    agent = Agent(node, tmp_path)
    agent.facts = facts
    for _ in range(2):
        # Two CPUs at the least are wanted for best effort: of this machine's the first too, if it were open.
        agent.tick(cpuSuppressPolicy="cpuset", cpuSuppressThresholdPercent=100)
        assert set(parse_cpus(node.read(job.container, "cpuset", "cpuset.cpus"))) <= parse_cpus(others)
    assert node.read(own.container, "cpuset", "cpuset.cpus") == own_cpus


def test_a_services_waiting_is_measured_here(node: Kubepods, tmp_path: Path) -> None:
    web = node.pod("web", qos="LS", kube="Burstable", resources={"requests": {"cpu": "1"}})
    node.run(web, BURN)
    agent = Agent(node, tmp_path)
    waits: list[float] = []

    def measures() -> bool:
        burn(node, web, 0.02)
        observation = agent.look()
        waits.extend(
            v
            for s, v in measured_signals(observation.pods[0], observation.elapsed_seconds).items()
            if s is InterferenceSignal.RUN_DELAY
        )
        return bool(waits)

    wait_for(measures)
    assert waits[0] >= 0.0
