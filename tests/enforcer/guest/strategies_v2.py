"""CPU burst, memory QoS, normalisation and yielding on a real cgroup v2 kernel; run in the guest by test_strategies_v2.

One latency-sensitive pod in the burstable tier. No fixed sleeps but the ticks themselves: the guest's clock is the
host's, its speed is not.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import ContainerSpec, GroupReading, Knob, KubeQos, NodeReading, PodSpec, Strategy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.burst import Burst
from cotenant.enforcer.strategies.identity import GroupIdentity
from cotenant.enforcer.strategies.memory_qos import MemoryProtection
from cotenant.enforcer.strategies.normalisation import Normalisation
from tests.enforcer.one_strategy import OneStrategy

ROOT = Path("/sys/fs/cgroup")
MIB = 1 << 20
UID, ID = "0f3e3a52-0000-4000-8000-000000000002", "cd" * 32
LAYOUT = Layout()
POD = LAYOUT.pod(UID, KubeQos.BURSTABLE)
CONTAINER = LAYOUT.container(UID, KubeQos.BURSTABLE, ID)
TIERS = ("kubepods", "kubepods/burstable")


def web(**annotations: str) -> PodSpec:
    main = ContainerSpec(
        "main", ID, True, requests={"cpu": 250, "memory": 16 * MIB}, limits={"cpu": 500, "memory": 256 * MIB}
    )
    return PodSpec("ns", "web", UID, KubeQos.BURSTABLE, QosClass.LS, annotations=annotations, containers=(main,))


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.05)


class Node:
    """The guest as a node with one pod as a kubelet leaves it, and an agent of one strategy."""

    def __init__(self, state: Path) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.agents: list[OneStrategy] = []
        self._state = state
        for tier in (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT):
            self._make(LAYOUT.tier(tier))
        self._make(CONTAINER)
        for path in (POD, CONTAINER):
            self.write(path, "cpu.max", "50000 100000")

    def _make(self, path: str) -> None:
        folder = ROOT
        for part in path.split("/"):
            folder /= part
            folder.mkdir(exist_ok=True)
            if folder != ROOT / CONTAINER:
                (folder / "cgroup.subtree_control").write_text("+cpu +memory +io +pids")

    def read(self, path: str, name: str) -> str:
        return (ROOT / path / name).read_text().strip()

    def write(self, path: str, name: str, text: str) -> None:
        (ROOT / path / name).write_text(text)

    def number(self, path: str, name: str, key: str) -> int:
        return int(dict(line.split() for line in self.read(path, name).splitlines())[key])

    def run(self, code: str) -> subprocess.Popen[str]:
        join = f"import os; open('{ROOT / CONTAINER}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        process = subprocess.Popen([sys.executable, "-c", join + code], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        wait_for(lambda: str(process.pid) in self.read(CONTAINER, "cgroup.procs").split())
        return process

    def agent(self, strategy: Strategy[Any], **annotations: str) -> OneStrategy:
        self.agents.append(
            OneStrategy(
                strategy, self._state, LAYOUT, NodeReading("guest", annotations=annotations, kubelet_static_cpus=False)
            )
        )
        return self.agents[-1]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for agent in self.agents:
            agent.restore()  # also lifts memory.high, under which a killed process may not end
        for process in self.processes:
            process.wait()
        for folder, _, _ in os.walk(ROOT / "kubepods", topdown=False):
            wait_for(lambda at=Path(folder): removed(at))  # type: ignore[misc]


def removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError as refused:
        return refused.errno == errno.ENOENT
    return True


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    kernel_node = Node(tmp_path / "state")
    yield kernel_node
    kernel_node.close()


def test_a_buffer_is_saved_up_and_given_back(node: Node) -> None:
    agent = node.agent(Burst())
    agent.tick([web()], {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}})
    assert [node.read(path, "cpu.max.burst") for path in (POD, CONTAINER)] == ["50000", "50000"]
    agent.tick([web()], {})
    assert [node.read(path, "cpu.max.burst") for path in (POD, CONTAINER)] == ["0", "0"]


def test_a_throttled_containers_quota_grows_step_by_step(node: Node) -> None:
    agent = node.agent(Burst())
    only = {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 130}}
    agent.tick([web()], only)
    node.run("while True: pass")
    for expected in ("60000 100000", "65000 100000"):  # * 1.2, then its bound
        before = node.number(CONTAINER, "cpu.stat", "nr_throttled")
        wait_for(lambda: node.number(CONTAINER, "cpu.stat", "nr_throttled") > before)  # noqa: B023 - called at once
        agent.tick([web()], only)
        assert [node.read(path, "cpu.max") for path in (POD, CONTAINER)] == [expected, expected]
    agent.tick([web()], {})
    assert [node.read(path, "cpu.max") for path in (POD, CONTAINER)] == ["50000 100000", "50000 100000"]


def test_protection_holds_at_every_level_and_goes(node: Node) -> None:
    node.run("import time; time.sleep(600)")
    agent = node.agent(MemoryProtection())
    qos = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 100, "throttlingPercent": 80, "oomKillGroup": 1}
    agent.tick([web()], {"resourceQOSStrategy": {"lsClass": {"memoryQOS": qos}}})
    places = (*TIERS, POD, CONTAINER)
    # 50 % and 100 % of 16 MiB; high = 16 + (256 - 16) * 80 % = 208 MiB.
    assert [node.read(path, "memory.min") for path in places] == [str(8 * MIB)] * 4
    assert [node.read(path, "memory.low") for path in places] == [str(16 * MIB)] * 4
    assert node.read(CONTAINER, "memory.high") == str(208 * MIB)
    assert [node.read(path, "memory.oom.group") for path in places] == ["0", "0", "1", "1"]
    agent.tick([web()], {})
    assert [node.read(path, "memory.min") for path in places] == ["0"] * 4
    assert node.read(CONTAINER, "memory.high") == "max"
    assert node.read(CONTAINER, "memory.oom.group") == "0"


def test_who_needs_more_than_memory_high_gets_it(node: Node) -> None:
    # high = 16 + (256 - 16) * 5 % = 28 MiB; the process wants 90 MiB that cannot be dropped.
    agent = node.agent(MemoryProtection())
    spec = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, "throttlingPercent": 5}}}}
    process = node.run("import time; kept = bytearray(90 << 20); time.sleep(600)")
    stuck, ticks = 0, 0
    while agent.seen is None or group(agent).memory.usage < 90 * MIB:  # type: ignore[union-attr]
        before = node.number(CONTAINER, "memory.events", "high")
        agent.tick([web()], spec)
        ticks += 1
        assert ticks < 60, (node.read(CONTAINER, "memory.high"), node.read(CONTAINER, "memory.current"))
        rising = node.number(CONTAINER, "memory.events", "high") > before
        stuck = stuck + 1 if rising and node.read(CONTAINER, "memory.high") != "max" else 0
        assert stuck <= 3, "it is stopped at memory.high for more than two ticks"
        time.sleep(1.0)
    assert process.poll() is None
    assert node.number(CONTAINER, "memory.events", "high") > 0, "it was never throttled: the test proves nothing"


def group(agent: OneStrategy) -> GroupReading:
    assert agent.seen is not None
    reading = agent.seen.pods[0].containers[0].group
    assert reading is not None
    return reading


def test_a_batch_pod_that_grew_without_its_limit_is_not_killed_when_it_gets_it(node: Node) -> None:
    # An agent that was away lifted the limit of 24 MiB; the pod has 90 MiB now that cannot be dropped.
    amounts = {"kubernetes.io/batch-memory": 24 * MIB}
    main = ContainerSpec("main", ID, running=True, requests=amounts, limits=amounts)
    batch = PodSpec("ns", "batch", UID, KubeQos.BURSTABLE, QosClass.BE, containers=(main,))
    process = node.run("kept = bytearray(90 << 20); print('grown', flush=True); import time; time.sleep(600)")
    assert process.stdout is not None and process.stdout.readline() == "grown\n"
    agent = node.agent(BeTotals())
    for _ in range(5):
        agent.tick([batch])
        used, limit = (node.read(CONTAINER, f"memory.{name}") for name in ("current", "max"))
        assert 90 * MIB <= int(used) <= int(limit) < 130 * MIB
    assert process.poll() is None and node.number(CONTAINER, "memory.events", "oom_kill") == 0
    process.kill()
    process.wait()
    wait_for(lambda: (agent.tick([batch]), node.read(CONTAINER, "memory.max"))[1] == str(24 * MIB))


def test_a_faster_nodes_quota(node: Node) -> None:
    agent = node.agent(Normalisation(), **{"node.koordinator.sh/cpu-normalization-ratio": "1.25"})
    agent.tick([web()], {})
    assert [node.read(path, "cpu.max") for path in (POD, CONTAINER)] == ["40000 100000", "40000 100000"]


def test_a_pod_that_yields_gets_its_weight_back(node: Node) -> None:
    node.write(POD, "cpu.weight", "39")
    agent = node.agent(GroupIdentity())
    yielding = web(**{"koordinator.sh/cpuQOS": '{"groupIdentity": -1}'})
    agent.tick([yielding], {"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}})
    assert node.read(POD, "cpu.idle") == "1"
    agent.tick([yielding], {})
    assert (node.read(POD, "cpu.idle"), node.read(POD, "cpu.weight")) == ("0", "39")
    assert Knob.CPU_BVT not in (agent.seen.supported if agent.seen else ())
