"""Best effort on a real cgroup v2 kernel: amounts, suppression, starvation; run in the guest by test_best_effort_v2."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import ContainerSpec, KubeQos, PodSpec
from cotenant.enforcer.decide.container_resources import BATCH_CPU, BATCH_MEMORY
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.best_effort import BestEffort
from tests.enforcer.guest.strategies_v2 import LAYOUT, MIB, Node

UID, ID = "0f3e3a52-0000-4000-8000-000000000003", "ef" * 32
TIER = LAYOUT.tier(KubeQos.BEST_EFFORT)
POD = LAYOUT.pod(UID, KubeQos.BEST_EFFORT)
CONTAINER = LAYOUT.container(UID, KubeQos.BEST_EFFORT, ID)
BATCH = {BATCH_CPU: 500, BATCH_MEMORY: 64 * MIB}


class BatchNode(Node):
    """With a batch pod as a kubelet leaves it."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self._make(CONTAINER)
        for path in (TIER, POD, CONTAINER):
            self.write(path, "cpu.weight", "1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BatchNode]:
    batch_node = BatchNode(tmp_path / "state")
    yield batch_node
    batch_node.close()


def job() -> PodSpec:
    main = ContainerSpec("main", ID, running=True, requests=BATCH, limits=BATCH)
    return PodSpec("ns", "job", UID, KubeQos.BEST_EFFORT, QosClass.BE, containers=(main,))


def slo(**thresholds: object) -> dict[str, object]:
    return {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota", **thresholds}}


def test_a_batch_pod_has_what_it_asked_for_and_gives_it_back(node: BatchNode) -> None:
    agent = node.agent(BeTotals())
    agent.tick([job()])
    # 500 millicores: 512 shares, of which the weight is 1 + (512 - 2) * 9999 / 262142 = 20.4; 50 ms of 100
    assert [node.read(path, "cpu.weight") for path in (POD, CONTAINER)] == ["20", "20"]
    assert [node.read(path, "cpu.max") for path in (POD, CONTAINER)] == ["50000 100000"] * 2
    assert [node.read(path, "memory.max") for path in (POD, CONTAINER)] == [str(64 * MIB)] * 2
    agent.restore()
    assert [node.read(path, "cpu.weight") for path in (POD, CONTAINER)] == ["1", "1"]
    assert [node.read(path, "cpu.max").split()[0] for path in (POD, CONTAINER)] == ["max", "max"]
    assert [node.read(path, "memory.max") for path in (POD, CONTAINER)] == ["max", "max"]


def test_the_tiers_quota_follows_the_rest_of_the_machine(node: BatchNode) -> None:
    node.write(TIER, "cpu.weight", "100")
    agent = node.agent(BestEffort())
    agent.tick([job()], slo(), millicores=300.0)
    # one CPU: 650 - 300 = 350 millicores
    assert (node.read(TIER, "cpu.max"), node.read(TIER, "cpu.weight")) == ("35000 100000", "1")
    agent.tick([job()], slo(), millicores=700.0)
    assert node.read(TIER, "cpu.max") == "2000 100000"
    agent.tick([job()], slo(), millicores=0.0)
    # grown by a tenth of the machine
    assert node.read(TIER, "cpu.max") == "12000 100000"
    agent.tick([job()], {})
    assert (node.read(TIER, "cpu.max"), node.read(TIER, "cpu.weight")) == ("max 100000", "1")


def test_who_starves_past_a_promised_share_is_lifted(node: BatchNode) -> None:
    node.write(LAYOUT.tier(KubeQos.BURSTABLE), "cpu.weight", "40")
    agent = node.agent(BestEffort(BestEffortSettings(starve_seconds=2.0)))
    weights: set[str] = set()
    end = time.monotonic() + 60
    while weights <= {"1"} and time.monotonic() < end:
        agent.tick([job()], slo(cpuSuppressMinPercent=20), millicores=1000.0)
        weights.add(node.read(TIER, "cpu.weight"))
    # x / (x + 40) = 20 %
    assert weights == {"1", "10"}
